"""Matches the layers of a hierarchy, or of one of its stages: their matches are input events of the layers above."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.memory_budget import Usage, sum_usage
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import StateError
from ensue.ir.hierarchy import FIRST_POSITION, LAST_POSITION
from ensue.operators.hierarchy.compiled_hierarchy import (
    FIRST,
    LAST,
    CompiledHierarchy,
    CompiledLayer,
    CompiledStage,
    build_inlined_result,
)
from ensue.operators.hierarchy.layer_stream import project_timeouts
from ensue.planner.physical_plan import ReferencePlan
from ensue.projection.match_order import RANK, get_last_rows, sort_by_members
from ensue.runtime.compiled_query import AnyEngine
from ensue.runtime.event_buffer import BufferedEvents
from ensue.runtime.live_matcher import LiveMatcher
from ensue.runtime.stage import StageInput, get_complex_end_times
from ensue.vector import evaluation
from ensue.vector.arrow_numpy import booleans, integers, sorted_unique, to_single_array, wrap_numbers
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.match_rows import Matches
from ensue.vector.take import create_empty_table

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.bytes_]
Bytes = npt.NDArray[np.uint8]
Arrays = dict[str, npt.NDArray[Any]]
NO_ROWS: Ints = np.zeros(0, np.int64)

Step = Callable[["BufferedLayer", Mapping[str, pa.Table]], pa.Table]


class LayerMatcher(LiveMatcher):
    """The matcher of a layer; it orders its matches if layers above depend on their order."""

    def __init__(self, layer: CompiledLayer) -> None:
        super().__init__(layer.prepared)
        self.ranked = layer.ranked
        self.late = RANK in layer.event_schema.names  # matches are known in another order

    def _build_table(self, matches: Matches, known: BufferedEvents) -> pa.Table:
        if self.ranked and matches.count > 1:
            order = sort_by_members(matches, self.prepared.query, get_last_rows(matches))
            matches = matches.pick(order)
        return (self.ranked_result if self.late else super()._build_table)(matches, known)


class InlinedMatcher(LiveMatcher):
    """The matcher of a layer together with its inlined complex events."""

    def __init__(self, layer: CompiledLayer) -> None:
        assert layer.opened is not None
        super().__init__(layer.opened.flat)
        self.opened = layer.opened
        self.own = (layer.prepared, layer.stream)

    def _build_table(self, matches: Matches, known: BufferedEvents) -> pa.Table:
        return build_inlined_result(self.opened, self.own, known.renumber(matches), known.events)


class BufferedLayer:
    """A layer that buffers its input events until no earlier one can arrive."""

    def __init__(self, layer: CompiledLayer) -> None:
        self.layer = layer
        self.name = layer.layer.name
        self.matcher = InlinedMatcher(layer) if layer.opened else LayerMatcher(layer)
        self.timeouts = [LiveMatcher(query) for query in layer.timeouts or ()]
        self.waiting: list[pa.Table] = []
        self._timed_out: list[pa.Table] = []  # since the last delivery
        self.nothing = create_empty_table(layer.event_schema)
        self._none = layer.convert_to_output(self.nothing) if layer.layer.delivered else self.nothing

    def take(self, raw: pa.Table | None, lower: Mapping[str, pa.Table], at: Ints, begun: Ints) -> None:
        """Buffers input events and the complex events of lower layers."""
        stream = self.layer.source
        if raw is not None and stream.reads_raw:
            events = stream.convert_input(raw, at, begun)
            if events is not None:
                self.waiting.append(events)
        for name in stream.complex_:
            if lower[name].num_rows:
                self.waiting.append(stream.convert_complex(name, lower[name]))

    def pass_time(self, now: float, *, alone: bool = False) -> pa.Table:
        """Returns the events that are certain `now`; `alone`: time passes without events."""
        pieces = self._feed_ready(now)
        waits, settles = self.layer.waits, self.layer.settles
        if now == math.inf or math.isfinite(waits):
            watermark = now if now == math.inf else now - waits
            self._timed_out += [matcher.on_watermark(watermark) for matcher in self.timeouts]
            late = settles > waits or isinstance(self.matcher.prepared.plan.structure, ReferencePlan)
            if alone or late:  # kernels check timers only when events arrive, the reference never does
                pieces.append(self.matcher.on_watermark(watermark))
        return self._concat_events(pieces)

    def convert_to_output(self, events: pa.Table) -> pa.Table:
        """Converts events to the delivered columns; adds the timeouts since the last call."""
        delivered = self.layer.convert_to_output(events) if events.num_rows else self._none
        timed_out, self._timed_out = self._timed_out, []
        layer, result = self.layer.layer, self.layer.result
        pieces = [project_timeouts(t, layer, result) for t in timed_out if t.num_rows]
        return pa.concat_tables([delivered, *pieces]) if pieces else delivered

    def _feed_ready(self, now: float) -> list[pa.Table]:
        table = self._take_ready(now)
        if table is None:
            return []
        self._timed_out += [matcher.process(table) for matcher in self.timeouts]
        return [self.matcher.process(table)]

    def _concat_events(self, pieces: Sequence[pa.Table]) -> pa.Table:
        tables = [self.layer.events(piece) for piece in pieces if piece.num_rows]
        if not tables:
            return self.nothing
        return tables[0] if len(tables) == 1 else concat_tables(self.layer.event_schema, tables)

    def _take_ready(self, now: float) -> pa.Table | None:
        """Removes the events from the buffer that no earlier one can precede, in order."""
        stream, waits = self.layer.source, self.layer.waits
        pieces, self.waiting = self.waiting, []
        if waits and now < math.inf:
            done = [stream.ends(piece) < now - waits for piece in pieces]
            left = [p.filter(wrap_numbers(~d)) for p, d in zip(pieces, done, strict=True)]
            self.waiting = [piece.combine_chunks() for piece in left if piece.num_rows]
            pieces = [p.filter(wrap_numbers(d)) for p, d in zip(pieces, done, strict=True)]
        pieces = [piece for piece in pieces if piece.num_rows]
        return stream.merge(pieces) if pieces else None

    def next_timer(self) -> float | None:
        times = [due for m in self.matchers if (due := m.engine.next_timer()) is not None]
        times += [self.layer.source.ends(p).min().item() for p in self.waiting]
        return None if not times else min(times) + self.layer.waits

    @property
    def matchers(self) -> tuple[LiveMatcher, ...]:
        return (self.matcher, *self.timeouts)

    @property
    def usage(self) -> Usage:
        return sum_usage(m.usage for m in self.matchers).add_bytes(sum(int(p.nbytes) for p in self.waiting))

    def snapshot(self) -> bytes:
        blobs = {"matcher": self.matcher.snapshot()}
        blobs |= {f"timeouts {k}": matcher.snapshot() for k, matcher in enumerate(self.timeouts)}
        if self.waiting:
            blobs["waiting"] = serialize_table(pa.concat_tables(self.waiting).unify_dictionaries())
        return pack_state({}, {}, blobs)

    def restore(self, data: bytes) -> None:
        _, _, blobs = unpack_state(data)
        if {n for n in blobs if n.startswith("timeouts")} != {f"timeouts {k}" for k in range(len(self.timeouts))}:
            raise StateError("the state of a stream was saved with, or without, emit_timeouts")
        self.matcher.restore(blobs["matcher"])
        for k, matcher in enumerate(self.timeouts):
            matcher.restore(blobs[f"timeouts {k}"])
        self.waiting = [deserialize_table(blobs["waiting"])] if "waiting" in blobs else []


class HierarchyMatcher:
    """Feeds an ordered stream to the layers of a stage, lower ones first.

    The result has the delivered levels, then the events that later stages read. A hierarchy without a stage is one
    stage. `arrival` names the columns that distinguish events of the same time and order columns, where stages
    exchange events; with `POSITIONED`, all events have their positions in a table, also those for later stages.
    """

    def __init__(
        self, hierarchy: CompiledHierarchy, stage: CompiledStage | None = None, arrival: Sequence[str] = ()
    ) -> None:
        self.stage = CompiledStage.from_hierarchy(hierarchy) if stage is None else stage
        self.layers = [BufferedLayer(layer) for layer in self.stage.layers]
        self._schemas = {layer.layer.name: layer.event_schema for layer in hierarchy.layers}
        self._foreign = 0.0  # bytes that other matchers of the same call hold
        self._positions: _RowPositions | _KeyPositions
        if tuple(arrival) == POSITIONED:
            self._positions = _TablePositions(self.stage)
        else:
            self._positions = _KeyPositions(self.stage, arrival) if self.stage.cut else _RowPositions(self.stage)

    def process(self, batch: StageInput) -> list[pa.Table]:
        """Returns the complex events that the next ordered events complete.

        No later call has an event that ends before these.
        """
        results: list[list[pa.Table]] = []
        for piece in batch.slices():
            if results:  # what is not returned yet takes memory
                self._set_foreign_memory(sum(table.nbytes for tables in results for table in tables))
            results.append(self._process_slice(piece))
        if len(results) == 1:
            return results[0]
        self._set_foreign_memory(0)
        return [pa.concat_tables(tables) for tables in zip(*results, strict=True)]

    def _process_slice(self, batch: StageInput) -> list[pa.Table]:
        lower = {name: table for name, table in batch.complex_events.items() if table.num_rows}
        if not (batch.events.num_rows or lower):
            return self._apply_step(lambda layer, _: layer.nothing, self._empty_inputs())
        placed = self._positions.place(batch, lower)
        inputs = self._empty_inputs()
        for name, (last, first) in placed.lower.items():
            inputs[name] = self._add_positions(name, lower[name], last, first)
        events = placed.events if placed.events.num_rows else None

        def process_layer(layer: BufferedLayer, results: Mapping[str, pa.Table]) -> pa.Table:
            layer.take(events, results, placed.at, placed.starts)
            return layer.pass_time(placed.now)

        result = self._apply_step(process_layer, inputs)
        self._positions.forget(placed.now)
        return result

    def on_watermark(self, now: float) -> list[pa.Table]:
        """Returns the complex events that only waited for time to pass, once it is `now`."""

        def pass_time(layer: BufferedLayer, lower: Mapping[str, pa.Table]) -> pa.Table:
            layer.take(None, lower, NO_ROWS, NO_ROWS)
            return layer.pass_time(now, alone=True)

        return self._apply_step(pass_time, self._empty_inputs())

    def _empty_inputs(self) -> dict[str, pa.Table]:
        """Returns empty tables for the complex events of earlier stages."""
        return {name: create_empty_table(self._schemas[name]) for name in self.stage.takes}

    def _add_positions(self, name: str, table: pa.Table, last: Ints, first: Ints) -> pa.Table:
        """Orders events of an earlier stage and adds the positions of their members."""
        schema, positions = self._schemas[name], {LAST_POSITION: last, FIRST_POSITION: first}
        columns = [wrap_numbers(positions[n]) if n in positions else table.column(n) for n in schema.names]
        return pa.table(columns, schema=schema).take(wrap_numbers(np.argsort(last, kind="stable")))

    def _apply_step(self, step: Step, inputs: Mapping[str, pa.Table]) -> list[pa.Table]:
        """Applies a step to each layer; returns the delivered levels, and the events for later stages."""
        results = dict(inputs)
        for layer in self.layers:
            results[layer.name] = step(layer, results)
        levels = (layer for layer in self.layers if layer.layer.layer.delivered)
        delivered = [layer.convert_to_output(results[layer.name]) for layer in levels]
        return delivered + [self._positions.export(results[name]) for name in self.stage.stage.gives]

    def find_starts(self, batch: StageInput) -> Ints | None:
        """Returns the positions where the events of a table start; None: their own."""
        placed = self._positions.place(batch, {})
        return None if placed.starts is placed.at else placed.starts

    def next_timer(self) -> float | None:
        """Returns the stream time at which something that waits for time is certain."""
        times = [t for layer in self.layers if (t := layer.next_timer()) is not None]
        return min(times, default=None)

    def _set_foreign_memory(self, size: float) -> None:
        """Counts delivered results of this size against the memory limit."""
        for engine in self.engines:
            engine.set_foreign_memory(size + self._foreign)

    def set_foreign_memory(self, size: float) -> None:
        """Counts what other matchers of the same call hold against the memory limit."""
        self._foreign = size
        self._set_foreign_memory(0)

    @property
    def engines(self) -> list[AnyEngine]:
        return [matcher.engine for layer in self.layers for matcher in layer.matchers]

    @property
    def usage(self) -> Usage:
        return sum_usage(layer.usage for layer in self.layers).add_bytes(self._positions.nbytes)

    def snapshot(self) -> bytes:
        header, arrays = self._positions.snapshot()
        header["layers"] = [layer.name for layer in self.layers]
        saved = {POSITIONS: pack_state(header, arrays, {})}
        saved |= {f"layer {k}": layer.snapshot() for k, layer in enumerate(self.layers)}
        return pack_state({}, {}, saved)

    def restore(self, data: bytes) -> None:
        _, _, saved = unpack_state(data)
        if set(saved) != {POSITIONS, *(f"layer {k}" for k in range(len(self.layers)))}:
            raise StateError("the state of a stream was saved for another set of layers")
        header, arrays, _ = unpack_state(saved[POSITIONS])
        if header["layers"] != [layer.name for layer in self.layers]:
            raise StateError("the state of a stream was saved for other layers")
        self._positions.restore(header, arrays)
        for k, layer in enumerate(self.layers):
            layer.restore(saved[f"layer {k}"])


POSITIONS = "positions"  # the part of a saved state
POSITIONED = (LAST_POSITION, FIRST_POSITION)  # the columns of events that come with their positions


@dataclass(frozen=True, slots=True)
class _PlacedEvents:
    """Input events with their positions in the stream."""

    events: pa.Table  # without the columns of the arrival order
    at: Ints
    starts: Ints  # where they start: with intervals before their own positions
    now: float  # the end of the newest event
    lower: Mapping[str, tuple[Ints, Ints]]  # of complex events: the positions of their last and first members


class _RowPositions:
    """Row numbers, where one matcher gets all events of all layers."""

    def __init__(self, stage: CompiledStage) -> None:
        self.shape = stage.shape
        self.span = replace(stage.hierarchy, layers=stage.layers).length
        self.rows = 0  # input events so far
        self.ends: npt.NDArray[np.generic] = np.zeros(0, np.int64)  # end times of the latest events

    def place(self, batch: StageInput, lower: Mapping[str, pa.Table]) -> _PlacedEvents:  # noqa: ARG002
        events = batch.bare
        at = np.arange(self.rows, self.rows + events.num_rows)
        self.rows += events.num_rows
        schema, unit = self.shape.schema, self.shape.unit
        end_times = np.asarray(evaluation.from_arrow(events.column(schema.end), unit).values)
        now = end_times[-1].item()
        if not schema.intervals:
            return _PlacedEvents(events, at, at, now, {})
        starts = np.asarray(evaluation.from_arrow(events.column(schema.start), unit).values)
        all_ends = np.concatenate([self.ends.astype(end_times.dtype), end_times])
        first = int(at[-1]) + 1 - len(all_ends)
        begun = np.minimum(at, first + np.searchsorted(all_ends, starts, side="right"))
        self.ends = all_ends if self.span is None else all_ends[all_ends >= now - self.span]
        return _PlacedEvents(events, at, begun, now, {})

    def export(self, events: pa.Table) -> pa.Table:
        """Returns complex events as later stages read them."""
        return events

    def forget(self, now: float) -> None: ...

    @property
    def nbytes(self) -> int:
        return int(self.ends.nbytes)

    def snapshot(self) -> tuple[dict[str, Any], Arrays]:
        return {"rows": self.rows}, {"ends": self.ends}

    def restore(self, header: dict[str, Any], arrays: Arrays) -> None:
        self.rows, self.ends = int(header["rows"]), arrays["ends"]


class _KeyPositions:
    """Numbers for the keys of events, which order events from different key groups."""

    def __init__(self, stage: CompiledStage, arrival: Sequence[str]) -> None:
        self.stage, self.shape, self.arrival = stage, stage.shape, list(arrival)
        self.numbers = KeyNumbers()

    def place(self, batch: StageInput, lower: Mapping[str, pa.Table]) -> _PlacedEvents:
        events = batch.events
        keys = encode_event_keys(events, self.shape, self.arrival)
        lasts = {name: read_keys(table, LAST) for name, table in lower.items()}
        self.numbers.get_numbers(np.sort(np.concatenate([keys, *lasts.values()])))
        at = starts = self.numbers.get_numbers(keys)
        if self.shape.schema.intervals:
            starts = self.numbers.get_numbers(encode_start_keys(events, keys, self.shape))
        times = [get_end_times(events, self.shape)] if events.num_rows else []
        times += [get_complex_end_times(table, self.shape) for table in lower.values()]
        members = {
            name: (self.numbers.get_numbers(last), self.numbers.get_numbers(read_keys(lower[name], FIRST)))
            for name, last in lasts.items()
        }
        bare = events.drop_columns(self.arrival)
        return _PlacedEvents(bare, at, starts, max(t.max().item() for t in times), members)

    def export(self, events: pa.Table) -> pa.Table:
        """Replaces the positions of the members by their keys, which mean the same in later stages."""
        last, first = (
            keys_to_arrow(self.numbers.keys(integers(to_single_array(events.column(name))))) for name in POSITIONED
        )
        return events.drop_columns([*POSITIONED]).append_column(LAST, last).append_column(FIRST, first)

    def forget(self, now: float) -> None:
        if self.stage.reach is not None:
            before = now - self.stage.reach
            self.numbers.forget(encode_time_bound(math.floor(before) if isinstance(now, int) else before))

    @property
    def nbytes(self) -> int:
        return self.numbers.known.nbytes + self.numbers.numbers.nbytes

    def snapshot(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {"known": self.numbers.known, "numbers": self.numbers.numbers}

    def restore(self, header: dict[str, Any], arrays: Arrays) -> None:  # noqa: ARG002
        self.numbers = KeyNumbers(arrays["known"], arrays["numbers"])


class _TablePositions(_RowPositions):
    """The row numbers of a table, which the events of its parts bring with them."""

    def place(self, batch: StageInput, lower: Mapping[str, pa.Table]) -> _PlacedEvents:
        events = batch.events
        at, starts = _get_positions(events)
        times = [get_end_times(events.slice(events.num_rows - 1), self.shape)] if events.num_rows else []
        times += [get_complex_end_times(table, self.shape) for table in lower.values()]
        members = {n: _get_positions(table) for n, table in lower.items()}
        return _PlacedEvents(batch.bare, at, starts, max(t.max().item() for t in times), members)


def _get_positions(events: pa.Table) -> tuple[Ints, Ints]:
    last, first = (integers(to_single_array(events.column(name))) for name in POSITIONED)
    return last, first


def concat_tables(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenates tables of one schema; there may be none."""
    return pa.concat_tables([create_empty_table(schema), *tables])


