"""Writes the source of a runs kernel: every partial match is a run that moves along edges."""

from collections.abc import Iterator

from ensue.algebra.policy import CONTIGUOUS, Strategy
from ensue.algebra.text import show_name
from ensue.plan.estimates.counters import Label
from ensue.plan.physical import Automaton, Edge, State
from ensue.plan.physical_rules.ordering import edge_place, end_place, state_place
from ensue.source.absence import Instances
from ensue.source.counting import place_label
from ensue.source.event_loop import Needs, event_loop
from ensue.source.kernel_inputs import Frame
from ensue.source.kernel_text import function, kernel_text
from ensue.source.table_columns import Source, output_column
from ensue.structures.runs.gaps import TOLD, Gaps, Judged
from ensue.structures.runs.guards import Guards
from ensue.structures.runs.lists import RunLists
from ensue.structures.runs.registers import Registers, RunAccess
from ensue.structures.runs.skipped import Skipped
from ensue.structures.runs.source import RunsSource
from ensue.structures.runs.waiting import SWEPT, Waiting

REGISTERS = {
    "rtop": "RUN_TOP",
    "free": "FREE",
    "frees": "FREE_COUNT",
    "ntop": "NODE_TOP",
    "atop": "INSTANCE_TOP",
    "otop": "OUT_TOP",
    "alive": "LIVE",
}
STATE = ["head", "live", "nxt", "I", "F", "N", "NF", "A", "AF", "tops", "counts"]


