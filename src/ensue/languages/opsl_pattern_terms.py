"""Times, places and predicates of a subscription as the pattern language spells them."""

from datetime import datetime, timedelta
from typing import Any

from ensue.algebra.alternatives import Near
from ensue.algebra.event_test import RegionTest
from ensue.algebra.predicate import Constant
from ensue.algebra.subscription import FieldOf, Length, Predicate, Region, Where
from ensue.algebra.text import show_name
from ensue.algebra.window import ByTime, ByUnits
from ensue.algebra.wkt import Circle, read_wkt
from ensue.errors import QueryError
from ensue.languages.opsl_text import show_length, show_number, show_value

Time = Any  # a number, or a datetime: whichever the moments of a text are

# -------------------------------------------------------------------------------------- times


def is_zero(length: Length) -> bool:
    """Whether nothing is to be added."""
    return length in (ByTime(0), ByUnits(0))


def show_length_of_time(length: Length) -> str:
    """A length that conditions can add."""
    if isinstance(length, ByTime) and length.nanoseconds % 1000:
        raise QueryError(
            "lengths in patterns must be whole microseconds",
            hint="round it: 1 us",
            span=length.span,
        )
    return show_length(length)


def time_of(at: Constant) -> Time:
    """The value of a moment."""
    assert isinstance(at, int | float | datetime)
    return at


def later(at: Time, by: Length | None) -> Any:
    """A moment, so much later."""
    match at, by:
        case (_, None):
            return at
        case (int() | float(), ByUnits(amount)):
            return at + amount
        case (datetime(), ByTime(nanoseconds)) if nanoseconds % 1000 == 0:
            return at + timedelta(microseconds=nanoseconds // 1000)
        case _:
            raise QueryError(
                "this moment and this length do not fit together",
                hint="numbers go with numbers, timestamps with whole microseconds",
                span=by.span,
            )


# ------------------------------------------------------------------------------------- places


def as_near(test: RegionTest) -> Near:
    """What is asked of one event as what is asked of groups."""
    return Near(test.where, test.region, frozenset(), test.comparison, test.number, test.tolerance)


def show_region(region: Region) -> str:
    """A region as a literal.

    >>> show_region(Region("CIRCLE (1 2, 3)"))
    'CIRCLE(1, 2, 3)'
    """
    match read_wkt(region.text):
        case Circle(x, y, radius):
            return f"CIRCLE({', '.join(map(show_number, (x, y, radius)))})"
        case _:
            return f"WKT '{region.text}'"


def show_near(near: Near, p: str, q: str) -> str:
    """How two places lie."""
    number = show_number(near.number)
    match near.where:
        case Where.INSIDE:
            return f"inside({q}, {p})"
        case Where.OVERLAP:
            return f"overlaps({p}, {q})"
        case Where.SAME:
            return f"same_place({p}, {q}, {number})"
        case Where.DISTANCE if near.comparison == "=":
            return f"abs(distance({p}, {q}) - {number}) <= {show_number(near.tolerance)}"
        case Where.DISTANCE:
            return f"distance({p}, {q}) {near.comparison} {number}"


# --------------------------------------------------------------------------------- predicates


def show_predicate(predicate: Predicate, variable: str) -> str:
    """What is asked of a field of one event."""
    head = f"{variable}.{show_name(predicate.name)} {predicate.operator}"
    match predicate.value:
        case tuple() as values:
            return f"{head} ({', '.join(show_value(value) for value in values)})"
        case str() as text if predicate.operator == "LIKE":
            escaped = text.replace("\\", "\\\\")  # a sign like any other in OPSL
            return f"{head} {show_value(escaped)}"
        case FieldOf():
            raise AssertionError(predicate)  # alternatives have made conditions of them
        case value:
            return f"{head} {show_value(value)}"
