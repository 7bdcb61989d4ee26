"""A matcher that spills whole keys to disk and reads them back before they are needed.

Keys are independent. A key is spilled as its events of the last window, and restored by matching
these again; their matches were delivered before and are discarded. Restored keys get their own
matcher, a cohort; cohorts are merged when there are many. The keys of a piece of events are known
before it is fed, so spilled keys are restored between pieces.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.memory_budget import Usage, get_machine_memory
from ensue.errors import LimitError
from ensue.options import EVICTION_POLICIES, Limits, format_size
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.spill.eviction import EvictionPolicy, KeyStatistics, SpillUnit, get_spill_unit
from ensue.runtime.spill.resident_keys import (
    KeyCohorts,
    ReplayableMatcher,
    ResidentKeys,
    SpillCounters,
    WindowDeadlines,
    find_runs,
)
from ensue.runtime.spill.spilled_keys import (
    Described,
    Find,
    SpilledKeys,
    SpillFolder,
    SpillSnapshot,
    is_spill_snapshot,
    sort_events,
)
from ensue.runtime.stage import InputFilter, StageInput
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.key_codes import KeyCodes
from ensue.vector.take import create_empty_table, take_rows

BATCH = 1 / 4  # of the limit is evicted at a time, or more if a piece needs it
PIECE = 1 / 2  # of the limit for the events of a piece
FEW_ROWS = 1_024  # minimum events of a piece
FEW_KEYS = 64  # minimum keys that are replayed at a time
FEW_CODES = 4_096  # keys up to which codes are not compacted
SPILLED = -1  # instead of the number of a cohort

Tables = list[pa.Table]
Codes = npt.NDArray[np.int64]
NO_CODES = np.zeros(0, np.int64)


class SpillingMatcher:
    """Returns the matches of an unlimited matcher. `fresh` creates an empty matcher."""

    def __init__(
        self,
        fresh: Callable[[], ReplayableMatcher],
        shape: StreamSchema,
        reads: InputFilter,
        unit: SpillUnit,
        bound: float,
        evict: str = "need",
    ) -> None:
        self.unit, self.bound = unit, bound
        self.misses = 0
        self._shape, self._reads = shape, reads
        self._now: float | None = None  # up to which all matches are decided
        self._cohorts = KeyCohorts(fresh)
        self._keys = KeyCodes()
        self._resident = ResidentKeys(shape)
        self._deadlines = WindowDeadlines(shape, unit.windows)
        self._spilled = SpilledKeys(shape.arrow, self._deadlines.never, SpillFolder())
        self._statistics = KeyStatistics(shape, unit.reach)
        self._policy = EvictionPolicy(evict, shape, self._deadlines, self._statistics)
        self._expired_at: float | None = None
        self._incoming_bytes = 0.0  # estimated memory of the current piece
        self._live_keys = 0  # when they were last counted
        # after restoring an unlimited matcher's state: earlier events are unknown
        self._unknown_before: float | None = None
        self._restored = False
        self._empty: Tables | None = None

    def process(self, batch: StageInput) -> Tables:
        """The matches that the next events complete."""
        events = batch.bare
        events = events.filter(pa.array(self._reads.compute_mask(events, self._shape)))
        found: list[Tables] = []
        for piece in self._split(events):
            codes = self._encode(piece)
            known = codes >= 0  # NULL equals nothing
            if not known.all():
                piece, codes = piece.filter(pa.array(known)), codes[known]
            if piece.num_rows:
                found += self._feed_piece(piece, codes)
                found += self._shrink()
                self._expire()
        return self._concat(found)

    def _split(self, events: pa.Table) -> Sequence[pa.Table]:
        """Splits events into pieces that need a part of the limit each."""
        count = events.num_rows
        if not count:
            return ()
        width = max(1.0, events.nbytes / count, self.usage.held_bytes / max(1, len(self._resident)))
        size = int(min(max(FEW_ROWS, self.bound * PIECE / width), 1 << 20))
        return [events.slice(k, size) for k in range(0, count, size)]

    def _feed_piece(self, piece: pa.Table, codes: Codes) -> list[Tables]:
        times = get_end_times(piece, self._shape)
        now = times[-1].item()
        self._note_time(times[0].item())
        self._cohorts.grow(len(self._keys))
        missing = np.unique(codes[self._spilled.holds(codes)])
        self.misses += len(missing)
        found: list[Tables] = []
        restored = self._take_spilled(missing)
        if self._would_exceed(piece.num_rows + len(restored[1])):
            found += self._evict(np.unique(codes))
        if len(missing):
            self._resident.add(*restored)
            events = sort_events(restored[0], self._shape)
            found += self._cohorts.add(missing, events, self._resident, self._now)
        # including the keys just evicted: all states must be those of `now`
        found += self._advance_spilled(self._spilled.find_due(now), now)
        self._incoming_bytes = 0.0
        found += self._cohorts.process(piece, codes)
        found += self._cohorts.settle(now)
        self._resident.add(piece, codes)
        self._statistics.observe(piece, codes)
        self._now = now if self._now is None else max(self._now, now)
        return found

    def on_watermark(self, now: float) -> Tables:
        """The matches that the watermark `now` completes."""
        if now == math.inf:
            return self._end()
        self._note_time(now)
        found = self._advance_spilled(self._spilled.find_due(now), now)
        found += self._cohorts.on_watermark(now)
        self._now = now if self._now is None else max(self._now, now)
        self._expire()
        self._forget_codes()
        found += self._shrink()
        return self._concat(found)

    def _end(self) -> Tables:
        found = self._cohorts.on_watermark(math.inf)
        for group in self._split_keys(self._spilled.codes) if self.unit.windows else ():
            found.append(self._replay(self._spilled.take(group)[0]).on_watermark(math.inf))
        return self._concat(found)

    def _concat(self, found: list[Tables]) -> Tables:
        if found:
            return found[0] if len(found) == 1 else [pa.concat_tables(tables) for tables in zip(*found, strict=True)]
        if self._empty is None:
            none = StageInput.from_events(create_empty_table(self._shape.arrow))
            self._empty = self._cohorts.fresh().process(none)
        return self._empty

    def _replay(self, events: pa.Table) -> ReplayableMatcher:
        """A matcher in the state that events of spilled keys lead to."""
        matcher = self._cohorts.fresh()
        matcher.replay(sort_events(events, self._shape), self._now)
        return matcher

    def _take_spilled(self, codes: Codes) -> tuple[pa.Table, Codes]:
        """Removes keys from the spilled ones; returns their events inside the window."""
        table, known = self._spilled.take(codes)
        inside = self._in_window(get_end_times(table, self._shape))
        if inside.all():
            return table, known
        return table.filter(pa.array(inside)), known[inside]

    def _advance_spilled(self, codes: Codes, now: float) -> list[Tables]:
        """The matches of spilled keys at the watermark `now`. The keys stay spilled."""
        found = []
        for group in self._split_keys(codes):
            table, known = self._take_spilled(group)
            found.append(self._replay(table).on_watermark(now))
            self._spilled.put(
                table, known, get_end_times(table, self._shape),
                lambda table, first: self._deadlines.compute_deadlines(table, first, now),
            )  # fmt: skip
            self._cohorts.place[group[~self._spilled.holds(group)]] = 0
        return found

    def _split_keys(self, codes: Codes) -> list[Codes]:
        """Splits spilled keys into groups that need a part of the limit each."""
        if not len(codes):
            return []
        width = max(1.0, self._spilled.bytes / max(1, len(self._spilled)))
        size = int(min(max(FEW_KEYS, self.bound * BATCH / width), 1 << 20))
        return [codes[k : k + size] for k in range(0, len(codes), size)]

    def _exceeds_bound(self) -> bool:
        return self.usage.held_bytes > self.bound

    def _shrink(self) -> list[Tables]:
        """Evicts keys until the used memory is below the limit by a batch."""
        found: list[Tables] = []
        while self._unknown_before is None and not self._restored and self._exceeds_bound():
            found += self._evict()
            self._forget_codes()
        return found

    def _would_exceed(self, rows: int) -> bool:
        """Whether more events would exceed the limit."""
        if self._unknown_before is not None or not len(self._resident):
            return False
        held = self.usage.held_bytes
        self._incoming_bytes = 1.25 * rows * held / len(self._resident)  # tables double
        return held + self._incoming_bytes > self.bound

    def _evict(self, needed: Codes = NO_CODES) -> list[Tables]:
        """Spills the keys with the lowest scores, except those that are about to get events."""
        # matches that are decided are delivered before the state is dropped
        found = self._cohorts.on_watermark(self._now) if self._now is not None else []
        self._expire(every=True)
        order = np.argsort(self._resident.codes, kind="stable")
        codes = self._resident.codes[order]
        dropped = False
        if len(codes):
            first, count = find_runs(codes)
            self._refuse_large_keys(order[first], count)
            events = self._resident.take_times_and_types(order)
            ranked = self._policy.rank(events, first, count, self._now)
            spared = np.isin(codes[first[ranked]], needed)
            ranked = ranked[~spared] if len(needed) else ranked[:-1]  # one key stays
            surplus = self._count_surplus()
            enough = int(np.searchsorted(np.cumsum(count[ranked]), surplus)) + 1
            is_evicted = np.zeros(len(first), np.bool_)
            is_evicted[ranked[:enough]] = True
            dropped = self._spill_rows(order[np.repeat(is_evicted, count)])
        if not dropped:
            self._rebuild()
        self._policy.note_eviction(self._now)
        pa.default_memory_pool().release_unused()
        return found

    def _rebuild(self) -> None:
        """Replaces all cohorts by one, built from the resident events."""
        self._resident.sort()
        self._cohorts.rebuild(self._resident.table, self._now)

    def _count_surplus(self) -> float:
        """The number of events to evict: a batch, or enough for the incoming events."""
        held, rows, most = self.usage.held_bytes, len(self._resident), self.bound
        target = max(0.0, min((1 - BATCH) * most, most - self._incoming_bytes))
        return rows * (1 - target / held) if held > target else 0.0

    def _spill_rows(self, rows: Codes) -> bool:
        """Writes the rows of keys, with the live rows of sparse segments, and drops the keys;
        False: the cohorts have to be rebuilt."""
        if not len(rows):
            return False
        table, codes = self._resident.take(rows), self._resident.codes[rows]
        dropped = self._cohorts.drop(table, codes)
        sparse = self._spilled.find_sparse()
        if len(sparse):
            old, known = self._take_spilled(sparse)
            table, codes = pa.concat_tables([table, old]), np.concatenate([codes, known])
        self._put_by_key(table, codes)
        self._cohorts.place[sparse] = 0
        self._cohorts.place[codes] = SPILLED
        kept = np.ones(len(self._resident), np.bool_)
        kept[rows] = False
        self._resident.keep(kept)
        return dropped

    @property
    def shed_by(self) -> tuple[str, ...]:
        """The key columns; none while events of resident keys are unknown."""
        known = self._unknown_before is None and not self._restored
        return self.unit.key if known else ()

    @property
    def undecided(self) -> float:
        """How long before the watermark an undecided match may end."""
        return self.unit.reach if self.unit.windows else 0

    def least_promising(self, events: pa.Table, share: float) -> pa.Table:
        """The share of the keys of these events with the lowest scores.

        The scores depend on these events and the resident ones.
        """
        codes = self._encode(events)
        rows = np.flatnonzero(np.isin(self._resident.codes, codes))
        incoming = np.flatnonzero(codes >= 0)
        both = pa.concat_tables([self._resident.take(rows), take_rows(events, incoming).cast(self._shape.arrow)])
        known = np.concatenate([self._resident.codes[rows], codes[incoming]])
        # scores depend on the last event of a key, and events arrive out of order
        order = np.lexsort((get_end_times(both, self._shape), known))
        both, known = take_rows(both, order), known[order]
        first, count = find_runs(known)
        now = get_end_times(both, self._shape).max(initial=self._now or 0)
        ranked = self._policy.rank(both, first, count, float(now))
        lowest = first[ranked[: math.ceil(share * len(first))]]
        return take_rows(both.select(list(self.unit.key)), lowest).combine_chunks()

    def give_up(self, keys: pa.Table) -> int:
        """Drops keys; returns the number of their partial matches."""
        codes = self._encode(keys)
        self._cohorts.grow(len(self._keys))
        before, lost = self._cohorts.usage.partial_matches, 0
        for group in self._split_keys(codes[self._spilled.holds(codes)]):
            lost += self._replay(self._take_spilled(group)[0]).usage.partial_matches
        is_dropped = np.isin(self._resident.codes, codes)
        if is_dropped.any():
            rows = np.flatnonzero(is_dropped)
            dropped = self._cohorts.drop(self._resident.take(rows), self._resident.codes[rows])
            self._resident.keep(~is_dropped)
            if not dropped:
                self._rebuild()
        self._cohorts.place[codes] = 0
        return lost + before - self._cohorts.usage.partial_matches

    def _refuse_large_keys(self, rows: Codes, count: Codes) -> None:
        """Raises a LimitError if the largest key alone needs more than the limit."""
        largest = int(count.argmax())
        size = self.usage.held_bytes * float(count[largest]) / float(count.sum())
        if size <= self.bound:
            return
        row = self._resident.table.select(list(self.unit.key)).slice(int(rows[largest]), 1)
        shown = ", ".join(f"{name} = {value!r}" for name, value in row.to_pylist()[0].items())
        raise LimitError(
            f"one key alone needs {format_size(size)}, and ensue.Limits(memory=...) "
            f"allows {format_size(self.bound)}: {shown}, with {int(count[largest]):,} events in the "
            "window\n"
            "  hint: allow more memory, shorten WITHIN, or leave out events that cannot match"
        )

    def _note_time(self, time: float) -> None:
        """Notes the first time after the state of an unlimited matcher was restored."""
        if self._restored:
            self._restored, self._unknown_before = False, time
        if self._unknown_before is not None and time - self._unknown_before > self.unit.reach:
            self._unknown_before = None

    def _in_window(self, times: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        if self._now is None:
            return np.ones(len(times), np.bool_)
        return np.asarray(self._now - times <= self.unit.reach, np.bool_)

    def _expire(self, *, every: bool = False) -> None:
        """Drops events outside the window, at most four times a window unless `every`."""
        if self._now is None:
            return
        since = None if self._expired_at is None else self._now - self._expired_at
        if not every and since is not None and 4 * since < self.unit.reach:
            return
        self._expired_at = self._now
        if len(self._resident):
            self._resident.keep(self._in_window(self._resident.ends))
        cut = self._now - self.unit.reach
        self._cohorts.place[self._spilled.forget_before(cut)] = 0
        self._statistics.expire_before(float(cut))

    def next_timer(self) -> float | None:
        times = (self._cohorts.next_timer(), self._spilled.next_due())
        return min((t for t in times if t is not None), default=None)

    def _forget_codes(self) -> None:
        """Compacts the codes of keys once most keys have no events."""
        count = len(self._keys)
        if count <= max(FEW_CODES, 2 * self._live_keys):
            return
        alive = np.zeros(count, np.bool_)
        alive[self._resident.codes] = True
        alive[self._spilled.codes] = True
        self._live_keys = int(alive.sum())
        if 2 * self._live_keys > count:
            return
        moved = self._keys.keep(alive)
        for part in (self._cohorts, self._resident, self._spilled, self._statistics):
            part.renumber(moved)

    @property
    def spilled(self) -> SpillCounters:
        return SpillCounters(self.misses, len(self._spilled), self._spilled.bytes)

    @property
    def usage(self) -> Usage:
        """The usage that depends on events; spilled keys have no partial matches, since they are stored as events."""
        cohorts, resident = self._cohorts.usage, self._resident.nbytes
        plain = 0 if self._unknown_before is None else self._cohorts.first.usage.state_bytes
        return Usage(cohorts.partial_matches, resident + self._spilled.bytes + plain, cohorts.held_bytes + resident)

    def snapshot(self) -> bytes:
        """Serialized state, which an unlimited matcher can restore, too."""
        return self._pack(self._spilled.all_events(), ())

    def save_apart(self) -> bytes:
        """Serialized state without the segments."""
        segments = [(s.to_list(), alive) for s, alive in self._spilled.segments()]
        return self._pack(create_empty_table(self._shape.arrow), segments)

    @property
    def segments(self) -> dict[str, Path]:
        """The files that `save_apart` omits, by name."""
        return {segment.name: segment.path for segment, _ in self._spilled.segments()}

    def _pack(self, stored: pa.Table, segments: Sequence[Described]) -> bytes:
        if self._restored:  # no events since then
            return self._cohorts.first.snapshot()
        plain = None if self._unknown_before is None else self._cohorts.first.snapshot()
        return SpillSnapshot(
            self._now, self._resident.table, stored, self.misses, self._unknown_before, plain,
            self._statistics.snapshot(), segments,
        ).pack()  # fmt: skip

    def restore(self, data: bytes, find: Find | None = None) -> None:
        """Restores a saved state, also of an unlimited matcher; `find` reads omitted segments."""
        if not is_spill_snapshot(data):
            self._cohorts.first.restore(data)
            self._restored = True
            return
        saved = SpillSnapshot.unpack(data, self._shape.arrow)
        self._now, self.misses = saved.now, saved.misses
        self._unknown_before = saved.unknown_before
        self._statistics.restore(saved.learned)
        codes = self._encode(saved.resident)
        self._cohorts.grow(len(self._keys))
        self._resident.add(saved.resident, codes)
        self._resident.sort()
        if saved.plain is None:
            self._cohorts.rebuild(self._resident.table, self._now)
        else:
            self._cohorts.first.restore(saved.plain)
        self._put_by_key(saved.stored, self._encode(saved.stored))
        for described, alive in saved.segments:
            assert find is not None, "a state whose segments are elsewhere"
            segment = self._spilled.folder.adopt(described, find(described[0]))
            table = self._spilled.folder.table(segment)
            times, codes = get_end_times(table, self._shape), self._encode(table)
            self._spilled.adopt(segment, table, codes, times, self._compute_deadlines, alive)
        self._cohorts.grow(len(self._keys))
        self._cohorts.place[self._spilled.codes] = SPILLED

    def _put_by_key(self, table: pa.Table, codes: Codes) -> None:
        order = np.argsort(codes, kind="stable")
        table = take_rows(table, order).combine_chunks()
        times = get_end_times(table, self._shape)
        self._spilled.put(table, codes[order], times, self._compute_deadlines)

    def _compute_deadlines(self, table: pa.Table, first: Codes) -> npt.NDArray[Any]:
        return self._deadlines.compute_deadlines(table, first, self._now)

    def _encode(self, table: pa.Table) -> Codes:
        columns = [table.column(name) for name in self.unit.key]
        return self._keys.encode(columns).astype(np.int64)


def create_spilling_matcher(
    queries: Sequence[CompiledQuery],
    reads: InputFilter,
    limits: Limits,
    plain: Callable[[Sequence[CompiledQuery]], ReplayableMatcher],
) -> SpillingMatcher:
    """A matcher of queries whose keys can be evicted; `plain` creates an unlimited one."""
    unlimited = []
    for query in queries:  # limited by the machine only: a batch may exceed the bound for a while
        default = replace(query.planning.limits, memory=None)
        unlimited.append(replace(query, planning=replace(query.planning, limits=default)))
    return SpillingMatcher(
        lambda: plain(unlimited),
        queries[0].shape,
        reads,
        get_spill_unit(queries),
        limits.compute_memory_bound(get_machine_memory(), os.cpu_count() or 1),
        limits.evict or EVICTION_POLICIES[0],
    )
