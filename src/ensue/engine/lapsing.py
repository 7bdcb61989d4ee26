"""Matches that wait until an interval is over in which some event must not occur.

A kernel finds them without their intervals. Here are the events that may lie in one, the times
of those that a match may name, and the matches that are not certain yet.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.algebra.form import is_lapse, parts
from ensue.algebra.lapses import lapses
from ensue.algebra.lives import looks_as_far
from ensue.algebra.pattern import Interval, Pattern
from ensue.algebra.predicate import At, Binary, Call, Expr, Field, Literal
from ensue.algebra.values import instant
from ensue.algebra.walk import atoms, kleenes, positives
from ensue.columns.matches import Matches
from ensue.engine.member_rows import newest_first
from ensue.engine.output import joined
from ensue.engine.program import Program
from ensue.engine.saved_matches import as_arrays, from_arrays
from ensue.engine.scan import Scanned
from ensue.engine.seen_events import NAMES, SeenEvents
from ensue.engine.state import Arrays
from ensue.kernels.lapses import spoil

Times = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Known = tuple[Times, Bools]  # points in time, and whether there are any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FEW = 1_024  # events that are not worth a look


@dataclass(frozen=True, slots=True)
class Lapse:
    """An absence in an interval, and the variables of which one is bound where it applies."""

    bit: int
    interval: Interval
    group: tuple[str, ...]
    back: float | None  # how far before a match it looks; None: between two moments


def lapsing_of(program: Program) -> "Lapsing | None":
    """What judges the matches of a program by intervals, if it has any."""
    return Lapsing(program) if any(lapses(program.plan.query.pattern)) else None


class Lapsing:
    """Holds back matches until their intervals are over."""

    def __init__(self, program: Program) -> None:
        frame, query, schema = program.frame, program.plan.query, program.schema
        self._start, self._intervals = schema.start, schema.intervals
        self._output = program.source.output
        self._dtype = np.float64 if frame.real_time else np.int64
        self._scale = 1 if frame.ticks_per_second != 1e6 else 1_000  # nanoseconds in a unit
        self._length, self._kleene = frame.window, kleenes(query.pattern)
        self._lapses = []
        for interval, variable, group in _groups(query.pattern):
            looks = looks_as_far(interval, query, schema)
            back = math.inf if looks is None else looks.back
            back = None if back is None else float(back) / self._scale
            bit = 1 << frame.bit(variable)
            self._lapses.append(Lapse(bit, interval, group, back))
        self._seen = SeenEvents(self._dtype)
        self._kept = 0  # events, when they were last looked through
        self._new = 0  # events from here on have come since matches were judged
        self._pending = joined([], self._output)
        self._lines = newest_first(self._pending)  # the events of each match that waits
        self._key_of = np.zeros(0, np.int64)  # of each match that waits
        self._after, self._until = (np.zeros((len(self._lapses), 0), self._dtype) for _ in "ab")
        self._applies = np.zeros((len(self._lapses), 0), np.bool_)
        self._due = np.zeros(0, self._dtype)

    # ---------------------------------------------------------------------------- feeding

    def see(self, scanned: Scanned, first: int) -> None:
        """Takes note of the next events; the first of them is this row."""
        here = np.flatnonzero((scanned.mask != 0) & (scanned.key >= 0))
        if not len(here):
            return
        self._seen.add(
            rows=here + first, key=scanned.key[here], mask=scanned.mask[here],
            starts=scanned.starts[here], ends=scanned.ends[here],
        )  # fmt: skip

    def __call__(self, found: Matches, now: float | None, *, over: bool) -> Matches:
        """The matches that are certain; `found` are further ones that a kernel has found."""
        if self._pending.count and self._new < self._seen.count:
            spoilt = self._spoilt(self._new)
            if spoilt.any():
                self._keep(np.flatnonzero(~spoilt))
        if found.count:
            waiting = self._pending.count
            self._take(found)
            spoilt = np.zeros(self._pending.count, np.bool_)
            spoilt[waiting:] = self._spoilt(0, waiting)
            if spoilt.any():
                self._keep(np.flatnonzero(~spoilt))
        self._new = self._seen.count
        certain = np.full(self._pending.count, True) if over else self._due < self._time(now)
        given = self._pending.where(certain)
        if given.count:
            self._keep(np.flatnonzero(~certain))
        self._forget(now)
        return given

    def _time(self, now: float | None) -> Any:
        least = -np.inf if self._dtype is np.float64 else np.iinfo(np.int64).min
        return self._dtype(least if now is None else now)

    def _take(self, found: Matches) -> None:
        """Lets further matches wait."""
        count, lines = found.count, newest_first(found)
        last = self._place(lines[:, 0])
        after, until, applies = [], [], []
        for lapse in self._lapses:
            low, low_known = self._moment(lapse.interval.after, found)
            high, high_known = self._moment(lapse.interval.until, found)
            there = np.zeros(count, np.bool_)
            for variable in lapse.group:
                there |= found.nth(variable, 1) >= 0
            after.append(low)
            until.append(high)
            applies.append(there & low_known & high_known)
        self._pending = joined([p for p in (self._pending, found) if p.count], self._output)
        self._lines = newest_first(self._pending)
        self._key_of = np.concatenate([self._key_of, self._seen.key[last]])
        self._after = np.concatenate([self._after, np.stack(after)], axis=1)
        self._until = np.concatenate([self._until, np.stack(until)], axis=1)
        self._applies = np.concatenate([self._applies, np.stack(applies)], axis=1)
        least = self._time(None)
        due = np.where(np.stack(applies), np.stack(until), least).max(axis=0)
        # what is over before the last event is known with it
        due = np.where(due < self._seen.ends[last], least, due)
        self._due = np.concatenate([self._due, due.astype(self._dtype)])

    def _keep(self, kept: npt.NDArray[np.intp]) -> None:
        self._pending, self._key_of = self._pending.pick(kept), self._key_of[kept]
        self._lines = self._lines[kept]
        self._after, self._until = self._after[:, kept], self._until[:, kept]
        self._applies, self._due = self._applies[:, kept], self._due[kept]

    def _spoilt(self, begin: int, first: int = 0) -> Bools:
        """Which of the matches from `first` on an event spoils, of those from `begin` on."""
        spoilt = np.zeros(self._pending.count - first, np.bool_)
        keys = self._key_of[first:]
        own = self._lines[first:]
        for number, lapse in enumerate(self._lapses):
            events = begin + np.flatnonzero(self._seen.mask[begin:] & lapse.bit)
            judged = np.flatnonzero(self._applies[number, first:] & ~spoilt)
            if not len(events) or not len(judged):
                continue
            events = events[np.argsort(self._seen.key[events], kind="stable")]
            of_key = self._seen.key[events]
            wrong = np.zeros(len(judged), np.bool_)
            spoil(
                np.searchsorted(of_key, keys[judged]),
                np.searchsorted(of_key, keys[judged], side="right"),
                self._seen.starts[events], self._seen.ends[events], self._seen.rows[events],
                self._after[number, first:][judged], self._until[number, first:][judged],
                own[judged], wrong,
            )  # fmt: skip
            spoilt[judged] |= wrong
        return spoilt

    # ---------------------------------------------------------------------------- moments

    def _place(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        return np.minimum(np.searchsorted(self._seen.rows, rows), max(self._seen.count - 1, 0))

    def _moment(self, end: Expr, found: Matches) -> Known:
        """An end of an interval in each match."""
        count = found.count
        match end:
            case Field(variable=variable, name=name, at=at, nth=nth):
                rows = found.nth(variable, -1 if at is At.LAST else nth)
                times = self._seen.starts if name == self._start else self._seen.ends
                return times[self._place(rows)], rows >= 0
            case Literal(value=value):
                return np.full(count, self._constant(value), self._dtype), np.ones(count, np.bool_)
            case Binary(operator=sign, left=left, right=right):
                (a, a_known), (b, b_known) = (self._moment(e, found) for e in (left, right))
                total = a + b if sign == "+" else a - b
                rough = a.astype(np.float64) + (1 if sign == "+" else -1) * b.astype(np.float64)
                fits = np.abs(rough) < 2.0**63 if self._dtype is np.int64 else rough == rough
                return total, a_known & b_known & fits
            case Call(function=name, arguments=arguments):
                best, known = self._moment(arguments[0], found)
                for one in arguments[1:]:
                    other, there = self._moment(one, found)
                    better = other > best if name == "greatest" else other < best
                    best = np.where(there & (better | ~known), other, best)
                    known = known | there
                return best, known
            case _:
                raise AssertionError(end)

    def _constant(self, value: object) -> int | float:
        """A constant in the units of the time arrays."""
        match value:
            case datetime():
                micros = (instant(value) - _EPOCH) // _MICROSECOND
            case timedelta():
                micros = value // _MICROSECOND
            case int() | float():
                return value
            case _:
                raise AssertionError(value)
        return micros * 1_000 // self._scale

    # ---------------------------------------------------------------------------- forgetting

    def _forget(self, now: float | None) -> None:
        """Drops the events that no match to come can name, and no interval of one can hold."""
        if self._length is None or now is None or self._seen.count < 2 * self._kept + FEW:
            return
        backs = [lapse.back for lapse in self._lapses if lapse.back is not None]
        longest = self._length + max(backs, default=0.0)
        alive = now - self._seen.ends <= longest
        for lapse in self._lapses:
            if lapse.back is None:
                low, high = (
                    self._constant(end.value) if isinstance(end, Literal) else math.nan
                    for end in (lapse.interval.after, lapse.interval.until)
                )
                inside = (self._seen.starts > low) & (self._seen.ends <= high)
                alive |= ((self._seen.mask & lapse.bit) != 0) & inside
        if 2 * int(alive.sum()) <= len(alive):
            self._seen.keep(alive)
            self._new = self._seen.count
        self._kept = self._seen.count

    def live_keys(self, count: int) -> Bools:
        """The keys of events and matches that are held, of so many."""
        alive = np.zeros(count, np.bool_)
        alive[self._seen.key] = True
        alive[self._key_of] = True
        return alive

    def keep_keys(self, kept: npt.NDArray[np.intp]) -> None:
        """Goes on with these keys, numbered from 0."""
        if len(kept):
            self._seen.set("key", np.searchsorted(kept, self._seen.key))
            self._key_of = np.searchsorted(kept, self._key_of)

    # ---------------------------------------------------------------------------- what is alive

    @property
    def waiting(self) -> int:
        """How many matches wait."""
        return self._pending.count

    @property
    def is_blank(self) -> bool:
        return not self._pending.count and not self._seen.count

    @property
    def nbytes(self) -> int:
        return self._seen.nbytes + self._pending.nbytes + 3 * self._until.nbytes

    def rows(self) -> npt.NDArray[np.int64]:
        """The rows of the matches that wait."""
        return np.unique(self._lines[self._lines >= 0])

    def deadline(self) -> float | None:
        """The time after which one of them is certain."""
        return self._due.min().item() if len(self._due) else None

    # ---------------------------------------------------------------------------- saving

    def save(self) -> Arrays:
        arrays = {name: getattr(self, f"_{name}") for name in _SAVED}
        arrays |= {name: getattr(self._seen, name) for name in NAMES}
        arrays = {f"lapse {name}": array for name, array in arrays.items()}
        return {**arrays, **as_arrays(self._pending, "lapse")}

    def restore(self, saved: Arrays) -> None:
        arrays = {n.removeprefix("lapse "): a for n, a in saved.items() if n.startswith("lapse ")}
        for name in _SAVED:
            setattr(self, f"_{name}", arrays[name])
        self._seen.add(**{name: arrays[name] for name in NAMES})
        self._new = self._seen.count
        variables, count = self._pending.variables, len(self._due)
        self._pending = from_arrays(saved, "lapse", variables, self._kleene, count)
        self._lines = newest_first(self._pending)


_SAVED = ("key_of", "after", "until", "applies", "due")


def _groups(pattern: Pattern) -> list[tuple[Interval, str, tuple[str, ...]]]:
    """Each interval with its variable and those of the SEQ or AND it is in."""
    found = []
    for part in parts(pattern):
        if is_lapse(part):
            assert part.interval is not None
            group = tuple(a.variable for a in positives(pattern))
            found.append((part.interval, next(atoms(part)).variable, group))
        else:
            found += _groups(part)
    return found
