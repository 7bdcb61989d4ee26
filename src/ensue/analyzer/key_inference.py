"""Inference of keys from equalities: of patterns, subscriptions and archive joins."""

from collections.abc import Iterable
from dataclasses import replace

from ensue.ir.expression import Binary, EventPosition, Expr, FieldRef, FunctionCall
from ensue.ir.pattern import Pattern
from ensue.ir.query import Equivalence, Query
from ensue.ir.selection import ByEvents, MatchChoice, Strategy
from ensue.ir.traits import NodeForm, cache_fact, get_form, get_parts, is_operator_call, is_plain, is_sequence
from ensue.ir.traversal import get_first_field, iterate_atoms, iterate_certain_variables, iterate_positive_atoms
from ensue.ir.user_operator import OperatorInputs


def get_equality(condition: Expr) -> tuple[str, str, str] | None:
    """Returns (field, variable, variable) of an equality `x.f = y.f`."""
    match condition:
        case Binary(
            operator="=",
            left=FieldRef(variable=x, name=str(f), at=EventPosition.ONLY),
            right=FieldRef(variable=y, name=g, at=EventPosition.ONLY),
        ) if f == g and x != y:
            return (f, x, y)
        case _:
            return None


def get_equal_fields(query: Query) -> dict[str, list[tuple[str, str]]]:
    """Returns, by field, the pairs of variables that must be equal in it."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    events = {a.variable for a in iterate_atoms(query.pattern)}  # results have no columns
    for condition in query.where:
        match get_equality(condition):
            case (field, x, y) if {x, y} <= events:
                pairs.setdefault(field, []).append((x, y))
            case _:
                pass
    return pairs


def find_connected(start: str, pairs: Iterable[tuple[str, str]]) -> set[str]:
    """Returns the variables that are connected with `start`.

    >>> sorted(find_connected("x", [("x", "y"), ("z", "y"), ("u", "v")]))
    ['x', 'y', 'z']
    """
    reached, pairs = {start}, list(pairs)
    while more := {v for pair in pairs if reached & set(pair) for v in pair} - reached:
        reached |= more
    return reached


def add_equivalence(query: Query, field: str) -> Query:
    """Replaces the equalities on a field by `[field]`."""
    redundant = [(field, x, y) for x, y in get_equal_fields(query).get(field, [])]
    where = tuple(c for c in query.where if get_equality(c) not in redundant)
    if any(e.field_name == field for e in query.equivalence):
        return replace(query, where=where)
    return replace(query, where=where, equivalence=(*query.equivalence, Equivalence(field)))


@cache_fact
def binds_each_once(pattern: Pattern) -> bool:
    """Whether every match, and every match of a negation, binds every variable to one event."""
    if is_operator_call(pattern):
        # the result of a repeat depends on the partition, which must not change
        single = pattern.operator.over is not OperatorInputs.REPEAT
    else:
        several = (NodeForm.LIST, NodeForm.LOOP, NodeForm.OPTION, NodeForm.CHOICE)
        single = is_plain(pattern) and get_form(pattern) not in several
    return single and all(map(binds_each_once, get_parts(pattern)))


def infer_partition_keys(query: Query) -> tuple[str, ...]:
    """Returns the fields whose equalities in WHERE are equivalent to `[field]`.

    They are not if events of a partition are counted, contiguous or consumed: only `[field]`
    defines partitions.
    """
    if isinstance(query.within, ByEvents) or Strategy.PARTITION in query.strategies or query.after is not None:
        return ()
    return find_equality_keys(query)


def find_equality_keys(query: Query) -> tuple[str, ...]:
    """Returns the fields that are equal in all events of a match by a chain of equalities."""
    if not binds_each_once(query.pattern):
        return ()
    return tuple(field for field, pairs in get_equal_fields(query).items() if _connects_all(query, pairs))


def _connects_all(query: Query, pairs: list[tuple[str, str]]) -> bool:
    order = [a.variable for a in iterate_positive_atoms(query.pattern)]
    if len(order) < 2:
        return False  # an equality with a negated event does not exclude NULL
    if Strategy.NEXT in query.strategies:
        among_earlier = all(
            any({variable, other} == set(pair) for other in order[:k] for pair in pairs)
            for k, variable in enumerate(order)
            if k
        )
        if not among_earlier or not is_sequence(query.pattern):
            return False
    positive = find_connected(order[0], [p for p in pairs if set(p) <= set(order)])
    return positive >= set(order) and find_connected(order[0], pairs) >= {
        a.variable for a in iterate_atoms(query.pattern)
    }


def add_inferred_equivalence(query: Query) -> Query:
    """Replaces a chain of equalities over a negated variable by `[field]`.

    In `x.id = y.id AND y.id = z.id` with `y` negated, both conditions alone would only restrict
    `y` and not relate `x` to `z`; a chain over all variables means the equivalence test.
    """
    if not binds_each_once(query.pattern):
        return query
    bound = {a.variable for a in iterate_positive_atoms(query.pattern)}
    everyone = {a.variable for a in iterate_atoms(query.pattern)}
    for field, pairs in get_equal_fields(query).items():
        start = pairs[0][0]
        positive = find_connected(min(bound), [p for p in pairs if set(p) <= bound])
        if find_connected(start, pairs) == everyone and not positive >= bound:
            query = add_equivalence(query, field)
    return query


def define_partitions(query: Query) -> Query:
    """Adds the keys that conditions define to those of `[field]`.

    Equalities over all variables are keys where events of a partition are contiguous or consumed.
    """
    query = add_inferred_equivalence(query)
    fields: tuple[str, ...] = ()
    if query.strategy is Strategy.PARTITION:
        fields = find_equality_keys(query)
    elif query.choose is not None and query.choose.choice is MatchChoice.ONCE:
        fields = infer_partition_keys(query)
    for field in fields:
        query = add_equivalence(query, field)
    return query


def build_key_value(pattern: Pattern, field: str) -> Expr:
    """Builds the value that all events of a match have in a field."""
    certain = next(iterate_certain_variables(pattern), None)
    names = [certain] if certain else [a.variable for a in iterate_positive_atoms(pattern)]
    values = tuple(get_first_field(pattern, name, field) for name in names)
    return values[0] if len(values) == 1 else FunctionCall("coalesce", values)
