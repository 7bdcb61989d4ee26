"""Conditions on the match that no kernel takes: judged by their plain meaning, row by row."""

from collections.abc import Callable, Mapping
from typing import Any

from ensue.algebra.evaluate import evaluate
from ensue.algebra.predicate import Aggregate, Expr, Field
from ensue.algebra.row_patterns.aggregates import aggregated
from ensue.algebra.row_patterns.arranging import arranged
from ensue.algebra.row_patterns.values import (
    CLASSIFIER,
    NUMBER,
    MatchNumber,
    Navigation,
    Reach,
    RowAggregate,
    RowValue,
    asks_match,
    expressions_of,
)
from ensue.columns.values import to_arrow
from ensue.computed import cached_property
from ensue.engine.row_patterns.partitions import Partitions
from ensue.plan.row_patterns.conditions import row_columns
from ensue.plan.row_patterns.plan import RowPlan
from ensue.source.cache import uncompiled
from ensue.source.row_patterns import Registers, Taking, matched_text

_WORK = 1 << 20  # rows that conditions may look at in the search from one row: some seconds

Mapped = tuple[int, int]  # a row, and the number of its variable
Kept = tuple[tuple[Mapped, ...], ...]  # of each group of rows that conditions look at


class TooMuchWorkError(Exception):
    """The search for a match that begins with a row takes too long."""

    def __init__(self, partition: int, row: int) -> None:
        super().__init__(partition, row)
        self.partition = partition
        self.row = row


class PlainConditions:
    """The generated search, not compiled, which calls the plain meaning of conditions.

    What it remembers of the rows that it has mapped is one number: that of the rows to which
    conditions can still look, so that a search does not look at the same place twice.
    """

    wholes = 1
    reals = 0

    def __init__(self, plan: RowPlan) -> None:
        self._plan = plan
        self._groups = _groups(plan)

    @cached_property
    def kernel(self) -> Callable[..., int]:
        recognition = self._plan.recognition
        in_time = "times[i] - times[r] < horizon and " if recognition.within is not None else ""
        takings = [
            Taking(number, f"{in_time}F(v, i, h, p, number[p] + 1, r)", ("h = V(h, v, i)",))
            for number in range(len(self._plan.automaton.variables))
        ]
        registers = Registers(("h",), (), {"h": "0"})
        text = matched_text("Conditions by their plain meaning.", takings, registers, ())
        return uncompiled(text, "search")

    def arguments(self, partitions: Partitions) -> tuple[Any, ...] | None:
        judged = _Judged(self._plan, self._groups, partitions)
        return None, None, None, judged.fits, judged.remembered


