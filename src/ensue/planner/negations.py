"""Negations of a pattern: their forbidden part, neighbours and conditions, and their pushdown into a structure."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ensue.analyzer.interval_negation import get_interval_ends, iterate_interval_negations
from ensue.ir import traits
from ensue.ir.expression import Binary, EventPosition, Expr, FieldRef, FunctionCall, Literal
from ensue.ir.pattern import Atom, Pattern
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, Strategy
from ensue.ir.traversal import get_variables, iterate_atoms, iterate_positive_atoms
from ensue.planner import physical_plan
from ensue.planner.capabilities import find_always_bound
from ensue.planner.predicate_pushdown import BindingState, is_applicable, is_decided
from ensue.printing.pattern_printer import format_pattern
from ensue.schema import Schema, ValueKind, types_overlap


@dataclass(frozen=True, slots=True)
class Negation:
    """A negated part with the variables around it.

    In a sequence it is after `front` and before `behind`; in AND (`whole`) between the first and
    the last event of all of them.
    """

    part: Pattern
    front: tuple[str, ...]
    behind: tuple[str, ...]
    own: tuple[str, ...]  # variables whose events match its type but do not count
    conditions: tuple[Expr, ...]  # that compare it with other variables
    whole: bool = False
    open: bool = False  # a match may have no event before it, or none after it
    guards: bool = False  # it counts only if an event after it is bound

    @property
    def variable(self) -> str:
        return get_negation_name(self.part)

    def absence(self, moment: BindingState) -> physical_plan.NegationCheck:
        """The negation to evaluate once some variables are bound."""
        shown = BindingState(moment.bound | _inside(self.part), moment.waiting)
        return physical_plan.NegationCheck(
            self.variable,
            tuple(v for v in self.front if v in moment.bound),
            tuple(v for v in self.behind if v in moment.bound),
            tuple(c for c in self.conditions if is_applicable(c, shown)),
            whole=self.whole,
            own=tuple(v for v in self.own if v in moment.bound),
        )

    def is_decided(self, moment: BindingState, kleene: frozenset[str], *, early: bool) -> bool:
        """Whether its neighbours are bound and no later event can change its result.

        Under skip-till-next-match a negation in AND applies to complete matches only: not `early`.
        """
        inside = _inside(self.part)
        shown = BindingState(moment.bound | inside, moment.waiting - inside)
        if not all(is_decided(c, shown, kleene) for c in self.conditions):
            return False
        if self.whole:
            return early and bool(moment.bound & set(self.front)) and not (moment.waiting & set(self.front))
        return bool(moment.bound & set(self.front) and moment.bound & set(self.behind))

    def waits_for_window(self, moment: BindingState) -> bool:
        """Whether only the end of the window decides it, if the match ends here."""
        bound = moment.bound
        waiting = bool(bound & set(self.front)) and not bound & set(self.behind)
        return waiting and not self.whole and not self.guards

    def concerns(self, moment: BindingState) -> bool:
        """Whether an event after it is bound."""
        return bool(moment.bound & set(self.behind))


def get_negation_name(part: Pattern) -> str:
    """The name of a negation's variable in a plan."""
    return part.variable if traits.is_event(part) else format_pattern(part)


def _inside(part: Pattern) -> frozenset[str]:
    return frozenset(a.variable for a in iterate_atoms(part))


def find_negations(pattern: Pattern, conditions: tuple[Expr, ...]) -> tuple[Negation, ...]:
    """All negations of a pattern. `conditions` are those on negated and other events.

    >>> from ensue.ir.pattern import And, Not, Seq
    >>> a, b, n = Atom("A", "a"), Atom("A", "b"), Atom("A", "n")
    >>> [(x.front, x.behind, x.own) for x in find_negations(And((Seq((a, Not(n), b)), Atom("A", "c"))), ())]
    [(('a',), ('b',), ('c',))]
    """
    return tuple(
        replace(
            negation,
            conditions=tuple(
                c
                for c in conditions
                if get_variables(c) & _inside(negation.part) and not get_variables(c) <= _inside(negation.part)
            ),
        )
        for negation in _walk(pattern, (), ())
    )


