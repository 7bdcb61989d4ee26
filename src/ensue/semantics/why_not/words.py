"""Events, the tests of atoms, and why an event fails one, in words."""

from collections.abc import Iterable
from datetime import datetime

from ensue.algebra import places
from ensue.algebra.alternatives import Near
from ensue.algebra.event_test import EventTest, RegionTest
from ensue.algebra.subscription import Predicate, Region, Where
from ensue.semantics.events import Event
from ensue.semantics.subscriptions import Stream
from ensue.semantics.why_not.answer import Seen
from ensue.semantics.why_not.measures import Measures, plain

RELATIONS = {"<": "less than", "<=": "at most", ">": "more than", ">=": "at least"}
_LONGEST = 40  # characters of a region without a name
_FEW = 3  # fields by which an event is known


class Words:
    """Speaks of the events of one stream, by the fields that a subscription reads."""

    def __init__(self, stream: Stream, fields: Iterable[str]) -> None:
        self.stream = stream
        self.measures = Measures(stream.timestamps, stream.space)
        self.fields = tuple(dict.fromkeys(fields))[:_FEW]

    def seen(self, event: Event, name: str) -> Seen:
        """An event as JSON has it."""
        start, end = (self.measures.plain_time(t) for t in (event.start, event.end))
        values = {str(field): plain(value) for field, value in event.values.items()}
        corners = tuple(self.stream.corners.get(event.position, ()))
        return Seen(name, self.known_as(event), event.position, start, end, values, corners)

    def known_as(self, event: Event) -> str:
        """`id 17`, by the fields that the subscription reads."""
        values = [(name, self.stream.value(event, name)) for name in self.fields]
        return ", ".join(f"{name} {shown(v)}" for name, v in values if v is not None)

    def happened(self, event: Event) -> str:
        """`id 17 at 10:31`."""
        return f"{self.known_as(event) or 'one'} at {self.measures.moment(event.end)}"

    # ------------------------------------------------------------------------------- tests

    def test(self, test: Predicate | RegionTest) -> str:
        """`id = 17`, `inside Depot`."""
        if isinstance(test, Predicate):
            return f"{test.name} {test.operator} {shown(test.value)}"
        return self.lies(test, region_name(test.region))

    def tests(self, atom: EventTest) -> list[str]:
        """All tests of an atom."""
        tests: list[Predicate | RegionTest] = [*atom.predicates, *atom.places]
        return [self.test(test) for test in tests]

    def failed(
        self, test: Predicate | RegionTest, event: Event, name: str = "it"
    ) -> tuple[str, float | None]:
        """Why an event fails a test, and how far it is from the region."""
        if isinstance(test, Predicate):
            value = self.stream.value(event, test.name)
            field = test.name if name == "it" else f"{test.name} of {name}"
            if value is None:
                return f"{field} is NULL, which satisfies nothing", None
            return f"{field} is {shown(value)}, {self.test(test)} is required", None
        place = self.stream.place((event.position,))
        if place is None:
            return f"{name} has no place", None
        shape = places.shape_of(test.region.text, self.stream.space)
        why = self.lies_elsewhere(test, name, region_name(test.region), shape, place)
        return why, places.distance(shape, place, self.stream.space)

    # ------------------------------------------------------------------------------ places

    def lies(self, test: RegionTest | Near, place: str) -> str:
        """How something has to lie to a place."""
        match test.where:
            case Where.INSIDE:
                return f"inside {place}"
            case Where.OVERLAP:
                return f"overlaps {place}"
            case Where.SAME:
                return (
                    f"less than {self.measures.distance(test.number)} from the centre of {place}"
                )
            case Where.DISTANCE:
                return f"{self._wanted(test)} away from {place}"

    def lies_elsewhere(
        self,
        test: RegionTest | Near,
        name: str,
        other: str,
        p: places.Place | places.Shape,
        q: places.Place,
    ) -> str:
        """Where something, at q, is instead of as it has to lie to p."""
        space, measures = self.stream.space, self.measures
        if test.where is Where.SAME:
            apart = places.between(places.centre(p, space), places.centre(q, space), space)
            centre = "its centre" if name == "it" else f"the centre of {name}"
            far = f"{centre} was {measures.distance(apart, test.number)} away from that of {other}"
            return f"{far}, less than {measures.distance(test.number)} is required"
        apart, was = places.distance(p, q, space), "were" if " and " in name else "was"
        if test.where is Where.DISTANCE:
            far = measures.distance(apart, test.number)
            return f"{name} {was} {far} away from {other}, {self._wanted(test)} is required"
        if test.where is Where.INSIDE and apart == 0:
            return f"{name} {was} not completely inside {other}"
        wanted = "be inside" if test.where is Where.INSIDE else "share a point with it"
        return f"{name} {was} {measures.distance(apart)} away from {other}, and must {wanted}"

    def _wanted(self, test: RegionTest | Near) -> str:
        number = self.measures.distance(test.number)
        if test.comparison == "=":
            return f"{number} plus or minus {self.measures.distance(test.tolerance)}"
        assert test.comparison is not None
        return f"{RELATIONS[test.comparison]} {number}"


def region_name(region: Region) -> str:
    """How the subscription calls it, or what it is."""
    if region.name is not None:
        return region.name
    text = region.text
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def shown(value: object) -> str:
    """A value as a subscription writes it.

    >>> print(shown("truck"), shown(True), shown((1, 2)), shown(datetime(2026, 1, 31, 10)))
    'truck' TRUE (1, 2) 2026-01-31 10:00:00
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case tuple():
            return f"({', '.join(map(shown, value))})"
        case datetime():
            return value.isoformat(sep=" ")
        case float():
            return repr(value).removesuffix(".0")
        case _:
            return str(value)
