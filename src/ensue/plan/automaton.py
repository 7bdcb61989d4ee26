"""The automaton of a pattern: its states are what may still come."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ensue.algebra.pattern import And, Apply, Atom, Kleene, Maybe, Not, Or, Pattern, Seq
from ensue.algebra.predicate import Expr
from ensue.algebra.residual import advance, skippable, uncounted
from ensue.algebra.walk import kleenes, positives, variables
from ensue.plan.physical import Absence, Automaton, Edge, State
from ensue.plan.placement import (
    Moment,
    applies,
    checks_at_the_end,
    checks_late,
    checks_on_the_way,
    ready,
)

LIMIT = 4_096  # states; a pattern beyond it is run by the reference


class TooManyStates(Exception):  # noqa: N818
    """The pattern's automaton would be too large."""


@dataclass(frozen=True, slots=True)
class _Negation:
    """A negated atom with the variables in front of it and behind it in its sequence."""

    variable: str
    front: tuple[str, ...]
    behind: tuple[str, ...]
    conditions: tuple[Expr, ...]


Key = tuple[Pattern, frozenset[str]]


def automaton(
    pattern: Pattern,
    conditions: tuple[Expr, ...],
    negative: tuple[Expr, ...],
    *,
    late: tuple[Expr, ...] = (),
) -> Automaton:
    """Builds the states reachable from the whole pattern.

    `conditions` are the conjuncts on positive variables that no single event decides,
    `negative` those that tie a negated variable to others. Those of `late` wait for the end of
    the match. Numbers of repetitions are left to counters in the runs.
    """
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
    negations = tuple(_negations(pattern, negative))
    states = tuple(
        _state(key, n, conditions, late, negations, kleene) for key, n in numbers.items()
    )
    edges = (
        _edge(source, variable, target, numbers, conditions, negations, counted)
        for source, variable, target in found
    )
    return Automaton(states, tuple(sorted(edges, key=lambda e: (e.source, e.target, e.variable))))


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
    negations: tuple[_Negation, ...],
    counted: dict[str, Kleene],
) -> Edge:
    before, after = _moment(source), _moment(target)
    kleene = frozenset(counted)
    closed = (before.bound & before.waiting & kleene) - after.waiting
    return Edge(
        numbers[source],
        numbers[target],
        variable,
        first=variable not in before.bound,
        checks=checks_on_the_way(conditions, before, after, variable, kleene),
        absences=tuple(
            _absence(n, after)
            for n in negations
            if _between(n, after, kleene) and not _between(n, before, kleene)
        ),
        leaves=tuple(sorted(v for v in closed if counted[v].least > 1)),
    )


def _state(
    key: Key,
    number: int,
    conditions: tuple[Expr, ...],
    late: tuple[Expr, ...],
    negations: tuple[_Negation, ...],
    kleene: frozenset[str],
) -> State:
    rest, bound = key
    moment = _moment(key)
    accepting = skippable(rest) and bool(bound)
    state = State(number, bound, bound & moment.waiting & kleene, accepting)
    if not accepting:
        return state
    ends = [n for n in negations if bound & set(n.front) and not bound & set(n.behind)]
    undecided = [n for n in negations if bound & set(n.behind) and not _between(n, moment, kleene)]
    return replace(
        state,
        checks=(*checks_at_the_end(conditions, moment, kleene), *checks_late(late, moment)),
        absences=tuple(_absence(n, moment) for n in undecided),
        pending=tuple(_absence(n, moment) for n in ends),
    )


def _between(negation: _Negation, moment: Moment, kleene: frozenset[str]) -> bool:
    """Whether a negation stands between bound events and nothing can change its verdict."""
    shown = Moment(moment.bound | {negation.variable}, moment.waiting - {negation.variable})
    return bool(
        moment.bound & set(negation.front)
        and moment.bound & set(negation.behind)
        and all(ready(c, shown, kleene) for c in negation.conditions)
    )


def _absence(negation: _Negation, moment: Moment) -> Absence:
    shown = Moment(moment.bound | {negation.variable}, moment.waiting)
    return Absence(
        negation.variable,
        tuple(v for v in negation.front if v in moment.bound),
        tuple(v for v in negation.behind if v in moment.bound),
        tuple(c for c in negation.conditions if applies(c, shown)),
    )


def _negations(pattern: Pattern, negative: tuple[Expr, ...]) -> Iterator[_Negation]:
    match pattern:
        case Seq(parts=parts):
            for k, part in enumerate(parts):
                if isinstance(part, Not):
                    assert isinstance(part.part, Atom)
                    variable = part.part.variable
                    yield _Negation(
                        variable,
                        tuple(a.variable for p in parts[:k] for a in positives(p)),
                        tuple(a.variable for p in parts[k + 1 :] for a in positives(p)),
                        tuple(c for c in negative if variable in variables(c)),
                    )
                else:
                    yield from _negations(part, negative)
        case Maybe(part=part):
            yield from _negations(part, negative)
        case Or(parts=parts) | And(parts=parts):
            for part in parts:
                yield from _negations(part, negative)
        case Atom() | Kleene() | Not() | Apply():
            return