def _walk(pattern: Pattern, around: tuple[Atom, ...], beside: tuple[Atom, ...]) -> Iterator[Negation]:
    """`around`: the atoms of all enclosing parts; `beside`: those that AND interleaves."""
    inner = traits.get_parts(pattern)
    match traits.get_form(pattern):
        case traits.NodeForm.SEQUENCE | traits.NodeForm.TOGETHER:
            mixed = traits.get_form(pattern) is traits.NodeForm.TOGETHER
            for k, part in enumerate(inner):
                front, behind = inner[:k], inner[k + 1 :]
                others = tuple(a for p in (*front, *behind) for a in iterate_positive_atoms(p))
                if not traits.is_negation(part):
                    yield from _walk(part, (*around, *others), (*beside, *others) if mixed else beside)
                elif mixed:
                    names = tuple(a.variable for a in others)
                    own = _list_own_variables(part.part, (*beside, *others))
                    yield Negation(part.part, names, names, own, (), whole=True)
                else:
                    open_ = all(map(traits.is_optional, front)) or all(map(traits.is_optional, behind))
                    yield Negation(
                        part.part,
                        tuple(a.variable for p in front for a in iterate_positive_atoms(p)),
                        tuple(a.variable for p in behind for a in iterate_positive_atoms(p)),
                        _list_own_variables(part.part, around if open_ else beside),
                        (),
                        open=open_,
                        guards=traits.precedes_then(behind),
                    )
        case traits.NodeForm.CHOICE | traits.NodeForm.OPTION | traits.NodeForm.LOOP:
            for part in inner:
                yield from _walk(part, around, beside)
        case traits.NodeForm.EVENT | traits.NodeForm.LIST | traits.NodeForm.RESULT | traits.NodeForm.ABSENCE:
            return


def _list_own_variables(part: Pattern, others: tuple[Atom, ...]) -> tuple[str, ...]:
    types = [a.type for a in iterate_atoms(part)]
    return tuple(a.variable for a in others if any(types_overlap(a.type, type_) for type_ in types))


def build_inner_query(query: Query, part: Pattern) -> Query:
    """The query whose matches the negation of a nested pattern forbids."""
    inside = _inside(part)
    return Query(
        part,
        strategy=Strategy.ANY,
        where=tuple(c for c in query.where if get_variables(c) <= inside),
        equivalence=query.equivalence,
        within=query.within,
    )


def why_not_inner(negation: Negation, query: Query, role: physical_plan.Role) -> str | None:
    """Why matches of a negated nested pattern cannot be searched separately, if they cannot."""
    inner = role.inner
    assert inner is not None
    if isinstance(inner.structure, physical_plan.ReferencePlan) or inner.residual:
        return "the negation of a nested pattern that compiled code cannot evaluate"
    if negation.own:
        return "the negation of a nested pattern that may match events of its own match"
    if negation.open and isinstance(query.within, ByEvents):
        return "the negation of a nested pattern at an end of a window of events"
    inside, always = _inside(negation.part), find_always_bound(negation.part)
    if any(not get_variables(c) & inside <= always for c in negation.conditions):
        return "a condition on an alternative of a negated event"
    return None


# Negations with an explicit interval, which are checked on matches found without them.

_POSITIONS = (EventPosition.ONLY, EventPosition.NTH, EventPosition.LAST)


def why_not_on_matches(query: Query, schema: Schema, absent: Iterable[Expr]) -> str | None:
    """Why interval negations cannot be checked on complete matches, if they cannot."""
    negated = find_interval_variables(query.pattern)
    if traits.is_interval_negation(query.pattern) or not _has_events(query.pattern):
        return "a pattern, or a part of it, that is only a negation"
    if query.choose is not None:
        return "CHOOSE among matches that wait for time to pass"
    if any(get_variables(condition) & negated for condition in absent):
        return "a condition between the events of a match and one that its interval forbids"
    if schema.time_kind not in (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.TIMESTAMP):
        return f"intervals in a time of kind {schema.time_kind.value}"
    if not all(_is_computed(end, schema) for end in get_interval_ends(query.pattern)):
        return "an end of an interval that is not a time of an event plus or minus a length"
    return None


def find_interval_variables(pattern: Pattern) -> set[str]:
    """The variables of interval negations."""
    negations = (negation for negation, _ in iterate_interval_negations(pattern))
    return {atom.variable for negation in negations for atom in iterate_atoms(negation)}


def _has_events(pattern: Pattern) -> bool:
    """Whether every part has events besides its interval negations."""
    return traits.is_interval_negation(pattern) or (
        any(iterate_positive_atoms(pattern))
        and all(_has_events(p) for p in traits.get_parts(pattern) if traits.get_parts(p))
    )


