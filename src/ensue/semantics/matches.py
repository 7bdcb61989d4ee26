"""Matches: the arrangements of events that a pattern allows and that break no condition."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise, product

from ensue.algebra.form import is_absence, is_event, is_input, is_lapse, is_sequence, optional
from ensue.algebra.form import parts as parts_of
from ensue.algebra.lapses import bound_lapses, lapses
from ensue.algebra.leaving import barred_by_the_end, demanded, preferred
from ensue.algebra.operator import Over
from ensue.algebra.pattern import (
    And,
    Apply,
    Atom,
    Interval,
    Kleene,
    Leave,
    Maybe,
    Not,
    Or,
    Pattern,
    Repeat,
    Seq,
    Then,
)
from ensue.algebra.policy import AfterMatch, SkipTo, Strategy
from ensue.algebra.predicate import At, Expr, Field
from ensue.algebra.query import Limit, Query
from ensue.algebra.residual import Step, advance, open_loops, readings, steps, uncounted
from ensue.algebra.walk import (
    atoms,
    bound_variables,
    entries,
    kleenes,
    leaves,
    positives,
    references,
    variables,
)
from ensue.algebra.window import ByEvents, ByTime, ByUnits
from ensue.semantics.choosing import chosen as chosen_by
from ensue.semantics.conditions import MOVING, holds, is_true
from ensue.semantics.events import Binding, Event, before, members, seen
from ensue.semantics.lapses import ends_of
from ensue.semantics.results import Fired, made_of, repeats


class TooManyWays(Exception):  # noqa: N818  it is not the query that is wrong
    """There are more ways to arrange the events than somebody wants to wait for."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position  # of an event among them


def matches(
    query: Query,
    events: Sequence[Event],
    fired: Fired | None = None,
    most: int | None = None,
) -> list[Binding]:
    """All matches, in the order of their last event, then of their members.

    `fired` are the results of repeats, where events before these have a say in them. With `most`
    it gives up where there are more ways than that to arrange the events of one partition.
    """
    if is_lapse(query.pattern):
        return [] if spoilt(query, events) else [{}]
    found: list[Binding] = []
    for partition in partitions(query, events):
        partition.fired, partition.most = fired, most
        here = [b for b in _ways(query.pattern, partition) if partition.accepts(b)]
        here.sort(key=lambda binding: rank(query.pattern, binding))
        if query.after is not None:
            here = list(_skipping(query.after, here))
        kept = [b for b in here if query.having is None or is_true(query.having, b)]
        if query.choose is not None:
            kept = chosen_by(query, kept)
        found += kept if query.limit is None else _limited(query.limit, kept)
    return sorted(found, key=lambda binding: rank(query.pattern, binding))


def spoilt(query: Query, events: Sequence[Event]) -> bool:
    """Whether an event came that a pattern which is only an absence forbids."""
    partition = Partition(query, events)
    return any(
        partition.within(negation, interval, {}) for negation, interval in lapses(query.pattern)
    )


def _limited(limit: Limit, found: Iterable[Binding]) -> Iterator[Binding]:
    """The first few matches of each last event; `found` is in their order."""
    for _, same in groupby(found, key=lambda binding: members(binding)[-1].position):
        yield from islice(same, limit.count)


def rank(pattern: Pattern, binding: Binding) -> tuple[object, ...]:
    """The place of a match among others: by its last event, then by its members."""
    number = {atom.variable: k for k, atom in enumerate(positives(pattern))}
    bound = ((v, e) for v, es in binding.items() if v in number for e in es)
    steps = sorted((e.position, number[v]) for v, e in bound)
    return (steps[-1][0], steps)


def partitions(query: Query, events: Sequence[Event]) -> Iterator["Partition"]:
    """The events of each key; without `[attr]` all of them."""
    by_key: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        key = tuple(event.values.get(e.field_name) for e in query.equivalence)
        # NULL equals nothing, and NaN not even itself
        if all(value is not None and value == value for value in key):
            by_key.setdefault(key, []).append(event)
    for inside in by_key.values():
        yield Partition(query, inside)


# ------------------------------------------------------------------------------ arrangements


