"""Automata of patterns that repeat groups, or whose loops are greedy or reluctant.

Their states are what may still come, and where runs cannot count it, how often: a group of two or
three times is written out. A pattern that can be read in several ways is in all of them at once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ensue.algebra.form import bars_next, is_list, is_loop, optional, parts, with_parts
from ensue.algebra.leaving import barred_by_the_end, demanded, preferred
from ensue.algebra.pattern import Leave, Pattern
from ensue.algebra.policy import CONTIGUOUS, Strategy
from ensue.algebra.predicate import At, Expr, Field
from ensue.algebra.residual import Step, open_loops, steps, uncounted
from ensue.algebra.text import show_condition
from ensue.algebra.walk import (
    entries,
    in_step,
    leaves,
    loops,
    negations,
    opening,
    pauses,
    positives,
    references,
    rewrite_expr,
    untils,
)
from ensue.plan.physical import Check
from ensue.plan.physical_rules.placement import MOVING

LIMIT = 40  # states: more take long to compile


class NoLoops(Exception):  # noqa: N818
    """The runs of a pattern cannot be written as an automaton; the reason is its text."""


def has_loops(pattern: Pattern) -> bool:
    """Whether a pattern repeats groups, has loops that do not fork, or says what follows how."""
    wilful = any(leave is not Leave.FORK for leave in leaves(pattern)) or any(untils(pattern))
    return wilful or any(loops(pattern)) or any(entries(pattern))


@dataclass(frozen=True, slots=True)
class Place:
    """How far a run has come."""

    rests: tuple[Pattern, ...]  # what may still come, by every way to read what has come
    open: tuple[Pattern, ...]  # the same if loops were open until they are left
    bound: frozenset[str]

    @property
    def accepting(self) -> bool:
        return bool(self.bound) and any(map(optional, self.rests))

    @property
    def waiting(self) -> frozenset[str]:
        """The variables that may get events before all loops are left."""
        return frozenset(a.variable for rest in self.open for a in positives(rest))


@dataclass(frozen=True, slots=True)
class Way:
    """An event for a variable leads from one place to another."""

    source: Place
    variable: str
    target: Place
    demanded: bool
    yields: tuple[str, ...]
    how: Strategy | None = None  # of patterns that say it
    demanded_late: bool = True  # the same of an event that is not the very next one


def _refuse(pattern: Pattern) -> None:
    if any(untils(pattern)) or any(pauses(pattern)) or Strategy.NEXT in entries(pattern):
        raise NoLoops("THEN NEXT, UNTIL and pauses")
    if any(any(negations(loop)) for loop in loops(pattern)) or _bars(pattern):
        raise NoLoops("negations in a group, and THEN !")
    if any(leave is not Leave.FORK for leave in leaves(pattern)):
        raise NoLoops("greedy")


def _bars(pattern: Pattern) -> bool:
    return bars_next(pattern) or any(map(_bars, parts(pattern)))


def start_of(pattern: Pattern, strategy: Strategy) -> Place:
    """Where every run begins."""
    _refuse(pattern)
    skips = Strategy.NEXT in (strategy, *entries(pattern))
    return Place((_counted_by_runs(pattern, skips),), (uncounted(pattern),), frozenset())


def _counted_by_runs(pattern: Pattern, skips: bool) -> Pattern:
    """The pattern without the numbers that runs know by counting the events of a variable.

    Not what loops inside loops count, nor where a full loop changes what a run must take.
    """
    if is_list(pattern) or is_loop(pattern):
        by_events = is_list(pattern) or opening(pattern) is not None
        full = pattern.most is not None and skips
        if pattern.leave is not Leave.FORK or full or not by_events:
            return pattern
        return replace(pattern, least=min(pattern.least, 1), most=None)
    return with_parts(pattern, tuple(_counted_by_runs(p, skips) for p in parts(pattern)))


def ways(start: Place, strategy: Strategy) -> list[Way]:
    """All ways from all places, in the order they are found. Raises NoLoops."""
    found: list[Way] = []
    known, todo = {start}, [start]
    mixed = any(entry for rest in start.rests for entry in entries(rest))
    for place in todo:
        for way in _ways(place, strategy, mixed):
            found.append(way)
            if way.target not in known:
                if len(known) >= LIMIT:
                    raise NoLoops("a group that is repeated in too many ways to write them out")
                known.add(way.target)
                todo.append(way.target)
    return found


def _ways(place: Place, strategy: Strategy, mixed: bool) -> Iterator[Way]:
    possible = [_possible(rest, place) for rest in place.rests]
    every = [step for found in possible for step in found]
    skips = any((step.how or strategy) is Strategy.NEXT for step in every)
    if len(place.rests) > 1 and skips:
        raise NoLoops("a group whose events can be divided into times in several ways")
    if len(place.rests) > 1 and any(_wilful(step) for step in every):
        raise NoLoops("a group whose events can be divided into times in several ways")
    wanted = [
        step
        for rest, found in zip(place.rests, possible, strict=True)
        for step in demanded(found, open_loops(rest))
    ]
    later = _wanted_late(place, strategy, skips) if mixed else wanted
    for variable in dict.fromkeys(step.variable for step in every):
        mine = [s for s in every if s.variable == variable]
        barred = {s: {o.variable for o in every if preferred(o, s)} for s in mine}
        # what the same event would rather do is done
        mine = [s for s in mine if variable not in barred[s]]
        yields = {frozenset(barred[s]) for s in mine}
        if frozenset() in yields:
            yields = {frozenset()}
        hows = {s.how or strategy for s in mine} if mixed and place.bound else {None}
        if len(hows) > 1:
            raise NoLoops(f"{variable}, which may follow in several ways")
        rests = tuple(dict.fromkeys(s.rest for s in mine))
        if len(yields) > 1 or (len(rests) > 1 and yields != {frozenset()}):
            raise NoLoops("loops that can end in several ways")
        after = (s.rest for one in place.open for s in steps(one) if s.variable == variable)
        target = Place(rests, tuple(dict.fromkeys(after)), place.bound | {variable})
        yield Way(
            place,
            variable,
            target,
            any(s.variable == variable for s in wanted),
            tuple(sorted(yields.pop())),
            hows.pop() if hows else None,
            any(s.variable == variable for s in later),
        )


def _wanted_late(place: Place, strategy: Strategy, skips: bool) -> list[Step]:
    """The steps that are demanded of an event that is not the very next one. Raises NoLoops."""
    wanted = []
    for rest in place.rests:
        open_ = list(open_loops(rest))
        kinds = {s.how or strategy for s in steps(rest)} & CONTIGUOUS
        if open_ and skips and len(kinds) > 1:
            raise NoLoops("a loop beside THEN, THEN STRICT and THEN NEXT")
        going = {
            loop
            for step in steps(rest)
            if (step.how or strategy) not in CONTIGUOUS
            for loop in step.inside
        }
        found = [s for s in _possible(rest, place) if (s.how or strategy) not in CONTIGUOUS]
        # a loop that could only go on with the very next event is over
        wanted += demanded(found, [loop for loop in open_ if loop in going])
    return wanted


def _possible(rest: Pattern, place: Place) -> list[Step]:
    found = list(dict.fromkeys(steps(rest)))
    if not (optional(rest) and place.bound):
        return found
    return [step for step in found if not barred_by_the_end(step)]


def _wilful(step: Step) -> bool:
    return any(loop.leave is not Leave.FORK for loop in (*step.inside, *step.left))


def ends_by_itself(place: Place) -> bool:
    """Whether a reluctant loop takes no more where the match is complete."""
    return place.accepting and any(
        barred_by_the_end(step) for rest in place.rests for step in steps(rest)
    )


# ---------------------------------------------------------------------- conditions in step


def runs_in_step(condition: Expr) -> bool:
    """Whether `[i]` of several variables is in a condition: `b[i].x > a[i].x`."""
    return len({r.variable for r in references(condition) if r.at in MOVING}) > 1


def check_in_step(condition: Expr, pattern: Pattern) -> Check:
    """The condition where it can be judged: on the last of its variables in a time of the group.

    By then the newest event of each other variable is of the same time or, for those that come
    later in it, of the time before. Raises NoLoops.
    """
    moving = [r for r in references(condition) if r.at in MOVING]
    names = {r.variable for r in moving}
    assert any(names <= group for group in in_step(pattern))
    order = [a.variable for a in positives(pattern) if a.variable in names]
    now = [v for v in order if any(r.variable == v and r.at is At.CURRENT for r in moving)]
    if not now or any(r.at not in (At.CURRENT, At.PREVIOUS) for r in moving):
        raise NoLoops(f"{show_condition(condition)}, which compiled code cannot judge")
    last = now[-1]

    def at_that_moment(node: Expr) -> Expr:
        if not isinstance(node, Field) or node.at not in MOVING or node.variable == last:
            return node
        if node.at is At.PREVIOUS and order.index(node.variable) < order.index(last):
            return node  # its newest event is of this time
        return replace(node, at=At.LAST)

    return Check(rewrite_expr(condition, at_that_moment), last)


def needs_a_time_before(condition: Expr) -> bool:
    """Whether a condition in step does not apply to the first time."""
    return any(r.at is At.PREVIOUS for r in references(condition))


def checks_in_step(
    conditions: Iterable[Expr], pattern: Pattern, variable: str, bound: frozenset[str]
) -> tuple[Check, ...]:
    """The conditions in step to try on an event for a variable, where some are bound before."""
    return tuple(
        check
        for condition in conditions
        for check in [check_in_step(condition, pattern)]
        if check.moving == variable and (variable in bound or not needs_a_time_before(condition))
    )
