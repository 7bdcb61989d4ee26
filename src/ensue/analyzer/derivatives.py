"""Derivatives of patterns (Brzozowski): the possible next events, and the rest after each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeVar

from ensue.ir import traits
from ensue.ir.pattern import (
    And,
    Atom,
    Kleene,
    LoopExit,
    MaxGap,
    Maybe,
    Not,
    OperatorCall,
    Or,
    Pattern,
    Repeat,
    Seq,
    Then,
)
from ensue.ir.selection import Strategy
from ensue.ir.traversal import rewrite_pattern

DONE = Seq(())
Counted = TypeVar("Counted", Kleene, Repeat)


@dataclass(frozen=True, slots=True)
class LoopPosition:
    """A loop, identified by its position in the pattern."""

    place: tuple[int, ...]
    leave: LoopExit


class GuardScope(Enum):
    """The events to which a guard applies, from the last event of a run to the one it takes."""

    BETWEEN = auto()  # the events between the two
    UP_TO = auto()  # likewise, and the taken one
    TAKEN = auto()  # only the taken one
    NEXT = auto()  # only the next event of the partition, taken or not


@dataclass(frozen=True, slots=True)
class NegationGuard:
    """A negation that applies before a step."""

    negation: Not
    where: GuardScope


@dataclass(frozen=True, slots=True)
class PatternStep:
    """A transition: the variable that takes an event, and the derivative."""

    variable: str
    rest: Pattern
    inside: tuple[LoopPosition, ...] = ()  # the open loops that it continues, outermost first
    again: tuple[LoopPosition, ...] = ()  # those in which it starts an iteration
    begins: tuple[LoopPosition, ...] = ()  # the loops that it starts
    left: tuple[LoopPosition, ...] = ()  # the loops that it ends
    skips: tuple[LoopPosition, ...] = ()  # the loops that it skips
    how: Strategy | None = None  # the contiguity to the previous event; None: the query's
    pause: MaxGap | None = None  # the maximum gap to the previous event; None: unlimited
    guards: tuple[NegationGuard, ...] = ()


def derive_steps(pattern: Pattern, place: tuple[int, ...] = ()) -> Iterator[PatternStep]:
    """Yields the possible next steps; a variable of a repeated group may have several.

    >>> a, b = Atom("A", "a"), Atom("B", "b")
    >>> [step.variable for step in derive_steps(Seq((Maybe(a), b)))]
    ['a', 'b']
    """
    match pattern:
        case Atom():
            yield PatternStep(pattern.variable, DONE)
        case Kleene(atom=atom):
            loop = (LoopPosition(place, pattern.leave),)
            more = DONE if pattern.most == 1 else replace(_decrement(pattern), begun=True)
            if not pattern.begun:
                stops = _build_until_guard(pattern, GuardScope.TAKEN)
                yield PatternStep(atom.variable, more, begins=loop, guards=stops)
                return
            yield PatternStep(
                atom.variable,
                more,
                inside=loop,
                again=loop,
                how=pattern.inner,
                pause=pattern.pause,
                guards=_build_until_guard(pattern, GuardScope.UP_TO),
            )
        case Repeat():
            yield from _derive_repeat(pattern, place)
        case Maybe(part=part):
            yield from derive_steps(part, (*place, 0))
        case Then(part=part, how=how, pause=pause):
            for step in derive_steps(part, (*place, 0)):
                yield replace(step, how=step.how or how, pause=step.pause or pause)
        case Not():
            return
        case Seq(parts=inner):
            left: tuple[LoopPosition, ...] = ()
            skips: tuple[LoopPosition, ...] = ()
            guards: tuple[NegationGuard, ...] = ()
            for k, part in enumerate(inner):
                for step in derive_steps(part, (*place, k)):
                    yield replace(
                        step,
                        rest=_build_sequence((step.rest, *inner[k + 1 :])),
                        left=(*left, *step.left),
                        skips=(*skips, *step.skips),
                        guards=(*guards, *step.guards),
                    )
                if not traits.is_optional(part):
                    return
                left += tuple(find_open_loops(part, (*place, k)))
                skips += tuple(_iterate_closed_loops(part, (*place, k)))
                guards += tuple(collect_guards(part))
        case And(parts=inner):
            for k, part in enumerate(inner):
                for step in derive_steps(part, (*place, k)):
                    after = (*inner[:k], step.rest, *inner[k + 1 :])
                    undone = tuple(p for p in after if p != DONE)
                    yield replace(step, rest=And(undone) if undone else DONE)
        case Or(parts=inner):
            for k, part in enumerate(inner):
                yield from derive_steps(part, (*place, k))
        case OperatorCall(inputs=inputs):  # in any order
            yield from derive_steps(And(inputs), place)


def _derive_repeat(loop: Repeat, place: tuple[int, ...]) -> Iterator[PatternStep]:
    """Yields the steps that continue the current iteration of a group, or start the next one."""
    open_loop: tuple[LoopPosition, ...] = ()
    left: tuple[LoopPosition, ...] = ()
    guards: tuple[NegationGuard, ...] = ()
    if loop.begun is not None:
        open_loop, here = (LoopPosition(place, loop.leave),), (*place, 0)
        for step in derive_steps(loop.begun, here):
            more = replace(loop, begun=step.rest)
            inside, stops = (*open_loop, *step.inside), _build_until_guard(loop, GuardScope.UP_TO)
            yield replace(step, rest=more, inside=inside, guards=(*step.guards, *stops))
        if not traits.is_optional(loop.begun):
            return
        left = tuple(find_open_loops(loop.begun, here))
        guards = tuple(collect_guards(loop.begun))
    for step in derive_steps(loop.part, (*place, 1)):
        # the last iteration is no longer a loop
        rest = step.rest if loop.most == 1 else replace(_decrement(loop), begun=step.rest)
        stops = _build_until_guard(loop, GuardScope.UP_TO if open_loop else GuardScope.TAKEN)
        yield replace(
            step,
            rest=rest,
            inside=open_loop,
            again=open_loop,
            begins=step.begins if open_loop else (LoopPosition(place, loop.leave), *step.begins),
            left=left,
            how=step.how or (loop.inner if open_loop else None),
            pause=step.pause or (loop.pause if open_loop else None),
            guards=(*guards, *step.guards, *stops),
        )


def _build_until_guard(loop: Kleene | Repeat, where: GuardScope) -> tuple[NegationGuard, ...]:
    return () if loop.until is None else (NegationGuard(loop.until, where),)


def collect_guards(pattern: Pattern) -> Iterator[NegationGuard]:
    """Yields the negations of a part that takes no further events."""
    if traits.is_positional_negation(pattern):
        yield NegationGuard(pattern, GuardScope.BETWEEN)
    elif traits.forbids_next_event(pattern):
        assert traits.is_negation(pattern.part)
        yield NegationGuard(pattern.part, GuardScope.NEXT)
    elif traits.is_sequence(pattern):
        for part in traits.get_parts(pattern):
            yield from collect_guards(part)
    elif traits.is_loop(pattern) and pattern.begun is not None:
        yield from collect_guards(pattern.begun)


def _decrement(loop: Counted) -> Counted:
    most = None if loop.most is None else loop.most - 1
    return replace(loop, least=max(loop.least - 1, 0), most=most)


def find_open_loops(pattern: Pattern, place: tuple[int, ...] = ()) -> Iterator[LoopPosition]:
    """Yields the loops that have started and may continue."""
    if (traits.is_list(pattern) and pattern.begun) or (traits.is_loop(pattern) and pattern.begun is not None):
        yield LoopPosition(place, pattern.leave)
    for k, part in enumerate(traits.get_parts(pattern)):
        yield from find_open_loops(part, (*place, k))


def _iterate_closed_loops(pattern: Pattern, place: tuple[int, ...] = ()) -> Iterator[LoopPosition]:
    """Yields the loops that have not started and are skipped with this part.

    If a part is optional only as a whole, `(A+ a[], B b)?`, its inner loops are not skipped.
    """
    inner = traits.get_parts(pattern)
    if (traits.is_list(pattern) and not pattern.begun) or (traits.is_loop(pattern) and pattern.begun is None):
        yield LoopPosition(place, pattern.leave)
    elif traits.is_then(pattern) or traits.get_form(pattern) is traits.NodeForm.OPTION:
        yield from _iterate_closed_loops(inner[0], (*place, 0))
    elif traits.is_optional(pattern) and not traits.is_negation(pattern) and not traits.is_repetition(pattern):
        for k, part in enumerate(inner):
            if traits.is_optional(part):
                yield from _iterate_closed_loops(part, (*place, k))


def get_end_step(pattern: Pattern) -> PatternStep:
    """Returns the end of a match as a step: it ends open loops and skips all others.

    >>> [loop.leave.name for loop in get_end_step(Kleene(Atom("B", "b"), 0, None)).skips]
    ['FORK']
    """
    left, skips = tuple(find_open_loops(pattern)), tuple(_iterate_closed_loops(pattern))
    return PatternStep("", DONE, left=left, skips=skips)


def derive(pattern: Pattern, variable: str) -> Pattern | None:
    """Returns the derivative by a variable, or None if it cannot take the next event.

    Variables are unique in a pattern, so there is only one; for a repeated group it is the first.

    >>> a, b = Atom("A", "a"), Atom("B", "b")
    >>> derive(Seq((a, b)), "a") == b, derive(Seq((a, b)), "b")
    (True, None)
    >>> derive(Seq((Maybe(a), b)), "b") == DONE
    True
    """
    return next((s.rest for s in derive_steps(pattern) if s.variable == variable), None)


def derive_all(pattern: Pattern, taken: tuple[str, ...]) -> list[Pattern]:
    """Returns all derivatives by a sequence of variables.

    >>> b = Maybe(Atom("B", "b"))
    >>> len(derive_all(Repeat(Seq((Maybe(Atom("A", "a")), b)), 1, 2), ("a", "b")))
    2
    """
    patterns = [pattern]
    for variable in taken:
        rests = (s.rest for p in patterns for s in derive_steps(p) if s.variable == variable)
        patterns = list(dict.fromkeys(rests))
    return patterns


def _build_sequence(inner: tuple[Pattern, ...]) -> Pattern:
    left = tuple(p for p in inner if p != DONE)
    return left[0] if len(left) == 1 and not traits.is_negation(left[0]) else Seq(left)


def remove_loop_bounds(pattern: Pattern) -> Pattern:
    """Removes the upper bounds of all loops."""

    def unlimited(node: Pattern) -> Pattern:
        if traits.is_repetition(node):
            return replace(node, least=min(node.least, 1), most=None)
        return node

    return rewrite_pattern(pattern, unlimited)


def get_mandatory_steps(candidates: Sequence[PatternStep], open_: Iterable[LoopPosition]) -> list[PatternStep]:
    """Returns the steps that a run under skip-till-next-match must take.

    While a loop is open that is not reluctant, steps that continue it must be taken, and steps
    that end it may be skipped. Without such a loop all steps must be taken.
    """
    loops = {loop for loop in open_ if loop.leave is not LoopExit.RELUCTANT}
    if not loops:
        return list(candidates)
    return [s for s in candidates if loops & {*s.inside} and not loops & {*s.left}]


def continues_greedy_loop(step: PatternStep, other: PatternStep) -> bool:
    """Whether a step continues a greedy loop that another one ends.

    If two steps disagree on several loops, the innermost greedy or reluctant loop decides.
    """
    return _decide(step, other.left) is LoopExit.GREEDY or _get_start_rule(step, other) is LoopExit.GREEDY


def ends_reluctant_loop(step: PatternStep, other: PatternStep) -> bool:
    """Whether a step ends a reluctant loop that another one continues."""
    rules = _decide(other, step.left), _get_start_rule(other, step)
    return LoopExit.RELUCTANT in rules


def is_step_preferred(step: PatternStep, other: PatternStep) -> bool:
    """Whether a step excludes another one for the same event."""
    return continues_greedy_loop(step, other) or ends_reluctant_loop(step, other)


def continues_past_end(step: PatternStep, rest: Pattern) -> bool:
    """Whether a greedy loop takes this step although the match could end."""
    return continues_greedy_loop(step, get_end_step(rest))


def is_excluded_by_end(step: PatternStep, rest: Pattern) -> bool:
    """Whether a reluctant loop ends the match before this step."""
    return ends_reluctant_loop(get_end_step(rest), step)


def _get_start_rule(step: PatternStep, other: PatternStep) -> LoopExit:
    """Returns the exit rule of a loop that one step starts and the other skips."""
    return next((loop.leave for loop in step.begins if loop in other.skips), LoopExit.FORK)


def _decide(step: PatternStep, ended: Iterable[LoopPosition]) -> LoopExit:
    """Returns the exit rule that decides between continuing and ending loops."""
    for loop in reversed(step.inside):
        if loop not in ended:
            continue
        # within an iteration of its group a reluctant loop does not decide
        if loop.leave is LoopExit.GREEDY or (loop.leave is LoopExit.RELUCTANT and loop in step.again):
            return loop.leave
    return LoopExit.FORK
