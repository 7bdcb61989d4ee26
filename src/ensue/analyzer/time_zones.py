"""Time zones of expressions, which the analyzer makes explicit.

`hour(a.ts)` of a column in a zone becomes `hour(from_utc_timestamp(a.ts, 'Europe/Zurich'))`, so
later phases need no zones, and a saved state depends on the zone.
"""

from collections.abc import Callable
from dataclasses import replace

from ensue.functions import FUNCTIONS
from ensue.functions.datetime import BELOW_A_DAY, is_utc, parse_unit
from ensue.functions.record import AT_TIME_ZONE, TO_CLOCK, TO_INSTANT, ArgumentType, ResultType
from ensue.ir.expression import Aggregate, Binary, Expr, FieldRef, FunctionCall, Literal, Unary
from ensue.ir.traversal import rewrite_expr
from ensue.schema import ValueKind

ZoneLookup = Callable[[FieldRef], str | None]


def get_time_zone(expr: Expr, zone_of_field: ZoneLookup) -> str | None:
    """Returns the time zone of an expression; None if it has none, or is no time.

    >>> from ensue.ir.expression import FieldRef
    >>> get_time_zone(Binary("+", FieldRef("a", "ts"), Literal(1)), lambda _: "Asia/Tokyo")
    'Asia/Tokyo'
    """
    match expr:
        case FieldRef(name=None):
            return None
        case FieldRef():
            return zone_of_field(expr)
        case FunctionCall(function=function, arguments=(time, Literal(value=zone))) if function in (
            AT_TIME_ZONE,
            TO_INSTANT,
        ):
            local = function == AT_TIME_ZONE and get_time_zone(time, zone_of_field) is not None
            return None if local else str(zone)
        case FunctionCall(function=function) if function == TO_CLOCK:
            return None
        case FunctionCall(function=function, arguments=arguments):
            record = FUNCTIONS[function]
            if record.gives is ValueKind.TIMESTAMP or isinstance(record.gives, ResultType):
                return _find_zone(arguments, zone_of_field)
            return None
        case Aggregate(argument=argument):
            return None if argument is None else get_time_zone(argument, zone_of_field)
        case Binary(operator="+" | "-", left=left, right=right):
            return _find_zone((left, right), zone_of_field)
        case Unary(operand=operand):
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
            case FunctionCall(function=function, arguments=(time, zone)) if function == AT_TIME_ZONE:
                zoned = get_time_zone(time, zone_of_field) is not None
                return FunctionCall(TO_CLOCK if zoned else TO_INSTANT, (time, zone), node.span)
            case FunctionCall(function=function) if FUNCTIONS[function].clock:
                return _convert_to_local(node, zone_of_field)
            case _:
                return node

    return rewrite_expr(expr, change)


def _convert_to_local(call: FunctionCall, zone_of_field: ZoneLookup) -> Expr:
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
        argument if name is None or is_utc(name) else FunctionCall(TO_CLOCK, (argument, Literal(name)))
        for argument, name in zip(call.arguments, zones, strict=True)
    )
    unit = parse_unit(call.arguments[0].value) if isinstance(call.arguments[0], Literal) else None
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
        return FunctionCall(TO_INSTANT, (local, Literal(zone)), call.span)
    return local


def _truncate(unit: Expr, time: Expr, clock: Expr) -> Expr:
    """Truncates a time to an hour or less by the local time."""
    if time == clock:
        return FunctionCall("date_trunc", (unit, time), time.span)
    passed = Binary("-", clock, FunctionCall("date_trunc", (unit, clock)))
    return Binary("-", time, passed, time.span)
