"""Parts and results of a join tree: their events, and what user-defined operators add."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ensue.codegen.expressions import Feature, ValueText
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.state_layout import SourceWriter, StateColumns, store_value
from ensue.ir.expression import Aggregate, EventPosition, Expr, FieldRef
from ensue.ir.traversal import iterate_references
from ensue.ir.user_operator import TIME_ATTRIBUTES
from ensue.physical.join_tree.nodes import PlacedNode
from ensue.physical.join_tree.records import REAL, TreeRecords
from ensue.physical.join_tree.records import WHOLE as WHOLE_TABLE
from ensue.planner.features import EventRef
from ensue.planner.join_operators import EVENT, LAST, WHOLE, OperatorFunction
from ensue.planner.physical_plan import JoinNode, LeafNode
from ensue.schema import ValueKind


@dataclass(frozen=True, slots=True)
class CurrentEvent:
    """The current event."""

    frame: KernelContext

    @property
    def row(self) -> str:
        return "row"

    def time(self, which: str) -> str:
        return {"start": "s", "end": "t"}[which]

    def feature(self, feature: Feature) -> ValueText:
        return self.frame.read(feature)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event that an entry of the arena is, or contains."""

    records: TreeRecords
    list: str
    variable: str
    node: str
    alone: bool

    @property
    def row(self) -> str:
        if self.alone:
            return self.records.get("row", self.node)
        return self.records.stored_row(self.list, self.variable, self.node)

    def time(self, which: str) -> str:
        if self.alone:
            return self.records.get(which, self.node)
        return self.records.stored_time(self.list, self.variable, which, self.node)

    def feature(self, feature: Feature) -> ValueText:
        return self.records.stored_feature(self.list, self.variable, feature, self.node)


@dataclass(frozen=True, slots=True)
class PartialResult:
    """A result of a node. Its last event is the current one, or in the arena."""

    events: Mapping[str, CurrentEvent | StoredEvent]  # of plain variables
    chains: Mapping[str, str]  # of Kleene variables: the entry of the chain; "-1": no events
    first: str  # the row of its first event
    last: str  # the row of its last event
    start: str
    end: str
    index: str  # the partition's count at its first event, if events are counted
    rip: str = "-1"
    begins: str = ""  # as computed by the operator's F; empty: its start
    ends: str = ""
    head: str = ""  # the row that decides if several parts begin at the same time
    tail: str = ""  # likewise if they end
    # attributes of operator results, by the names of the result and of the attribute
    attributes: Mapping[tuple[str, str], Callable[[], str]] = field(default_factory=dict)

    @property
    def opens(self) -> str:
        return self.begins or self.start

    @property
    def closes(self) -> str:
        return self.ends or self.end

    @property
    def heads(self) -> str:
        return self.head or self.first

    @property
    def tails(self) -> str:
        return self.tail or self.last

    def feature(self, place: EventRef, feature: Feature) -> ValueText:
        variable, at, _ = place
        assert at is EventPosition.ONLY
        return self.events[variable].feature(feature)

    def aggregate(self, aggregate: Aggregate, feature: Feature | None) -> ValueText:
        match aggregate.argument:
            case FieldRef(variable=variable, name=str(name)) if feature is None:
                return self.attributes[variable, name](), None
            case None if aggregate.variable in self.events:
                return "1", None  # every match has all of its plain events
        raise AssertionError(f"no aggregates in a join tree: {aggregate} {feature}")


REALS = (ValueKind.FLOAT, ValueKind.DECIMAL)
LazyText = Callable[[], str]


