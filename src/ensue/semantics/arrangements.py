"""The ways to bind the variables of a pattern to events, in the order it asks for."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING

from ensue.algebra.form import is_event, is_input, is_sequence
from ensue.algebra.operator import Over
from ensue.algebra.pattern import (
    And,
    Apply,
    Atom,
    Kleene,
    Maybe,
    Not,
    Or,
    Pattern,
    Repeat,
    Seq,
    Then,
)
from ensue.algebra.walk import positives
from ensue.semantics.events import Binding, Event, before, members, seen
from ensue.semantics.results import made_of

if TYPE_CHECKING:
    from ensue.semantics.partition import Partition


def ways(pattern: Pattern, partition: "Partition") -> list[Binding]:
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
            return [{}, *(b for b in ways(part, partition) if b)]
        case Then(part=part):
            return ways(part, partition)
        case Not():
            return [{}]
        case Or(parts=parts):
            found: list[Binding] = []
            for part in parts:
                found += [b for b in ways(part, partition) if b or b not in found]
            return found
        case Seq(parts=parts) | And(parts=parts):
            joined: list[Binding] = [{}]
            in_order = is_sequence(pattern)
            for part in parts:
                before_it = joined
                joined = partition.listed(
                    left | right
                    for right in ways(part, partition)
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
    of_inputs = [ways(part, partition) for part in applied.inputs]
    if applied.operator.over is Over.REPEAT:
        atom = applied.inputs[0]
        assert is_event(atom)
        made = partition.fires(applied, [way[atom.variable][0] for way in of_inputs[0]])
        return [
            way | {applied.variable: (made[way[atom.variable][0].position],)}
            for way in of_inputs[0]
            if way[atom.variable][0].position in made
        ]
    found: list[Binding] = []
    for chosen in product(*of_inputs):
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
    once = ways(loop.part, partition)
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


def arranged(pattern: Pattern, binding: Binding) -> bool:
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
            return arranged(part, binding)
        case And(parts=parts) | Or(parts=parts):
            return all(arranged(p, binding) for p in parts)
        case Seq(parts=parts):
            groups = [
                [e for a in positives(p) for e in binding.get(a.variable, ())] for p in parts
            ]
            return all(arranged(p, binding) for p in parts) and all(
                before(a, b)
                for k, left in enumerate(groups)
                for right in groups[k + 1 :]
                for a in left
                for b in right
            )
