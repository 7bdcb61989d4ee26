"""Builds the automaton of a pattern; its states are derivatives, the rest of the pattern."""

from dataclasses import dataclass, replace

from ensue.analyzer.derivatives import GuardScope, NegationGuard, derive, remove_loop_bounds
from ensue.ir.expression import Aggregate, Expr, FieldRef
from ensue.ir.pattern import Kleene, Not, Pattern
from ensue.ir.selection import Strategy
from ensue.ir.traits import is_event, is_optional
from ensue.ir.traversal import get_kleene_variables, get_variables, iterate_positive_atoms, iterate_references
from ensue.planner import cyclic_nfa
from ensue.planner.negations import Negation, find_negations
from ensue.planner.physical_plan import EdgeStop, Nfa, NfaEdge, NfaState
from ensue.planner.predicate_pushdown import MOVING, BindingState, find_edge_checks, find_end_checks, find_late_checks
from ensue.printing.expression_printer import format_condition

LIMIT = 4_096  # states; the reference runs larger patterns


class TooManyStates(Exception):  # noqa: N818
    """The pattern's automaton would be too large."""


Key = tuple[Pattern, frozenset[str]]


def build_automaton(
    pattern: Pattern,
    conditions: tuple[Expr, ...],
    negative: tuple[Expr, ...] = (),
    *,
    late: tuple[Expr, ...] = (),
    early: bool = True,
    strategy: Strategy = Strategy.ANY,
) -> Nfa:
    """Builds the states reachable from the pattern.

    `conditions` are the conjuncts on positive variables that read several events, `negative` those
    that compare a negated variable with others. Those of `late` are evaluated at the end of the
    match. Runs count repetitions. `early`: a negation in AND may discard a run before its match is
    complete. Raises TooManyStates, and NoLoops if runs do not support the repeated groups.
    """
    if cyclic_nfa.has_loops(pattern):
        return _build_cyclic(pattern, conditions, negative, late, early, strategy)
    start: Key = (remove_loop_bounds(pattern), frozenset())
    depth = {start: 0}
    transitions: list[tuple[Key, str, Key]] = []
    todo = [start]
    while todo:
        key = todo.pop()
        rest, bound = key
        for atom in iterate_positive_atoms(rest):
            remaining = derive(rest, atom.variable)
            if remaining is None:
                continue
            target = (remaining, bound | {atom.variable})
            transitions.append((key, atom.variable, target))
            if target not in depth:
                if len(depth) >= LIMIT:
                    raise TooManyStates
                depth[target] = 0
                todo.append(target)
    _compute_depth(depth, transitions)
    numbers = {key: n for n, key in enumerate(sorted(depth, key=lambda k: _order(k, depth)))}
    negations = find_negations(pattern, negative)
    checks = _Checks(conditions, late, negations, get_kleene_variables(pattern), early)
    states = tuple(
        checks.state(n, _moment(key), accepting=is_optional(key[0]) and bool(key[1])) for key, n in numbers.items()
    )
    edges = (
        checks.edge((numbers[source], numbers[target]), variable, _moment(source), _moment(target))
        for source, variable, target in transitions
    )
    return Nfa(states, tuple(sorted(edges, key=lambda e: (e.source, e.target, e.variable))))


@dataclass(frozen=True, slots=True)
class _Checks:
    """The conditions and negations of a pattern, placed on the edges and states of its automaton."""

    conditions: tuple[Expr, ...]
    late: tuple[Expr, ...]
    negations: tuple[Negation, ...]
    counted: dict[str, Kleene]
    early: bool

    def edge(self, ends: tuple[int, int], variable: str, before: BindingState, after: BindingState) -> NfaEdge:
        kleene = frozenset(self.counted)
        closing = (before.bound & before.waiting & kleene) - after.waiting
        return NfaEdge(
            *ends,
            variable,
            first=variable not in before.bound,
            checks=find_edge_checks(self.conditions, before, after, variable, kleene),
            absences=tuple(
                n.absence(after)
                for n in self.negations
                if self._is_decided(n, after) and not self._is_decided(n, before)
            ),
            leaves=tuple(sorted(v for v in closing if self.counted[v].least > 1)),
        )

    def state(self, number: int, moment: BindingState, *, accepting: bool) -> NfaState:
        kleene = frozenset(self.counted)
        state = NfaState(number, moment.bound, moment.bound & moment.waiting & kleene)
        if not accepting:
            return state
        undecided = [n for n in self.negations if n.concerns(moment) and not self._is_decided(n, moment)]
        end_checks = find_end_checks(self.conditions, moment, kleene)
        return replace(
            state,
            accepting=True,
            checks=(*end_checks, *find_late_checks(self.late, moment)),
            absences=tuple(n.absence(moment) for n in undecided),
            pending=tuple(n.absence(moment) for n in self.negations if n.waits_for_window(moment)),
        )

    def _is_decided(self, negation: Negation, moment: BindingState) -> bool:
        return negation.is_decided(moment, frozenset(self.counted), early=self.early)