class TreeResults:
    """Writes the calls of the Q and F of operators."""

    def __init__(self, frame: KernelContext, records: TreeRecords) -> None:
        self.frame = frame
        self.records = records
        # the last event and result of repeats, by partition
        self.memory = StateColumns("L", "LF", frame.names, "LATEST_")

    def fits(self, spot: PlacedNode, parts: tuple[PartialResult, ...]) -> list[str]:
        """The tests that Q holds for the parts of a node, and that F can be called."""
        assert not isinstance(spot.node, LeafNode)
        fits = spot.node.operator.fits
        tests = self.has_arguments(spot, parts)
        if fits is not None:
            tests.append(_call(fits, self._arguments(fits, spot, parts)))
        return tests

    def has_arguments(self, spot: PlacedNode, parts: tuple[PartialResult, ...]) -> list[str]:
        """The tests that all arguments of Q and F have values."""
        assert not isinstance(spot.node, LeafNode)
        operator, tests = spot.node.operator, []
        if operator.fits is not None:
            tests += _not_null(self._arguments(operator.fits, spot, parts))
        if operator.builds is not None:
            # the result always has times
            tests += _not_null(self._arguments(operator.builds, spot, (*parts, parts[0])))
        return list(dict.fromkeys(tests))

    def fires(self, spot: PlacedNode, part: PartialResult) -> tuple[list[str], str]:
        """The lines that record an event for a repeat, and the name of the flag that it fires."""
        assert not isinstance(spot.node, LeafNode)
        function, name = spot.node.operator.fits, f"fires{spot.number}"
        assert function is not None
        call = _call(function, self._arguments(function, spot, (part,)))
        lines = [f"{name} = {self._has_fired(spot)} == 0 or {call}"]
        attributes = {attribute.name for attribute in spot.node.operator.attributes}
        for argument in function.arguments:
            if argument.side == LAST and argument.name not in attributes:
                value, _ = self._argument(spot, (part,), EVENT, argument.name)
                lines.append(f"{self._last(spot, argument.name)} = {value}")
        return lines, name

    def build(
        self, spot: PlacedNode, parts: tuple[PartialResult, ...], whole: PartialResult
    ) -> tuple[list[str], PartialResult]:
        """The lines that compute a result, and the result; `whole` combines its parts."""
        if not spot.is_derived or not self._is_used(spot):
            return [], whole
        assert not isinstance(spot.node, LeafNode)
        operator, lines, name = spot.node.operator, [], f"made{spot.number}"
        if operator.builds is not None:
            call = _call(operator.builds, self._arguments(operator.builds, spot, (*parts, whole)))
            lines.append(f"{name} = {call}")
            if not operator.starts_naturally:
                whole = replace(whole, begins=f"{name}[BEGINS]")
            if not operator.ends_naturally:
                whole = replace(whole, ends=f"{name}[ENDS]")
        whole = result = replace(whole, head="", tail="")
        variable = spot.node.variable or ""
        attributes: dict[tuple[str, str], LazyText] = dict(whole.attributes)
        attributes[variable, "start"] = lambda: result.opens
        attributes[variable, "end"] = lambda: result.closes
        for place, attribute in enumerate(operator.attributes, 2):
            column = f"MADE_{spot.number}_{self.frame.names.variable(attribute.name)}"
            number = self.frame.names.number(column, place, "positions in the result of an operator")
            attributes[variable, attribute.name] = _at(f"{name}[{number}]")
        result = replace(whole, attributes=attributes)
        if spot.remembers:
            lines += self._remember(spot, result)
        return lines, result

    def _is_used(self, spot: PlacedNode) -> bool:
        """Whether its results are read: only the events of a match leave the tree."""
        assert not isinstance(spot.node, LeafNode)
        late = any(self.is_late(check.condition, spot) for check in spot.node.checks)
        return spot.parent is not None or spot.remembers or late

    def _remember(self, spot: PlacedNode, result: PartialResult) -> Iterator[str]:
        assert not isinstance(spot.node, LeafNode)
        yield f"{self._has_fired(spot)} = 1"
        for attribute in spot.node.operator.attributes:
            value = result.attributes[spot.node.variable or "", attribute.name]()
            yield f"{self._last(spot, attribute.name)} = {value}"

    def _last(self, spot: PlacedNode, name: str) -> str:
        assert not isinstance(spot.node, LeafNode)
        is_real = {a.name: a.kind in REALS for a in spot.node.operator.attributes}
        is_real |= dict.fromkeys(TIME_ATTRIBUTES, self.frame.real_time)
        if name not in is_real:
            (leaf,) = spot.leaves()
            is_real[name] = not self.frame.features.get_feature(FieldRef(leaf.variable, name)).integral
        column = f"{spot.number}_{self.frame.names.variable(name)}"
        return self.memory.at(f"{spot.number} {name}", "k", real=is_real[name], name=column)

    def _has_fired(self, spot: PlacedNode) -> str:
        """Not 0 once a repeat has fired."""
        return self.memory.at(f"{spot.number} there", "k", name=f"{spot.number}_THERE")

    def is_late(self, condition: Expr, spot: PlacedNode) -> bool:
        """Whether a condition can only be evaluated on a node's result."""
        assert not isinstance(spot.node, LeafNode)
        variable = spot.node.variable
        return spot.remembers or any(r.variable == variable for r in iterate_references(condition))

    def _arguments(
        self, function: OperatorFunction, spot: PlacedNode, parts: tuple[PartialResult, ...]
    ) -> list[ValueText]:
        return [self._argument(spot, parts, a.side, a.name) for a in function.arguments]

    def _argument(self, spot: PlacedNode, parts: tuple[PartialResult, ...], side: int, name: str) -> ValueText:
        if side == WHOLE:
            return (parts[-1].start if name == "start" else parts[-1].end), None
        if spot.remembers:
            if side == LAST:
                return self._last(spot, name), None
            side = 0
        inner, part = spot.parts[side], parts[side]
        if name in TIME_ATTRIBUTES:
            return (part.opens if name == "start" else part.closes), None
        return self._read(inner, part, name)

    def _read(self, spot: PlacedNode, part: PartialResult, name: str) -> ValueText:
        """A value of a part: a field of its event, or an attribute of its result."""
        if not isinstance(spot.node, LeafNode):
            key = (spot.node.variable or "", name)
            if key in part.attributes:
                return part.attributes[key](), None
        (leaf,) = spot.leaves()
        feature = self.frame.features.get_feature(FieldRef(leaf.variable, name))
        return part.events[leaf.variable].feature(feature)

    def keep(self, out: SourceWriter, spot: PlacedNode, part: PartialResult, node: str) -> None:
        """Stores the attributes of a result that higher conditions and functions read."""
        sorts = dict(self._attributes(spot))
        for variable, what in list(self.records.slots[spot.list]):
            if what.startswith("@"):
                key = (variable, what[1:])
                out(f"{self._slot(spot, key, sorts[key], node)} = {part.attributes[key]()}")
        if not spot.natural and not spot.is_derived:
            out(f"{self._end(spot, 'head', node)} = {part.heads}")
            out(f"{self._end(spot, 'tail', node)} = {part.tails}")

    def restore(self, spot: PlacedNode, part: PartialResult, node: str) -> PartialResult:
        """A result in the arena, with its stored attributes."""
        attributes = {key: self._read_slot(spot, key, sort, node) for key, sort in self._attributes(spot)}
        if not spot.natural and not spot.is_derived:
            part = replace(part, head=self._end(spot, "head", node), tail=self._end(spot, "tail", node))
        return replace(part, attributes=attributes)

    def _attributes(self, spot: PlacedNode) -> Iterator[tuple[tuple[str, str], str]]:
        """The attributes of all results in a part, with their column types."""
        for inner in spot.walk():
            if isinstance(inner.node, LeafNode) or not inner.is_derived:
                continue
            name = inner.node.variable or ""
            for time in TIME_ATTRIBUTES:
                yield (name, time), REAL if self.frame.real_time else WHOLE_TABLE
            for attribute in inner.node.operator.attributes:
                yield (name, attribute.name), REAL if attribute.kind in REALS else WHOLE_TABLE

    def _read_slot(self, spot: PlacedNode, key: tuple[str, str], sort: str, node: str) -> LazyText:
        return lambda: self._slot(spot, key, sort, node)

    def _slot(self, spot: PlacedNode, key: tuple[str, str], sort: str, node: str) -> str:
        return self.records.slot(spot.list, (key[0], f"@{key[1]}"), sort, node)

    def _end(self, spot: PlacedNode, which: str, node: str) -> str:
        return self.records.slot(spot.list, ("", which), WHOLE_TABLE, node)

    def join(
        self, out: SourceWriter, spot: PlacedNode, left: PartialResult, right: PartialResult, whole: PartialResult
    ) -> PartialResult:
        """Combines parts whose times F may have computed."""
        whole = replace(whole, attributes={**left.attributes, **right.attributes})
        if spot.natural:
            return whole
        assert isinstance(spot.node, JoinNode)
        if spot.is_sequence:
            return replace(whole, begins=left.opens, ends=right.closes, head=left.heads, tail=right.tails)
        n = spot.called
        out(f"open{n} = {left.opens}", f"head{n} = {left.heads}")
        tie = f"({right.opens} == open{n} and {right.heads} < head{n})"
        with out.block(f"if {right.opens} < open{n} or {tie}:"):
            out(f"open{n} = {right.opens}", f"head{n} = {right.heads}")
        out(f"close{n} = {left.closes}", f"tail{n} = {left.tails}")
        tie = f"({right.closes} == close{n} and {right.tails} > tail{n})"
        with out.block(f"if {right.closes} > close{n} or {tie}:"):
            out(f"close{n} = {right.closes}", f"tail{n} = {right.tails}")
        return replace(whole, begins=f"open{n}", ends=f"close{n}", head=f"head{n}", tail=f"tail{n}")


