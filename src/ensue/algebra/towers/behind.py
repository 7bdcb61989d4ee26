"""Complex events in a sequence: what comes before one comes before the first of its members.

A stream of complex events is in the order of their last members. Where one event ends at the very
time at which a complex event starts, only the places of its members tell what comes first.
"""

from collections.abc import Collection, Iterator

from ensue.algebra.form import is_event, is_list, is_loop, is_sequence, parts
from ensue.algebra.lapses import lapses
from ensue.algebra.pattern import Pattern, Repeat
from ensue.algebra.predicate import At, Binary, Expr, Field
from ensue.algebra.walk import atoms, kleenes, loops, negations
from ensue.errors import QueryError

AT = "__at"  # the place of an event's last member among the events that came in
FROM = "__from"  # that of its first member


def members_in_order(pattern: Pattern, complex_types: Collection[str]) -> tuple[Expr, ...]:
    """The conditions that say so, for the variables whose types are complex events.

    >>> from ensue.algebra.pattern import Atom, Seq
    >>> from ensue.algebra.text import show_expr
    >>> both = Seq((Atom("Reading", "a"), Atom("Incident", "x")))
    >>> [show_expr(c) for c in members_in_order(both, {"Incident"})]
    ['a.__at < x.__from']
    """
    lists = frozenset(kleenes(pattern))
    complex_ = {a.variable for a in atoms(pattern) if a.type in complex_types}
    absent = {a.variable: n for n, gone in enumerate(negations(pattern)) for a in atoms(gone)}
    anywhere = {a.variable for negation, _ in lapses(pattern) for a in atoms(negation)}
    pairs = [pair for pair in dict.fromkeys(_pairs(pattern)) if anywhere.isdisjoint(pair)]
    outside = tuple(
        _before(a, b, lists)
        for a, b in pairs
        if b in complex_ and absent.get(a, absent.get(b)) == absent.get(b, absent.get(a))
    )
    return (*outside, *(c for loop in loops(pattern) for c in _inside(loop, complex_)))


def _inside(loop: Repeat, complex_: Collection[str]) -> Iterator[Expr]:
    """The same for the times of a repeated group: each complex event behind the one before it."""
    events = parts(loop.part) if is_sequence(loop.part) else (loop.part,)
    order = [event.variable for event in events if is_event(event)]
    for place, variable in enumerate(order):
        if variable in complex_ and len(order) == len(events):
            # the last of a group comes before the first of its next time
            left = Field(order[place - 1], AT, At.CURRENT if place else At.PREVIOUS)
            yield Binary("<", left, Field(variable, FROM, At.CURRENT))
    if len(order) < len(events) and {a.variable for a in atoms(loop.part)} & {*complex_}:
        raise QueryError(
            "events made of events can only be repeated in groups of single events",
            hint="leave out optional and repeated parts inside: (A a, B b)+",
            span=loop.span,
        )


def _pairs(pattern: Pattern) -> Iterator[tuple[str, str]]:
    """Variables of which the first one's events come before the other's, those of loops apart."""
    if is_loop(pattern):
        return
    if is_list(pattern):
        yield pattern.atom.variable, pattern.atom.variable
    if is_sequence(pattern):
        front: list[str] = []
        for part in parts(pattern):
            inside = [a.variable for a in atoms(part)]
            yield from ((other, variable) for other in front for variable in inside)
            front += inside
    for part in parts(pattern):
        yield from _pairs(part)


def _before(one: str, other: str, lists: frozenset[str]) -> Expr:
    if one == other:
        left, right = Field(one, AT, At.PREVIOUS), Field(other, FROM, At.CURRENT)
    else:
        left = Field(one, AT, At.LAST if one in lists else At.ONLY)
        right = Field(other, FROM, At.NTH if other in lists else At.ONLY)
    return Binary("<", left, right)