def _build_cyclic(
    pattern: Pattern,
    conditions: tuple[Expr, ...],
    negative: tuple[Expr, ...],
    late: tuple[Expr, ...],
    early: bool,
    strategy: Strategy,
) -> Nfa:
    """Builds the automaton of a pattern with repeated groups: its edges may lead backwards."""
    start = cyclic_nfa.get_start(pattern, strategy)
    transitions = cyclic_nfa.build_transitions(start, strategy)
    places = list(dict.fromkeys([start, *(t.target for t in transitions)]))
    numbers = {place: n for n, place in enumerate(places)}
    aligned = tuple(c for c in conditions if cyclic_nfa.is_aligned(c))
    others = tuple(c for c in conditions if not cyclic_nfa.is_aligned(c))
    looped = cyclic_nfa.find_looped_negations(pattern)
    negations = (
        *find_negations(cyclic_nfa.remove_guards(pattern), negative),
        *(_build_leading(*leading, negative) for leading in cyclic_nfa.find_leading_negations(transitions, looped)),
    )
    checks = _Checks(others, late, negations, get_kleene_variables(pattern), early)

    def state(place: cyclic_nfa.RunProgress) -> NfaState:
        moment = BindingState(place.bound, place.waiting)
        built = checks.state(numbers[place], moment, accepting=place.accepting)
        if built.checks and cyclic_nfa.is_reluctant_end(place):
            raise cyclic_nfa.NoLoops("a reluctant loop at the end with a condition on all of its events")
        if cyclic_nfa.is_barred_at_end(place, looped):
            raise cyclic_nfa.NoLoops("THEN or a repeated group with a negation at the end")
        last = cyclic_nfa.find_lasting(place)
        if last and negations:
            raise cyclic_nfa.NoLoops("a greedy loop at the end next to negations")
        return replace(built, lasting=last)

    def edge(transition: cyclic_nfa.NfaTransition) -> NfaEdge:
        before, after = (BindingState(p.bound, p.waiting) for p in (transition.source, transition.target))
        ends = numbers[transition.source], numbers[transition.target]
        plain = checks.edge(ends, transition.variable, before, after)
        in_step = cyclic_nfa.align_checks(aligned, pattern, transition.variable, before.bound)
        step, follows = transition.step, bool(transition.source.bound)
        return replace(
            plain,
            checks=(*plain.checks, *in_step),
            how=step.how or strategy if follows else None,
            own=follows and step.how is Strategy.NEXT,
            demanded=transition.demanded,
            required_late=transition.required_late,
            closes=transition.closes,
            longer=transition.longer,
            sooner=transition.sooner,
            pause=step.pause if follows else None,
            stops=tuple(
                _stop(guard, negative, before, after)
                for guard in step.guards
                if follows or guard.where in (GuardScope.TAKEN, GuardScope.UP_TO)  # else no event precedes it
            ),
        )

    edges = sorted(map(edge, transitions), key=lambda e: (e.source, e.target, e.variable))
    first = [e for e in edges if e.source == 0]
    if any(e.longer or e.sooner for e in first) and any(e.checks for e in first):
        raise cyclic_nfa.NoLoops("an optional loop at the start, with conditions on it")
    return Nfa(tuple(map(state, places)), tuple(edges), loops=True)