# ------------------------------------------------------------------- keys of events in stream order

GAP = 1 << 20  # between neighbouring numbers, for keys that arrive later


class KeyNumbers:
    """Assigns ascending numbers to ascending keys, the same number to the same key."""

    def __init__(self, known: Keys | None = None, numbers: Ints | None = None) -> None:
        self.known = np.zeros(0, "S1") if known is None else known
        self.numbers = np.zeros(0, np.int64) if numbers is None else numbers

    def get_numbers(self, keys: Keys) -> Ints:
        """Returns the numbers of keys, and assigns numbers to new ones."""
        ascending = keys if _is_ascending(keys) else sorted_unique(keys)
        at = np.searchsorted(self.known, ascending)
        inside = at < len(self.known)
        fresh = ~inside
        fresh[inside] = self.known[at[inside]] != ascending[inside]
        if fresh.any():
            self._insert(ascending[fresh], at[fresh])
        return self.numbers[np.searchsorted(self.known, keys)]

    def _insert(self, keys: Keys, at: npt.NDArray[np.intp]) -> None:
        """Inserts ascending keys, each before the known key at its position."""
        starts = np.flatnonzero(np.concatenate([[True], at[1:] != at[:-1]]))
        sizes = np.diff(np.append(starts, len(at)))
        gaps, count = at[starts], len(self.numbers)
        low = high = np.zeros(len(gaps), np.int64)
        if count:
            low = self.numbers[np.maximum(gaps - 1, 0)]
            high = self.numbers[np.minimum(gaps, count - 1)]
        room = GAP * (sizes + 1)
        low = np.where((gaps == 0) & (gaps < count), high - room, low)
        high = np.where(gaps == count, low + room, high)
        owner = np.repeat(np.arange(len(gaps)), sizes)
        nth = np.arange(len(at)) - np.repeat(starts, sizes) + 1
        low, high, sizes = low[owner], high[owner], sizes[owner]
        step = (high - low) // (sizes + 1)
        # without a gap keys share a number, but never one that was assigned at the end
        shared = np.where(low % GAP, low, high)
        crowded = np.where(high - low > 1, np.minimum(low + nth, high - 1), shared)
        assigned = np.where(step > 0, low + step * nth, crowded)
        wider = max(self.known.dtype, keys.dtype, key=lambda dtype: dtype.itemsize)
        self.known = np.insert(self.known.astype(wider), at, keys)
        self.numbers = np.insert(self.numbers, at, assigned)

    def keys(self, numbers: Ints) -> Keys:
        return self.known[np.searchsorted(self.numbers, numbers)]

    def forget(self, before: bytes) -> None:
        """Drops keys that are less than `before`."""
        start = int(np.searchsorted(self.known, np.bytes_(before)))
        if 2 * start > len(self.known):
            self.known, self.numbers = self.known[start:].copy(), self.numbers[start:].copy()


