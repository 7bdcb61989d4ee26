"""Tests of a join tree: window, order, negations, and precursors."""

from ensue.codegen.absence import write_search
from ensue.codegen.expressions import split_functions
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.state_layout import SourceWriter
from ensue.physical.join_tree.nodes import PlacedNode, TreeModules
from ensue.physical.join_tree.operator_results import PartialResult
from ensue.physical.join_tree.records import TreeRecords
from ensue.planner.physical_plan import LeafNode, NegationCheck

FAR = str(2**62)  # after every row and time

# the rows of a chain descend from its newest event to its first
CHAINS = split_functions("""
@njit
def chain_has(A, chain, row):
    while chain >= 0:
        if A[chain, ROW] <= row:
            return A[chain, ROW] == row
        chain = A[chain, BACK]
    return False


@njit
def chains_meet(A, left, right):
    while left >= 0 and right >= 0:
        if A[left, ROW] == A[right, ROW]:
            return True
        if A[left, ROW] > A[right, ROW]:
            left = A[left, BACK]
        else:
            right = A[right, BACK]
    return False
""")


class TreeGuards:
    """Writes the tests that a result must pass."""

    def __init__(self, frame: KernelContext, records: TreeRecords, modules: TreeModules) -> None:
        self.frame = frame
        self.records = records
        self.modules = modules

    def out_of_reach(self, node: str, place: PlacedNode) -> str | None:
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

    def in_window(self, node: str, place: PlacedNode) -> list[str]:
        tests = []
        if self.frame.by_events:
            first = self.records.get("index", node)
            tests.append(f"idx - {first} <= {self.frame.window_text}")
        if limit := self.modules.limit_text(place):
            tests.append(f"t - {self.records.get('start', node)} <= {limit}")
        return tests

    def precursors(self, leaf: PlacedNode) -> list[str]:
        """When every enclosing level waits for the complex event that the leaf begins (HCED)."""
        tests = []
        for place in self.modules.openings(leaf):
            waiting = place.parts[0]
            newest = self.records.top(waiting.list)
            tests.append(f"{newest} >= 0")
            if (far := self.out_of_reach(newest, place)) is not None:
                tests.append(f"not ({far})")
        return tests

    def write_window_tests(self, part: PartialResult) -> list[str]:
        window = self.frame.window_text
        if not window:
            return []
        if self.frame.by_events:
            return [f"idx - {part.index} <= {window}"]
        return [f"t - {part.start} <= {window}"]

    def write_disjointness(self, left: PartialResult, right: PartialResult) -> list[str]:
        """The tests that no event is on both sides."""
        tests = []
        role = self.frame.plan.role
        for first in (*left.events, *left.chains):
            for second in (*right.events, *right.chains):
                if role(first).type != role(second).type:
                    continue
                match first in left.events, second in right.events:
                    case True, True:
                        tests.append(f"{left.events[first].row} != {right.events[second].row}")
                    case True, False:
                        row, chain = left.events[first].row, right.chains[second]
                        tests.append(f"not chain_has(A, {chain}, {row})")
                    case False, True:
                        row, chain = right.events[second].row, left.chains[first]
                        tests.append(f"not chain_has(A, {chain}, {row})")
                    case _:
                        chains = f"{left.chains[first]}, {right.chains[second]}"
                        tests.append(f"not chains_meet(A, {chains})")
        return tests

    def absent(self, out: SourceWriter, absence: NegationCheck, part: PartialResult, flag: str) -> None:
        early, late = ("-np.inf", "np.inf") if self.frame.real_time else (f"-{FAR}", FAR)
        times = self.frame.intervals
        with out.block(f"if {flag}:"):
            write_search(
                out,
                self.records,
                absence,
                part,
                after_row=[self._end(part, v, "row", "-1") for v in absence.after],
                after_end=[self._end(part, v, "end", early) for v in absence.after if times],
                before_row=[self._end(part, v, "first", FAR) for v in absence.before],
                before_start=[self._end(part, v, "start", late) for v in absence.before if times],
                first="",
                last="idx" if self.frame.by_events else "t",
                found=f"{flag} = False",
            )

    def _end(self, part: PartialResult, variable: str, which: str, none: str) -> str:
        """The first or last row or time of a variable's events; `none` if it has no events."""
        if variable in part.events:
            event = part.events[variable]
            return event.time(which) if which in ("start", "end") else event.row
        return self.write_chain_read(part.chains[variable], which, none)

    def write_chain_read(self, chain: str, which: str, none: str) -> str:
        if chain == "-1":
            return none
        return f"({self.records.get(which, chain)} if {chain} >= 0 else {none})"

    def can_begin_early(self, spot: PlacedNode) -> bool:
        """Whether an entry that ends inside the window may start before it."""
        return self.frame.intervals or spot.kleene or not isinstance(spot.node, LeafNode)