def _ways(pattern: Pattern, partition: "Partition") -> list[Binding]:
    """Every way to bind the positive variables of a pattern, in the order it asks for."""
    match pattern:
        case Atom():
            return [{pattern.variable: (e,)} for e in partition.candidates(pattern)]
        case Kleene(atom=atom):
            chains = _chains(partition.candidates(atom), pattern, partition)
            return partition.listed({atom.variable: c} if c else {} for c in chains)
        case Repeat():
            return _rounds(pattern, partition)
        case Maybe(part=part):
            return [{}, *(b for b in _ways(part, partition) if b)]
        case Then(part=part):
            return _ways(part, partition)
        case Not():
            return [{}]
        case Or(parts=parts):
            found: list[Binding] = []
            for part in parts:
                found += [b for b in _ways(part, partition) if b or b not in found]
            return found
        case Seq(parts=parts) | And(parts=parts):
            joined: list[Binding] = [{}]
            in_order = is_sequence(pattern)
            for part in parts:
                before_it = joined
                joined = partition.listed(
                    left | right
                    for right in _ways(part, partition)
                    for left in before_it
                    if (not in_order or _in_order(left, right))
                    and _disjoint(left, right)
                    and partition.near(left | right)
                )
            return joined
        case Apply():
            return _applied(pattern, partition)


def _applied(applied: Apply, partition: "Partition") -> list[Binding]:
    """The results of an operator, each with the events it is made of."""
    ways = [_ways(part, partition) for part in applied.inputs]
    if applied.operator.over is Over.REPEAT:
        atom = applied.inputs[0]
        assert is_event(atom)
        made = partition.fires(applied, [way[atom.variable][0] for way in ways[0]])
        return [
            way | {applied.variable: (made[way[atom.variable][0].position],)}
            for way in ways[0]
            if way[atom.variable][0].position in made
        ]
    found: list[Binding] = []
    for chosen in product(*ways):
        way = {v: es for one in chosen for v, es in one.items()}
        if len(chosen) > 1 and not _disjoint(*chosen):
            continue
        inputs = [way[p.variable][0] for p in applied.inputs if is_input(p)]
        ordered = len(inputs) < 2 or not applied.operator.in_order or before(*inputs)
        if ordered and partition.near(way):
            result = made_of(applied, inputs, tuple(e for es in way.values() for e in es))
            if result is not None:
                found.append(way | {applied.variable: (result,)})
    return found


def _in_order(left: Binding, right: Binding) -> bool:
    return all(before(a, b) for a in seen(left) for b in seen(right))


def _disjoint(left: Binding, right: Binding) -> bool:
    return not {e.position for e in members(left)} & {e.position for e in members(right)}


def _chains(
    events: Sequence[Event], kleene: Kleene, partition: "Partition"
) -> Iterator[tuple[Event, ...]]:
    def grow(chain: tuple[Event, ...]) -> Iterator[tuple[Event, ...]]:
        if len(chain) >= kleene.least:
            yield chain
        if kleene.most is None or len(chain) < kleene.most:
            for event in events:
                longer = (*chain, event)
                if not chain or (before(chain[-1], event) and partition.near({"": longer})):
                    yield from grow(longer)

    return grow(())


def _rounds(loop: Repeat, partition: "Partition") -> list[Binding]:
    """So many ways of a group, one behind the other, their events in one list each.

    What can be read as more than one division into times is one way. A time that binds nothing
    counts and adds nothing.
    """
    once = _ways(loop.part, partition)
    times = [way for way in once if way]
    least = loop.least if len(times) == len(once) else 0
    longest: list[Binding] = [{}]
    found = [] if least else longest
    count = 0
    while longest and (loop.most is None or count < loop.most):
        count += 1
        longer = (
            joined
            for left in longest
            for right in times
            if _in_order(left, right) and partition.near(joined := _appended(left, right))
        )
        longest = partition.listed(_distinct(longer))
        if count >= least:
            found = partition.listed(_distinct([*found, *longest]))
    return found


def _appended(left: Binding, right: Binding) -> Binding:
    return left | {v: (*left.get(v, ()), *events) for v, events in right.items()}


def _distinct(bindings: Iterable[Binding]) -> Iterator[Binding]:
    known = set()
    for binding in bindings:
        rows = frozenset((v, tuple(e.position for e in es)) for v, es in binding.items())
        if rows not in known:
            known.add(rows)
            yield binding


