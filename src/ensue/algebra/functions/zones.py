"""Times on the clocks of a zone.

Inside of Ensue a time with a zone is an instant, and one without is what a clock shows, counted as
if in UTC; so each of these adds or takes away how far a zone is from UTC. Clocks that are turned
are read as Python's `zoneinfo` does with fold=0: an hour that is shown twice is the first one, and
one that is left out goes on as if clocks had not been turned yet.
"""

from datetime import UTC, datetime

from ensue.algebra.functions.record import Function, OverTimes, Takes
from ensue.algebra.values import instant
from ensue.algebra.zones import zone_named
from ensue.schema import Kind

AT_TIME_ZONE = "at_time_zone"
TO_CLOCK = "from_utc_timestamp"
TO_INSTANT = "to_utc_timestamp"


def _to_clock(value: object, name: object) -> datetime | None:
    """What clocks of a zone show at an instant.

    >>> _to_clock(datetime(2026, 7, 1, 12), "Europe/Zurich")
    datetime.datetime(2026, 7, 1, 14, 0, tzinfo=datetime.timezone.utc)
    """
    zone = zone_named(str(name))
    try:
        return None if zone is None else instant(value).astimezone(zone).replace(tzinfo=UTC)
    except OverflowError:  # before the year 1, or after 9999
        return None


def _to_instant(value: object, name: object) -> datetime | None:
    """The instant at which clocks of a zone show a time.

    >>> _to_instant(datetime(2026, 3, 29, 2, 30), "Europe/Zurich")  # shown by no clock
    datetime.datetime(2026, 3, 29, 1, 30, tzinfo=datetime.timezone.utc)
    """
    zone = zone_named(str(name))
    try:
        if zone is None:
            return None
        return instant(value).replace(tzinfo=zone, fold=0).astimezone(UTC)
    except OverflowError:
        return None


ZONES = (
    # `x AT TIME ZONE z` is one of the others, once it is known whether x has a zone
    Function(
        AT_TIME_ZONE,
        (Takes.TIME, Takes.ZONE),
        Kind.TIMESTAMP,
        _to_clock,
        vector=OverTimes("on_clocks(unit, clock)"),
    ),
    Function(
        TO_CLOCK,
        (Takes.TIME, Takes.ZONE),
        Kind.TIMESTAMP,
        _to_clock,
        vector=OverTimes("on_clocks(unit, clock)"),
    ),
    Function(
        TO_INSTANT,
        (Takes.TIME, Takes.ZONE),
        Kind.TIMESTAMP,
        _to_instant,
        vector=OverTimes("instants(unit, clock)"),
    ),
)