class RunsWriter:
    """Writes the kernel of an automaton: each state and each edge has code of its own."""

    weighs = True  # matches are weighed against each other where they are found

    def __init__(self, frame: Frame) -> None:
        structure = frame.plan.structure
        assert isinstance(structure, Automaton)
        self.frame = frame
        self.automaton = structure
        self.strategy = frame.plan.query.strategy
        self.registers = Registers(frame)
        self.instances = Instances(frame, tuple(r.variable for r in frame.negatives))
        self.lists = RunLists(self.registers)
        self.tally = frame.tally
        self.guards = Guards(frame, structure, self.registers, self.instances)
        self.skipped = Skipped(structure, self.registers, weighs=self.weighs)
        self.gaps = Gaps(structure, self.guards)
        self.waiting = Waiting(
            structure,
            self.guards,
            self.gaps,
            self.lists,
            lambda out: self._emit(out, "r", None),
            lambda out, state: self._complete(out, state, "r"),
        )
        self.output = tuple(
            column
            for role in frame.plan.roles
            if not role.negative
            for column in (
                (f"node_{role.variable}", f"count_{role.variable}")
                if role.kleene is not None
                else (f"row_{role.variable}",)
            )
        )
        if frame.window is not None or self._pending():
            if frame.by_events:
                self.registers.first_index("")
            else:
                self.registers.first_time("")
        if not structure.loops and self.strategy is Strategy.STRICT:
            self.registers.runs.at("last_row", "")
        if not structure.loops and self.strategy is Strategy.PARTITION:
            self.registers.runs.at("last_index", "")

    def _pending(self) -> list[State]:
        return [s for s in self.automaton.states if s.pending]

    # ------------------------------------------------------------------------ the whole

    def written(self) -> RunsSource:
        # twice: the first pass finds out which registers the conditions need
        for _ in range(2):
            body = self.frame.again(depth=2)
            self._event(body)
            sweep = self.waiting.sweep()
        pending = self._pending()
        # a run that is both kept and waiting for the window's end takes two places
        branching = (
            1 + max(len(self.automaton.out_of(s.number)) for s in self.automaton.states)
        ) * (2 if pending or any(s.lasting for s in self.automaton.states) else 1)
        inside = [name for name, _ in self.instances.parameters()]
        step = event_loop(
            body,
            self.frame,
            [*inside, *STATE, *self.skipped.tables, *self.tally.tables],
            registers=REGISTERS,
            needs=lambda out: self._needs(out, branching),
            begin=self._begin,
        )
        functions = [step, function(self.frame, "sweep", SWEPT, sweep)]
        used = set().union(*(written.used for written in functions))
        given = list(self._given(used))
        text = kernel_text(self.frame, "Runs along an automaton.", functions, given=given)
        return RunsSource(
            text, self.output, self.instances, self.registers, self.automaton, self.skipped.tables
        )

    def _begin(self, out: Source) -> None:
        """What comes before the first event."""

    def _given(self, used: set[str]) -> Iterator[str]:  # noqa: ARG002
        """Texts that stand before the functions, of those that are used."""
        yield from ()

    def _needs(self, out: Source, branching: int) -> Needs:
        """The room that an event may need."""
        out(f"most = live[k] * {branching} + {2 * len(self.automaton.out_of(0)) + 1}")
        needs = [
            ("rtop + most - frees > I.shape[0]", "NEEDS_RUNS"),
            ("otop + most > O.shape[0]", "NEEDS_OUTPUT"),
        ]
        if self.registers.kleene:
            needs.append(("ntop + most > N.shape[0]", "NEEDS_NODES"))
        if self.instances.number:
            most = self.instances.most_pushed(len(self.frame.negatives))
            needs.append((f"atop + {most} > A.shape[0]", "NEEDS_INSTANCES"))
        return needs

    # ------------------------------------------------------------------------ one event

    def _event(self, out: Source) -> None:
        self.instances.push_complexes(out)
        self.skipped.begin_event(out)
        returning = self._returning()
        if returning:
            out.note("runs that go back to a state which the event is still to be shown to")
            out(*(f"{self._back(state)} = -1" for state in returning))
        for state in reversed(self.automaton.states[1:]):
            self._visit(out, state)
        for state in returning:
            out.note("", f"runs that are back in state {state.number}")
            with out.block(f"while {self._back(state)} >= 0:"):
                out(f"q = {self._back(state)}", f"{self._back(state)} = nxt[q]")
                self._push(out, "q", state)
        for edge in self.automaton.out_of(0):
            self._start(out, edge)
        self.skipped.end_event(out)
        self._keep_negatives(out)

    def _keep_negatives(self, out: Source) -> None:
        for role in self.frame.negatives:
            name = show_name(role.variable)
            out.note("", f"!{name}: kept, to be looked for between events of runs")
            with out.block(f"if {self.frame.test(role.variable)}:"):
                self.instances.push(out, role.variable)

    def _returning(self) -> list[State]:
        """The states that edges lead back to."""
        back = sorted({e.target for e in self.automaton.edges if e.target < e.source})
        return [self.automaton.states[number] for number in back]

    def _back(self, state: State) -> str:
        return f"back_{state.number}"

    def _visit(self, out: Source, state: State) -> None:
        """Shows the event to every run in a state."""
        edges = self.automaton.out_of(state.number)
        if state.pending:
            self.waiting.visit(out, state)
        if not edges:
            return
        roles = self._looked_at(state)
        loops = any(e.target == state.number for e in edges)
        out.note("", self._told(state))
        with out.block(f"if roles & {roles}:"):
            place = self.lists.list(state)
            self.lists.walk(out, place, lambda: self._advance(out, state, edges), loops=loops)
        # runs that the event takes to this state come later: it does not stand behind them
        for variable in state.barred:
            out.note(f"!{show_name(variable)}: it ends the runs that wait here")
            with out.block(f"if {self.frame.test(variable)}:"):
                self.lists.clear(out, self.lists.list(state))

    def _looked_at(self, state: State) -> str:
        """The roles that an event must have one of to matter to the runs of a state."""
        edges = self.automaton.out_of(state.number)
        stops = dict.fromkeys(stop.variable for edge in edges for stop in edge.stops)
        return self.frame.any_role(
            [
                *(self.frame.role(e.variable, first=e.first) for e in edges),
                *map(self.frame.role, stops if state.number else ()),
            ]
        )

    def _advance(self, out: Source, state: State, edges: tuple[Edge, ...]) -> None:
        place = self.lists.list(state)
        if stale := self._stale(state):
            out.note("it is too late for this run")
            with out.block(f"if {' or '.join(stale)}:"):
                self._over(out, state, "r")
                self.lists.unlink(out, place)
                self.lists.release(out, "r")
                out("r = nx", "continue")
        out(*self.tally.tried(place_label(state_place(state.number))))
        flags = self._flags(edges)
        for flag, edge in zip(flags, edges, strict=True):
            out.note(f"may it be {show_name(edge.variable)}, on to state {edge.target}?")
            self.guards.guard(out, edge, flag)
        closed = None
        if self.automaton.loops:
            judged = self.gaps.judge(out, state, flags)
            followed, stay, closed = list(judged.goes), judged.stay, judged.closed
            self._ends_here(out, state, judged)
        else:
            followed, stay = flags, self._stays(state, edges)
        if stay == "True":
            out("p = r")
        else:
            out.note("does it also wait on?")
            out(f"stay = {stay}")
            with out.block("if stay:"):
                out("p = r")
            with out.block("else:"):
                self.lists.unlink(out, place)
            out("spare = not stay")
        for number, edge in enumerate(edges):
            with out.block(f"if {followed[number]}:"):
                later = followed[number + 1 :]
                self._follow(out, edge, later, may_reuse=stay != "True")
        if closed is not None:
            out.note("ways that are closed to it from now on")
            with out.block(f"if {stay if stay == 'True' else 'stay'}:"):
                out(f"{self.registers.passed('r')} |= {closed}")
        if stay != "True":
            with out.block("if spare:"):
                self.lists.release(out, "r")

    def _stale(self, state: State) -> list[str]:
        """When a run can take nothing more where it is."""
        stale = self.gaps.stale(state) if self.automaton.loops else []
        if not self.automaton.loops and self.strategy in CONTIGUOUS:
            stale.append(f"not ({self.guards.near(self.strategy)})")
        if self.frame.plan.prune and (expired := self.guards.expired(state.number)):
            stale.append(expired)
        return [*stale, *self.skipped.too_late("r")]

    def _ends_here(self, out: Source, state: State, judged: Judged) -> None:
        """A match whose last loop does not go on is delivered when that is clear."""
        if not state.lasting:
            return
        passed = self.registers.passed("r")
        went, may = self.gaps.lasting(state, judged)
        out.note("does its last loop go on?")
        with out.block(f"if {passed} & {TOLD} == 0:"):
            with out.block(f"if {went}:"):
                out(f"{passed} |= {TOLD}")
            with out.block(f"elif not ({may}):"):
                self._complete(out, state, "r")
                out(f"{passed} |= {TOLD}")

    def _over(self, out: Source, state: State, run: str) -> None:
        """Delivers a run that only waited for its last loop to go on."""
        if state.lasting:
            with out.block(f"if {self.registers.passed(run)} & {TOLD} == 0:"):
                self._complete(out, state, run)

    def _stays(self, state: State, edges: tuple[Edge, ...]) -> str:
        """When a run also waits on where it is."""
        if self.strategy is Strategy.ANY:
            return "True"
        if self.strategy is not Strategy.NEXT:
            return "False"
        flags = self._flags(edges)
        every = " or ".join(flags)
        if not state.open:
            return f"not ({every})"
        grows = []
        for variable in sorted(state.open):
            kleene = self.frame.plan.role(variable).kleene
            assert kleene is not None
            most = kleene.most
            grows.append(
                "True" if most is None else f"{self.registers.count(variable, 'r')} < {most}"
            )
        taken = " or ".join(
            f for f, e in zip(flags, edges, strict=True) if e.variable in state.open
        )
        if "True" in grows:
            return f"not ({taken})"
        return f"(not ({taken})) if ({' or '.join(grows)}) else (not ({every}))"

    def _flags(self, edges: tuple[Edge, ...]) -> list[str]:
        """Whether the event takes a run along an edge: `takes0_b`."""
        names = self.frame.names
        return [f"takes{n}_{names.variable(e.variable)}" for n, e in enumerate(edges)]

    def _told(self, state: State) -> str:
        """What waits in a state, in words."""
        roles = [r.variable for r in self.frame.plan.roles if r.variable in state.bound]
        bound = ", ".join(map(show_name, roles))
        ways = ", ".join(
            f"{show_name(e.variable)} takes them to state {e.target}"
            for e in self.automaton.out_of(state.number)
        )
        return f"state {state.number}, runs that have {bound}: {ways}"

    # ------------------------------------------------------------------------ edges

    def _follow(self, out: Source, edge: Edge, later: list[str], *, may_reuse: bool) -> None:
        """Takes the event: a copy of the run, or the run itself where it does not stay."""
        target = self.automaton.states[edge.target]
        ends = not self.automaton.out_of(edge.target)
        if self._completes(target):
            if edge.variable in self.registers.kleene:
                self._new_node(out, edge.variable, "r")
            self._emit(out, "r", edge.variable)
            return
        if may_reuse:
            free_of_others = " and ".join(["spare", *(f"not {e}" for e in later)])
            with out.block(f"if {free_of_others}:"):
                out("q = r", "spare = False", "live[k] -= 1", "alive -= 1")
            with out.block("else:"):
                self.lists.allocate(out, "q")
                self.lists.copy(out, "r", "q")
        else:
            self.lists.allocate(out, "q")
            self.lists.copy(out, "r", "q")
        out.note(f"{show_name(edge.variable)} is bound")
        self.registers.take(out, edge.variable, "q")
        loop = edge.target == edge.source
        self._arrive(out, target, ends, loop=loop, back=edge.target < edge.source)

    def _completes(self, state: State) -> bool:
        """Whether a run that gets there is a match and has nothing more to wait for."""
        asked = state.checks or state.absences or state.pending
        return not asked and not self.automaton.out_of(state.number)

    def _new_node(self, out: Source, variable: str, run: str) -> None:
        nodes = self.registers.nodes
        out(
            f"{nodes.at('previous', 'ntop')} = {self.registers.node(variable, run)}",
            f"{nodes.at('row', 'ntop')} = row",
            "ntop += 1",
        )

    def _start(self, out: Source, edge: Edge) -> None:
        """Begins a run with the event at hand."""
        target = self.automaton.states[edge.target]
        ends = not self.automaton.out_of(edge.target)
        tests = [*self._begins(edge), *self._not_rather(edge)]
        if self.frame.intervals and self.frame.window is not None and not self.frame.by_events:
            tests.append(f"t - s <= {self.frame.window_text}")
        tests += self.skipped.may_begin()
        out.note("", f"{show_name(edge.variable)} begins a run, in state {edge.target}")
        with out.when(*tests):
            self.lists.allocate(out, "q")
            self.registers.begin(out, "q")
            if self.registers.runs.has("first"):
                out(f"{self.registers.first_time('q')} = s")
            if self.registers.runs.has("first_index"):
                out(f"{self.registers.first_index('q')} = idx")
            self.skipped.begin_run(out, "q")
            access = RunAccess(self.registers, "q", edge)
            at = edge_place(edge.source, edge.target, edge.variable)
            tested = self.guards.labelled(edge.checks, access, at)
            if tested:
                self.tally.all_hold(out, "go", tested)
                with out.block("if go:"):
                    self.registers.take(out, edge.variable, "q")
                    self._arrive(out, target, ends, loop=False)
                with out.block("else:"):
                    self.lists.give_back(out, "q")
            else:
                self.registers.take(out, edge.variable, "q")
                self._arrive(out, target, ends, loop=False)

    def _not_rather(self, edge: Edge) -> list[str]:
        """Whether the event at hand would not rather begin a run along other edges."""
        return [
            f"not ({' and '.join(self._begins(other))})"
            for other in self.automaton.out_of(0)
            if other.variable in (*edge.longer, *edge.sooner)
        ]

    def _begins(self, edge: Edge) -> list[str]:
        """Whether the event at hand could begin a run along an edge."""
        stops = [f"not ({self.frame.test(stop.variable)})" for stop in edge.stops]
        return [self.frame.test(edge.variable, first=edge.first), *stops]

    # ------------------------------------------------------------------------ arriving

    def _arrive(
        self, out: Source, target: State, ends: bool, *, loop: bool, back: bool = False
    ) -> None:
        """The run `q` is in its new state: deliver it, keep it, or both."""
        if target.accepting and not target.lasting:
            self._accept(out, target)
        if ends:
            self.lists.give_back(out, "q")
            return
        out(*self.tally.passed(place_label(state_place(target.number))))
        if loop:
            self._add_to_loop(out)
        elif back:
            out(f"nxt[q] = {self._back(target)}", f"{self._back(target)} = q")
        else:
            self._push(out, "q", target)

    def _add_to_loop(self, out: Source) -> None:
        """The run `q` comes back to the list that is walked."""
        out("nxt[q] = added", "added = q")
        with out.block("if added_last < 0:"):
            out("added_last = q")
        out("live[k] += 1", "alive += 1")

    def _push(self, out: Source, run: str, state: State) -> None:
        place = self.lists.list(state)
        contiguous = self.automaton.contiguous(state.number, self.strategy)
        if contiguous is not None:
            # what stands there from an earlier event has missed its chance
            name = "last_row" if contiguous is Strategy.STRICT else "last_index"
            now = "row" if contiguous is Strategy.STRICT else "idx"
            out(f"z = head[k, {place}]")
            with out.block(f"while z >= 0 and {self.registers.runs.at(name, 'z')} != {now}:"):
                out("y = nxt[z]")
                self._over(out, state, "z")
                self.lists.release(out, "z")
                out("z = y")
            out(f"head[k, {place}] = z")
        self.lists.push(out, run, place)

    def _complete(self, out: Source, state: State, run: str) -> None:
        """Delivers a run that ends in a state, if all that only its end decides holds."""
        at = end_place(state.number)
        tests = self._end_tests(state, run)
        if not tests and not state.checks:
            self._emit(out, run, None)
            return
        self.tally.all_hold(out, "done", tests)
        self.guards.judge(out, state.checks, (), "done", run, None, at)
        with out.block("if done:"):
            self._emit(out, run, None)

    def _end_tests(self, state: State, run: str) -> list[tuple[str, Label | None]]:
        access = RunAccess(self.registers, run)
        tests = self.guards.labelled(state.checks, access, end_place(state.number))
        for variable in sorted(state.open):
            kleene = self.frame.plan.role(variable).kleene
            assert kleene is not None
            if kleene.least > 1:
                tests.append((f"{self.registers.count(variable, run)} >= {kleene.least}", None))
        return tests

    def _accept(self, out: Source, state: State) -> None:
        if not state.absences and not state.pending:
            self._complete(out, state, "q")
            return
        at = end_place(state.number)
        self.tally.all_hold(out, "done", self._end_tests(state, "q"))
        absences = (*state.absences, *state.pending)
        self.guards.judge(out, state.checks, absences, "done", "q", None, at)
        with out.block("if done:"):
            if not state.pending:
                self._emit(out, "q", None)
                return
            out.note("a copy waits for the window to close; the run itself may go on")
            self.lists.allocate(out, "w")
            self.lists.copy(out, "q", "w")
            place = self.lists.list(state, pending=True)
            out(f"nxt[w] = head[k, {place}]", f"head[k, {place}] = w")
            out("live[k] += 1", "alive += 1")

    def _emit(self, out: Source, run: str, taking: str | None) -> None:
        """Writes a match; `taking` is a variable whose event is not in the run yet."""
        out.note("a match")
        with out.when(*self.skipped.may_end(run)):
            self.skipped.found(out, run)
            for column in self.output:
                kind, variable = column.split("_", 1)
                if variable != taking:
                    text = self.registers.of(variable, kind, run)
                elif kind == "row":
                    text = "row"
                elif kind == "node":
                    text = "ntop - 1"
                else:
                    text = f"{self.registers.count(variable, run)} + 1"
                out(f"O[otop, {output_column(self.frame.names, self.output, column)}] = {text}")
            out("otop += 1")