# -------------------------------------------------------------------------------- conditions


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
        self.leaves = {*leaves(query.pattern)} - {Leave.FORK}
        self.mixed = any(entries(query.pattern))
        self._waiting: dict[tuple[str, ...], set[str]] = {}  # by the variables bound so far
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
            if e.type == atom.type and all(holds(c, {atom.variable: (e,)}) for c in alone)
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
            and all(
                not self.occurs(scope, binding) for scope in scopes(self.query.pattern, binding)
            )
            and not any(
                self.within(negation, interval, binding)
                for negation, interval in bound_lapses(self.query.pattern, binding)
            )
            and self.chosen(binding, whole=True)
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

    def occurs(self, scope: "Scope", binding: Binding) -> bool:
        """Whether what a negation forbids happened where it stands."""
        conditions = [
            c
            for c in self.negative
            if variables(c) & {a.variable for a in atoms(scope.negation.part)}
        ]
        own = {e.position for e in members(binding)}
        for negative in _ways(scope.negation.part, self):
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
            for negative in _ways(negation.part, self)
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

    # --------------------------------------------------------------------------- selection

    def chosen(self, binding: Binding, *, whole: bool = False) -> bool:
        """Whether the strategy allows every event that the match passes over.

        And whether its loops end when they should; `whole`: it is no partial match.
        """
        if self.mixed:
            return self._followed(binding, whole)
        chain = members(binding)
        match self.query.strategy:
            case Strategy.ANY:
                return not self.leaves or self._followed(binding, whole)
            case Strategy.STRICT:
                adjacent = all(b.position - a.position == 1 for a, b in pairwise(chain))
                return adjacent and (not self.leaves or self._followed(binding, whole))
            case Strategy.PARTITION:
                ranks = [self.index[event.position] for event in chain]
                adjacent = all(b - a == 1 for a, b in pairwise(ranks))
                return adjacent and (not self.leaves or self._followed(binding, whole))
            case Strategy.NEXT:
                return self._followed(binding, whole)

    def _followed(self, binding: Binding, whole: bool) -> bool:
        """Whether a run could take these events, and no others.

        What remains of a pattern may be read in several ways: each is a run of its own.
        """
        events = ((v, e) for v, es in binding.items() for e in es if not e.made_of)
        taken = sorted(events, key=lambda step: step[1].position)
        runs = [self.query.pattern]
        for k, (variable, event) in enumerate(taken):
            further = (
                step.rest
                for run in runs
                for step in self._steps(run, taken[:k], event)
                if step.variable == variable
            )
            runs = list(dict.fromkeys(further))
        return any(map(optional, runs)) if whole else bool(runs)

    def _steps(self, run: Pattern, prefix: list[tuple[str, Event]], event: Event) -> list[Step]:
        """What a run may do with an event: greedy and reluctant loops prefer one to another."""
        found = self._allowed(run, prefix, event)
        if not self.leaves:
            return found
        found = [s for s in found if not self._ends_rather(run, prefix, s)]
        able = [s for s in found if self.goes_on([*prefix, (s.variable, event)])]
        return [s for s in found if not any(preferred(other, s) for other in able)]

    def _allowed(self, run: Pattern, prefix: list[tuple[str, Event]], event: Event) -> list[Step]:
        """The steps whose strategy allows what lies between the event and the one before it."""
        found = list(steps(run))
        if not prefix:
            return found
        last = prefix[-1][1].position
        passed = [e for e in self.events if last < e.position < event.position]
        could: bool | None = None  # whether the run could use one of them
        kept = []
        for step in found:
            match step.how or self.query.strategy:
                case Strategy.ANY:
                    kept.append(step)
                case Strategy.NEXT:
                    if could is None:
                        could = any(self._usable(run, prefix, e) for e in passed)
                    if not could:
                        kept.append(step)
                case Strategy.STRICT | Strategy.PARTITION as how:
                    if self._adjacent(how, prefix[-1][1], event):
                        kept.append(step)
        return kept

    def _adjacent(self, how: Strategy, left: Event, right: Event) -> bool:
        """Whether nothing lies between two events, of the stream or of the partition."""
        if how is Strategy.STRICT:
            return right.position - left.position == 1
        return self.index[right.position] - self.index[left.position] == 1

    def _usable(self, run: Pattern, prefix: list[tuple[str, Event]], event: Event) -> bool:
        """Whether a run that got this far must use this event."""
        found = [s for s in steps(run) if self._reaches(s, prefix, event)]
        # a loop that could only go on with the very next event is over when that has passed
        going = {loop for step in found for loop in step.inside}
        open_ = [loop for loop in open_loops(run) if not self.mixed or loop in going]
        found = [s for s in found if not self._ends_rather(run, prefix, s)]
        return any(
            self.goes_on([*prefix, (step.variable, event)]) for step in demanded(found, open_)
        )

    def _reaches(self, step: Step, prefix: list[tuple[str, Event]], event: Event) -> bool:
        """Whether a step may be taken with an event that comes so late."""
        how = step.how or self.query.strategy
        contiguous = how in (Strategy.STRICT, Strategy.PARTITION)
        return not prefix or not contiguous or self._adjacent(how, prefix[-1][1], event)

    def _ends_rather(self, run: Pattern, prefix: list[tuple[str, Event]], step: Step) -> bool:
        """Whether a run is a match already, and a reluctant loop takes no more."""
        return (
            barred_by_the_end(step)
            and optional(run)
            and all(holds(condition, _bound(prefix)) for condition in self.positive)
        )

    def goes_on(self, prefix: list[tuple[str, Event]]) -> bool:
        """Whether these events may begin a match, as far as they can tell."""
        binding = _bound(prefix)
        open_ = self._open(tuple(v for v, _ in prefix))
        types = {a.variable: a.type for a in positives(self.query.pattern)}
        decided = [c for c in self.positive if self.decided(c, binding, open_)]
        closed = [
            s
            for s in scopes(self.query.pattern, binding)
            if s.after
            and s.before
            and not s.whole
            and all(
                self.decided(c, binding, open_, {a.variable for a in atoms(s.negation)})
                for c in self.negative
                if variables(c) & {a.variable for a in atoms(s.negation)}
            )
        ]
        return (
            all(e.type == types[v] for v, e in prefix)
            and _arranged(self.query.pattern, binding)
            and self.near(binding)
            and all(holds(c, binding) for c in decided)
            and not any(self.occurs(s, binding) for s in closed)
        )

    def _open(self, taken: tuple[str, ...]) -> set[str]:
        """The variables that may get events; a loop is open until it is left."""
        if taken not in self._waiting:
            rests = readings(uncounted(self.query.pattern), taken)
            self._waiting[taken] = {a.variable for rest in rests for a in positives(rest)}
        return self._waiting[taken]

    def decided(
        self,
        condition: Expr,
        binding: Binding,
        open_: set[str],
        negated: Iterable[str] = (),
    ) -> bool:
        """Whether later events cannot change what a condition says."""
        for ref in references(condition):
            if ref.variable in negated or ref.at in MOVING:
                continue
            first = isinstance(ref, Field) and ref.at is At.NTH and ref.nth == 1
            plain = first or ref.variable not in self.kleenes
            if ref.variable in open_ and not (plain and ref.variable in binding):
                return False
        return True


