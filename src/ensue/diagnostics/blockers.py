"""Blockers: why a part rejected its candidate events, counted and with the best candidates."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappush, heapreplace
from math import inf
from typing import TYPE_CHECKING, Any

from ensue.analyzer.normal_form import (
    AbsentPart,
    Condition,
    FieldComparison,
    SpatialConstraint,
    SubscriptionAlternative,
    TimeConstraint,
)
from ensue.diagnostics.messages import ConditionMessages, EventMessages
from ensue.diagnostics.search_context import CandidateIndex, PartLevel, TimeWindow, list_tests
from ensue.diagnostics.why_not_report import MatchCandidate, MatchCandidates, Requirement, SeenEvent
from ensue.errors import Span
from ensue.geo import geometry
from ensue.ir.subscription import EventAtom, EventTest, SpatialRelation, Subscription, VariableField, get_subexpressions
from ensue.reference.conditions import Event
from ensue.reference.subscription_matches import Time

if TYPE_CHECKING:
    from ensue.diagnostics.search import CombinationSearch

# A blocker is "condition" with its number, "absence" or "role" with that of the part, "event"
# with the part whose tests no event passes, or "test" with the one that the last event fails.
Blocker = tuple[str, int]

MAX_NEAR_TRIED = 8  # near misses that are tried for a part, for each test
_KINDS = {TimeConstraint: "time", FieldComparison: "field", SpatialConstraint: "place", AbsentPart: "absence"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """An event that did not fit, with how far it got and how narrowly it failed."""

    rank: int  # twice the number of conditions that hold, minus 1 if a test of its atom fails
    shortfall: float
    event: Event
    blocker: Blocker

    def is_better(self, other: "Attempt | None") -> bool:
        return other is None or (self.rank, -self.shortfall) > (other.rank, -other.shortfall)


@dataclass
class Attempts:
    """The events that were tried for a part."""

    candidates: CandidateIndex
    same: CandidateIndex  # of these, the ones with the value that a field must have
    window: TimeWindow
    rows: tuple[int, int]  # of `same`, the rows in the window
    best: Attempt | None = None
    fits: bool = False

    def note(self, search: "CombinationSearch", event: Event, blocker: Blocker, held: int) -> None:
        """Keeps the event if it is the best so far."""
        if blocker[0] != "role" and (self.best is None or 2 * held >= self.best.rank):
            attempt = Attempt(2 * held, _measure_shortfall(search, blocker), event, blocker)
            self.best = attempt if attempt.is_better(self.best) else self.best


def _measure_shortfall(search: "CombinationSearch", blocker: Blocker) -> float:
    """Returns how narrowly a condition on places failed; 0 for all others."""
    near = search.way.conditions[blocker[1]] if blocker[0] == "condition" else None
    if not isinstance(near, SpatialConstraint):
        return 0.0
    first, second = search.find_places(near)
    if first is None or second is None:
        return inf
    space = search.context.stream.space
    if near.where is SpatialRelation.SAME:
        return geometry.compute_point_distance(
            geometry.compute_centroid(first, space), geometry.compute_centroid(second, space), space
        )
    return abs(geometry.compute_distance(first, second, space) - near.number)


def report_part(search: "CombinationSearch", stats: "BlockerStats", depth: int, attempts: Attempts) -> None:
    """Counts the skipped candidates, and records an assignment that is stuck or waits."""
    level = search.levels[depth + 1]
    first, last = attempts.rows
    same, candidates, window = attempts.same, attempts.candidates, attempts.window
    stats.count(("condition", window.low_by), first)
    stats.count(("condition", window.high_by), len(same) - last)
    if level.equal:
        stats.count(("condition", level.equal[0]), len(candidates) - len(same))
    stats.count(("event", level.part), int(not len(candidates)))
    if attempts.fits:
        return
    now = search.context.now
    if depth and now is not None and window.high is not None and window.high >= now:
        stats.add_waiting(search.assignment.events, level.part, window.high)
        return
    best = attempts.best
    for skipped in _find_skipped(search, level, attempts):
        best = skipped if skipped.is_better(best) else best
    near = _find_near_miss(search, level, window) if depth else None
    for attempt in (best, near):
        if attempt is not None:
            with search.assignment.assign(level.part, attempt.event):
                stats.add_stuck(search, (depth, attempt.rank), attempt.blocker)
    if depth and best is None and near is None:
        blocker = "role" if len(candidates) else "event", level.part
        stats.add_stuck(search, (depth, -1), blocker)


def _find_skipped(search: "CombinationSearch", level: PartLevel, attempts: Attempts) -> Iterator[Attempt]:
    """Yields the nearest events outside of the window, and one with another value."""
    first, last = attempts.rows
    same, candidates, window = attempts.same, attempts.candidates, attempts.window
    for rows, by in ((range(last, len(same)), window.high_by), (range(first - 1, -1, -1), window.low_by)):
        free = (same.events[row] for row in rows if not search.is_used(same.events[row]))
        event = next(free, None)
        if event is not None:
            with search.assignment.assign(level.part, event):
                rank = 2 * (len(level.equal) + sum(map(search.holds, level.times)))
            yield Attempt(rank, 0, event, ("condition", by))
    if not len(same) and len(candidates):
        _, end = candidates.find_rows(*window.widen())
        event = candidates.events[max(0, end - 1)]
        if not search.is_used(event):
            yield Attempt(0, 0, event, ("condition", level.equal[0]))


def _find_near_miss(search: "CombinationSearch", level: PartLevel, window: TimeWindow) -> Attempt | None:
    """Finds an event that fits except for one test of the part, the last of these tests."""
    atom = search.way.parts[level.part]
    assert isinstance(atom, EventTest)
    rank = 2 * len(level.equal + level.times) - 1  # after one that passed the tests
    for number, near in search.context.near[atom]:
        same = search.select_same(level, near)
        first, last = same.find_rows(*window.widen())
        for event in same.events[max(first, last - MAX_NEAR_TRIED) : last][::-1]:
            with search.assignment.assign(level.part, event):
                blocker, _ = search.try_event(level, event)
            if blocker is None:
                return Attempt(rank, 0, event, ("test", number))
    return None


class TopCandidates:
    """Keeps the greatest candidates by a key; only these are built."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self._heap: list[tuple[Any, int, MatchCandidate]] = []

    def offer(self, key: Any, build: Callable[[], MatchCandidate]) -> None:
        self.count += 1
        if len(self._heap) < self.limit:
            heappush(self._heap, (key, self.count, build()))
        elif self._heap and key > self._heap[0][0]:
            heapreplace(self._heap, (key, self.count, build()))

    def to_candidates(self) -> MatchCandidates:
        ordered = sorted(self._heap, key=lambda entry: entry[0], reverse=True)
        return MatchCandidates(self.count, tuple(candidate for _, _, candidate in ordered))


