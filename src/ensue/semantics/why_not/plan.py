"""In which order the parts of an alternative are filled, and what is tried at each."""

from collections.abc import Iterator
from dataclasses import dataclass

from ensue.algebra.alternatives import Alternative, Compared, Gone, Group, Later, Near, Point
from ensue.algebra.event_test import EventTest

# What stops a combination: "condition" and its number, "absence" or "role" and that of the part,
# "event" and the part that none passes the tests of, "test" and the one that the last event fails.
Stop = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Level:
    """A part, and the conditions and absences that are tried when it is filled, in this order."""

    part: int
    equal: tuple[int, ...] = ()  # `=` with a field of an earlier part: found by the value
    times: tuple[int, ...] = ()  # found by time
    rest: tuple[int, ...] = ()
    absences: tuple[int, ...] = ()  # numbers of parts

    @property
    def conditions(self) -> tuple[int, ...]:
        return (*self.equal, *self.times, *self.rest)


@dataclass(frozen=True, slots=True)
class Plan:
    """What needs no event, then the parts in the order in which they stand in the text."""

    first: Level
    levels: tuple[Level, ...]


def plan_of(way: Alternative) -> Plan:
    """The levels of an alternative."""
    order = [n for n, part in enumerate(way.parts) if isinstance(part, EventTest)]
    levels = [_level(way, part, frozenset(order[:k])) for k, part in enumerate(order)]
    return Plan(_level(way, -1, frozenset()), tuple(levels))


def _level(way: Alternative, part: int, before: Group) -> Level:
    bound = before | {part}
    equal: list[int] = []
    fields: list[int] = []
    times, places = [], []
    for number, condition in enumerate(way.conditions):
        asked = _events(way, condition.group)
        if not (part in asked or (part < 0 and not asked)):
            continue
        match condition:
            case Later():
                if _decided(way, condition, bound):
                    times.append(number)
            case Compared(mine, _, operator, other) if asked <= bound:
                found = equal if operator == "=" and mine != other else fields
                found.append(number)
            case Near() if asked <= bound:
                places.append(number)
            case _:
                continue
    rest, absences = (*fields, *places), tuple(_absences(way, part, bound))
    return Level(part, tuple(equal), tuple(times), rest, absences)


def _absences(way: Alternative, part: int, bound: Group) -> Iterator[int]:
    for number, gone in enumerate(way.parts):
        if isinstance(gone, Gone):
            asked = _events(way, gone.group)
            if asked <= bound and (part in asked or (part < 0 and not asked)):
                yield number


def _decided(way: Alternative, later: Later, bound: Group) -> bool:
    """Whether it is decided by what is bound: the rest can only make it worse.

    With each event that comes, a group's start can only become earlier, its end only later.
    """

    def settled(point: Point, *, worse: bool) -> bool:
        return worse or _events(way, point.group) <= bound

    return settled(later.earlier, worse=later.earlier.end is not later.most) and settled(
        later.later, worse=later.later.end is later.most
    )


def _events(way: Alternative, group: Group) -> Group:
    return frozenset(n for n in group if isinstance(way.parts[n], EventTest))
