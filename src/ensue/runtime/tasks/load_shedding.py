"""Keys that a key group gives up for a while because the stream is behind.

A key is given up as a whole: what is known of it is forgotten, and its events are dropped up to
the newest of them that has come. Behind that moment it begins anew, with all of its events, so
what is found of it then is right. What is lost are the matches that begin up to there and were
not decided when the key was given up.
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

FIRST_SHARE = 1 / 4  # of the keys of a micro-batch is given up as soon as the stream is behind
UNTIL = "__until"  # the column that says when a key begins anew
FROM, TO, DROPPED = "shed_from", "shed_until", "shed_events"  # beside the key, where it is listed

Ints = npt.NDArray[np.int64]


@runtime_checkable
class SheddingMatcher(Protocol):
    """A matcher that can give up keys."""

    @property
    def shed_by(self) -> tuple[str, ...]:
        """The columns of their key; none: no key can be given up now."""

    @property
    def undecided(self) -> float:
        """How long before its time a match may end that is not decided yet."""

    def least_promising(self, events: pa.Table, share: float, /) -> pa.Table:
        """A share of the keys that have events here: those with the least chance to go on."""

    def give_up(self, keys: pa.Table, /) -> int:
        """Forgets keys; gives the number of partial matches that went with them."""


@dataclass(frozen=True, slots=True)
class ShedKeys:
    """What a key group gave up in a micro-batch."""

    events: int = 0
    partial_matches: int = 0
    listed: pa.Table | None = None  # the keys, each with its interval and how many events it lost

    @property
    def keys(self) -> int:
        return 0 if self.listed is None else int(self.listed.num_rows)


def compute_share(lag_ms: float, shed_ms: int) -> float:
    """The share of keys to give up: a quarter at first, all of them four times as far behind.

    >>> (
    ...     compute_share(29_999, 30_000),
    ...     compute_share(30_001, 30_000) > 0.25,
    ...     compute_share(3e5, 30_000),
    ... )
    (0.0, True, 1.0)
    """
    return min(1.0, FIRST_SHARE * lag_ms / shed_ms) if lag_ms > shed_ms else 0.0


class SuspendedKeys:
    """The keys that have been given up, and until when. Others are not known here."""

    def __init__(self, shape: StreamSchema) -> None:
        self._shape = shape
        self._known: pa.Table | None = None  # the columns of the key, and UNTIL

    def __len__(self) -> int:
        return 0 if self._known is None else int(self._known.num_rows)

    def add(self, keys: pa.Table, until: Ints) -> None:
        """Gives up more keys. One that is known already has begun anew, and ended again."""
        more = keys.append_column(UNTIL, pa.array(until, pa.int64()))
        self._known = more if self._known is None else pa.concat_tables([self._known, more])

    def of(self, events: pa.Table) -> npt.NDArray[np.bool_]:
        """Which events are of a key that is given up, and not behind where it begins anew."""
        if self._known is None or not events.num_rows:
            return np.zeros(events.num_rows, np.bool_)
        known, codes = encode_keys(self._known.drop_columns([UNTIL]), events)
        until = np.full(int(max(known.max(), codes.max(initial=0))) + 1, np.iinfo(np.int64).min)
        np.maximum.at(until, known, np.asarray(self._known.column(UNTIL).to_numpy()))
        times = get_end_times(events, self._shape).astype(np.int64)
        return np.asarray((codes >= 0) & (times <= until[codes]), np.bool_)

    def forget_before(self, time: float) -> None:
        """Events that end before are late from now on, whatever their key."""
        if self._known is not None:
            kept = np.asarray(self._known.column(UNTIL).to_numpy()) >= time
            if not kept.all():
                self._known = self._known.filter(pa.array(kept)) if kept.any() else None

    def save(self) -> bytes:
        assert self._known is not None
        return serialize_table(self._known)

    def restore(self, data: bytes) -> None:
        self._known = deserialize_table(data)


def encode_keys(keys: pa.Table, events: pa.Table) -> tuple[Ints, Ints]:
    """The codes of some keys, and those of the keys of events; -1 where there is none."""
    codes = KeyCodes()
    found = codes.encode(keys.columns), codes.encode([events.column(n) for n in keys.column_names])
    return found[0].astype(np.int64), found[1].astype(np.int64)


def find_newest(
    keys: pa.Table, tables: Sequence[pa.Table], shape: StreamSchema
) -> tuple[Ints, Ints]:
    """Of each key the time of its newest event in some tables, and how many it has there."""
    until = np.full(keys.num_rows, np.iinfo(np.int64).min)
    count = np.zeros(keys.num_rows, np.int64)
    for table in tables:
        place = find_keys(keys, table)
        rows = np.flatnonzero(place >= 0)
        np.maximum.at(until, place[rows], get_end_times(table, shape).astype(np.int64)[rows])
        count += np.bincount(place[rows], minlength=len(count))
    return until, count


def find_keys(keys: pa.Table, events: pa.Table) -> Ints:
    """The place of each event's key among these; -1: it is none of them."""
    known, codes = encode_keys(keys, events)
    place = np.full(int(max(known.max(initial=-1), codes.max(initial=-1))) + 2, -1)
    place[known] = np.arange(len(known))
    return np.asarray(place[codes], np.int64)  # the last one is for -1


def build_shed_table(
    keys: pa.Table, since: float | None, until: Ints, dropped: Ints, shape: StreamSchema
) -> pa.Table:
    """Keys with the interval in which matches may have been lost, and the events that were."""
    moment = _moment(shape)
    begin = np.full(keys.num_rows, 0 if since is None else int(since))
    begun = pa.array(begin, pa.int64(), mask=np.full(keys.num_rows, since is None)).cast(moment)
    table = keys.append_column(FROM, begun)
    table = table.append_column(TO, pa.array(until, pa.int64()).cast(moment))
    return table.append_column(DROPPED, pa.array(dropped, pa.int64()))


def build_shed_schema(key: Sequence[str], shape: StreamSchema) -> pa.Schema:
    """The columns of what is listed."""
    columns = [shape.arrow.field(name) for name in key]
    moment = _moment(shape)
    more = [pa.field(FROM, moment), pa.field(TO, moment), pa.field(DROPPED, pa.int64())]
    return pa.schema([*columns, *more])


def _moment(shape: StreamSchema) -> pa.DataType:
    of_events = shape.arrow.field(shape.schema.end).type
    return pa.timestamp(shape.unit, of_events.tz if pa.types.is_timestamp(of_events) else None)
