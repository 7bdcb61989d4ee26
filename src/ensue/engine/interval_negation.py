"""Negation with an explicit interval: matches wait until the interval has passed without an event.

The kernel finds matches without checking these intervals. This filter stores the events that may
lie in an interval or bound one, and the matches that are still undecided.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.analyzer.time_bounds import compute_interval_distance
from ensue.engine.match_output import concat_matches, list_rows_newest_first
from ensue.engine.program import Program
from ensue.engine.scan import ScannedBatch
from ensue.engine.state_format import Arrays
from ensue.ir.expression import Binary, EventPosition, Expr, FieldRef, FunctionCall, Literal
from ensue.ir.pattern import Interval, Pattern
from ensue.ir.traits import get_parts, is_interval_negation
from ensue.ir.traversal import get_kleene_variables, iterate_atoms, iterate_positive_atoms
from ensue.ir.values import to_instant
from ensue.kernels.match_selection import mark_violations
from ensue.vector.match_rows import Matches

Column = npt.NDArray[Any]
NAMES = ("rows", "key", "mask", "starts", "ends")


class SeenEvents:
    """Growing columns of events in stream order."""

    def __init__(self, time: type[np.float64] | type[np.int64]) -> None:
        self._room = {n: np.zeros(0, time if n in ("starts", "ends") else np.int64) for n in NAMES}
        self.count = 0

    def add(self, **columns: Column) -> None:
        """Append the columns of events."""
        more = len(columns["rows"])
        if self.count + more > len(self._room["rows"]):
            size = max(2 * self.count, self.count + more)
            for name, old in self._room.items():
                self._room[name] = np.zeros(size, old.dtype)
                self._room[name][: self.count] = old[: self.count]
        for name, values in columns.items():
            self._room[name][self.count : self.count + more] = values
        self.count += more

    def keep(self, alive: npt.NDArray[np.bool_]) -> None:
        """Keep only the events of a mask."""
        self._room = {name: self[name][alive] for name in NAMES}
        self.count = len(self._room["rows"])

    def __getitem__(self, name: str) -> Column:
        return self._room[name][: self.count]

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._room.values())


def matches_to_arrays(matches: Matches, prefix: str) -> Arrays:
    """Convert matches to named arrays: the offsets and rows of each variable."""
    arrays: Arrays = {}
    for variable in matches.variables:
        offsets, rows = matches.segments(variable)
        arrays |= {f"{prefix} offsets {variable}": offsets, f"{prefix} rows {variable}": rows}
    return arrays


def matches_from_arrays(
    arrays: Arrays, prefix: str, variables: Iterable[str], kleene: Collection[str], count: int
) -> Matches:
    """Restore the matches that `matches_to_arrays` converted.

    >>> matches = Matches({"a": np.array([4, -1])}, {}, 2)
    >>> matches_from_arrays(matches_to_arrays(matches, "x"), "x", ["a"], (), 2).rows
    {'a': array([ 4, -1])}
    """
    rows, lists = {}, {}
    for variable in variables:
        offsets, bound = (arrays[f"{prefix} {what} {variable}"] for what in ("offsets", "rows"))
        if variable in kleene:
            lists[variable] = (offsets, bound)
            continue
        rows[variable] = np.full(count, -1, np.int64)
        rows[variable][np.diff(offsets) > 0] = bound
    return Matches(rows, lists, count)


Times = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Known = tuple[Times, Bools]  # values, and where they are valid

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FEW = 1_024  # fewer new events than this do not trigger a cleanup


@dataclass(frozen=True, slots=True)
class NegatedInterval:
    """A negation with an interval; it applies to matches that bind a variable of `group`."""

    bit: int
    interval: Interval
    group: tuple[str, ...]
    back: float | None  # how far the interval reaches before a match; None: between two constants


class IntervalNegationFilter:
    """Holds matches back until their negated intervals have passed."""

    def __init__(self, program: Program) -> None:
        frame, query, schema = program.frame, program.plan.query, program.schema
        self._start, self._intervals = schema.start, schema.intervals
        self._output = program.source.output
        self._dtype = np.float64 if frame.real_time else np.int64
        self._scale = 1 if frame.ticks_per_second != 1e6 else 1_000  # nanoseconds in a unit
        self._length, self._kleene = frame.window, get_kleene_variables(query.pattern)
        self._lapses = []
        for interval, variable, group in _groups(query.pattern):
            looks = compute_interval_distance(interval, query, schema)
            back = math.inf if looks is None else looks.back
            back = None if back is None else float(back) / self._scale
            bit = 1 << frame.bit(variable)
            self._lapses.append(NegatedInterval(bit, interval, group, back))
        self._seen = SeenEvents(self._dtype)
        self._kept = 0  # events left by the last cleanup
        self._new = 0  # the first event that held matches were not checked against
        self._pending = concat_matches([], self._output)
        self._lines = list_rows_newest_first(self._pending)  # the rows of each held match
        self._key_of = np.zeros(0, np.int64)  # of each held match
        self._after, self._until = (np.zeros((len(self._lapses), 0), self._dtype) for _ in "ab")
        self._applies = np.zeros((len(self._lapses), 0), np.bool_)
        self._due = np.zeros(0, self._dtype)

    def add_batch(self, scanned: ScannedBatch, first: int) -> None:
        """Store the events of a batch whose first row is `first`."""
        here = np.flatnonzero((scanned.mask != 0) & (scanned.key >= 0))
        if not len(here):
            return
        self._seen.add(
            rows=here + first, key=scanned.key[here], mask=scanned.mask[here],
            starts=scanned.starts[here], ends=scanned.ends[here],
        )  # fmt: skip

    def __call__(self, matches: Matches, now: float | None, *, over: bool) -> Matches:
        """Add the matches of a kernel and return the decided ones."""
        if self._pending.count and self._new < self._seen.count:
            violated = self._find_violated(self._new)
            if violated.any():
                self._keep(np.flatnonzero(~violated))
        if matches.count:
            waiting = self._pending.count
            self._take(matches)
            violated = np.zeros(self._pending.count, np.bool_)
            violated[waiting:] = self._find_violated(0, waiting)
            if violated.any():
                self._keep(np.flatnonzero(~violated))
        self._new = self._seen.count
        certain = np.full(self._pending.count, True) if over else self._due < self._time(now)
        decided = self._pending.where(certain)
        if decided.count:
            self._keep(np.flatnonzero(~certain))
        self._evict(now)
        return decided

    def _time(self, now: float | None) -> Any:
        least = -np.inf if self._dtype is np.float64 else np.iinfo(np.int64).min
        return self._dtype(least if now is None else now)

    def _take(self, matches: Matches) -> None:
        """Hold further matches back."""
        count, lines = matches.count, list_rows_newest_first(matches)
        last = self._place(lines[:, 0])
        shape = len(self._lapses), count
        after, until = np.empty(shape, self._dtype), np.empty(shape, self._dtype)
        applies = np.zeros(shape, np.bool_)
        for number, lapse in enumerate(self._lapses):
            after[number], low_known = self._moment(lapse.interval.after, matches)
            until[number], high_known = self._moment(lapse.interval.until, matches)
            for variable in lapse.group:
                applies[number] |= matches.nth(variable, 1) >= 0
            applies[number] &= low_known & high_known
        self._pending = concat_matches([p for p in (self._pending, matches) if p.count], self._output)
        self._lines = list_rows_newest_first(self._pending)
        self._key_of = np.concatenate([self._key_of, self._seen["key"][last]])
        self._after = np.concatenate([self._after, after], axis=1)
        self._until = np.concatenate([self._until, until], axis=1)
        self._applies = np.concatenate([self._applies, applies], axis=1)
        least = self._time(None)
        due = np.where(applies, until, least).max(axis=0)
        # an interval before the last event is decided already
        due = np.where(due < self._seen["ends"][last], least, due)
        self._due = np.concatenate([self._due, due.astype(self._dtype)])

    def _keep(self, selected: npt.NDArray[np.intp]) -> None:
        self._pending, self._key_of = self._pending.pick(selected), self._key_of[selected]
        self._lines = self._lines[selected]
        self._after, self._until = self._after[:, selected], self._until[:, selected]
        self._applies, self._due = self._applies[:, selected], self._due[selected]

    def _find_violated(self, begin: int, first: int = 0) -> Bools:
        """Which matches from `first` on are violated by an event from `begin` on."""
        violated = np.zeros(self._pending.count - first, np.bool_)
        keys = self._key_of[first:]
        own = self._lines[first:]
        for number, lapse in enumerate(self._lapses):
            events = begin + np.flatnonzero(self._seen["mask"][begin:] & lapse.bit)
            judged = np.flatnonzero(self._applies[number, first:] & ~violated)
            if not len(events) or not len(judged):
                continue
            events = events[np.argsort(self._seen["key"][events], kind="stable")]
            of_key = self._seen["key"][events]
            wrong = np.zeros(len(judged), np.bool_)
            mark_violations(
                np.searchsorted(of_key, keys[judged]),
                np.searchsorted(of_key, keys[judged], side="right"),
                self._seen["starts"][events], self._seen["ends"][events], self._seen["rows"][events],
                self._after[number, first:][judged], self._until[number, first:][judged],
                own[judged], wrong,
            )  # fmt: skip
            violated[judged] |= wrong
        return violated

    def _place(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        return np.minimum(np.searchsorted(self._seen["rows"], rows), max(self._seen.count - 1, 0))

    def _moment(self, end: Expr, matches: Matches) -> Known:
        """Evaluate an interval bound for each match."""
        count = matches.count
        match end:
            case FieldRef(variable=variable, name=name, at=at, nth=nth):
                rows = matches.nth(variable, -1 if at is EventPosition.LAST else nth)
                times = self._seen["starts"] if name == self._start else self._seen["ends"]
                return times[self._place(rows)], rows >= 0
            case Literal(value=value):
                return np.full(count, self._constant(value), self._dtype), np.ones(count, np.bool_)
            case Binary(operator=sign, left=left, right=right):
                (a, a_known), (b, b_known) = (self._moment(e, matches) for e in (left, right))
                total = a + b if sign == "+" else a - b
                rough = a.astype(np.float64) + (1 if sign == "+" else -1) * b.astype(np.float64)
                fits = np.abs(rough) < 2.0**63 if self._dtype is np.int64 else rough == rough
                return total, a_known & b_known & fits
            case FunctionCall(function=name, arguments=arguments):
                best, known = self._moment(arguments[0], matches)
                for argument in arguments[1:]:
                    other, valid = self._moment(argument, matches)
                    better = other > best if name == "greatest" else other < best
                    best = np.where(valid & (better | ~known), other, best)
                    known = known | valid
                return best, known
            case _:
                raise AssertionError(end)

    def _constant(self, value: object) -> int | float:
        """Convert a constant to the unit of the time arrays."""
        if isinstance(value, int | float):
            return value
        length = value if isinstance(value, timedelta) else to_instant(value) - _EPOCH
        return length // _MICROSECOND * 1_000 // self._scale

    def _evict(self, now: float | None) -> None:
        """Drop the events that no later match can bind and no interval can contain."""
        if self._length is None or now is None or self._seen.count < 2 * self._kept + FEW:
            return
        backs = [lapse.back for lapse in self._lapses if lapse.back is not None]
        longest = self._length + max(backs, default=0.0)
        alive = now - self._seen["ends"] <= longest
        for lapse in self._lapses:
            if lapse.back is None:
                low, high = (
                    self._constant(end.value) if isinstance(end, Literal) else math.nan
                    for end in (lapse.interval.after, lapse.interval.until)
                )
                inside = (self._seen["starts"] > low) & (self._seen["ends"] <= high)
                alive |= ((self._seen["mask"] & lapse.bit) != 0) & inside
        if 2 * int(alive.sum()) <= len(alive):
            self._seen.keep(alive)
            self._new = self._seen.count
        self._kept = self._seen.count

    def live_keys(self, count: int) -> Bools:
        """Which of `count` keys have stored events or held matches."""
        alive = np.zeros(count, np.bool_)
        alive[self._seen["key"]] = True
        alive[self._key_of] = True
        return alive

    def keep_keys(self, kept: npt.NDArray[np.intp]) -> None:
        """Renumber the keys after an eviction that keeps `kept`."""
        if len(kept):
            self._seen["key"][:] = np.searchsorted(kept, self._seen["key"])
            self._key_of = np.searchsorted(kept, self._key_of)

    @property
    def waiting(self) -> int:
        """The number of held matches."""
        return self._pending.count

    @property
    def is_blank(self) -> bool:
        return not self._pending.count and not self._seen.count

    @property
    def nbytes(self) -> int:
        return self._seen.nbytes + self._pending.nbytes + 3 * self._until.nbytes

    def rows(self) -> npt.NDArray[np.int64]:
        """The rows of the held matches."""
        return np.unique(self._lines[self._lines >= 0])

    def next_timer(self) -> float | None:
        """The earliest time after which a held match is decided."""
        return self._due.min().item() if len(self._due) else None

    def snapshot(self) -> Arrays:
        arrays = {name: getattr(self, f"_{name}") for name in _SAVED}
        arrays |= {name: self._seen[name] for name in NAMES}
        arrays = {f"lapse {name}": array for name, array in arrays.items()}
        return {**arrays, **matches_to_arrays(self._pending, "lapse")}

    def restore(self, saved: Arrays) -> None:
        arrays = {n.removeprefix("lapse "): a for n, a in saved.items() if n.startswith("lapse ")}
        for name in _SAVED:
            setattr(self, f"_{name}", arrays[name])
        self._seen.add(**{name: arrays[name] for name in NAMES})
        self._new = self._seen.count
        variables, count = self._pending.variables, len(self._due)
        self._pending = matches_from_arrays(saved, "lapse", variables, self._kleene, count)
        self._lines = list_rows_newest_first(self._pending)


_SAVED = ("key_of", "after", "until", "applies", "due")


def _groups(pattern: Pattern) -> list[tuple[Interval, str, tuple[str, ...]]]:
    """List each interval with its variable and the variables of the surrounding SEQ or AND."""
    groups = []
    for part in get_parts(pattern):
        if is_interval_negation(part):
            assert part.interval is not None
            group = tuple(a.variable for a in iterate_positive_atoms(pattern))
            groups.append((part.interval, next(iterate_atoms(part)).variable, group))
        else:
            groups += _groups(part)
    return groups
