"""The events of one key, and the conditions of a query on them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ensue.algebra.form import guards_entry, is_absence, is_event, is_lapse, is_loop, is_sequence
from ensue.algebra.form import parts as parts_of
from ensue.algebra.lapses import bound_lapses
from ensue.algebra.pattern import Apply, Atom, Interval, Not, Pattern
from ensue.algebra.predicate import At, Field
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms, bound_variables, kleenes, positives, references, variables
from ensue.algebra.window import ByEvents, ByTime, ByUnits
from ensue.schema import takes
from ensue.semantics.arrangements import ways
from ensue.semantics.conditions import holds
from ensue.semantics.events import Binding, Event, before, members, seen
from ensue.semantics.following import Following
from ensue.semantics.lapses import ends_of
from ensue.semantics.results import Fired, repeats


class TooManyWays(Exception):  # noqa: N818  it is not the query that is wrong
    """There are more ways to arrange the events than somebody wants to wait for."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position  # of an event among them


class Partition:
    """The events that share a key, with the conditions of a query on them."""

    def __init__(self, query: Query, events: Sequence[Event]) -> None:
        self.query = query
        self.events = events
        self.index = {event.position: k for k, event in enumerate(events)}
        negated = {a.variable for a in atoms(query.pattern)} - {
            a.variable for a in positives(query.pattern)
        }
        self.positive = [c for c in query.where if not variables(c) & negated]
        self.negative = [c for c in query.where if variables(c) & negated]
        self.kleenes = kleenes(query.pattern)
        self.following = Following(self)
        self.fired: Fired | None = None  # by the events of a longer stream
        self.most: int | None = None  # ways to arrange events; None: any number

    def listed(self, ways: Iterable[Binding]) -> list[Binding]:
        """The ways as a list, if they are not too many."""
        if self.most is None:
            return list(ways)
        found = list(islice(ways, self.most + 1))
        if len(found) > self.most:
            raise TooManyWays(max(e.position for e in members(found[-1])))
        return found

    def candidates(self, atom: Atom) -> list[Event]:
        """The events of an atom's type that meet the conditions on this variable alone."""
        alone = [c for c in self.query.where if variables(c) == {atom.variable}]
        if atom.variable in self.kleenes:
            alone = [
                c
                for c in alone
                if all(isinstance(r, Field) and r.at is At.CURRENT for r in references(c))
            ]
        return [
            e
            for e in self.events
            if takes(atom.type, e.type) and all(holds(c, {atom.variable: (e,)}) for c in alone)
        ]

    def fires(self, applied: Apply, candidates: Sequence[Event]) -> Mapping[int, Event]:
        """The results of a repeat, by the position of their event."""
        if self.fired is not None:
            return self.fired[applied.variable]
        return repeats(applied, candidates)

    def accepts(self, binding: Binding) -> bool:
        """Whether an arrangement is a match."""
        return (
            bool(binding)
            and self.near(binding)
            and all(holds(c, binding) for c in self.positive)
            and all(not self.occurs(scope, binding) for scope in self.scopes(binding))
            and not any(
                self.within(negation, interval, binding)
                for negation, interval in bound_lapses(self.query.pattern, binding)
            )
            and self.following.chosen(binding, whole=True)
        )

    def near(self, binding: Binding) -> bool:
        """Whether the events are inside one window."""
        inside = members(binding)
        return not inside or self._together(
            min(inside, key=lambda e: e.start), max(inside, key=lambda e: e.end), inside
        )

    def _together(self, first: Event, last: Event, inside: Sequence[Event]) -> bool:
        match self.query.within:
            case None:
                return True
            case ByTime(nanoseconds=length) | ByUnits(amount=length):
                return last.end - first.start <= length
            case ByEvents(count=count):
                ranks = [self.index[e.position] for e in inside]
                return max(ranks) - min(ranks) <= count - 1

    # ---------------------------------------------------------------------------- negation

    def scopes(self, binding: Binding) -> Iterator["Scope"]:
        """The place of every negation whose SEQ or AND is bound."""
        return scopes(self.query.pattern, binding)

    def occurs(self, scope: "Scope", binding: Binding) -> bool:
        """Whether what a negation forbids happened where it stands."""
        conditions = [
            c
            for c in self.negative
            if variables(c) & {a.variable for a in atoms(scope.negation.part)}
        ]
        own = {e.position for e in members(binding)}
        for negative in ways(scope.negation.part, self):
            events = members(negative)
            if (
                all(before(a, n) for a in scope.after for n in events)
                and all(before(n, b) for b in scope.before for n in events)
                and (scope.after or self.near_end(events, members(binding)))
                and (scope.before or self.near_start(events, members(binding)))
                and not own & {n.position for n in events}
                and all(holds(c, binding | negative) for c in conditions)
            ):
                return True
        return False

    def within(self, negation: Not, interval: Interval, binding: Binding) -> bool:
        """Whether an event that an absence forbids lies in its interval, as a whole.

        Events of the match itself do not count.
        """
        ends = ends_of(interval, binding)
        if ends is None:
            return False
        after, until = ends
        own = {e.position for e in members(binding)}
        named = {a.variable for a in atoms(negation.part)}
        conditions = [c for c in self.negative if variables(c) & named]
        return any(
            after < n.start and n.end <= until and n.position not in own
            for negative in ways(negation.part, self)
            for n in members(negative)
            if all(holds(c, binding | negative) for c in conditions)
        )

    def near_end(self, events: list[Event], match: list[Event]) -> bool:
        """Inside the window that ends at the match's last event."""
        last = max(match, key=lambda e: e.end)
        return all(self._together(n, last, [n, match[-1]]) for n in events)

    def near_start(self, events: list[Event], match: list[Event]) -> bool:
        """Inside the window that begins at the match's first event."""
        first = min(match, key=lambda e: e.start)
        return all(self._together(first, n, [match[0], n]) for n in events)


