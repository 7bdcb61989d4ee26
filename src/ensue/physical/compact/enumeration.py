"""Enumerates matches from the events in the window with constant delay, in their order.

Every event of a partition is one node. A node links to the next event of each role and to the last
one before it; so when an event completes matches, a walk back over the last events computes for
each state the last node from which partial matches can still reach it. The walk forwards then
takes only steps that lead to a match, and the first matches are found without the rest.
"""

from collections.abc import Callable, Sequence

from ensue.codegen.kernel_inputs import GROW, KernelContext
from ensue.codegen.kernel_text import STOP_REQUESTED, write_stop_if
from ensue.codegen.state_layout import SourceWriter, StateColumns, get_output_column
from ensue.ir.traversal import get_kleene_variables, iterate_positive_atoms
from ensue.physical.compact.compact_nodes import CompactWriter
from ensue.planner.physical_plan import CompactPlan, CompactStep
from ensue.printing.expression_printer import format_name

AFTER_ALL = 1 << 30  # after every step of a state


class EnumerationWriter(CompactWriter):
    """The kernel that lists matches."""

    title = "Matches, in their order."
    functions = GROW
    spare = "SPARE_OUTPUT"

    def __init__(self, frame: KernelContext, compact: CompactPlan) -> None:
        pattern = frame.plan.query.pattern
        self.order = [atom.variable for atom in iterate_positive_atoms(pattern)]
        self.kleenes = get_kleene_variables(pattern)
        self.tops = ("head", "newest")
        super().__init__(frame, compact)
        self.inner.sort(key=lambda s: (s.source, self.order.index(s.variable)))
        self.final.sort(key=lambda s: (s.source, self.order.index(s.variable)))
        later = [s for s in self.inner if s.source != 0 and s.source != s.target]
        self.seen = sorted({self.bit(s) for s in later})
        for bit in self.seen:
            self.nodes.number[f"last_{bit}"] = len(self.nodes.number)
        self.roles = sorted({self.bit(s) for s in self.inner})
        self.of_bit = {self.bit(s): s for s in self.inner}
        for bit, step in self.of_bit.items():
            role = self.role(step).removeprefix("ROLE_")
            self.nodes.called |= {f"next_{bit}": f"NEXT_{role}", f"last_{bit}": f"LAST_{role}"}
        self.limit = compact.limit
        self.output = tuple(self._columns())
        self.growing = ("O", "N") if self.kleenes else ("O",)
        self.list = StateColumns("N", "", frame.names, "NODE_")
        for name in ("previous", "row"):  # fixed columns: match tables read them
            self.list.at(name, "")

    def _columns(self) -> list[str]:
        names = [f"row_{v}" for v in self.order if v not in self.kleenes]
        for variable in self.kleenes:
            names += [f"node_{variable}", f"count_{variable}"]
        return names

    @property
    def state(self) -> tuple[str, ...]:
        return ("A", "AF", "tops", "counts", *(("N",) if self.kleenes else ()))

    def begin(self, out: SourceWriter) -> None:
        if not self._chain():
            out.note("P: the current path, with its bindings; row 0 binds nothing")
            out(f"P = np.empty((A.shape[0] + 1, {len(self._path)}), np.int64)")
            for column in self.output:
                none = 0 if column.startswith("count_") else -1
                out(f"{self._on_path(column, '0')} = {none}")

    @property
    def _path(self) -> tuple[str, ...]:
        """The columns of `P`: a node, the step that took it, and the bindings."""
        return ("node", "step", *self.output)

    def _on_path(self, column: str, line: str) -> str:
        if column in self.output:
            return f"P[{line}, {get_output_column(self.frame.names, self._path, column, 'WAY')}]"
        number = self.frame.names.number(f"WAY_{column.upper()}", self._path.index(column), "columns of P")
        return f"P[{line}, {number}]"

    def _write_binding(self, column: str, table: str, line: str) -> str:
        """A column of a match: on the current path, or in the output."""
        if table == "P":
            return self._on_path(column, line)
        return f"{table}[{line}, {get_output_column(self.frame.names, self.output, column)}]"

    def keep(self, out: SourceWriter) -> None:
        get, head, newest = self.nodes.get, self.nodes.top("head"), self.nodes.top("newest")
        self.nodes.push(out)
        out(f"{get('previous', 'n')} = {newest}", f"{get('next', 'n')} = -1")
        for bit in self.roles:
            out(f"{get(f'next_{bit}', 'n')} = -1")
        for bit in self.seen:
            out(f"{get(f'last_{bit}', 'n')} = {self.nodes.top(f'last_{bit}')}")
        with out.block(f"if {newest} >= 0:"):
            out(f"{get('next', newest)} = n")
        with out.block(f"if {head} < 0:"):
            out(f"{head} = n")
        for bit in self.roles:
            with out.block(f"if {self.write_role_test([self.role(self.of_bit[bit])])}:"):
                # every node gets its next of a role once: the walk back ends at a known one
                out(f"x = {newest}")
                with out.block(f"while x >= 0 and {get(f'next_{bit}', 'x')} < 0:"):
                    out(f"{get(f'next_{bit}', 'x')} = n", f"x = {get('previous', 'x')}")
                if bit in self.seen:
                    out(f"{self.nodes.top(f'last_{bit}')} = n")
        out(f"{newest} = n")

    def write_expiry(self, out: SourceWriter) -> None:
        out.note("events outside the window are dropped")
        head = self.nodes.top("head")
        with out.block(f"while {head} >= 0 and {self.nodes.write_window_test(head)}:"):
            out(f"{head} = {self.nodes.get('next', head)}")
        with out.block(f"if {head} < 0:"):
            out(f"{self.nodes.top('newest')} = -1")
            for bit in self.seen:
                out(f"{self.nodes.top(f'last_{bit}')} = -1")

    def complete(self, out: SourceWriter) -> None:
        if self.windowed:
            self.write_expiry(out)
        out(f"head = {self.nodes.top('head')}")
        if self.limit is not None:
            out(f"left = {self.frame.constants.slot(self.limit, 'most_matches')}")
        if self._chain():
            self._loops(out)
        else:
            self._bounds(out)
            self._search(out)

    def _chain(self) -> bool:
        """Whether there is one step out of each state: single events in sequence."""
        return (
            not self.kleenes
            and len(self.final) == 1
            and len(self.inner) == len(self.states) - 1
            and all(s.target == s.source + 1 for s in self.inner)
            and self.final[0].source == len(self.inner)
        )

    def _loops(self, out: SourceWriter) -> None:
        count = len(self.inner)
        bits = [self.bit(step) for step in self.inner]
        if count == 0:
            self._emit_chain(out)
            return
        for place in reversed(range(1, count)):
            variable = format_name(self.inner[place].variable)
            out.note(f"the newest {variable} that the later events can still follow")
            known = self.nodes.top(f"last_{bits[place]}")
            if place < count - 1:
                later = self._local("newest", place + 1)
                known = self.nodes.get(f"last_{bits[place]}", later)
                known += f" if {later} >= 0 else -1"
            out(f"{self._local('newest', place)} = {known}")
        node = self._local("x", 0)
        out(f"{node} = head")
        first = self.nodes.get(f"next_{bits[0]}", node)
        mask = f"{self.nodes.get('mask', node)} & {self.role(self.inner[0])}"
        with out.block(f"if {node} >= 0 and not {mask}:"):
            out(f"{node} = {first}")
        self._loop(out, 0, bits)

    def _local(self, what: str, place: int) -> str:
        """A local name for a value of the event at a position of the sequence."""
        return f"{what}_{self.frame.names.variable(self.inner[place].variable)}"

    def _loop(self, out: SourceWriter, place: int, bits: list[int]) -> None:
        node = self._local("x", place)
        tests = [f"{node} >= 0"]
        if place < len(bits) - 1:
            tests.append(f"{node} < {self._local('newest', place + 1)}")
        if self.limit is not None:
            tests.append("left > 0")
        variable = format_name(self.inner[place].variable)
        out.note(f"every {variable} {'after it' if place else 'in the window'} that leads to a match")
        with out.block(f"while {' and '.join(tests)}:"):
            out(f"{self._local('at', place)} = {self.nodes.get('row', node)}")
            if place < len(bits) - 1:
                write_stop_if(out, STOP_REQUESTED, self.growing)
                following = self.nodes.get(f"next_{bits[place + 1]}", node)
                out(f"{self._local('x', place + 1)} = {following}")
                self._loop(out, place + 1, bits)
            else:
                self._emit_chain(out)
            out(f"{node} = {self.nodes.get(f'next_{bits[place]}', node)}")

    def _emit_chain(self, out: SourceWriter) -> None:
        self._room(out)
        for place, step in enumerate(self.inner):
            row = self._local("at", place)
            out(f"{self._write_binding(f'row_{step.variable}', 'O', 'otop')} = {row}")
        out(f"{self._write_binding(f'row_{self.final[0].variable}', 'O', 'otop')} = row", "otop += 1")
        if self.limit is not None:
            out("left -= 1")

    def _room(self, out: SourceWriter) -> None:
        out.note("a match")
        with out.block("if otop == O.shape[0]:"):
            write_stop_if(out, "otop >= meta[MOST_OUT]", self.growing)
            out("O = grown(O)")

    def _bounds(self, out: SourceWriter) -> None:
        """`u3`: partial matches in state 3 lead to a match if their last node is below it."""
        for state in reversed(self.states[1:]):
            out.note(f"state {state}: events below this one lead to a match")
            out(f"u{state} = -1")
            if final := self.list_roles(s for s in self.final if s.source == state):
                with out.block(f"if {self.write_role_test(final)}:"):
                    out(f"u{state} = atop")
            for step in self.list_outgoing(state):
                if step.target == state:
                    continue
                bit, bound = self.bit(step), f"u{step.target}"
                with out.block(f"if {bound} >= 0:"):
                    known = self.nodes.get(f"last_{bit}", bound)
                    top = self.nodes.top(f"last_{bit}")
                    out(f"d = {top} if {bound} == atop else {known}")
                    with out.block(f"if d > u{state}:"):
                        out(f"u{state} = d")

    def _search(self, out: SourceWriter) -> None:
        """A depth-first search. `P` is the current path: nodes, numbers of steps, and bindings.

        Row 0 binds nothing. Matches with a common prefix share the lists of Kleene variables.
        """
        out.note("a depth-first search: the state, its node x, and e, the last step tried")
        after_all = self.frame.names.number("AFTER_ALL", AFTER_ALL, "after every step of a state")
        out("depth = 0", "state = 0", "x = -1", f"e = {after_all}", "going = True")
        with out.block("while going:"):
            write_stop_if(out, STOP_REQUESTED, self.growing)
            out.note("the nearest event that leads on: its node, the step, the next state")
            out("nx = -1", "ne = -1", "ns = -1")
            self._by_state(out, self._next_step, [step.source for step in self.inner])
            with out.block("if nx >= 0:"):
                node, taking = self._on_path("node", "depth"), self._on_path("step", "depth")
                out("depth += 1", f"{node} = nx", f"{taking} = ne")
                for column in self.output:
                    before = self._on_path(column, "depth - 1")
                    out(f"{self._on_path(column, 'depth')} = {before}")
                out(f"taken = {self.nodes.get('row', 'nx')}")
                for variable in dict.fromkeys(s.variable for s in self.inner):
                    numbers = [n for n, s in enumerate(self.inner) if s.variable == variable]
                    with out.block(f"if {' or '.join(f'ne == {n}' for n in numbers)}:"):
                        self._bind(out, variable, "taken", "P", "depth")
                out("state = ns", "x = nx", f"e = {after_all}")
            with out.block("else:"):
                out.note("a leaf: a match if the current event completes one, then back")
                self._by_state(out, self._ends, [step.source for step in self.final])
                with out.block("if depth == 0:"):
                    out("going = False")
                with out.block("else:"):
                    out(f"x = {node}", f"e = {taking}", "depth -= 1", "state = 0")
                    for number, step in enumerate(self.inner):
                        if step.source:
                            with out.block(f"if e == {number}:"):
                                out(f"state = {step.source}")
                if self.limit is not None:
                    with out.block("if left <= 0:"):
                        out("going = False")

    def _by_state(self, out: SourceWriter, write: Callable[[SourceWriter, int], None], states: Sequence[int]) -> None:
        for place, state in enumerate(sorted(set(states))):
            with out.block(f"{'elif' if place else 'if'} state == {state}:"):
                write(out, state)

    def _next_step(self, out: SourceWriter, state: int) -> None:
        """The nearest node that a step out of a state can take, after step `e` to node `x`."""
        for number, step in enumerate(self.inner):
            if step.source != state:
                continue
            bit, following = self.bit(step), self.nodes.get(f"next_{self.bit(step)}", "x")
            out.note(f"{format_name(step.variable)}, to state {step.target}")
            out("c = -1")
            with out.block("if x < 0:"), out.block("if head >= 0:"):
                matching = f"{self.nodes.get('mask', 'head')} & {self.role(step)}"
                out(f"c = head if {matching} else {self.nodes.get(f'next_{bit}', 'head')}")
            matching = f"{self.nodes.get('mask', 'x')} & {self.role(step)}"
            with out.block(f"elif e < {number} and {matching}:"):
                out("c = x")
            with out.block("else:"):
                out(f"c = {following}")
            with out.block(f"if c >= 0 and c < u{step.target} and (nx < 0 or c < nx):"):
                out("nx = c", f"ne = {number}", f"ns = {step.target}")

    def _ends(self, out: SourceWriter, state: int) -> None:
        """The current event completes the partial match in a state."""
        for step in self.final:
            if step.source == state:
                tests = [self.write_step_test(self.final, step)]
                if self.limit is not None:
                    tests.append("left > 0")
                with out.when(*tests):
                    self._emit(out, step)

    def _emit(self, out: SourceWriter, final: CompactStep) -> None:
        self._room(out)
        for column in self.output:
            out(f"{self._write_binding(column, 'O', 'otop')} = {self._write_binding(column, 'P', 'depth')}")
        self._bind(out, final.variable, "row", "O", "otop")
        out("otop += 1")
        if self.limit is not None:
            out("left -= 1")

    def _bind(self, out: SourceWriter, variable: str, row: str, table: str, line: str) -> None:
        """Binds an event in a line of a table."""
        if variable not in self.kleenes:
            out(f"{self._write_binding(f'row_{variable}', table, line)} = {row}")
            return
        node = self._write_binding(f"node_{variable}", table, line)
        with out.block("if ntop == N.shape[0]:"):
            write_stop_if(out, "ntop >= meta[MOST_NODES]", self.growing)
            out("N = grown(N)")
        out(
            f"{self.list.at('previous', 'ntop')} = {node}",
            f"{self.list.at('row', 'ntop')} = {row}",
            f"{node} = ntop",
            f"{self._write_binding(f'count_{variable}', table, line)} += 1",
            "ntop += 1",
        )