def _is_computed(end: Expr, schema: Schema) -> bool:
    match end:
        case FieldRef(name=name, at=at):
            return name in (schema.start, schema.end) and at in _POSITIONS
        case Literal(value=bool() | str() | None):
            return False
        case Literal(value=float()):
            return schema.time_kind is ValueKind.FLOAT
        case Literal(value=int(value)):
            return abs(value) < 2**53
        case Literal(value=datetime() | timedelta()):
            return True
        case Binary(operator="+" | "-", left=left, right=right):
            return _is_computed(left, schema) and _is_computed(right, schema)
        case FunctionCall(function="greatest" | "least", arguments=arguments):
            return all(_is_computed(argument, schema) for argument in arguments)
        case _:
            return False


def remove_lapses(query: Query) -> Query:
    """Drops the interval negations, which are checked on the matches afterwards.

    >>> from ensue.ir.pattern import And, Atom, Interval, Not
    >>> lapse = Not(Atom("C", "c"), interval=Interval(Literal(1), Literal(2)))
    >>> remove_lapses(Query(And((Atom("A", "a"), lapse)))).pattern
    Atom(type='A', variable='a')
    """
    negated = find_interval_variables(query.pattern)
    where = tuple(c for c in query.where if not get_variables(c) & negated)
    return replace(query, pattern=_drop_lapses(query.pattern), where=where)


def _drop_lapses(pattern: Pattern) -> Pattern:
    inner = traits.get_parts(pattern)
    remaining = tuple(_drop_lapses(part) for part in inner if not traits.is_interval_negation(part))
    if len(remaining) == 1 < len(inner):
        return remaining[0]
    return traits.replace_parts(pattern, remaining) if inner else pattern


# Negation pushdown: a negation is evaluated by its event (PNCEP), during construction or last.

PUSH = "push_negation"  # names for `off`
IN_CONSTRUCTION = "negation_in_construction"


def push_negation(
    stacks: physical_plan.InstanceStacks, *, intervals: bool, complex_: Collection[str] = (), off: Collection[str] = ()
) -> physical_plan.InstanceStacks:
    """Pushes negations into instance stacks where possible: a negated event empties a stack.

    It removes the older instances of the previous variable, so that no later event reaches them.
    Existing matches, and RIPs taken before, stay unchanged. `complex_` are the negated variables
    that stand for several events.
    """
    empty: tuple[tuple[physical_plan.NegationCheck, ...], ...] = ((),) * len(stacks.variables)
    looked_up, pushed = [list(group) for group in empty], [list(group) for group in empty]
    for place, group in enumerate(stacks.absences):
        for absence in group:
            several = absence.variable in complex_
            why = _why_not_pushed(absence, intervals=intervals, several=several)
            single = why is None
            if IN_CONSTRUCTION in off:
                way = f"a filter on complete sequences: {IN_CONSTRUCTION} is off"
                looked_up[0].append(replace(absence, newest=single, way=way))
            elif single and PUSH not in off:
                front = stacks.variables.index(absence.after[0])
                pushed[front].append(replace(absence, way="pushed"))
            else:
                way = f"looked up: {why or f'{PUSH} is off'}"
                looked_up[place].append(replace(absence, newest=single, way=way))
    return replace(
        stacks, absences=tuple(map(tuple, looked_up)), pushed=tuple(map(tuple, pushed)) if any(pushed) else ()
    )


def _why_not_pushed(absence: physical_plan.NegationCheck, *, intervals: bool, several: bool) -> str | None:
    if several:
        return "it has several events"
    if absence.conditions:
        return "its conditions relate it to other events"
    if not absence.after:
        return "at the start it looks back over the window"
    if intervals:
        return "events with a duration may overlap it"
    return None


def get_dropped(structure: physical_plan.Structure) -> frozenset[str]:
    """Negated variables whose events a structure evaluates on arrival and does not store."""
    match structure:
        case physical_plan.Nfa() | physical_plan.InstanceStacks():
            return structure.dropped
        case physical_plan.JoinTree() | physical_plan.CompactPlan() | physical_plan.ReferencePlan():
            return frozenset()


