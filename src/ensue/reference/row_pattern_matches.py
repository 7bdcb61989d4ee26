"""Evaluates MATCH_RECOGNIZE by naive backtracking over the standard's definition.

From each row of a partition, all mappings of rows to variables are tried in the order of
preference; a row is mapped only if its condition holds. The first complete mapping is the match.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ensue.errors import SkipError
from ensue.functions.interpreter import evaluate
from ensue.functions.row_aggregates import compute_row_aggregate, order_and_deduplicate
from ensue.ir.expression import Aggregate, Expr, FieldRef
from ensue.ir.row_pattern import (
    CLASSIFIER,
    MATCH_NUMBER,
    Alternation,
    Concatenation,
    EmptyRowPattern,
    Exclusion,
    MatchNumber,
    Navigation,
    PartitionAnchor,
    Permutation,
    Repetition,
    RowAggregate,
    RowExpression,
    RowOperand,
    RowPatternQuery,
    RowSkip,
    RowSkipTarget,
    RowsPerMatch,
    RowTerm,
    RowVariable,
)
from ensue.ir.values import compare

TableRow = Mapping[str, Any]
RowMapping = tuple[tuple[str, bool], ...]  # the variable of each row, and whether it is excluded


@dataclass(frozen=True, slots=True)
class RowMatch:
    """A match: the rows from `start`, one for each label; an empty match has none."""

    start: int
    labels: tuple[str, ...]
    excluded: tuple[bool, ...]
    number: int


def match_rows(row_pattern: RowPatternQuery, rows: Sequence[TableRow]) -> list[RowMatch]:
    """Returns the matches in the sorted rows of one partition."""
    matches: list[RowMatch] = []
    at = 0
    while at < len(rows):
        mapping = _find_best(row_pattern, rows, at, len(matches) + 1)
        if mapping is None:
            at += 1
            continue
        labels = tuple(variable for variable, _ in mapping)
        match = RowMatch(at, labels, tuple(excluded for _, excluded in mapping), len(matches) + 1)
        matches.append(match)
        at = compute_next_row(row_pattern.skip, match)
    return matches


def compute_next_row(skip: RowSkip, match: RowMatch) -> int:
    """Returns the row at which the search continues after a match."""
    if not match.labels or skip.to is RowSkipTarget.NEXT:
        return match.start + 1
    if skip.to is RowSkipTarget.PAST_LAST:
        return match.start + len(match.labels)
    indices = [k for k, label in enumerate(match.labels) if label in skip.variables]
    clause = f"AFTER MATCH SKIP {skip.to.value} {skip.name}"
    if not indices:
        raise SkipError(f"{clause}: match {match.number} has no such row")
    index = indices[0] if skip.to is RowSkipTarget.FIRST else indices[-1]
    if index == 0:
        raise SkipError(
            f"{clause}: in match {match.number} this is its first row, and the same match would repeat forever"
        )
    return match.start + index


def _find_best(row_pattern: RowPatternQuery, rows: Sequence[TableRow], start: int, number: int) -> RowMapping | None:
    conditions = row_pattern.conditions

    def fits(mapped: RowMapping) -> bool:
        """Whether the last row may be mapped to its variable."""
        view = MatchView(rows, start, tuple(v for v, _ in mapped), len(mapped), number)
        variable = mapped[-1][0]
        if not _in_time(row_pattern, rows[start], rows[start + len(mapped) - 1]):
            return False
        return variable not in conditions or view.value(conditions[variable]) is True

    return next(_ways(row_pattern.pattern, (), _Rows(start, len(rows), fits), False), None)


def _in_time(row_pattern: RowPatternQuery, first: TableRow, row: TableRow) -> bool:
    """Whether a row is within WITHIN of the first row, exclusively."""
    if row_pattern.within is None:
        return True
    first_time, time = (evaluate(row_pattern.order[0].expr, _get_column_reader(r)) for r in (first, row))
    if first_time is None or time is None:
        return False
    elapsed: Any = time - first_time  # type: ignore[operator]
    return compare("<", elapsed, row_pattern.within) is True


def _get_column_reader(row: TableRow) -> Callable[[FieldRef | Aggregate], object]:
    return lambda field: row[field.name] if isinstance(field, FieldRef) and field.name else None


@dataclass(frozen=True, slots=True)
class _Rows:
    start: int
    end: int
    fits: Callable[[RowMapping], bool]


def _ways(term: RowTerm, mapped: RowMapping, rows: _Rows, excluded: bool) -> Iterator[RowMapping]:
    """Yields the mappings after a term has matched, the preferred one first."""
    match term:
        case RowVariable(variable=variable):
            longer = (*mapped, (variable, excluded))
            if rows.start + len(mapped) < rows.end and rows.fits(longer):
                yield longer
        case EmptyRowPattern():
            yield mapped
        case PartitionAnchor(at=place):
            if rows.start + len(mapped) == (0 if place == "start" else rows.end):
                yield mapped
        case Concatenation(parts=parts):
            yield from _match_sequence(parts, mapped, rows, excluded)
        case Alternation(parts=parts):
            for part in parts:
                yield from _ways(part, mapped, rows, excluded)
        case Permutation():
            for parts in term.orders:
                yield from _match_sequence(parts, mapped, rows, excluded)
        case Exclusion(part=part):
            yield from _ways(part, mapped, rows, True)
        case Repetition():
            yield from _repeat(term, 0, mapped, rows, excluded)


def _match_sequence(parts: Sequence[RowTerm], mapped: RowMapping, rows: _Rows, excluded: bool) -> Iterator[RowMapping]:
    if not parts:
        yield mapped
        return
    for longer in _ways(parts[0], mapped, rows, excluded):
        yield from _match_sequence(parts[1:], longer, rows, excluded)


def _repeat(term: Repetition, done: int, mapped: RowMapping, rows: _Rows, excluded: bool) -> Iterator[RowMapping]:
    if done >= term.least and not term.greedy:
        yield mapped
    if term.most is None or done < term.most:
        for longer in _ways(term.part, mapped, rows, excluded):
            if term.most is None and done >= term.least and len(longer) == len(mapped):
                yield longer  # an empty round: further ones add nothing
            else:
                yield from _repeat(term, done + 1, longer, rows, excluded)
    if done >= term.least and term.greedy:
        yield mapped


# ------------------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class MatchView:
    """A match in which values are evaluated, and the number of its rows up to the current one."""

    rows: Sequence[TableRow]  # of the partition
    start: int
    labels: tuple[str, ...]
    upto: int
    number: int | None

    def value(self, value: RowExpression) -> object:
        def read_leaf(leaf: FieldRef | Aggregate) -> object:
            assert isinstance(leaf, FieldRef)
            return self.read_operand(value.reach(leaf))

        return evaluate(value.expr, read_leaf)

    def read_operand(self, reach: RowOperand) -> object:
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
                return compute_row_aggregate(function, order_and_deduplicate(reach, values, keys))

    def _places(self, variables: tuple[str, ...], *, final: bool) -> list[int]:
        labels = enumerate(self.labels if final else self.labels[: self.upto], self.start)
        return [k for k, label in labels if not variables or label in variables]

    def _at(self, place: int, expr: Expr) -> object:
        if not 0 <= place < len(self.rows):
            return None

        def column(field: FieldRef | Aggregate) -> object:
            assert isinstance(field, FieldRef)
            assert field.name is not None
            if field.name == MATCH_NUMBER:
                return self.number
            if field.name != CLASSIFIER:
                return self.rows[place][field.name]
            k = place - self.start
            return self.labels[k] if 0 <= k < len(self.labels) else None

        return evaluate(expr, column)


def build_output_rows(row_pattern: RowPatternQuery, rows: Sequence[TableRow]) -> Iterator[tuple[int, list[object]]]:
    """Yields the output rows of a partition: the index of the table's row, and the measures.

    With ONE ROW PER MATCH this is the first row of the match.
    """
    matches = match_rows(row_pattern, rows)
    if row_pattern.rows is not RowsPerMatch.ALL_AND_UNMATCHED:
        for match in matches:
            yield from _iterate_rows(row_pattern, rows, match)
        return
    by_start = {match.start: match for match in matches}
    covered: set[int] = set()
    for match in matches:
        covered.update(range(match.start, match.start + len(match.labels)))
    for at in range(len(rows)):
        if at in by_start:
            yield from _iterate_rows(row_pattern, rows, by_start[at])
        elif at not in covered:
            yield at, [None] * len(row_pattern.measures)


def _iterate_rows(
    row_pattern: RowPatternQuery, rows: Sequence[TableRow], match: RowMatch
) -> Iterator[tuple[int, list[object]]]:
    if row_pattern.rows is RowsPerMatch.ONE or not match.labels:
        if match.labels or row_pattern.rows is not RowsPerMatch.ALL_BUT_EMPTY:
            yield match.start, _measures(row_pattern, rows, match, len(match.labels))
        return
    for k, excluded in enumerate(match.excluded):
        if not excluded:
            yield match.start + k, _measures(row_pattern, rows, match, k + 1)


def _measures(row_pattern: RowPatternQuery, rows: Sequence[TableRow], match: RowMatch, upto: int) -> list[object]:
    view = MatchView(rows, match.start, match.labels, upto, match.number)
    return [view.value(measure.value) for measure in row_pattern.measures]
