"""Compiled hierarchies: layers, stages and the schemas between them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.analyzer.hierarchy_inlining import InlinedEvent, InlinedQuery, Path
from ensue.analyzer.hierarchy_layers import MEMBERS, STANDARD_FIELDS, Layer, get_layer_column
from ensue.analyzer.output_mode import returns_matches
from ensue.ir.hierarchy import FIRST_POSITION, LAST_POSITION, Hierarchy
from ensue.ir.query import TIMED_OUT
from ensue.ir.traversal import iterate_atoms
from ensue.operators.hierarchy.layer_stream import MEMBER, LayerEventStream, fold_members
from ensue.planner.hierarchy_stages import InliningChoice, StagePlan, build_stages
from ensue.projection.match_ids import ORDINAL
from ensue.projection.values import MatchValues
from ensue.runtime.compiled_query import CompiledQuery, build_result
from ensue.runtime.stage import InputFilter
from ensue.vector.arrow_numpy import integers, sorted_unique, to_single_array, wrap_numbers
from ensue.vector.arrow_types import window_to_ticks
from ensue.vector.event_table import StreamSchema
from ensue.vector.match_rows import Matches
from ensue.vector.take import create_empty_table

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class InlinedLayer:
    """A layer whose nested complex events are inlined, with the data to rebuild them."""

    flat: CompiledQuery  # the inlined query
    stream: LayerEventStream  # of its events
    inlined: InlinedQuery
    # of the inlined events, by definition
    layers: Mapping[str, tuple[CompiledQuery, LayerEventStream]]


def build_inlined_result(
    inlined: InlinedLayer, layer: tuple[CompiledQuery, LayerEventStream], matches: Matches, events: pa.Table
) -> pa.Table:
    """Builds the result of a layer from the matches of its inlined query."""
    gathered = MatchValues(matches, events, inlined.flat.shape.get_columns(inlined.flat.query))
    for conjunct in inlined.flat.plan.residual:
        matches = gathered.matches.where(gathered.holds(conjunct))
        gathered = gathered.with_matches(matches)
    boxes = {box.path: box for box in inlined.inlined.boxes}
    return _InlinedResult(inlined, layer, gathered.matches, events, boxes).build_events(())


@dataclass(frozen=True, slots=True)
class _InlinedResult:
    """Builds the complex events of an inlined layer, innermost first."""

    opened: InlinedLayer
    own: tuple[CompiledQuery, LayerEventStream]
    matches: Matches
    events: pa.Table
    boxes: Mapping[Path, InlinedEvent]

    def build_events(self, path: Path) -> pa.Table:
        """Builds the events of an inlined definition, one per match; () is the layer itself."""
        prepared, stream = self.own if not path else self.opened.layers[self.boxes[path].name]
        flat = self.opened.inlined.leaves[path]
        types = {a.variable: a.type for a in iterate_atoms(prepared.query.pattern)}
        rows: dict[str, Ints] = {}
        lists: dict[str, tuple[Ints, Ints]] = {}
        pieces, numbers = [], []
        offset = 0
        by_type: dict[str, list[str]] = {}
        for variable, name in flat.items():
            if name in self.matches.rows or name in self.matches.lists:
                type_ = types[variable]
                is_complex = isinstance(type_, str) and type_ in stream.complex_
                by_type.setdefault(str(type_) if is_complex else "", []).append(variable)
        for complex_, variables in by_type.items():
            elements = [self.matches.elements(flat[v]) for v in variables]
            used_rows = sorted_unique(np.concatenate(elements))
            events = self.events.take(wrap_numbers(used_rows))
            numbers.append(integers(to_single_array(events.column(ORDINAL))))
            pieces.append(self._convert_events(stream, complex_, events))
            for variable in variables:
                name = flat[variable]
                if name in self.matches.lists:
                    offsets, inside = self.matches.lists[name]
                    lists[variable] = offsets, offset + np.searchsorted(used_rows, inside)
                else:
                    bound = self.matches.rows[name]
                    places = offset + np.searchsorted(used_rows, bound)
                    rows[variable] = np.where(bound < 0, np.int64(-1), places)
            offset += len(used_rows)
        for variable in types:
            inner = (*path, variable)
            if inner in self.boxes:
                inner_events = fold_members(self.build_events(inner))
                pieces.append(stream.convert_complex(self.boxes[inner].name, inner_events))
                numbers.append(np.zeros(inner_events.num_rows, np.int64))
                rows[variable] = offset + np.arange(inner_events.num_rows)
                offset += inner_events.num_rows
        table = pa.concat_tables(pieces).unify_dictionaries()
        order = stream.order(pieces)
        positions = np.empty(len(order), np.int64)
        positions[order] = np.arange(len(order))
        numbered = table.append_column(ORDINAL, wrap_numbers(np.concatenate(numbers)))
        matches = Matches(rows, lists, self.matches.count)
        moved = matches.map_rows(lambda rows: np.where(rows < 0, np.int64(-1), positions[rows]))
        filtered = replace(prepared, plan=replace(prepared.plan, residual=()))
        return build_result(filtered, moved, numbered.take(wrap_numbers(order)))

    def _convert_events(self, stream: LayerEventStream, complex_: str, events: pa.Table) -> pa.Table:
        """Converts events of the inlined query to those of a layer's stream."""
        flat = self.opened.stream
        if complex_:
            return stream.convert_complex(complex_, flat.restore_columns(complex_, events))
        raw = events.select(stream.raw.arrow.names).cast(stream.raw.arrow)
        positions = (integers(to_single_array(events.column(name))) for name in (LAST_POSITION, FIRST_POSITION))
        converted = stream.convert_input(raw, *positions)
        return create_empty_table(stream.shape.arrow) if converted is None else converted