def write_before(left: PartialResult, right: PartialResult) -> str:
    """The test that one part is before the other, by the times of their operators."""
    tie = f"({left.closes} == {right.opens} and {left.tails} < {right.heads})"
    return f"({left.closes} < {right.opens} or {tie})"


def _at(text: str) -> LazyText:
    return lambda: text


def _call(function: OperatorFunction, values: list[ValueText]) -> str:
    return f"{function.name}({', '.join(value for value, _ in values)})"


def _not_null(values: list[ValueText]) -> list[str]:
    """The tests that the arguments of a function are not null."""
    return [ok for _, ok in values if ok is not None]


# Results as entries of the arena.


class TreeEntries:
    """Writes and reads the entries of results."""

    def __init__(self, frame: KernelContext, records: TreeRecords, results: TreeResults) -> None:
        self.frame = frame
        self.records = records
        self.results = results

    def keep(self, out: SourceWriter, spot: PlacedNode, part: PartialResult) -> None:
        node, records = f"n{spot.called}", self.records
        values = {"first": part.first, "start": part.start, "index": part.index, "rip": part.rip}
        records.add(out, spot.list, node, values)
        if not isinstance(spot.node, LeafNode):
            for variable, event in part.events.items():
                out(f"{records.stored_row(spot.list, variable, node)} = {event.row}")
            for variable, chain in part.chains.items():
                out(f"{records.stored_chain(spot.list, variable, node)} = {chain}")
        slots = set(records.slots[spot.list])
        for variable, event in part.events.items():
            for which in ("start", "end"):
                if (variable, which) in slots:
                    time = records.stored_time(spot.list, variable, which, node)
                    out(f"{time} = {event.time(which)}")
        self.results.keep(out, spot, part, node)
        if not spot.starts_naturally:
            out(f"{records.stored_time(spot.list, '', 'start', node)} = {part.opens}")
        if not spot.ends_naturally:
            out(f"{records.stored_time(spot.list, '', 'end', node)} = {part.closes}")
        for feature in self.frame.features.all():
            for variable in part.events:
                if (variable, f"f{feature.number}") in slots:
                    place = records.stored_feature(spot.list, variable, feature, node)
                    store_value(out, place, part.events[variable].feature(feature))

    def part(self, spot: PlacedNode, node: str) -> PartialResult:
        records = self.records
        alone = isinstance(spot.node, LeafNode)
        events = {
            leaf.variable: StoredEvent(records, spot.list, leaf.variable, node, alone)
            for leaf in spot.leaves()
            if not leaf.kleene
        }
        chains = {
            leaf.variable: (node if alone else records.stored_chain(spot.list, leaf.variable, node))
            for leaf in spot.leaves()
            if leaf.kleene
        }
        part = PartialResult(
            events,
            chains,
            records.get("first", node),
            records.get("row", node),
            records.get("start", node),
            records.get("end", node),
            records.get("index", node) if self.frame.counts else "",
            records.get("rip", node),
        )
        part = self.results.restore(spot, part, node)
        if not spot.starts_naturally:
            part = replace(part, begins=records.stored_time(spot.list, "", "start", node))
        if not spot.ends_naturally:
            part = replace(part, ends=records.stored_time(spot.list, "", "end", node))
        return part

    def join(self, out: SourceWriter, parent: PlacedNode, left: PartialResult, right: PartialResult) -> PartialResult:
        """The result of two matching parts; the current event is its last one."""
        number = parent.called

        def least(name: str, first: str, second: str) -> str:
            out(f"{name}{number} = {first}")
            with out.block(f"if {second} < {name}{number}:"):
                out(f"{name}{number} = {second}")
            return f"{name}{number}"

        first, start, index = left.first, left.start, left.index
        if not parent.in_order:
            first = least("first", left.first, right.first)
            start = least("start", left.start, right.start)
            if self.frame.counts:
                index = least("index", left.index, right.index)
        result = PartialResult(
            {**left.events, **right.events}, {**left.chains, **right.chains}, first, "row", start, "t", index, left.rip
        )
        return self.results.join(out, parent, left, right, result)


# Rollback of an event for which the room was too small.


def write_limits(out: SourceWriter) -> None:
    """Writes the table sizes before the loop."""
    out("last_entry = A.shape[0] - 1", "last_match = O.shape[0] - 1", "short = 0")


def write_rollback(
    out: SourceWriter, frame: KernelContext, records: TreeRecords, event: Callable[[SourceWriter], None]
) -> None:
    """Writes the processing of an event, and its rollback if the room was too small."""
    out("old_entries = atop", "old_matches = otop")
    event(out)
    out.note("", "too little room for the results of the event: roll back, and ask for more")
    with out.block("if short != 0:"):
        out("code = NEEDS_INSTANCES if short == SHORT_OF_ENTRIES else NEEDS_OUTPUT")
        with out.block("while atop > old_entries:"):
            out("atop -= 1")
            previous = records.get("previous", "atop")
            with out.block("for list in range(tops.shape[1]):"):
                out(f"tops[k, list] = {previous} if tops[k, list] == atop else tops[k, list]")
        out("otop = old_matches")
        if frame.counts:
            out("counts[k] = idx - 1")
        out("break")