def _is_ascending(keys: Keys) -> bool:
    return bool((keys[1:] > keys[:-1]).all())


def encode_event_keys(events: pa.Table, shape: StreamSchema, arrival: Sequence[str]) -> Keys:
    """Returns the key of each event as bytes that compare in stream order."""
    schema = shape.schema
    parts: list[Bytes | list[bytes]] = [
        *(_encode_numbers(_values(events, name, shape)) for name in (schema.end, schema.start)),
        *(_encode_column(events, name, shape) for name in schema.order),
        *(_encode_numbers(_values(events, name, shape)) for name in arrival),
    ]
    if not events.num_rows:
        return np.zeros(0, "S1")
    plain = [part for part in parts if isinstance(part, np.ndarray)]
    if len(plain) == len(parts):
        joined = np.ascontiguousarray(np.concatenate(plain, axis=1))
        return joined.view(f"S{joined.shape[1]}").reshape(-1)
    rows = zip(*(map(bytes, part) for part in parts), strict=True)
    return np.array([b"".join(row) for row in rows])


def encode_start_keys(events: pa.Table, keys: Keys, shape: StreamSchema) -> Keys:
    """Returns the key at which events with a duration start: after those that end by then."""
    starts = _encode_numbers(_values(events, shape.schema.start, shape))
    suffix = np.full((len(starts), 9), 0xFF, np.uint8)
    start_keys = np.concatenate([starts, suffix], axis=1).view("S17").reshape(-1)
    return np.where(start_keys < keys, start_keys, keys)