def _bound(prefix: list[tuple[str, Event]]) -> Binding:
    binding: Binding = {}
    for variable, event in prefix:
        binding[variable] = (*binding.get(variable, ()), event)
    return binding


def rest_of(pattern: Pattern, prefix: list[tuple[str, Event]]) -> Pattern:
    """What may still come after these events."""
    for variable, _ in prefix:
        rest = advance(pattern, variable)
        assert rest is not None
        pattern = rest
    return pattern


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a negation forbids events: after all of `after` and before all of `before`."""

    negation: Not
    after: list[Event]
    before: list[Event]
    whole: bool = False  # an AND: known only when all of it has come


def scopes(pattern: Pattern, binding: Binding) -> Iterator[Scope]:
    """The place of every negation whose SEQ or AND is bound."""

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
            yield Scope(part, bound(inner[:k]), bound(inner[k + 1 :]))
        elif inside:  # it stands in AND: elsewhere it is refused
            yield Scope(part, inside[:1], inside[-1:], whole=True)


def _arranged(pattern: Pattern, binding: Binding) -> bool:
    """Whether the bound events stand in the order the pattern asks for."""
    match pattern:
        case Atom() | Not() | Apply():
            return True
        case Kleene(atom=atom):
            return all(before(a, b) for a, b in pairwise(binding.get(atom.variable, ())))
        case Repeat():  # its parts are sequences: what comes later comes behind all before it
            inside = [e for a in positives(pattern) for e in binding.get(a.variable, ())]
            return all(before(a, b) for a, b in pairwise(sorted(inside, key=lambda e: e.position)))
        case Maybe(part=part) | Then(part=part):
            return _arranged(part, binding)
        case And(parts=parts) | Or(parts=parts):
            return all(_arranged(p, binding) for p in parts)
        case Seq(parts=parts):
            groups = [
                [e for a in positives(p) for e in binding.get(a.variable, ())] for p in parts
            ]
            return all(_arranged(p, binding) for p in parts) and all(
                before(a, b)
                for k, left in enumerate(groups)
                for right in groups[k + 1 :]
                for a in left
                for b in right
            )


# ------------------------------------------------------------------------------ after a match


def _skipping(after: AfterMatch, found: Iterable[Binding]) -> Iterator[Binding]:
    """Keeps a match only if it begins where the matches kept before it allow."""
    earliest = -1
    for binding in found:
        inside = members(binding)
        if inside[0].position < earliest:
            continue
        yield binding
        target = binding.get(after.variable or "", ())
        match after.to:
            case SkipTo.PAST_LAST:
                earliest = inside[-1].position + 1
            case SkipTo.FIRST if target:
                earliest = max(target[0].position, inside[0].position + 1)
            case SkipTo.LAST if target:
                earliest = max(target[-1].position, inside[0].position + 1)
            case _:
                earliest = inside[0].position + 1
