"""The arena of runs: their registers, the access of conditions to them, their lists, and AFTER MATCH SKIP."""

from collections.abc import Callable

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.codegen.expressions import Feature, ValueText, round_duration
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.names import HEADS
from ensue.codegen.state_layout import SourceWriter, StateColumns, store_value, write_value
from ensue.ir.expression import Aggregate, EventPosition
from ensue.ir.query import Query
from ensue.ir.selection import MatchOrder, SkipTarget
from ensue.physical.structure import BEGAN, USED
from ensue.planner.features import EventRef
from ensue.planner.physical_plan import Nfa, NfaEdge, NfaState
from ensue.schema import ValueKind


class RunRegisters:
    """The columns of the run arena (I, F) and of the arena of Kleene events (N, NF).

    A column exists once a condition reads it; `take` then writes its update.
    """

    def __init__(self, frame: KernelContext) -> None:
        self.frame = frame
        self.runs = StateColumns("I", "F", frame.names, "RUN_")
        self.nodes = StateColumns("N", "NF", frame.names, "NODE_")
        self.kleene = {r.variable for r in frame.plan.roles if r.kleene is not None}
        self.kept: dict[tuple[str, str], set[Feature]] = {}  # (variable, which) -> features
        self.summed: dict[tuple[str, Feature], set[str]] = {}  # running values by Kleene variable
        self.in_nodes: dict[str, set[Feature]] = {}
        self.times: set[tuple[str, str]] = set()  # (variable, "start" | "end" | "first_start")
        for role in frame.plan.roles:
            if not role.negative:
                if role.variable in self.kleene:
                    self.node(role.variable, "")
                    self.count(role.variable, "")
                else:
                    self.row(role.variable, "")
        self.nodes.at("previous", "")
        self.nodes.at("row", "")

    def get_register(self, variable: str, what: str, run: str, *, real: bool = False) -> str:
        """A register of a run for a variable."""
        name = f"{self.frame.names.variable(variable)}_{what.upper()}"
        return self.runs.at(f"{what}_{variable}", run, real=real, name=name)

    def row(self, variable: str, run: str) -> str:
        """The row of a single event."""
        return self.get_register(variable, "row", run)

    def node(self, variable: str, run: str) -> str:
        """The newest event of a Kleene variable."""
        return self.get_register(variable, "node", run)

    def count(self, variable: str, run: str) -> str:
        return self.get_register(variable, "count", run)

    def first_time(self, run: str) -> str:
        """The earliest start of the run's events."""
        return self.runs.at("first", run, real=self.frame.real_time)

    def first_index(self, run: str) -> str:
        return self.runs.at("first_index", run)

    def get_closed_edges(self, run: str) -> str:
        """The edges that skipped events have closed to a run, as bits."""
        return self.runs.at("passed", run)

    def last_end(self, run: str) -> str:
        """The end of the run's last event."""
        return self.runs.at("last_end", run, real=self.frame.real_time)

    def last_row(self, variable: str, run: str) -> str:
        """The row of a variable's newest event."""
        if variable in self.kleene:
            return self.nodes.at("row", self.node(variable, run))
        return self.row(variable, run)

    def first_row(self, variable: str, run: str) -> str:
        if variable in self.kleene:
            return self.get_register(variable, "first_row", run)
        return self.row(variable, run)

    def time(self, variable: str, which: str, run: str) -> str:
        """The `end` of a variable's newest event, or the `start` of its first."""
        self.times.add((variable, which))
        return self.get_register(variable, which, run, real=self.frame.real_time)

    def feature(self, variable: str, which: str, feature: Feature, run: str) -> ValueText:
        self.kept.setdefault((variable, which), set()).add(feature)
        key = f"{which}_{variable}_{feature.number}"
        prefix = "" if which == "only" else f"{which.upper()}_"
        name = f"{self.frame.names.variable(variable)}_{prefix}{self._field(feature)}"
        return write_value(self.runs, key, run, feature, name, self.frame.nullable)

    def _field(self, feature: Feature) -> str:
        called = self.frame.name_feature(feature)
        return f"F{called}" if called.isdigit() else called

    def node_feature(self, variable: str, feature: Feature, node: str) -> ValueText:
        self.in_nodes.setdefault(variable, set()).add(feature)
        key, name = f"f{feature.number}", f"FIELD_{self.frame.name_feature(feature)}"
        return write_value(self.nodes, key, node, feature, name, self.frame.nullable)

    def running(self, variable: str, feature: Feature, what: str, run: str) -> str:
        """A running value over a Kleene variable: number, sum, carry, min, max, mean, m2."""
        self.summed.setdefault((variable, feature), set()).add(what)
        real = what in ("mean", "m2") or (what != "number" and not feature.integral)
        name = f"{self.frame.names.variable(variable)}_{what.upper()}_{self._field(feature)}"
        return self.runs.at(f"{what}_{variable}_{feature.number}", run, real=real, name=name)

    def begin(self, out: SourceWriter, run: str) -> None:
        """Initialises a new run that begins with the current event."""
        for key, place in self.runs.list_values(run):
            none = "0.0" if key in self.runs.reals else "0"
            out(f"{place} = {'-1' if key.startswith(('row_', 'node_')) else none}")
        if self.runs.has("first"):
            out(f"{self.first_time(run)} = s")
        if self.runs.has("first_index"):
            out(f"{self.first_index(run)} = idx")

    def take(self, out: SourceWriter, variable: str, run: str) -> None:
        """Makes the current event the newest of a variable."""
        if variable in self.kleene:
            self._take_into_list(out, variable, run)
        else:
            out(f"{self.row(variable, run)} = row")
            self._keep(out, variable, "only", run)
        if (variable, "end") in self.times:
            out(f"{self.time(variable, 'end', run)} = t")
        if (variable, "start") in self.times and variable not in self.kleene:
            out(f"{self.time(variable, 'start', run)} = s")
        last = {"last_row": "row", "last_index": "idx", "passed": "0", "last_end": "t"}
        for name, value in last.items():
            if self.runs.has(name):
                real = name in self.runs.reals
                out(f"{self.runs.at(name, run, real=real)} = {value}")
        if self.frame.intervals and self.runs.has("first"):
            with out.block(f"if s < {self.first_time(run)}:"):
                out(f"{self.first_time(run)} = s")

    def _take_into_list(self, out: SourceWriter, variable: str, run: str) -> None:
        head, count = self.node(variable, run), self.count(variable, run)
        out(f"{self.nodes.at('previous', 'ntop')} = {head}", f"{self.nodes.at('row', 'ntop')} = row")
        for feature in _sort_features(self.in_nodes.get(variable, set())):
            place = self.node_feature(variable, feature, "ntop")
            store_value(out, place, self.frame.read(feature))
        out(f"{head} = ntop", "ntop += 1", f"{count} += 1")
        for which in sorted(w for owner, w in self.kept if owner == variable and w != "last"):
            with out.block(f"if {count} == {which.removeprefix('nth')}:"):
                self._keep(out, variable, which, run)
        if self.runs.has(f"first_row_{variable}"):
            with out.block(f"if {count} == 1:"):
                out(f"{self.first_row(variable, run)} = row")
        if (variable, "start") in self.times:
            with out.block(f"if {count} == 1:"):
                out(f"{self.time(variable, 'start', run)} = s")
        self._keep(out, variable, "last", run)
        for (owner, feature), parts in sorted(self.summed.items(), key=lambda p: p[0][1].number):
            if owner == variable:
                self._add(out, variable, feature, parts, run)

    def _keep(self, out: SourceWriter, variable: str, which: str, run: str) -> None:
        for feature in _sort_features(self.kept.get((variable, which), set())):
            place = self.feature(variable, which, feature, run)
            store_value(out, place, self.frame.read(feature))

    def _add(self, out: SourceWriter, variable: str, feature: Feature, parts: set[str], run: str) -> None:
        """Updates running aggregates, by the same steps as the reference."""
        get = {p: self.running(variable, feature, p, run) for p in parts | {"number"}}
        value, ok = self.frame.read(feature)
        with out.when(ok or "True"):
            out(f"{get['number']} += 1")
            if "carry" in parts:
                out(f"{get['carry']} += carry_of({get['sum']}, {value})")
                out(f"{get['sum']} = wrapping_sum({get['sum']}, {value})")
            elif "sum" in parts:
                out(f"{get['sum']} += {value}")
            for what, sign in (("min", "<"), ("max", ">")):
                if what in parts:
                    best = get[what]  # any number replaces a NaN
                    better = f"{value} {sign} {best} or {best} != {best}"
                    with out.block(f"if {get['number']} == 1 or {better}:"):
                        out(f"{get[what]} = {value}")
            if "m2" in parts:
                mean = self.running(variable, feature, "mean", run)
                out(
                    f"delta = {value} - {mean}",
                    f"{mean} += delta / {get['number']}",
                    f"{get['m2']} += delta * ({value} - {mean})",
                )


