"""Automata of patterns that repeat groups, or whose loops are greedy or reluctant.

Their states are what may still come, and where runs cannot count it, how often: a group of two or
three times is written out. A pattern that can be read in several ways is in all of them at once.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from ensue.algebra.form import bars_next, is_absence, is_list, is_loop, optional, parts, with_parts
from ensue.algebra.leaving import (
    barred_by_the_end,
    demanded,
    ends_sooner,
    goes_on_at_the_end,
    goes_on_longer,
)
from ensue.algebra.pattern import Leave, Not, Pattern
from ensue.algebra.policy import CONTIGUOUS, Strategy
from ensue.algebra.predicate import At, Expr, Field
from ensue.algebra.residual import Guard, Step, Where, open_loops, passed, steps, uncounted
from ensue.algebra.text import show_condition
from ensue.algebra.walk import (
    entries,
    in_step,
    leaves,
    loops,
    negations,
    opening,
    positives,
    references,
    rewrite,
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
    demanded_late: bool
    step: Step  # with all that it says of the gap before the event
    longer: tuple[str, ...]
    sooner: tuple[str, ...]
    closes: bool


def start_of(pattern: Pattern, strategy: Strategy) -> Place:
    """Where every run begins."""
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
    looped = {n for rest in start.rests for n in looped_negations(rest)}
    for place in todo:
        for way in _ways(place, strategy, looped):
            found.append(way)
            if way.target not in known:
                if len(known) >= LIMIT:
                    raise NoLoops("a group that is repeated in too many ways to write out")
                known.add(way.target)
                todo.append(way.target)
    return found


def _ways(place: Place, strategy: Strategy, looped: Collection[Not]) -> Iterator[Way]:
    possible = [_possible(rest, place) for rest in place.rests]
    every = [step for found in possible for step in found]
    skips = any(step.how is None and strategy is Strategy.NEXT for step in every)
    if len(place.rests) > 1 and (skips or any(_wilful(step) for step in every)):
        raise NoLoops("a group whose events can be divided into rounds in several ways")
    wanted = [
        step
        for rest, found in zip(place.rests, possible, strict=True)
        for step in demanded(found, open_loops(rest))
    ]
    later = _wanted_late(place, strategy, skips)
    for variable in dict.fromkeys(step.variable for step in every):
        mine = [s for s in every if s.variable == variable]
        rivals = {s: _rivals(s, every) for s in mine}
        # what the same event would rather do is done
        mine = [s for s in mine if not any(variable in names for names in rivals[s])]
        if not mine:
            continue
        wills = {rivals[s] for s in mine}
        if (frozenset(), frozenset()) in wills:
            wills = {(frozenset(), frozenset())}
        gaps: set[object] = {(s.how, s.pause, _guards(s, looped)) for s in mine}
        if not place.bound:  # nothing lies before the first event but what a negation forbids
            gaps = {tuple(_leading(s, looped)) for s in mine}
        if len(gaps) > 1:
            raise NoLoops(f"{variable}, which may follow in several ways")
        rests = tuple(dict.fromkeys(s.rest for s in mine))
        if len(wills) > 1 or (len(rests) > 1 and wills != {(frozenset(), frozenset())}):
            raise NoLoops("loops that can end in several ways")
        ((longer, sooner),) = wills
        after = (s.rest for one in place.open for s in steps(one) if s.variable == variable)
        first = mine[0]
        yield Way(
            place,
            variable,
            Place(rests, tuple(dict.fromkeys(after)), place.bound | {variable}),
            any(s.variable == variable for s in wanted),
            any(s.variable == variable for s in later),
            replace(first, how=first.how if place.bound else None, guards=_guards(first, looped)),
            tuple(sorted(longer)),
            tuple(sorted(sooner)),
            any(_closable(s, strategy) and s.inside for s in mine),
        )


def _rivals(step: Step, every: Iterable[Step]) -> tuple[frozenset[str], frozenset[str]]:
    """The variables that go on with a greedy loop, or end a reluctant one, unlike the step."""
    return (
        frozenset(s.variable for s in every if goes_on_longer(s, step)),
        frozenset(s.variable for s in every if ends_sooner(s, step)),
    )


def _guards(step: Step, looped: Collection[Not]) -> tuple[Guard, ...]:
    """What must not lie before a step; negations outside of loops are judged elsewhere."""
    return tuple(g for g in step.guards if g.where is not Where.BETWEEN or g.negation in looped)


def _leading(step: Step, looped: Collection[Not]) -> list[Not]:
    """The negations of a loop that say what must not come before its first event."""
    guards = _guards(step, looped)
    return [guard.negation for guard in guards if guard.where is Where.BETWEEN]


def leading_negations(
    found: Iterable[Way], looped: Collection[Not]
) -> Iterator[tuple[Not, frozenset[str], frozenset[str]]]:
    """The negations that begin the group which a match begins with.

    Each with the variables before it, if some are bound, and those behind it. Raises NoLoops where
    these do not say which event came first.
    """
    found = list(found)
    first = [way for way in found if not way.source.bound]
    for negation in dict.fromkeys(n for way in first for n in _leading(way.step, looped)):
        guarded = [way for way in first if negation in _leading(way.step, looped)]
        mine = frozenset(way.variable for way in guarded)
        others = frozenset(way.variable for way in first) - mine
        after_mine = _reachable({way.target for way in guarded}, found)
        after_others = _reachable({way.target for way in first if way not in guarded}, found)
        before = frozenset(
            v
            for w in found
            for v in w.source.bound
            if w.source in after_others and w.variable in mine
        )
        if not mine & _bound_in(after_others):
            yield negation, frozenset(), mine
        elif not (others | before) & _bound_in(after_mine):
            yield negation, before, mine
        else:
            raise NoLoops("a negation that begins a group, where other parts may come first")


def _reachable(places: set[Place], found: Iterable[Way]) -> set[Place]:
    """The places, and all to which ways lead from them."""
    todo = [*places]
    targets: dict[Place, list[Place]] = {}
    for way in found:
        targets.setdefault(way.source, []).append(way.target)
    for place in todo:
        new = [p for p in targets.get(place, ()) if p not in places]
        places |= {*new}
        todo += new
    return places


def _bound_in(places: Iterable[Place]) -> frozenset[str]:
    return frozenset(variable for place in places for variable in place.bound)


def _closable(step: Step, strategy: Strategy) -> bool:
    """Whether a step may be over while its run waits on."""
    stopped = any(guard.where is Where.UP_TO for guard in step.guards)
    return (step.how or strategy) in CONTIGUOUS or step.pause is not None or stopped


def _wanted_late(place: Place, strategy: Strategy, skips: bool) -> list[Step]:
    """The steps that are demanded once those that may be over are over. Raises NoLoops."""
    wanted = []
    for rest in place.rests:
        open_ = list(open_loops(rest))
        found = _possible(rest, place)
        over = [s for s in found if _closable(s, strategy)]
        kinds = {(s.how if s.how in CONTIGUOUS else None, s.pause, s.guards) for s in over}
        if skips and len(kinds) > 1:
            raise NoLoops("several steps that may be finished while others are still waiting")
        left = [s for s in found if s not in over]
        going = {loop for step in left for loop in step.inside}
        # a loop that may no longer go on is over
        wanted += demanded(left, [loop for loop in open_ if loop in going])
    return wanted


def _possible(rest: Pattern, place: Place) -> list[Step]:
    found = list(dict.fromkeys(steps(rest)))
    if not (optional(rest) and place.bound):
        return found
    return [step for step in found if not barred_by_the_end(step, rest)]


def without_guards(pattern: Pattern) -> Pattern:
    """The pattern without the negations that edges judge: those in loops, and THEN with one."""

    def present(node: Pattern) -> Pattern:
        kept = tuple(p for p in parts(node) if not bars_next(p))
        return node if len(kept) == len(parts(node)) else with_parts(node, kept)

    def unguarded(node: Pattern) -> Pattern:
        if is_loop(node):
            return replace(node, part=rewrite(node.part, _positive))
        return present(node)

    return rewrite(pattern, unguarded)


def _positive(node: Pattern) -> Pattern:
    if not any(map(is_absence, parts(node))):
        return node
    return with_parts(node, tuple(p for p in parts(node) if not is_absence(p)))


def lasting(place: Place) -> tuple[str, ...]:
    """The variables that a greedy loop at the end takes as long as it can. Raises NoLoops."""
    ends = [rest for rest in place.rests if optional(rest)]
    found = [s for rest in ends for s in steps(rest) if goes_on_at_the_end(s, rest)]
    if not place.accepting or not found:
        return ()
    if len(place.rests) > 1:
        raise NoLoops("a greedy loop at the end that can be read in several ways")
    return tuple(dict.fromkeys(step.variable for step in found))


def barred_at_the_end(place: Place, looped: Collection[Not]) -> bool:
    """Whether what comes next decides if a match ends here: `THEN !B b` at the end."""
    return place.accepting and any(
        guard.where is Where.NEXT or guard.negation in looped
        for rest in place.rests
        for guard in passed(rest)
    )


def looped_negations(pattern: Pattern) -> set[Not]:
    """The negations inside of loops: edges judge them."""
    return {negation for loop in loops(pattern) for negation in negations(loop)}


def _wilful(step: Step) -> bool:
    return any(loop.leave is not Leave.FORK for loop in (*step.inside, *step.left))


def ends_by_itself(place: Place) -> bool:
    """Whether a reluctant loop takes no more where the match is complete."""
    return place.accepting and any(
        barred_by_the_end(step, rest) for rest in place.rests for step in steps(rest)
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
        raise NoLoops(f"{show_condition(condition)}, which compiled code cannot evaluate")
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
