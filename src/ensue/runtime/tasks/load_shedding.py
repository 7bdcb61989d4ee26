"""Load shedding: a task drops keys for a while when the stream is behind.

A key is shed as a whole: its state is dropped, and so are its events up to the newest one that has
arrived. After that time the key starts again with all of its events, so its later matches are
correct. Lost are the matches that begin before and were not decided when the key was shed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.state_format import deserialize_table, serialize_table
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.key_codes import KeyCodes

FIRST_SHARE = 1 / 4  # of the keys of a micro-batch that are shed first
UNTIL = "__until"  # the column of the time until which a key is suspended
FROM, TO, DROPPED = "shed_from", "shed_until", "shed_events"  # columns of the list of shed keys

Ints = npt.NDArray[np.int64]


@runtime_checkable
class SheddingMatcher(Protocol):
    """A matcher that can shed keys."""

    @property
    def shed_by(self) -> tuple[str, ...]:
        """The key columns; none: no key can be shed now."""

    @property
    def undecided(self) -> float:
        """How long before the watermark an undecided match may end."""

    def least_promising(self, events: pa.Table, share: float, /) -> pa.Table:
        """The share of the keys of these events with the lowest scores."""

    def give_up(self, keys: pa.Table, /) -> int:
        """Drops keys; returns the number of their partial matches."""


@dataclass(frozen=True, slots=True)
class ShedKeys:
    """The keys that a task shed in a micro-batch."""

    events: int = 0
    partial_matches: int = 0
    listed: pa.Table | None = None  # the keys with their intervals and numbers of dropped events

    @property
    def keys(self) -> int:
        return 0 if self.listed is None else int(self.listed.num_rows)


def compute_share(lag_ms: float, shed_ms: int) -> float:
    """The share of keys to shed: a quarter at the limit, all of them at four times the limit.

    >>> compute_share(29_999, 30_000), compute_share(60_000, 30_000), compute_share(3e5, 30_000)
    (0.0, 0.5, 1.0)
    """
    return min(1.0, FIRST_SHARE * lag_ms / shed_ms) if lag_ms > shed_ms else 0.0


class SuspendedKeys:
    """The shed keys, and the times until which they are suspended."""

    def __init__(self, shape: StreamSchema) -> None:
        self._shape = shape
        self._known: pa.Table | None = None  # the columns of the key, and UNTIL

    def __len__(self) -> int:
        return 0 if self._known is None else int(self._known.num_rows)

    def add(self, keys: pa.Table, until: Ints) -> None:
        """Suspends keys, maybe again."""
        more = keys.append_column(UNTIL, pa.array(until, pa.int64()))
        self._known = more if self._known is None else pa.concat_tables([self._known, more])

    def find_suspended(self, events: pa.Table) -> npt.NDArray[np.bool_]:
        """Which events belong to a suspended key."""
        if self._known is None or not events.num_rows:
            return np.zeros(events.num_rows, np.bool_)
        known, codes = encode_keys(self._known.drop_columns([UNTIL]), events)
        until = np.full(int(max(known.max(), codes.max(initial=0))) + 1, np.iinfo(np.int64).min)
        np.maximum.at(until, known, np.asarray(self._known.column(UNTIL).to_numpy()))
        times = get_end_times(events, self._shape).astype(np.int64)
        return np.asarray((codes >= 0) & (times <= until[codes]), np.bool_)

    def forget_before(self, time: float) -> None:
        """Drops the keys whose suspension ends before `time`."""
        if self._known is not None:
            kept = np.asarray(self._known.column(UNTIL).to_numpy()) >= time
            if not kept.all():
                self._known = self._known.filter(pa.array(kept)) if kept.any() else None

    def snapshot(self) -> bytes:
        assert self._known is not None
        return serialize_table(self._known)

    def restore(self, data: bytes) -> None:
        self._known = deserialize_table(data)


def encode_keys(keys: pa.Table, events: pa.Table) -> tuple[Ints, Ints]:
    """The codes of some keys, and of the keys of events; -1 for NULL."""
    codes = KeyCodes()
    known = codes.encode(keys.columns).astype(np.int64)
    return known, codes.encode([events.column(n) for n in keys.column_names]).astype(np.int64)


def find_newest(keys: pa.Table, tables: Sequence[pa.Table], shape: StreamSchema) -> tuple[Ints, Ints]:
    """The time of each key's newest event in some tables, and the number of its events."""
    until = np.full(keys.num_rows, np.iinfo(np.int64).min)
    count = np.zeros(keys.num_rows, np.int64)
    for table in tables:
        place = find_keys(keys, table)
        rows = np.flatnonzero(place >= 0)
        np.maximum.at(until, place[rows], get_end_times(table, shape).astype(np.int64)[rows])
        count += np.bincount(place[rows], minlength=len(count))
    return until, count


def find_keys(keys: pa.Table, events: pa.Table) -> Ints:
    """The index of each event's key in `keys`; -1: none."""
    known, codes = encode_keys(keys, events)
    place = np.full(int(max(known.max(initial=-1), codes.max(initial=-1))) + 2, -1)
    place[known] = np.arange(len(known))
    return np.asarray(place[codes], np.int64)  # the last one is for -1


def build_shed_table(keys: pa.Table, since: float | None, until: Ints, dropped: Ints, shape: StreamSchema) -> pa.Table:
    """Keys with the interval in which matches may be lost, and the number of dropped events."""
    moment = _moment(shape)
    begin = np.full(keys.num_rows, 0 if since is None else int(since))
    begun = pa.array(begin, pa.int64(), mask=np.full(keys.num_rows, since is None)).cast(moment)
    table = keys.append_column(FROM, begun)
    table = table.append_column(TO, pa.array(until, pa.int64()).cast(moment))
    return table.append_column(DROPPED, pa.array(dropped, pa.int64()))


def build_shed_schema(key: Sequence[str], shape: StreamSchema) -> pa.Schema:
    """The columns of the list of shed keys."""
    columns = [shape.arrow.field(name) for name in key]
    moment = _moment(shape)
    more = [pa.field(FROM, moment), pa.field(TO, moment), pa.field(DROPPED, pa.int64())]
    return pa.schema([*columns, *more])


def _moment(shape: StreamSchema) -> pa.DataType:
    of_events = shape.arrow.field(shape.schema.end).type
    return pa.timestamp(shape.unit, of_events.tz if pa.types.is_timestamp(of_events) else None)
