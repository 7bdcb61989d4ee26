"""Matches all subscriptions of a set incrementally."""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.memory_budget import Usage, get_machine_memory, sum_usage
from ensue.engine.state_format import pack_state, unpack_state
from ensue.errors import StateError
from ensue.kernels import hashing
from ensue.kernels.network_tables import NetworkEvents
from ensue.operators.subscriptions.member_registry import Member, SubscriptionUsage
from ensue.operators.subscriptions.network_state import NetworkMatches, NetworkState
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.operators.subscriptions.template_engine import PairRows, TemplateEngine, TemplateMatches
from ensue.operators.subscriptions.template_table import (
    EngineId,
    PatternMember,
    decode_pattern_numbers,
    is_pattern_leaf,
)
from ensue.options import Limits
from ensue.projection.match_ids import ORDINAL
from ensue.projection.notification_rows import MEMBERS, build_notification_schema, build_notifications
from ensue.runtime.event_buffer import EventBuffer
from ensue.runtime.stage import StageInput
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import decode_text, get_indices, integers, text_parts, to_single_array, validity
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import StreamSchema, get_end_times
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
    hashing.hash_texts(offsets, data, hashing.EVERY_ROW, high, low)
    return high.view(np.int64)


FORMAT = 1
VERSION = "__version"  # of the set that routed an event: later subscriptions ignore it
VALUE_BYTES = 256  # approximate size of a value, with its share of lists and events
SLICE = 1 << 16  # events that are routed and matched together
FIRST_SLICE = 1 << 10  # its duration decides whether compiling pays off
Ints = npt.NDArray[np.int64]


