"""Lists the bindings of a pattern's variables to events in the required order."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING

from ensue.ir.pattern import And, Atom, Kleene, Maybe, Not, OperatorCall, Or, Pattern, Repeat, Seq, Then
from ensue.ir.traits import is_event, is_input, is_sequence
from ensue.ir.traversal import iterate_positive_atoms
from ensue.ir.user_operator import OperatorInputs
from ensue.reference.conditions import Binding, Event, is_before, members, select_outer_events
from ensue.reference.user_operators import apply_operator

if TYPE_CHECKING:
    from ensue.reference.partition import Partition


def list_bindings(pattern: Pattern, partition: "Partition") -> list[Binding]:
    """Lists every binding of the positive variables of a pattern, in the required order."""
    match pattern:
        case Atom():
            return [{pattern.variable: (e,)} for e in partition.candidates(pattern)]
        case Kleene(atom=atom):
            chains = _chains(partition.candidates(atom), pattern, partition)
            return partition.list_bindings({atom.variable: c} if c else {} for c in chains)
        case Repeat():
            return _rounds(pattern, partition)
        case Maybe(part=part):
            return [{}, *(b for b in list_bindings(part, partition) if b)]
        case Then(part=part):
            return list_bindings(part, partition)
        case Not():
            return [{}]
        case Or(parts=parts):
            bindings: list[Binding] = []
            for part in parts:
                bindings += [b for b in list_bindings(part, partition) if b or b not in bindings]
            return bindings
        case Seq(parts=parts) | And(parts=parts):
            joined: list[Binding] = [{}]
            in_order = is_sequence(pattern)
            for part in parts:
                left_bindings = joined
                joined = partition.list_bindings(
                    left | right
                    for right in list_bindings(part, partition)
                    for left in left_bindings
                    if (not in_order or _in_order(left, right))
                    and _disjoint(left, right)
                    and partition.near(left | right)
                )
            return joined
        case OperatorCall():
            return _apply(pattern, partition)


def _apply(applied: OperatorCall, partition: "Partition") -> list[Binding]:
    """Lists the results of an operator, each with its input events."""
    input_bindings = [list_bindings(part, partition) for part in applied.inputs]
    if applied.operator.over is OperatorInputs.REPEAT:
        atom = applied.inputs[0]
        assert is_event(atom)
        events = [binding[atom.variable][0] for binding in input_bindings[0]]
        results = partition.fires(applied, events)
        return [
            binding | {applied.variable: (results[event.position],)}
            for binding, event in zip(input_bindings[0], events, strict=True)
            if event.position in results
        ]
    bindings: list[Binding] = []
    for combination in product(*input_bindings):
        inputs_bound = {v: es for binding in combination for v, es in binding.items()}
        if len(combination) > 1 and not _disjoint(*combination):
            continue
        inputs = [inputs_bound[p.variable][0] for p in applied.inputs if is_input(p)]
        ordered = len(inputs) < 2 or not applied.operator.in_order or is_before(*inputs)
        if ordered and partition.near(inputs_bound):
            all_events = tuple(e for es in inputs_bound.values() for e in es)
            result = apply_operator(applied, inputs, all_events)
            if result is not None:
                bindings.append(inputs_bound | {applied.variable: (result,)})
    return bindings


def _in_order(left: Binding, right: Binding) -> bool:
    pairs = product(select_outer_events(left), select_outer_events(right))
    return all(is_before(a, b) for a, b in pairs)


def _disjoint(left: Binding, right: Binding) -> bool:
    return not {e.position for e in members(left)} & {e.position for e in members(right)}


def _chains(events: Sequence[Event], kleene: Kleene, partition: "Partition") -> Iterator[tuple[Event, ...]]:
    def grow(chain: tuple[Event, ...]) -> Iterator[tuple[Event, ...]]:
        if len(chain) >= kleene.least:
            yield chain
        if kleene.most is None or len(chain) < kleene.most:
            for event in events:
                longer = (*chain, event)
                if not chain or (is_before(chain[-1], event) and partition.near({"": longer})):
                    yield from grow(longer)

    return grow(())


def _rounds(loop: Repeat, partition: "Partition") -> list[Binding]:
    """Lists the repetitions of a group, with the events of each variable in one list.

    Bindings that differ only in their division into rounds are one binding. A round that binds
    nothing counts, but adds nothing.
    """
    rounds = list_bindings(loop.part, partition)
    nonempty = [round_ for round_ in rounds if round_]
    least = loop.least if len(nonempty) == len(rounds) else 0
    longest: list[Binding] = [{}]
    bindings = [] if least else longest
    count = 0
    while longest and (loop.most is None or count < loop.most):
        count += 1
        longer = (
            joined
            for left in longest
            for right in nonempty
            if _in_order(left, right) and partition.near(joined := _append(left, right))
        )
        longest = partition.list_bindings(_distinct(longer))
        if count >= least:
            bindings = partition.list_bindings(_distinct([*bindings, *longest]))
    return bindings


def _append(left: Binding, right: Binding) -> Binding:
    return left | {v: (*left.get(v, ()), *events) for v, events in right.items()}


def _distinct(bindings: Iterable[Binding]) -> Iterator[Binding]:
    seen_rows = set()
    for binding in bindings:
        rows = frozenset((v, tuple(e.position for e in es)) for v, es in binding.items())
        if rows not in seen_rows:
            seen_rows.add(rows)
            yield binding


def is_arranged(pattern: Pattern, binding: Binding) -> bool:
    """Whether the bound events are in the order that the pattern requires."""
    match pattern:
        case Atom() | Not() | OperatorCall():
            return True
        case Kleene(atom=atom):
            return all(is_before(a, b) for a, b in pairwise(binding.get(atom.variable, ())))
        case Repeat():  # its parts are sequences: a later event follows all earlier ones
            inside = sorted(_bound_events(pattern, binding), key=lambda e: e.position)
            return all(is_before(a, b) for a, b in pairwise(inside))
        case Maybe(part=part) | Then(part=part):
            return is_arranged(part, binding)
        case And(parts=parts) | Or(parts=parts):
            return all(is_arranged(p, binding) for p in parts)
        case Seq(parts=parts):
            groups = [_bound_events(p, binding) for p in parts]
            return all(is_arranged(p, binding) for p in parts) and all(
                is_before(a, b) for left, right in combinations(groups, 2) for a, b in product(left, right)
            )


def _bound_events(pattern: Pattern, binding: Binding) -> list[Event]:
    return [e for a in iterate_positive_atoms(pattern) for e in binding.get(a.variable, ())]
