"""The negations of a pattern: what each forbids, where it stands, and which events are its own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ensue.algebra.form import Form, form, guards_entry, is_absence, is_event, optional
from ensue.algebra.form import parts as parts_of
from ensue.algebra.pattern import Atom, Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Expr
from ensue.algebra.query import Query
from ensue.algebra.text import show_pattern
from ensue.algebra.walk import atoms, positives, variables
from ensue.algebra.window import ByEvents
from ensue.plan.physical import Absence, Reference, Role
from ensue.plan.physical_rules.bound import always_bound
from ensue.plan.physical_rules.placement import Moment, applies, ready
from ensue.schema import overlap


@dataclass(frozen=True, slots=True)
class Negation:
    """A negated part with the variables around it.

    In a sequence it stands behind `front` and before `behind`; in AND (`whole`) between the first
    and the last event of all of them.
    """

    part: Pattern
    front: tuple[str, ...]
    behind: tuple[str, ...]
    own: tuple[str, ...]  # variables whose events could stand there and do not count
    conditions: tuple[Expr, ...]  # that tie it to other variables
    whole: bool = False
    open: bool = False  # a match may have nothing before it, or nothing after it
    guards: bool = False  # it counts only where something behind it is bound

    @property
    def variable(self) -> str:
        return name_of(self.part)

    def absence(self, moment: Moment) -> Absence:
        """What there is to judge once some variables are bound."""
        shown = Moment(moment.bound | _inside(self.part), moment.waiting)
        return Absence(
            self.variable,
            tuple(v for v in self.front if v in moment.bound),
            tuple(v for v in self.behind if v in moment.bound),
            tuple(c for c in self.conditions if applies(c, shown)),
            whole=self.whole,
            own=tuple(v for v in self.own if v in moment.bound),
        )

    def decided(self, moment: Moment, kleene: frozenset[str], *, early: bool) -> bool:
        """Whether it stands between bound events and nothing can change its verdict.

        Under skip-till-next-match a negation in AND only speaks of whole matches: not `early`.
        """
        inside = _inside(self.part)
        shown = Moment(moment.bound | inside, moment.waiting - inside)
        if not all(ready(c, shown, kleene) for c in self.conditions):
            return False
        if self.whole:
            return (
                early
                and bool(moment.bound & set(self.front))
                and not (moment.waiting & set(self.front))
            )
        return bool(moment.bound & set(self.front) and moment.bound & set(self.behind))

    def waits(self, moment: Moment) -> bool:
        """Whether only the end of the window decides it, if the match ends here."""
        bound = moment.bound
        waiting = bool(bound & set(self.front)) and not bound & set(self.behind)
        return waiting and not self.whole and not self.guards

    def concerns(self, moment: Moment) -> bool:
        """Whether there is something behind it."""
        return bool(moment.bound & set(self.behind))


def name_of(part: Pattern) -> str:
    """What a plan calls the variable of a negation."""
    return part.variable if is_event(part) else show_pattern(part)


def _inside(part: Pattern) -> frozenset[str]:
    return frozenset(a.variable for a in atoms(part))


def negations_of(pattern: Pattern, conditions: tuple[Expr, ...]) -> tuple[Negation, ...]:
    """All negations of a pattern. `conditions` are those on negated events and others.

    >>> from ensue.algebra.pattern import And, Not, Seq
    >>> a, b, n = Atom("A", "a"), Atom("A", "b"), Atom("A", "n")
    >>> [
    ...     (x.front, x.behind, x.own)
    ...     for x in negations_of(And((Seq((a, Not(n), b)), Atom("A", "c"))), ())
    ... ]
    [(('a',), ('b',), ('c',))]
    """
    return tuple(
        replace(
            found,
            conditions=tuple(
                c
                for c in conditions
                if variables(c) & _inside(found.part) and not variables(c) <= _inside(found.part)
            ),
        )
        for found in _walk(pattern, (), ())
    )


def _walk(
    pattern: Pattern, around: tuple[Atom, ...], beside: tuple[Atom, ...]
) -> Iterator[Negation]:
    """`around`: the atoms of all that surrounds this part; `beside`: those that AND mixes in."""
    parts = parts_of(pattern)
    match form(pattern):
        case Form.SEQUENCE | Form.TOGETHER:
            mixed = form(pattern) is Form.TOGETHER
            for k, part in enumerate(parts):
                front, behind = parts[:k], parts[k + 1 :]
                others = tuple(a for p in (*front, *behind) for a in positives(p))
                if not is_absence(part):
                    yield from _walk(
                        part, (*around, *others), (*beside, *others) if mixed else beside
                    )
                elif mixed:
                    names = tuple(a.variable for a in others)
                    own = _own(part.part, (*beside, *others))
                    yield Negation(part.part, names, names, own, (), whole=True)
                else:
                    open_ = all(map(optional, front)) or all(map(optional, behind))
                    yield Negation(
                        part.part,
                        tuple(a.variable for p in front for a in positives(p)),
                        tuple(a.variable for p in behind for a in positives(p)),
                        _own(part.part, around if open_ else beside),
                        (),
                        open=open_,
                        guards=guards_entry(behind),
                    )
        case Form.CHOICE | Form.OPTION | Form.LOOP:
            for part in parts:
                yield from _walk(part, around, beside)
        case Form.EVENT | Form.LIST | Form.RESULT | Form.ABSENCE:
            return


def _own(part: Pattern, others: tuple[Atom, ...]) -> tuple[str, ...]:
    own = [a.type for a in atoms(part)]
    return tuple(a.variable for a in others if any(overlap(a.type, type_) for type_ in own))


def inner_query(query: Query, part: Pattern) -> Query:
    """The query whose matches are what the negation of a complex event forbids."""
    inside = _inside(part)
    return Query(
        part,
        strategy=Strategy.ANY,
        where=tuple(c for c in query.where if variables(c) <= inside),
        equivalence=query.equivalence,
        within=query.within,
    )


def why_not_inner(negation: Negation, query: Query, role: Role) -> str | None:
    """Why a complex event's matches cannot be looked for beside the events, if they cannot."""
    inner = role.inner
    assert inner is not None
    if isinstance(inner.structure, Reference) or inner.residual:
        return "the negation of a complex event that compiled code cannot evaluate"
    if negation.own:
        return "the negation of a complex event that could meet events of its own match"
    if negation.open and isinstance(query.within, ByEvents):
        return "the negation of a complex event at an end of a window of events"
    inside, always = _inside(negation.part), always_bound(negation.part)
    if any(not variables(c) & inside <= always for c in negation.conditions):
        return "a condition on an alternative of a negated event"
    return None
