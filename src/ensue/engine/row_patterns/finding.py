"""Finds the matches of a clause in partitions of rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ensue.algebra.predicate import Field
from ensue.algebra.row_patterns.recognition import Rows, SkipTo
from ensue.columns.arrow_kinds import Unit
from ensue.columns.buffers import Ints
from ensue.computed import cached_property
from ensue.engine.interrupts import interruptible
from ensue.engine.row_patterns.found import Found, Labels, Search
from ensue.engine.row_patterns.judging import Judges
from ensue.engine.row_patterns.masks import masks
from ensue.engine.row_patterns.partitions import Partitions
from ensue.engine.row_patterns.plain import PlainConditions, TooMuchWorkError
from ensue.engine.row_patterns.possible import Possible, TooManyStatesError
from ensue.errors import LimitError, SkipError
from ensue.kernels.jit import Loop
from ensue.plan.row_patterns.plan import RowPlan
from ensue.source import row_patterns as source
from ensue.source.cache import loop

_SKIPS = {SkipTo.PAST_LAST: 0, SkipTo.NEXT: 1, SkipTo.FIRST: 2, SkipTo.LAST: 3}
_STEPS = 1 << 34  # that a search from one row may take: some minutes
_FEW_STEPS = 1 << 17  # so many may be interpreted, which takes about a second
_SEEN = 1 << 24  # places that a search remembers at the most
LABELS = 1 << 22  # rows of matches that are handed over at a time
_MATCHES = 1 << 20


class Judge(Protocol):
    """Conditions that look at the match so far: the kernel that has them, and what it is given."""

    @property
    def kernel(self) -> Callable[..., int]: ...
    @property
    def wholes(self) -> int:
        """How many integers it remembers of the rows that it has mapped."""

    @property
    def reals(self) -> int: ...
    def arguments(self, partitions: Partitions) -> tuple[Any, ...] | None:
        """What it looks at: constants, integers and floats of rows, and whether they are there.

        None: it cannot judge these rows.
        """


class Finder:
    """Finds matches in one batch of rows after the other."""

    def __init__(self, plan: RowPlan) -> None:
        self.plan = plan
        self._possible = Possible(plan.automaton)
        self._judges = Judges(plan)
        choices = [choice for entry in plan.automaton.entries for choice in entry]
        lengths = [len(entry) for entry in plan.automaton.entries]
        self._choices: tuple[Ints, ...] = (
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.array([c.variable for c in choices], np.int64),
            np.array([c.entry for c in choices], np.int64),
            np.array([c.excluded + 2 * c.at_start + 4 * c.at_end for c in choices], np.int64),
        )
        skip = plan.recognition.skip
        numbers = {name: number for number, name in enumerate(plan.automaton.variables)}
        self._skip = _SKIPS[skip.to], sum(1 << numbers[name] for name in skip.variables)

    @cached_property
    def _plain(self) -> Judge:
        return PlainConditions(self.plan)

    def judge(self, partitions: Partitions) -> tuple[Judge, tuple[Any, ...]]:
        """Who decides where rows alone do not, and what it is given: a kernel where one takes all
        conditions, else their plain meaning."""
        for judge in self._judges.of(partitions.unit):
            values = judge.arguments(partitions)
            if values is not None:
                return judge, values
        values = self._plain.arguments(partitions)
        assert values is not None
        return self._plain, values

    def find(self, partitions: Partitions, search: Search) -> Iterator[Found]:
        """The matches that rows to come cannot change, in the order of partitions and rows.

        `search` is moved on: to the first row of each partition that is not decided.
        """
        mask = masks(self.plan, partitions)
        bounds = partitions.bounds
        ahead = self.plan.awaited
        limits = np.where(search.opened, np.maximum(bounds[1:] - ahead, bounds[:-1]), bounds[1:])
        judged = not self.plan.decided_by_rows
        try:
            alive = self._possible.of(mask, bounds, limits, search.opened, search.begun)
            sets = self._possible.members()
        except TooManyStatesError:  # then the search comes back where it went wrong
            judged = True
            alive = np.zeros(partitions.rows + len(partitions), np.int32)
            sets = np.ones((1, len(self.plan.automaton.entries)), np.uint8)
        run = _Run(
            self.plan, partitions, search, self.plan.recognition.rows is Rows.ALL_AND_UNMATCHED
        )
        fixed: tuple[Any, ...] = (mask, alive, sets, *self._choices, bounds, limits)
        fixed += (search.opened, search.begun, *self._skip)
        state = (search.position, search.number, search.covered)
        if judged:
            judge, values = self.judge(partitions)
            given = self._given(partitions, search, judge, values)
            plain = isinstance(judge, PlainConditions)  # which counts its own work
            run.most_steps = _STEPS if plain else _FEW_STEPS
            yield from run.search(judge.kernel, (*fixed, *state), given)
        else:
            kernel = loop(source.search_text(), "search")
            yield from run.search(kernel, (*fixed, *state), None)

    def _given(
        self, partitions: Partitions, search: Search, judge: Judge, values: tuple[Any, ...]
    ) -> "_Given":
        recognition = self.plan.recognition
        times: npt.NDArray[Any] = np.zeros(1, np.int64)
        horizon: float = -1
        now: npt.NDArray[Any] = np.zeros(1, np.int64)
        if recognition.within is not None:
            vector = partitions.vector(recognition.order[0].expr)
            times = np.ascontiguousarray(vector.values)
            horizon = length_of(recognition.within, partitions.unit)
            least = np.finfo(np.float64).min if times.dtype.kind == "f" else np.iinfo(np.int64).min
            now = np.array([least if search.now is None else search.now], times.dtype)
        return _Given(judge.wholes, judge.reals, (now, horizon, times), values)


def length_of(within: timedelta | float, unit: Unit) -> int | float:
    """WITHIN in the unit of the times that it is compared with."""
    if isinstance(within, timedelta):
        micros = within // timedelta(microseconds=1)
        return micros * (1_000 if unit == "ns" else 1)
    return within


@dataclass
class _Given:
    """What a search with conditions on the match has beside the rows."""

    wholes: int
    reals: int
    time: tuple[Any, ...]
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        self.room(1 << 10, 1 << 12)

    def room(self, stack: int, seen: int) -> None:
        self.stack = np.zeros((stack, 3 + self.wholes), np.int64)
        self.stack_reals = np.zeros((stack, max(1, self.reals)), np.float64)
        self.seen = np.zeros((seen, 3 + self.wholes), np.int64)
        self.seen_reals = np.zeros((seen, max(1, self.reals)), np.float64)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (
            self.stack, self.stack_reals, self.seen, self.seen_reals, *self.time, *self.values,
        )  # fmt: skip


class _Run:
    """One search over some partitions: makes room and hands over what was found."""

    def __init__(
        self, plan: RowPlan, partitions: Partitions, search: Search, unmatched: bool
    ) -> None:
        self._plan = plan
        self._partitions = partitions
        self._search = search
        self._meta = np.zeros(8, np.int64)
        self._wants_unmatched = unmatched
        self._make_room(min(LABELS, partitions.rows + 1))

    def _make_room(self, labels: int) -> None:
        rows = self._partitions.rows
        self._matches = [np.empty(min(_MATCHES, rows + 1), np.int64) for _ in range(4)]
        self._labels: Labels = np.empty(labels, np.int16)
        self._unmatched = np.empty(rows + 1 if self._wants_unmatched else 1, np.int64)

    def search(
        self, kernel: Callable[..., int], fixed: tuple[Any, ...], given: _Given | None
    ) -> Iterator[Found]:
        meta = self._meta
        while True:
            arguments = (
                *fixed, *self._matches, self._labels, self._unmatched, self._wants_unmatched, meta,
                *(given.arguments if given is not None else ()),
            )  # fmt: skip
            try:
                code = interruptible(lambda a=arguments: kernel(*a), self._stop)  # type: ignore[misc]
            except TooMuchWorkError as error:
                meta[source.PARTITION], meta[source.ROW] = error.partition, error.row
                raise self._too_long() from None
            match code:
                case source.DONE:
                    yield self._handed_over()
                    return
                case source.MATCHES_FULL | source.LABELS_FULL | source.UNMATCHED_FULL:
                    if meta[source.MATCHES] or meta[source.UNMATCHED]:
                        yield self._handed_over()
                    else:
                        self._labels = np.empty(4 * len(self._labels) + 64, np.int16)
                case source.STACK_FULL:
                    assert given is not None
                    given.room(4 * len(given.stack), len(given.seen))
                case source.SEEN_FULL:
                    assert given is not None
                    if len(given.seen) >= _SEEN:
                        raise self._too_long()
                    given.room(len(given.stack), 4 * len(given.seen))
                case source.TOO_LONG if self.most_steps == _FEW_STEPS:
                    self.most_steps = _STEPS
                    if isinstance(kernel, Loop):  # interpreted, so many would take long
                        kernel.compile_for(*arguments)
                case source.TOO_LONG:
                    raise self._too_long()
                case source.STOPPED:
                    raise KeyboardInterrupt
                case _:
                    raise self._no_way_on(code)

    @property
    def most_steps(self) -> int:
        """How many steps a search from one row may take."""
        return int(self._meta[source.MOST_STEPS])

    @most_steps.setter
    def most_steps(self, most: int) -> None:
        self._meta[source.MOST_STEPS] = most

    def _too_long(self) -> LimitError:
        _, begins = self._told()
        return LimitError(
            f"the search for a match that {begins} was given up: there are too many ways to map "
            "rows to "
            "variables, because conditions look at the match so far\n"
            "  hint: bound the match with WITHIN or with numbers in {n,m}, or add conditions "
            "on single rows"
        )

    def _told(self) -> tuple[int, str]:
        """The partition of the match that is spoken of, and how it begins, in words."""
        recognition, meta = self._plan.recognition, self._meta
        partition, row = int(meta[source.PARTITION]), int(meta[source.ROW])
        columns = {key.name: key.column or key.name for key in recognition.partition}
        for by in recognition.order:
            if isinstance(by.expr, Field) and by.expr.name is not None:
                columns.setdefault(by.expr.name, by.expr.name)
        place = int(self._partitions.places(np.array([row]))[0])
        table = self._partitions.table
        values = {name: table.column(column)[place] for name, column in columns.items()}
        told = ", ".join(f"{name} = {value.as_py()!r}" for name, value in values.items())
        begins = f"begins with the row {told}" if told else f"begins with row {place}"
        return partition, begins

    def _stop(self) -> None:
        self._meta[source.STOP] = 1

    def _handed_over(self) -> Found:
        meta = self._meta
        count, used, missed = (
            int(meta[k]) for k in (source.MATCHES, source.LABELS, source.UNMATCHED)
        )
        starts, stops, numbers, partitions = (column[:count] for column in self._matches)
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(stops - starts, out=offsets[1:])
        found = Found(
            starts, stops, numbers, partitions, self._labels[:used], offsets,
            self._unmatched[:missed],
        )  # fmt: skip
        meta[source.MATCHES] = meta[source.LABELS] = meta[source.UNMATCHED] = 0
        self._make_room(len(self._labels))  # these arrays belong to what was found
        return found

    def _no_way_on(self, code: int) -> SkipError:
        """Why the search cannot go on behind a match."""
        partition, begins = self._told()
        number = int(self._search.number[partition])
        skip = self._plan.recognition.skip
        what = f"AFTER MATCH SKIP {skip.to.value} {skip.name}: match {number}, which {begins},"
        if code == source.NO_ROW_TO_SKIP_TO:
            return SkipError(
                f"{what} has no row of {skip.name}\n"
                f"  hint: require {skip.name} in every match, or SKIP PAST LAST ROW"
            )
        return SkipError(
            f"{what} has {skip.name} as its first row, so the same match would be found for ever\n"
            "  hint: SKIP TO NEXT ROW, or PAST LAST ROW, or to a variable that comes later"
        )
