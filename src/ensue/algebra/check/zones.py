"""Zones of times: what functions that read clocks mean for them, written out.

`hour(a.ts)` of a column in a zone is `hour(from_utc_timestamp(a.ts, 'Europe/Zurich'))` from here
on, so nothing behind the check knows of zones, and a saved state says in which zone it was made.
"""

from collections.abc import Callable
from dataclasses import replace

from ensue.algebra.functions import FUNCTIONS
from ensue.algebra.functions.record import Gives, Takes
from ensue.algebra.functions.times import BELOW_A_DAY, unit_of
from ensue.algebra.functions.zones import AT_TIME_ZONE, TO_CLOCK, TO_INSTANT
from ensue.algebra.predicate import Aggregate, Binary, Call, Expr, Field, Literal, Unary
from ensue.algebra.walk import rewrite_expr
from ensue.algebra.zones import is_utc
from ensue.schema import Kind

ZoneOfField = Callable[[Field], str | None]


def zone_of(expr: Expr, zone_of_field: ZoneOfField) -> str | None:
    """The zone of a time; None where it has none, or is no time.

    >>> from ensue.algebra.predicate import Field
    >>> zone_of(Binary("+", Field("a", "ts"), Literal(1)), lambda _: "Asia/Tokyo")
    'Asia/Tokyo'
    """
    match expr:
        case Field(name=None):
            return None
        case Field():
            return zone_of_field(expr)
        case Call(function=function, arguments=(time, Literal(value=zone))) if function in (
            AT_TIME_ZONE,
            TO_INSTANT,
        ):
            local = function == AT_TIME_ZONE and zone_of(time, zone_of_field) is not None
            return None if local else str(zone)
        case Call(function=function) if function == TO_CLOCK:
            return None
        case Call(function=function, arguments=arguments):
            record = FUNCTIONS[function]
            if record.gives is Kind.TIMESTAMP or isinstance(record.gives, Gives):
                return _first(arguments, zone_of_field)
            return None
        case Aggregate(argument=argument):
            return None if argument is None else zone_of(argument, zone_of_field)
        case Binary(operator="+" | "-", left=left, right=right):
            return _first((left, right), zone_of_field)
        case Unary(operand=operand):
            return zone_of(operand, zone_of_field)
        case _:
            return None


def _first(exprs: tuple[Expr, ...], zone_of_field: ZoneOfField) -> str | None:
    found = (zone_of(expr, zone_of_field) for expr in exprs)
    return next((zone for zone in found if zone is not None), None)


def in_zones(expr: Expr, zone_of_field: ZoneOfField) -> Expr:
    """An expression whose functions of clocks read those of the zone that a time is in."""

    def change(node: Expr) -> Expr:
        match node:
            case Call(function=function, arguments=(time, zone)) if function == AT_TIME_ZONE:
                zoned = zone_of(time, zone_of_field) is not None
                return Call(TO_CLOCK if zoned else TO_INSTANT, (time, zone), node.span)
            case Call(function=function) if FUNCTIONS[function].clock:
                return _on_clocks(node, zone_of_field)
            case _:
                return node

    return rewrite_expr(expr, change)


def _on_clocks(call: Call, zone_of_field: ZoneOfField) -> Expr:
    record = FUNCTIONS[call.function]
    takes = record.wanted(len(call.arguments))
    zones = [
        zone_of(argument, zone_of_field) if wanted in (Takes.TIME, Takes.MOMENT) else None
        for argument, wanted in zip(call.arguments, takes, strict=True)
    ]
    zone = next((one for one in zones if one is not None and not is_utc(one)), None)
    if zone is None:
        return call
    clocks = tuple(
        argument if one is None or is_utc(one) else Call(TO_CLOCK, (argument, Literal(one)))
        for argument, one in zip(call.arguments, zones, strict=True)
    )
    unit = unit_of(call.arguments[0].value) if isinstance(call.arguments[0], Literal) else None
    if call.function == "date_diff" and unit in BELOW_A_DAY:
        # hours that pass while clocks are turned are hours
        units = call.arguments[0]
        pairs = zip(call.arguments[1:], clocks[1:], strict=True)
        begun = tuple(_begun(units, *pair) for pair in pairs)
        return replace(call, arguments=(units, *begun))
    if call.function == "date_trunc" and unit in BELOW_A_DAY:
        return _begun(call.arguments[0], call.arguments[1], clocks[1])
    made = replace(call, arguments=clocks)
    if record.gives is Kind.TIMESTAMP:
        return Call(TO_INSTANT, (made, Literal(zone)), call.span)
    return made


def _begun(unit: Expr, time: Expr, clock: Expr) -> Expr:
    """When an hour or less began: so much earlier, as clocks have gone on since."""
    if time == clock:
        return Call("date_trunc", (unit, time), time.span)
    passed = Binary("-", clock, Call("date_trunc", (unit, clock)))
    return Binary("-", time, passed, time.span)
