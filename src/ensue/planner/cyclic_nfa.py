"""Cyclic automata: patterns that repeat groups, or whose loops are greedy or reluctant.

A state is the rest of the pattern, with the number of repetitions if runs cannot count it: a group
of two or three repetitions is unrolled. A state holds all derivatives of an ambiguous pattern.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from ensue.analyzer import derivatives
from ensue.ir import traversal
from ensue.ir.expression import EventPosition, Expr, FieldRef
from ensue.ir.pattern import LoopExit, Not, Pattern
from ensue.ir.selection import CONTIGUOUS, Strategy
from ensue.ir.traits import forbids_next_event, get_parts, is_list, is_loop, is_negation, is_optional, replace_parts
from ensue.planner.physical_plan import ConditionCheck
from ensue.planner.predicate_pushdown import MOVING, needs_previous_element
from ensue.printing.expression_printer import format_condition

LIMIT = 40  # states: more take long to compile


class NoLoops(Exception):  # noqa: N818
    """A pattern has no automaton; the message is the reason."""


def has_loops(pattern: Pattern) -> bool:
    """Whether a pattern repeats groups, has loops that do not fork, or constrains succession."""
    controlled = any(leave is not LoopExit.FORK for leave in traversal.iterate_loop_exits(pattern)) or any(
        traversal.iterate_untils(pattern)
    )
    return controlled or any(traversal.iterate_loops(pattern)) or any(traversal.iterate_strategies(pattern))


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a run."""

    rests: tuple[Pattern, ...]  # the derivatives, one for each reading of the events so far
    open: tuple[Pattern, ...]  # the same if loops stayed open until they are left
    bound: frozenset[str]

    @property
    def accepting(self) -> bool:
        return bool(self.bound) and any(map(is_optional, self.rests))

    @property
    def waiting(self) -> frozenset[str]:
        """Variables that may get events before all loops are left."""
        return frozenset(a.variable for rest in self.open for a in traversal.iterate_positive_atoms(rest))


@dataclass(frozen=True, slots=True)
class NfaTransition:
    """A transition: an event of a variable moves a run from one place to another."""

    source: RunProgress
    variable: str
    target: RunProgress
    demanded: bool
    required_late: bool
    step: derivatives.PatternStep  # with the constraints on the gap before the event
    longer: tuple[str, ...]
    sooner: tuple[str, ...]
    closes: bool


def get_start(pattern: Pattern, strategy: Strategy) -> RunProgress:
    """The progress of a new run."""
    skips = Strategy.NEXT in (strategy, *traversal.iterate_strategies(pattern))
    return RunProgress((_strip_counts(pattern, skips),), (derivatives.remove_loop_bounds(pattern),), frozenset())


def _strip_counts(pattern: Pattern, skips: bool) -> Pattern:
    """The pattern without the repetition numbers that runs know by counting events of a variable.

    Nested loops keep their numbers, and loops whose completion changes the steps a run must take.
    """
    if is_list(pattern) or is_loop(pattern):
        by_events = is_list(pattern) or traversal.get_first_atom(pattern) is not None
        full = pattern.most is not None and skips
        if pattern.leave is not LoopExit.FORK or full or not by_events:
            return pattern
        return replace(pattern, least=min(pattern.least, 1), most=None)
    return replace_parts(pattern, tuple(_strip_counts(p, skips) for p in get_parts(pattern)))


def build_transitions(start: RunProgress, strategy: Strategy) -> list[NfaTransition]:
    """All transitions, in breadth-first order. Raises NoLoops."""
    transitions: list[NfaTransition] = []
    known, todo = {start}, [start]
    looped = {n for rest in start.rests for n in find_looped_negations(rest)}
    for place in todo:
        for transition in _transitions(place, strategy, looped):
            transitions.append(transition)
            if transition.target not in known:
                if len(known) >= LIMIT:
                    raise NoLoops("a repeated group that unrolls into too many states")
                known.add(transition.target)
                todo.append(transition.target)
    return transitions


