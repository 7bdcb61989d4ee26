"""Asks a stream why a subscription has not found more in it."""

from collections.abc import Iterator, Sequence
from functools import partial

from ensue.algebra.alternatives import Alternative, Gone, alternatives
from ensue.algebra.event_test import EventTest, RegionTest
from ensue.algebra.subscription import Atomic, Predicate, Subscription, parts_of
from ensue.algebra.tied import tie
from ensue.semantics.events import Event
from ensue.semantics.subscriptions import (
    Choice,
    Stream,
    SubscriptionMatch,
    Time,
    choice,
    comparable,
)
from ensue.semantics.why_not.answer import Atom, Candidate, Check, NearMiss, Way, WhyNot
from ensue.semantics.why_not.filled import Filled
from ensue.semantics.why_not.ground import Ground
from ensue.semantics.why_not.noted import Noted, Top
from ensue.semantics.why_not.pools import Pool
from ensue.semantics.why_not.search import Search
from ensue.semantics.why_not.sieve import Sieve, Sieved, is_measured
from ensue.semantics.why_not.spans import span_of_test
from ensue.semantics.why_not.steps import FOUND, Cut, Steps
from ensue.semantics.why_not.words import Words

MOST_STEPS = 1_000_000  # some seconds of one core
MOST_NEAR = 3  # events that failed one test alone, for each test
MOST_CANDIDATES = 10  # of each kind, for each alternative


def why_not(
    subscription: Subscription,
    stream: Stream,
    *,
    now: Time | None = None,
    most_steps: int = MOST_STEPS,
    most_candidates: int = MOST_CANDIDATES,
) -> WhyNot:
    """How far the events of a stream got, and what stopped them.

    Parts are filled in the order of the text, newest events first; what does not fit is stopped
    by the first condition that it fails. `now` is how far time has come: what may still become a
    match waits. None: nothing follows.
    """
    asking = _Asking(subscription, stream, now, most_steps, most_candidates)
    asking.sieve()
    asking.look_near()
    asking.search()
    return asking.answer()


