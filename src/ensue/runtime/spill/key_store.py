"""What is stored of a key, where the keys of some queries can be stored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import QueryError, StateError
from ensue.ir.traversal import iterate_negations
from ensue.planner.evictability import can_wait, why_not_evicted, why_not_shed
from ensue.runtime.compiled_query import CompiledQuery
from ensue.schema import ValueKind
from ensue.vector.arrow_types import window_to_ticks
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.take import take_rows


@dataclass(frozen=True, slots=True)
class SpillUnit:
    """What is evicted: the events of one key, as far back as matches reach."""

    key: tuple[str, ...]  # columns
    reach: float  # how long before now an event still matters
    windows: tuple[float, ...]  # of the queries that wait for time to pass: when each is over


def why_not_evictable(queries: Sequence[CompiledQuery]) -> str | None:
    """Why no key of these queries can be stored, if none can."""
    for prepared in queries:
        why = why_not_evicted(prepared.plan)
        if why is not None:
            return why
    if not _common_key(queries):
        return "its queries have no [attr] in common that would split their events into keys"
    return None


def build_eviction_error(why: str) -> QueryError:
    """The error where keys are to be evicted that cannot be."""
    return QueryError(
        f"the query cannot be evicted: {why}",
        hint="leave out evict=: memory= is then a bound at which the query is stopped",
    )


def require_sheddable(queries: Sequence[CompiledQuery]) -> None:
    """An error that says why no key of these queries can be given up."""
    found = [why for prepared in queries if (why := why_not_shed(prepared.plan)) is not None]
    why = found[0] if found else why_not_evictable(queries)
    if why is not None:
        raise build_shedding_error(why)
    kind = queries[0].shape.schema.time_kind
    if kind is not ValueKind.TIMESTAMP:
        raise build_shedding_error(
            f"its time column holds {kind.value}s, which no clock can be compared with"
        )


def build_shedding_error(why: str) -> QueryError:
    """The error where keys are to be given up that cannot be."""
    return QueryError(
        f"the query cannot shed load: {why}",
        hint="leave out shed=: a slow stream falls behind, and nothing is lost",
    )


def get_spill_unit(queries: Sequence[CompiledQuery]) -> SpillUnit:
    """What is stored of a key."""
    lengths, waiting = [], []
    for prepared in queries:
        query = prepared.plan.query
        length = window_to_ticks(query.within, prepared.shape.unit)
        assert length is not None
        late = query.unfinished or can_wait(query.pattern)
        # what a match that still waits was judged by may be a window older than the match
        twice = late and sum(1 for _ in iterate_negations(query.pattern)) > 1
        lengths.append(2 * length if twice else length)
        waiting += [length] if late else []
    return SpillUnit(_common_key(queries), max(lengths), tuple(sorted(set(waiting))))


def _common_key(queries: Sequence[CompiledQuery]) -> tuple[str, ...]:
    """The fields that split the events of all queries: what is equal in more is equal in fewer."""
    keys = [{e.field_name for e in p.plan.query.equivalence} for p in queries]
    return tuple(sorted(set.intersection(*keys))) if keys else ()


# ----------------------------------------------------------------------
# The saved form of a matcher that stores keys: the events of all keys, and what it has learned.

SPILLED = "spilled"
FORMAT = 1

Described = tuple[list[Any], npt.NDArray[np.bool_]]  # of a segment, and which rows are needed
Find = Callable[[str], Path | bytes]  # a segment by its name


@dataclass(frozen=True)
class SpillSnapshot:
    """What a matcher goes on from."""

    now: float | None  # up to which everything is decided
    resident: pa.Table  # events of keys in memory; those of one key are in order
    stored: pa.Table  # of keys that are not, as far as they are not in segments
    misses: int = 0
    unknown_before: float | None = None  # events of keys in memory may be missing before
    plain: bytes | None = None  # then this is the state of a matcher that has matched them
    learned: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    segments: Sequence[Described] = ()  # that are kept elsewhere, once

    def packed(self) -> bytes:
        header: dict[str, Any] = {"format": FORMAT, "now": self.now, "misses": self.misses}
        header |= {"unknown before": self.unknown_before}
        header |= {"segments": [described for described, _ in self.segments]}
        marks = {f"alive {d[0]}": np.packbits(alive) for d, alive in self.segments}
        blobs = {"plain": self.plain} if self.plain is not None else {}
        blobs |= {
            "resident": serialize_table(self.resident),
            "stored": serialize_table(self.stored),
        }
        return pack_state({}, {}, {SPILLED: pack_state(header, self.learned | marks, blobs)})

    @classmethod
    def unpacked(cls, data: bytes, arrow: pa.Schema) -> "SpillSnapshot":
        _, _, saved = unpack_state(data)
        header, arrays, blobs = unpack_state(saved[SPILLED])
        if header["format"] != FORMAT:
            raise StateError(
                f"stored keys were saved in format {header['format']}, this release reads "
                f"{FORMAT}\n  hint: use the release that saved it"
            )
        resident, stored = (
            deserialize_table(blobs[n]).cast(arrow) for n in ("resident", "stored")
        )
        unknown, plain = header["unknown before"], blobs.get("plain")
        segments = []
        for described in header["segments"]:
            marks = np.unpackbits(arrays.pop(f"alive {described[0]}"), count=described[1])
            segments.append((described, marks.astype(np.bool_)))
        given = (int(header["misses"]), unknown, plain, arrays, segments)
        return cls(header["now"], resident, stored, *given)

    def together(self, find: Find) -> "SpillSnapshot":
        """The same with the events of all segments in it."""
        tables = [self.stored]
        for (name, *_), alive in self.segments:
            found = find(name)
            data = found if isinstance(found, bytes) else found.read_bytes()
            events = pa.ipc.open_file(data).read_all().cast(self.stored.schema)
            tables.append(events.filter(pa.array(alive)))
        return replace(self, stored=pa.concat_tables(tables), segments=())


class UnlimitedMatcher(Protocol):
    """A matcher without a limit."""

    def replay(self, events: pa.Table, now: float | None, /) -> None: ...
    def restore(self, data: bytes, /) -> None: ...


def is_spill_snapshot(data: bytes) -> bool:
    """Whether a saved state is that of a matcher that stores keys."""
    return SPILLED in unpack_state(data)[2]


def embed_segments(data: bytes, arrow: pa.Schema, find: Find) -> bytes:
    """A saved state whose segments are elsewhere, as one that has them inside."""
    if not is_spill_snapshot(data):
        return data
    return SpillSnapshot.unpacked(data, arrow).together(find).packed()


def restore_unlimited(matcher: UnlimitedMatcher, data: bytes, shape: StreamSchema) -> None:
    """Lets a matcher without a limit go on where one that stored keys stopped."""
    saved = SpillSnapshot.unpacked(data, shape.arrow)
    if saved.plain is not None:
        matcher.restore(saved.plain)
    else:
        events = pa.concat_tables([saved.resident, saved.stored])
        matcher.replay(sort_events(events, shape), saved.now)


def sort_events(events: pa.Table, shape: StreamSchema) -> pa.Table:
    """Events by time; those of one key, which are in order, stay so."""
    times = get_end_times(events, shape)
    if not len(times) or bool((times[1:] >= times[:-1]).all()):
        return events
    return take_rows(events, np.argsort(times, kind="stable")).combine_chunks()
