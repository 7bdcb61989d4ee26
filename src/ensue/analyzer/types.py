"""Type inference of expressions, and the implicit casts of SQL."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ensue.errors import QueryError, Span
from ensue.functions import FUNCTIONS
from ensue.functions.datetime import BELOW_A_DAY, is_utc, parse_unit
from ensue.functions.record import AT_TIME_ZONE, TO_CLOCK, TO_INSTANT, ArgumentType, ResultType, get_common_kind
from ensue.ir import expression
from ensue.ir.expression import Expr
from ensue.ir.traversal import rewrite_expr
from ensue.ir.values import fit_int64
from ensue.schema import ValueKind

KindLookup = Callable[[expression.FieldRef], ValueKind]

_INSTANTS = (ValueKind.TIMESTAMP, ValueKind.DATE)
_WITHOUT_ORDER = (ValueKind.OTHER, ValueKind.PLACE)
_WRITTEN = dict.fromkeys((AT_TIME_ZONE, TO_CLOCK, TO_INSTANT), "AT TIME ZONE")


def infer_kind(expr: Expr, kind_of_field: KindLookup) -> ValueKind:
    """Infers the kind of an expression, or raises a QueryError if operands do not fit.

    A list such as `RETURN a[].price` has the kind of its elements; an event is OTHER.

    >>> infer_kind(expression.Binary("/", expression.Literal(1), expression.Literal(2)), lambda field: ValueKind.NULL)
    <ValueKind.FLOAT: 'float'>
    """
    match expr:
        case expression.Literal(value=value):
            return get_constant_kind(value)
        case expression.FieldRef(name=None):
            return ValueKind.OTHER
        case expression.FieldRef():
            return kind_of_field(expr)
        case expression.Aggregate(argument=None):
            return ValueKind.INTEGER
        case expression.Aggregate(function=function, argument=argument):
            assert argument is not None
            return _infer_aggregate(function, infer_kind(argument, kind_of_field), expr)
        case expression.Unary(operator="not", operand=operand):
            return _logical("not", operand, infer_kind(operand, kind_of_field))
        case expression.Unary(operand=operand):
            kind = infer_kind(operand, kind_of_field)
            if kind.numeric or kind in (ValueKind.DURATION, ValueKind.NULL):
                return _number(kind)
            raise QueryError(f"{_a(kind)} has no negative", span=operand.span)
        case expression.Binary(operator="and" | "or" as operator, left=left, right=right):
            _logical(operator, left, infer_kind(left, kind_of_field))
            return _logical(operator, right, infer_kind(right, kind_of_field))
        case expression.Binary(operator=operator, left=left, right=right):
            kinds = infer_kind(left, kind_of_field), infer_kind(right, kind_of_field)
            if operator in expression.COMPARISONS:
                return _compare(left, right, kinds, expr.span)
            if operator == "||":
                for operand, kind in zip((left, right), kinds, strict=True):
                    _expect("'||'", ArgumentType.TEXT, operand, kind)
                return ValueKind.STRING
            return _compute(operator, kinds, expr)
        case expression.IsNull(operand=operand):
            infer_kind(operand, kind_of_field)
            return ValueKind.BOOLEAN
        case expression.In(operand=operand, options=options):
            return _check_each(operand, options, kind_of_field)
        case expression.Between(operand=operand, low=low, high=high):
            return _check_each(operand, (low, high), kind_of_field)
        case expression.Like(operand=operand):
            kind = infer_kind(operand, kind_of_field)
            if kind not in (ValueKind.STRING, ValueKind.NULL):
                raise QueryError(
                    f"LIKE takes a string, and this is {_a(kind)}",
                    hint="compare it with = or BETWEEN",
                    span=operand.span,
                )
            return ValueKind.BOOLEAN
        case expression.FunctionCall(function=function, arguments=arguments):
            return _infer_call(function, arguments, kind_of_field, expr.span)


def get_constant_kind(value: expression.Constant) -> ValueKind:
    """Returns the kind of a constant.

    >>> get_constant_kind(True), get_constant_kind(2**63)
    (<ValueKind.BOOLEAN: 'boolean'>, <ValueKind.FLOAT: 'float'>)
    """
    match value:
        case None:
            return ValueKind.NULL
        case bool():
            return ValueKind.BOOLEAN
        case int():
            # beyond 64 bits, computations use doubles
            return ValueKind.FLOAT if fit_int64(value) is None else ValueKind.INTEGER
        case float():
            return ValueKind.FLOAT
        case str():
            return ValueKind.STRING
        case datetime():
            return ValueKind.TIMESTAMP
        case timedelta():
            return ValueKind.DURATION


def _reject_rounded(*exprs: Expr) -> None:
    """Rejects an integer constant that would be rounded to the nearest float."""
    for expr in exprs:
        match expr:
            case expression.Literal(value=int(value)) if fit_int64(value) is None and int(float(value)) != value:
                raise QueryError(
                    f"{value} is beyond the 64-bit integers, and no float is exactly this number",
                    hint=f"write the nearest float, {float(value)!r}, if that is what you mean",
                    span=expr.span,
                )


def are_comparable(left: ValueKind, right: ValueKind) -> bool:
    """Whether values of two kinds can be compared.

    >>> are_comparable(ValueKind.DATE, ValueKind.TIMESTAMP)
    True
    """
    if not {left, right}.isdisjoint(_WITHOUT_ORDER):
        return False
    if ValueKind.NULL in (left, right) or left is right:
        return True
    return (left.numeric and right.numeric) or (left in _INSTANTS and right in _INSTANTS)


def _a(kind: ValueKind) -> str:
    names = {ValueKind.INTEGER: "an integer", ValueKind.OTHER: "a nested or binary value"}
    return names.get(kind, f"a {kind.value}")


def _logical(operator: str, operand: Expr, kind: ValueKind) -> ValueKind:
    if kind not in (ValueKind.BOOLEAN, ValueKind.NULL):
        does = "negates a condition" if operator == "not" else "joins conditions"
        raise QueryError(
            f"'{operator}' {does}, and this is {_a(kind)}",
            hint="compare it with something, as in a.price > 3",
            span=operand.span,
        )
    return ValueKind.BOOLEAN


def _compare(left: Expr, right: Expr, kinds: tuple[ValueKind, ValueKind], span: Span | None) -> ValueKind:
    if not are_comparable(*kinds):
        raise QueryError(
            f"{_a(kinds[0])} cannot be compared with {_a(kinds[1])}",
            hint=_suggest_comparison(left, right, kinds),
            span=span,
        )
    if set(kinds) != {ValueKind.FLOAT, ValueKind.INTEGER}:
        _reject_rounded(left, right)  # integers compare correctly with constants beyond 64 bits
    return ValueKind.BOOLEAN


def _suggest_comparison(left: Expr, right: Expr, kinds: tuple[ValueKind, ValueKind]) -> str | None:
    for literal, kind in ((left, kinds[1]), (right, kinds[0])):
        if not isinstance(literal, expression.Literal):
            continue
        if isinstance(literal.value, str) and kind in _INSTANTS:
            return f"write TIMESTAMP '{literal.value}'"
        if isinstance(literal.value, str) and kind.numeric:
            return "write the number without quotes"
        if kind is ValueKind.STRING and isinstance(literal.value, int | float):
            return f"write the string in quotes: '{literal.value}'"
        if kind is ValueKind.DURATION:
            return "write the unit: 5 minutes"
    if ValueKind.PLACE in kinds:
        return "use functions for places: distance(a.location, b.location) < 50, overlaps(p, q)"
    if ValueKind.OTHER in kinds:
        return "nested values are passed through: you can only test them with IS NULL"
    if ValueKind.DURATION in kinds and kinds != (ValueKind.DURATION, ValueKind.DURATION):
        return "the difference of two timestamps is a duration: b.time - a.time < 5 minutes"
    return None


def _check_each(operand: Expr, others: Sequence[Expr], kind_of_field: KindLookup) -> ValueKind:
    kind = infer_kind(operand, kind_of_field)
    for other in others:
        _compare(operand, other, (kind, infer_kind(other, kind_of_field)), other.span)
    return ValueKind.BOOLEAN


def _number(kind: ValueKind) -> ValueKind:
    """Returns the kind of a computed number: decimals become doubles."""
    return ValueKind.FLOAT if kind is ValueKind.DECIMAL else kind


def _compute(operator: str, kinds: tuple[ValueKind, ValueKind], expr: expression.Binary) -> ValueKind:
    left, right = kinds
    _reject_rounded(expr.left, expr.right)
    if ValueKind.NULL in kinds and set(kinds).isdisjoint(_WITHOUT_ORDER):
        return ValueKind.NULL
    if left.numeric and right.numeric:
        whole = left is right is ValueKind.INTEGER and operator != "/"
        return ValueKind.INTEGER if whole else ValueKind.FLOAT
    match operator:
        case "+" | "-" if left in _INSTANTS and right is ValueKind.DURATION:
            return ValueKind.TIMESTAMP
        case "+" if left is ValueKind.DURATION and right in _INSTANTS:
            return ValueKind.TIMESTAMP
        case "-" if left in _INSTANTS and right in _INSTANTS:
            return ValueKind.DURATION
        case "+" | "-" | "%" if left is right is ValueKind.DURATION:
            return ValueKind.DURATION
        case "/" if left is right is ValueKind.DURATION:
            return ValueKind.FLOAT
        case "*" | "/" if left is ValueKind.DURATION and right.numeric:
            return ValueKind.DURATION
        case "*" if left.numeric and right is ValueKind.DURATION:
            return ValueKind.DURATION
    raise QueryError(
        f"'{operator}' cannot be combined with {_a(left)} and {_a(right)}",
        hint=_suggest_arithmetic(operator, kinds),
        span=expr.span,
    )


def _suggest_arithmetic(operator: str, kinds: tuple[ValueKind, ValueKind]) -> str | None:
    if operator == "+" and kinds == (ValueKind.STRING, ValueKind.STRING):
        return "join strings with ||"
    if any(kind in _INSTANTS for kind in kinds) and any(kind.numeric for kind in kinds):
        return "write the unit: a.time + 5 minutes"
    if ValueKind.STRING in kinds:
        return "length(x) gives the number of characters of a string"
    return None


def _infer_aggregate(function: str, kind: ValueKind, expr: expression.Aggregate) -> ValueKind:
    match function:
        case "count":
            return ValueKind.INTEGER
        case "first" | "last" if kind is not ValueKind.PLACE:
            return kind
        case "min" | "max" | "any_value" | "mode" if kind not in _WITHOUT_ORDER:
            return kind
        case "sum" if kind.numeric or kind in (ValueKind.DURATION, ValueKind.NULL):
            return _number(kind)
        case "avg" if kind in (ValueKind.DURATION, ValueKind.NULL):
            return kind
        case "percentile" if kind is ValueKind.DURATION:
            return kind
        case "avg" | "stddev" | "percentile" if kind.numeric or kind is ValueKind.NULL:
            return ValueKind.FLOAT
        case "stddev_pop" | "variance" | "var_pop" | "product" if kind.numeric:
            return ValueKind.FLOAT
        case "count_distinct" if kind not in _WITHOUT_ORDER:
            return ValueKind.INTEGER
        case "string_agg" if kind in (ValueKind.STRING, ValueKind.NULL):
            return kind
        case "bool_and" | "bool_or" if kind in (ValueKind.BOOLEAN, ValueKind.NULL):
            return kind
    median = function == "percentile" and expr.parameter == 50
    raise QueryError(
        f"{'median' if median else function} does not work on {_a(kind)}", hint=_suggest_aggregate(kind), span=expr.span
    )


def _suggest_aggregate(kind: ValueKind) -> str:
    match kind:
        case ValueKind.PLACE:
            return "aggregate a number, as in max(distance(a.location, POINT(0, 0)))"
        case ValueKind.OTHER:
            return "count works on it"
        case ValueKind.STRING:
            return "count, first, last, min, max, mode and string_agg work on it"
        case ValueKind.DURATION:
            return "count, first, last, min, max, sum, avg and median work on it"
        case _:
            return "count, first, last, min and max work on it"


def _infer_call(function: str, arguments: Sequence[Expr], kind_of_field: KindLookup, span: Span | None) -> ValueKind:
    _reject_rounded(*arguments)
    kinds = [infer_kind(argument, kind_of_field) for argument in arguments]
    record = FUNCTIONS[function]
    takes = record.get_argument_types(len(arguments))
    for argument, kind, type_ in zip(arguments, kinds, takes, strict=True):
        if type_ is not ArgumentType.ANY:
            _expect(_WRITTEN.get(function, function), type_, argument, kind)
        elif record.gives is not ResultType.SHARED:
            _compare(arguments[0], argument, (kinds[0], kind), span)
    if record.gives is ResultType.SHARED:
        alike = [n for n, type_ in enumerate(takes) if type_ is ArgumentType.ANY]
        return _unify(function, [arguments[n] for n in alike], [kinds[n] for n in alike], span)
    return record.kind(kinds)


def _expect(what: str, type_: ArgumentType, argument: Expr, kind: ValueKind) -> None:
    if type_ is ArgumentType.ZONE and not isinstance(argument, expression.Literal):
        raise QueryError(
            f"{what} takes the name of a time zone as a constant",
            hint="as in a.ts AT TIME ZONE 'Europe/Zurich'",
            span=argument.span,
        )
    if kind is not ValueKind.NULL and kind not in type_.kinds:
        raise QueryError(
            f"{what} takes {type_.value}, and this is {_a(kind)}",
            hint=_suggest_place(argument) if type_ is ArgumentType.PLACE else None,
            span=argument.span,
        )
    match argument:
        case expression.Literal(value=str(text)) if type_ is ArgumentType.REGEXP:
            from ensue.functions.string import compile_regexp

            try:
                compile_regexp(text)
            except QueryError as error:
                raise error.at(argument.span, None) from None
        case expression.Literal(value=str(text)) if type_ is ArgumentType.UNIT and parse_unit(text) is None:
            raise QueryError(
                f"'{text}' is not a unit of time",
                hint="'microsecond' to 'day', 'week', 'month', 'quarter', 'year'",
                span=argument.span,
            )
        case expression.Literal(value=str(text)) if type_ is ArgumentType.ZONE:
            from ensue.functions.datetime import find_zone, suggest_zone

            if find_zone(text) is None:
                raise QueryError(f"'{text}' is not a time zone", hint=suggest_zone(text), span=argument.span)


def _suggest_place(argument: Expr) -> str:
    if isinstance(argument, expression.FieldRef) and argument.name == "location":
        return "events have a field 'location' that holds no locations: give it another name"
    return "a place is a.location, point(x, y), CIRCLE(x, y, r) or WKT 'POLYGON (...)'"


def _unify(function: str, arguments: Sequence[Expr], kinds: Sequence[ValueKind], span: Span | None) -> ValueKind:
    """Returns the common kind of the arguments."""
    common = ValueKind.NULL
    for argument, kind in zip(arguments, kinds, strict=True):
        if not are_comparable(common, kind):
            raise QueryError(
                f"{function} needs values of one kind, not {_a(common)} and {_a(kind)}"
                if kind not in _WITHOUT_ORDER
                else f"{function} does not work on {_a(kind)}",
                span=argument.span or span,
            )
        common = get_common_kind(common, kind)
    return common


_JOINING = ("concat", "concat_ws")


def add_implicit_casts(expr: Expr, kind_of_field: KindLookup) -> Expr:
    """Makes the implicit casts of SQL explicit: numbers to strings, integers to floats.

    >>> expr = expression.Binary("||", expression.FieldRef("", "n"), expression.Literal("x"))
    >>> add_implicit_casts(expr, lambda _: ValueKind.INTEGER).left.function
    'to_string'
    """

    def kind(part: Expr) -> ValueKind | None:
        try:
            return infer_kind(part, kind_of_field)
        except QueryError:  # raised again when the query is checked
            return None

    def text(part: Expr) -> Expr:
        part_kind = kind(part)
        if part_kind not in ArgumentType.PRINTED.kinds or part_kind is ValueKind.STRING:
            return part
        return expression.FunctionCall("to_string", (part,), part.span)

    def beside(part: Expr, *others: Expr) -> Expr:
        """Casts a string constant to a time if it is compared with one."""
        if not isinstance(part, expression.Literal) or not isinstance(part.value, str):
            return part
        if not any(kind(other) in _INSTANTS for other in others):
            return part
        try:
            return replace(part, value=datetime.fromisoformat(part.value.strip()))
        except ValueError:
            return part

    def change(node: Expr) -> Expr:
        match node:
            case expression.Binary(operator="||", left=left, right=right):
                return replace(node, left=text(left), right=text(right))
            case expression.Binary(operator=operator, left=left, right=right) if operator in expression.COMPARISONS:
                return replace(node, left=beside(left, right), right=beside(right, left))
            case expression.Between(operand=operand, low=low, high=high):
                return replace(node, low=beside(low, operand), high=beside(high, operand))
            case expression.In(operand=operand, options=options):
                return replace(node, options=tuple(beside(o, operand) for o in options))
            case expression.FunctionCall(function=function, arguments=arguments) if function in _JOINING:
                return replace(node, arguments=tuple(map(text, arguments)))
            case expression.FunctionCall(function=function) if FUNCTIONS[function].gives is ResultType.SHARED:
                return _shared(node)
            case _:
                return node

    def _shared(node: expression.FunctionCall) -> Expr:
        """Casts arguments to their common kind."""
        if kind(node) is not ValueKind.FLOAT:
            return node
        cast = (ValueKind.INTEGER, ValueKind.DECIMAL)
        return replace(
            node,
            arguments=tuple(
                expression.FunctionCall("to_float", (a,), a.span) if kind(a) in cast else a for a in node.arguments
            ),
        )

    return rewrite_expr(expr, change)


ZoneLookup = Callable[[expression.FieldRef], str | None]


def get_time_zone(expr: Expr, zone_of_field: ZoneLookup) -> str | None:
    """Returns the time zone of an expression; None if it has none, or is no time.

    >>> from ensue.ir.expression import FieldRef
    >>> get_time_zone(
    ...     expression.Binary("+", expression.FieldRef("a", "ts"), expression.Literal(1)), lambda _: "Asia/Tokyo"
    ... )
    'Asia/Tokyo'
    """
    match expr:
        case expression.FieldRef(name=None):
            return None
        case expression.FieldRef():
            return zone_of_field(expr)
        case expression.FunctionCall(function=function, arguments=(time, expression.Literal(value=zone))) if (
            function in (AT_TIME_ZONE, TO_INSTANT)
        ):
            local = function == AT_TIME_ZONE and get_time_zone(time, zone_of_field) is not None
            return None if local else str(zone)
        case expression.FunctionCall(function=function) if function == TO_CLOCK:
            return None
        case expression.FunctionCall(function=function, arguments=arguments):
            record = FUNCTIONS[function]
            if record.gives is ValueKind.TIMESTAMP or isinstance(record.gives, ResultType):
                return _find_zone(arguments, zone_of_field)
            return None
        case expression.Aggregate(argument=argument):
            return None if argument is None else get_time_zone(argument, zone_of_field)
        case expression.Binary(operator="+" | "-", left=left, right=right):
            return _find_zone((left, right), zone_of_field)
        case expression.Unary(operand=operand):
            return get_time_zone(operand, zone_of_field)
        case _:
            return None


def _find_zone(exprs: tuple[Expr, ...], zone_of_field: ZoneLookup) -> str | None:
    zones = (get_time_zone(expr, zone_of_field) for expr in exprs)
    return next((zone for zone in zones if zone is not None), None)


def apply_time_zones(expr: Expr, zone_of_field: ZoneLookup) -> Expr:
    """Makes functions of local time use the time zones of their arguments."""

    def change(node: Expr) -> Expr:
        match node:
            case expression.FunctionCall(function=function, arguments=(time, zone)) if function == AT_TIME_ZONE:
                zoned = get_time_zone(time, zone_of_field) is not None
                return expression.FunctionCall(TO_CLOCK if zoned else TO_INSTANT, (time, zone), node.span)
            case expression.FunctionCall(function=function) if FUNCTIONS[function].clock:
                return _convert_to_local(node, zone_of_field)
            case _:
                return node

    return rewrite_expr(expr, change)


def _convert_to_local(call: expression.FunctionCall, zone_of_field: ZoneLookup) -> Expr:
    record = FUNCTIONS[call.function]
    takes = record.get_argument_types(len(call.arguments))
    zones = [
        get_time_zone(argument, zone_of_field) if type_ in (ArgumentType.TIME, ArgumentType.MOMENT) else None
        for argument, type_ in zip(call.arguments, takes, strict=True)
    ]
    zone = next((name for name in zones if name is not None and not is_utc(name)), None)
    if zone is None:
        return call
    clocks = tuple(
        argument
        if name is None or is_utc(name)
        else expression.FunctionCall(TO_CLOCK, (argument, expression.Literal(name)))
        for argument, name in zip(call.arguments, zones, strict=True)
    )
    unit = parse_unit(call.arguments[0].value) if isinstance(call.arguments[0], expression.Literal) else None
    if call.function == "date_diff" and unit in BELOW_A_DAY:
        # elapsed hours count, also across a clock change
        units = call.arguments[0]
        pairs = zip(call.arguments[1:], clocks[1:], strict=True)
        begun = tuple(_truncate(units, *pair) for pair in pairs)
        return replace(call, arguments=(units, *begun))
    if call.function == "date_trunc" and unit in BELOW_A_DAY:
        return _truncate(call.arguments[0], call.arguments[1], clocks[1])
    local = replace(call, arguments=clocks)
    if record.gives is ValueKind.TIMESTAMP:
        return expression.FunctionCall(TO_INSTANT, (local, expression.Literal(zone)), call.span)
    return local


def _truncate(unit: Expr, time: Expr, clock: Expr) -> Expr:
    """Truncates a time to an hour or less by the local time."""
    if time == clock:
        return expression.FunctionCall("date_trunc", (unit, time), time.span)
    passed = expression.Binary("-", clock, expression.FunctionCall("date_trunc", (unit, clock)))
    return expression.Binary("-", time, passed, time.span)