def _sort_features(features: set[Feature]) -> list[Feature]:
    return sorted(features, key=lambda f: f.number)


class RunAccess:
    """Access for conditions on a run, and on the current event while an edge is evaluated.

    `node`: the Kleene event that `[i]` refers to, instead of the current event.
    """

    def __init__(
        self, registers: RunRegisters, run: str, edge: NfaEdge | None = None, *, node: str | None = None
    ) -> None:
        self.registers = registers
        self.run = run
        self.taking = None if edge is None else edge.variable
        self.first = edge is not None and edge.first  # it is the variable's first event
        self.node = node

    def feature(self, place: EventRef, feature: Feature) -> ValueText:
        variable, at, nth = place
        registers, frame = self.registers, self.registers.frame
        here = frame.read(feature)
        match at:
            case EventPosition.ONLY:
                if variable == self.taking:
                    return here
                return registers.feature(variable, "only", feature, self.run)
            case EventPosition.CURRENT if self.node is not None:
                return registers.node_feature(variable, feature, self.node)
            case EventPosition.PREVIOUS if self.node is not None:
                before = registers.nodes.at("previous", self.node)
                return registers.node_feature(variable, feature, before)
            case EventPosition.CURRENT:
                return here
            case EventPosition.PREVIOUS if variable != self.taking:
                # in a repeated group: its newest event is of this iteration
                before = registers.nodes.at("previous", registers.node(variable, self.run))
                return registers.node_feature(variable, feature, before)
            case EventPosition.PREVIOUS | EventPosition.LAST:
                return registers.feature(variable, "last", feature, self.run)
            case EventPosition.NTH if variable == self.taking and self.first and nth == 1:
                return here
            case EventPosition.NTH:
                return registers.feature(variable, f"nth{nth}", feature, self.run)
            case _:
                raise AssertionError(f"{at} outside an aggregate")

    def aggregate(self, aggregate: Aggregate, feature: Feature | None) -> ValueText:
        registers, variable = self.registers, aggregate.variable
        function = aggregate.function
        if feature is None and variable not in registers.kleene:
            return self._is_bound(variable), None
        if feature is None:
            extra = " + 1" if aggregate.at is EventPosition.THROUGH else ""
            return f"({registers.count(variable, self.run)}{extra})", None
        if aggregate.at is EventPosition.THROUGH:
            return self._write_running_value(function, variable, feature)
        if function in ("first", "last"):
            which = "nth1" if function == "first" else "last"
            value, ok = registers.feature(variable, which, feature, self.run)
            some = f"{registers.count(variable, self.run)} > 0"
            return value, some if ok is None else f"({some} and {ok})"
        number = registers.running(variable, feature, "number", self.run)
        match function:
            case "count":
                return number, None
            case "min" | "max":
                value = registers.running(variable, feature, function, self.run)
                return value, f"{number} > 0"
            case "sum" | "avg":
                total, carry = self._total(variable, feature)
                return _write_sum(function, total, carry, number, feature.kind)
            case "stddev":
                registers.running(variable, feature, "mean", self.run)
                spread = registers.running(variable, feature, "m2", self.run)
                return f"math.sqrt({spread} / ({number} - 1))", f"{number} > 1"
            case _:
                raise AssertionError(f"no compiled form of {function}")

    def _is_bound(self, variable: str) -> str:
        """The number of events of a plain variable: 1, or 0 if the match does not bind it."""
        if variable == self.taking:
            return "1"
        return f"(1 if {self.registers.row(variable, self.run)} >= 0 else 0)"

    def _total(self, variable: str, feature: Feature) -> tuple[str, str | None]:
        """A running sum, and for integers the number of its 64-bit overflows."""
        registers = self.registers
        total = registers.running(variable, feature, "sum", self.run)
        if not feature.integral:
            return total, None
        return total, registers.running(variable, feature, "carry", self.run)

    def _write_running_value(self, function: str, variable: str, feature: Feature) -> ValueText:
        """The running value including the current event."""
        registers, frame = self.registers, self.registers.frame
        value, ok = frame.read(feature)
        if function == "last":
            return value, ok
        if function == "first":
            stored, stored_ok = registers.feature(variable, "nth1", feature, self.run)
            any_before = f"{registers.count(variable, self.run)} > 0"
            present = None if ok is None else f"({stored_ok} if {any_before} else {ok})"
            return f"({stored} if {any_before} else {value})", present
        number = registers.running(variable, feature, "number", self.run)
        added = "1" if ok is None else f"(1 if {ok} else 0)"
        more = f"({number} + {added})"
        if function == "count":
            return more, None
        if function in ("sum", "avg"):
            total, carry = self._total(variable, feature)
            summand = value if ok is None else f"({value} if {ok} else 0)"
            if carry is None:
                return _write_sum(function, f"({total} + {summand})", None, more, feature.kind)
            carry = f"({carry} + carry_of({total}, {summand}))"
            total = f"wrapping_sum({total}, {summand})"
            return _write_sum(function, total, carry, more, feature.kind)
        sign = "<" if function == "min" else ">"
        stored = registers.running(variable, feature, function, self.run)
        better = f"{number} == 0 or {value} {sign} {stored} or {stored} != {stored}"
        new = f"({better})" if ok is None else f"({ok} and ({better}))"
        return f"({value} if {new} else {stored})", f"{more} > 0"


