"""What is asked of one event, by itself: an atom of a subscription as it is routed to."""

from dataclasses import dataclass, field

from ensue.algebra.subscription import Predicate, Region, Where
from ensue.span import Span


@dataclass(frozen=True, slots=True)
class RegionTest:
    """Where the event is to be: in, over, at, or so far from a region."""

    where: Where
    region: Region
    comparison: str | None = None  # of a distance: "<", "=", ">"
    number: float = 0.0  # of a distance; of SAME the threshold
    tolerance: float = 0.0  # of a distance that equals: how far it may be from `number`
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EventTest:
    """All of its predicates and region tests hold.

    The predicates compare with constants; those with fields of other events are judged where
    both are known.
    """

    predicates: tuple[Predicate, ...]
    places: tuple[RegionTest, ...] = ()


def tells_events_apart(test: EventTest, type_field: str | None) -> bool:
    """Whether it says more of an event than its type, or what it is not.

    >>> from ensue.algebra.subscription import PredicateType
    >>> tells_events_apart(EventTest((Predicate(PredicateType.ARITH, "id", "=", 7),)), None)
    True
    >>> tells_events_apart(EventTest((Predicate(PredicateType.ARITH, "id", "!=", 7),)), None)
    False
    """
    types = {"type", type_field}
    named = any(p.operator != "!=" and p.name not in types for p in test.predicates)
    near = any(
        place.where is not Where.DISTANCE or place.comparison != ">" for place in test.places
    )
    return named or near