class SubscriptionMatcher:
    """Matches the subscriptions of a set, all of them or those of one task.

    Its engines are the network and one for each template; they hold rows of the stream, whose events are stored here.
    """

    def __init__(
        self, subscriptions: SubscriptionSet, limits: Limits, key_group: int = -1, *, version: int = 0
    ) -> None:
        self.subscription_set = subscriptions
        self.limits, self.key_group = limits, key_group
        self.each: Limits | None = None  # limits of one subscription
        self._bound = bound = limits.compute_memory_bound(get_machine_memory(), os.cpu_count() or 1)
        most_held = limits.max_partial_matches or int(min(2**40, bound // VALUE_BYTES))
        self.network = NetworkState(
            subscriptions.nodes, subscriptions.time, subscriptions.space,
            subscriptions.region_table, key_group,
            most_held, limits.max_matches or int(min(2**40, bound // VALUE_BYTES)),
        )  # fmt: skip
        self.templates: dict[EngineId, TemplateEngine] = {}
        self._failed: TemplateEngine | None = None  # the one that raised an error
        self.store = EventBuffer(subscriptions.shape)
        self.schema = build_notification_schema(subscriptions.shape)
        self.rows = 0  # events so far
        self.routed = 0  # events that are relevant to a subscription
        self.version = version  # of the set
        subscriptions.matchers.add(self)

    @property
    def engines(self) -> "list[NetworkState | TemplateEngine]":
        return [self.network, *self.templates.values()]

    # ---------------------------------------------------------------------------- limits and usage

    def limit_each(self, each: Limits) -> None:
        """Limits memory and matches per subscription, on average if they share nodes."""
        self.each = each
        self._limit_network()

    def _limit_network(self) -> None:
        if self.each is None:
            return
        count = max(1, len(self.subscription_set.members))
        memory = min(self._bound, (self.each.memory_size or self._bound) * count)
        self.network.most_held = int(min(2**40, memory // VALUE_BYTES))
        if self.each.max_matches is not None:
            self.network.most_found = self.each.max_matches * count

    @contextmanager
    def _run(self, engine: TemplateEngine) -> Iterator[None]:
        """Limits and measures an engine, and records it if it fails."""
        if self.each is not None:
            engine.limit_each(self.each, self._bound)
        try:
            with engine.meter.running():
                yield
        except Exception:
            self._failed = engine
            raise

    def get_failure_causes(self) -> dict[str, float]:
        """Returns the subscriptions that caused an error with their shares; empty if none did."""
        if self._failed is not None:
            return self._list_shares(self._failed)
        return self.subscription_set.name_shares(self.network.blamed)

    def _list_shares(self, engine: NetworkState | TemplateEngine) -> dict[str, float]:
        """Returns what subscriptions hold in an engine."""
        if isinstance(engine, NetworkState):
            return self.subscription_set.name_shares(engine.shares())
        by_key = self.subscription_set.patterns.by_key
        return {by_key[key].name: share for key, share in engine.shares().items() if key in by_key}

    @property
    def seconds(self) -> float:
        """The CPU time since the last `measure_subscriptions`, without compilation."""
        return sum(engine.meter.seconds for engine in self.engines)

    def forget_seconds(self) -> None:
        """Resets the CPU time."""
        for engine in self.engines:
            engine.meter.seconds = 0.0

    def measure_subscriptions(self) -> SubscriptionUsage:
        """Returns the memory of each subscription, and its CPU time since the last call.

        Those of shared nodes and plans are divided in proportion to what subscriptions hold.
        """
        sizes: defaultdict[str, float] = defaultdict(float)
        seconds: defaultdict[str, float] = defaultdict(float)
        for engine in self.engines:
            spent, engine.meter.seconds = engine.meter.seconds, 0.0
            shares = self._list_shares(engine)
            total, size = sum(shares.values()), engine.usage.state_bytes
            for name, share in shares.items():
                sizes[name] += share / total * size
                seconds[name] += share / total * spent
        return SubscriptionUsage(sizes, seconds)

    @property
    def usage(self) -> Usage:
        return sum_usage(engine.usage for engine in self.engines).add_bytes(self.store.nbytes)

    # ---------------------------------------------------------------------------- events

    def process(self, batch: StageInput) -> list[pa.Table]:
        """Returns what the next events complete."""
        events, tables, done = batch.events, [], 0
        size = SLICE if self.rows else FIRST_SLICE
        while done < events.num_rows:
            piece = events.slice(done, size)
            tables.append(self._process_slice(piece))
            done += piece.num_rows
            batch.report(done)
            size = min(8 * size, SLICE)
        return [pa.concat_tables(tables) if tables else create_empty_table(self.schema)]

    def _process_slice(self, arrived: pa.Table) -> pa.Table:
        versions, ordinals = (
            integers(to_single_array(arrived.column(name))) if name in arrived.column_names else None
            for name in (VERSION, ORDINAL)
        )
        versions = np.full(arrived.num_rows, self.version) if versions is None else versions
        events = arrived.select(self.subscription_set.shape.arrow.names)
        rows, leaves = self.subscription_set.route(events)
        self._limit_network()
        first = self.rows
        self.rows += events.num_rows
        self.routed += len(np.unique(rows))
        of_pattern = is_pattern_leaf(leaves)
        found = self._process_patterns(events, first, rows[of_pattern], leaves[of_pattern], versions)
        rows, leaves = rows[~of_pattern], leaves[~of_pattern]
        kept, places = np.unique(rows, return_inverse=True)
        network_events = self._events(take_rows(events, kept), first + kept, versions[kept])
        delivered = self.network.process(network_events, places.astype(np.int32), leaves)
        held = [rows[np.searchsorted(rows, first) :] for rows in (engine.held_rows for engine in self.engines)]
        self.store.add(events, first, [delivered.members, *(f.rows for f in found), *held], ordinals)
        return self._deliver(delivered, found)

    def _process_patterns(
        self, events: pa.Table, first: int, rows: Ints, leaves: npt.NDArray[np.int32], versions: Ints
    ) -> list[TemplateMatches]:
        """Matches events, of which some rows are routed to patterns."""
        patterns, found = self.subscription_set.patterns, []
        numbers = decode_pattern_numbers(leaves)
        visible = patterns.rows["since"][numbers] <= versions[rows]
        if self.key_group >= 0:
            visible &= patterns.key_groups(numbers, self.subscription_set.key_groups) == self.key_group
        for template, key, own_rows, own_numbers in patterns.split(rows[visible], numbers[visible]):
            engine = self.templates.get((template.id, key))
            # of an equal template all subscriptions were cancelled
            if engine is None or engine.template is not template:
                engine = self.templates[template.id, key] = TemplateEngine(template, self.limits, key)
            with self._run(engine):
                keys, places = patterns.rows["key"][own_numbers], patterns.rows["place"][own_numbers]
                found += engine.process(events, first, own_rows, keys, places)
        if events.num_rows and self.templates:
            now = get_end_times(events.slice(events.num_rows - 1), self.subscription_set.shape)[0]
            for engine in self.templates.values():
                due = engine.next_timer()
                if due is not None and due < now:
                    with self._run(engine):
                        found.append(engine.on_watermark(now))
        return [f for f in found if f.matches.count]

    def on_watermark(self, now: float) -> list[pa.Table]:
        """Returns the matches that the watermark `now` completes."""
        delivered, found = self.network.on_watermark(now), []
        for engine in self.templates.values():
            if not engine.is_idle:
                with self._run(engine):
                    found.append(engine.on_watermark(now))
        notifications = self._deliver(delivered, found)
        self.store.forget_before(now)
        return [notifications]

    def next_timer(self) -> float | None:
        times = [engine.next_timer() for engine in self.engines]
        return min((t for t in times if t is not None), default=None)

    @property
    def now(self) -> float | None:
        """The current stream time; None before the first event."""
        return self.network.now

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

    def _deliver(self, delivered: NetworkMatches, found: Sequence[TemplateMatches]) -> pa.Table:
        """Returns the notifications of matches, and drops the events that are no longer needed."""
        tables = []
        for matches in found:
            if matches.matches.count:
                with self._run(matches.engine):
                    selected = matches.engine.select(matches, self.subscription_set.patterns, self.store)
                tables.append(self._build_notifications(*selected))
        if len(delivered):
            numbers, which = np.unique(delivered.subscription, return_inverse=True)
            members = [member for n in numbers.tolist() if (member := self.subscription_set.members.at(n))]
            times = delivered.start, delivered.end
            tables.append(self._build_notifications(members, which, delivered.offsets, delivered.members, times))
        if self.store.is_full:
            self._compact()
        table = pa.concat_tables(tables) if tables else create_empty_table(self.schema)
        return self.subscription_set.filter_cancelled(table, self.version)

    def _build_notifications(
        self,
        members: Sequence[Member | PatternMember],
        which: Ints,
        offsets: Ints,
        rows: Ints,
        times: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None = None,  # None: those of the events
    ) -> pa.Table:
        """Match k is of `members[which[k]]`, with the rows of the stream from `offsets[k]` on."""
        if not len(which):
            return create_empty_table(self.schema)
        matches = Matches({}, {MEMBERS: (offsets, rows)}, len(which))
        held = self.store.get_events([matches])
        placed = held.renumber(matches).lists[MEMBERS][1]
        if times is None:
            start, end = self._times(held.events)
            times = np.minimum.reduceat(start[placed], offsets[:-1]), end[placed[offsets[1:] - 1]]
        return build_notifications(
            [m.name for m in members], [m.identity for m in members], which, *times, offsets, placed, held.events,
            self.subscription_set.shape,
        )  # fmt: skip

    # ---------------------------------------------------------------------------- state

    def _compact(self) -> None:
        """Drops the values and events that no later match can contain."""
        for engine in self.engines:
            engine.compact()
        self.store.keep(np.unique(np.concatenate([engine.held_rows for engine in self.engines])))

    def drop_cancelled(self) -> None:
        """Drops the state of cancelled subscriptions."""
        gone = self.subscription_set.nodes.gone_subscriptions
        self.network.compact()
        used, tied = self.network.get_consumed()
        self.network.restore_consumed(used[~np.isin(used[:, 0], gone)], tied[~np.isin(tied[:, 0], gone)])
        patterns = self.subscription_set.patterns
        self.templates = {name: engine for name, engine in self.templates.items() if patterns.has_engine(*name)}
        for engine in self.templates.values():
            engine.drop_cancelled(patterns, self.store)

    def snapshot(self) -> bytes:
        self._compact()
        arrays = {f"node {name}": array for name, array in self.network.snapshot().items()}
        events, stored = self.store.snapshot()
        blobs = {"events": events}
        for number, engine in enumerate(self.templates.values()):
            blobs[f"template {number}"] = engine.engine.snapshot()
            arrays |= {f"template {number} {name}": array for name, array in engine.held._asdict().items()}
        return pack_state(self._describe_state(), {**arrays, **stored}, blobs)

    def _describe_state(self) -> dict[str, Any]:
        used, tied = (u.tolist() for u in self.network.get_consumed())
        names = {n: m.name for n, *_ in (*used, *tied) if (m := self.subscription_set.members.at(n)) is not None}
        return {
            "format": FORMAT,
            "rows": self.rows,
            "routed": self.routed,
            "version": self.version,
            "fields": list(self.subscription_set.nodes.fields),
            "used": [(names[n], position) for n, position in used if n in names],
            "tied": [(names[n], *rest) for n, *rest in tied if n in names],
            "templates": list(self.templates),
        }

    def restore(self, data: bytes) -> None:
        header, arrays, blobs = unpack_state(data)
        if header.get("format") != FORMAT:
            raise StateError(
                f"the state of subscriptions is of format {header.get('format')}, and this "
                f"release reads {FORMAT}\n  hint: use the release that wrote it"
            )
        self._restore(header, arrays, blobs)

    def _restore(self, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]], blobs: dict[str, bytes]) -> None:
        """Continues from a state, without the subscriptions that were cancelled since."""
        nodes = {n.removeprefix("node "): a for n, a in arrays.items() if n.startswith("node ")}
        for name in ("event numbers", "event codes", "event known"):
            nodes[name] = self._reorder_fields(nodes[name], header["fields"])
        self.network.restore(nodes)
        self.store.restore(
            blobs["events"], {n: a for n, a in arrays.items() if not n.startswith(("node ", "template "))}
        )
        patterns, self.templates = self.subscription_set.patterns, {}
        for number, (template, key) in enumerate(header["templates"]):
            if patterns.has_engine(template, key):
                engine = TemplateEngine(patterns.shapes[template], self.limits, key)
                engine.engine.restore(blobs[f"template {number}"])
                engine.held = PairRows(*(arrays[f"template {number} {name}"] for name in PairRows._fields))
                engine.drop_cancelled(patterns, self.store)
                self.templates[template, key] = engine
        self.rows, self.routed = int(header["rows"]), int(header["routed"])
        self.version = int(header["version"])
        find = self.subscription_set.members.get
        used, tied = (
            [(member.number, *rest) for name, *rest in header[what] if (member := find(name)) is not None]
            for what in ("used", "tied")
        )
        self.network.restore_consumed(np.array(used, np.int64).reshape(-1, 2), np.array(tied, np.int64).reshape(-1, 3))

    def _reorder_fields(self, columns: npt.NDArray[Any], names: Sequence[str]) -> npt.NDArray[Any]:
        """Reorders saved values by field for the fields of this process."""
        here = self.subscription_set.nodes.fields
        reordered = np.zeros((len(columns), len(here)), columns.dtype)
        # events from before a field was first compared lack it
        for name, column in zip(names, columns.T, strict=False):
            if name in here:
                reordered[:, here[name]] = column
        return reordered
