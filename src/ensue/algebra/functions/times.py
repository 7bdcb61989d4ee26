"""The parts of a time, as clocks show them in UTC, whatever its zone."""

from ensue.algebra.functions.record import Function, OverTimes, Takes
from ensue.algebra.values import instant
from ensue.schema import Kind


def _part(name: str, vector: str) -> Function:
    return Function(
        name,
        (Takes.TIME,),
        Kind.INTEGER,
        lambda value: int(getattr(instant(value), name)),
        vector=OverTimes(vector),
    )


TIMES = (
    _part("year", "clock.astype('M8[Y]').astype(np.int64) + 1970"),
    _part("month", "since(clock, 'M', 'Y') + 1"),
    _part("day", "since(clock, 'D', 'M') + 1"),
    _part("hour", "since(clock, 'h', 'D')"),
    _part("minute", "since(clock, 'm', 'h')"),
    _part("second", "since(clock, 's', 'm')"),
)
