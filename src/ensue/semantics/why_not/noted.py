"""Keeps count of what stopped the combinations of an alternative, and the furthest of them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from heapq import heappush, heapreplace
from typing import Any

from ensue.algebra.alternatives import Alternative, Compared, Condition, Gone, Later
from ensue.algebra.event_test import EventTest, RegionTest
from ensue.algebra.subscription import Predicate, Subscription
from ensue.semantics.events import Event
from ensue.semantics.subscriptions import Time
from ensue.semantics.why_not.answer import Candidate, Candidates, Demand, Seen
from ensue.semantics.why_not.names import Names
from ensue.semantics.why_not.plan import Stop
from ensue.semantics.why_not.sayings import Sayings
from ensue.semantics.why_not.search import Search
from ensue.semantics.why_not.spans import span_of, span_of_test
from ensue.semantics.why_not.words import Words


class Top:
    """The greatest of many candidates, by a key; only these are made."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        self._kept: list[tuple[Any, int, Candidate]] = []

    def offer(self, key: Any, make: Callable[[], Candidate]) -> None:
        self.count += 1
        if len(self._kept) < self.most:
            heappush(self._kept, (key, self.count, make()))
        elif self._kept and key > self._kept[0][0]:
            heapreplace(self._kept, (key, self.count, make()))

    def candidates(self) -> Candidates:
        ordered = sorted(self._kept, key=lambda kept: kept[0], reverse=True)
        return Candidates(self.count, tuple(candidate for _, _, candidate in ordered))


class Noted:
    """What a search in one alternative tells."""

    def __init__(self, way: Alternative, whole: Subscription, words: Words, most: int) -> None:
        self.way = way
        self.whole = whole
        self.words = words
        self.names = Names(way)
        self.sayings = Sayings(way, words, self.names)
        self.counts: Counter[Stop] = Counter()
        self.furthest, self.newest_waiting = Top(most), Top(most)
        self._stops = list(_stops(way))

    # ----------------------------------------------------------------------------- told

    def stopped(self, stop: Stop, count: int) -> None:
        self.counts[stop] += count

    def stuck(self, search: Search, rank: tuple[int, int], stop: Stop) -> None:
        events = search.filled.events

        def made() -> Candidate:
            if stop[0] == "test":
                return self._failed(search, stop[1])
            demand = self._demand(stop)
            span = None if demand is None else span_of(demand, self.way, self.whole)
            why, number = self._why(search, stop), self._stops.index(stop)
            return Candidate(self.seen(events), why, number, span)

        self.furthest.offer((*rank, _newness(events)), made)

    def waits(self, search: Search, part: int | None, until: Time) -> None:
        events = search.filled.events

        def made() -> Candidate:
            at = self.words.measures.plain_time(until)
            return Candidate(self.seen(events), self.sayings.waits(part, until), until=at)

        self.newest_waiting.offer(_newness(events), made)

    def _failed(self, search: Search, number: int) -> Candidate:
        """What stopped the last event was a test of its own."""
        part, event = list(search.filled.events.items())[-1]
        atom = self.way.parts[part]
        assert isinstance(atom, EventTest)
        test = (*atom.predicates, *atom.places)[number]
        assert isinstance(test, Predicate | RegionTest)
        why, _ = self.words.failed(test, event, self.names.part(part))
        return Candidate(self.seen(search.filled.events), why, span=span_of_test(test))

    def _why(self, search: Search, stop: Stop) -> str:
        kind, number = stop
        match kind:
            case "condition":
                return self.sayings.instead(self.way.conditions[number], search.filled)
            case "absence":
                return self.sayings.barred(search.barring(number) or ())
            case "role":
                return f"no other event passed the tests of {self.names.part(number)}"
            case _:
                return f"no event passed the tests of {self.names.part(number)}"

    # --------------------------------------------------------------------------- answered

    def seen(self, events: dict[int, Event]) -> tuple[Seen, ...]:
        """Events with the names of their parts."""
        return tuple(self.words.seen(e, self.names.part(part)) for part, e in events.items())

    def candidates(self) -> Candidates:
        """The furthest that nothing fitted to, by the numbers of `demands`."""
        found = self.furthest.candidates()
        numbers = {self._stops.index(stop): n for n, stop in enumerate(self._worth_telling())}
        shown = (
            one if one.demand is None else replace(one, demand=numbers.get(one.demand))
            for one in found.shown
        )
        return replace(found, shown=tuple(shown))

    def _worth_telling(self) -> list[Stop]:
        """What is written in the text, and what else stopped something."""
        written = ("condition", "absence")
        return [stop for stop in self._stops if stop[0] in written or self.counts[stop]]

    def demands(self) -> tuple[Demand, ...]:
        """What must hold, with what it stopped."""
        found = []
        for stop in self._worth_telling():
            demand = self._demand(stop)
            if demand is None:
                name = self.names.part(stop[1])
                said = f"an event that passes the tests of {name}"
                if stop[0] == "role":
                    said = f"{name} is an event that plays no other role"
                found.append(Demand(said, stop[0], None, self.counts[stop]))
            else:
                span = span_of(demand, self.way, self.whole)
                said = self.sayings.asked(demand)
                found.append(Demand(said, _kind(demand), span, self.counts[stop]))
        return tuple(found)

    def _demand(self, stop: Stop) -> Condition | Gone | None:
        kind, number = stop
        if kind == "condition":
            return self.way.conditions[number]
        part = self.way.parts[number]
        return part if isinstance(part, Gone) else None


def _stops(way: Alternative) -> list[Stop]:
    absences = [n for n, part in enumerate(way.parts) if isinstance(part, Gone)]
    events = [n for n, part in enumerate(way.parts) if isinstance(part, EventTest)]
    return [
        *(("condition", n) for n in range(len(way.conditions))),
        *(("absence", n) for n in absences),
        *(("event", n) for n in events),
        *(("role", n) for n in events[1:]),
    ]


def _kind(demand: Condition | Gone) -> str:
    match demand:
        case Later():
            return "time"
        case Compared():
            return "field"
        case Gone():
            return "absence"
        case _:
            return "place"


def _newness(events: dict[int, Event]) -> tuple[int, ...]:
    return tuple(sorted((event.position for event in events.values()), reverse=True))
