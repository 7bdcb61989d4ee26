"""Complex events in a sequence: what comes before one comes before the first of its members.

A stream of complex events is in the order of their last members. Where one event ends at the very
time at which a complex event starts, only the places of its members tell what comes first.
"""

from collections.abc import Collection, Iterator
from itertools import product

from ensue.algebra.form import is_event, is_list, is_loop, is_result, is_sequence, parts
from ensue.algebra.lapses import lapses
from ensue.algebra.pattern import Apply, Atom, Pattern, Repeat
from ensue.algebra.predicate import At, Binary, Expr, Field
from ensue.algebra.walk import atoms, kleenes, loops, negations
from ensue.errors import QueryError

AT = "__at"  # the place of an event's last member among the events that came in
FROM = "__from"  # that of its first member
START, END = "__start", "__end"  # when an event starts and ends

Standing = Atom | Apply


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
    if not complex_:
        return ()
    absent = {a.variable: n for n, gone in enumerate(negations(pattern)) for a in atoms(gone)}
    anywhere = {a.variable for negation, _ in lapses(pattern) for a in atoms(negation)}
    outside = dict.fromkeys(
        _unless_apart(x, y, _before(a, b, lists))
        for x, y in _pairs(pattern)
        for a, b in product(_variables(x), _variables(y))
        if b in complex_
        and absent.get(a, absent.get(b)) == absent.get(b, absent.get(a))
        and anywhere.isdisjoint((a, b))
    )
    return (*outside, *(c for loop in loops(pattern) for c in _inside(loop, complex_)))


def _variables(part: Standing) -> list[str]:
    return [atom.variable for atom in atoms(part)]


def _unless_apart(x: Standing, y: Standing, in_order: Expr) -> Expr:
    """The order of members, which decides only where a result ends as the other part starts.

    A result of a user's operator stands where its F says, wherever its events are.
    """
    if is_event(x) and is_event(y):
        return in_order
    end = Field(x.variable, END if is_event(x) else "end")
    start = Field(y.variable, START if is_event(y) else "start")
    return Binary("or", Binary("<", end, start), in_order)


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


def _pairs(pattern: Pattern) -> Iterator[tuple[Standing, Standing]]:
    """Events and results of which the first comes before the other, those of loops apart."""
    if is_loop(pattern):
        return
    if is_list(pattern):
        yield pattern.atom, pattern.atom
    if is_sequence(pattern) or (is_result(pattern) and pattern.operator.in_order):
        front: list[Standing] = []
        for part in parts(pattern):
            inside = list(_standing(part))
            yield from product(front, inside)
            front += inside
    for part in parts(pattern):
        yield from _pairs(part)


def _standing(pattern: Pattern) -> Iterator[Standing]:
    """What has a place of its own in a sequence: events, and results instead of their events."""
    if is_event(pattern) or is_result(pattern):
        yield pattern
    else:
        for part in parts(pattern):
            yield from _standing(part)


def _before(one: str, other: str, lists: frozenset[str]) -> Expr:
    if one == other:
        left, right = Field(one, AT, At.PREVIOUS), Field(other, FROM, At.CURRENT)
    else:
        left = Field(one, AT, At.LAST if one in lists else At.ONLY)
        right = Field(other, FROM, At.NTH if other in lists else At.ONLY)
    return Binary("<", left, right)