def _transitions(place: RunProgress, strategy: Strategy, looped: Collection[Not]) -> Iterator[NfaTransition]:
    by_rest = [_possible(rest, place) for rest in place.rests]
    every = [step for possible in by_rest for step in possible]
    skips = any(step.how is None and strategy is Strategy.NEXT for step in every)
    loops = (loop for step in every for loop in (*step.inside, *step.left))
    controlled = any(loop.leave is not LoopExit.FORK for loop in loops)
    if len(place.rests) > 1 and (skips or controlled):
        raise NoLoops("a group whose events can be divided into rounds in several ways")
    required = [
        step
        for rest, possible in zip(place.rests, by_rest, strict=True)
        for step in derivatives.get_mandatory_steps(possible, derivatives.find_open_loops(rest))
    ]
    later = _list_late_steps(place, strategy, skips)
    for variable in dict.fromkeys(step.variable for step in every):
        candidates = [s for s in every if s.variable == variable]
        rivals = {s: _rivals(s, every) for s in candidates}
        # an event takes the preferred one of its steps
        candidates = [s for s in candidates if not any(variable in names for names in rivals[s])]
        if not candidates:
            continue
        preferences = {rivals[s] for s in candidates}
        if (frozenset(), frozenset()) in preferences:
            preferences = {(frozenset(), frozenset())}
        gaps: set[object] = {(s.how, s.pause, _guards(s, looped)) for s in candidates}
        if not place.bound:  # only negations constrain the events before the first one
            gaps = {tuple(_list_leading(s, looped)) for s in candidates}
        if len(gaps) > 1:
            raise NoLoops(f"{variable}, which may follow in several ways")
        rests = tuple(dict.fromkeys(s.rest for s in candidates))
        if len(preferences) > 1 or (len(rests) > 1 and preferences != {(frozenset(), frozenset())}):
            raise NoLoops("loops that can end in several ways")
        ((longer, sooner),) = preferences
        after = (s.rest for rest in place.open for s in derivatives.derive_steps(rest) if s.variable == variable)
        first = candidates[0]
        yield NfaTransition(
            place,
            variable,
            RunProgress(rests, tuple(dict.fromkeys(after)), place.bound | {variable}),
            any(s.variable == variable for s in required),
            any(s.variable == variable for s in later),
            replace(first, how=first.how if place.bound else None, guards=_guards(first, looped)),
            tuple(sorted(longer)),
            tuple(sorted(sooner)),
            any(_closable(s, strategy) and s.inside for s in candidates),
        )


def _rivals(
    step: derivatives.PatternStep, every: Iterable[derivatives.PatternStep]
) -> tuple[frozenset[str], frozenset[str]]:
    """The variables that, unlike the step, continue a greedy loop or end a reluctant one."""
    return (
        frozenset(s.variable for s in every if derivatives.continues_greedy_loop(s, step)),
        frozenset(s.variable for s in every if derivatives.ends_reluctant_loop(s, step)),
    )


def _guards(step: derivatives.PatternStep, looped: Collection[Not]) -> tuple[derivatives.NegationGuard, ...]:
    """Negations that guard a step; edges evaluate those inside loops only."""
    return tuple(g for g in step.guards if g.where is not derivatives.GuardScope.BETWEEN or g.negation in looped)


def _list_leading(step: derivatives.PatternStep, looped: Collection[Not]) -> list[Not]:
    """The negations of a loop that guard its first event."""
    guards = _guards(step, looped)
    return [guard.negation for guard in guards if guard.where is derivatives.GuardScope.BETWEEN]


def find_leading_negations(
    transitions: Iterable[NfaTransition], looped: Collection[Not]
) -> Iterator[tuple[Not, frozenset[str], frozenset[str]]]:
    """The negations at the start of the group that begins a match.

    Each with the bound variables before it, and those after it. Raises NoLoops if these do not
    identify the first event.
    """
    transitions = list(transitions)
    first = [t for t in transitions if not t.source.bound]
    for negation in dict.fromkeys(n for t in first for n in _list_leading(t.step, looped)):
        guarded = [t for t in first if negation in _list_leading(t.step, looped)]
        names = frozenset(t.variable for t in guarded)
        others = frozenset(t.variable for t in first) - names
        after_guarded = _reachable({t.target for t in guarded}, transitions)
        after_others = _reachable({t.target for t in first if t not in guarded}, transitions)
        before = frozenset(
            v for t in transitions for v in t.source.bound if t.source in after_others and t.variable in names
        )
        if not names & _bound_in(after_others):
            yield negation, frozenset(), names
        elif not (others | before) & _bound_in(after_guarded):
            yield negation, before, names
        else:
            raise NoLoops("a negation that begins a group, where other parts may come first")


def _reachable(places: set[RunProgress], transitions: Iterable[NfaTransition]) -> set[RunProgress]:
    """The places, and all that are reachable from them."""
    todo = [*places]
    targets: dict[RunProgress, list[RunProgress]] = {}
    for transition in transitions:
        targets.setdefault(transition.source, []).append(transition.target)
    for place in todo:
        new = [p for p in targets.get(place, ()) if p not in places]
        places |= {*new}
        todo += new
    return places


def _bound_in(places: Iterable[RunProgress]) -> frozenset[str]:
    return frozenset(variable for place in places for variable in place.bound)


def _closable(step: derivatives.PatternStep, strategy: Strategy) -> bool:
    """Whether a step may become impossible while its run waits."""
    stopped = any(guard.where is derivatives.GuardScope.UP_TO for guard in step.guards)
    return (step.how or strategy) in CONTIGUOUS or step.pause is not None or stopped


