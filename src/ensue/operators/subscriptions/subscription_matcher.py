"""Matches all subscriptions of a set incrementally."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.memory_budget import get_machine_memory
from ensue.engine.state_format import pack_state, unpack_state
from ensue.errors import StateError
from ensue.kernels import hashing
from ensue.kernels.network_tables import NetworkEvents
from ensue.operators.subscriptions.member_registry import Usage
from ensue.operators.subscriptions.network_state import NetworkMatches, NetworkState
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.operators.subscriptions.template_engine import TemplateMatches
from ensue.operators.subscriptions.template_state import TemplateState
from ensue.operators.subscriptions.template_table import decode_pattern_numbers, is_pattern_leaf
from ensue.options import Limits
from ensue.projection.notification_rows import MEMBERS, build_notification_schema, build_notifications
from ensue.runtime.event_buffer import EventBuffer
from ensue.runtime.stage import StageInput
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import decode_text, get_indices, text_parts, to_single_array, validity
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import StreamSchema
from ensue.vector.geo_columns import read_places
from ensue.vector.match_rows import Matches
from ensue.vector.take import create_empty_table, take_rows

_UNKNOWN, _WHOLE, _FLOAT = 0, 1, 2


def encode_compared_fields(
    events: pa.Table, shape: StreamSchema, names: Sequence[str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int8]]:
    """Returns the float value of each event and field, its integer value or code, and which counts.

    The code of a text is a 64-bit hash, the same in every process.
    """
    size = events.num_rows, len(names)
    numbers, integers = np.zeros(size), np.zeros(size, np.int64)
    kinds = np.zeros(size, np.int8)
    for number, name in enumerate(names):
        column = name
        if name not in events.column_names and shape.schema.type_column is not None:
            column = shape.schema.type_column
        array = to_single_array(events.column(column))
        vector = from_arrow(array, shape.unit, column)
        valid = np.ones(len(array), np.bool_) if (v := validity(array)) is None else v
        is_float = vector.kind in (ValueKind.FLOAT, ValueKind.DECIMAL)
        kinds[:, number] = np.where(valid, _FLOAT if is_float else _WHOLE, _UNKNOWN)
        if vector.kind is ValueKind.STRING:
            integers[:, number] = _hashes(array)
            continue
        values = np.asarray(vector.values).astype(np.float64 if is_float else np.int64)
        numbers[:, number] = values
        if not is_float:
            integers[:, number] = values
    return numbers, integers, kinds


def _hashes(array: pa.Array) -> Any:
    if pa.types.is_dictionary(array.type):
        if not len(array.dictionary):
            return np.zeros(len(array), np.int64)
        return _hashes(array.dictionary)[get_indices(array)]
    texts = decode_text(array)
    high, low = np.empty(len(texts), np.uint64), np.empty(len(texts), np.uint64)
    offsets, data = text_parts(texts)
    hashing.hash_texts(offsets, data, high, low)
    return high.view(np.int64)


FORMAT = 1
VALUE_BYTES = 256  # approximate size of a value, with its share of lists and events
SLICE = 1 << 16  # events that are routed and matched together
FIRST_SLICE = 1 << 10  # its duration decides whether compiling pays off
Ints = npt.NDArray[np.int64]


class SubscriptionMatcher:
    """Matches the subscriptions of a set, all of them or those of one task."""

    def __init__(
        self, subscriptions: SubscriptionSet, limits: Limits, key_group: int = -1, *, version: int = 0
    ) -> None:
        self.subscription_set = subscriptions
        self._bound = bound = limits.compute_memory_bound(get_machine_memory(), os.cpu_count() or 1)
        most_held = limits.max_partial_matches or int(min(2**40, bound // VALUE_BYTES))
        self.state = NetworkState(
            subscriptions.nodes, subscriptions.time, subscriptions.space,
            subscriptions.region_table, key_group,
            most_held, limits.max_matches or int(min(2**40, bound // VALUE_BYTES)),
        )  # fmt: skip
        self.patterns = TemplateState(subscriptions.patterns, limits, key_group, subscriptions.key_groups)
        self.store = EventBuffer(subscriptions.shape)
        self.schema = build_notification_schema(subscriptions.shape)
        self.rows = 0  # events so far
        self.routed = 0  # events that are relevant to a subscription
        self.version = version  # of the set

    def limit_each(self, each: Limits) -> None:
        """Limits memory and matches per subscription, on average if they share nodes."""
        self.patterns.each = each
        self._bound_nodes()

    def _bound_nodes(self) -> None:
        each = self.patterns.each
        if each is None:
            return
        count = max(1, len(self.subscription_set.members))
        memory = min(self._bound, (each.memory_size or self._bound) * count)
        self.state.most_held = int(min(2**40, memory // VALUE_BYTES))
        if each.max_matches is not None:
            self.state.most_found = each.max_matches * count

    def get_failure_causes(self) -> dict[str, float]:
        """Returns the subscriptions that caused an error with their shares; empty if none did."""
        if self.patterns.failed is not None:
            return self.patterns.get_failure_causes()
        return self._by_name(self.state.blamed)

    def _by_name(self, shares: Mapping[int, float]) -> dict[str, float]:
        at = self.subscription_set.members.at
        return {m.name: share for n, share in shares.items() if (m := at(n)) is not None}

    @property
    def seconds(self) -> float:
        """The CPU time since the last `usage`, without compilation."""
        return self.state.meter.seconds + self.patterns.seconds

    def forget_seconds(self) -> None:
        """Resets the CPU time."""
        for meter in (self.state.meter, *(r.meter for r in self.patterns.running.values())):
            meter.seconds = 0.0

    def usage(self) -> Usage:
        """Returns the memory of each subscription, and its CPU time since the last call.

        The time of shared nodes is divided in proportion to what subscriptions hold.
        """
        patterns = self.patterns.usage()
        spent, self.state.meter.seconds = self.state.meter.seconds, 0.0
        held = self._by_name(self.state.shares())
        total = sum(held.values())
        size = self.state.saved_bytes
        sizes = {name: share / total * size for name, share in held.items()}
        seconds = {name: share / total * spent for name, share in held.items()}
        return Usage({**sizes, **patterns.bytes}, {**seconds, **patterns.seconds})

    def process(self, batch: StageInput) -> list[pa.Table]:
        """Returns what the next events complete."""
        events, tables, done = batch.events.select(self.subscription_set.shape.arrow.names), [], 0
        size = SLICE if self.rows else FIRST_SLICE
        while done < events.num_rows:
            piece = events.slice(done, size)
            tables.append(self._feed_slice(piece, np.full(piece.num_rows, self.version)))
            done += piece.num_rows
            batch.report(done)
            size = min(8 * size, SLICE)
        return [pa.concat_tables(tables) if tables else create_empty_table(self.schema)]

    def _feed_slice(self, events: pa.Table, versions: Ints) -> pa.Table:
        rows, leaves = self.subscription_set.route(events)
        self.patterns.drop_cancelled(self.store)
        self._bound_nodes()
        first = self.rows
        self.rows += events.num_rows
        self.routed += len(np.unique(rows))
        of_pattern = is_pattern_leaf(leaves)
        numbers = decode_pattern_numbers(leaves[of_pattern])
        patterns = self.patterns.process(events, first, rows[of_pattern], numbers, versions)
        rows, leaves = rows[~of_pattern], leaves[~of_pattern]
        kept, places = np.unique(rows, return_inverse=True)
        relevant = take_rows(events, kept)
        network_events = self._events(relevant, first + kept, versions[kept])
        delivered = self.state.process(network_events, places.astype(np.int32), leaves)
        held = [self.state.events.position, *self.patterns.list_held_since(first)]
        members = [delivered.members, *(f.rows for f in patterns)]
        self.store.add(events, first, [*members, *held])
        return self._build_notifications(delivered, patterns)

    def on_watermark(self, now: float) -> list[pa.Table]:
        """Returns the matches that the watermark `now` completes."""
        self.patterns.drop_cancelled(self.store)
        notifications = self._build_notifications(self.state.on_watermark(now), self.patterns.on_watermark(now))
        self.store.forget_before(now)
        return [notifications]

    def next_timer(self) -> float | None:
        times = [self.state.next_timer(), self.patterns.next_timer()]
        return min((t for t in times if t is not None), default=None)

    @property
    def now(self) -> float | None:
        """The current stream time; None before the first event."""
        return self.state.now

    def _times(self, events: pa.Table) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Returns the start and end times of events."""
        shape = self.subscription_set.shape
        start, end = (
            np.asarray(from_arrow(events.column(name), shape.unit).values).astype(self.subscription_set.time)
            for name in (shape.schema.start, shape.schema.end)
        )
        return start, end

    def _events(self, events: pa.Table, positions: Ints, versions: Ints) -> NetworkEvents:
        shape = self.subscription_set.shape
        start, end = self._times(events)
        x = y = np.zeros(0)
        corner = np.zeros(len(positions) + 1, np.int64)
        if shape.schema.location is not None:
            places = read_places(events, shape.schema)
            x, y, corner = places.x, places.y, places.first
        numbers, codes, known = encode_compared_fields(events, shape, list(self.subscription_set.nodes.fields))
        return NetworkEvents(positions, versions, start, end, corner, x, y, numbers, codes, known)

    def _build_notifications(self, delivered: NetworkMatches, patterns: Sequence[TemplateMatches] = ()) -> pa.Table:
        tables = [self._build_pattern_notifications(part) for part in patterns]
        if len(delivered):
            numbers, which = np.unique(delivered.subscription, return_inverse=True)
            members = [member for n in numbers.tolist() if (member := self.subscription_set.members.at(n))]
            matches = Matches({}, {MEMBERS: (delivered.offsets, delivered.members)}, len(delivered))
            held = self.store.get_events([matches])
            placed = held.renumber(matches).lists[MEMBERS][1]
            notifications = build_notifications(
                [m.name for m in members], [m.identity for m in members], which,
                delivered.start, delivered.end, delivered.offsets, placed, held.events,
                self.subscription_set.shape,
            )  # fmt: skip
            tables.append(notifications)
        self._release_events()
        return pa.concat_tables(tables) if tables else create_empty_table(self.schema)

    def _build_pattern_notifications(self, found: TemplateMatches) -> pa.Table:
        result = self.patterns.select(found, self.store)
        if not len(result.which):
            return create_empty_table(self.schema)
        matches = Matches({}, {MEMBERS: (result.offsets, result.rows)}, len(result.which))
        held = self.store.get_events([matches])
        placed = held.renumber(matches).lists[MEMBERS][1]
        start, end = self._times(held.events)
        return build_notifications(
            [m.name for m in result.members], [m.identity for m in result.members],
            result.which, np.minimum.reduceat(start[placed], result.offsets[:-1]),
            end[placed[result.offsets[1:] - 1]], result.offsets, placed, held.events,
            self.subscription_set.shape,
        )  # fmt: skip

    def _release_events(self) -> None:
        if self.store.is_full:
            self.state.compact()
            self.patterns.compact()
            self.store.keep(self._get_held_rows())

    def _get_held_rows(self) -> Ints:
        """Returns the rows of the stream that later matches may contain."""
        return np.union1d(self.state.events.position, self.patterns.get_held_rows())

    def drop_cancelled(self) -> None:
        """Drops the state of cancelled subscriptions."""
        gone = self.subscription_set.nodes.gone_subscriptions
        self.state.compact()
        used, tied = self.state.get_consumed()
        self.state.restore_consumed(used[~np.isin(used[:, 0], gone)], tied[~np.isin(tied[:, 0], gone)])

    @property
    def partial_matches(self) -> int:
        return self.state.partial_matches + self.patterns.partial_matches

    @property
    def state_bytes(self) -> int:
        """The approximate size of `save`'s result."""
        return self.state.saved_bytes + self.patterns.state_bytes + self.store.nbytes

    def snapshot(self) -> bytes:
        arrays = self.state.snapshot()
        patterns = self.patterns.snapshot()
        self.store.keep(self._get_held_rows())
        events, more = self.store.snapshot()
        used, tied = (u.tolist() for u in self.state.get_consumed())
        numbers = {n for n, *_ in (*used, *tied)}
        names = {n: m.name for n in numbers if (m := self.subscription_set.members.at(n)) is not None}
        header = {
            "format": FORMAT,
            "rows": self.rows,
            "routed": self.routed,
            "version": self.version,
            "fields": list(self.subscription_set.nodes.fields),
            "used": [(names[n], position) for n, position in used if n in names],
            "tied": [(names[n], *rest) for n, *rest in tied if n in names],
        }
        saved = {f"node {name}": array for name, array in arrays.items()}
        return pack_state(header, {**saved, **more}, {"events": events, "patterns": patterns})

    def restore(self, data: bytes) -> None:
        header, arrays, blobs = unpack_state(data)
        if header.get("format") != FORMAT:
            raise StateError(
                f"the state of subscriptions is of format {header.get('format')}, and this "
                f"release reads {FORMAT}\n  hint: use the release that wrote it"
            )
        nodes = {n.removeprefix("node "): a for n, a in arrays.items() if n.startswith("node ")}
        for name in ("event numbers", "event codes", "event known"):
            nodes[name] = self._reorder_fields(nodes[name], header["fields"])
        self.state.restore(nodes)
        others = {n: a for n, a in arrays.items() if not n.startswith("node ")}
        self.store.restore(blobs["events"], others)
        if "patterns" in blobs:
            self.patterns.restore(blobs["patterns"])
        self.rows, self.routed = int(header["rows"]), int(header["routed"])
        self.version = int(header["version"])
        numbers = {}
        for name, *_ in (*header["used"], *header["tied"]):
            if (member := self.subscription_set.members.get(name)) is not None:
                numbers[name] = member.number
        used, tied = (
            [(numbers[name], *rest) for name, *rest in header[what] if name in numbers] for what in ("used", "tied")
        )
        self.state.restore_consumed(np.array(used, np.int64).reshape(-1, 2), np.array(tied, np.int64).reshape(-1, 3))

    def _reorder_fields(self, columns: npt.NDArray[Any], names: Sequence[str]) -> npt.NDArray[Any]:
        """Reorders saved values by field for the fields of this process."""
        here = self.subscription_set.nodes.fields
        reordered = np.zeros((len(columns), len(here)), columns.dtype)
        # events from before a field was first compared lack it
        for name, column in zip(names, columns.T, strict=False):
            if name in here:
                reordered[:, here[name]] = column
        return reordered
