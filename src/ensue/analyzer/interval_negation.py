"""Negations with an explicit interval: `!C c FROM a.end TO a.end + 5 minutes`."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from ensue.ir.expression import Expr
from ensue.ir.pattern import Interval, Not, Pattern
from ensue.ir.traits import get_parts, is_interval_negation, is_negation
from ensue.ir.traversal import cache_on_node, iterate_positive_atoms, rewrite_pattern


@cache_on_node
def iterate_interval_negations(pattern: Pattern) -> Iterator[tuple[Not, Interval]]:
    """Yields the interval negations of a pattern, in the order of the text."""
    if is_interval_negation(pattern):
        assert pattern.interval is not None
        yield pattern, pattern.interval
    elif not is_negation(pattern):
        for part in get_parts(pattern):
            yield from iterate_interval_negations(part)


def iterate_bound_interval_negations(pattern: Pattern, bound: Collection[str]) -> Iterator[tuple[Not, Interval]]:
    """Yields the interval negations that apply to a match: those whose SEQ or AND is bound.

    >>> from ensue.ir.pattern import And, Atom, Or
    >>> from ensue.ir.expression import Literal
    >>> lapse = Not(Atom("C", "c"), interval=Interval(Literal(1), Literal(2)))
    >>> pattern = Or((And((Atom("A", "a"), lapse)), Atom("B", "b")))
    >>> [len(list(iterate_bound_interval_negations(pattern, {v}))) for v in "ab"]
    [1, 0]
    """
    if is_interval_negation(pattern):
        assert pattern.interval is not None
        yield pattern, pattern.interval
    elif not is_negation(pattern):
        here = not any(iterate_positive_atoms(pattern)) or any(
            a.variable in bound for a in iterate_positive_atoms(pattern)
        )
        for part in get_parts(pattern) if here else ():
            yield from iterate_bound_interval_negations(part, bound)


def get_interval_ends(pattern: Pattern) -> tuple[Expr, ...]:
    """Returns the ends of all intervals."""
    return tuple(end for _, i in iterate_interval_negations(pattern) for end in (i.after, i.until))


def rewrite_interval_ends(pattern: Pattern, change: Callable[[Expr], Expr]) -> Pattern:
    """Applies `change` to the ends of all intervals."""
    if not any(iterate_interval_negations(pattern)):
        return pattern

    def change_node(node: Pattern) -> Pattern:
        if not is_interval_negation(node):
            return node
        assert node.interval is not None
        ends = change(node.interval.after), change(node.interval.until)
        return replace(node, interval=Interval(*ends, node.interval.span))

    return rewrite_pattern(pattern, change_node)
