"""The events of one key, and the conditions of a query on them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ensue.analyzer.interval_negation import iterate_bound_interval_negations
from ensue.ir.expression import EventPosition, Expr, FieldRef
from ensue.ir.pattern import Atom, Interval, Not, OperatorCall, Pattern
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, ByTime, ByUnits
from ensue.ir.traits import get_parts, is_event, is_interval_negation, is_loop, is_negation, is_sequence, precedes_then
from ensue.ir.traversal import (
    get_kleene_variables,
    get_variables,
    iterate_atoms,
    iterate_bound_variables,
    iterate_positive_atoms,
    iterate_references,
)
from ensue.reference.arrangements import list_bindings
from ensue.reference.conditions import Binding, Event, compute_interval, holds, is_before, members, select_outer_events
from ensue.reference.contiguity import ReferenceRuns
from ensue.reference.user_operators import RepeatResults, apply_repeat
from ensue.schema import accepts_type


class TooManyBindings(Exception):  # noqa: N818  the query itself is valid
    """Reports more bindings than the caller's limit."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position  # of one of their events


@dataclass(frozen=True, slots=True)
class NegationScope:
    """The range of a negation: after all of `after` and before all of `before`."""

    negation: Not
    after: list[Event]
    before: list[Event]
    whole: bool = False  # of an AND: known only when all its parts are bound


class Partition:
    """The events that share a key, with the conditions of a query on them."""

    def __init__(self, query: Query, events: Sequence[Event]) -> None:
        self.query = query
        self.events = events
        self.index = {event.position: k for k, event in enumerate(events)}
        positive = {a.variable for a in iterate_positive_atoms(query.pattern)}
        negated = {a.variable for a in iterate_atoms(query.pattern)} - positive
        self.positive = [c for c in query.where if not get_variables(c) & negated]
        self.negative = [c for c in query.where if get_variables(c) & negated]
        self.kleenes = get_kleene_variables(query.pattern)
        self.contiguity = ReferenceRuns(self)
        self.fired: RepeatResults | None = None  # computed from a longer stream
        self.most: int | None = None  # limit of bindings; None: unlimited

    def list_bindings(self, ways: Iterable[Binding]) -> list[Binding]:
        """Lists bindings up to the limit."""
        if self.most is None:
            return list(ways)
        bindings = list(islice(ways, self.most + 1))
        if len(bindings) > self.most:
            raise TooManyBindings(max(e.position for e in members(bindings[-1])))
        return bindings

    def candidates(self, atom: Atom) -> list[Event]:
        """Returns the events of an atom's type that satisfy the conditions on it alone."""
        alone = [c for c in self.query.where if get_variables(c) == {atom.variable}]
        if atom.variable in self.kleenes:
            alone = [c for c in alone if _reads_current_only(c)]
        events = (e for e in self.events if accepts_type(atom.type, e.type))
        return [e for e in events if all(holds(c, {atom.variable: (e,)}) for c in alone)]

    def fires(self, applied: OperatorCall, candidates: Sequence[Event]) -> Mapping[int, Event]:
        """Returns the results of a repeat by the position of their event."""
        if self.fired is not None:
            return self.fired[applied.variable]
        return apply_repeat(applied, candidates)

    def accepts(self, binding: Binding) -> bool:
        """Whether a binding is a match."""
        intervals = iterate_bound_interval_negations(self.query.pattern, binding)
        return (
            bool(binding)
            and self.near(binding)
            and all(holds(c, binding) for c in self.positive)
            and not any(self.occurs(scope, binding) for scope in self.scopes(binding))
            and not any(self.within(negation, interval, binding) for negation, interval in intervals)
            and self.contiguity.allows(binding, whole=True)
        )

    def near(self, binding: Binding) -> bool:
        """Whether the events are inside one window."""
        events = members(binding)
        if not events:
            return True
        first, last = min(events, key=lambda e: e.start), max(events, key=lambda e: e.end)
        return self._in_window(first, last, events)

    def _in_window(self, first: Event, last: Event, events: Sequence[Event]) -> bool:
        match self.query.within:
            case None:
                return True
            case ByTime(nanoseconds=length) | ByUnits(amount=length):
                return last.end - first.start <= length
            case ByEvents(count=count):
                ranks = [self.index[e.position] for e in events]
                return max(ranks) - min(ranks) <= count - 1

    # ---------------------------------------------------------------------------- negation

    def scopes(self, binding: Binding) -> Iterator[NegationScope]:
        """Yields the scope of every negation whose SEQ or AND is bound."""
        return find_scopes(self.query.pattern, binding)

    def conditions_on(self, negation: Not) -> list[Expr]:
        """Returns the conditions on the events that a negation forbids."""
        named = {a.variable for a in iterate_atoms(negation.part)}
        return [c for c in self.negative if get_variables(c) & named]

    def occurs(self, scope: NegationScope, binding: Binding) -> bool:
        """Whether a forbidden event occurred in the scope of a negation."""
        conditions, match = self.conditions_on(scope.negation), members(binding)
        positions = {e.position for e in match}
        for negative in list_bindings(scope.negation.part, self):
            events = members(negative)
            if (
                all(is_before(a, n) for a in scope.after for n in events)
                and all(is_before(n, b) for b in scope.before for n in events)
                and (scope.after or self.near_end(events, match))
                and (scope.before or self.near_start(events, match))
                and not positions & {n.position for n in events}
                and all(holds(c, binding | negative) for c in conditions)
            ):
                return True
        return False

    def within(self, negation: Not, interval: Interval, binding: Binding) -> bool:
        """Whether a forbidden event is completely in the interval of an absence.

        Events of the match itself do not count.
        """
        ends = compute_interval(interval, binding)
        if ends is None:
            return False
        after, until = ends
        positions = {e.position for e in members(binding)}
        conditions = self.conditions_on(negation)
        return any(
            after < n.start and n.end <= until and n.position not in positions
            for negative in list_bindings(negation.part, self)
            for n in members(negative)
            if all(holds(c, binding | negative) for c in conditions)
        )

    def near_end(self, events: list[Event], match: list[Event]) -> bool:
        """Whether events are inside the window that ends with the match."""
        last = max(match, key=lambda e: e.end)
        return all(self._in_window(n, last, [n, match[-1]]) for n in events)

    def near_start(self, events: list[Event], match: list[Event]) -> bool:
        """Whether events are inside the window that begins with the match."""
        first = min(match, key=lambda e: e.start)
        return all(self._in_window(first, n, [match[0], n]) for n in events)