def restrict_pushdown(structure: physical_plan.Structure, pushed: Collection[str]) -> physical_plan.Structure:
    """Restricts pushdown to these variables, for a state that was saved with fewer."""
    match structure:
        case physical_plan.Nfa(states=states):
            barred = (tuple(v for v in state.barred if v in pushed) for state in states)
            changed = map(lambda s, b: replace(s, barred=b), states, barred)
            return replace(structure, states=tuple(changed))
        case physical_plan.InstanceStacks():
            absences = [list(group) for group in structure.absences]
            still_pushed = []
            for place, group in enumerate(structure.pushed):
                still_pushed.append(tuple(a for a in group if a.variable in pushed))
                absences[place] += [a for a in group if a.variable not in pushed]
            return replace(structure, absences=tuple(map(tuple, absences)), pushed=tuple(still_pushed))
        case (
            physical_plan.JoinTree() | physical_plan.CompactPlan() | physical_plan.ReferencePlan()
        ):  # they push nothing
            return structure


# Pushdown into an automaton: a negated event discards the runs it bars, and is dropped.


def push_into_runs(
    automaton: physical_plan.Nfa, negations: Collection[Negation], *, intervals: bool, off: Collection[str] = ()
) -> physical_plan.Nfa:
    """Pushes negations into an automaton where possible.

    A negated event bars a run if every event that the run can take next is after the negation,
    while the events before the negation are bound. If a run is neither barred nor waits for an
    event before the negation, the negated events must be stored and looked up.
    """
    ways: dict[str, str] = {}
    barred: dict[int, list[str]] = {}
    for negation in negations:
        why = _why_not(automaton, negation, intervals=intervals)
        barred_states = _find_barred_states(automaton, negation)
        if why is None and PUSH in off:
            why = f"{PUSH} is off"
        if why is None and not (barred_states and _are_all_decided(automaton, negation, barred_states)):
            why = "events before it may still arrive, or no run is barred"
        ways[negation.variable] = "pushed" if why is None else f"looked up: {why}"
        for number in barred_states if why is None else ():
            barred.setdefault(number, []).append(negation.variable)

    def annotate(absences: tuple[physical_plan.NegationCheck, ...]) -> tuple[physical_plan.NegationCheck, ...]:
        return tuple(replace(a, way=ways[a.variable]) for a in absences)

    return replace(
        automaton,
        states=tuple(
            replace(s, absences=annotate(s.absences), barred=tuple(barred.get(s.number, ()))) for s in automaton.states
        ),
        edges=tuple(replace(e, absences=annotate(e.absences)) for e in automaton.edges),
    )


def _why_not(automaton: physical_plan.Nfa, negation: Negation, *, intervals: bool) -> str | None:
    if not traits.is_event(negation.part):
        return "it has several events"
    if negation.whole:
        return "it is between the first and the last event of AND"
    if negation.conditions:
        return "its conditions relate it to other events"
    if intervals:
        return "events with a duration may overlap it"
    if negation.own:
        return "events of the match itself may have its type"
    on_edges = [a for e in automaton.edges for a in e.absences]
    at_ends = [a for s in automaton.states for a in (*s.absences, *s.pending)]
    if any(a.variable == negation.variable for a in at_ends) or any(
        a.variable == negation.variable and not a.after for a in on_edges
    ):
        return "a match may have no event before it, or none after it"
    return None


def _open(state: physical_plan.NfaState, negation: Negation) -> bool:
    """Whether a negated event could arrive between the bound and the expected events of a run."""
    return bool(state.bound & set(negation.front)) and not state.bound & set(negation.behind)


def _forbids(edge: physical_plan.NfaEdge, negation: Negation) -> bool:
    return any(a.variable == negation.variable for a in edge.absences)


def _find_barred_states(automaton: physical_plan.Nfa, negation: Negation) -> set[int]:
    """States whose runs cannot be completed once the negated event has arrived."""
    return _largest_closed_set(
        automaton,
        negation,
        lambda edge, good: _forbids(edge, negation) or (edge.variable not in negation.front and edge.target in good),
    )


def _are_all_decided(automaton: physical_plan.Nfa, negation: Negation, barred: set[int]) -> bool:
    """Whether the negated event bars or ignores a run in every state."""
    harmless = _largest_closed_set(
        automaton,
        negation,
        lambda edge, good: edge.variable in negation.front or (not _forbids(edge, negation) and edge.target in good),
    )
    return all(s.number in barred or s.number in harmless for s in automaton.states if _open(s, negation))


def _largest_closed_set(
    automaton: physical_plan.Nfa, negation: Negation, fits: Callable[[physical_plan.NfaEdge, set[int]], bool]
) -> set[int]:
    """The largest set of open states all of whose edges satisfy the predicate."""
    good = {s.number for s in automaton.states if _open(s, negation)}
    while bad := {n for n in good if not all(fits(e, good) for e in automaton.list_outgoing(n))}:
        good -= bad
    return good
