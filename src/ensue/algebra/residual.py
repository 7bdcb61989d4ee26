"""What remains of a pattern once some of its events have come."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from ensue.algebra.form import is_absence, is_list, is_loop, optional, parts
from ensue.algebra.pattern import (
    And,
    Apply,
    Atom,
    Kleene,
    Leave,
    Maybe,
    Not,
    Or,
    Pattern,
    Repeat,
    Seq,
    Then,
)
from ensue.algebra.policy import Strategy
from ensue.algebra.walk import rewrite

DONE = Seq(())
Counted = TypeVar("Counted", Kleene, Repeat)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that has begun and may take more, by its place in what remains of a pattern."""

    place: tuple[int, ...]
    leave: Leave


@dataclass(frozen=True, slots=True)
class Step:
    """One event more: its variable, and what remains then."""

    variable: str
    rest: Pattern
    inside: tuple[Loop, ...] = ()  # the loops that go on with it, the outermost first
    again: tuple[Loop, ...] = ()  # those of them that begin another time with it
    left: tuple[Loop, ...] = ()  # the loops that end with it
    how: Strategy | None = None  # what may lie before it; None: as the query says


def steps(pattern: Pattern, place: tuple[int, ...] = ()) -> Iterator[Step]:
    """The events that may come next. Those of a repeated group may come in several ways.

    >>> a, b = Atom("A", "a"), Atom("B", "b")
    >>> [step.variable for step in steps(Seq((Maybe(a), b)))]
    ['a', 'b']
    """
    match pattern:
        case Atom():
            yield Step(pattern.variable, DONE)
        case Kleene(atom=atom):
            more = DONE if pattern.most == 1 else replace(_once_less(pattern), begun=True)
            inside = (Loop(place, pattern.leave),) if pattern.begun else ()
            how = pattern.inner if pattern.begun else None
            yield Step(atom.variable, more, inside, inside, how=how)
        case Repeat():
            yield from _rounds(pattern, place)
        case Maybe(part=part):
            yield from steps(part, (*place, 0))
        case Then(part=part, how=how):
            for step in steps(part, (*place, 0)):
                yield replace(step, how=step.how or how)
        case Not():
            return
        case Seq(parts=inner):
            left: tuple[Loop, ...] = ()
            for k, part in enumerate(inner):
                for step in steps(part, (*place, k)):
                    rest = _seq((step.rest, *inner[k + 1 :]))
                    yield replace(step, rest=rest, left=(*left, *step.left))
                if not optional(part):
                    return
                left += tuple(open_loops(part, (*place, k)))
        case And(parts=inner):
            for k, part in enumerate(inner):
                for step in steps(part, (*place, k)):
                    after = (*inner[:k], step.rest, *inner[k + 1 :])
                    undone = tuple(p for p in after if p != DONE)
                    yield replace(step, rest=And(undone) if undone else DONE)
        case Or(parts=inner):
            for k, part in enumerate(inner):
                yield from steps(part, (*place, k))
        case Apply(inputs=inputs):  # its inputs may come in any order
            yield from steps(And(inputs), place)


def _rounds(loop: Repeat, place: tuple[int, ...]) -> Iterator[Step]:
    """The events that go on with the present time of a group, or begin the next one."""
    mine: tuple[Loop, ...] = ()
    left: tuple[Loop, ...] = ()
    if loop.begun is not None:
        mine, here = (Loop(place, loop.leave),), (*place, 0)
        for step in steps(loop.begun, here):
            more = replace(loop, begun=step.rest)
            yield replace(step, rest=more, inside=(*mine, *step.inside))
        if not optional(loop.begun):
            return
        left = tuple(open_loops(loop.begun, here))
    for step in steps(loop.part, (*place, 1)):
        # the last time is no longer a loop
        rest = step.rest if loop.most == 1 else replace(_once_less(loop), begun=step.rest)
        how = step.how or (loop.inner if mine else None)
        yield replace(step, rest=rest, inside=mine, again=mine, left=left, how=how)


def _once_less(loop: Counted) -> Counted:
    most = None if loop.most is None else loop.most - 1
    return replace(loop, least=max(loop.least - 1, 0), most=most)


def open_loops(pattern: Pattern, place: tuple[int, ...] = ()) -> Iterator[Loop]:
    """The loops that have begun in what remains of a pattern, and may take more."""
    if (is_list(pattern) and pattern.begun) or (is_loop(pattern) and pattern.begun is not None):
        yield Loop(place, pattern.leave)
    for k, part in enumerate(parts(pattern)):
        yield from open_loops(part, (*place, k))


def advance(pattern: Pattern, variable: str) -> Pattern | None:
    """What remains after an event for this variable, or None if none may come now.

    Variables are unique in a pattern, so there is only one way to go on; of a repeated group it is
    the first of those that there are.

    >>> a, b = Atom("A", "a"), Atom("B", "b")
    >>> advance(Seq((a, b)), "a") == b, advance(Seq((a, b)), "b")
    (True, None)
    >>> advance(Seq((Maybe(a), b)), "b") == DONE
    True
    """
    return next((s.rest for s in steps(pattern) if s.variable == variable), None)


def readings(pattern: Pattern, taken: tuple[str, ...]) -> list[Pattern]:
    """All that may remain after events for these variables, one behind the other.

    >>> b = Maybe(Atom("B", "b"))
    >>> len(readings(Repeat(Seq((Maybe(Atom("A", "a")), b)), 1, 2), ("a", "b")))
    2
    """
    found = [pattern]
    for variable in taken:
        after = (s.rest for one in found for s in steps(one) if s.variable == variable)
        found = list(dict.fromkeys(after))
    return found


def _seq(inner: tuple[Pattern, ...]) -> Pattern:
    left = tuple(p for p in inner if p != DONE)
    return left[0] if len(left) == 1 and not is_absence(left[0]) else Seq(left)


def uncounted(pattern: Pattern) -> Pattern:
    """The pattern with every loop open until it is left, however much it may take."""

    def unlimited(node: Pattern) -> Pattern:
        if is_list(node) or is_loop(node):
            return replace(node, least=min(node.least, 1), most=None)
        return node

    return rewrite(pattern, unlimited)
