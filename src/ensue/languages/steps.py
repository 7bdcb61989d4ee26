"""The parts that a builder has put together, and what they are in the algebra."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ensue.algebra.form import (
    Form,
    form,
    grouped,
    is_absence,
    is_event,
    is_sequence,
    optional,
    parts,
)
from ensue.algebra.pattern import (
    UNTIL,
    Atom,
    Interval,
    Kleene,
    Leave,
    Maybe,
    Not,
    Pattern,
    Pause,
    Repeat,
    Seq,
    Then,
)
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Aggregate, At, Binary, Expr, Field, Literal
from ensue.algebra.walk import (
    atoms,
    in_step,
    kleenes,
    loops,
    operands,
    positives,
    references,
    with_operands,
)
from ensue.algebra.window import constant_of
from ensue.errors import QueryError


@dataclass(frozen=True, slots=True)
class Loop:
    """How often a part comes, and how one time of it follows another."""

    least: int
    most: int | None
    inner: Strategy = Strategy.NEXT
    pause: Pause | None = None
    leave: Leave = Leave.FORK
    until: Not | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a pattern: an event, or a group of parts."""

    part: Pattern
    how: Strategy | None = None  # how it follows what is before it; None: it is the first
    negated: bool = False
    pause: Pause | None = None
    loop: Loop | None = None
    optional: bool = False

    @property
    def about(self) -> str | None:
        """The variable whose fields need no name in front."""
        return self.part.variable if is_event(self.part) else None


@dataclass(frozen=True, slots=True)
class Said:
    """A condition, and the variable that it is about: each event of it, where it has several."""

    expr: Expr
    about: str | None = None


def pattern_of(steps: Sequence[Step]) -> Pattern:
    """What the steps are together."""
    made = [_part(step, steps[:place]) for place, step in enumerate(steps)]
    return grouped(Seq, made)


def _part(step: Step, before: Sequence[Step]) -> Pattern:
    if step.negated:
        return _absence(step, before)
    part = step.part if step.loop is None else _looped(step.part, step.loop, step.optional)
    if step.optional and not (step.loop is not None and step.loop.least <= 1):
        part = part if form(part) is Form.OPTION else Maybe(part)
    if step.how is None or (step.how is Strategy.ANY and not _needs_word(part, step, before)):
        return part
    return Then(part, step.how, step.pause)


def _needs_word(part: Pattern, step: Step, before: Sequence[Step]) -> bool:
    """Whether THEN ANY says more than a comma, which more structures can run.

    A part that may be the first of its group would follow as the group does. A negation before an
    optional part would count without it, and one at an edge of the part up to the next part.
    """
    first = all(optional(_part(one, ())) for one in before if not one.negated)
    guarded = bool(before) and before[-1].negated and optional(part)
    edges = is_sequence(part) and any(map(is_absence, parts(part)))
    return step.pause is not None or first or guarded or edges


def _looped(part: Pattern, loop: Loop, optional: bool) -> Pattern:
    least = 0 if optional and loop.least == 1 else loop.least
    plain = loop.inner is Strategy.ANY and loop.pause is None
    inner = None if plain else loop.inner
    made = (
        Kleene(part, least, loop.most, leave=loop.leave)
        if is_event(part)
        else Repeat(part, least, loop.most, loop.leave)
    )
    return replace(made, inner=inner, pause=loop.pause, until=loop.until)


def _absence(step: Step, before: Sequence[Step]) -> Pattern:
    if step.how is not None:
        return Then(Not(step.part), step.how)
    if step.pause is None:
        return Not(step.part)
    bound = next((one for one in reversed(before) if not one.negated), None)
    if bound is None or bound.about is None:
        raise QueryError(
            ".within_previous(...) of an absence counts from the event before it, but that is a "
            "group here",
            hint="give the times in the text of the query: !X x FROM b.end TO b.end + 5 minutes",
        )
    since = Field(bound.about, "end", At.ONLY if bound.loop is None else At.LAST)
    until = Binary("+", since, Literal(constant_of(step.pause)))
    return Not(step.part, interval=Interval(since, until))


def ended_by(part: Pattern, stop: Expr) -> tuple[Not, Expr]:
    """The event that ends a loop of this part by a condition, and the condition of it."""
    own = {atom.variable: atom for atom in atoms(part)}
    meant = {
        found.variable
        for found in references(stop)
        if isinstance(found, Field) and found.at is At.ONLY and found.variable in own
    }
    if len(meant) != 1:
        raise QueryError(
            ".until(...) needs one event of the loop, and it is not clear which one",
            hint='as in .until("b.price > 3"); an event of another type: .until("u", "X")',
        )
    (variable,) = meant

    def renamed(field: Field) -> Field:
        if field.variable == variable and field.at is At.ONLY:
            return replace(field, variable=variable + UNTIL)
        return field

    return Not(Atom(own[variable].type, variable + UNTIL)), _with_fields(stop, renamed)


def of_each(said: Said, pattern: Pattern) -> Expr:
    """A condition with `b[i].x` for `b.x` where b is what it is about and has several events.

    So have the variables that each time of its repeated group binds once.
    """
    if said.about is None:
        return said.expr
    running = _in_its_group(said.about, pattern)
    if said.about in kleenes(pattern):
        running |= {said.about}

    def moving(field: Field) -> Field:
        at_once = field.at is At.ONLY and field.variable in running
        return replace(field, at=At.CURRENT) if at_once else field

    return _with_fields(said.expr, moving)


def _in_its_group(variable: str, pattern: Pattern) -> frozenset[str]:
    """What the innermost repeated group around a variable binds once each time."""
    found: frozenset[str] = frozenset()
    for loop, names in zip(loops(pattern), in_step(pattern), strict=True):
        if variable in {atom.variable for atom in atoms(loop)}:
            negated = variable not in {atom.variable for atom in positives(loop)}
            found = names if negated or variable in names else frozenset()
    return found


def _with_fields(expr: Expr, change: Callable[[Field], Field]) -> Expr:
    """An expression with other fields, but for those in aggregates."""
    match expr:
        case Aggregate():
            return expr
        case Field():
            return change(expr)
        case _:
            inside = tuple(_with_fields(operand, change) for operand in operands(expr))
            return with_operands(expr, inside)
