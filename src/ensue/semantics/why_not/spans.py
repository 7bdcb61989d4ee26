"""Where in the text of a subscription a condition stands."""

from collections.abc import Iterator

from ensue.algebra.alternatives import Alternative, Compared, Condition, Gone, Later, Near, Point
from ensue.algebra.event_test import RegionTest
from ensue.algebra.subscription import (
    Atomic,
    FieldOf,
    Moment,
    Predicate,
    Subscription,
    parts_of,
)
from ensue.span import Span


def span_of_test(test: Predicate | RegionTest) -> Span | None:
    """The predicate, or the operator with its region."""
    return test.span


def span_of(demand: Condition | Gone, way: Alternative, whole: Subscription) -> Span | None:
    """The length, the moment, the predicate or the operator that says it; None: not known."""
    match demand:
        case Later(earlier, later, by):
            found = None if by is None else by.span
            return _first(found, _moment(earlier), _moment(later), demand.span)
        case Near():
            return demand.span
        case Compared():
            return next(_comparing(demand, way, whole), None)
        case Gone(since=since, length=length):
            return _first(None if length is None else length.span, _moment(since), demand.span)


def _moment(point: Point) -> Span | None:
    return point.of.span if isinstance(point.of, Moment) else None


def _first(*spans: Span | None) -> Span | None:
    return next((span for span in spans if span is not None), None)


def _comparing(compared: Compared, way: Alternative, whole: Subscription) -> Iterator[Span | None]:
    """The predicates that compare such fields."""
    left = [whole.root, *whole.variables.values()]
    while left:
        expression = left.pop(0)
        left += parts_of(expression)
        for p in expression.predicates if isinstance(expression, Atomic) else ():
            if isinstance(p.value, FieldOf):
                group = way.group_of(p.value.variable)
                asked = (p.name, p.operator, group, p.value.name)
                other = frozenset((compared.other,))
                if asked == (compared.name, compared.operator, other, compared.other_name):
                    yield p.span