def partitions(query: Query, events: Sequence[Event]) -> Iterator[Partition]:
    """The events of each key; without `[attr]` all of them."""
    by_key: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        key = tuple(event.values.get(e.field_name) for e in query.equivalence)
        # NULL equals nothing, and NaN not even itself
        if all(value is not None and value == value for value in key):
            by_key.setdefault(key, []).append(event)
    for inside in by_key.values():
        yield Partition(query, inside)


def rank(pattern: Pattern, binding: Binding) -> tuple[object, ...]:
    """The place of a match among others: by its last event, then by its members."""
    number = {atom.variable: k for k, atom in enumerate(positives(pattern))}
    bound = ((v, e) for v, es in binding.items() if v in number for e in es)
    steps = sorted((e.position, number[v]) for v, e in bound)
    return (steps[-1][0], steps)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a negation forbids events: after all of `after` and before all of `before`."""

    negation: Not
    after: list[Event]
    before: list[Event]
    whole: bool = False  # an AND: known only when all of it has come


def scopes(pattern: Pattern, binding: Binding) -> Iterator[Scope]:
    """The place of every negation whose SEQ or AND is bound; runs judge those inside loops."""
    if is_loop(pattern):
        return

    def bound(parts: Iterable[Pattern]) -> list[Event]:
        inside = {v for p in parts for v in bound_variables(p)}
        return sorted(
            seen({v: es for v, es in binding.items() if v in inside}), key=lambda e: e.position
        )

    inner = parts_of(pattern)
    inside = bound(inner) if any(map(is_absence, inner)) else []
    for k, part in enumerate(inner):
        if is_event(part):
            continue
        if not is_absence(part):
            yield from scopes(part, binding)
        elif is_lapse(part):
            continue  # it is judged by its interval
        elif inside and is_sequence(pattern):
            behind = bound(inner[k + 1 :])
            if behind or not guards_entry(inner[k + 1 :]):
                yield Scope(part, bound(inner[:k]), behind)
        elif inside:  # it stands in AND: elsewhere it is refused
            yield Scope(part, inside[:1], inside[-1:], whole=True)
