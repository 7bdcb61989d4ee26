"""What a MATCH_RECOGNIZE clause means: naive backtracking over the standard's definition.

The rows of a partition are searched from the first one on. All ways to map rows to variables from
a row on are listed in the order of preference, each row is mapped only if its condition holds, and
the first way to the end of the pattern is the match.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ensue.algebra.evaluate import evaluate
from ensue.algebra.predicate import Aggregate, Expr, Field
from ensue.algebra.row_patterns.aggregates import aggregated
from ensue.algebra.row_patterns.arranging import arranged
from ensue.algebra.row_patterns.pattern import (
    Alternation,
    Anchor,
    Concatenation,
    Exclusion,
    Nothing,
    Permutation,
    Repetition,
    Row,
    RowTerm,
)
from ensue.algebra.row_patterns.recognition import Recognition, Rows, Skip, SkipTo
from ensue.algebra.row_patterns.values import (
    CLASSIFIER,
    NUMBER,
    MatchNumber,
    Navigation,
    Reach,
    RowAggregate,
    RowValue,
)
from ensue.algebra.values import compare
from ensue.errors import SkipError

TableRow = Mapping[str, Any]
Mapped = tuple[tuple[str, bool], ...]  # the variable of each row, and whether it is excluded


@dataclass(frozen=True, slots=True)
class RowMatch:
    """A match: the rows from `start` on, one for each label; none: it is empty."""

    start: int
    labels: tuple[str, ...]
    excluded: tuple[bool, ...]
    number: int


def recognized(recognition: Recognition, rows: Sequence[TableRow]) -> list[RowMatch]:
    """The matches in the rows of one partition, which are in their order."""
    found: list[RowMatch] = []
    at = 0
    while at < len(rows):
        mapped = _preferred(recognition, rows, at, len(found) + 1)
        if mapped is None:
            at += 1
            continue
        labels = tuple(variable for variable, _ in mapped)
        match = RowMatch(at, labels, tuple(excluded for _, excluded in mapped), len(found) + 1)
        found.append(match)
        at = after(recognition.skip, match)
    return found


def after(skip: Skip, match: RowMatch) -> int:
    """The row at which the search goes on behind a match."""
    if not match.labels or skip.to is SkipTo.NEXT:
        return match.start + 1
    if skip.to is SkipTo.PAST_LAST:
        return match.start + len(match.labels)
    places = [k for k, label in enumerate(match.labels) if label in skip.variables]
    if not places:
        raise SkipError(
            f"AFTER MATCH SKIP {skip.to.value} {skip.name}: match {match.number} has no such row"
        )
    place = places[0] if skip.to is SkipTo.FIRST else places[-1]
    if place == 0:
        raise SkipError(
            f"AFTER MATCH SKIP {skip.to.value} {skip.name}: in match {match.number} this is its "
            "first row, and the same match would be found for ever"
        )
    return match.start + place


def _preferred(
    recognition: Recognition, rows: Sequence[TableRow], start: int, number: int
) -> Mapped | None:
    conditions = recognition.conditions

    def fits(mapped: Mapped) -> bool:
        """Whether the last of some rows may be mapped to its variable."""
        seen = Seen(rows, start, tuple(v for v, _ in mapped), len(mapped), number)
        variable = mapped[-1][0]
        if not _in_time(recognition, rows[start], rows[start + len(mapped) - 1]):
            return False
        return variable not in conditions or seen.value(conditions[variable]) is True

    return next(_ways(recognition.pattern, (), _Rows(start, len(rows), fits), False), None)


def _in_time(recognition: Recognition, first: TableRow, row: TableRow) -> bool:
    """WITHIN: less time than this may pass from the first row to any other."""
    if recognition.within is None:
        return True
    begun, now = (evaluate(recognition.order[0].expr, _column_of(r)) for r in (first, row))
    if begun is None or now is None:
        return False
    passed: Any = now - begun  # type: ignore[operator]
    return compare("<", passed, recognition.within) is True


def _column_of(row: TableRow) -> Callable[[Field | Aggregate], object]:
    return lambda field: row[field.name] if isinstance(field, Field) and field.name else None


@dataclass(frozen=True, slots=True)
class _Rows:
    start: int
    end: int
    fits: Callable[[Mapped], bool]


def _ways(term: RowTerm, mapped: Mapped, rows: _Rows, excluded: bool) -> Iterator[Mapped]:
    """What is mapped once a term has been matched behind `mapped`, the preferred way first."""
    match term:
        case Row(variable=variable):
            longer = (*mapped, (variable, excluded))
            if rows.start + len(mapped) < rows.end and rows.fits(longer):
                yield longer
        case Nothing():
            yield mapped
        case Anchor(at=place):
            if rows.start + len(mapped) == (0 if place == "start" else rows.end):
                yield mapped
        case Concatenation(parts=parts):
            yield from _each(parts, mapped, rows, excluded)
        case Alternation(parts=parts):
            for part in parts:
                yield from _ways(part, mapped, rows, excluded)
        case Permutation():
            for parts in term.orders:
                yield from _each(parts, mapped, rows, excluded)
        case Exclusion(part=part):
            yield from _ways(part, mapped, rows, True)
        case Repetition():
            yield from _repeated(term, 0, mapped, rows, excluded)


def _each(
    parts: Sequence[RowTerm], mapped: Mapped, rows: _Rows, excluded: bool
) -> Iterator[Mapped]:
    if not parts:
        yield mapped
        return
    for longer in _ways(parts[0], mapped, rows, excluded):
        yield from _each(parts[1:], longer, rows, excluded)


def _repeated(
    term: Repetition, done: int, mapped: Mapped, rows: _Rows, excluded: bool
) -> Iterator[Mapped]:
    if done >= term.least and not term.greedy:
        yield mapped
    if term.most is None or done < term.most:
        for longer in _ways(term.part, mapped, rows, excluded):
            if term.most is None and done >= term.least and len(longer) == len(mapped):
                yield longer  # a round without a row: going on for ever gains nothing
            else:
                yield from _repeated(term, done + 1, longer, rows, excluded)
    if done >= term.least and term.greedy:
        yield mapped


# ------------------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Seen:
    """What a value is asked of: a match, and how many of its rows are up to the current one."""

    rows: Sequence[TableRow]  # of the partition
    start: int
    labels: tuple[str, ...]
    upto: int
    number: int | None

    def value(self, value: RowValue) -> object:
        def reached(leaf: Field | Aggregate) -> object:
            assert isinstance(leaf, Field)
            return self.reached(value.reach(leaf))

        return evaluate(value.expr, reached)

    def reached(self, reach: Reach) -> object:
        match reach:
            case MatchNumber():
                return self.number
            case Navigation():
                places = self._places(reach.variables, final=reach.final)
                if reach.offset >= len(places):
                    return None
                place = places[reach.offset] if reach.first else places[-1 - reach.offset]
                return self._at(place + reach.shift, reach.expr)
            case RowAggregate(function=function, arguments=arguments, only=only):
                places = self._places(reach.variables, final=reach.final)
                if only is not None:
                    places = [p for p in places if self._at(p, only) is True]
                values = [tuple(self._at(p, a) for a in arguments) for p in places]
                keys = [tuple(self._at(p, key.expr) for key in reach.order) for p in places]
                return aggregated(function, arranged(reach, values, keys))

    def _places(self, variables: tuple[str, ...], *, final: bool) -> list[int]:
        labels = self.labels if final else self.labels[: self.upto]
        return [
            self.start + k for k, label in enumerate(labels) if not variables or label in variables
        ]

    def _at(self, place: int, expr: Expr) -> object:
        if not 0 <= place < len(self.rows):
            return None

        def column(field: Field | Aggregate) -> object:
            assert isinstance(field, Field)
            assert field.name is not None
            if field.name == NUMBER:
                return self.number
            if field.name != CLASSIFIER:
                return self.rows[place][field.name]
            k = place - self.start
            return self.labels[k] if 0 <= k < len(self.labels) else None

        return evaluate(expr, column)


# ------------------------------------------------------------------------------------- results


def results(
    recognition: Recognition, rows: Sequence[TableRow]
) -> Iterator[tuple[int, list[object]]]:
    """The rows that a partition gives: each with the row of the table that it is of, and measures.

    With ONE ROW PER MATCH that is the first row of the match.
    """
    matched: set[int] = set()
    found = recognized(recognition, rows)
    by_start: dict[int, RowMatch] = {match.start: match for match in found}
    for match in found:
        matched.update(range(match.start, match.start + max(1, len(match.labels))))
    if recognition.rows is not Rows.ALL_AND_UNMATCHED:
        for match in found:
            yield from _rows_of(recognition, rows, match)
        return
    for at in range(len(rows)):
        if at in by_start:
            yield from _rows_of(recognition, rows, by_start[at])
        elif at not in matched:
            yield at, [None] * len(recognition.measures)


def _rows_of(
    recognition: Recognition, rows: Sequence[TableRow], match: RowMatch
) -> Iterator[tuple[int, list[object]]]:
    if recognition.rows is Rows.ONE or not match.labels:
        if match.labels or recognition.rows is not Rows.ALL_BUT_EMPTY:
            yield match.start, _measures(recognition, rows, match, len(match.labels))
        return
    for k, excluded in enumerate(match.excluded):
        if not excluded:
            yield match.start + k, _measures(recognition, rows, match, k + 1)


def _measures(
    recognition: Recognition, rows: Sequence[TableRow], match: RowMatch, upto: int
) -> list[object]:
    seen = Seen(rows, match.start, match.labels, upto, match.number)
    return [seen.value(measure.value) for measure in recognition.measures]
