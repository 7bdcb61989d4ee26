"""Absences with an interval of their own: when it is."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from ensue.algebra.lapses import bound_lapses
from ensue.algebra.pattern import Interval, Pattern
from ensue.algebra.values import instant, number
from ensue.semantics.conditions import value_of
from ensue.semantics.events import Event

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
Moment = int | float


def ends_of(
    interval: Interval, binding: Mapping[str, tuple[Event, ...]]
) -> tuple[Moment, Moment] | None:
    """The interval in a match; None if an event that it names is missing, or has no such time."""
    after, until = (value_of(end, binding) for end in (interval.after, interval.until))
    return None if after is None or until is None else (moment(after), moment(until))


def moment(value: object) -> Moment:
    """A point in time as events have it: nanoseconds, or the units of the time column.

    >>> moment(date(1970, 1, 2)), moment(5)
    (86400000000000, 5)
    """
    if isinstance(value, date):
        return (instant(value) - _EPOCH) // _MICROSECOND * 1000
    return number(value)


def over_after(pattern: Pattern, binding: Mapping[str, tuple[Event, ...]]) -> Moment | None:
    """The moment that has to be over before a match is certain, as far as intervals say."""
    ends = [ends_of(interval, binding) for _, interval in bound_lapses(pattern, binding)]
    return max((end[1] for end in ends if end is not None), default=None)