def encode_time_bound(time: float) -> bytes:
    """Returns a lower bound of the keys of events that end at a time or later."""
    return bytes(_encode_numbers(np.array([time]))[0])


def keys_to_arrow(keys: Keys) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(keys))
    fixed = pa.Array.from_buffers(pa.binary(keys.dtype.itemsize), len(keys), [None, buffer])
    return fixed.cast(pa.binary())


def read_keys(events: pa.Table, name: str) -> Keys:
    return np.array(events.column(name).to_pylist() or [], "S")


def _values(events: pa.Table, name: str, shape: StreamSchema) -> npt.NDArray[np.generic]:
    return np.asarray(from_arrow(events.column(name), shape.unit, name).values)


def _encode_column(events: pa.Table, name: str, shape: StreamSchema) -> Bytes | list[bytes]:
    """Encodes an order column; NULL is last."""
    column = events.column(name)
    values = from_arrow(column, shape.unit, name).values
    if isinstance(values, np.ndarray):
        absent = booleans(to_single_array(column.is_null()))
        numbers = np.where(absent[:, None], np.uint8(0), _encode_numbers(values))
        return np.concatenate([absent[:, None].astype(np.uint8), numbers], axis=1)
    return [_encode_text(value) for value in column.to_pylist()]


def _encode_text(value: str | bytes | None) -> bytes:
    """Encodes a text with a terminator that is less than any further letter."""
    if value is None:
        return b"\x01"
    data = value.encode() if isinstance(value, str) else bytes(value)
    return b"\x00" + data.replace(b"\x00", b"\x00\x01") + b"\x00\x00"


def _encode_numbers(values: npt.NDArray[np.generic]) -> Bytes:
    """Encodes numbers as eight bytes that compare like them; NaN is last."""
    if values.dtype.kind == "f":
        exact = np.where(values == 0, 0.0, values).astype(np.float64)  # -0.0 equals 0.0
        bits = exact.view(np.int64)
        bits = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
        bits = np.where(np.isnan(exact), np.int64(2**63 - 1), bits)
    else:
        bits = values.astype(np.int64)
    flipped = (bits.view(np.uint64) ^ np.uint64(1 << 63)).astype(">u8")
    return flipped.view(np.uint8).reshape(-1, 8)
