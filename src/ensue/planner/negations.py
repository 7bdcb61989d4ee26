"""Negations of a pattern: their forbidden part, their neighbours and their conditions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ensue.analyzer.interval_negation import get_interval_ends, iterate_interval_negations
from ensue.ir.expression import Binary, EventPosition, Expr, FieldRef, FunctionCall, Literal
from ensue.ir.pattern import Atom, Pattern
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, Strategy
from ensue.ir.traits import (
    NodeForm,
    get_form,
    get_parts,
    is_event,
    is_interval_negation,
    is_negation,
    is_optional,
    precedes_then,
    replace_parts,
)
from ensue.ir.traversal import get_variables, iterate_atoms, iterate_positive_atoms
from ensue.planner.capabilities import find_always_bound
from ensue.planner.physical_plan import NegationCheck, ReferencePlan, Role
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

    def absence(self, moment: BindingState) -> NegationCheck:
        """The negation to evaluate once some variables are bound."""
        shown = BindingState(moment.bound | _inside(self.part), moment.waiting)
        return NegationCheck(
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
    return part.variable if is_event(part) else format_pattern(part)


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
    inner = get_parts(pattern)
    match get_form(pattern):
        case NodeForm.SEQUENCE | NodeForm.TOGETHER:
            mixed = get_form(pattern) is NodeForm.TOGETHER
            for k, part in enumerate(inner):
                front, behind = inner[:k], inner[k + 1 :]
                others = tuple(a for p in (*front, *behind) for a in iterate_positive_atoms(p))
                if not is_negation(part):
                    yield from _walk(part, (*around, *others), (*beside, *others) if mixed else beside)
                elif mixed:
                    names = tuple(a.variable for a in others)
                    own = _list_own_variables(part.part, (*beside, *others))
                    yield Negation(part.part, names, names, own, (), whole=True)
                else:
                    open_ = all(map(is_optional, front)) or all(map(is_optional, behind))
                    yield Negation(
                        part.part,
                        tuple(a.variable for p in front for a in iterate_positive_atoms(p)),
                        tuple(a.variable for p in behind for a in iterate_positive_atoms(p)),
                        _list_own_variables(part.part, around if open_ else beside),
                        (),
                        open=open_,
                        guards=precedes_then(behind),
                    )
        case NodeForm.CHOICE | NodeForm.OPTION | NodeForm.LOOP:
            for part in inner:
                yield from _walk(part, around, beside)
        case NodeForm.EVENT | NodeForm.LIST | NodeForm.RESULT | NodeForm.ABSENCE:
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


def why_not_inner(negation: Negation, query: Query, role: Role) -> str | None:
    """Why matches of a negated nested pattern cannot be searched separately, if they cannot."""
    inner = role.inner
    assert inner is not None
    if isinstance(inner.structure, ReferencePlan) or inner.residual:
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
    if is_interval_negation(query.pattern) or not _has_events(query.pattern):
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
    return is_interval_negation(pattern) or (
        any(iterate_positive_atoms(pattern)) and all(_has_events(p) for p in get_parts(pattern) if get_parts(p))
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
    inner = get_parts(pattern)
    remaining = tuple(_drop_lapses(part) for part in inner if not is_interval_negation(part))
    if len(remaining) == 1 < len(inner):
        return remaining[0]
    return replace_parts(pattern, remaining) if inner else pattern
