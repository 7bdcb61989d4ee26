"""The automaton of a pattern: its states are what may still come."""

from dataclasses import replace

from ensue.algebra.form import is_event, optional
from ensue.algebra.pattern import Kleene, Not, Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Aggregate, Expr, Field
from ensue.algebra.residual import Guard, Where, advance, uncounted
from ensue.algebra.text import show_condition
from ensue.algebra.walk import kleenes, positives, references, variables
from ensue.plan.physical import Automaton, Edge, State, Stop
from ensue.plan.physical_rules.looping import (
    NoLoops,
    Place,
    Way,
    barred_at_the_end,
    checks_in_step,
    ends_by_itself,
    has_loops,
    lasting,
    leading_negations,
    looped_negations,
    runs_in_step,
    start_of,
    ways,
    without_guards,
)
from ensue.plan.physical_rules.negations import Negation, negations_of
from ensue.plan.physical_rules.placement import (
    MOVING,
    Moment,
    checks_at_the_end,
    checks_late,
    checks_on_the_way,
)

LIMIT = 4_096  # states; a pattern beyond it is run by the reference


class TooManyStates(Exception):  # noqa: N818
    """The pattern's automaton would be too large."""


Key = tuple[Pattern, frozenset[str]]


def automaton(
    pattern: Pattern,
    conditions: tuple[Expr, ...],
    negative: tuple[Expr, ...] = (),
    *,
    late: tuple[Expr, ...] = (),
    early: bool = True,
    strategy: Strategy = Strategy.ANY,
) -> Automaton:
    """Builds the states reachable from the whole pattern.

    `conditions` are the conjuncts on positive variables that no single event decides,
    `negative` those that tie a negated variable to others. Those of `late` wait for the end of
    the match. Numbers of repetitions are left to counters in the runs. `early`: a negation in
    AND may end a run before its match is whole. Raises TooManyStates, and NoLoops where the
    repeated groups of a pattern ask for more than runs know.
    """
    if has_loops(pattern):
        return _looping(pattern, conditions, negative, late, early, strategy)
    counted = kleenes(pattern)
    kleene = frozenset(counted)
    start: Key = (uncounted(pattern), frozenset())
    depth = {start: 0}
    found: list[tuple[Key, str, Key]] = []
    todo = [start]
    while todo:
        key = todo.pop()
        rest, bound = key
        for atom in positives(rest):
            remaining = advance(rest, atom.variable)
            if remaining is None:
                continue
            target = (remaining, bound | {atom.variable})
            found.append((key, atom.variable, target))
            if target not in depth:
                if len(depth) >= LIMIT:
                    raise TooManyStates
                depth[target] = 0
                todo.append(target)
    _deepen(depth, found)
    numbers = {key: n for n, key in enumerate(sorted(depth, key=lambda k: _order(k, depth)))}
    negations = negations_of(pattern, negative)
    states = tuple(
        _state(key, n, conditions, late, negations, kleene, early) for key, n in numbers.items()
    )
    edges = (
        _edge(source, variable, target, numbers, conditions, negations, counted, early)
        for source, variable, target in found
    )
    return Automaton(states, tuple(sorted(edges, key=lambda e: (e.source, e.target, e.variable))))


def _looping(
    pattern: Pattern,
    conditions: tuple[Expr, ...],
    negative: tuple[Expr, ...],
    late: tuple[Expr, ...],
    early: bool,
    strategy: Strategy,
) -> Automaton:
    """The automaton of a pattern with repeated groups: its edges may lead backwards."""
    start = start_of(pattern, strategy)
    found = ways(start, strategy)
    places = list(dict.fromkeys([start, *(way.target for way in found)]))
    numbers = {place: n for n, place in enumerate(places)}
    counted = kleenes(pattern)
    kleene = frozenset(counted)
    stepping = tuple(c for c in conditions if runs_in_step(c))
    others = tuple(c for c in conditions if not runs_in_step(c))
    looped = looped_negations(pattern)
    negations = (
        *negations_of(without_guards(pattern), negative),
        *(_leading(*one, negative) for one in leading_negations(found, looped)),
    )

    def state(place: Place) -> State:
        moment = Moment(place.bound, place.waiting)
        built = State(numbers[place], place.bound, place.bound & place.waiting & kleene)
        if place.accepting:
            built = _ending(built, moment, others, late, negations, kleene, early)
        if built.checks and ends_by_itself(place):
            raise NoLoops("a reluctant loop at the end with a condition on all of its events")
        if barred_at_the_end(place, looped):
            raise NoLoops("THEN or a repeated group with a negation at the end")
        last = lasting(place)
        if last and negations:
            raise NoLoops("a greedy loop at the end next to negations")
        return replace(built, lasting=last)

    def edge(way: Way) -> Edge:
        before, after = (Moment(p.bound, p.waiting) for p in (way.source, way.target))
        ends = numbers[way.source], numbers[way.target]
        plain = _between(ends, way.variable, before, after, others, negations, counted, early)
        in_step = checks_in_step(stepping, pattern, way.variable, before.bound)
        step, follows = way.step, bool(way.source.bound)
        return replace(
            plain,
            checks=(*plain.checks, *in_step),
            how=step.how or strategy if follows else None,
            own=follows and step.how is Strategy.NEXT,
            demanded=way.demanded,
            demanded_late=way.demanded_late,
            closes=way.closes,
            longer=way.longer,
            sooner=way.sooner,
            pause=step.pause if follows else None,
            stops=tuple(
                _stop(g, negative, before, after) for g in step.guards if _stops(g, follows)
            ),
        )

    edges = sorted(map(edge, found), key=lambda e: (e.source, e.target, e.variable))
    first = [e for e in edges if e.source == 0]
    if any(e.longer or e.sooner for e in first) and any(e.checks for e in first):
        raise NoLoops("an optional loop at the start, with conditions on it")
    return Automaton(tuple(map(state, places)), tuple(edges), loops=True)


