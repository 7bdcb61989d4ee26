"""When parts of a join tree fit: window, order, negations, and what an operator asks for."""

from ensue.plan.physical import Absence, Leaf
from ensue.source.absence import search
from ensue.source.kernel_inputs import Frame
from ensue.source.prelude import by_name
from ensue.source.table_columns import Source
from ensue.structures.tree.modules import TreeModules
from ensue.structures.tree.nodes import Spot
from ensue.structures.tree.parts import Part
from ensue.structures.tree.records import Records

FAR = str(2**62)  # behind every row and time

# the rows of a chain fall from its newest event to its first
CHAINS = by_name("""
@njit
def chain_has(A, chain, row):
    while chain >= 0:
        if A[chain, ROW] <= row:
            return A[chain, ROW] == row
        chain = A[chain, BACK]
    return False


@njit
def chains_meet(A, one, other):
    while one >= 0 and other >= 0:
        if A[one, ROW] == A[other, ROW]:
            return True
        if A[one, ROW] > A[other, ROW]:
            one = A[one, BACK]
        else:
            other = A[other, BACK]
    return False
""")


class TreeGuards:
    """Writes the tests that a result must pass."""

    def __init__(self, frame: Frame, records: Records, modules: TreeModules) -> None:
        self.frame = frame
        self.records = records
        self.modules = modules

    def out_of_reach(self, node: str, place: Spot) -> str | None:
        """When this entry and all older ones ended too long ago to be joined at a place."""
        if not self.frame.plan.prune:
            return None
        tests = []
        if self.frame.by_events:
            last = self.records.get("last_index", node)
            tests.append(f"idx - {last} > {self.frame.window_text}")
        if limit := self.modules.limit_text(place):
            tests.append(f"t - {self.records.get('end', node)} > {limit}")
        return " or ".join(tests) or None

    def in_window(self, node: str, place: Spot) -> list[str]:
        tests = []
        if self.frame.by_events:
            first = self.records.get("index", node)
            tests.append(f"idx - {first} <= {self.frame.window_text}")
        if limit := self.modules.limit_text(place):
            tests.append(f"t - {self.records.get('start', node)} <= {limit}")
        return tests

    def precursors(self, leaf: Spot) -> list[str]:
        """When every level that an event would open a box of waits for that box (HCED)."""
        tests = []
        for place in self.modules.openings(leaf):
            waiting = place.parts[0]
            newest = self.records.top(waiting.list)
            tests.append(f"{newest} >= 0")
            if (far := self.out_of_reach(newest, place)) is not None:
                tests.append(f"not ({far})")
        return tests

    def whole_in_window(self, part: Part) -> list[str]:
        window = self.frame.window_text
        if not window:
            return []
        if self.frame.by_events:
            return [f"idx - {part.index} <= {window}"]
        return [f"t - {part.start} <= {window}"]

    def apart(self, left: Part, right: Part) -> list[str]:
        """No event is on both sides."""
        tests = []
        for one in (*left.events, *left.chains):
            for other in (*right.events, *right.chains):
                role = self.frame.plan.role
                if role(one).type != role(other).type:
                    continue
                match one in left.events, other in right.events:
                    case True, True:
                        tests.append(f"{left.events[one].row} != {right.events[other].row}")
                    case True, False:
                        row, chain = left.events[one].row, right.chains[other]
                        tests.append(f"not chain_has(A, {chain}, {row})")
                    case False, True:
                        row, chain = right.events[other].row, left.chains[one]
                        tests.append(f"not chain_has(A, {chain}, {row})")
                    case _:
                        chains = f"{left.chains[one]}, {right.chains[other]}"
                        tests.append(f"not chains_meet(A, {chains})")
        return tests

    def absent(self, out: Source, absence: Absence, part: Part, flag: str) -> None:
        def found() -> None:
            out(f"{flag} = False")

        early, late = ("-np.inf", "np.inf") if self.frame.real_time else (f"-{FAR}", FAR)
        times = self.frame.intervals
        with out.block(f"if {flag}:"):
            search(
                out,
                self.records,
                absence,
                part,
                after_row=[self._row(part, v, "row", "-1") for v in absence.after],
                after_end=[self._time(part, v, "end", early) for v in absence.after if times],
                before_row=[self._row(part, v, "first", FAR) for v in absence.before],
                before_start=[self._time(part, v, "start", late) for v in absence.before if times],
                first="",
                last="idx" if self.frame.by_events else "t",
                found=found,
            )

    def _row(self, part: Part, variable: str, which: str, none: str) -> str:
        """The row of a variable's first or last event; `none` where it has no events."""
        if variable in part.events:
            return part.events[variable].row
        return self.of_chain(part.chains[variable], which, none)

    def _time(self, part: Part, variable: str, which: str, none: str) -> str:
        if variable in part.events:
            return part.events[variable].time(which)
        return self.of_chain(part.chains[variable], which, none)

    def of_chain(self, chain: str, which: str, none: str) -> str:
        if chain == "-1":
            return none
        return f"({self.records.get(which, chain)} if {chain} >= 0 else {none})"

    def may_begin_early(self, spot: Spot) -> bool:
        """Whether an entry that is in reach by its end may be out of the window by its start."""
        return self.frame.intervals or spot.kleene or not isinstance(spot.node, Leaf)