@dataclass(frozen=True, slots=True)
class CompiledLayer:
    """A layer compiled for its stream."""

    layer: Layer
    stream: LayerEventStream
    prepared: CompiledQuery
    event_schema: pa.Schema  # its complex events, as layers above read them
    result: pa.Schema  # its matches, as delivered
    waits: int | float  # how far its time lags the input events
    settles: int | float  # how long after their end its matches are known
    ranked: bool  # a layer above depends on the order of its events
    events_per_input: float = 1.0  # estimated events it reads per input event
    opened: InlinedLayer | None = None  # if complex events are inlined
    timeouts: tuple[CompiledQuery, ...] | None = None  # None: timeouts are not delivered

    @property
    def source(self) -> LayerEventStream:
        """The stream that it is matched on."""
        return self.stream if self.opened is None else self.opened.stream

    @property
    def matched(self) -> CompiledQuery:
        """The query that runs: with the layers in its boxes, if there are any."""
        return self.prepared if self.opened is None else self.opened.flat

    @property
    def queries(self) -> tuple[CompiledQuery, ...]:
        """The queries that are matched, those for timeouts included."""
        return (self.matched, *(self.timeouts or ()))

    def events(self, matches: pa.Table) -> pa.Table:
        """Converts matches to the columns that layers above read."""
        return fold_members(matches).select(self.event_schema.names)

    def convert_to_output(self, events: pa.Table) -> pa.Table:
        """Converts the layer's complex events to the delivered columns."""
        own = self.layer.fields if returns_matches(self.layer.query) else ()
        columns = []
        for name in self.result.names:
            if name == TIMED_OUT and self.timeouts is not None:
                columns.append(wrap_numbers(np.zeros(events.num_rows, np.bool_)))
            else:
                columns.append(events.column(get_layer_column(name) if name in own else name))
        return pa.table(columns, schema=self.result)


@dataclass(frozen=True, slots=True)
class CompiledHierarchy:
    """A hierarchy compiled for a stream of a known shape."""

    hierarchy: Hierarchy
    layers: tuple[CompiledLayer, ...]  # lower ones first, without those that are only inlined
    shape: StreamSchema  # of the input events
    boxes: tuple[InliningChoice, ...] = ()  # how nested complex events are matched
    trace: bool = False

    @property
    def delivered(self) -> dict[str, pa.Schema]:
        """The results by layer; top queries are last, under the names of `Hierarchy.on_top`."""
        return {p.layer.name: p.result for p in self.layers if p.layer.delivered}

    @property
    def length(self) -> int | float | None:
        """How far back in time a match of the top layer may start; None: any time."""
        total: int | float = 0
        for layer in self.layers:
            length = window_to_ticks(layer.layer.query.within, layer.stream.shape.unit)
            if length is None:
                return None
            total += length
        return total


def build_event_schema(result: pa.Schema, layer: Layer) -> pa.Schema:
    """Folds the member columns of a layer's result into one struct."""
    if not layer.members or not returns_matches(layer.query):
        return result
    members = [f for f in result if f.name.startswith(MEMBER)]
    members_type = pa.struct([pa.field(f.name.removeprefix(MEMBER), f.type) for f in members])
    others = [f for f in result if not f.name.startswith(MEMBER)]
    return pa.schema([*others, pa.field(MEMBERS, members_type)])


