"""Rewrites queries for timed-out partial matches to queries that end with a negation.

An order that was paid and not shipped within its window is a match of `SEQ(Order o, Payment p,
!Ship s)`, so every backend with negation at the end finds timed-out partial matches. For patterns
with THEN, groups or alternatives the engine computes them directly (`Query.unfinished`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.analyzer.output_mode import is_summarized
from ensue.analyzer.query import reject_column
from ensue.errors import QueryError
from ensue.functions.record import CASE
from ensue.ir import traits, traversal
from ensue.ir.expression import (
    MOVING_POSITIONS,
    Aggregate,
    Binary,
    EventPosition,
    Expr,
    FieldRef,
    FunctionCall,
    IsNull,
    Literal,
)
from ensue.ir.pattern import Atom, Kleene, LoopExit, Not, Pattern, Seq
from ensue.ir.query import TIMED_OUT, Query, ReturnItem
from ensue.ir.selection import CONTIGUOUS, ByEvents, Strategy
from ensue.printing.pattern_printer import format_head


def get_sequence_steps(pattern: Pattern) -> tuple[Pattern, ...]:
    """Returns the parts that a partial match binds one after the other."""
    return traits.get_parts(pattern) if traits.is_sequence(pattern) and traits.is_plain(pattern) else (pattern,)


def take_until_required(steps: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    """Returns the steps up to the first required one; empty if all are optional."""
    required = [k for k, part in enumerate(steps) if not traits.is_optional(part)]
    return steps[: required[0] + 1] if required else ()


def is_rewritable(query: Query) -> bool:
    """Whether the pattern is a plain SEQ of events, whose timeouts other queries can match."""
    steps = get_sequence_steps(query.pattern)
    return all(_is_plain(part) for part in steps) and not (
        query.strategy is Strategy.NEXT and any(_may_be_missing(steps, k) for k in range(len(steps)))
    )


def _is_plain(part: Pattern) -> bool:
    if (
        any(traversal.iterate_strategies(part))
        or any(traversal.iterate_untils(part))
        or {*traversal.iterate_loop_exits(part)} - {LoopExit.FORK}
    ):
        return False
    match traits.get_form(part):
        case traits.NodeForm.EVENT | traits.NodeForm.LIST | traits.NodeForm.ABSENCE:
            return True
        case traits.NodeForm.OPTION:
            return all(traits.is_event(p) or traits.is_list(p) for p in traits.get_parts(part))
        case _:
            return False


def _may_be_missing(steps: tuple[Pattern, ...], k: int) -> bool:
    """Whether a part between others is optional."""
    part = steps[k]
    if traits.is_negation(part) or not traits.is_optional(part):
        return False
    begun = any(not traits.is_negation(p) for p in steps[:k])
    return begun and bool(take_until_required(steps[k + 1 :]))


def check_timeouts(query: Query, column: str) -> None:
    """Raises a QueryError if emit_timeouts is not supported; `column` is the column it adds."""
    _check_window(query)
    if is_summarized(query):
        raise QueryError(
            "emit_timeouts cannot be combined with COUNT(*) and EXISTS: "
            "a timed-out partial match has no last event to count for",
            hint="return the matches themselves, or leave out emit_timeouts",
            span=query.pattern.span,
        )
    if query.strategy in CONTIGUOUS and not any(traversal.iterate_strategies(query.pattern)):
        raise QueryError(
            f"under {query.strategy.value} the next event either extends a partial match or ends "
            "it: there is none to time out",
            hint="emit_timeouts works with skip_till_next_match and skip_till_any_match",
            span=query.pattern.span,
        )
    reject_column(query, column, "emit_timeouts adds a column of that name")
    steps = get_sequence_steps(query.pattern)
    for part in steps:
        if not traits.is_negation(part):
            _check_part(part)
    for condition in query.where:
        for ref in traversal.iterate_references(condition):
            if ref.at is EventPosition.THROUGH:
                raise QueryError(
                    "emit_timeouts cannot use a running aggregate that includes the current event",
                    hint=f"aggregate the events before it: {ref.variable}[..i-1]",
                    span=ref.span or condition.span,
                )
    for k, part in enumerate(steps):
        if traits.is_negation(part):
            _check_negation(query, steps, k)


def _check_window(query: Query) -> None:
    for negation, _ in iterate_interval_negations(query.pattern):
        raise QueryError(
            "emit_timeouts cannot be combined with an absence with an explicit interval",
            hint="leave out emit_timeouts",
            span=negation.span,
        )
    if query.within is None:
        raise QueryError(
            "emit_timeouts needs a window: until when does a partial match wait?",
            hint="add WITHIN, as in WITHIN 5 minutes",
            span=query.pattern.span,
        )
    if isinstance(query.within, ByEvents):
        raise QueryError(
            "emit_timeouts needs a window of time: a window of events may never end",
            hint="as in WITHIN 5 minutes",
            span=query.within.span,
        )


def _check_part(part: Pattern) -> None:
    """Rejects AND and operators, whose variables have no order."""
    for inner in (part, *_iterate_parts(part)):
        if traits.get_form(inner) is traits.NodeForm.TOGETHER:
            name = format_head(inner)
        elif traits.is_operator_call(inner):
            name = f"results of an operator ({inner.operator.name})"
        else:
            continue
        raise QueryError(
            f"emit_timeouts does not support {name}",
            hint="it supports a SEQ of events, loops, groups and negations, also with THEN",
            span=inner.span,
        )


def _iterate_parts(part: Pattern) -> Iterator[Pattern]:
    """Yields all parts of a part, without negations."""
    for inner in traits.get_parts(part):
        if not traits.is_negation(inner):
            yield inner
            yield from _iterate_parts(inner)


def _check_negation(query: Query, steps: tuple[Pattern, ...], k: int) -> None:
    """Checks that conditions on a negation read only events before the next one."""
    known = {a.variable for p in steps[:k] for a in traversal.iterate_positive_atoms(p)}
    inside = {a.variable for a in traversal.iterate_atoms(steps[k])}
    first = next(p for p in steps if not traits.is_negation(p))
    leading = not known
    if leading and not traits.is_optional(first):
        known = {a.variable for a in traversal.iterate_positive_atoms(first)}
    lists = traversal.get_kleene_variables(query.pattern)
    for condition in query.where:
        if not traversal.get_variables(condition) & inside:
            continue
        for ref in traversal.iterate_references(condition):
            settled = ref.variable not in lists or (
                isinstance(ref, FieldRef) and ref.at is EventPosition.NTH and ref.nth == 1
            )
            if ref.variable not in known | inside or (leading and not settled):
                raise QueryError(
                    f"emit_timeouts does not support a condition that compares {min(inside)}, "
                    f"which must not occur, to {ref.variable}, which comes later",
                    hint=f"compare {min(inside)} with events before it",
                    span=condition.span,
                )


# Aggregates that return the value of a single event unchanged.
_OF_ONE = (
    "avg", "sum", "min", "max", "first", "last", "percentile", "any_value", "mode", "string_agg",
    "bool_and", "bool_or",
)  # fmt: skip


def build_timeout_queries(query: Query, time: str = "end") -> tuple[Query, ...]:
    """Builds the queries whose matches are the timed-out partial matches of a checked query.

    `SEQ(A a, B b, C c)` becomes `SEQ(A a, !B b)` and `SEQ(A a, B b, !C c)`. Each has the
    conditions and the columns that can be evaluated by then; a Kleene variable waits for one more
    event or for the next variable. `time` names a field that every event has.

    >>> from ensue.ir.selection import ByUnits
    >>> a, b = Atom("A", "a"), Kleene(Atom("B", "b"), 1, None)
    >>> first, second = build_timeout_queries(Query(Seq((a, b, a)), within=ByUnits(5)))
    >>> second.pattern == Seq((a, b, Not(Atom("B", "b_next")), Not(a)))
    True
    """
    try:
        check_timeouts(query, TIMED_OUT)
        if not is_rewritable(query):
            return (_build_unfinished_query(query, time),)
        return tuple(_build_query(query, state, time) for state in _iterate_states(query.pattern))
    except QueryError as error:
        raise error.at(None, query.text) from None


def _build_unfinished_query(query: Query, time: str) -> Query:
    """Builds the query that returns timed-out partial matches instead of matches."""
    flag = (ReturnItem(Literal(True), TIMED_OUT),) if query.returns else ()

    def of_bound(returned: ReturnItem) -> ReturnItem:
        """Makes a column NULL if a variable has no event: a count would be 0."""
        if isinstance(returned.expr, FieldRef | Literal):
            return returned
        value = returned.expr
        for variable in sorted(traversal.get_variables(value)):
            first = traversal.get_first_field(query.pattern, variable, time)
            value = FunctionCall(CASE, (IsNull(first, negated=True), value))
        return replace(returned, expr=value)

    return replace(
        query,
        after=None,
        returns=(*map(of_bound, query.returns), *flag),
        having=None,
        limit=None,
        choose=None,
        unfinished=True,
        text=None,
    )


@dataclass(frozen=True, slots=True)
class _State:
    """The bound parts of a partial match, and the parts that it waits for."""

    bound: tuple[Pattern, ...]  # the last of them is required, and bound last
    awaited: tuple[Pattern, ...]  # up to the next required part, with the negations between
    more: bool  # whether the last part, a Kleene variable, may take another event


def _iterate_states(pattern: Pattern) -> Iterator[_State]:
    steps = get_sequence_steps(pattern)
    for k, part in enumerate(steps):
        if traits.is_negation(part):
            continue
        before, last = steps[:k], _require_event(part)
        awaited = take_until_required(steps[k + 1 :])
        if not traits.is_list(last):
            if awaited:
                yield _State((*before, last), awaited, more=False)
            continue
        least, most = last.least, last.most
        if least > 1:
            short = replace(last, least=1, most=least - 1)
            yield _State((*before, short), (), more=True)
        if awaited and (most is None or most > least):
            growing = replace(last, most=None if most is None else most - 1)
            yield _State((*before, growing), awaited, more=True)
        if awaited and most is not None:
            full = replace(last, least=most)
            yield _State((*before, full), awaited, more=False)


def _require_event(part: Pattern) -> Atom | Kleene:
    """Returns a part without its option, with at least one event."""
    inner = traits.get_parts(part)[0] if traits.get_form(part) is traits.NodeForm.OPTION else part
    if traits.is_list(inner):
        return replace(inner, least=max(inner.least, 1))
    assert traits.is_event(inner)
    return inner


def _build_query(query: Query, state: _State, time: str) -> Query:
    judge = _Conditions(query, state, time)
    parts: list[Pattern] = list(state.bound)
    where = judge.list_known()
    if judge.further is not None:
        parts.append(Not(judge.further))
        where += judge.list_further(judge.further)
    skipped: list[str] = []
    for part in state.awaited:
        if traits.is_negation(part):
            parts.append(part)
            where += judge.list_negation(part, skipped)
            continue
        atom = next(traversal.iterate_positive_atoms(part))
        parts.append(Not(atom))
        where += judge.list_awaited(atom, skipped)
        skipped.append(atom.variable)
    return replace(
        query,
        pattern=Seq(tuple(parts)),
        where=tuple(where),
        after=None,
        returns=_select_columns(query, judge.bound),
        having=None,
        limit=None,
        choose=None,
        text=None,
    )


def _select_columns(query: Query, bound: set[str]) -> tuple[ReturnItem, ...]:
    """Returns the columns, NULL where they cannot be computed, and a flag."""
    if not query.returns:
        return ()
    get = traversal.get_variables
    computed = [r if get(r.expr) <= bound else replace(r, expr=Literal(None)) for r in query.returns]
    return (*computed, ReturnItem(Literal(True), TIMED_OUT))


class _Conditions:
    """Assigns the conditions of a query to a partial match and the events that it waits for."""

    def __init__(self, query: Query, state: _State, time: str) -> None:
        names = {a.variable for a in traversal.iterate_atoms(query.pattern)}
        bound = Seq(state.bound)
        self.bound = {a.variable for a in traversal.iterate_positive_atoms(bound)}
        self.kleenes = traversal.get_kleene_variables(query.pattern)
        last = state.bound[-1]
        self.open = last.atom.variable if traits.is_list(last) else None
        self.further = (
            Atom(last.atom.type, _create_name(f"{last.atom.variable}_next", names))
            if traits.is_list(last) and state.more
            else None
        )
        self.negated = {a.variable for a in traversal.iterate_atoms(bound)} - self.bound
        self.where = query.where
        self.time = time

    def list_known(self) -> list[Expr]:
        """Returns the conditions that depend on bound events only."""
        return [c for c in self.where if self._is_known(c)]

    def _is_known(self, condition: Expr) -> bool:
        return traversal.get_variables(condition) <= self.bound | self.negated and not any(
            self._grows(ref, self.open) for ref in traversal.iterate_references(condition)
        )

    def _grows(self, ref: FieldRef | Aggregate, variable: str | None) -> bool:
        """Whether further events of a Kleene variable can change the value of a reference."""
        if ref.variable != variable or variable not in self.kleenes or ref.at in MOVING_POSITIONS:
            return False
        return not (isinstance(ref, FieldRef) and ref.at is EventPosition.NTH and ref.nth == 1)

    def list_further(self, further: Atom) -> list[Expr]:
        """Returns the conditions on another event of the open Kleene variable."""
        variable = self.open

        def moved(node: Expr) -> Expr:
            if not isinstance(node, FieldRef | Aggregate) or node.variable != variable:
                return node
            if node.at is EventPosition.BEFORE:  # an aggregate, or inside one
                return replace(node, at=EventPosition.ALL)
            if isinstance(node, FieldRef) and node.at is EventPosition.CURRENT:
                return FieldRef(further.variable, node.name, span=node.span)
            if isinstance(node, FieldRef) and node.at is EventPosition.PREVIOUS:
                return replace(node, at=EventPosition.LAST)
            return node

        running = [
            c
            for c in self.list_known()
            if any(r.variable == variable and r.at in MOVING_POSITIONS for r in traversal.iterate_references(c))
        ]
        return [_bind_condition(traversal.rewrite_expr(c, moved), further, self.time) for c in running]

    def list_awaited(self, atom: Atom, skipped: Sequence[str]) -> list[Expr]:
        """Returns the conditions on the first event of the next variable, after skipped ones."""
        conditions: list[Expr] = []
        reached = {*self.bound, *skipped, atom.variable}
        for condition in self.where:
            if not traversal.get_variables(condition) <= reached or self._is_known(condition):
                continue
            if any(self._grows(r, atom.variable) for r in traversal.iterate_references(condition)):
                continue
            rewritten = self._first(_drop_unbound(condition, skipped), atom)
            if rewritten is not None:
                conditions.append(_bind_condition(rewritten, atom, self.time))
        return conditions

    def _first(self, condition: Expr | None, atom: Atom) -> Expr | None:
        """Rewrites a condition to the first event of a variable; None if it reads later ones."""
        if condition is None:
            return None
        for ref in traversal.iterate_references(condition):
            if ref.variable == atom.variable and ref.at in (EventPosition.PREVIOUS, EventPosition.BEFORE):
                return None

        def single(node: Expr) -> Expr:
            if not isinstance(node, FieldRef | Aggregate) or node.variable != atom.variable:
                return node
            if isinstance(node, FieldRef):
                return replace(node, at=EventPosition.ONLY, nth=1)
            if node.function in _OF_ONE and node.argument is not None:
                return node.argument
            return node

        return traversal.rewrite_expr(condition, single)

    def list_negation(self, negation: Not, skipped: Sequence[str]) -> list[Expr]:
        """Returns the conditions on a negation among the awaited parts."""
        inside = {a.variable for a in traversal.iterate_atoms(negation)}
        conditions = [_drop_unbound(c, skipped) for c in self.where if traversal.get_variables(c) & inside]
        return [c for c in conditions if c is not None]


def _drop_unbound(condition: Expr, unbound: Sequence[str]) -> Expr | None:
    """Rewrites a condition for unbound variables; None if it then does not apply."""
    if any(
        ref.variable in unbound and (isinstance(ref, FieldRef) or ref.at in MOVING_POSITIONS)
        for ref in traversal.iterate_references(condition)
    ):
        return None

    def empty(node: Expr) -> Expr:
        if isinstance(node, Aggregate) and node.variable in unbound:
            return Literal(0 if node.function == "count" else None)
        return node

    return traversal.rewrite_expr(condition, empty)


def _bind_condition(condition: Expr, atom: Atom, time: str) -> Expr:
    """Makes a condition refer to this event, also if it only reads bound ones.

    `count(b) > 3` is evaluated when the next event ends `b`, and decides whether it counts.
    """
    if atom.variable in traversal.get_variables(condition):
        return condition
    field = FieldRef(atom.variable, time)
    never = Binary("and", IsNull(field), IsNull(field, negated=True))
    return Binary("or", condition, never)


def _create_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
