"""Searches a stream for the reasons why a subscription has no more matches in it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from ensue.analyzer import normal_form
from ensue.diagnostics import search_context
from ensue.diagnostics.blockers import Attempts, Blocker, BlockerStats, TopCandidates, report_part
from ensue.diagnostics.messages import EventMessages
from ensue.diagnostics.why_not_report import AlternativeReport, AtomReport, CheckReport, NearMiss, WhyNot
from ensue.geo import geometry
from ensue.ir.subscription import EventAtom, EventTest, Region, Subscription, get_subexpressions
from ensue.reference.conditions import Event
from ensue.reference.subscription_matches import (
    ReferenceStream,
    SelectionResult,
    SubscriptionMatch,
    Time,
    normalize_value,
    select_matches,
)

MAX_STEPS = 1_000_000  # some seconds of one core
MAX_NEAR_MISSES = 3  # for each test
MAX_CANDIDATES = 10  # of each kind, for each alternative

_Task = TypeVar("_Task")
FieldTest = tuple[str, str, object]  # a field, an operator, and the value of another event's field


def why_not(
    subscription: Subscription,
    stream: ReferenceStream,
    *,
    now: Time | None = None,
    max_steps: int = MAX_STEPS,
    max_candidates: int = MAX_CANDIDATES,
) -> WhyNot:
    """Finds how far the events of a stream got, and what stopped them.

    Parts are filled in the order of the text, newest events first; an event that does not fit is
    stopped by the first condition that it fails. Until `now`, the current time, a candidate may
    wait for events; with None the stream has ended.
    """
    diagnosis = _Diagnosis(subscription, stream, now, max_steps, max_candidates)
    diagnosis.filter_atoms()
    diagnosis.find_near_misses()
    diagnosis.search_combinations()
    return diagnosis.build_result()


class _Diagnosis:
    def __init__(
        self, subscription: Subscription, stream: ReferenceStream, now: Time | None, max_steps: int, max_candidates: int
    ) -> None:
        self.subscription, self.stream, self.now = subscription, stream, now
        self.max_candidates = max_candidates
        self.steps_left = self.max_steps = max_steps
        self.cut = False
        self.examined = len(stream.events)
        self.messages = EventMessages(stream, _list_fields(subscription))
        self.filter = search_context.AtomFilter(stream)
        self.ways = normal_form.build_alternatives(subscription)
        self.filtered: dict[EventTest, search_context.FilterStats] = {}
        context = subscription, self.messages, max_candidates
        self.stats = [BlockerStats(way, *context) for way in self.ways]
        self.matches: list[dict[SubscriptionMatch, dict[int, Event]]] = [{} for _ in self.ways]
        self.keys: dict[SubscriptionMatch, object] = {}

    def filter_atoms(self) -> None:
        """Tries each atom on the events, with at most half of the steps."""
        atoms = list(dict.fromkeys(atom for way in self.ways for atom in _list_atoms(way)))
        for atom, budget in self._share_steps(atoms, self.steps_left // 2):
            self.filtered[atom], complete = self.filter.filter_events(atom, budget)
            if not complete:
                self.cut = True
                self.examined = min(self.examined, self.filtered[atom].examined)

    def find_near_misses(self) -> None:
        """Finds events that fail one test only, with a quarter of the steps left."""
        atoms = [p for way in self.ways for p in way.parts if isinstance(p, EventTest)]
        for atom, budget in self._share_steps(list(dict.fromkeys(atoms)), self.steps_left // 4):
            self.filter.find_near_misses(self.filtered[atom], budget)

    def _share_steps(self, tasks: Sequence[_Task], limit: int) -> Iterator[tuple[_Task, search_context.StepBudget]]:
        """Yields each task with an equal share of the steps that earlier ones left."""
        for done, task in enumerate(tasks):
            budget = search_context.StepBudget(limit // (len(tasks) - done))
            yield task, budget
            limit -= budget.spent
            self.steps_left -= budget.spent

    def search_combinations(self) -> None:
        """Searches each alternative; events that one atom did not examine are left out of all."""
        candidates = {atom: self._index(found.passed) for atom, found in self.filtered.items()}
        near = {atom: self._index_near(found) for atom, found in self.filtered.items()}
        ties = [normal_form.find_common_key(way) for way in self.ways]
        tied = all(one is not None for one in ties)
        for number, budget in self._share_steps(range(len(self.ways)), self.steps_left):
            context = search_context.SearchContext(self.stream, self.filter, candidates, near, budget, self.now)
            search = CombinationSearch(self.ways[number], context, stats=self.stats[number])
            try:
                for assignment in search.find_combinations():
                    budget.spend(search_context.FOUND)
                    match, events = _build_match(assignment), dict(assignment.events)
                    self.matches[number].setdefault(match, events)
                    part, name = ties[number] or (-1, "")
                    value = self.stream.value(events[part], name) if tied else None
                    self.keys[match] = normalize_value(value) if tied else None
            except search_context.BudgetExceeded:
                self.cut = True

    def _index(self, events: Sequence[Event]) -> search_context.CandidateIndex:
        """Indexes the events that were examined for all atoms."""
        if not self.examined:
            return search_context.CandidateIndex((), self.stream)
        oldest = self.stream.events[-self.examined].position
        return search_context.CandidateIndex([e for e in events if e.position >= oldest], self.stream)

    def _index_near(self, found: search_context.FilterStats) -> list[tuple[int, search_context.CandidateIndex]]:
        """Indexes the events that failed one test narrowly, those of the last test first."""
        numbered = enumerate(zip(found.tests, found.near, strict=False))
        return [(n, self._index(near)) for n, (test, near) in numbered if search_context.is_graded(test)][::-1]

    def build_result(self) -> WhyNot:
        chosen = select_matches(self.keys, self.subscription.select)
        ways = tuple(self._report_alternative(number, chosen) for number in range(len(self.ways)))
        return WhyNot(
            events=self.examined,
            matched=len(self.keys),
            delivered=len(chosen.delivered),
            waiting=sum(way.waiting.count for way in ways),
            ways=ways,
            steps=self.max_steps - self.steps_left,
            cut=self.cut,
            subscription=self.subscription.text,
        )

    def _report_alternative(self, number: int, chosen: SelectionResult) -> AlternativeReport:
        stats, matches = self.stats[number], self.matches[number]
        undelivered = TopCandidates(self.max_candidates)
        for match, events in matches.items():
            why = self._explain_choice(match, chosen)
            if why is not None:
                build = partial(stats.build_candidate, events, why)
                undelivered.offer(match.newness, build)
        atoms = tuple(
            self._report_atom(part, stats.messages.name_part(n))
            for n, part in enumerate(self.ways[number].parts)
            if isinstance(part, EventTest)
        )
        return AlternativeReport(
            atoms, stats.list_requirements(), len(matches),
            stats.list_stuck(), stats.waiting.to_candidates(), undelivered.to_candidates(),
        )  # fmt: skip

    def _report_atom(self, atom: EventTest, name: str) -> AtomReport:
        found, messages = self.filtered[atom], self.messages
        reports = []
        # equal atoms share their counts, and each has its own spans
        for test, counts, near in zip(search_context.list_tests(atom), found.count(), found.near, strict=True):
            misses = tuple(
                NearMiss(messages.show_event(event, name), *messages.explain_failure(test, event))
                for event in near[:MAX_NEAR_MISSES]
            )
            reports.append(CheckReport(messages.describe_test(test), test.span, *counts, misses))
        return AtomReport(name, found.examined, len(found.passed), tuple(reports))

    def _explain_choice(self, match: SubscriptionMatch, chosen: SelectionResult) -> str | None:
        """Explains why a match was not delivered; None if it was."""
        units, select = self.messages.units, f"(select = {self.subscription.select.value})"
        if match in chosen.used:
            at = units.format_time(chosen.used[match].end)
            return f"used by an earlier match, which ended at {at} {select}"
        if match in chosen.outdone:
            at = units.format_time(chosen.outdone[match].start)
            return f"a newer one was delivered instead, from {at} on {select}"
        return None


def _list_atoms(way: normal_form.SubscriptionAlternative) -> Iterator[EventTest]:
    """Yields all atoms, including those of absences."""
    for part in way.parts:
        if isinstance(part, normal_form.AbsentPart):
            for other in part.absent:
                yield from _list_atoms(other)
        else:
            yield part


def _list_fields(subscription: Subscription) -> Iterator[str]:
    """Yields the fields that predicates read, in the order of the text."""
    expressions = [subscription.root, *subscription.variables.values()]
    while expressions:
        expression = expressions.pop(0)
        expressions[:0] = get_subexpressions(expression)
        if isinstance(expression, EventAtom):
            yield from (predicate.name for predicate in expression.predicates)


def _build_match(assignment: search_context.Assignment) -> SubscriptionMatch:
    way = assignment.way
    events = sorted(assignment.events.values(), key=lambda e: e.position)
    start, end = assignment.get_start(way.root), assignment.get_end(way.root)
    assert start is not None
    assert end is not None
    absences = (part for part in way.parts if isinstance(part, normal_form.AbsentPart))
    known = [(events[-1].end, 0)] if events else []
    known += [(assignment.get_until(absence), 1) for absence in absences]
    return SubscriptionMatch(tuple(e.position for e in events), start, end, max(known))


@dataclass(frozen=True, slots=True)
class AbsenceScope:
    """The interval of an absence, the events it ignores, and the values it compares with."""

    since: Time
    until: Time
    base: frozenset[int] = frozenset()
    tests: Mapping[int, list[FieldTest]] = field(default_factory=dict)  # by part


class CombinationSearch:
    """Finds all combinations of events that fill an alternative, newest events first.

    Without a scope these are matches; in the scope of an absence they violate it.
    """

    def __init__(
        self,
        way: normal_form.SubscriptionAlternative,
        context: search_context.SearchContext,
        *,
        scope: AbsenceScope | None = None,
        stats: BlockerStats | None = None,
    ) -> None:
        self.way = way
        self.context = context
        self.scope = scope
        self.base = frozenset[int]() if scope is None else scope.base
        self.tests: Mapping[int, list[FieldTest]] = {} if scope is None else scope.tests
        self.stats = stats
        self.levels = context.get_levels(way)
        self.assignment = search_context.Assignment(way, context.stream)

    def find_combinations(self) -> Iterator[search_context.Assignment]:
        """Yields the assignment for each combination; the next one replaces it."""
        blocker, held = self._find_blocker(self.levels[0])
        if blocker is None:
            yield from self._fill(0)
        elif self.stats is not None:
            self.stats.count(blocker)
            self.stats.add_stuck(self, (0, 2 * held), blocker)

    def _fill(self, depth: int) -> Iterator[search_context.Assignment]:
        if depth == len(self.levels) - 1:
            if self._is_over() and self._is_in_scope():
                yield self.assignment
            return
        level = self.levels[depth + 1]
        attempts = self._find_candidates(level)
        for row in range(attempts.rows[1] - 1, attempts.rows[0] - 1, -1):
            event = attempts.same.events[row]
            with self.assignment.assign(level.part, event):
                blocker, held = self.try_event(level, event)
                if blocker is None:
                    attempts.fits = True
                    yield from self._fill(depth + 1)
                elif self.stats is not None:
                    self.stats.count(blocker)
                    if depth == 0:  # each first event is a candidate by itself
                        self.stats.add_stuck(self, (0, 2 * held), blocker)
                    else:
                        attempts.note(self, event, blocker, held)
        if self.stats is not None:
            report_part(self, self.stats, depth, attempts)

    def _find_candidates(self, level: search_context.PartLevel) -> Attempts:
        """Finds the events that may fill a part, by fields and times."""
        atom = self.way.parts[level.part]
        assert isinstance(atom, EventTest)
        self.context.budget.spend(search_context.TRIED + search_context.CONDITION * len(level.times))
        candidates = self.context.candidates[atom]
        same = self.select_same(level, candidates)
        window = search_context.derive_window(level, self.way.conditions, self.assignment, same.longest)
        if self.scope is not None:
            window.raise_low(self.scope.since, -1)
            window.lower_high(self.scope.until, -1)
        return Attempts(candidates, same, window, same.find_rows(*window.widen()))

    def select_same(
        self, level: search_context.PartLevel, candidates: search_context.CandidateIndex
    ) -> search_context.CandidateIndex:
        """Selects the events with the value that a field must have."""
        if level.equal:
            compared = self.way.conditions[level.equal[0]]
            assert isinstance(compared, normal_form.FieldComparison)
            name, other, other_name = compared.name, compared.other, compared.other_name
            if compared.part != level.part:
                name, other, other_name = compared.other_name, compared.part, compared.name
            value = self.context.stream.value(self.assignment.events[other], other_name)
            return candidates.select_equal(name, value)
        for name, operator, value in self.tests.get(level.part, ()):
            if operator == "=":
                return candidates.select_equal(name, value)
        return candidates

    def try_event(self, level: search_context.PartLevel, event: Event) -> tuple[Blocker | None, int]:
        """Returns what blocks the event of a part, and how many conditions held before."""
        self.context.budget.spend(search_context.TRIED)
        if self.is_used(event, ignored=level.part):
            return ("role", level.part), 0
        for name, operator, value in self.tests.get(level.part, ()):
            if not self.context.stream.holds(event, name, operator, value):
                return ("condition", -1), 0  # in an absence, which reports no reasons
        return self._find_blocker(level)

    def is_used(self, event: Event, *, ignored: int = -1) -> bool:
        """Returns whether an event fills a part already, other than the ignored one."""
        return event.position in self.base or any(
            part != ignored and event.position == other.position for part, other in self.assignment.events.items()
        )

    def _find_blocker(self, level: search_context.PartLevel) -> tuple[Blocker | None, int]:
        for held, number in enumerate(level.conditions):
            self.context.budget.spend(search_context.CONDITION)
            if not self.holds(number):
                return ("condition", number), held
        for held, number in enumerate(level.absences, len(level.conditions)):
            if self.find_violation(number) is not None:
                return ("absence", number), held
        return None, len(level.conditions) + len(level.absences)

    def holds(self, number: int) -> bool:
        """Returns whether a condition holds for the events so far."""
        match self.way.conditions[number]:
            case normal_form.TimeConstraint() as later:
                return self.assignment.is_in_time(later)
            case normal_form.FieldComparison(part, name, operator, other, other_name):
                events, stream = self.assignment.events, self.context.stream
                value = stream.value(events[other], other_name)
                return stream.holds(events[part], name, operator, value)
            case normal_form.SpatialConstraint() as near:
                first, second = self.find_places(near)
                relation = near.comparison, near.number, near.tolerance
                space = self.context.stream.space
                return geometry.evaluate_relation(near.where, first, second, *relation, space)

    def find_places(
        self, near: normal_form.SpatialConstraint
    ) -> tuple[geometry.ConvexHull | geometry.Shape | None, geometry.ConvexHull | None]:
        """Returns the places of the two groups, or the region and the place of the group."""
        context, assignment = self.context, self.assignment
        context.budget.spend(search_context.PLACES)
        second = context.stream.place(assignment.get_positions(near.second))
        if not isinstance(near.first, Region):
            return context.stream.place(assignment.get_positions(near.first)), second
        region = context.filter.get_region(near.first)
        context.budget.spend(search_context.EDGE * region.edges)
        return region.shape, second

    def find_violation(self, number: int) -> tuple[Event, ...] | None:
        """Finds events that violate an absence; None if there are none."""
        gone, assignment, stream = self.way.parts[number], self.assignment, self.context.stream
        assert isinstance(gone, normal_form.AbsentPart)
        since, until = assignment.get_time(gone.since), assignment.get_until(gone)
        assert since is not None
        base, events = assignment.get_positions(gone.base), assignment.events
        values = tuple(stream.value(events[c.other], c.other_name) for _, c in gone.asks)
        key, violations = (id(gone), since, until, base, values), self.context.violations
        if key not in violations:
            violations[key] = self._search_absent(gone, AbsenceScope(since, until, base), values)
        return violations[key]

    def _search_absent(
        self, gone: normal_form.AbsentPart, scope: AbsenceScope, values: tuple[object, ...]
    ) -> tuple[Event, ...] | None:
        for index, way in enumerate(gone.absent):
            tests: dict[int, list[FieldTest]] = {}
            for (which, c), value in zip(gone.asks, values, strict=True):
                if which == index:
                    tests.setdefault(c.part, []).append((c.name, c.operator, value))
            scoped = replace(scope, tests=tests)
            search = CombinationSearch(way, self.context, scope=scoped)
            for assignment in search.find_combinations():
                return tuple(assignment.events.values())
        return None

    def _is_over(self) -> bool:
        """Returns whether time has passed the intervals of all absences."""
        absences = [part for part in self.way.parts if isinstance(part, normal_form.AbsentPart)]
        last = max(map(self.assignment.get_until, absences), default=None)
        if self.context.now is None or last is None or last < self.context.now:
            return True
        if self.stats is not None:
            self.stats.add_waiting(self.assignment.events, None, last)
        return False

    def _is_in_scope(self) -> bool:
        if self.scope is None:
            return True
        assignment, root = self.assignment, self.way.root
        start, end = assignment.get_start(root), assignment.get_end(root)
        assert start is not None
        assert end is not None
        return self.scope.since < start and end <= self.scope.until
