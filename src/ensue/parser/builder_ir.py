"""The steps that a query builder collects, and their conversion to the pattern IR."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ensue.errors import QueryError
from ensue.ir import traversal
from ensue.ir.expression import Aggregate, Binary, EventPosition, Expr, FieldRef, Literal
from ensue.ir.pattern import UNTIL, Atom, Interval, Kleene, LoopExit, MaxGap, Maybe, Not, Pattern, Repeat, Seq, Then
from ensue.ir.selection import Strategy, convert_length
from ensue.ir.traits import NodeForm, build_group, get_form, get_parts, is_event, is_negation, is_optional, is_sequence


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """How often a step repeats, and how one repetition follows another."""

    least: int
    most: int | None
    inner: Strategy = Strategy.NEXT
    pause: MaxGap | None = None
    leave: LoopExit = LoopExit.FORK
    until: Not | None = None


@dataclass(frozen=True, slots=True)
class BuilderStep:
    """One step of a pattern: an event, or a group of steps."""

    part: Pattern
    how: Strategy | None = None  # how it follows the previous step; None: it is the first
    negated: bool = False
    pause: MaxGap | None = None
    loop: LoopSpec | None = None
    optional: bool = False

    @property
    def about(self) -> str | None:
        """The variable that field names without a prefix refer to."""
        return self.part.variable if is_event(self.part) else None


@dataclass(frozen=True, slots=True)
class StepCondition:
    """A condition, and the variable it applies to: each of its events, if it repeats."""

    expr: Expr
    about: str | None = None


def build_pattern(steps: Sequence[BuilderStep]) -> Pattern:
    """Builds the pattern of a list of steps."""
    return build_group(Seq, [_build_part(step, steps[:index]) for index, step in enumerate(steps)])


def _build_part(step: BuilderStep, before: Sequence[BuilderStep]) -> Pattern:
    if step.negated:
        return _build_absence(step, before)
    part = step.part if step.loop is None else _build_loop(step.part, step.loop, step.optional)
    if step.optional and not (step.loop is not None and step.loop.least <= 1):
        part = part if get_form(part) is NodeForm.OPTION else Maybe(part)
    if step.how is None or (step.how is Strategy.ANY and not _needs_word(part, step, before)):
        return part
    return Then(part, step.how, step.pause)


def _needs_word(part: Pattern, step: BuilderStep, before: Sequence[BuilderStep]) -> bool:
    """Whether THEN ANY differs from a comma, which more structures support.

    A part that may be the first of its group would follow as the group does. A negation before an
    optional part would also apply if that is missing, and one at an edge of the part up to the
    next part.
    """
    first = all(is_optional(_build_part(earlier, ())) for earlier in before if not earlier.negated)
    guarded = bool(before) and before[-1].negated and is_optional(part)
    edges = is_sequence(part) and any(map(is_negation, get_parts(part)))
    return step.pause is not None or first or guarded or edges


def _build_loop(part: Pattern, loop: LoopSpec, optional: bool) -> Pattern:
    least = 0 if optional and loop.least == 1 else loop.least
    plain = loop.inner is Strategy.ANY and loop.pause is None
    inner = None if plain else loop.inner
    repeated = (
        Kleene(part, least, loop.most, leave=loop.leave)
        if is_event(part)
        else Repeat(part, least, loop.most, loop.leave)
    )
    return replace(repeated, inner=inner, pause=loop.pause, until=loop.until)


def _build_absence(step: BuilderStep, before: Sequence[BuilderStep]) -> Pattern:
    if step.how is not None:
        return Then(Not(step.part), step.how)
    if step.pause is None:
        return Not(step.part)
    previous = next((earlier for earlier in reversed(before) if not earlier.negated), None)
    if previous is None or previous.about is None:
        raise QueryError(
            ".within_previous(...) of an absence counts from the event before it, but that is a group here",
            hint="give the times in the text of the query: !X x FROM b.end TO b.end + 5 minutes",
        )
    since = FieldRef(previous.about, "end", EventPosition.ONLY if previous.loop is None else EventPosition.LAST)
    until = Binary("+", since, Literal(convert_length(step.pause)))
    return Not(step.part, interval=Interval(since, until))


def build_until(part: Pattern, stop: Expr) -> tuple[Not, Expr]:
    """Builds the event that ends a loop by a condition, and the condition on it."""
    atoms_by_name = {atom.variable: atom for atom in traversal.iterate_atoms(part)}
    referenced = {
        reference.variable
        for reference in traversal.iterate_references(stop)
        if isinstance(reference, FieldRef)
        and reference.at is EventPosition.ONLY
        and reference.variable in atoms_by_name
    }
    if len(referenced) != 1:
        raise QueryError(
            ".until(...) needs one event of the loop, and it is not clear which one",
            hint='as in .until("b.price > 3"); an event of another type: .until("u", "X")',
        )
    (variable,) = referenced

    def renamed(field: FieldRef) -> FieldRef:
        if field.variable == variable and field.at is EventPosition.ONLY:
            return replace(field, variable=variable + UNTIL)
        return field

    return Not(Atom(atoms_by_name[variable].type, variable + UNTIL)), _replace_fields(stop, renamed)


def index_condition(condition: StepCondition, pattern: Pattern) -> Expr:
    """Writes `b[i].x` for `b.x` in a condition on b, if b has several events.

    The same holds for variables that each round of its repeated group binds once.
    """
    if condition.about is None:
        return condition.expr
    indexed = _find_aligned(condition.about, pattern)
    if condition.about in traversal.get_kleene_variables(pattern):
        indexed |= {condition.about}

    def index(field: FieldRef) -> FieldRef:
        is_indexed = field.at is EventPosition.ONLY and field.variable in indexed
        return replace(field, at=EventPosition.CURRENT) if is_indexed else field

    return _replace_fields(condition.expr, index)


def _find_aligned(variable: str, pattern: Pattern) -> frozenset[str]:
    """Returns the variables that each round of the innermost loop around a variable binds once."""
    variables: frozenset[str] = frozenset()
    for loop, names in zip(traversal.iterate_loops(pattern), traversal.iterate_aligned_variables(pattern), strict=True):
        if variable in {atom.variable for atom in traversal.iterate_atoms(loop)}:
            negated = variable not in {atom.variable for atom in traversal.iterate_positive_atoms(loop)}
            variables = names if negated or variable in names else frozenset()
    return variables


def _replace_fields(expr: Expr, change: Callable[[FieldRef], FieldRef]) -> Expr:
    """Replaces the fields of an expression, except inside aggregates."""
    match expr:
        case Aggregate():
            return expr
        case FieldRef():
            return change(expr)
        case _:
            inside = tuple(_replace_fields(operand, change) for operand in traversal.get_operands(expr))
            return traversal.replace_operands(expr, inside)
