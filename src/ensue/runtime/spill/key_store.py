"""Which queries can spill or shed keys, and the saved state of a spilling matcher."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import QueryError, StateError
from ensue.ir.traversal import iterate_negations
from ensue.planner.capabilities import can_wait, why_not_evicted, why_not_shed
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.spill.readmission import ReplayableMatcher
from ensue.schema import ValueKind
from ensue.vector.arrow_types import window_to_ticks
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.take import take_rows


@dataclass(frozen=True, slots=True)
class SpillUnit:
    """The unit of eviction: the events of one key inside the window."""

    key: tuple[str, ...]  # columns
    reach: float  # the length of the window
    windows: tuple[float, ...]  # of the queries that wait for the end of their windows


def why_not_evictable(queries: Sequence[CompiledQuery]) -> str | None:
    """Why the keys of these queries cannot be evicted; None if they can."""
    for prepared in queries:
        why = why_not_evicted(prepared.plan)
        if why is not None:
            return why
    if not _find_common_key(queries):
        return "its queries have no [attr] in common that would split their events into keys"
    return None


def build_eviction_error(why: str) -> QueryError:
    return QueryError(
        f"the query cannot be evicted: {why}",
        hint="leave out evict of ensue.Limits: memory is then a bound at which the query is stopped",
    )


def require_sheddable(queries: Sequence[CompiledQuery]) -> None:
    """Raises a QueryError if the keys of these queries cannot be shed."""
    reasons = (why_not_shed(prepared.plan) for prepared in queries)
    why = next((why for why in reasons if why is not None), None) or why_not_evictable(queries)
    if why is not None:
        raise build_shedding_error(why)
    kind = queries[0].shape.schema.time_kind
    if kind is not ValueKind.TIMESTAMP:
        raise build_shedding_error(f"its time column holds {kind.value}s, which no clock can be compared with")


def build_shedding_error(why: str) -> QueryError:
    return QueryError(
        f"the query cannot shed load: {why}",
        hint="leave out shed of ensue.Limits: a slow stream falls behind, and nothing is lost",
    )


def get_spill_unit(queries: Sequence[CompiledQuery]) -> SpillUnit:
    """The key and window by which queries are evicted."""
    lengths, waiting = [], []
    for prepared in queries:
        query = prepared.plan.query
        length = window_to_ticks(query.within, prepared.shape.unit)
        assert length is not None
        late = query.unfinished or can_wait(query.pattern)
        # negated events of a match that still waits may be a window older than the match
        twice = late and sum(1 for _ in iterate_negations(query.pattern)) > 1
        lengths.append(2 * length if twice else length)
        waiting += [length] if late else []
    return SpillUnit(_find_common_key(queries), max(lengths), tuple(sorted(set(waiting))))


def _find_common_key(queries: Sequence[CompiledQuery]) -> tuple[str, ...]:
    """The fields that partition the events of all queries."""
    keys = [{e.field_name for e in p.plan.query.equivalence} for p in queries]
    return tuple(sorted(set.intersection(*keys))) if keys else ()


SPILLED = "spilled"
FORMAT = 1

Described = tuple[list[Any], npt.NDArray[np.bool_]]  # a segment, and a mask of its live rows
Find = Callable[[str], Path | bytes]  # reads a segment by name


@dataclass(frozen=True)
class SpillSnapshot:
    """The state of a spilling matcher."""

    now: float | None  # up to which all matches are decided
    resident: pa.Table  # events of resident keys, in stream order within each key
    stored: pa.Table  # events of spilled keys that are not in segments
    misses: int
    unknown_before: float | None  # earlier events of resident keys may be missing
    plain: bytes | None  # then this is the state of a matcher that has matched them
    learned: dict[str, npt.NDArray[Any]]
    segments: Sequence[Described] = ()  # stored elsewhere

    def pack(self) -> bytes:
        header = {
            "format": FORMAT,
            "now": self.now,
            "misses": self.misses,
            "unknown before": self.unknown_before,
            "segments": [described for described, _ in self.segments],
        }
        marks = {f"alive {d[0]}": np.packbits(alive) for d, alive in self.segments}
        blobs = {"plain": self.plain} if self.plain is not None else {}
        blobs |= {"resident": serialize_table(self.resident), "stored": serialize_table(self.stored)}
        return pack_state({}, {}, {SPILLED: pack_state(header, self.learned | marks, blobs)})

    @classmethod
    def unpack(cls, data: bytes, arrow: pa.Schema) -> "SpillSnapshot":
        _, _, saved = unpack_state(data)
        header, arrays, blobs = unpack_state(saved[SPILLED])
        if header["format"] != FORMAT:
            raise StateError(
                f"stored keys were saved in format {header['format']}, this release reads "
                f"{FORMAT}\n  hint: use the release that saved it"
            )
        resident, stored = (deserialize_table(blobs[n]).cast(arrow) for n in ("resident", "stored"))
        segments = []
        for described in header["segments"]:
            marks = np.unpackbits(arrays.pop(f"alive {described[0]}"), count=described[1])
            segments.append((described, marks.astype(np.bool_)))
        return cls(
            header["now"], resident, stored, int(header["misses"]), header["unknown before"],
            blobs.get("plain"), arrays, segments,
        )  # fmt: skip


def is_spill_snapshot(data: bytes) -> bool:
    """Whether a saved state is that of a spilling matcher."""
    return SPILLED in unpack_state(data)[2]


def embed_segments(data: bytes, arrow: pa.Schema, find: Find) -> bytes:
    """A saved state with the events of all its segments."""
    if not is_spill_snapshot(data):
        return data
    saved = SpillSnapshot.unpack(data, arrow)
    tables = [saved.stored]
    for (name, *_), alive in saved.segments:
        source = find(name)
        file = source if isinstance(source, bytes) else source.read_bytes()
        tables.append(pa.ipc.open_file(file).read_all().cast(arrow).filter(pa.array(alive)))
    return replace(saved, stored=pa.concat_tables(tables), segments=()).pack()


def restore_unlimited(matcher: ReplayableMatcher, data: bytes, shape: StreamSchema) -> None:
    """Restores the state of a spilling matcher in an unlimited one."""
    saved = SpillSnapshot.unpack(data, shape.arrow)
    if saved.plain is not None:
        matcher.restore(saved.plain)
    else:
        events = pa.concat_tables([saved.resident, saved.stored])
        matcher.replay(sort_events(events, shape), saved.now)


def sort_events(events: pa.Table, shape: StreamSchema) -> pa.Table:
    """Sorts events by time, stable."""
    times = get_end_times(events, shape)
    if not len(times) or bool((times[1:] >= times[:-1]).all()):
        return events
    return take_rows(events, np.argsort(times, kind="stable")).combine_chunks()
