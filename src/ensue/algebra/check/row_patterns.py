"""A MATCH_RECOGNIZE clause against a table: which columns are meant, and of which kinds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple

from ensue.algebra.check.conversions import converted
from ensue.algebra.check.kinds import kind_of
from ensue.algebra.check.zones import in_zones, zone_of
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.row_patterns.aggregates import row_aggregate
from ensue.algebra.row_patterns.recognition import Key, Recognition, Rows
from ensue.algebra.row_patterns.values import (
    CLASSIFIER,
    NUMBER,
    OF_THE_MATCH,
    REACHED,
    MatchNumber,
    Navigation,
    OrderedBy,
    Reach,
    RowAggregate,
    RowValue,
)
from ensue.algebra.walk import nodes, rewrite_expr
from ensue.errors import QueryError, did_you_mean
from ensue.schema import Kind
from ensue.span import Span

Columns = Mapping[str, Kind]

_NO_ZONES: Mapping[str, str] = MappingProxyType({})
_WITHOUT_ORDER = (Kind.OTHER, Kind.PLACE)
_OF_MATCH = {CLASSIFIER: Kind.STRING, NUMBER: Kind.INTEGER}
_TIMES = (Kind.TIMESTAMP, Kind.DATE, Kind.DURATION)


def checked(
    recognition: Recognition, columns: Columns, zones: Mapping[str, str] = _NO_ZONES
) -> Recognition:
    """The clause with the columns of the table in it, or a QueryError that says what is wrong.

    A quoted name is that of a column as it is spelled, any other ignores case. `zones` are those
    of the columns whose times have one.
    """
    try:
        resolved = _resolved(recognition, _Names(columns, recognition.text, zones))
        _check_kinds(resolved, columns)
        _check_within(resolved, columns)
        _output(resolved, columns)
        _require_columns(resolved)
        return resolved
    except QueryError as error:
        raise error.at(None, recognition.text) from None


def measure_kinds(recognition: Recognition, columns: Columns) -> dict[str, Kind]:
    """The kinds of the columns of MEASURES, by name."""
    found = checked(recognition, columns)
    return {measure.name: _kind(measure.value, columns) for measure in found.measures}


def output_kinds(recognition: Recognition, columns: Columns) -> dict[str, Kind]:
    """The columns that a clause gives, in their order, and their kinds.

    With ONE ROW PER MATCH these are the keys of PARTITION BY and MEASURES; with ALL ROWS PER
    MATCH the keys, the columns of ORDER BY, MEASURES, and the other columns of the table.
    """
    return _output(checked(recognition, columns), columns)


# -------------------------------------------------------------------------------------- columns


class _Names:
    """The columns of a table by the names that are written."""

    def __init__(self, columns: Columns, text: str | None, zones: Mapping[str, str]) -> None:
        self.columns = columns
        self.zones = zones
        self.text = text
        self.folded: dict[str, list[str]] = {}
        for name in columns:
            self.folded.setdefault(name.lower(), []).append(name)

    def meant(self, name: str, span: Span | None) -> str:
        quoted = _is_quoted(span, self.text)
        if quoted and name in self.columns:
            return name
        same = [] if quoted else self.folded.get(name.lower(), [])
        if len(same) == 1:
            return same[0]
        if same:
            raise QueryError(
                f"'{name}' may be any of the columns {', '.join(same)}: SQL ignores case",
                hint=f'quote the one you mean: "{same[0]}"',
                span=span,
            )
        raise QueryError(
            f"there is no column '{name}'", hint=did_you_mean(name, self.columns), span=span
        )

    def resolved(self, expr: Expr) -> Expr:
        def change(node: Expr) -> Expr:
            if isinstance(node, Field) and node.name is not None and node.name not in OF_THE_MATCH:
                return replace(node, name=self.meant(node.name, node.span))
            return node

        found = converted(rewrite_expr(expr, change), self.kind)
        return in_zones(found, lambda field: self.zones.get(field.name or ""))

    def kind(self, column: Field) -> Kind:
        return _OF_MATCH.get(column.name or "") or self.columns[column.name or ""]


def _is_quoted(span: Span | None, text: str | None) -> bool:
    """Whether a name ends in quotes, as it is written."""
    return span is not None and text is not None and text[span.end - 1 : span.end] in ('"', "`")


def _resolved(recognition: Recognition, names: _Names) -> Recognition:
    def value(found: RowValue) -> RowValue:
        return _value(found, names)

    return replace(
        recognition,
        partition=tuple(_key(key, names) for key in recognition.partition),
        order=_ordered(recognition.order, names),
        measures=tuple(replace(m, value=value(m.value)) for m in recognition.measures),
        defines=tuple(replace(d, value=value(d.value)) for d in recognition.defines),
    )


def _key(key: Key, names: _Names) -> Key:
    expr = names.resolved(key.expr)
    if key.column == key.name and isinstance(expr, Field) and expr.name is not None:
        return replace(key, expr=expr, name=expr.name)
    return replace(key, expr=expr)


def _ordered(keys: Sequence[OrderedBy], names: _Names) -> tuple[OrderedBy, ...]:
    return tuple(replace(key, expr=names.resolved(key.expr)) for key in keys)


def _value(value: RowValue, names: _Names) -> RowValue:
    """Reaches that turn out to be the same, such as `price` and `Price`, become one."""
    reaches: list[Reach] = []
    numbers: dict[str, str] = {}
    for number, reach in enumerate(value.reaches):
        found = _reach(reach, names)
        if found not in reaches:
            reaches.append(found)
        numbers[str(number)] = str(reaches.index(found))

    def change(node: Expr) -> Expr:
        if isinstance(node, Field) and node.variable == REACHED and node.name is not None:
            return replace(node, name=numbers[node.name])
        return node

    expr = rewrite_expr(value.expr, change)
    try:
        kinds = [_reach_kind(reach, names.columns) for reach in reaches]
        expr = converted(expr, lambda field: kinds[int(field.name or 0)])
        zoned = [zone_of_reach(reach, names.zones) for reach in reaches]
        expr = in_zones(expr, lambda field: zoned[int(field.name or 0)])
    except QueryError as error:
        raise error.at(value.span, None) from None
    return replace(value, expr=expr, reaches=tuple(reaches))


def zone_of_value(value: RowValue, zones: Mapping[str, str]) -> str | None:
    """The zone of a time that rows of a match give; `zones` are those of columns."""
    reached = [zone_of_reach(reach, zones) for reach in value.reaches]
    return zone_of(value.expr, lambda field: reached[int(field.name or 0)])


def zone_of_reach(reach: Reach, zones: Mapping[str, str]) -> str | None:
    """The zone of what is taken from rows."""
    match reach:
        case Navigation(expr=expr) | RowAggregate(arguments=(expr, *_)):
            return zone_of(expr, lambda field: zones.get(field.name or ""))
        case _:
            return None


def _reach(reach: Reach, names: _Names) -> Reach:
    match reach:
        case Navigation(expr=expr):
            return replace(reach, expr=names.resolved(expr))
        case RowAggregate(arguments=arguments, only=only, order=order):
            return replace(
                reach,
                arguments=tuple(map(names.resolved, arguments)),
                only=None if only is None else names.resolved(only),
                order=_ordered(order, names),
            )
        case MatchNumber():
            return reach


# ---------------------------------------------------------------------------------------- kinds


def _check_kinds(recognition: Recognition, columns: Columns) -> None:
    for key in recognition.partition:
        _require_order(_row_kind(key.expr, columns), "PARTITION BY", key.span)
        if not any(isinstance(node, Field) for node in nodes(key.expr)):
            raise QueryError(
                "a key of PARTITION BY needs a column, and this is the same for all rows",
                hint="name a column, or leave PARTITION BY out",
                span=key.span,
            )
    _check_keys(recognition.order, columns, "ORDER BY")
    for measure in recognition.measures:
        _kind(measure.value, columns)
    for define in recognition.defines:
        kind = _kind(define.value, columns)
        if kind not in (Kind.BOOLEAN, Kind.NULL):
            raise QueryError(
                f"{define.variable} is defined by a condition, and this is of kind {kind.value}",
                hint=f"compare it with something: {define.variable} AS price > 3",
                span=define.value.span,
            )


def _require_columns(recognition: Recognition) -> None:
    if recognition.rows is Rows.ONE and not (recognition.partition or recognition.measures):
        raise QueryError(
            "ONE ROW PER MATCH gives the keys of PARTITION BY and MEASURES, and there are none",
            hint="add MEASURES, or ALL ROWS PER MATCH",
            span=recognition.pattern.span,
        )


def _kind(value: RowValue, columns: Columns) -> Kind:
    """The kind of a value; errors know at least the whole of it."""
    try:
        kinds = [_reach_kind(reach, columns) for reach in value.reaches]
        return kind_of(value.expr, lambda field: kinds[int(field.name or 0)])
    except QueryError as error:
        raise error.at(value.span, None) from None


def _row_kind(expr: Expr, columns: Columns) -> Kind:
    """The kind of an expression over the columns of one row."""

    def kind_of_column(field: Field) -> Kind:
        return _OF_MATCH.get(field.name or "") or columns[field.name or ""]

    return kind_of(expr, kind_of_column)


def _reach_kind(reach: Reach, columns: Columns) -> Kind:
    match reach:
        case MatchNumber():
            return Kind.INTEGER
        case Navigation(expr=expr):
            return _row_kind(expr, columns)
        case RowAggregate():
            return _aggregate_kind(reach, columns)


def _aggregate_kind(reach: RowAggregate, columns: Columns) -> Kind:
    function = row_aggregate(reach.function)
    assert function is not None
    kinds = [_row_kind(argument, columns) for argument in reach.arguments]
    found = function.kind(kinds)
    if found is None:
        raise QueryError(
            f"{reach.function} does not work on {' and '.join(kind.value for kind in kinds)}",
            hint="count, min, max, any_value and array_agg take most kinds of values",
            span=reach.span,
        )
    if reach.distinct and kinds:
        _require_order(kinds[0], "DISTINCT", reach.span)
    if reach.only is not None:
        only = _row_kind(reach.only, columns)
        if only not in (Kind.BOOLEAN, Kind.NULL):
            raise QueryError(
                f"FILTER takes a condition, and this is of kind {only.value}",
                hint="compare it with something: FILTER (WHERE price > 3)",
                span=reach.only.span or reach.span,
            )
    _check_keys(reach.order, columns, "ORDER BY")
    return found


def _check_keys(keys: Iterable[OrderedBy], columns: Columns, clause: str) -> None:
    for key in keys:
        _require_order(_row_kind(key.expr, columns), clause, key.span)


def _require_order(kind: Kind, clause: str, span: Span | None) -> None:
    if kind in _WITHOUT_ORDER:
        raise QueryError(
            f"{clause} compares values, and these are nested, binary or places",
            hint="take a number, a string or a time in them",
            span=span,
        )


def _check_within(recognition: Recognition, columns: Columns) -> None:
    if recognition.within is None:
        return
    timed = isinstance(recognition.within, timedelta)
    what, length = ("a time", "a length of time") if timed else ("a number", "a number")
    if not recognition.order:
        raise QueryError(
            f"WITHIN needs ORDER BY, and {what} as its first key",
            hint=f"add ORDER BY {'time' if timed else 'position'}",
            span=recognition.pattern.span,
        )
    first = recognition.order[0]
    kind = _row_kind(first.expr, columns)
    if not (kind in _TIMES if timed else kind.numeric):
        raise QueryError(
            f"WITHIN is {length} here, and rows are ordered by {kind.value}",
            hint=f"start ORDER BY with {what}",
            span=first.span,
        )
    if first.descending:
        raise QueryError(
            "WITHIN needs rows in ascending order", hint="leave DESC out", span=first.span
        )


# --------------------------------------------------------------------------------------- output


class _Given(NamedTuple):
    """A column of the result; `folds`: names that differ from it by case only clash with it."""

    name: str
    kind: Kind
    span: Span | None = None
    folds: bool = False


def _output(recognition: Recognition, columns: Columns) -> dict[str, Kind]:
    given = list(_given(recognition, columns))
    known: dict[str, list[_Given]] = {}
    for one in given:
        same = known.setdefault(one.name.lower(), [])
        for other in same:
            if one.name == other.name or one.folds or other.folds:
                raise _clash(one, other)
        same.append(one)
    return {one.name: one.kind for one in given}


def _clash(one: _Given, other: _Given) -> QueryError:
    named = one if one.folds or one.span else other  # what the clause calls so
    return QueryError(
        f"two columns of the result would be called '{named.name}'",
        hint="give the measure or key another name with AS",
        span=named.span,
    )


def _given(recognition: Recognition, columns: Columns) -> Iterator[_Given]:
    """The columns of the result, in their order."""
    text = recognition.text
    for key in recognition.partition:
        folds = key.column != key.name and not _is_quoted(key.span, text)
        yield _Given(key.name, _row_kind(key.expr, columns), key.span, folds)
    left = dict(columns)
    if recognition.rows is Rows.ONE:
        left.clear()
    for key in recognition.partition:
        left.pop(key.column or "", None)
    for ordered in recognition.order:
        name = ordered.expr.name if isinstance(ordered.expr, Field) else None
        if name is not None and name in left:
            yield _Given(name, left.pop(name))
    for measure in recognition.measures:
        folds = not _is_quoted(measure.span, text)
        yield _Given(measure.name, _kind(measure.value, columns), measure.span, folds)
    for name, kind in left.items():
        yield _Given(name, kind)
