"""What must hold among the events of an alternative, and what is the case instead, in words."""

from collections.abc import Sequence

from ensue.algebra import places
from ensue.algebra.alternatives import Alternative, Compared, Condition, Gone, Later, Near, Point
from ensue.algebra.event_test import EventTest
from ensue.algebra.subscription import Moment, Region
from ensue.semantics.events import Event
from ensue.semantics.subscriptions import Time, length_of
from ensue.semantics.why_not.filled import Filled
from ensue.semantics.why_not.names import Names
from ensue.semantics.why_not.words import RELATIONS, Words, region_name, shown


class Sayings:
    """Speaks of the conditions and absences of one alternative."""

    def __init__(self, way: Alternative, words: Words, names: Names) -> None:
        self.way = way
        self.words = words
        self.names = names
        self.measures = words.measures

    def asked(self, demand: Condition | Gone) -> str:
        """What is asked for."""
        match demand:
            case Later():
                return self._order(demand)
            case Near(first=first, second=second):
                return f"{self.names.group(second)} {self.words.lies(demand, self._place(first))}"
            case Compared(part, name, operator, other, other_name):
                theirs = f"{other_name} of {self.names.part(other)}"
                return f"{name} of {self.names.part(part)} {operator} {theirs}"
            case Gone():
                return self._absence(demand)

    def instead(self, condition: Condition, filled: Filled) -> str:
        """What is the case where a condition does not hold."""
        match condition:
            case Later():
                return self._out_of_time(condition, filled)
            case Near():
                return self._elsewhere(condition, filled)
            case Compared():
                return self._other_value(condition, filled)

    # ------------------------------------------------------------------------------- times

    def _order(self, later: Later) -> str:
        if _is_span(later):
            most = self.measures.length(length_of(later.by))
            return f"at most {most} from the first to the last of {self._when(later.later)}"
        a, b, length = self._when(later.earlier), self._when(later.later), length_of(later.by)
        if not length:
            return f"{b} not after {a}" if later.most else f"{b} after {a}"
        return f"{b} {_relation(later)} {self.measures.length(length)} after {a}"

    def _out_of_time(self, later: Later, filled: Filled) -> str:
        a, b = filled.at(later.earlier), filled.at(later.later)
        assert a is not None
        assert b is not None
        by, apart = length_of(later.by), abs(b - a)
        allowed = f"{_relation(later)} {_some(self.measures.length(by))}"
        wanted = f"{allowed} {'allowed' if later.most else 'required'}"
        far = self.measures.length(apart, by)
        if _is_span(later):
            return f"from the first to the last event it is {far}, {wanted}"
        lasting = any(event.start != event.end for event in filled.events.values())
        came = f"{self._when(later.later)} {_verb(later.later, lasting)}"
        other = self._when(later.earlier)
        if lasting and not isinstance(later.earlier.of, Moment):
            other = f"{other} {_verb(later.earlier, lasting)}"
        if b == a:
            said = f"{came} at the same time as {other}"
        else:
            said = f"{came} {far} {'after' if b > a else 'before'} {other}"
        if by:
            return f"{said}, {wanted}"
        return f"{said}, and must {'not come later' if later.most else 'come after it'}"

    def _when(self, point: Point) -> str:
        if isinstance(point.of, Moment):
            return self.measures.moment(self.words.stream.moment(point.of.at))
        return self.names.group(point.of)

    # ------------------------------------------------------------------------------ places

    def _place(self, place: Region | frozenset[int]) -> str:
        return region_name(place) if isinstance(place, Region) else self.names.group(place)

    def _elsewhere(self, near: Near, filled: Filled) -> str:
        stream = self.words.stream
        name, other = self.names.group(near.second), self._place(near.first)
        p = (
            places.shape_of(near.first.text, stream.space)
            if isinstance(near.first, Region)
            else stream.place(filled.positions(near.first))
        )
        q = stream.place(filled.positions(near.second))
        if p is None or q is None:
            nowhere = name if q is None else other
            return f"{nowhere} {'have' if ' and ' in nowhere else 'has'} no place"
        return self.words.lies_elsewhere(near, name, other, p, q)

    # ------------------------------------------------------------------------------ fields

    def _other_value(self, compared: Compared, filled: Filled) -> str:
        stream, events = self.words.stream, filled.events
        mine = stream.value(events[compared.part], compared.name)
        theirs = stream.value(events[compared.other], compared.other_name)
        other = self.names.part(compared.other)
        for name, part, value in (
            (compared.name, compared.part, mine),
            (compared.other_name, compared.other, theirs),
        ):
            if value is None:
                return f"{name} of {self.names.part(part)} is NULL, which satisfies nothing"
        said = f"{compared.name} {shown(mine)}"
        same = compared.name == compared.other_name
        of = f"that of {other}" if same else f"{compared.other_name} of {other}"
        wanted = f"{of} ({shown(theirs)})"
        match compared.operator:
            case "=":
                return f"{said} is not {wanted}"
            case "!=":
                return f"{said} is {wanted}, and must be different"
            case operator:
                return f"{said} is not {RELATIONS[operator]} {wanted}"

    # ---------------------------------------------------------------------------- absences

    def _absence(self, gone: Gone) -> str:
        ways = [self._absent(gone, place) for place in range(len(gone.absent))]
        absent = " or ".join(ways) or "nothing"
        since = self._when(gone.since)
        if gone.length is None:
            return f"no {absent} between {since} and {self._when(gone.until)}"
        return f"no {absent} for {self.measures.length(length_of(gone.length))} after {since}"

    def _absent(self, gone: Gone, place: int) -> str:
        """What must not happen, one way of it."""
        atoms = []
        for number, part in enumerate(gone.absent[place].parts):
            if isinstance(part, EventTest):
                asked = [c for which, c in gone.asks if (which, c.part) == (place, number)]
                said = [
                    f"{c.name} {c.operator} {c.other_name} of {self.names.part(c.other)}"
                    for c in asked
                ]
                atoms.append(", ".join([*self.words.tests(part), *said]) or "any event")
        return " with ".join(f"({atom})" for atom in atoms) or "absence"

    def barred(self, events: Sequence[Event]) -> str:
        """What happened although it must not."""
        if not events:
            return "the absence that must not occur did: nothing came"
        said = " and ".join(self.words.happened(event) for event in events)
        one = "an event" if len(events) == 1 else "events"
        return f"{one} that must not come did come: {said}"

    def waits(self, part: int | None, until: Time) -> str:
        """What may still come, or must not."""
        at = self.measures.moment(until)
        if part is None:
            return f"still waiting: nothing may come until {at}"
        return f"still waiting: {self.names.part(part)} may come until {at}"


def _is_span(later: Later) -> bool:
    """Whether it bounds how long a group lasts."""
    return later.most and later.earlier.of == later.later.of


def _relation(later: Later) -> str:
    if later.most:
        return "at most"
    return "more than" if later.strict else "at least"


def _verb(point: Point, lasting: bool) -> str:
    if not lasting or isinstance(point.of, Moment):
        return "came"
    return "ended" if point.end else "started"


def _some(length: str) -> str:
    """`25 minutes are`, `1 minute is`, `25 is`."""
    return f"{length} {'are' if length.endswith('s') else 'is'}"