def _write_sum(function: str, total: str, carry: str | None, number: str, kind: ValueKind) -> ValueText:
    """A sum, NULL beyond 64 bits, or its average."""
    some = f"{number} > 0"
    if carry is None:
        return (total if function == "sum" else f"({total} / {number})"), some
    if function == "sum":
        return total, f"({some} and {carry} == 0)"
    mean = f"((float({total}) + {carry} * SPAN) / {number})", some
    return round_duration(mean) if kind is ValueKind.DURATION else mean


# Lists of runs in their arena, by partition and state.


class RunLists:
    """Writes how runs are visited, added and removed."""

    def __init__(self, registers: RunRegisters) -> None:
        self.registers = registers

    def list(self, state: NfaState, *, pending: bool = False) -> str:
        """The column of a state's list of runs; pending ones have a separate list."""
        return self.place(state, pending=pending)

    def place(self, state: NfaState, *, pending: bool = False) -> str:
        """The name of that column."""
        names, kind = self.registers.frame.names, "PENDING" if pending else "STATE"
        return names.number(f"{kind}_{state.number}", state.number * 2 + pending, HEADS)

    def walk(self, out: SourceWriter, place: str, visit: Callable[[], None], *, loops: bool) -> None:
        """Visits every run `r` of a list; `p` is the previous one, `nx` the next one.

        With `loops`, runs that return to the list meanwhile are added at the end.
        """
        out.note("every run r; p is the previous one in the list, nx the next one")
        out("p = -1", f"r = head[k, {place}]")
        if loops:
            out("added = -1", "added_last = -1")
        with out.block("while r >= 0:"):
            out("nx = nxt[r]")
            visit()
            out("r = nx")
        if loops:
            out.note("runs that return to the list")
            with out.block("if added >= 0:"):
                out(f"nxt[added_last] = head[k, {place}]", f"head[k, {place}] = added")

    def unlink(self, out: SourceWriter, place: str) -> None:
        """Removes the current run from its list."""
        out.note("remove it from its list")
        with out.block("if p < 0:"):
            out(f"head[k, {place}] = nx")
        with out.block("else:"):
            out("nxt[p] = nx")

    def remove(self, out: SourceWriter, place: str) -> None:
        """Removes the current run from its list, and frees its row."""
        self.unlink(out, place)
        self.release(out, "r")

    def release(self, out: SourceWriter, run: str) -> None:
        """Frees the row of a live run."""
        self.give_back(out, run)
        out("live[k] -= 1", "alive -= 1")

    def clear(self, out: SourceWriter, place: str) -> None:
        """Drops every run of a list."""
        out(f"r = head[k, {place}]")
        with out.block("while r >= 0:"):
            out("nx = nxt[r]")
            self.release(out, "r")
            out("r = nx")
        out(f"head[k, {place}] = -1")

    def give_back(self, out: SourceWriter, run: str) -> None:
        """Frees a row that was never counted as live."""
        out.note("its row is free")
        out(f"nxt[{run}] = free", f"free = {run}", "frees += 1")

    def push(self, out: SourceWriter, run: str, place: str) -> None:
        """Adds a run to the front of a list."""
        out(f"nxt[{run}] = head[k, {place}]", f"head[k, {place}] = {run}")
        out("live[k] += 1", "alive += 1")

    def allocate(self, out: SourceWriter, run: str) -> None:
        """Allocates a row for a run; the caller has made room."""
        out.note(f"a row for a new run {run}")
        with out.block("if free >= 0:"):
            out(f"{run} = free", f"free = nxt[{run}]", "frees -= 1")
        with out.block("else:"):
            out(f"{run} = rtop", "rtop += 1")

    def copy(self, out: SourceWriter, source: str, target: str) -> None:
        """Copies a run to a new row."""
        self.allocate(out, target)
        runs = self.registers.runs
        for (_, old), (_, new) in zip(runs.list_values(source), runs.list_values(target), strict=True):
            out(f"{new} = {old}")


