"""Absences with an interval of their own: `!C c FROM a.end TO a.end + 5 minutes`."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from ensue.algebra.form import is_absence, is_lapse, parts
from ensue.algebra.pattern import Interval, Not, Pattern
from ensue.algebra.predicate import Expr
from ensue.algebra.walk import positives, rewrite


def lapses(pattern: Pattern) -> Iterator[tuple[Not, Interval]]:
    """All of them, each with its interval, in the order of the text."""
    if is_lapse(pattern):
        assert pattern.interval is not None
        yield pattern, pattern.interval
    elif not is_absence(pattern):
        for part in parts(pattern):
            yield from lapses(part)


def bound_lapses(pattern: Pattern, bound: Collection[str]) -> Iterator[tuple[Not, Interval]]:
    """Those that a match of some variables is judged by: their SEQ or AND is bound.

    >>> from ensue.algebra.pattern import And, Atom, Or
    >>> from ensue.algebra.predicate import Literal
    >>> lapse = Not(Atom("C", "c"), interval=Interval(Literal(1), Literal(2)))
    >>> pattern = Or((And((Atom("A", "a"), lapse)), Atom("B", "b")))
    >>> [len(list(bound_lapses(pattern, {v}))) for v in "ab"]
    [1, 0]
    """
    if is_lapse(pattern):
        assert pattern.interval is not None
        yield pattern, pattern.interval
    elif not is_absence(pattern):
        here = not any(positives(pattern)) or any(a.variable in bound for a in positives(pattern))
        for part in parts(pattern) if here else ():
            yield from bound_lapses(part, bound)


def interval_ends(pattern: Pattern) -> tuple[Expr, ...]:
    """The points in time that intervals name."""
    return tuple(end for _, i in lapses(pattern) for end in (i.after, i.until))


def with_interval_ends(pattern: Pattern, change: Callable[[Expr], Expr]) -> Pattern:
    """The same pattern with other expressions for the ends of intervals."""

    def changed(node: Pattern) -> Pattern:
        if not is_lapse(node):
            return node
        assert node.interval is not None
        ends = change(node.interval.after), change(node.interval.until)
        return replace(node, interval=Interval(*ends, node.interval.span))

    return rewrite(pattern, changed)
