"""Counting units of time on arrays of datetime64: what the forms over times call."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.algebra.functions.times import unit_of
from ensue.columns.zone_clocks import instants, on_clocks

Clock = npt.NDArray[np.datetime64]
Counts = npt.NDArray[Any]

_CODES = {
    "microsecond": "us", "millisecond": "ms", "second": "s", "minute": "m", "hour": "h",
    "day": "D", "month": "M", "year": "Y",
}  # fmt: skip


def ticks(clock: Clock, unit: str) -> Counts:
    """How many `unit`s have begun since 1970."""
    counts: Counts = clock.astype(f"M8[{unit}]").astype(np.int64)
    return counts


def since(clock: Clock, unit: str, within: str) -> Counts:
    """How many `unit`s have passed since the last `within` began."""
    whole = clock.astype(f"M8[{unit}]")
    passed: Counts = whole - whole.astype(f"M8[{within}]")
    return passed.astype(np.int64)


def thursday(clock: Clock) -> Clock:
    """The Thursday of the week; its year is the one that the week belongs to."""
    days = ticks(clock, "D")
    thursdays: Clock = (days - (days + 3) % 7 + 3).view("M8[D]")
    return thursdays


def units(written: str, clock: Clock) -> Counts:
    """How many of a unit of the language have begun since 1970."""
    match unit_of(written):
        case "week":
            return (ticks(clock, "D") + 3) // 7
        case "quarter":
            return ticks(clock, "M") // 3
        case unit:
            assert unit is not None
            return ticks(clock, _CODES[unit])


def truncated(written: str, clock: Clock) -> Clock:
    """When the unit began in which each time lies."""
    match unit_of(written):
        case "week":
            begun = (units(written, clock) * 7 - 3).view("M8[D]")
        case "quarter":
            begun = (units(written, clock) * 3).view("M8[M]")
        case unit:
            assert unit is not None
            begun = clock.astype(f"M8[{_CODES[unit]}]")
    return begun


CALENDARS = {
    "ticks": ticks, "since": since, "thursday": thursday, "units": units, "truncated": truncated,
    "on_clocks": on_clocks, "instants": instants,
}  # fmt: skip
