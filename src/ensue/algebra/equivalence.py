"""Equalities between all variables of a pattern, and the equivalence test they amount to."""

from collections.abc import Iterable
from dataclasses import replace

from ensue.algebra.form import Form, form, is_result, is_sequence, parts, plain
from ensue.algebra.operator import Over
from ensue.algebra.pattern import Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import At, Binary, Expr, Field
from ensue.algebra.query import Equivalence, Query
from ensue.algebra.walk import atoms, positives
from ensue.algebra.window import ByEvents


def tie(condition: Expr) -> tuple[str, str, str] | None:
    """(field, variable, variable) of an equality `x.f = y.f`."""
    match condition:
        case Binary(
            operator="=",
            left=Field(variable=x, name=str(f), at=At.ONLY),
            right=Field(variable=y, name=g, at=At.ONLY),
        ) if f == g and x != y:
            return (f, x, y)
        case _:
            return None


def tied_fields(query: Query) -> dict[str, list[tuple[str, str]]]:
    """By field, the pairs of variables that must agree in it."""
    found: dict[str, list[tuple[str, str]]] = {}
    events = {a.variable for a in atoms(query.pattern)}  # not results: they have no columns
    for condition in query.where:
        match tie(condition):
            case (field, x, y) if {x, y} <= events:
                found.setdefault(field, []).append((x, y))
            case _:
                pass
    return found


def connected(start: str, pairs: Iterable[tuple[str, str]]) -> set[str]:
    """The variables that agree with `start`.

    >>> sorted(connected("x", [("x", "y"), ("z", "y"), ("u", "v")]))
    ['x', 'y', 'z']
    """
    reached, pairs = {start}, list(pairs)
    while more := {v for pair in pairs if reached & set(pair) for v in pair} - reached:
        reached |= more
    return reached


def with_equivalence(query: Query, field: str) -> Query:
    """The query with the equalities on a field replaced by `[field]`."""
    tied = tied_fields(query).get(field, [])
    gone = [(field, x, y) for x, y in tied]
    kept = tuple(c for c in query.where if tie(c) not in gone)
    if any(e.field_name == field for e in query.equivalence):
        return replace(query, where=kept)
    return replace(query, where=kept, equivalence=(*query.equivalence, Equivalence(field)))


def mandatory(pattern: Pattern) -> bool:
    """Whether every match binds every variable to one event, and so does what it must not have."""
    inner = parts(pattern)
    if is_result(pattern):
        # what a repeat absorbs depends on its partition, so that this must not change
        return pattern.operator.over is not Over.REPEAT and all(map(mandatory, inner))
    if not plain(pattern):
        return False  # neither may it for what this asks of its parts
    match form(pattern):
        case Form.EVENT | Form.RESULT | Form.SEQUENCE | Form.TOGETHER | Form.ABSENCE:
            return all(map(mandatory, inner))
        case Form.LIST | Form.LOOP | Form.OPTION | Form.CHOICE:
            return False


def partitioning(query: Query) -> tuple[str, ...]:
    """The fields whose equalities in WHERE amount to `[field]`.

    WHERE only says which events fit together: where events are counted, next to each other or used
    up, they are those of the partitions that `[field]` names.
    """
    if (
        isinstance(query.within, ByEvents)
        or Strategy.PARTITION in query.strategies
        or query.after is not None
    ):
        return ()
    return keys_by_equality(query)


def keys_by_equality(query: Query) -> tuple[str, ...]:
    """The fields that a chain of equalities makes equal in all events of a match."""
    if not mandatory(query.pattern):
        return ()
    return tuple(field for field, pairs in tied_fields(query).items() if _tie_all(query, pairs))


def _tie_all(query: Query, pairs: list[tuple[str, str]]) -> bool:
    order = [a.variable for a in positives(query.pattern)]
    if len(order) < 2:
        return False  # an equality with a negated event alone lets the field be NULL
    if Strategy.NEXT in query.strategies:
        among_earlier = all(
            any({variable, other} == set(pair) for other in order[:k] for pair in pairs)
            for k, variable in enumerate(order)
            if k
        )
        if not among_earlier or not is_sequence(query.pattern):
            return False
    positive = connected(order[0], [p for p in pairs if set(p) <= set(order)])
    return positive >= set(order) and connected(order[0], pairs) >= {
        a.variable for a in atoms(query.pattern)
    }


def equal_through_negation(query: Query) -> Query:
    """`x.id = y.id AND y.id = z.id` with `y` negated means `[id]`.

    Read alone, both conditions would only say which `y` count, and tie `x` to no `z`; who writes
    a chain of equalities over all variables means the equivalence test.
    """
    if not mandatory(query.pattern):
        return query
    bound = {a.variable for a in positives(query.pattern)}
    everyone = {a.variable for a in atoms(query.pattern)}
    for field, pairs in tied_fields(query).items():
        start = pairs[0][0]
        alone = connected(min(bound), [p for p in pairs if set(p) <= bound])
        if connected(start, pairs) == everyone and not alone >= bound:
            query = with_equivalence(query, field)
    return query
