"""Chooses the plan of a checked query: the same input, the same plan."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ensue.algebra.arrangement import optional
from ensue.algebra.pattern import And, Apply, Atom, Kleene, Maybe, Not, Or, Pattern, Seq
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import At, Expr, Field
from ensue.algebra.query import Query
from ensue.algebra.walk import (
    atoms,
    bound_variables,
    kleenes,
    negations,
    positives,
    references,
    results,
    variables,
)
from ensue.plan.automaton import TooManyStates, automaton
from ensue.plan.bound import always_bound
from ensue.plan.features import Kinds, fits_a_kernel
from ensue.plan.physical import (
    Absence,
    Automaton,
    Check,
    Plan,
    Reference,
    Role,
    Stacks,
    Structure,
    Tree,
)
from ensue.plan.placement import MOVING, moving_variable, unary
from ensue.plan.rules import RULES
from ensue.plan.tree import Shape, tree_of, why_no_tree
from ensue.plan.with_operators import Asked, plan_with_operators
from ensue.schema import Schema

MOST_ROLES = 60  # bits of the mask
CHOICES = ("stacks", "window", "predicate_placement")  # what `off` may name beside the rules


def choose(
    query: Query,
    schema: Schema,
    *,
    off: Collection[str] = (),
    structure: str | None = None,
    shape: Shape | None = None,
    python: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for a checked query. `off` names rules to leave out, to measure their effect.

    `structure="tree"` asks for a join tree, of a `shape` or left-deep; where the pattern allows
    none, the plan is what it would be otherwise. `python` names the operators of users that cannot
    be compiled, with the reason.
    """
    notes = []
    for rule in RULES:
        name = rule.__name__
        if name in off:
            notes.append(f"{name}: off")
            continue
        rewritten = rule(query)
        if rewritten != query:
            notes.append(f"{name}: applied")
        query = rewritten
    sorted_out = _sort_conditions(query)
    kinds = Kinds(schema, query.pattern)
    if any(results(query.pattern)):
        notes += [f"{choice}: off" for choice in CHOICES if choice in off]
        asked = Asked(shape, "predicate_placement" not in off, "window" not in off, python or {})
        return plan_with_operators(
            query, sorted_out.roles, sorted_out.between, kinds, notes, asked
        )
    reason = _no_kernel(query, schema, sorted_out, kinds)
    tied: list[Expr] = []
    residual: list[Expr] = []
    for condition in sorted_out.between:
        fits = fits_a_kernel(condition, kinds)
        if not fits and reason is None and not _can_wait(condition, query):
            reason = "a condition between events that compiled code cannot judge"
        (tied if fits else residual).append(condition)
    notes += [f"{choice}: off" for choice in CHOICES if choice in off]
    built: Structure | None = None if reason is None else Reference(reason)
    if built is None and structure == "tree":
        push = "predicate_placement" not in off
        built = tree_of(query, tuple(tied), sorted_out.absent, shape, push=push)
        if built is None:
            why = why_no_tree(query, tuple(tied), sorted_out.absent)
            notes.append(f"no join tree, because {why}")
    if built is None and "stacks" not in off:
        built = _stacks(query, tuple(tied), sorted_out.absent)
    if built is None:
        built = _automaton(query, tuple(tied), sorted_out.absent)
    if isinstance(built, Reference):
        return Plan(
            query,
            built,
            whole_stream=query.strategy is Strategy.STRICT,
            notes=tuple(notes),
        )
    return Plan(
        query,
        built,
        roles=sorted_out.roles,
        residual=tuple(residual),
        prune="window" not in off,
        whole_stream=query.strategy is Strategy.STRICT,
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The conditions of a query by who can judge them."""

    roles: tuple[Role, ...]  # one event alone
    between: tuple[Expr, ...]  # several events of the match
    absent: tuple[Expr, ...]  # a negated event together with others


def _sort_conditions(query: Query) -> _Sorted:
    kleene = kleenes(query.pattern)
    bound = set(bound_variables(query.pattern))
    every: dict[str, list[Expr]] = {a.variable: [] for a in atoms(query.pattern)}
    first: dict[str, list[Expr]] = {v: [] for v in every}
    between: list[Expr] = []
    absent: list[Expr] = []
    for condition in query.where:
        names = variables(condition)
        alone = unary(condition, frozenset(kleene))
        if not names:
            for conditions in every.values():
                conditions.append(condition)
        elif alone is not None and alone[0] in every:
            (first if alone[1] else every)[alone[0]].append(condition)
        elif names <= bound:
            between.append(condition)
        else:
            absent.append(condition)
    roles = tuple(
        Role(
            atom.variable,
            atom.type,
            tuple(every[atom.variable]),
            tuple(first[atom.variable]),
            kleene.get(atom.variable),
            negative=atom.variable not in bound,
        )
        for atom in atoms(query.pattern)
    )
    return _Sorted(roles, tuple(between), tuple(absent))


def _no_kernel(query: Query, schema: Schema, conditions: _Sorted, kinds: Kinds) -> str | None:
    """Why compiled code cannot take this query, if it cannot."""
    if any(not isinstance(n.part, Atom) for n in negations(query.pattern)):
        return "the negation of a complex event"
    if _negation_in_and(query.pattern, inside=False):
        return "a negation inside AND"
    if _meets_itself(query.pattern, frozenset()):
        return "a negation that could meet an event of its own match"
    if len(conditions.roles) > MOST_ROLES:
        return f"more than {MOST_ROLES} variables"
    negated = any(role.negative for role in conditions.roles)
    if schema.intervals and negated and _has_and(query.pattern):
        return "negation beside AND over events with a duration"
    for condition in conditions.absent:
        if not fits_a_kernel(condition, kinds) or moving_variable(condition) is not None:
            return "a condition on a negated event that compiled code cannot judge"
    return None


def _negation_in_and(pattern: Pattern, inside: bool) -> bool:
    match pattern:
        case Not():
            return inside
        case And(parts=parts):
            return any(_negation_in_and(p, True) for p in parts)
        case Seq(parts=parts) | Or(parts=parts):
            return any(_negation_in_and(p, inside) for p in parts)
        case Maybe(part=part):
            return _negation_in_and(part, inside)
        case Atom() | Kleene() | Apply():
            return False


def _meets_itself(pattern: Pattern, around: frozenset[str]) -> bool:
    """Whether a negation at an end of a nested sequence looks where the match's own events are.

    In `SEQ(A a, (SEQ(!A n, B b))?)` the negation forbids an `A` anywhere before `b`, but not `a`.
    `around` are the types of events that the sequences around this part bind.
    """
    match pattern:
        case Seq(parts=parts):
            for k, part in enumerate(parts):
                if isinstance(part, Not):
                    open_ = all(map(optional, parts[:k])) or all(map(optional, parts[k + 1 :]))
                    if open_ and any(a.type in around for a in atoms(part.part)):
                        return True
                    continue
                others = (a.type for p in parts if p is not part for a in positives(p))
                if _meets_itself(part, around.union(others)):
                    return True
            return False
        case Or(parts=parts):
            return any(_meets_itself(p, around) for p in parts)
        case Maybe(part=part):
            return _meets_itself(part, around)
        case Atom() | Kleene() | And() | Not() | Apply():
            return False


def _has_and(pattern: Pattern) -> bool:
    match pattern:
        case And():
            return True
        case Seq(parts=parts) | Or(parts=parts):
            return any(_has_and(p) for p in parts)
        case Maybe(part=part):
            return _has_and(part)
        case Atom() | Kleene() | Not() | Apply():
            return False


def _can_wait(condition: Expr, query: Query) -> bool:
    """Whether a condition may be tried on finished matches: it must choose no event on the way."""
    if query.strategy is Strategy.NEXT or query.after is not None:
        return False
    always = always_bound(query.pattern)
    return all(
        r.at not in MOVING
        and not (isinstance(r, Field) and r.at is At.NTH and r.nth > 1)
        and (r.variable in always or not isinstance(r, Field))
        for r in references(condition)
    )


def _automaton(query: Query, between: tuple[Expr, ...], absent: tuple[Expr, ...]) -> Structure:
    try:
        built = automaton(query.pattern, between, absent)
    except TooManyStates:
        return Reference("a pattern with too many orders of events")
    checks = [check for edge in built.edges for check in edge.checks]
    checks += [check for state in built.states for check in state.checks]
    if any(
        check.each and any(r.at in (At.BEFORE, At.THROUGH) for r in references(check.condition))
        for check in checks
    ):
        return Reference("a running aggregate compared with what is known only later")
    return built


def _stacks(query: Query, between: tuple[Expr, ...], absent: tuple[Expr, ...]) -> Stacks | None:
    """Instance stacks, for sequences of single events under skip-till-any-match."""
    if why_no_stacks(query) is not None:
        return None
    assert isinstance(query.pattern, Seq)
    parts = query.pattern.parts
    order = [p.variable for p in parts if isinstance(p, Atom)]
    checks: list[list[Check]] = [[] for _ in order]
    for condition in between:
        checks[min(order.index(v) for v in variables(condition))].append(Check(condition))
    absences: list[list[Absence]] = [[] for _ in order]
    position = 0  # of the next positive
    for part in parts:
        if isinstance(part, Not):
            assert isinstance(part.part, Atom)
            variable = part.part.variable
            conditions = tuple(c for c in absent if variable in variables(c))
            tied = {order.index(v) for c in conditions for v in variables(c) - {variable}}
            front = order[position - 1 : position] if position else []
            absences[min({max(position - 1, 0), *tied})].append(
                Absence(variable, tuple(front), (order[position],), conditions)
            )
        else:
            position += 1
    return Stacks(tuple(order), tuple(map(tuple, checks)), tuple(map(tuple, absences)))


def why_no_stacks(query: Query) -> str | None:
    """Why a query cannot be run on instance stacks, if it cannot."""
    if query.strategy is not Strategy.ANY:
        return f"{query.strategy.value} decides event by event what a match takes"
    match query.pattern:
        case Seq(parts=parts):
            if not all(isinstance(part, Atom | Not) for part in parts):
                return "the pattern is more than single events in sequence"
            if sum(isinstance(part, Atom) for part in parts) < 2:
                return "there is only one event to wait for"
            if isinstance(parts[-1], Not):
                return "a negation at the end waits for time to pass"
            return None
        case Atom():
            return "there is only one event to wait for"
        case _:
            return "the pattern is more than single events in sequence"


def structure_name(structure: Structure) -> str:
    """How explain calls a structure."""
    match structure:
        case Automaton():
            return "runs"
        case Stacks():
            return "instance stacks"
        case Tree():
            return "join tree"
        case Reference():
            return "reference"