class _Asking:
    def __init__(
        self, subscription: Subscription, stream: Stream, now: Time | None, steps: int, most: int
    ) -> None:
        self.subscription = subscription
        self.stream = stream
        self.now = now
        self.most = most
        self.left = steps
        self.taken = 0
        self.cut = False
        self.events = len(stream.events)  # that are looked at
        self.words = Words(stream, _fields(subscription))
        self.tests = Sieve(stream)
        self.ways = alternatives(subscription)
        self.sieved: dict[EventTest, Sieved] = {}
        self.noted = [Noted(way, subscription, self.words, most) for way in self.ways]
        self.matches: list[dict[SubscriptionMatch, dict[int, Event]]] = [{} for _ in self.ways]
        self.keys: dict[SubscriptionMatch, object] = {}

    # ------------------------------------------------------------------------------ atoms

    def sieve(self) -> None:
        """Tries each atom on the events, by half of the steps at most."""
        atoms = list(dict.fromkeys(atom for way in self.ways for atom in _atoms(way)))
        allowed = self.left // 2
        for number, atom in enumerate(atoms):
            steps = Steps(allowed // (len(atoms) - number))
            self.sieved[atom], whole = self.tests.sieved(atom, steps)
            allowed -= steps.taken
            self._took(steps)
            if not whole:
                self.cut = True
                self.events = min(self.events, self.sieved[atom].looked)

    def look_near(self) -> None:
        """Finds near misses, by a quarter of what is left."""
        allowed = self.left // 4
        shown = list(dict.fromkeys(p for w in self.ways for p in w.parts if p in self.sieved))
        for number, atom in enumerate(shown):
            assert isinstance(atom, EventTest)
            steps = Steps(allowed // (len(shown) - number))
            self.tests.look_near(self.sieved[atom], steps)
            allowed -= steps.taken
            self._took(steps)

    def _took(self, steps: Steps) -> None:
        self.left -= steps.taken
        self.taken += steps.taken

    # -------------------------------------------------------------------------- combinations

    def search(self) -> None:
        """Fills each alternative. The oldest events are left out of all, if they are of one."""
        pools = {atom: self._pool(found.passed) for atom, found in self.sieved.items()}
        near = {atom: self._near(found) for atom, found in self.sieved.items()}
        ties = [tie(way) for way in self.ways]
        tied = all(one is not None for one in ties)
        for number, way in enumerate(self.ways):
            steps = Steps(self.left // (len(self.ways) - number))
            ground = Ground(self.stream, self.tests, pools, near, steps, self.now)
            try:
                for filled in Search(way, ground, watch=self.noted[number]).combinations():
                    steps.take(FOUND)
                    match = _match(filled)
                    self.matches[number].setdefault(match, dict(filled.events))
                    part, name = ties[number] or (-1, "")
                    self.keys[match] = (
                        comparable(self.stream.value(filled.events[part], name)) if tied else None
                    )
            except Cut:
                self.cut = True
            self._took(steps)

    def _pool(self, events: Sequence[Event]) -> Pool:
        """Those of the events that were looked at for all atoms."""
        if not self.events:
            return Pool((), self.stream)
        oldest = self.stream.events[-self.events].position
        return Pool([event for event in events if event.position >= oldest], self.stream)

    def _near(self, found: Sieved) -> list[tuple[int, Pool]]:
        """The events that failed one test by little, those of the last test first."""
        numbered = enumerate(zip(found.tests, found.near, strict=False))
        return [(n, self._pool(near)) for n, (test, near) in numbered if is_measured(test)][::-1]

    # ------------------------------------------------------------------------------- answer

    def answer(self) -> WhyNot:
        chosen = choice(self.keys, self.subscription.select)
        ways = tuple(self._way(number, chosen) for number in range(len(self.ways)))
        return WhyNot(
            events=self.events,
            matched=len(self.keys),
            delivered=len(chosen.delivered),
            waiting=sum(way.waiting.count for way in ways),
            ways=ways,
            steps=self.taken,
            cut=self.cut,
            subscription=self.subscription.text,
        )

    def _way(self, number: int, chosen: Choice) -> Way:
        way, noted = self.ways[number], self.noted[number]
        atoms = [
            self._atom(part, noted.names.part(n))
            for n, part in enumerate(way.parts)
            if isinstance(part, EventTest)
        ]
        undelivered = Top(self.most)
        for match, events in self.matches[number].items():
            if match in chosen.used or match in chosen.outdone:
                made = partial(self._passed_over, noted, match, events, chosen)
                undelivered.offer(match.newness, made)
        return Way(
            tuple(atoms),
            noted.demands(),
            len(self.matches[number]),
            noted.candidates(),
            noted.newest_waiting.candidates(),
            undelivered.candidates(),
        )

    def _atom(self, atom: EventTest, name: str) -> Atom:
        found = self.sieved[atom]
        asked: tuple[Predicate | RegionTest, ...] = (*atom.predicates, *atom.places)
        tests = []
        for test, counts, near in zip(asked, found.counts(), found.near, strict=True):
            misses = []
            for event in near[:MOST_NEAR]:
                why, distance = self.words.failed(test, event)
                misses.append(NearMiss(self.words.seen(event, name), why, distance))
            tests.append(Check(self.words.test(test), span_of_test(test), *counts, tuple(misses)))
        return Atom(name, found.looked, len(found.passed), tuple(tests))

    def _passed_over(
        self, noted: Noted, match: SubscriptionMatch, events: dict[int, Event], chosen: Choice
    ) -> Candidate:
        measures, select = self.words.measures, self.subscription.select.value
        if match in chosen.used:
            at = measures.moment(chosen.used[match].end)
            why = f"used by an earlier match, which ended at {at} (select = {select})"
        else:
            at = measures.moment(chosen.outdone[match].start)
            why = f"a newer one was delivered instead, from {at} on (select = {select})"
        return Candidate(noted.seen(events), why)


def _atoms(way: Alternative) -> Iterator[EventTest]:
    """All atoms, also those of what must not happen."""
    for part in way.parts:
        if isinstance(part, Gone):
            for other in part.absent:
                yield from _atoms(other)
        else:
            yield part


def _fields(subscription: Subscription) -> Iterator[str]:
    """The fields that predicates read, in the order of the text."""
    left = [subscription.root, *subscription.variables.values()]
    while left:
        expression = left.pop(0)
        left[:0] = parts_of(expression)
        if isinstance(expression, Atomic):
            yield from (predicate.name for predicate in expression.predicates)


def _match(filled: Filled) -> SubscriptionMatch:
    """What filled parts are as a match."""
    way = filled.way
    events: Sequence[Event] = sorted(filled.events.values(), key=lambda e: e.position)
    start, end = filled.start(way.root), filled.end(way.root)
    assert start is not None
    assert end is not None
    known = [(events[-1].end, 0)] if events else []
    known += [(filled.until(part), 1) for part in way.parts if isinstance(part, Gone)]
    return SubscriptionMatch(tuple(e.position for e in events), start, end, max(known))