class BlockerStats:
    """Counts what stopped the combinations of an alternative, and keeps the furthest of them."""

    def __init__(self, way: SubscriptionAlternative, whole: Subscription, events: EventMessages, limit: int) -> None:
        self.way = way
        self.whole = whole
        self.messages = ConditionMessages(way, events)
        self.counts: Counter[Blocker] = Counter()
        self._furthest, self.waiting = TopCandidates(limit), TopCandidates(limit)
        absences = [n for n, part in enumerate(way.parts) if isinstance(part, AbsentPart)]
        atoms = [n for n, part in enumerate(way.parts) if isinstance(part, EventTest)]
        self._blockers: list[Blocker] = [
            *(("condition", n) for n in range(len(way.conditions))),
            *(("absence", n) for n in absences),
            *(("event", n) for n in atoms),
            *(("role", n) for n in atoms[1:]),
        ]

    def count(self, blocker: Blocker, combinations: int = 1) -> None:
        if combinations:
            self.counts[blocker] += combinations

    def add_stuck(self, search: "CombinationSearch", rank: tuple[int, int], blocker: Blocker) -> None:
        """Adds an assignment that no event completes, with the best event that was tried."""
        events = search.assignment.events

        def build() -> MatchCandidate:
            if blocker[0] == "test":
                return self._build_failed(events, blocker[1])
            condition = self._get_condition(blocker)
            span = None if condition is None else self._find_span(condition)
            number, why = self._blockers.index(blocker), self._explain(search, blocker)
            return MatchCandidate(self.show_events(events), why, number, span)

        self._furthest.offer((*rank, _order_by_newness(events)), build)

    def add_waiting(self, events: dict[int, Event], part: int | None, until: Time) -> None:
        """Adds an assignment that an event of a part, or none at all, may complete until then."""

        def build() -> MatchCandidate:
            at = self.messages.units.to_json(until)
            why = self.messages.describe_wait(part, until)
            return MatchCandidate(self.show_events(events), why, until=at)

        self.waiting.offer(_order_by_newness(events), build)

    def show_events(self, events: dict[int, Event]) -> tuple[SeenEvent, ...]:
        show, name_part = self.messages.events.show_event, self.messages.name_part
        return tuple(show(event, name_part(part)) for part, event in events.items())

    def build_candidate(self, events: dict[int, Event], why: str) -> MatchCandidate:
        """Builds a candidate without a requirement that stopped it."""
        return MatchCandidate(self.show_events(events), why)

    def list_stuck(self) -> MatchCandidates:
        """Returns the furthest assignments, with the numbers of their requirements."""
        stuck = self._furthest.to_candidates()
        numbers: dict[int | None, int] = {self._blockers.index(b): n for n, b in enumerate(self._list_reported())}
        shown = tuple(replace(c, demand=numbers.get(c.demand)) for c in stuck.shown)
        return replace(stuck, shown=shown)

    def list_requirements(self) -> tuple[Requirement, ...]:
        """Returns the requirements with the number of combinations each stopped."""
        requirements = []
        for blocker in self._list_reported():
            condition, stopped = self._get_condition(blocker), self.counts[blocker]
            if condition is not None:
                text, span = self.messages.describe(condition), self._find_span(condition)
                requirements.append(Requirement(text, _KINDS[type(condition)], span, stopped))
                continue
            kind, part = blocker
            name = self.messages.name_part(part)
            text = f"an event that passes the tests of {name}"
            if kind == "role":
                text = f"{name} is an event that plays no other role"
            requirements.append(Requirement(text, kind, None, stopped))
        return tuple(requirements)

    def _list_reported(self) -> list[Blocker]:
        """Returns the conditions of the text, and everything else that stopped something."""
        written = ("condition", "absence")
        return [b for b in self._blockers if b[0] in written or self.counts[b]]

    def _build_failed(self, events: dict[int, Event], number: int) -> MatchCandidate:
        """Builds a candidate whose last event fails a test of its atom."""
        part, event = list(events.items())[-1]
        atom = self.way.parts[part]
        assert isinstance(atom, EventTest)
        test, name = list_tests(atom)[number], self.messages.name_part(part)
        why, _ = self.messages.events.explain_failure(test, event, name)
        return MatchCandidate(self.show_events(events), why, span=test.span)

    def _explain(self, search: "CombinationSearch", blocker: Blocker) -> str:
        kind, number = blocker
        match kind:
            case "condition":
                return self.messages.explain(self.way.conditions[number], search.assignment)
            case "absence":
                return self.messages.explain_violation(search.find_violation(number) or ())
            case _:
                other = "other " if kind == "role" else ""
                name = self.messages.name_part(number)
                return f"no {other}event passed the tests of {name}"

    def _get_condition(self, blocker: Blocker) -> Condition | AbsentPart | None:
        kind, number = blocker
        if kind == "condition":
            return self.way.conditions[number]
        part = self.way.parts[number]
        return part if isinstance(part, AbsentPart) else None

    def _find_span(self, condition: Condition | AbsentPart) -> Span | None:
        """Finds the length, moment, predicate or operator in the text; None if unknown."""
        parts: tuple[Any, ...]
        match condition:
            case TimeConstraint(earlier, later, by):
                parts = (by, earlier.anchor, later.anchor, condition)
            case AbsentPart(since=since, length=length):
                parts = (length, since.anchor, condition)
            case SpatialConstraint():
                return condition.span
            case FieldComparison():
                return next(self._find_predicates(condition), None)
        spans = (None if isinstance(part, frozenset | None) else part.span for part in parts)
        return next((span for span in spans if span is not None), None)

    def _find_predicates(self, compared: FieldComparison) -> Iterator[Span | None]:
        """Yields the spans of the predicates that compare such fields."""
        target = compared.name, compared.operator, compared.other_name
        expressions = [self.whole.root, *self.whole.variables.values()]
        while expressions:
            expression = expressions.pop(0)
            expressions += get_subexpressions(expression)
            for p in expression.predicates if isinstance(expression, EventAtom) else ():
                value = p.value
                if (
                    isinstance(value, VariableField)
                    and (p.name, p.operator, value.name) == target
                    and self.way.find_group(value.variable) == frozenset((compared.other,))
                ):
                    yield p.span


def _order_by_newness(events: dict[int, Event]) -> tuple[int, ...]:
    return tuple(sorted((event.position for event in events.values()), reverse=True))