def _leading(
    negation: Not, before: frozenset[str], behind: frozenset[str], negative: tuple[Expr, ...]
) -> Negation:
    """A negation that begins a group, before the first event of a match.

    There no event is bound that a condition could compare it with.
    """
    atom = negation.part
    if not is_event(atom):
        raise NoLoops("a negation of several events inside a group")
    tied = [r for c in negative if atom.variable in variables(c) for r in references(c)]
    if any(before or isinstance(r, Aggregate) for r in tied if r.variable != atom.variable):
        raise NoLoops("conditions on a negation that begins a group")
    return Negation(atom, tuple(sorted(before)), tuple(sorted(behind)), (), (), open=True)


def _stops(guard: Guard, follows: bool) -> bool:
    """Whether a guard has something to say; before the first event of a match nothing lies."""
    return follows or guard.where in (Where.TAKEN, Where.UP_TO)


def _stop(guard: Guard, negative: tuple[Expr, ...], before: Moment, after: Moment) -> Stop:
    atom = guard.negation.part
    if not is_event(atom):
        raise NoLoops("a negation of several events inside a group")
    tied = tuple(c for c in negative if atom.variable in variables(c))
    for condition in tied:
        others = [r for r in references(condition) if r.variable != atom.variable]
        if any(r.at in MOVING or not _known(r, before, after) for r in others):
            raise NoLoops(f"{show_condition(condition)}, which is known only later")
    return Stop(atom.variable, tied, guard.where)


def _known(ref: Field | Aggregate, before: Moment, after: Moment) -> bool:
    """Whether a run knows what a guard asks for when it has yet to take the step."""
    if ref.variable in before.bound:
        return True
    never = ref.variable not in before.waiting and ref.variable not in after.bound
    return never and isinstance(ref, Aggregate)


def _deepen(depth: dict[Key, int], edges: list[tuple[Key, str, Key]]) -> None:
    """The longest way to each state, loops apart."""
    changed = True
    while changed:
        changed = False
        for source, _, target in edges:
            if source != target and depth[target] <= depth[source]:
                depth[target] = depth[source] + 1
                changed = True


def _order(key: Key, depth: dict[Key, int]) -> tuple[object, ...]:
    rest, bound = key
    return (depth[key], sorted(bound), [a.variable for a in positives(rest)])


def _moment(key: Key) -> Moment:
    rest, bound = key
    return Moment(bound, frozenset(a.variable for a in positives(rest)))


def _edge(
    source: Key,
    variable: str,
    target: Key,
    numbers: dict[Key, int],
    conditions: tuple[Expr, ...],
    negations: tuple[Negation, ...],
    counted: dict[str, Kleene],
    early: bool,
) -> Edge:
    before, after = _moment(source), _moment(target)
    ends = numbers[source], numbers[target]
    return _between(ends, variable, before, after, conditions, negations, counted, early)


def _between(
    ends: tuple[int, int],
    variable: str,
    before: Moment,
    after: Moment,
    conditions: tuple[Expr, ...],
    negations: tuple[Negation, ...],
    counted: dict[str, Kleene],
    early: bool,
) -> Edge:
    kleene = frozenset(counted)
    closed = (before.bound & before.waiting & kleene) - after.waiting
    return Edge(
        *ends,
        variable,
        first=variable not in before.bound,
        checks=checks_on_the_way(conditions, before, after, variable, kleene),
        absences=tuple(
            n.absence(after)
            for n in negations
            if n.decided(after, kleene, early=early) and not n.decided(before, kleene, early=early)
        ),
        leaves=tuple(sorted(v for v in closed if counted[v].least > 1)),
    )


def _state(
    key: Key,
    number: int,
    conditions: tuple[Expr, ...],
    late: tuple[Expr, ...],
    negations: tuple[Negation, ...],
    kleene: frozenset[str],
    early: bool,
) -> State:
    rest, bound = key
    moment = _moment(key)
    accepting = optional(rest) and bool(bound)
    state = State(number, bound, bound & moment.waiting & kleene)
    if not accepting:
        return state
    return _ending(state, moment, conditions, late, negations, kleene, early)


def _ending(
    state: State,
    moment: Moment,
    conditions: tuple[Expr, ...],
    late: tuple[Expr, ...],
    negations: tuple[Negation, ...],
    kleene: frozenset[str],
    early: bool,
) -> State:
    """A state in which a match may end, with all that its end decides."""
    undecided = [
        n for n in negations if n.concerns(moment) and not n.decided(moment, kleene, early=early)
    ]
    return replace(
        state,
        accepting=True,
        checks=(*checks_at_the_end(conditions, moment, kleene), *checks_late(late, moment)),
        absences=tuple(n.absence(moment) for n in undecided),
        pending=tuple(n.absence(moment) for n in negations if n.waits(moment)),
    )
