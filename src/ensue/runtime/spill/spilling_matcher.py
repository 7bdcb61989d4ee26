"""A matcher that keeps whole keys out of memory and brings them back before they are needed.

Keys do not know of each other. So a key can be taken out at any time, as its events of the last
window, and be brought back by matching these again, their matches thrown away: they have been
delivered. Keys that come back are matched in a matcher of their own beside the others; these
cohorts are put together as they get many. A miss happens before a piece of events is fed, never
within: which keys it has is known.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import LimitError
from ensue.planner.limits import DEFAULT_SHARE, EVICTION_POLICIES, MatcherLimits, format_size
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.spill import resident_keys as bound
from ensue.runtime.spill.eviction import EvictionPolicy, KeyStatistics
from ensue.runtime.spill.key_store import (
    Described,
    Find,
    SpillSnapshot,
    SpillUnit,
    get_spill_unit,
    is_spill_snapshot,
    sort_events,
)
from ensue.runtime.spill.readmission import KeyCohorts, ReplayableMatcher
from ensue.runtime.spill.resident_keys import (
    MemoryBound,
    ResidentKeys,
    SpillCounters,
    WindowDeadlines,
)
from ensue.runtime.spill.spill_files import SpillFolder
from ensue.runtime.spill.spilled_keys import SpilledKeys
from ensue.runtime.stage import InputFilter, StageInput
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.key_codes import KeyCodes
from ensue.vector.take import create_empty_table, take_rows

BATCH = 1 / 4  # of the limit is evicted at a time, or more where a piece needs it
PIECE = 1 / 2  # of the limit that the events of a piece may take
FEW_ROWS = 1_024  # events that are fed at a time whatever the limit is
FEW_KEYS = 64  # keys that are looked at at a time whatever the limit is
FEW_CODES = 4_096  # keys whose codes are never forgotten
SPILLED = -1  # in the place of a cohort

Tables = list[pa.Table]
Codes = npt.NDArray[np.int64]
NO_CODES = np.zeros(0, np.int64)


class SpillingMatcher:
    """Matches like one without a limit. `fresh` makes a matcher with no events yet."""

    def __init__(
        self,
        fresh: Callable[[], ReplayableMatcher],
        shape: StreamSchema,
        reads: InputFilter,
        unit: SpillUnit,
        bound: MemoryBound,
        evict: str = "need",
    ) -> None:
        self.unit, self.bound = unit, bound
        self.misses = 0
        self._shape, self._reads = shape, reads
        self._now: float | None = None  # up to which everything is decided
        self._cohorts = KeyCohorts(fresh)
        self._keys = KeyCodes()
        self._resident = ResidentKeys(shape)
        self._deadlines = WindowDeadlines(shape, unit.windows)
        self._stored = SpilledKeys(shape.arrow, self._deadlines.never, SpillFolder())
        self._observed = KeyStatistics(shape, unit.reach)
        self._choice = EvictionPolicy(evict, shape, self._deadlines, self._observed)
        self._looked: float | None = None  # when events out of time were last looked for
        self._coming = 0.0  # bytes that the piece in hand will take, about
        self._known = 0  # keys that were alive when this was last asked
        # the state was taken up from another matcher: events before are not known here
        self._unknown_before: float | None = None
        self._restored = False
        self._nothing: Tables | None = None

    # ---------------------------------------------------------------------------- feeding

    def feed(self, given: StageInput) -> Tables:
        """What the next events complete."""
        events = given.bare
        events = events.filter(pa.array(self._reads.of(events, self._shape)))
        found: list[Tables] = []
        for piece in self._pieces(events):
            codes = self._keys.encode([piece.column(name) for name in self.unit.key])
            known = codes >= 0  # NULL equals nothing
            if not known.all():
                piece, codes = piece.filter(pa.array(known)), codes[known]
            if piece.num_rows:
                found += self._fed(piece, codes.astype(np.int64))
                found += self._shrunk()
                self._forget()
        return self._together(found)

    def _pieces(self, events: pa.Table) -> Sequence[pa.Table]:
        """Events in pieces that take little of the limit each."""
        count = events.num_rows
        if not count:
            return ()
        width = max(1.0, events.nbytes / count, self.held_bytes / max(1, len(self._resident)))
        size = int(min(max(FEW_ROWS, self.bound.bytes * PIECE / width), 1 << 20))
        if self.bound.keys is not None:
            size = max(1, self.bound.keys)
        return [events.slice(k, size) for k in range(0, count, size)]

    def _fed(self, piece: pa.Table, codes: Codes) -> list[Tables]:
        times = get_end_times(piece, self._shape)
        now = times[-1].item()
        self._begin(times[0].item())
        self._cohorts.room_for(len(self._keys))
        wanted = np.unique(codes[self._stored.holds(codes)])
        self.misses += len(wanted)
        found: list[Tables] = []
        back = self._taken(wanted)
        if self._would_be_over(piece.num_rows + len(back[1]), codes):
            found += self._evicted(np.unique(codes))
        if len(wanted):
            self._resident.add(*back)
            events = sort_events(back[0], self._shape)
            found += self._cohorts.add(wanted, events, self._resident, self._now)
        # also of those that have just gone: from here on they must be as they are at `now`
        found += self._looked_at(self._stored.due_before(now), now)
        self._coming = 0.0
        found += self._cohorts.feed(piece, codes)
        found += self._cohorts.settle(now)
        self._resident.add(piece, codes)
        self._observed.watch(piece, codes)
        self._now = now if self._now is None else max(self._now, now)
        return found

    def advance(self, now: float) -> Tables:
        """What only waited for time to pass, once it is `now`."""
        self._begin(now)
        found = self._looked_at(self._stored.due_before(now), now)
        found += self._cohorts.advance(now)
        self._now = now if self._now is None else max(self._now, now)
        self._forget()
        self._forget_codes()
        found += self._shrunk()
        return self._together(found)

    def finish(self) -> Tables:
        """What only waited for the stream to end."""
        found = self._cohorts.finish()
        for some in self._groups(self._stored.codes) if self.unit.windows else ():
            table, _ = self._stored.take(some)
            matcher = self._cohorts.fresh()
            matcher.replay(sort_events(table, self._shape), self._now)
            found.append(matcher.finish())
        return self._together(found)

    def _together(self, found: list[Tables]) -> Tables:
        if len(found) == 1:
            return found[0]
        if not found and self._nothing is None:
            none = StageInput.of(create_empty_table(self._shape.arrow))
            self._nothing = self._cohorts.fresh().feed(none)
        if not found:
            assert self._nothing is not None
            return self._nothing
        return [pa.concat_tables(tables) for tables in zip(*found, strict=True)]

    # ---------------------------------------------------------------------------- bringing back

    def _taken(self, codes: Codes) -> tuple[pa.Table, Codes]:
        """The events of stored keys that still matter."""
        table, known = self._stored.take(codes)
        inside = self._inside(get_end_times(table, self._shape))
        if inside.all():
            return table, known
        return table.filter(pa.array(inside)), known[inside]

    def _looked_at(self, codes: Codes, now: float) -> list[Tables]:
        """What stored keys give when it is `now`. They stay stored, as far as they matter."""
        found = []
        for some in self._groups(codes):
            table, known = self._taken(some)
            matcher = self._cohorts.fresh()
            matcher.replay(sort_events(table, self._shape), self._now)
            found.append(matcher.advance(now))
            self._stored.put(
                table, known, get_end_times(table, self._shape),
                lambda table, first: self._deadlines.of(table, first, now),
            )  # fmt: skip
            self._cohorts.place[some[~self._stored.holds(some)]] = 0
        return found

    def _groups(self, codes: Codes) -> list[Codes]:
        """Stored keys in groups that take little of the limit each."""
        if not len(codes):
            return []
        width = max(1.0, self._stored.bytes / max(1, len(self._stored)))
        size = int(min(max(FEW_KEYS, self.bound.bytes * BATCH / width), 1 << 20))
        return [codes[k : k + size] for k in range(0, len(codes), size)]

    # ---------------------------------------------------------------------------- eviction

    @property
    def held_bytes(self) -> int:
        """What is in memory because of events."""
        return self._cohorts.held_bytes + self._resident.nbytes

    def _over(self) -> bool:
        keys = self.bound.keys
        if self.held_bytes > self.bound.bytes:
            return True
        return keys is not None and len(np.unique(self._resident.codes)) > keys

    def _shrunk(self) -> list[Tables]:
        """Stores keys until what is in memory is below the limit by a batch."""
        found: list[Tables] = []
        while self._unknown_before is None and not self._restored and self._over():
            found += self._evicted()
            self._forget_codes()
        return found

    def _would_be_over(self, rows: int, codes: Codes) -> bool:
        """Whether so many more events, of these keys among others, would be too much."""
        if self._unknown_before is not None or not len(self._resident):
            return False
        keys, known = self.bound.keys, self._resident.codes
        if keys is not None and len(np.union1d(known, codes)) > keys:
            return True
        self._coming = 1.25 * rows * self.held_bytes / len(known)  # tables double
        return self.held_bytes + self._coming > self.bound.bytes

    def _evicted(self, needed: Codes = NO_CODES) -> list[Tables]:
        """Stores the keys that can be spared best, none of those that are about to get events."""
        # before their state goes: what is decided is delivered
        found = self._cohorts.advance(self._now) if self._now is not None else []
        self._forget(every=True)
        order = self._resident.by_key()
        codes = self._resident.codes[order]
        dropped = False
        if len(codes):
            first = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
            count = np.diff(np.r_[first, len(codes)])
            self._refuse_giants(order[first], count)
            events = self._resident.times_and_types(order)
            ranked = self._choice.ranked(events, first, count, self._now)
            spared = np.isin(codes[first[ranked]], needed)
            ranked = ranked[~spared] if len(needed) else ranked[:-1]  # somebody stays
            surplus = self._surplus(len(first), len(needed))
            enough = int(np.searchsorted(np.cumsum(count[ranked]), surplus)) + 1
            gone = np.zeros(len(first), np.bool_)
            gone[ranked[:enough]] = True
            dropped = self._stored_away(order[np.repeat(gone, count)])
        if not dropped:
            self._resident.sort()
            self._cohorts.one_of(self._resident.table, self._now)
        self._choice.evicted_at(self._now)
        pa.default_memory_pool().release_unused()  # what has gone is of use to others
        return found

    def _surplus(self, keys: int, coming: int) -> float:
        """How many events have to go: a batch, or as many as make room for what comes."""
        held, rows, most = self.held_bytes, len(self._resident), self.bound.bytes
        target = max(0.0, min((1 - BATCH) * most, most - self._coming))
        surplus = rows * (1 - target / held) if held > target else 0.0
        if self.bound.keys is not None:
            left = max(0.0, min((1 - BATCH) * self.bound.keys, self.bound.keys - coming))
            surplus = max(surplus, rows * (1 - left / keys))
        return surplus

    def _stored_away(self, rows: Codes) -> bool:
        """Writes the rows of some keys, with what is left of segments that are half dead, and
        drops the keys; False: those that stay have to be built anew."""
        if not len(rows):
            return False
        table, codes = self._resident.rows(rows), self._resident.codes[rows]
        dropped = self._cohorts.drop(table, codes)
        stale = self._stored.half_dead()
        if len(stale):
            old, known = self._taken(stale)
            table, codes = pa.concat_tables([table, old]), np.concatenate([codes, known])
            order = np.argsort(codes, kind="stable")
            table, codes = take_rows(table, order).combine_chunks(), codes[order]
        self._stored.put(table, codes, get_end_times(table, self._shape), self._due)
        self._cohorts.place[stale] = 0
        self._cohorts.place[codes] = SPILLED
        kept = np.ones(len(self._resident), np.bool_)
        kept[rows] = False
        self._resident.keep(kept)
        return dropped

    # ---------------------------------------------------------------------------- giving up

    @property
    def shed_by(self) -> tuple[str, ...]:
        """The columns of keys that can be given up; none, while events of theirs are not known."""
        known = self._unknown_before is None and not self._restored
        return self.unit.key if known else ()

    @property
    def undecided(self) -> float:
        """How long before its time a match may end that is not decided yet."""
        return self.unit.reach if self.unit.windows else 0

    def least_promising(self, events: pa.Table, share: float) -> pa.Table:
        """A share of the keys that have events here: those with the least chance to go on.

        They are judged by these events and those in memory.
        """
        codes = self._keys.encode([events.column(name) for name in self.unit.key])
        rows = np.flatnonzero(np.isin(self._resident.codes, codes))
        coming = np.flatnonzero(codes >= 0)
        both = pa.concat_tables(
            [self._resident.rows(rows), take_rows(events, coming).cast(self._shape.arrow)]
        )
        known = np.concatenate([self._resident.codes[rows], codes[coming]])
        # the last event of a key is what it is judged by: they come out of order
        order = np.lexsort((get_end_times(both, self._shape), known))
        both, known = take_rows(both, order), known[order]
        first = np.flatnonzero(np.r_[True, known[1:] != known[:-1]][: len(known)])
        count = np.diff(np.r_[first, len(known)])
        now = get_end_times(both, self._shape).max(initial=self._now or 0)
        ranked = self._choice.ranked(both, first, count, float(now))
        spared = first[ranked[: math.ceil(share * len(first))]]
        return take_rows(both.select(list(self.unit.key)), spared).combine_chunks()

    def give_up(self, keys: pa.Table) -> int:
        """Forgets keys; gives the number of partial matches that went with them."""
        codes = self._keys.encode([keys.column(name) for name in self.unit.key]).astype(np.int64)
        self._cohorts.room_for(len(self._keys))
        before, lost = self._cohorts.partial_matches, 0
        stored = codes[self._stored.holds(codes)]
        for some in self._groups(stored):
            matcher = self._cohorts.fresh()
            matcher.replay(sort_events(self._taken(some)[0], self._shape), self._now)
            lost += matcher.partial_matches
        gone = np.isin(self._resident.codes, codes)
        if gone.any():
            rows = np.flatnonzero(gone)
            dropped = self._cohorts.drop(self._resident.rows(rows), self._resident.codes[rows])
            self._resident.keep(~gone)
            if not dropped:
                self._resident.sort()
                self._cohorts.one_of(self._resident.table, self._now)
        self._cohorts.place[codes] = 0
        return lost + before - self._cohorts.partial_matches

    def _refuse_giants(self, rows: Codes, count: Codes) -> None:
        """An error if the largest key needs more than all may take together."""
        largest = int(count.argmax())
        size = self.held_bytes * float(count[largest]) / float(count.sum())
        if size <= self.bound.bytes:
            return
        row = self._resident.table.select(list(self.unit.key)).slice(int(rows[largest]), 1)
        shown = ", ".join(f"{name} = {value!r}" for name, value in row.to_pylist()[0].items())
        raise LimitError(
            f"one key alone needs {format_size(size)}, and memory= allows "
            f"{format_size(self.bound.bytes)}: {shown}, with {int(count[largest]):,} events in the "
            "window\n"
            "  hint: allow more memory=, shorten WITHIN, or leave out events that cannot match"
        )

    # ---------------------------------------------------------------------------- time

    def _begin(self, time: float) -> None:
        """Notes the first time that is known after a state of another matcher was taken up."""
        if self._restored:
            self._restored, self._unknown_before = False, time
        if self._unknown_before is not None and time - self._unknown_before > self.unit.reach:
            self._unknown_before = None

    def _inside(self, times: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which events still matter."""
        if self._now is None:
            return np.ones(len(times), np.bool_)
        return np.asarray(self._now - times <= self.unit.reach, np.bool_)

    def _forget(self, *, every: bool = False) -> None:
        """Lets go of what is out of time: now and then, or at once."""
        if self._now is None:
            return
        since = None if self._looked is None else self._now - self._looked
        if not every and since is not None and 4 * since < self.unit.reach:
            return
        self._looked = self._now
        if len(self._resident):
            self._resident.keep(self._inside(self._resident.ends))
        cut = self._now - self.unit.reach
        self._cohorts.place[self._stored.forget_before(cut)] = 0
        self._observed.lapse_before(float(cut))

    def deadline(self) -> float | None:
        """The time behind which `advance` finds or forgets something."""
        times = (self._cohorts.deadline(), self._stored.next_due())
        return min((t for t in times if t is not None), default=None)

    def _forget_codes(self) -> None:
        """Forgets keys that have no events here, once most have none."""
        count = len(self._keys)
        if count <= max(FEW_CODES, 2 * self._known):
            return
        alive = np.zeros(count, np.bool_)
        alive[self._resident.codes] = True
        alive[self._stored.codes] = True
        self._known = int(alive.sum())
        if 2 * self._known > count:
            return
        moved = self._keys.keep(alive)
        for part in (self._cohorts, self._resident, self._stored, self._observed):
            part.renumber(moved)

    # ---------------------------------------------------------------------------- what is alive

    @property
    def partial_matches(self) -> int:
        """In memory: of keys that are stored nothing but events is known."""
        return self._cohorts.partial_matches

    @property
    def spilled(self) -> SpillCounters:
        """What is not in memory."""
        return SpillCounters(self.misses, len(self._stored), self._stored.bytes)

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        plain = 0 if self._unknown_before is None else self._cohorts.first.state_bytes
        return self._resident.nbytes + self._stored.bytes + plain

    # ---------------------------------------------------------------------------- state

    def save(self) -> bytes:
        """Everything needed to go on elsewhere, also without a limit."""
        return self._saved(self._stored.all_events(), ())

    def save_apart(self) -> bytes:
        """The same without the segments, which are kept elsewhere."""
        segments = [(s.described(), alive) for s, alive in self._stored.segments()]
        return self._saved(create_empty_table(self._shape.arrow), segments)

    @property
    def segments(self) -> dict[str, Path]:
        """The files that `save_apart` leaves out, by name."""
        return {segment.name: segment.path for segment, _ in self._stored.segments()}

    def _saved(self, stored: pa.Table, segments: Sequence[Described]) -> bytes:
        if self._restored:  # nothing has come since
            return self._cohorts.first.save()
        plain = None if self._unknown_before is None else self._cohorts.first.save()
        learned, resident = self._observed.save(), self._resident.table
        given = (self.misses, self._unknown_before, plain, learned, segments)
        return SpillSnapshot(self._now, resident, stored, *given).packed()

    def restore(self, data: bytes, find: Find | None = None) -> None:
        """Goes on where the saved one stopped, be it one without a limit.

        `find` finds segments that were kept elsewhere.
        """
        if not is_spill_snapshot(data):
            self._cohorts.first.restore(data)
            self._restored = True
            return
        saved = SpillSnapshot.unpacked(data, self._shape.arrow)
        self._now, self.misses = saved.now, saved.misses
        self._unknown_before = saved.unknown_before
        self._observed.restore(saved.learned)
        resident, codes = self._coded(saved.resident)
        self._cohorts.room_for(len(self._keys))
        self._resident.add(resident, codes)
        self._resident.sort()
        if saved.plain is None:
            self._cohorts.one_of(self._resident.table, self._now)
        else:
            self._cohorts.first.restore(saved.plain)
        self._put_by_key(*self._coded(saved.stored))
        for described, alive in saved.segments:
            assert find is not None, "a state whose segments are elsewhere"
            segment = self._stored.folder.adopt(described, find(described[0]))
            table, codes = self._coded(self._stored.folder.table(segment))
            self._stored.adopt(segment, codes, get_end_times(table, self._shape), self._due, alive)
        self._cohorts.room_for(len(self._keys))
        self._cohorts.place[self._stored.codes] = SPILLED

    def _put_by_key(self, table: pa.Table, codes: Codes) -> None:
        if table.num_rows:
            order = np.argsort(codes, kind="stable")
            table, codes = take_rows(table, order).combine_chunks(), codes[order]
            self._stored.put(table, codes, get_end_times(table, self._shape), self._due)

    def _due(self, table: pa.Table, first: Codes) -> npt.NDArray[Any]:
        return self._deadlines.of(table, first, self._now)

    def _coded(self, table: pa.Table) -> tuple[pa.Table, Codes]:
        codes = self._keys.encode([table.column(name) for name in self.unit.key])
        return table, codes.astype(np.int64)


# ----------------------------------------------------------------------
# A matcher of queries that stays within its limits by storing keys.


def create_spilling_matcher(
    queries: Sequence[CompiledQuery],
    reads: InputFilter,
    limits: MatcherLimits,
    plain: Callable[[Sequence[CompiledQuery]], ReplayableMatcher],
) -> SpillingMatcher:
    """A matcher of queries whose keys can be evicted; `plain` makes one without a limit."""
    inner = [_unbound(prepared) for prepared in queries]
    return SpillingMatcher(
        lambda: plain(inner),
        queries[0].shape,
        reads,
        get_spill_unit(queries),
        bound.get_memory_bound(limits),
        limits.evict or EVICTION_POLICIES[0],
    )


def _unbound(prepared: CompiledQuery) -> CompiledQuery:
    """The same query, stopped only by what a machine can bear: a batch may need more for once."""
    limits = replace(prepared.planning.limits, memory=None, share=DEFAULT_SHARE)
    return replace(prepared, planning=replace(prepared.planning, limits=limits))
