"""Searches partitions of rows for the matches of a MATCH_RECOGNIZE clause."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.cached import cached_property
from ensue.codegen import row_pattern_search
from ensue.codegen.kernel_cache import get_loop
from ensue.engine.interrupts import run_interruptibly
from ensue.engine.row_match.predicates import (
    CompiledConditions,
    ConditionKernels,
    InterpretedConditions,
    TooMuchWorkError,
)
from ensue.engine.row_match.row_partitions import Partitions
from ensue.errors import LimitError, SkipError
from ensue.ir.expression import Aggregate, Expr, FieldRef
from ensue.ir.row_pattern import Navigation, RowExpression, RowSkipTarget, RowsPerMatch
from ensue.kernels.jit import JitFunction
from ensue.kernels.row_search import UNKNOWN, Masks, clear_failed, propagate_backwards
from ensue.planner.row_pattern_plan import END, RowPatternAutomaton, RowPatternPlan, RowTransition
from ensue.vector.arrow_numpy import Bools, Ints
from ensue.vector.arrow_types import Unit
from ensue.vector.column_values import Vector, truth
from ensue.vector.evaluation import evaluate

_DENSE = 10  # up to this number of variables every combination has a symbol
_STATES = 20_000  # limit of lazily built states
_CELLS = 1 << 26  # limit of the transition table


class TooManyStatesError(Exception):
    """The lazily built automaton exceeds its limits."""


@dataclass
class Reachability:
    """The backward automaton of a pattern, shared between batches of rows.

    For every gap between two rows it tells which pattern positions can still reach a match. A backward
    pass over the rows computes the set of automaton entries from which the end can be reached. These
    sets are the states of an automaton that is built lazily.
    """

    automaton: RowPatternAutomaton
    sets: list[int] = field(default_factory=list)  # the entries of each state, as bits
    numbers: dict[int, int] = field(default_factory=dict)
    symbols: dict[int, int] = field(default_factory=dict)  # of combinations of variables
    table: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0), np.int32))

    def __post_init__(self) -> None:
        entries = self.automaton.entries
        width = len(entries) // 8 + 1
        self._moves = _moves(self.automaton)
        numbered = list(enumerate(entries))
        # without $: of all rows, and of the first row of a partition
        ends = (RowTransition(END, at_start=at_start) for at_start in (False, True))
        self._ends = [_bits([e for e, cs in numbered if end in cs], width) for end in ends]
        is_end = lambda choice: choice.variable == END and not choice.at_start
        self.closed = self._state(_bits([e for e, cs in numbered if any(map(is_end, cs))], width))
        self.opened = self._state(self._possible_later())

    def _possible_later(self) -> int:
        """The entries from which later rows, none of them the first, can complete a match."""
        entries = self.automaton.entries
        before: list[list[int]] = [[] for _ in entries]
        stack = []
        for entry, choices in enumerate(entries):
            for choice in choices:
                if choice.at_start:
                    continue
                if choice.variable == END:
                    stack.append(entry)
                else:
                    before[choice.entry].append(entry)
        reached: set[int] = set()
        while stack:
            entry = stack.pop()
            if entry not in reached:
                reached.add(entry)
                stack += before[entry]
        return _bits(list(reached), len(entries) // 8 + 1)

    def compute(self, mask: Masks, bounds: Ints, limits: Ints, opened: Bools, begun: Bools) -> npt.NDArray[np.int32]:
        """The state of each gap; `mask` has the variables that each row may be mapped to."""
        symbols, distinct = self._symbols(mask)
        last = np.where(opened, self.opened, self.closed).astype(np.int32)
        alive = np.zeros(len(mask) + len(bounds) - 1, np.int32)
        place = np.array([0, -1], np.int64)
        while True:
            row = propagate_backwards(symbols, bounds, limits, last, begun, len(self.symbols), self.table, alive, place)
            if row < 0:
                return alive
            state = alive[place[1] + place[0]]
            first = row == bounds[place[0]] and not begun[place[0]]
            symbol = symbols[row] + (len(self.symbols) if first else 0)
            before = self._state(self._before(self.sets[state], distinct[symbols[row]], first))
            self.table[state, symbol] = before

    def members(self) -> npt.NDArray[np.uint8]:
        """For each state, which entries it contains."""
        count = len(self.automaton.entries)
        width = (count + 7) // 8
        raw = b"".join(s.to_bytes(width, "little") for s in self.sets)
        bits = np.frombuffer(raw, np.uint8).reshape(len(self.sets), width)
        return np.ascontiguousarray(np.unpackbits(bits, axis=1, bitorder="little")[:, :count])

    def _symbols(self, mask: Masks) -> tuple[Masks, list[int]]:
        """The symbol of each row, and the variables of each symbol."""
        variables = len(self.automaton.variables)
        if variables <= _DENSE:
            if not self.symbols:
                self.symbols = {value: value for value in range(1 << variables)}
                self._widen()
            return mask, list(range(1 << variables))
        known, codes = np.unique(mask, return_inverse=True)
        new = [int(value) for value in known if int(value) not in self.symbols]
        if new:
            for value in new:
                self.symbols[value] = len(self.symbols)
            self.table = np.empty((0, 0), np.int32)  # the symbols of first rows have moved
            self._widen()
        numbers = np.array([self.symbols[int(value)] for value in known], np.int64)
        return numbers[codes], list(self.symbols)

    def _state(self, entries: int) -> int:
        if entries not in self.numbers:
            self.numbers[entries] = len(self.sets)
            self.sets.append(entries)
            self._widen()
        return self.numbers[entries]

    def _widen(self) -> None:
        states, symbols = len(self.sets), 2 * len(self.symbols)
        if not symbols or (self.table.shape[0] >= states and self.table.shape[1] == symbols):
            return
        rows = max(16, 2 * states)
        if states > _STATES or rows * symbols > _CELLS:
            raise TooManyStatesError
        wider = np.full((rows, symbols), UNKNOWN, np.int32)
        if self.table.shape[1] == symbols:
            wider[: len(self.table)] = self.table
        self.table = wider

    def _before(self, after: int, mask: int, first: bool) -> int:
        """The final entries, and those from which a row with these variables leads to `after`."""
        entries = self._ends[0] | (self._ends[1] if first else 0)
        for move, sources in self._moves:
            if mask >> move.variable & 1 and (first or not move.at_start):
                entries |= move.before(after) & sources
        return entries


class _Move(NamedTuple):
    """Transitions with the same relative or the same absolute target, handled together."""

    variable: int
    at_start: bool  # only at the first row of a partition
    shift: int | None
    entry: int | None

    def before(self, after: int) -> int:
        """The entries from which these transitions lead to one of `after`."""
        if self.shift is None:
            return -(after >> self.entry & 1) if self.entry is not None else 0
        return after >> self.shift if self.shift >= 0 else after << -self.shift


def _moves(automaton: RowPatternAutomaton) -> list[tuple[_Move, int]]:
    """Group the transitions, each group with its source entries as bits."""
    groups: dict[_Move, list[int]] = {}
    transitions: list[tuple[int, _Move, _Move]] = []
    for entry, choices in enumerate(automaton.entries):
        for c in choices:
            if c.variable != END:
                relative = _Move(c.variable, c.at_start, c.entry - entry, None)
                absolute = _Move(c.variable, c.at_start, None, c.entry)
                transitions.append((entry, relative, absolute))
    sizes = Counter(move for _, *moves in transitions for move in moves)
    for entry, relative, absolute in transitions:
        move = relative if sizes[relative] >= sizes[absolute] else absolute
        groups.setdefault(move, []).append(entry)
    width = len(automaton.entries) // 8 + 1
    return [(move, _bits(entries, width)) for move, entries in groups.items()]


def _bits(entries: list[int], width: int) -> int:
    bits = bytearray(width)
    for entry in entries:
        bits[entry >> 3] |= 1 << (entry & 7)
    return int.from_bytes(bits, "little")


Labels = npt.NDArray[np.int16]


@dataclass
class SearchState:
    """The position of the search in each partition."""

    position: Ints  # the first row from which no search was started
    number: Ints  # matches so far
    covered: Ints  # rows before this one belong to a match
    opened: Bools  # more rows may arrive
    begun: Bools  # earlier rows have been dropped
    now: float | None = None  # all rows with an earlier time have arrived

    @classmethod
    def from_complete(cls, bounds: Ints) -> "SearchState":
        """Start at the first row of complete partitions."""
        count = len(bounds) - 1
        return cls(
            bounds[:-1].copy(),
            np.zeros(count, np.int64),
            bounds[:-1].copy(),
            np.zeros(count, np.bool_),
            np.zeros(count, np.bool_),
        )


@dataclass(frozen=True, slots=True)
class RowMatches:
    """Matches: m has the rows `starts[m]` to `stops[m]`.

    `labels` from `offsets[m]` on are their variables; a row with the bit EXCLUDED is not output.
    """

    starts: Ints
    stops: Ints
    numbers: Ints
    partitions: Ints
    labels: Labels
    offsets: Ints
    unmatched: Ints  # rows without a match, if requested

    def __len__(self) -> int:
        return len(self.starts)


_IN_A_BYTE = 8  # variables


def compute_row_masks(plan: RowPatternPlan, partitions: Partitions) -> Masks:
    """The variables that each row by itself allows, as bits, in the order of the table."""
    variables = len(plan.conditions)
    type_ = np.uint8 if variables <= _IN_A_BYTE else np.int64
    mask: Masks = np.full(partitions.table.num_rows, (1 << variables) - 1, type_)
    _forbid([(n, c) for n, c in _list_conditions(plan) if not _reads_other_rows(c)], partitions.as_they_stand, mask)
    return mask


def compute_masks(plan: RowPatternPlan, partitions: Partitions) -> Masks:
    """The variables that each row and its neighbours allow, as bits."""
    # conditions on one row are evaluated in table order, so that only bits are permuted
    mask = partitions.row_masks
    if mask is None:
        mask = compute_row_masks(plan, partitions)
    mask = mask.copy() if partitions.order is None else mask[partitions.order]
    _forbid([(n, c) for n, c in _list_conditions(plan) if _reads_other_rows(c)], partitions, mask)
    if plan.row_pattern.within is not None:
        time = partitions.vector(plan.row_pattern.order[0].expr)
        if time.valid is not None:
            mask[~time.valid] = 0  # a row without a time is in no window
    return mask


def _list_conditions(plan: RowPatternPlan) -> list[tuple[int, RowExpression]]:
    """The conditions that are evaluated before the search, with the numbers of their variables."""
    return [(number, value) for number, c in enumerate(plan.conditions) for value in c.alone]


def _reads_other_rows(condition: RowExpression) -> bool:
    return any(isinstance(reach, Navigation) and reach.shift for reach in condition.operands)


def _forbid(conditions: list[tuple[int, RowExpression]], partitions: Partitions, mask: Masks) -> None:
    """Clear the bits of variables whose conditions do not hold."""
    neighbours: dict[tuple[Expr, int], Vector] = {}
    for number, condition in conditions:
        holds = truth(_values(condition, partitions, neighbours))
        clear_failed(holds, mask, mask.dtype.type(1 << number))


def _values(condition: RowExpression, partitions: Partitions, neighbours: dict[tuple[Expr, int], Vector]) -> Vector:
    def lookup(leaf: FieldRef | Aggregate) -> Vector:
        assert isinstance(leaf, FieldRef)
        reach = condition.reach(leaf)
        assert isinstance(reach, Navigation)
        key = reach.expr, reach.shift
        if key not in neighbours:
            neighbours[key] = partitions.shift(partitions.vector(reach.expr), reach.shift)
        return neighbours[key]

    return evaluate(condition.expr, lookup, partitions.rows, partitions.unit)


_SKIPS = {RowSkipTarget.PAST_LAST: 0, RowSkipTarget.NEXT: 1, RowSkipTarget.FIRST: 2, RowSkipTarget.LAST: 3}
_STEPS = 1 << 34  # steps of a search from one row: some minutes
_FEW_STEPS = 1 << 17  # steps that may be interpreted: about a second
_SEEN = 1 << 24  # states that a search stores at most
LABELS = 1 << 22  # rows of matches returned at a time
_MATCHES = 1 << 20


ConditionEvaluator = CompiledConditions | InterpretedConditions


class RowMatchFinder:
    """Finds matches in batches of rows."""

    def __init__(self, plan: RowPatternPlan) -> None:
        self.plan = plan
        self._possible = Reachability(plan.automaton)
        self._kernels = ConditionKernels(plan)
        choices = [choice for entry in plan.automaton.entries for choice in entry]
        lengths = [len(entry) for entry in plan.automaton.entries]
        self._choices: tuple[Ints, ...] = (
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.array([c.variable for c in choices], np.int64),
            np.array([c.entry for c in choices], np.int64),
            np.array([c.excluded + 2 * c.at_start + 4 * c.at_end for c in choices], np.int64),
        )
        skip = plan.row_pattern.skip
        numbers = {name: number for number, name in enumerate(plan.automaton.variables)}
        self._skip = _SKIPS[skip.to], sum(1 << numbers[name] for name in skip.variables)

    @cached_property
    def _plain(self) -> InterpretedConditions:
        return InterpretedConditions(self.plan)

    def judge(self, partitions: Partitions) -> tuple[ConditionEvaluator, tuple[Any, ...]]:
        """Choose a kernel that supports all conditions, else the interpreter, with arguments."""
        for judge in self._kernels.iterate_kernels(partitions.unit):
            values = judge.arguments(partitions)
            if values is not None:
                return judge, values
        return self._plain, self._plain.arguments(partitions)

    def find(self, partitions: Partitions, search: SearchState) -> Iterator[RowMatches]:
        """Yield the matches that later rows cannot change, by partition and row.

        `search` advances to the first undecided row of each partition.
        """
        mask = compute_masks(self.plan, partitions)
        bounds = partitions.bounds
        ahead = self.plan.awaited
        limits = np.where(search.opened, np.maximum(bounds[1:] - ahead, bounds[:-1]), bounds[1:])
        judged = not self.plan.is_decided_by_rows
        try:
            alive = self._possible.compute(mask, bounds, limits, search.opened, search.begun)
            sets = self._possible.members()
        except TooManyStatesError:  # then the search backtracks from dead ends
            judged = True
            alive = np.zeros(partitions.rows + len(partitions), np.int32)
            sets = np.ones((1, len(self.plan.automaton.entries)), np.uint8)
        run = _Run(self.plan, partitions, search)
        fixed: tuple[Any, ...] = (mask, alive, sets, *self._choices, bounds, limits)
        fixed += (search.opened, search.begun, *self._skip)
        state = (search.position, search.number, search.covered)
        if judged:
            judge, values = self.judge(partitions)
            context = self._create_buffers(partitions, search, judge, values)
            plain = isinstance(judge, InterpretedConditions)  # it counts its own work
            run.most_steps = _STEPS if plain else _FEW_STEPS
            yield from run.search(judge.kernel, (*fixed, *state), context)
        else:
            kernel = get_loop(row_pattern_search.write_row_search(), "search")
            yield from run.search(kernel, (*fixed, *state), None)

    def _create_buffers(
        self, partitions: Partitions, search: SearchState, judge: ConditionEvaluator, values: tuple[Any, ...]
    ) -> "_SearchBuffers":
        row_pattern = self.plan.row_pattern
        times: npt.NDArray[Any] = np.zeros(1, np.int64)
        horizon: float = -1
        now: npt.NDArray[Any] = np.zeros(1, np.int64)
        if row_pattern.within is not None:
            vector = partitions.vector(row_pattern.order[0].expr)
            times = np.ascontiguousarray(vector.values)
            horizon = within_to_ticks(row_pattern.within, partitions.unit)
            least = np.finfo(np.float64).min if times.dtype.kind == "f" else np.iinfo(np.int64).min
            now = np.array([least if search.now is None else search.now], times.dtype)
        return _SearchBuffers(judge.wholes, judge.reals, (now, horizon, times), values)


def within_to_ticks(within: timedelta | float, unit: Unit) -> int | float:
    """Convert WITHIN to the unit of the times."""
    if isinstance(within, timedelta):
        micros = within // timedelta(microseconds=1)
        return micros * (1_000 if unit == "ns" else 1)
    return within


@dataclass
class _SearchBuffers:
    """The state and arguments of a search with conditions on the match."""

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
    """One search over some partitions: grows the buffers and yields matches."""

    def __init__(self, plan: RowPatternPlan, partitions: Partitions, search: SearchState) -> None:
        self._plan = plan
        self._partitions = partitions
        self._search = search
        self._meta = np.zeros(8, np.int64)
        self._wants_unmatched = plan.row_pattern.rows is RowsPerMatch.ALL_AND_UNMATCHED
        self._make_room(min(LABELS, partitions.rows + 1))

    def _make_room(self, labels: int) -> None:
        rows = self._partitions.rows
        self._matches = [np.empty(min(_MATCHES, rows + 1), np.int64) for _ in range(4)]
        self._labels: Labels = np.empty(labels, np.int16)
        self._unmatched = np.empty(rows + 1 if self._wants_unmatched else 1, np.int64)

    def search(
        self, kernel: Callable[..., int], fixed: tuple[Any, ...], context: _SearchBuffers | None
    ) -> Iterator[RowMatches]:
        meta = self._meta
        while True:
            arguments = (
                *fixed, *self._matches, self._labels, self._unmatched, self._wants_unmatched, meta,
                *(context.arguments if context is not None else ()),
            )  # fmt: skip
            try:
                code = run_interruptibly(lambda a=arguments: kernel(*a), self._stop)  # type: ignore[misc]
            except TooMuchWorkError as error:
                meta[row_pattern_search.PARTITION], meta[row_pattern_search.ROW] = error.args
                raise self._build_length_error() from None
            match code:
                case row_pattern_search.DONE:
                    yield self._take_matches()
                    return
                case (
                    row_pattern_search.MATCHES_FULL | row_pattern_search.LABELS_FULL | row_pattern_search.UNMATCHED_FULL
                ):
                    if meta[row_pattern_search.MATCHES] or meta[row_pattern_search.UNMATCHED]:
                        yield self._take_matches()
                    else:
                        self._labels = np.empty(4 * len(self._labels) + 64, np.int16)
                case row_pattern_search.STACK_FULL:
                    assert context is not None
                    context.room(4 * len(context.stack), len(context.seen))
                case row_pattern_search.SEEN_FULL:
                    assert context is not None
                    if len(context.seen) >= _SEEN:
                        raise self._build_length_error()
                    context.room(len(context.stack), 4 * len(context.seen))
                case row_pattern_search.TOO_LONG if self.most_steps == _FEW_STEPS:
                    self.most_steps = _STEPS
                    if isinstance(kernel, JitFunction):  # to interpret that many takes long
                        kernel.compile_for(*arguments)
                case row_pattern_search.TOO_LONG:
                    raise self._build_length_error()
                case row_pattern_search.STOPPED:
                    raise KeyboardInterrupt
                case _:
                    raise self._skip_error(code)

    @property
    def most_steps(self) -> int:
        """The limit of steps of a search from one row."""
        return int(self._meta[row_pattern_search.MOST_STEPS])

    @most_steps.setter
    def most_steps(self, most: int) -> None:
        self._meta[row_pattern_search.MOST_STEPS] = most

    def _build_length_error(self) -> LimitError:
        _, begins = self._describe_start()
        return LimitError(
            f"the search for a match that {begins} was given up: there are too many ways to map "
            "rows to variables, because conditions depend on the match so far\n"
            "  hint: bound the match with WITHIN or with numbers in {n,m}, or add conditions "
            "on single rows"
        )

    def _describe_start(self) -> tuple[int, str]:
        """The partition of the current match, and its first row in words."""
        row_pattern, meta = self._plan.row_pattern, self._meta
        partition, row = int(meta[row_pattern_search.PARTITION]), int(meta[row_pattern_search.ROW])
        columns = {key.name: key.column or key.name for key in row_pattern.partition}
        for by in row_pattern.order:
            if isinstance(by.expr, FieldRef) and by.expr.name is not None:
                columns.setdefault(by.expr.name, by.expr.name)
        place = int(self._partitions.places(np.array([row]))[0])
        table = self._partitions.table
        values = {name: table.column(column)[place] for name, column in columns.items()}
        shown = ", ".join(f"{name} = {value.as_py()!r}" for name, value in values.items())
        begins = f"begins with the row {shown}" if shown else f"begins with row {place}"
        return partition, begins

    def _stop(self) -> None:
        self._meta[row_pattern_search.STOP] = 1

    def _take_matches(self) -> RowMatches:
        meta = self._meta
        count, used, missed = (
            int(meta[k]) for k in (row_pattern_search.MATCHES, row_pattern_search.LABELS, row_pattern_search.UNMATCHED)
        )
        starts, stops, numbers, partitions = (column[:count] for column in self._matches)
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(stops - starts, out=offsets[1:])
        matches = RowMatches(
            starts, stops, numbers, partitions, self._labels[:used], offsets,
            self._unmatched[:missed],
        )  # fmt: skip
        meta[row_pattern_search.MATCHES] = meta[row_pattern_search.LABELS] = meta[row_pattern_search.UNMATCHED] = 0
        self._make_room(len(self._labels))  # the caller owns these arrays now
        return matches

    def _skip_error(self, code: int) -> SkipError:
        """Explain why AFTER MATCH SKIP cannot continue after a match."""
        partition, begins = self._describe_start()
        number = int(self._search.number[partition])
        skip = self._plan.row_pattern.skip
        subject = f"AFTER MATCH SKIP {skip.to.value} {skip.name}: match {number}, which {begins},"
        if code == row_pattern_search.NO_ROW_TO_SKIP_TO:
            return SkipError(
                f"{subject} has no row of {skip.name}\n"
                f"  hint: require {skip.name} in every match, or SKIP PAST LAST ROW"
            )
        return SkipError(
            f"{subject} has {skip.name} as its first row, so the same match would be found "
            "forever\n"
            "  hint: SKIP TO NEXT ROW, or PAST LAST ROW, or to a variable that comes later"
        )