class _Judged:
    """Conditions over the rows of some partitions."""

    def __init__(self, plan: RowPlan, groups: "dict[_Group, int]", partitions: Partitions) -> None:
        self._conditions = [conditions.matched for conditions in plan.conditions]
        self._variables = plan.automaton.variables
        self._numbers = {name: number for number, name in enumerate(self._variables)}
        self._groups = groups
        self._bounds = partitions.bounds.tolist()
        names: set[str] = set()
        for conditions in self._conditions:
            for condition in conditions:
                for reach in condition.reaches:
                    for expr in expressions_of(reach):
                        names |= row_columns(expr)
        unit = partitions.unit
        self._columns = {
            name: to_arrow(partitions.column(name), unit).to_pylist() for name in names
        }
        self._kept: list[Kept] = [((),) * len(groups)]  # by number
        self._known: dict[Kept, int] = {self._kept[0]: 0}
        self._start = (-1, -1)  # the partition and the row from which is searched
        self._work = 0  # since then

    def remembered(self, kept: int, variable: int, row: int) -> int:
        """What is kept once a row is mapped to a variable as well."""
        return self._number(self._with(self._kept[kept], variable, row))

    def _number(self, kept: Kept) -> int:
        number = self._known.setdefault(kept, len(self._kept))
        if number == len(self._kept):
            self._kept.append(kept)
        return number

    def _with(self, kept: Kept, variable: int, row: int) -> Kept:
        return tuple(
            group.with_row(rows, (row, variable))
            if not group.variables or variable in group.variables
            else rows
            for group, rows in zip(self._groups, kept, strict=True)
        )

    def fits(self, variable: int, row: int, kept: int, p: int, number: int, start: int) -> bool:
        """Whether a row may be mapped to a variable behind what is kept."""
        conditions = self._conditions[variable]
        before = self._kept[kept]
        bounds = self._bounds[p], self._bounds[p + 1]
        self._count(p, start, 1 + len(conditions) * sum(map(len, before)), bounds[1] - bounds[0])
        if not conditions:
            return True
        rows = self._with(before, variable, row)
        return all(self._holds(c, rows, bounds, int(number)) for c in conditions)

    def _count(self, p: int, start: int, work: int, rows: int) -> None:
        """Counts work; one way through all rows of a partition is always allowed."""
        if self._start != (p, start):
            self._start, self._work = (p, start), 0
        self._work += work
        if self._work > _WORK + rows * rows:
            raise TooMuchWorkError(p, start)

    def _holds(
        self, condition: RowValue, rows: Kept, bounds: tuple[int, int], number: int
    ) -> bool:
        def reached(leaf: Field | Aggregate) -> object:
            assert isinstance(leaf, Field)
            return self._reached(condition.reach(leaf), rows, bounds, number)

        return evaluate(condition.expr, reached) is True

    def _reached(self, reach: Reach, rows: Kept, bounds: tuple[int, int], number: int) -> object:
        if isinstance(reach, MatchNumber):
            return number
        kept = rows[self._groups[_group(reach, self._numbers)]]
        labels = dict(kept) if asks_match(reach) else {}
        match reach:
            case Navigation(variables=variables):
                wanted = {self._numbers[v] for v in variables}
                places = [m for m in kept if not wanted or m[1] in wanted]
                if reach.offset >= len(places):
                    return None
                place, _ = places[reach.offset] if reach.first else places[-1 - reach.offset]
                return self._at(place + reach.shift, reach.expr, labels, bounds, number)
            case RowAggregate(arguments=arguments, only=only):
                wanted = {self._numbers[v] for v in reach.variables}
                members = [row for row, v in kept if not wanted or v in wanted]
                if only is not None:
                    members = [
                        m for m in members if self._at(m, only, labels, bounds, number) is True
                    ]
                values = [
                    tuple(self._at(m, a, labels, bounds, number) for a in arguments)
                    for m in members
                ]
                keys = [
                    tuple(self._at(m, o.expr, labels, bounds, number) for o in reach.order)
                    for m in members
                ]
                return aggregated(reach.function, arranged(reach, values, keys))

    def _at(
        self, row: int, expr: Expr, labels: Mapping[int, int], bounds: tuple[int, int], number: int
    ) -> object:
        if not bounds[0] <= row < bounds[1]:
            return None

        def column(field: Field | Aggregate) -> object:
            assert isinstance(field, Field)
            assert field.name is not None
            if field.name == NUMBER:
                return number
            if field.name != CLASSIFIER:
                return self._columns[field.name][row]
            return self._variables[labels[row]] if row in labels else None

        return evaluate(expr, column)


class _Group:
    """Rows that conditions look at: of some variables, the first, the last, or all."""

    __slots__ = ("first", "last", "variables")

    def __init__(self, variables: frozenset[int], first: int | None, last: int | None) -> None:
        self.variables = variables  # empty: of all
        self.first = first  # how many of the first are kept
        self.last = last  # how many of the last are kept; None for both: all of them

    def with_row(self, rows: tuple[Mapped, ...], row: Mapped) -> tuple[Mapped, ...]:
        if self.first is not None:
            return rows if len(rows) == self.first else (*rows, row)
        longer = (*rows, row)
        return longer if self.last is None else longer[-self.last :]

    def _key(self) -> tuple[object, ...]:
        return self.variables, self.first, self.last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Group) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _group(reach: Navigation | RowAggregate, numbers: dict[str, int]) -> _Group:
    variables = frozenset(numbers[v] for v in reach.variables)
    if isinstance(reach, RowAggregate):
        return _Group(variables, None, None)
    if asks_match(reach) and reach.shift:
        return _Group(frozenset(), None, None)  # a neighbour may be of any variable
    if reach.first:
        return _Group(variables, reach.offset + 1, None)
    return _Group(variables, None, reach.offset + 1)


def _groups(plan: RowPlan) -> dict[_Group, int]:
    numbers = {name: number for number, name in enumerate(plan.automaton.variables)}
    found: dict[_Group, int] = {}
    for conditions in plan.conditions:
        for condition in conditions.matched:
            for reach in condition.reaches:
                if not isinstance(reach, MatchNumber):
                    found.setdefault(_group(reach, numbers), len(found))
    return found
