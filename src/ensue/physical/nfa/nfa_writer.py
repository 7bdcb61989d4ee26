"""NFA kernels with code per state and edge: each partial match is a run along edges."""

from collections.abc import Iterator
from contextlib import nullcontext

from ensue.codegen.absence import InstanceStore
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.kernel_text import Needs, SharedCases, write_event_loop, write_function, write_kernel
from ensue.codegen.state_layout import SourceWriter, get_output_column, list_output_columns
from ensue.ir.selection import CONTIGUOUS, Strategy
from ensue.physical.nfa.edge_guards import EMITTED, ContiguityWriter, EdgeGuards, EventEffect, NegatedEventAccess
from ensue.physical.nfa.nfa_state import SWEEP_TABLES, RunsKernel
from ensue.physical.nfa.slots import RunAccess, RunLists, RunRegisters, SkipWriter
from ensue.planner.physical_plan import Nfa, NfaEdge, NfaState
from ensue.planner.predicate_order import format_edge_place, format_end_place, format_state_place
from ensue.planner.statistics import CounterLabel
from ensue.printing.expression_printer import format_condition, format_name

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
    """Writes the kernel of an automaton, with code for each state and edge."""

    weighs = True  # the kernel evaluates AFTER MATCH SKIP

    def __init__(self, frame: KernelContext) -> None:
        structure = frame.plan.structure
        assert isinstance(structure, Nfa)
        self.frame = frame
        self.automaton = structure
        self.strategy = frame.plan.query.strategy
        self.registers = RunRegisters(frame)
        self.instances = InstanceStore(frame, tuple(r.variable for r in frame.negatives))
        self.lists = RunLists(self.registers)
        self.tally = frame.tally
        self.guards = EdgeGuards(frame, structure, self.registers, self.instances)
        self.skipped = SkipWriter(structure, self.registers, weighs=self.weighs)
        self.gaps = ContiguityWriter(structure, self.guards)
        self.waiting = TimeoutWriter(self)
        self.output = list_output_columns(
            (r.variable, r.kleene is not None) for r in frame.plan.roles if not r.negative
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

    def _pending(self) -> list[NfaState]:
        return [s for s in self.automaton.states if s.pending]

    def write(self) -> RunsKernel:
        # twice: the first pass collects the registers that the conditions read
        for _ in range(2):
            body = self.frame.restart(depth=2)
            self._event(body)
            sweep = self.waiting.sweep()
        pending = self._pending()
        # a run that is both stored and waiting for the window's end takes two rows
        branching = (1 + max(len(self.automaton.list_outgoing(s.number)) for s in self.automaton.states)) * (
            2 if pending or any(s.lasting for s in self.automaton.states) else 1
        )
        nested = [name for name, _ in self.instances.parameters()]
        step = write_event_loop(
            body,
            self.frame,
            [*nested, *STATE, *self.skipped.tables, *self.tally.tables],
            registers=REGISTERS,
            needs=lambda out: self._compute_needs(out, branching),
            begin=self._begin,
        )
        parameters = ("now", "flush", *SWEEP_TABLES)
        functions = [step, write_function(self.frame, "sweep", parameters, sweep)]
        used = set().union(*(f.used for f in functions))
        tables = list(self._write_tables(used))
        text = write_kernel(self.frame, "Runs along an automaton.", functions, texts=tables)
        return RunsKernel(text, self.output, self.instances, self.registers, self.automaton, self.skipped.tables)

    def _begin(self, out: SourceWriter) -> None:
        """Writes the code before the first event."""

    def _write_tables(self, used: set[str]) -> Iterator[str]:  # noqa: ARG002
        """Texts before the functions, of the used names."""
        yield from ()

    def _compute_needs(self, out: SourceWriter, branching: int) -> Needs:
        """The room that an event may need."""
        out(f"most = live[k] * {branching} + {2 * len(self.automaton.list_outgoing(0)) + 1}")
        needs = [("rtop + most - frees > I.shape[0]", "NEEDS_RUNS"), ("otop + most > O.shape[0]", "NEEDS_OUTPUT")]
        if self.registers.kleene:
            needs.append(("ntop + most > N.shape[0]", "NEEDS_NODES"))
        if self.instances.number:
            most = self.instances.count_pushed(len(self.frame.negatives))
            needs.append((f"atop + {most} > A.shape[0]", "NEEDS_INSTANCES"))
        return needs

    def _event(self, out: SourceWriter) -> None:
        self.instances.push_nested(out)
        self.skipped.begin_event(out)
        returning = self._list_return_states()
        if returning:
            out.note("runs that return to a state which processes the event later")
            out(*(f"{self._write_return_test(state)} = -1" for state in returning))
        for state in reversed(self.automaton.states[1:]):
            self._visit(out, state)
        for state in returning:
            out.note("", f"runs that returned to state {state.number}")
            with out.block(f"while {self._write_return_test(state)} >= 0:"):
                out(f"q = {self._write_return_test(state)}", f"{self._write_return_test(state)} = nxt[q]")
                self._push(out, "q", state)
        for edge in self.automaton.list_outgoing(0):
            self._start(out, edge)
        self.skipped.end_event(out)
        self._keep_negatives(out)

    def _keep_negatives(self, out: SourceWriter) -> None:
        for role in self.frame.negatives:
            name = format_name(role.variable)
            out.note("", f"!{name}: stored, for lookups between events of runs")
            with out.block(f"if {self.frame.test(role.variable)}:"):
                self.instances.push(out, role.variable)

    def _list_return_states(self) -> list[NfaState]:
        """The states that edges lead back to."""
        back = sorted({e.target for e in self.automaton.edges if e.target < e.source})
        return [self.automaton.states[number] for number in back]

    def _write_return_test(self, state: NfaState) -> str:
        return f"back_{state.number}"

    def _visit(self, out: SourceWriter, state: NfaState) -> None:
        """Processes the event for every run in a state."""
        edges = self.automaton.list_outgoing(state.number)
        if state.pending:
            self.waiting.visit(out, state)
        if not edges:
            return
        roles = self._relevant_roles(state)
        loops = any(e.target == state.number for e in edges)
        out.note("", self._describe(state))
        with out.block(f"if roles & {roles}:"):
            place = self.lists.list(state)
            self.lists.walk(out, place, lambda: self._advance(out, state, edges), loops=loops)
        # runs that the event moves to this state arrive later: it is not after them
        for variable in state.barred:
            out.note(f"!{format_name(variable)}: it discards the runs that wait here")
            with out.block(f"if {self.frame.test(variable)}:"):
                self.lists.clear(out, self.lists.list(state))

    def _relevant_roles(self, state: NfaState) -> str:
        """The roles of events that affect the runs of a state."""
        edges = self.automaton.list_outgoing(state.number)
        stops = dict.fromkeys(stop.variable for edge in edges for stop in edge.stops)
        return self.frame.any_role(
            [
                *(self.frame.role(e.variable, first=e.first) for e in edges),
                *map(self.frame.role, stops if state.number else ()),
            ]
        )

    def _advance(self, out: SourceWriter, state: NfaState, edges: tuple[NfaEdge, ...]) -> None:
        place = self.lists.list(state)
        if stale := self._write_stale_tests(state):
            out.note("this run has expired")
            with out.block(f"if {' or '.join(stale)}:"):
                self._over(out, state, "r")
                self.lists.remove(out, place)
                out("r = nx", "continue")
        out(*self.tally.count_try(format_state_place(state.number)))
        flags = self._flags(edges)
        for flag, edge in zip(flags, edges, strict=True):
            out.note(f"can it be {format_name(edge.variable)}, to state {edge.target}?")
            self.guards.guard(out, edge, flag)
        closed = None
        if self.automaton.loops:
            judged = self.gaps.judge(out, state, flags)
            followed, stay, closed = list(judged.goes), judged.stay, judged.closed
            self._ends_here(out, state, judged)
        else:
            followed, stay = flags, self._write_stay_test(state, edges)
        if stay == "True":
            out("p = r")
        else:
            out.note("does it also keep waiting?")
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
            out.note("edges that are closed to it from now on")
            with out.block(f"if {stay if stay == 'True' else 'stay'}:"):
                out(f"{self.registers.get_closed_edges('r')} |= {closed}")
        if stay != "True":
            with out.block("if spare:"):
                self.lists.release(out, "r")

    def _write_stale_tests(self, state: NfaState) -> list[str]:
        """When a run can take no more events in its state."""
        stale = self.gaps.write_stale_tests(state) if self.automaton.loops else []
        if not self.automaton.loops and self.strategy in CONTIGUOUS:
            stale.append(f"not ({self.guards.near(self.strategy)})")
        if self.frame.plan.prune and (expired := self.guards.write_expiry(state.number)):
            stale.append(expired)
        return [*stale, *self.skipped.too_late("r")]

    def _ends_here(self, out: SourceWriter, state: NfaState, judged: EventEffect) -> None:
        """Emits a match as soon as its last loop cannot continue."""
        if not state.lasting:
            return
        passed = self.registers.get_closed_edges("r")
        continued, can_continue = self.gaps.write_greedy_tests(state, judged)
        out.note("does its last loop continue?")
        with out.block(f"if {passed} & {EMITTED} == 0:"):
            with out.block(f"if {continued}:"):
                out(f"{passed} |= {EMITTED}")
            with out.block(f"elif not ({can_continue}):"):
                self.complete(out, state, "r")
                out(f"{passed} |= {EMITTED}")

    def _over(self, out: SourceWriter, state: NfaState, run: str) -> None:
        """Emits a run that only waited for its last loop to continue."""
        if state.lasting:
            with out.block(f"if {self.registers.get_closed_edges(run)} & {EMITTED} == 0:"):
                self.complete(out, state, run)

    def _write_stay_test(self, state: NfaState, edges: tuple[NfaEdge, ...]) -> str:
        """When a run also keeps waiting in its state."""
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
            grows.append("True" if most is None else f"{self.registers.count(variable, 'r')} < {most}")
        taken = " or ".join(f for f, e in zip(flags, edges, strict=True) if e.variable in state.open)
        if "True" in grows:
            return f"not ({taken})"
        return f"(not ({taken})) if ({' or '.join(grows)}) else (not ({every}))"

    def _flags(self, edges: tuple[NfaEdge, ...]) -> list[str]:
        """Whether the event moves a run along an edge: `takes0_b`."""
        names = self.frame.names
        return [f"takes{n}_{names.variable(e.variable)}" for n, e in enumerate(edges)]

    def _describe(self, state: NfaState) -> str:
        """A comment on the runs of a state."""
        roles = [r.variable for r in self.frame.plan.roles if r.variable in state.bound]
        bound = ", ".join(map(format_name, roles))
        moves = ", ".join(
            f"{format_name(e.variable)} moves them to state {e.target}"
            for e in self.automaton.list_outgoing(state.number)
        )
        return f"state {state.number}, runs that have {bound}: {moves}"

    def _follow(self, out: SourceWriter, edge: NfaEdge, later: list[str], *, may_reuse: bool) -> None:
        """Takes the event: a copy of the run, or the run itself if it does not stay."""
        target = self.automaton.states[edge.target]
        ends = not self.automaton.list_outgoing(edge.target)
        if self._completes(target):
            if edge.variable in self.registers.kleene:
                self._new_node(out, edge.variable, "r")
            self.emit(out, "r", edge.variable)
            return
        if may_reuse:
            free_of_others = " and ".join(["spare", *(f"not {e}" for e in later)])
            with out.block(f"if {free_of_others}:"):
                out("q = r", "spare = False", "live[k] -= 1", "alive -= 1")
        with out.block("else:") if may_reuse else nullcontext():
            self.lists.copy(out, "r", "q")
        out.note(f"{format_name(edge.variable)} is bound")
        self.registers.take(out, edge.variable, "q")
        loop = edge.target == edge.source
        self._arrive(out, target, ends, loop=loop, back=edge.target < edge.source)

    def _completes(self, state: NfaState) -> bool:
        """Whether a run in this state is a match and cannot continue."""
        undecided = state.checks or state.absences or state.pending
        return not undecided and not self.automaton.list_outgoing(state.number)

    def _new_node(self, out: SourceWriter, variable: str, run: str) -> None:
        nodes = self.registers.nodes
        out(
            f"{nodes.at('previous', 'ntop')} = {self.registers.node(variable, run)}",
            f"{nodes.at('row', 'ntop')} = row",
            "ntop += 1",
        )

    def _start(self, out: SourceWriter, edge: NfaEdge) -> None:
        """Begins a run with the current event."""
        target = self.automaton.states[edge.target]
        ends = not self.automaton.list_outgoing(edge.target)
        tests = [*self._begins(edge), *self._write_preference_tests(edge)]
        if self.frame.intervals and self.frame.window is not None and not self.frame.by_events:
            tests.append(f"t - s <= {self.frame.window_text}")
        tests += self.skipped.may_begin()
        out.note("", f"{format_name(edge.variable)} begins a run, in state {edge.target}")
        with out.when(*tests):
            self.lists.allocate(out, "q")
            self.registers.begin(out, "q")
            self.skipped.begin_run(out, "q")
            access = RunAccess(self.registers, "q", edge)
            at = format_edge_place(edge.source, edge.target, edge.variable)
            tested = self.guards.write_labelled(edge.checks, access, at)
            if tested:
                self.tally.all_hold(out, "go", tested)
            with out.when("go" if tested else "True"):
                self.registers.take(out, edge.variable, "q")
                self._arrive(out, target, ends, loop=False)
            if tested:
                with out.block("else:"):
                    self.lists.give_back(out, "q")

    def _write_preference_tests(self, edge: NfaEdge) -> list[str]:
        """Whether the current event does not begin a run along a preferred edge."""
        return [
            f"not ({' and '.join(self._begins(other))})"
            for other in self.automaton.list_outgoing(0)
            if other.variable in (*edge.longer, *edge.sooner)
        ]

    def _begins(self, edge: NfaEdge) -> list[str]:
        """Whether the current event could begin a run along an edge."""
        stops = [f"not ({self.frame.test(stop.variable)})" for stop in edge.stops]
        return [self.frame.test(edge.variable, first=edge.first), *stops]

    def _arrive(self, out: SourceWriter, target: NfaState, ends: bool, *, loop: bool, back: bool = False) -> None:
        """The run `q` is in its new state: it is emitted, stored, or both."""
        if target.accepting and not target.lasting:
            self._accept(out, target)
        if ends:
            self.lists.give_back(out, "q")
            return
        out(*self.tally.count_pass(format_state_place(target.number)))
        if loop:
            self._add_to_loop(out)
        elif back:
            out(f"nxt[q] = {self._write_return_test(target)}", f"{self._write_return_test(target)} = q")
        else:
            self._push(out, "q", target)

    def _add_to_loop(self, out: SourceWriter) -> None:
        """Adds the run `q` to the list that is being visited."""
        out("nxt[q] = added", "added = q")
        with out.block("if added_last < 0:"):
            out("added_last = q")
        out("live[k] += 1", "alive += 1")

    def _push(self, out: SourceWriter, run: str, state: NfaState) -> None:
        place = self.lists.list(state)
        contiguous = self.automaton.contiguous(state.number, self.strategy)
        if contiguous is not None:
            # runs from an earlier event have expired
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

    def complete(self, out: SourceWriter, state: NfaState, run: str) -> None:
        """Emits a run that ends in a state, if the tests at its end hold."""
        at = format_end_place(state.number)
        tests = self._end_tests(state, run)
        if not tests and not state.checks:
            self.emit(out, run, None)
            return
        self.tally.all_hold(out, "done", tests)
        self.guards.judge(out, state.checks, (), "done", run, None, at)
        with out.block("if done:"):
            self.emit(out, run, None)

    def _end_tests(self, state: NfaState, run: str) -> list[tuple[str, CounterLabel | None]]:
        access = RunAccess(self.registers, run)
        tests = self.guards.write_labelled(state.checks, access, format_end_place(state.number))
        for variable in sorted(state.open):
            kleene = self.frame.plan.role(variable).kleene
            assert kleene is not None
            if kleene.least > 1:
                tests.append((f"{self.registers.count(variable, run)} >= {kleene.least}", None))
        return tests

    def _accept(self, out: SourceWriter, state: NfaState) -> None:
        if not state.absences and not state.pending:
            self.complete(out, state, "q")
            return
        at = format_end_place(state.number)
        self.tally.all_hold(out, "done", self._end_tests(state, "q"))
        absences = (*state.absences, *state.pending)
        self.guards.judge(out, state.checks, absences, "done", "q", None, at)
        with out.block("if done:"):
            if not state.pending:
                self.emit(out, "q", None)
                return
            out.note("a copy waits for the window to close; the run itself may continue")
            self.lists.copy(out, "q", "w")
            self.lists.push(out, "w", self.lists.list(state, pending=True))

    def emit(self, out: SourceWriter, run: str, taking: str | None) -> None:
        """Writes a match; `taking` is a variable whose event is not in the run yet."""
        out.note("a match")
        with out.when(*self.skipped.may_end(run)):
            self.skipped.write_skip(out, run)
            for column in self.output:
                kind, variable = column.split("_", 1)
                if variable != taking:
                    text = self.registers.get_register(variable, kind, run)
                elif kind == "row":
                    text = "row"
                elif kind == "node":
                    text = "ntop - 1"
                else:
                    text = f"{self.registers.count(variable, run)} + 1"
                out(f"O[otop, {get_output_column(self.frame.names, self.output, column)}] = {text}")
            out("otop += 1")


# Expiry of runs: drops expired runs, and emits matches that waited for the time.

SWEEP_REGISTERS = {"free": "FREE", "frees": "FREE_COUNT", "otop": "OUT_TOP", "alive": "LIVE"}


class TimeoutWriter:
    """Writes the effect of time on runs."""

    def __init__(self, writer: "RunsWriter") -> None:
        self.writer = writer
        self.automaton, self.gaps, self.guards = writer.automaton, writer.gaps, writer.guards
        self.frame, self.registers = writer.frame, writer.registers

    def visit(self, out: SourceWriter, state: NfaState) -> None:
        """Writes how a negated event discards a waiting match, and time emits it."""
        lists = self.writer.lists
        place = lists.list(state, pending=True)
        roles = self.frame.any_role(self.frame.role(a.variable) for a in state.pending)

        def visit() -> None:
            expired = self.guards.write_expiry(state.number)
            assert expired is not None
            with out.block(f"if {expired}:"):
                self.writer.emit(out, "r", None)
                lists.remove(out, place)
                out("r = nx", "continue")
            out("gone = False")
            for absence in state.pending:
                if absence.variable in self.guards.instances.complexes:
                    # the current event may complete a nested match that a waiting run forbids
                    with out.block(f"if {self.frame.test(absence.variable)}:"):
                        self.guards.look(out, absence, "r", None, "gone = True", newest="row")
                    continue
                tests = [self.frame.test(absence.variable)]
                if self.frame.intervals:
                    tests += [f"s >= {self.registers.time(v, 'end', 'r')}" for v in absence.after]
                access = NegatedEventAccess(self.registers, absence.variable)
                tests += [self.guards.write_test(c, access) for c in absence.conditions]
                conditions = (f"  with {format_condition(c)}" for c in absence.conditions)
                out.note(f"!{format_name(absence.variable)}: the match is discarded", *conditions)
                with out.when(*tests):
                    out("gone = True")
            with out.block("if gone:"):
                lists.remove(out, place)
            with out.block("else:"):
                out("p = r")

        names = ", ".join(format_name(a.variable) for a in state.pending)
        out.note("", f"state {state.number}, matches that wait for a window without {names}")
        with out.block(f"if roles & {roles}:"):
            lists.walk(out, place, visit, loops=False)

    def sweep(self) -> SourceWriter:
        """Writes the body of `sweep`, which expires runs."""
        out = self.frame.source(depth=1)
        out.note("drops expired runs; emits those that waited for the time")
        out(*(f"{name} = meta[{place}]" for name, place in SWEEP_REGISTERS.items()))
        if self.frame.window is not None or self.gaps.by_time:
            with out.block("for k in range(head.shape[0]):"):
                with out.block("if live[k] == 0:"):
                    out("continue")
                self._sweep_states(out)
        out(*(f"meta[{place}] = {name}" for name, place in SWEEP_REGISTERS.items()))
        return out

    def _sweep_states(self, out: SourceWriter) -> None:
        window = self.frame.window_text
        if self.frame.window is None:
            over = None
        elif self.frame.by_events:
            over = f"counts[k] + 1 - {self.registers.first_index('r')} > {window}"
        else:
            over = f"now - {self.registers.first_time('r')} > {window}"
        pending = any(state.pending for state in self.automaton.states)
        lasting = SharedCases(self.frame)
        states = [state for state in self.automaton.states if state.lasting]
        for state in states:
            lasting.add(self._emit_lasting, state, over)
        paused: dict[str, list[NfaState]] = {}  # tests of time alone, with the states they expire
        for state in self.automaton.states[1:]:
            if not state.lasting and self.automaton.list_outgoing(state.number):
                for late in self.gaps.out_of_time(state):
                    paused.setdefault(late, []).append(state)
        out.note("of each state the runs, and the matches that wait for the end of their window")

        def visit() -> None:
            for number, text in enumerate(lasting.texts):
                same = [s for s, n in zip(states, lasting.numbers, strict=True) if n == number]
                with out.block(f"if {self._write_state_test(same)}:"):
                    out(*text)
            expired = [*([over] if over else []), *(["(flush and waits)"] if pending else [])]
            contiguous = [state for state in states if self._is_contiguous(state)]
            if contiguous:
                last = self.registers.runs.at("last_index", "r")
                expired.append(f"(({self._write_state_test(contiguous)}) and counts[k] != {last})")
            expired += [f"(({self._write_state_test(same)}) and ({late}))" for late, same in paused.items()]
            if not expired:
                out("p = r")
                return
            with out.block(f"if {' or '.join(expired)}:"):
                if pending:
                    with out.block("if waits:"):
                        self.writer.emit(out, "r", None)
                self.writer.lists.remove(out, "place")
            with out.block("else:"):
                out("p = r")

        with out.block("for place in range(head.shape[1]):"):
            if pending:
                out("waits = place % 2 == 1")
            self.writer.lists.walk(out, "place", visit, loops=False)

    def _emit_lasting(self, out: SourceWriter, state: NfaState, over: str | None) -> None:
        """Emits a run whose last loop does not continue."""
        out.note("matches whose last loop does not continue")
        ended = ["flush", *([over] if over else []), *self.gaps.has_loop_ended(state)]
        if self._is_contiguous(state):
            ended.append(f"counts[k] != {self.registers.runs.at('last_index', 'r')}")
        ended = list(dict.fromkeys(ended))
        with out.block(f"if {self.registers.get_closed_edges('r')} & {EMITTED} == 0 and ({' or '.join(ended)}):"):
            counting, self.frame.tally.on = self.frame.tally.on, False  # `sweep` has no counters
            self.writer.complete(out, state, "r")
            self.frame.tally.on = counting
            out(f"{self.registers.get_closed_edges('r')} |= {EMITTED}")

    def _write_state_test(self, states: list[NfaState]) -> str:
        """Whether the current list is that of one of some states."""
        return " or ".join(f"place == {self.writer.lists.place(state)}" for state in states)

    def _is_contiguous(self, state: NfaState) -> bool:
        """Whether its runs wait for the next event of their partition only."""
        return self.automaton.contiguous(state.number, Strategy.ANY) is Strategy.PARTITION