def build_delivered_schema(event_schema: pa.Schema, layer: Layer) -> pa.Schema:
    """Returns the delivered columns, as if the level's query ran alone."""
    if not returns_matches(layer.query) or not layer.delivered:
        return event_schema
    own = {name: event_schema.field(get_layer_column(name)).type for name in layer.fields}
    standard = [f for f in event_schema if f.name in STANDARD_FIELDS and f.name not in own]
    fields = [*standard, *(pa.field(name, type_) for name, type_ in own.items())]
    if layer.members and MEMBERS not in own:
        fields.append(event_schema.field(MEMBERS))
    return pa.schema(fields)


LAST, FIRST = "__last", "__first"  # keys of an event's last and first member


@dataclass(frozen=True, slots=True)
class CompiledStage:
    """The layers that run in the key groups of one key. Their time lags the stream's."""

    stage: StagePlan
    hierarchy: CompiledHierarchy
    layers: tuple[CompiledLayer, ...]  # lower ones first; they wait only for each other
    takes: Mapping[str, pa.Schema]  # the events of earlier stages
    hold: int | float  # how far its time lags the stream
    reach: int | float | None  # how far back events may begin; None: any time

    @classmethod
    def from_hierarchy(cls, hierarchy: CompiledHierarchy, types: frozenset[str] | None = None) -> "CompiledStage":
        """All layers in one stage, which reads events of these types."""
        plan = StagePlan(0, (), tuple(compiled.layer for compiled in hierarchy.layers), (), (), types)
        return cls(plan, hierarchy, hierarchy.layers, {}, 0, None)

    @property
    def shape(self) -> StreamSchema:
        return self.hierarchy.shape

    @property
    def reads(self) -> InputFilter:
        """Its input events."""
        types = self.stage.raw
        if types and self.shape.schema.type_column is None:
            types = None
        return InputFilter(types, self.stage.key)

    @property
    def cut(self) -> bool:
        """Whether it exchanges events with other stages."""
        return bool(self.stage.takes or self.stage.gives)

    @property
    def delivered(self) -> tuple[str, ...]:
        return tuple(p.layer.name for p in self.layers if p.layer.delivered)


def compile_stages(hierarchy: CompiledHierarchy) -> tuple[CompiledStage, ...]:
    """Splits a hierarchy into stages, each of which depends on earlier ones only."""
    by_name = {p.layer.name: p for p in hierarchy.layers}
    later = sum(p.settles - p.waits for p in hierarchy.layers if p.settles != p.waits)
    length = hierarchy.length
    reach = None if length is None or math.isinf(later) else 2 * length + later
    stages: list[CompiledStage] = []
    settles: dict[str, int | float] = {}  # how far a layer's known events lag the stream
    for stage in build_stages([_with_inlined_types(p) for p in hierarchy.layers]):
        hold = max((settles[name] for name in stage.takes), default=0)
        layers: dict[str, CompiledLayer] = {}
        for layer in stage.layers:
            prepared = by_name[layer.name]
            waits = max((layers[n].settles for n in layer.uses if n in layers), default=0)
            later = prepared.settles - prepared.waits if prepared.settles != prepared.waits else 0
            layers[layer.name] = replace(prepared, waits=waits, settles=waits + later)
            settles[layer.name] = hold + layers[layer.name].settles
        takes = {name: build_exchange_schema(by_name[name].event_schema) for name in stage.takes}
        stages.append(CompiledStage(stage, hierarchy, tuple(layers.values()), takes, hold, reach))
    return tuple(stages)


def _with_inlined_types(prepared: CompiledLayer) -> Layer:
    """Returns a layer with the event types that its matcher reads after inlining."""
    layer = prepared.layer
    if prepared.opened is None:
        return layer
    flat = replace(layer.query, pattern=prepared.opened.flat.query.pattern)
    return replace(layer, query=flat, uses=tuple(prepared.source.complex_))


def build_exchange_schema(event_schema: pa.Schema) -> pa.Schema:
    """Returns the schema of complex events between stages, with the keys of their members."""
    fields = [field for field in event_schema if field.name not in (LAST_POSITION, FIRST_POSITION)]
    return pa.schema([*fields, pa.field(LAST, pa.binary()), pa.field(FIRST, pa.binary())])