def _reads_current_only(condition: Expr) -> bool:
    refs = iterate_references(condition)
    return all(isinstance(r, FieldRef) and r.at is EventPosition.CURRENT for r in refs)


def split_partitions(query: Query, events: Sequence[Event]) -> Iterator[Partition]:
    """Yields the events of each key; without `[attr]`, all events are one partition."""
    by_key: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        key = tuple(event.values.get(e.field_name) for e in query.equivalence)
        # NULL and NaN equal nothing
        if all(value is not None and value == value for value in key):
            by_key.setdefault(key, []).append(event)
    for partition_events in by_key.values():
        yield Partition(query, partition_events)


def rank_match(pattern: Pattern, binding: Binding) -> tuple[int, list[Any]]:
    """Returns the sort key of a match: its last event, then its members."""
    number = {atom.variable: k for k, atom in enumerate(iterate_positive_atoms(pattern))}
    bound = ((v, e) for v, es in binding.items() if v in number for e in es)
    steps: list[Any] = sorted((e.position, number[v]) for v, e in bound)
    return steps[-1][0], steps


def find_scopes(pattern: Pattern, binding: Binding) -> Iterator[NegationScope]:
    """Yields the scope of every bound negation; runs check those inside loops."""
    if is_loop(pattern):
        return

    def bound(parts: Iterable[Pattern]) -> list[Event]:
        names = {v for p in parts for v in iterate_bound_variables(p)}
        inside = {v: events for v, events in binding.items() if v in names}
        return sorted(select_outer_events(inside), key=lambda e: e.position)

    inner = get_parts(pattern)
    inside = bound(inner) if any(map(is_negation, inner)) else []
    for k, part in enumerate(inner):
        if is_event(part):
            continue
        if not is_negation(part):
            yield from find_scopes(part, binding)
        elif is_interval_negation(part):
            continue  # checked by its interval
        elif inside and is_sequence(pattern):
            following = bound(inner[k + 1 :])
            if following or not precedes_then(inner[k + 1 :]):
                yield NegationScope(part, bound(inner[:k]), following)
        elif inside:  # only AND allows this
            yield NegationScope(part, inside[:1], inside[-1:], whole=True)
