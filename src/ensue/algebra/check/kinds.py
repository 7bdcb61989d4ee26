"""What kind of value an expression gives."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from ensue.algebra.functions import FUNCTIONS
from ensue.algebra.functions.record import Gives, Takes, shared
from ensue.algebra.functions.times import unit_of
from ensue.algebra.functions.zones import AT_TIME_ZONE, TO_CLOCK, TO_INSTANT
from ensue.algebra.predicate import (
    COMPARISONS,
    Aggregate,
    Between,
    Binary,
    Call,
    Constant,
    Expr,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.algebra.regular import compiled
from ensue.algebra.values import EXACT
from ensue.algebra.zones import hint_for, zone_named
from ensue.errors import QueryError
from ensue.schema import Kind
from ensue.span import Span

KindOfField = Callable[[Field], Kind]

_INSTANTS = (Kind.TIMESTAMP, Kind.DATE)
_WITHOUT_ORDER = (Kind.OTHER, Kind.PLACE)
_WRITTEN = dict.fromkeys((AT_TIME_ZONE, TO_CLOCK, TO_INSTANT), "AT TIME ZONE")


def kind_of(expr: Expr, kind_of_field: KindOfField) -> Kind:
    """The kind of an expression's value, or a QueryError if its parts do not go together.

    A list such as `RETURN a[].price` has the kind of its elements, a whole event is OTHER.

    >>> kind_of(Binary("/", Literal(1), Literal(2)), lambda field: Kind.NULL)
    <Kind.FLOAT: 'float'>
    """
    match expr:
        case Literal(value=value):
            return kind_of_constant(value)
        case Field(name=None):
            return Kind.OTHER
        case Field():
            return kind_of_field(expr)
        case Aggregate(argument=None):
            return Kind.INTEGER
        case Aggregate(function=function, argument=argument):
            assert argument is not None
            return _aggregated(function, kind_of(argument, kind_of_field), expr)
        case Unary(operator="not", operand=operand):
            return _logical("not", operand, kind_of(operand, kind_of_field))
        case Unary(operand=operand):
            return _negative(kind_of(operand, kind_of_field), operand)
        case Binary(operator="and" | "or" as operator, left=left, right=right):
            _logical(operator, left, kind_of(left, kind_of_field))
            return _logical(operator, right, kind_of(right, kind_of_field))
        case Binary(operator=operator, left=left, right=right):
            kinds = kind_of(left, kind_of_field), kind_of(right, kind_of_field)
            if operator in COMPARISONS:
                return _compared(left, right, kinds, expr.span)
            if operator == "||":
                return _joined(expr, kinds)
            return _computed(operator, kinds, expr)
        case IsNull(operand=operand):
            kind_of(operand, kind_of_field)
            return Kind.BOOLEAN
        case In(operand=operand, options=options):
            return _each_compared(operand, options, kind_of_field)
        case Between(operand=operand, low=low, high=high):
            return _each_compared(operand, (low, high), kind_of_field)
        case Like(operand=operand):
            kind = kind_of(operand, kind_of_field)
            if kind not in (Kind.STRING, Kind.NULL):
                raise QueryError(
                    f"LIKE looks into strings, and this is {_a(kind)}",
                    hint="compare it with = or BETWEEN",
                    span=operand.span,
                )
            return Kind.BOOLEAN
        case Call(function=function, arguments=arguments):
            return _called(function, arguments, kind_of_field, expr.span)


def kind_of_constant(value: Constant) -> Kind:
    """The kind of a literal.

    >>> kind_of_constant(True), kind_of_constant(2**63)
    (<Kind.BOOLEAN: 'boolean'>, <Kind.FLOAT: 'float'>)
    """
    match value:
        case None:
            return Kind.NULL
        case bool():
            return Kind.BOOLEAN
        case int():
            # Beyond 64 bits a number is computed as a double.
            return Kind.INTEGER if -(2**63) <= value < 2**63 else Kind.FLOAT
        case float():
            return Kind.FLOAT
        case str():
            return Kind.STRING
        case datetime():
            return Kind.TIMESTAMP
        case timedelta():
            return Kind.DURATION


def _as_written(*exprs: Expr) -> None:
    """Refuses a whole number that would be rounded to the nearest float."""
    for expr in exprs:
        match expr:
            case Literal(value=int(value)) if abs(value) > EXACT and not _kept(value):
                raise QueryError(
                    f"{value} is beyond the 64-bit integers, and no float is exactly this number",
                    hint=f"write the nearest float, {float(value)!r}, if that is what you mean",
                    span=expr.span,
                )


def _kept(value: int) -> bool:
    return -(2**63) <= value < 2**63 or int(float(value)) == value


def comparable(left: Kind, right: Kind) -> bool:
    """Whether values of two kinds have an order.

    >>> comparable(Kind.DATE, Kind.TIMESTAMP), comparable(Kind.STRING, Kind.INTEGER)
    (True, False)
    """
    if not {left, right}.isdisjoint(_WITHOUT_ORDER):
        return False
    if Kind.NULL in (left, right) or left is right:
        return True
    return (left.numeric and right.numeric) or (left in _INSTANTS and right in _INSTANTS)


def _a(kind: Kind) -> str:
    match kind:
        case Kind.INTEGER | Kind.OTHER:
            return {Kind.INTEGER: "an integer", Kind.OTHER: "a nested or binary value"}[kind]
        case _:
            return f"a {kind.value}"


# ------------------------------------------------------------------------ logic and comparison


def _logical(operator: str, operand: Expr, kind: Kind) -> Kind:
    if kind not in (Kind.BOOLEAN, Kind.NULL):
        raise QueryError(
            f"'{operator}' joins conditions, and this is {_a(kind)}"
            if operator != "not"
            else f"'not' negates a condition, and this is {_a(kind)}",
            hint="compare it with something, as in a.price > 3",
            span=operand.span,
        )
    return Kind.BOOLEAN


def _compared(left: Expr, right: Expr, kinds: tuple[Kind, Kind], span: Span | None) -> Kind:
    if not comparable(*kinds):
        raise QueryError(
            f"{_a(kinds[0])} cannot be compared with {_a(kinds[1])}",
            hint=_way_to_compare(left, right, kinds),
            span=span,
        )
    if kinds != (Kind.FLOAT, Kind.INTEGER) and kinds != (Kind.INTEGER, Kind.FLOAT):
        _as_written(left, right)  # any integer is on the right side of what is beyond them all
    return Kind.BOOLEAN


def _way_to_compare(left: Expr, right: Expr, kinds: tuple[Kind, Kind]) -> str | None:
    for literal, kind in ((left, kinds[1]), (right, kinds[0])):
        if not isinstance(literal, Literal):
            continue
        if isinstance(literal.value, str) and kind in _INSTANTS:
            return f"write TIMESTAMP '{literal.value}'"
        if isinstance(literal.value, str) and kind.numeric:
            return "write the number without quotes"
        if kind is Kind.STRING and isinstance(literal.value, int | float):
            return f"write the string in quotes: '{literal.value}'"
        if kind is Kind.DURATION:
            return "write the unit: 5 minutes"
    if Kind.PLACE in kinds:
        return "use functions for places: distance(a.location, b.location) < 50, overlaps(p, q)"
    if Kind.OTHER in kinds:
        return "nested values are carried through: you can only test them with IS NULL"
    if Kind.DURATION in kinds and kinds != (Kind.DURATION, Kind.DURATION):
        return "the difference of two timestamps is a duration: b.time - a.time < 5 minutes"
    return None


def _each_compared(operand: Expr, others: Sequence[Expr], kind_of_field: KindOfField) -> Kind:
    kind = kind_of(operand, kind_of_field)
    for other in others:
        _compared(operand, other, (kind, kind_of(other, kind_of_field)), other.span)
    return Kind.BOOLEAN


# --------------------------------------------------------------------------------- arithmetic


def _number(kind: Kind) -> Kind:
    """What is computed from decimals is a double."""
    return Kind.FLOAT if kind is Kind.DECIMAL else kind


def _negative(kind: Kind, operand: Expr) -> Kind:
    if kind.numeric or kind in (Kind.DURATION, Kind.NULL):
        return _number(kind)
    raise QueryError(f"{_a(kind)} has no negative", span=operand.span)


def _computed(operator: str, kinds: tuple[Kind, Kind], expr: Binary) -> Kind:
    left, right = kinds
    _as_written(expr.left, expr.right)
    if Kind.NULL in kinds and set(kinds).isdisjoint(_WITHOUT_ORDER):
        return Kind.NULL
    if left.numeric and right.numeric:
        whole = left is right is Kind.INTEGER and operator != "/"
        return Kind.INTEGER if whole else Kind.FLOAT
    match operator:
        case "+" if left in _INSTANTS and right is Kind.DURATION:
            return Kind.TIMESTAMP
        case "+" if left is Kind.DURATION and right in _INSTANTS:
            return Kind.TIMESTAMP
        case "-" if left in _INSTANTS and right is Kind.DURATION:
            return Kind.TIMESTAMP
        case "-" if left in _INSTANTS and right in _INSTANTS:
            return Kind.DURATION
        case "+" | "-" | "%" if left is right is Kind.DURATION:
            return Kind.DURATION
        case "/" if left is right is Kind.DURATION:
            return Kind.FLOAT
        case "*" | "/" if left is Kind.DURATION and right.numeric:
            return Kind.DURATION
        case "*" if left.numeric and right is Kind.DURATION:
            return Kind.DURATION
    raise QueryError(
        f"'{operator}' cannot be combined with {_a(left)} and {_a(right)}",
        hint=_way_to_compute(operator, kinds),
        span=expr.span,
    )


def _way_to_compute(operator: str, kinds: tuple[Kind, Kind]) -> str | None:
    if operator == "+" and kinds == (Kind.STRING, Kind.STRING):
        return "join strings with ||"
    if any(kind in _INSTANTS for kind in kinds) and any(kind.numeric for kind in kinds):
        return "write the unit: a.time + 5 minutes"
    if Kind.STRING in kinds:
        return "length(x) gives the number of characters of a string"
    return None


def _joined(expr: Binary, kinds: tuple[Kind, Kind]) -> Kind:
    for operand, kind in zip((expr.left, expr.right), kinds, strict=True):
        _expect("'||'", Takes.TEXT, operand, kind)
    return Kind.STRING


# --------------------------------------------------------------------- aggregates and functions


def _aggregated(function: str, kind: Kind, expr: Aggregate) -> Kind:
    match function:
        case "count":
            return Kind.INTEGER
        case "first" | "last" if kind is not Kind.PLACE:
            return kind
        case "min" | "max" if kind not in _WITHOUT_ORDER:
            return kind
        case "sum" if kind.numeric or kind in (Kind.DURATION, Kind.NULL):
            return _number(kind)
        case "avg" if kind in (Kind.DURATION, Kind.NULL):
            return kind
        case "percentile" if kind is Kind.DURATION:
            return kind
        case "avg" | "stddev" | "percentile" if kind.numeric or kind is Kind.NULL:
            return Kind.FLOAT
        case "stddev_pop" | "variance" | "var_pop" | "product" if kind.numeric:
            return Kind.FLOAT
        case "count_distinct" if kind not in _WITHOUT_ORDER:
            return Kind.INTEGER
        case "any_value" | "mode" if kind not in _WITHOUT_ORDER:
            return kind
        case "string_agg" if kind in (Kind.STRING, Kind.NULL):
            return kind
        case "bool_and" | "bool_or" if kind in (Kind.BOOLEAN, Kind.NULL):
            return kind
    median = function == "percentile" and expr.parameter == 50
    raise QueryError(
        f"{'median' if median else function} does not work on {_a(kind)}",
        hint=_way_to_aggregate(kind),
        span=expr.span,
    )


def _way_to_aggregate(kind: Kind) -> str:
    match kind:
        case Kind.PLACE:
            return "aggregate a number, as in max(distance(a.location, POINT(0, 0)))"
        case Kind.OTHER:
            return "count does"
        case Kind.STRING:
            return "count, first, last, min, max, mode and string_agg do"
        case Kind.DURATION:
            return "count, first, last, min, max, sum, avg and median do"
        case _:
            return "count, first, last, min and max do"


def _called(
    function: str,
    arguments: Sequence[Expr],
    kind_of_field: KindOfField,
    span: Span | None,
) -> Kind:
    _as_written(*arguments)
    kinds = [kind_of(argument, kind_of_field) for argument in arguments]
    record = FUNCTIONS[function]
    takes = record.wanted(len(arguments))
    for argument, kind, wanted in zip(arguments, kinds, takes, strict=True):
        if wanted is not Takes.ANY:
            _expect(_WRITTEN.get(function, function), wanted, argument, kind)
        elif record.gives is not Gives.SHARED:
            _compared(arguments[0], argument, (kinds[0], kind), span)
    if record.gives is Gives.SHARED:
        alike = [n for n, wanted in enumerate(takes) if wanted is Takes.ANY]
        return _unified(function, [arguments[n] for n in alike], [kinds[n] for n in alike], span)
    return record.kind(kinds)


def _expect(what: str, wanted: Takes, argument: Expr, kind: Kind) -> None:
    if wanted is Takes.ZONE and not isinstance(argument, Literal):
        raise QueryError(
            f"{what} takes the name of a time zone, written out",
            hint="as in a.ts AT TIME ZONE 'Europe/Zurich'",
            span=argument.span,
        )
    if kind is not Kind.NULL and kind not in wanted.kinds:
        raise QueryError(
            f"{what} takes {wanted.value}, and this is {_a(kind)}",
            hint=_way_to_a_place(argument) if wanted is Takes.PLACE else None,
            span=argument.span,
        )
    match argument:
        case Literal(value=str(text)) if wanted is Takes.REGEXP:
            try:
                compiled(text)
            except QueryError as error:
                raise error.at(argument.span, None) from None
        case Literal(value=str(text)) if wanted is Takes.UNIT and unit_of(text) is None:
            raise QueryError(
                f"'{text}' is not a unit of time",
                hint="'microsecond' to 'day', 'week', 'month', 'quarter', 'year'",
                span=argument.span,
            )
        case Literal(value=str(text)) if wanted is Takes.ZONE and zone_named(text) is None:
            raise QueryError(
                f"'{text}' is not a time zone", hint=hint_for(text), span=argument.span
            )


def _way_to_a_place(argument: Expr) -> str:
    if isinstance(argument, Field) and argument.name == "location":
        return "events have a field 'location' that holds no places: give it another name"
    return "a place is a.location, point(x, y), CIRCLE(x, y, r) or WKT 'POLYGON (...)'"


def _unified(
    function: str, arguments: Sequence[Expr], kinds: Sequence[Kind], span: Span | None
) -> Kind:
    """The one kind that can hold any of the arguments."""
    found = Kind.NULL
    for argument, kind in zip(arguments, kinds, strict=True):
        if not comparable(found, kind):
            raise QueryError(
                f"{function} needs values of one kind, not {_a(found)} and {_a(kind)}"
                if kind not in _WITHOUT_ORDER
                else f"{function} does not work on {_a(kind)}",
                span=argument.span or span,
            )
        found = shared(found, kind)
    return found
