"""What remains of a pattern once some of its events have come."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeVar

from ensue.algebra.form import (
    Form,
    bars_next,
    form,
    is_absence,
    is_entry,
    is_list,
    is_loop,
    is_sequence,
    optional,
    parts,
    stands,
)
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
    Pause,
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


class Where(Enum):
    """Which events a guard forbids, from the last event of a run to the one that it takes."""

    BETWEEN = auto()  # those between the two
    UP_TO = auto()  # likewise, and the one that it takes
    TAKEN = auto()  # only the one that it takes
    NEXT = auto()  # only the very next one of the partition, be it taken or not


@dataclass(frozen=True, slots=True)
class Guard:
    """What must not lie before an event that a run takes."""

    negation: Not
    where: Where


@dataclass(frozen=True, slots=True)
class Step:
    """One event more: its variable, and what remains then."""

    variable: str
    rest: Pattern
    inside: tuple[Loop, ...] = ()  # the loops that go on with it, the outermost first
    again: tuple[Loop, ...] = ()  # those of them that begin another time with it
    begins: tuple[Loop, ...] = ()  # the loops that begin with it
    left: tuple[Loop, ...] = ()  # the loops that end with it
    skips: tuple[Loop, ...] = ()  # the loops that it leaves out
    how: Strategy | None = None  # what may lie before it; None: as the query says
    pause: Pause | None = None  # how long the event before it may be ago; None: any time
    guards: tuple[Guard, ...] = ()  # what must not lie before it, besides


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
            if not pattern.begun:
                begins, stops = (Loop(place, pattern.leave),), _until(pattern, Where.TAKEN)
                yield Step(atom.variable, more, begins=begins, guards=stops)
                return
            yield Step(
                atom.variable,
                more,
                inside=(Loop(place, pattern.leave),),
                again=(Loop(place, pattern.leave),),
                how=pattern.inner,
                pause=pattern.pause,
                guards=_until(pattern, Where.UP_TO),
            )
        case Repeat():
            yield from _rounds(pattern, place)
        case Maybe(part=part):
            yield from steps(part, (*place, 0))
        case Then(part=part, how=how, pause=pause):
            for step in steps(part, (*place, 0)):
                yield replace(step, how=step.how or how, pause=step.pause or pause)
        case Not():
            return
        case Seq(parts=inner):
            left: tuple[Loop, ...] = ()
            skips: tuple[Loop, ...] = ()
            guards: tuple[Guard, ...] = ()
            for k, part in enumerate(inner):
                for step in steps(part, (*place, k)):
                    yield replace(
                        step,
                        rest=_seq((step.rest, *inner[k + 1 :])),
                        left=(*left, *step.left),
                        skips=(*skips, *step.skips),
                        guards=(*guards, *step.guards),
                    )
                if not optional(part):
                    return
                left += tuple(open_loops(part, (*place, k)))
                skips += tuple(_closed_loops(part, (*place, k)))
                guards += tuple(passed(part))
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
    guards: tuple[Guard, ...] = ()
    if loop.begun is not None:
        mine, here = (Loop(place, loop.leave),), (*place, 0)
        for step in steps(loop.begun, here):
            more = replace(loop, begun=step.rest)
            inside, stops = (*mine, *step.inside), _until(loop, Where.UP_TO)
            yield replace(step, rest=more, inside=inside, guards=(*step.guards, *stops))
        if not optional(loop.begun):
            return
        left = tuple(open_loops(loop.begun, here))
        guards = tuple(passed(loop.begun))
    for step in steps(loop.part, (*place, 1)):
        # the last time is no longer a loop
        rest = step.rest if loop.most == 1 else replace(_once_less(loop), begun=step.rest)
        stops = _until(loop, Where.UP_TO if mine else Where.TAKEN)
        yield replace(
            step,
            rest=rest,
            inside=mine,
            again=mine,
            begins=step.begins if mine else (Loop(place, loop.leave), *step.begins),
            left=left,
            how=step.how or (loop.inner if mine else None),
            pause=step.pause or (loop.pause if mine else None),
            guards=(*guards, *step.guards, *stops),
        )


def _until(loop: Kleene | Repeat, where: Where) -> tuple[Guard, ...]:
    return () if loop.until is None else (Guard(loop.until, where),)


def passed(pattern: Pattern) -> Iterator[Guard]:
    """The negations in what remains of a pattern, where nothing more of it comes."""
    if stands(pattern):
        yield Guard(pattern, Where.BETWEEN)
    elif bars_next(pattern):
        assert is_absence(pattern.part)
        yield Guard(pattern.part, Where.NEXT)
    elif is_sequence(pattern):
        for part in parts(pattern):
            yield from passed(part)
    elif is_loop(pattern) and pattern.begun is not None:
        yield from passed(pattern.begun)


def _once_less(loop: Counted) -> Counted:
    most = None if loop.most is None else loop.most - 1
    return replace(loop, least=max(loop.least - 1, 0), most=most)


def open_loops(pattern: Pattern, place: tuple[int, ...] = ()) -> Iterator[Loop]:
    """The loops that have begun in what remains of a pattern, and may take more."""
    if (is_list(pattern) and pattern.begun) or (is_loop(pattern) and pattern.begun is not None):
        yield Loop(place, pattern.leave)
    for k, part in enumerate(parts(pattern)):
        yield from open_loops(part, (*place, k))


def _closed_loops(pattern: Pattern, place: tuple[int, ...] = ()) -> Iterator[Loop]:
    """The loops that have not begun and are left out together with this part.

    Of a part that is optional as a whole, `(A+ a[], B b)?`, no loop inside is left out.
    """
    inner = parts(pattern)
    if (is_list(pattern) and not pattern.begun) or (is_loop(pattern) and pattern.begun is None):
        yield Loop(place, pattern.leave)
    elif is_entry(pattern) or form(pattern) is Form.OPTION:
        yield from _closed_loops(inner[0], (*place, 0))
    elif optional(pattern) and form(pattern) in (Form.SEQUENCE, Form.TOGETHER, Form.CHOICE):
        for k, part in enumerate(inner):
            if optional(part):
                yield from _closed_loops(part, (*place, k))


def end_of(pattern: Pattern) -> Step:
    """The end of a match as a step: every open loop ends, every other one is left out.

    >>> [loop.leave.name for loop in end_of(Kleene(Atom("B", "b"), 0, None)).skips]
    ['FORK']
    """
    left, skips = tuple(open_loops(pattern)), tuple(_closed_loops(pattern))
    return Step("", DONE, left=left, skips=skips)


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
