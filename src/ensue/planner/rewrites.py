"""Rewrite rules of a query that preserve its matches, in the order of application."""

from dataclasses import replace

from ensue.analyzer.key_inference import add_equivalence, infer_partition_keys
from ensue.analyzer.time_bounds import compute_window_bound
from ensue.ir.expression import Aggregate, EventPosition, Expr, FieldRef, Literal
from ensue.ir.pattern import Not, Pattern
from ensue.ir.query import Query
from ensue.ir.traits import (
    NodeForm,
    get_form,
    get_parts,
    is_event,
    is_interval_negation,
    is_negation,
    is_optional,
    is_plain,
    is_sequence,
    replace_parts,
)
from ensue.ir.traversal import get_variables, iterate_atoms, rewrite_expr, rewrite_pattern
from ensue.planner.capabilities import find_always_bound
from ensue.schema import Schema


def derive_window(query: Query, schema: Schema) -> Query:
    """`SEQ(A a, B b) WHERE b.ts <= a.ts + 25` needs no more memory than with `WITHIN 25`."""
    if query.within is not None or is_event(query.pattern) or is_interval_negation(query.pattern):
        return query
    return replace(query, within=compute_window_bound(query, schema))


def flatten(query: Query) -> Query:
    """`SEQ(A a, SEQ(B b, C c))` is `SEQ(A a, B b, C c)`.

    A negation keeps its neighbours: `SEQ(A a, SEQ(!B b, C c))` is left unchanged.
    """
    return replace(query, pattern=rewrite_pattern(query.pattern, _splice))


def _splice(pattern: Pattern) -> Pattern:
    if not is_plain(pattern):
        return pattern
    inner = get_parts(pattern)
    match get_form(pattern):
        case NodeForm.OPTION:
            return inner[0] if _is_same_form(pattern, inner[0]) else pattern
        case NodeForm.SEQUENCE | NodeForm.TOGETHER | NodeForm.CHOICE:
            flat: list[Pattern] = []
            for part in inner:
                flat += get_parts(part) if _is_same_form(pattern, part) and _can_splice(part) else (part,)
            return flat[0] if len(flat) == 1 else replace_parts(pattern, tuple(flat))
        case NodeForm.EVENT | NodeForm.LIST | NodeForm.LOOP | NodeForm.RESULT | NodeForm.ABSENCE:
            return pattern


def _is_same_form(pattern: Pattern, part: Pattern) -> bool:
    return get_form(part) is get_form(pattern) and is_plain(part)


def _can_splice(pattern: Pattern) -> bool:
    """Whether its negations mean the same among the parts of its parent."""
    inner = get_parts(pattern)
    negated = [k for k, part in enumerate(inner) if is_negation(part)]
    if not is_sequence(pattern):
        return not negated
    return all(not all(map(is_optional, inner[:k])) and not all(map(is_optional, inner[k:])) for k in negated)


def partition_by_equality(query: Query) -> Query:
    """`WHERE x.id = y.id AND x.id = z.id` over all of x, y, z is `WHERE [id]`.

    The rule does not apply where the partition has a meaning (events counted or adjacent in it,
    AFTER MATCH), or a variable may be unbound; under skip-till-next-match each variable must be
    compared with an earlier one, since a condition sees only the variables bound before.
    """
    for field in infer_partition_keys(query):
        query = add_equivalence(query, field)
    return query


def split_negations(query: Query) -> Query:
    """`SEQ(A a, !OR(B b, C c), D d)` is `SEQ(A a, !B b, !C c, D d)`.

    Conditions that compare `b` with `c` keep the negation as a whole.
    """

    def split(pattern: Pattern) -> Pattern:
        if get_form(pattern) not in (NodeForm.SEQUENCE, NodeForm.TOGETHER) or not is_plain(pattern):
            return pattern
        split_parts: list[Pattern] = []
        for part in get_parts(pattern):
            options = _options(part)
            if options and not _are_tied(query, options):
                split_parts += [Not(option, part.span) for option in options]
            else:
                split_parts.append(part)
        return replace_parts(pattern, tuple(split_parts))

    return replace(query, pattern=rewrite_pattern(query.pattern, split))


def _options(part: Pattern) -> tuple[Pattern, ...]:
    """The alternatives that a negation forbids."""
    forbidden = part.part if is_negation(part) else None
    if forbidden is None or get_form(forbidden) is not NodeForm.CHOICE or not is_plain(forbidden):
        return ()
    return get_parts(forbidden)


def _are_tied(query: Query, options: tuple[Pattern, ...]) -> bool:
    groups = [{a.variable for a in iterate_atoms(option)} for option in options]
    return any(sum(bool(get_variables(condition) & group) for group in groups) > 1 for condition in query.where)


SAME = ("avg", "sum", "min", "max", "first", "last", "percentile")


def unwrap_aggregates(query: Query) -> Query:
    """`avg(b.rate) < 128` of a plain variable `b` is `b.rate < 128`, and `count(b)` is 1."""
    singles = find_always_bound(query.pattern, kleene=False)

    def unwrap(node: Expr) -> Expr:
        if not isinstance(node, Aggregate) or node.variable not in singles:
            return node
        if node.argument is not None and node.function in SAME:
            return rewrite_expr(node.argument, _simplify_single)
        if node.argument is None and node.function == "count":
            return Literal(1, node.span)
        return node

    return replace(query, where=tuple(rewrite_expr(c, unwrap) for c in query.where))


def _simplify_single(node: Expr) -> Expr:
    return replace(node, at=EventPosition.ONLY) if isinstance(node, FieldRef) else node


RULES = (flatten, split_negations, unwrap_aggregates, partition_by_equality)
BY_SCHEMA = (derive_window,)  # these read the time columns of the schema; they run last