def _list_late_steps(place: RunProgress, strategy: Strategy, skips: bool) -> list[derivatives.PatternStep]:
    """The steps required once the closable ones have become impossible. Raises NoLoops."""
    required = []
    for rest in place.rests:
        possible = _possible(rest, place)
        closed = [s for s in possible if _closable(s, strategy)]
        kinds = {(s.how if s.how in CONTIGUOUS else None, s.pause, s.guards) for s in closed}
        if skips and len(kinds) > 1:
            raise NoLoops("several steps that may be finished while others are still waiting")
        remaining = [s for s in possible if s not in closed]
        continuing = {loop for step in remaining for loop in step.inside}
        # a loop that can no longer continue has ended
        required += derivatives.get_mandatory_steps(
            remaining, [loop for loop in derivatives.find_open_loops(rest) if loop in continuing]
        )
    return required


def _possible(rest: Pattern, place: RunProgress) -> list[derivatives.PatternStep]:
    possible = list(dict.fromkeys(derivatives.derive_steps(rest)))
    if not (is_optional(rest) and place.bound):
        return possible
    return [step for step in possible if not derivatives.is_excluded_by_end(step, rest)]


def remove_guards(pattern: Pattern) -> Pattern:
    """The pattern without the negations that edges evaluate: those in loops, and THEN with one."""

    def drop_next(node: Pattern) -> Pattern:
        remaining = tuple(p for p in get_parts(node) if not forbids_next_event(p))
        return node if len(remaining) == len(get_parts(node)) else replace_parts(node, remaining)

    def drop_guards(node: Pattern) -> Pattern:
        if is_loop(node):
            return replace(node, part=traversal.rewrite_pattern(node.part, _drop_negations))
        return drop_next(node)

    return traversal.rewrite_pattern(pattern, drop_guards)


def _drop_negations(node: Pattern) -> Pattern:
    if not any(map(is_negation, get_parts(node))):
        return node
    return replace_parts(node, tuple(p for p in get_parts(node) if not is_negation(p)))


def find_lasting(place: RunProgress) -> tuple[str, ...]:
    """The variables that a greedy loop at the end takes while possible. Raises NoLoops."""
    ends = [rest for rest in place.rests if is_optional(rest)]
    continuing = [s for rest in ends for s in derivatives.derive_steps(rest) if derivatives.continues_past_end(s, rest)]
    if not place.accepting or not continuing:
        return ()
    if len(place.rests) > 1:
        raise NoLoops("a greedy loop at the end that can be read in several ways")
    return tuple(dict.fromkeys(step.variable for step in continuing))


def is_barred_at_end(place: RunProgress, looped: Collection[Not]) -> bool:
    """Whether the next event decides if a match ends here: `THEN !B b` at the end."""
    return place.accepting and any(
        guard.where is derivatives.GuardScope.NEXT or guard.negation in looped
        for rest in place.rests
        for guard in derivatives.collect_guards(rest)
    )


def find_looped_negations(pattern: Pattern) -> set[Not]:
    """The negations inside loops, which edges evaluate."""
    return {negation for loop in traversal.iterate_loops(pattern) for negation in traversal.iterate_negations(loop)}


def is_reluctant_end(place: RunProgress) -> bool:
    """Whether a reluctant loop takes no more events once the match is complete."""
    return place.accepting and any(
        derivatives.is_excluded_by_end(step, rest) for rest in place.rests for step in derivatives.derive_steps(rest)
    )


def is_aligned(condition: Expr) -> bool:
    """Whether a condition reads `[i]` of several variables: `b[i].x > a[i].x`."""
    return len({r.variable for r in traversal.iterate_references(condition) if r.at in MOVING}) > 1


def align_check(condition: Expr, pattern: Pattern) -> ConditionCheck:
    """Places a condition on the last of its variables in an iteration of the group.

    At that point the newest event of each other variable is of the same iteration or, for those
    later in the group, of the previous one. Raises NoLoops.
    """
    moving = [r for r in traversal.iterate_references(condition) if r.at in MOVING]
    names = {r.variable for r in moving}
    assert any(names <= group for group in traversal.iterate_aligned_variables(pattern))
    order = [a.variable for a in traversal.iterate_positive_atoms(pattern) if a.variable in names]
    current = [v for v in order if any(r.variable == v and r.at is EventPosition.CURRENT for r in moving)]
    if not current or any(r.at not in (EventPosition.CURRENT, EventPosition.PREVIOUS) for r in moving):
        raise NoLoops(f"{format_condition(condition)}, which compiled code cannot evaluate")
    last = current[-1]

    def resolve(node: Expr) -> Expr:
        if not isinstance(node, FieldRef) or node.at not in MOVING or node.variable == last:
            return node
        if node.at is EventPosition.PREVIOUS and order.index(node.variable) < order.index(last):
            return node  # its newest event is of this iteration
        return replace(node, at=EventPosition.LAST)

    return ConditionCheck(traversal.rewrite_expr(condition, resolve), last)


def align_checks(
    conditions: Iterable[Expr], pattern: Pattern, variable: str, bound: frozenset[str]
) -> tuple[ConditionCheck, ...]:
    """The aligned conditions to evaluate on an event of a variable, if some are bound before."""
    checks = ((condition, align_check(condition, pattern)) for condition in conditions)
    return tuple(
        check
        for condition, check in checks
        if check.moving == variable and (variable in bound or not needs_previous_element(condition))
    )