class SkipWriter:
    """Writes AFTER MATCH SKIP: runs that began among used events are dropped."""

    def __init__(self, automaton: Nfa, registers: RunRegisters, *, weighs: bool) -> None:
        self.registers = registers
        self.to = _skip_in_kernel(registers.frame.plan.query, automaton) if weighs else None
        self.tables: tuple[str, ...] = () if self.to is None else (USED,)
        if self.to is not None:
            self.read_first_row("")

    def read_first_row(self, run: str) -> str:
        """The row of a run's first event."""
        return self.registers.runs.at(BEGAN, run)

    def too_late(self, run: str) -> list[str]:
        """When a run began among events that a match has used."""
        return [] if self.to is None else [f"{self.read_first_row(run)} < {USED}[k]"]

    def begin_event(self, out: SourceWriter) -> None:
        """Writes the code before runs process an event."""
        if self.to is not None:
            out(f"next_begin = {USED}[k]")
        if self.to is SkipTarget.PAST_LAST:
            out.note("matches of this event: their first output row, and the row they begin with")
            out("opened = otop", "oldest = row")

    def begin_run(self, out: SourceWriter, run: str) -> None:
        """A run begins with the current event."""
        if self.to is not None:
            out(f"{self.read_first_row(run)} = row")

    def may_end(self, run: str) -> list[str]:
        """When a match that ends with the current event may be emitted."""
        return [f"{self.read_first_row(run)} <= oldest"] if self.to is SkipTarget.PAST_LAST else []

    def write_skip(self, out: SourceWriter, run: str) -> None:
        """Writes the skip before a match that ends with the current event is emitted."""
        if self.to is SkipTarget.PAST_LAST:
            out.note("of all matches that end here, one of those that began first is emitted")
            with out.block(f"if {self.read_first_row(run)} < oldest:"):
                out(f"oldest = {self.read_first_row(run)}", "otop = opened")
            out("next_begin = row + 1")
        elif self.to is SkipTarget.NEXT_EVENT:
            out(f"next_begin = max(next_begin, {self.read_first_row(run)} + 1)")

    def end_event(self, out: SourceWriter) -> None:
        """Writes the code after all runs have processed an event."""
        if self.to is not None:
            out(f"{USED}[k] = next_begin")

    def may_begin(self) -> list[str]:
        """When a run may begin with an event that other runs have taken."""
        return ["next_begin <= row"] if self.to is SkipTarget.PAST_LAST else []


def _skip_in_kernel(query: Query, automaton: Nfa) -> SkipTarget | None:
    """The target of AFTER MATCH SKIP, if the kernel can evaluate it."""
    supported = (
        query.after is not None
        and query.after.order is MatchOrder.END
        and query.after.to in (SkipTarget.PAST_LAST, SkipTarget.NEXT_EVENT)
        and query.choose is None
        and not any(state.pending or state.lasting for state in automaton.states)
        and not any(iterate_interval_negations(query.pattern))
    )
    return query.after.to if supported and query.after is not None else None