def _build_leading(
    negation: Not, before: frozenset[str], behind: frozenset[str], negative: tuple[Expr, ...]
) -> Negation:
    """A negation at the start of a group, before the first event of a match.

    No bound event exists there that a condition could compare it with.
    """
    atom = negation.part
    if not is_event(atom):
        raise cyclic_nfa.NoLoops("a negation of several events inside a group")
    refs = [r for c in negative if atom.variable in get_variables(c) for r in iterate_references(c)]
    if any(before or isinstance(r, Aggregate) for r in refs if r.variable != atom.variable):
        raise cyclic_nfa.NoLoops("conditions on a negation that begins a group")
    return Negation(atom, tuple(sorted(before)), tuple(sorted(behind)), (), (), open=True)


def _stop(guard: NegationGuard, negative: tuple[Expr, ...], before: BindingState, after: BindingState) -> EdgeStop:
    atom = guard.negation.part
    if not is_event(atom):
        raise cyclic_nfa.NoLoops("a negation of several events inside a group")
    conditions = tuple(c for c in negative if atom.variable in get_variables(c))
    for condition in conditions:
        others = [r for r in iterate_references(condition) if r.variable != atom.variable]
        if any(r.at in MOVING or not _is_known(r, before, after) for r in others):
            raise cyclic_nfa.NoLoops(f"{format_condition(condition)}, which is known only later")
    return EdgeStop(atom.variable, conditions, guard.where)


def _is_known(ref: FieldRef | Aggregate, before: BindingState, after: BindingState) -> bool:
    """Whether a run has the value that a guard reads before it takes the step."""
    if ref.variable in before.bound:
        return True
    never = ref.variable not in before.waiting and ref.variable not in after.bound
    return never and isinstance(ref, Aggregate)


def _compute_depth(depth: dict[Key, int], edges: list[tuple[Key, str, Key]]) -> None:
    """Computes the longest path to each state, without self-loops."""
    changed = True
    while changed:
        changed = False
        for source, _, target in edges:
            if source != target and depth[target] <= depth[source]:
                depth[target] = depth[source] + 1
                changed = True


def _order(key: Key, depth: dict[Key, int]) -> tuple[object, ...]:
    rest, bound = key
    return (depth[key], sorted(bound), [a.variable for a in iterate_positive_atoms(rest)])


def _moment(key: Key) -> BindingState:
    rest, bound = key
    return BindingState(bound, frozenset(a.variable for a in iterate_positive_atoms(rest)))


# Kernel size, which decides whether edges share their code.

MOST_LINES = 445  # with code per edge: up to about 3 s to compile
MOST_WAYS = 62  # edges out of a state, where similar ones share their code: bits of a number


def should_share_code(automaton: Nfa, strategy: Strategy) -> bool:
    """Whether similar edges share their code, as code per edge would take too long to compile."""
    fan_out = max(len(automaton.list_outgoing(state.number)) for state in automaton.states)
    return fan_out <= MOST_WAYS and estimate_lines(automaton, strategy) > MOST_LINES


def estimate_lines(automaton: Nfa, strategy: Strategy) -> int:
    """The approximate size of a kernel with code per edge: off by at most a third."""
    bound = {variable for state in automaton.states for variable in state.bound}
    open_ = {variable for state in automaton.states for variable in state.open}
    columns = 3 + len(bound) + 3 * len(open_)
    lines = 90 + columns + sum(8 + 30 * len(state.pending) for state in automaton.states)
    lines += sum(_lines(edge, automaton, columns) for edge in automaton.edges)
    # under skip-till-any-match the kernel has no code for runs that stop waiting
    return lines * 4 // 5 if strategy is Strategy.ANY else lines


def _lines(edge: NfaEdge, automaton: Nfa, columns: int) -> int:
    target = automaton.states[edge.target]
    waits = target.checks or target.absences or target.pending
    lines = 2 * len(edge.checks) + 6 * sum(check.each for check in edge.checks)
    lines += 15 * (len(edge.absences) + len(target.absences))
    if edge.source and not waits and not automaton.list_outgoing(edge.target):
        return lines + 18 + columns  # it emits a match at once
    return lines + 28 + columns * (2 if target.accepting else 1)
