"""Timed-out partial matches as matches of other queries, which end in a negation.

An order that was paid and not shipped within its window is a match of `SEQ(Order o, Payment p,
!Ship s)`. So every runner that knows negation at the end finds timed-out partial matches. Those of
patterns that say how their parts follow, of groups and alternatives are found by the definition.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ensue.algebra.check.timeouts import check_timeouts, is_rewritten, steps_of, up_to_required
from ensue.algebra.form import Form, form, is_absence, is_event, is_list
from ensue.algebra.form import parts as parts_of
from ensue.algebra.functions.choices import CASE
from ensue.algebra.pattern import Atom, Kleene, Not, Pattern, Seq
from ensue.algebra.predicate import Aggregate, At, Binary, Call, Expr, Field, IsNull, Literal
from ensue.algebra.query import Query, Returned
from ensue.algebra.walk import atoms, kleenes, positives, references, rewrite_expr, variables
from ensue.errors import QueryError

TIMED_OUT = "timed_out"  # the column that tells timed-out partial matches from matches

_MOVING = (At.CURRENT, At.PREVIOUS, At.BEFORE, At.THROUGH)
# The event's own value, where there is one event.
_OF_ONE = (
    "avg", "sum", "min", "max", "first", "last", "percentile", "any_value", "mode", "string_agg",
    "bool_and", "bool_or",
)  # fmt: skip


def timeout_queries(query: Query, time: str = "end") -> tuple[Query, ...]:
    """The queries whose matches are the timed-out partial matches of a checked query.

    `SEQ(A a, B b, C c)` gives `SEQ(A a, !B b)` and `SEQ(A a, B b, !C c)`. Each keeps the
    conditions that can be judged by then, and the returned columns that can be computed.
    `time` names a field that every event has.

    >>> from ensue.algebra.window import ByUnits
    >>> a, b, c = Atom("A", "a"), Atom("B", "b"), Atom("C", "c")
    >>> one, two = timeout_queries(Query(Seq((a, b, c)), within=ByUnits(5)))
    >>> one.pattern == Seq((a, Not(b))), two.pattern == Seq((a, b, Not(c)))
    (True, True)

    A Kleene variable waits for one more event of its own, or for the next variable:

    >>> _, two = timeout_queries(Query(Seq((a, Kleene(b, 1, None), c)), within=ByUnits(5)))
    >>> two.pattern == Seq((a, Kleene(b, 1, None), Not(Atom("B", "b_next")), Not(c)))
    True
    """
    try:
        check_timeouts(query, TIMED_OUT)
        if not is_rewritten(query):
            return (_unfinished(query, time),)
        return tuple(_query(query, state, time) for state in _states(query.pattern))
    except QueryError as error:
        raise error.at(None, query.text) from None


def _unfinished(query: Query, time: str) -> Query:
    """The query that asks for its timed-out partial matches by their definition."""
    flag = (Returned(Literal(True), TIMED_OUT),) if query.returns else ()
    lists = kleenes(query.pattern)

    def of_bound(returned: Returned) -> Returned:
        """NULL where a variable has no event: a count would be 0."""
        if isinstance(returned.expr, Field | Literal):
            return returned
        value = returned.expr
        for variable in sorted(variables(value)):
            first = Field(variable, time, At.NTH if variable in lists else At.ONLY)
            value = Call(CASE, (IsNull(first, negated=True), value))
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


# ------------------------------------------------------------------------------------ states


@dataclass(frozen=True, slots=True)
class _State:
    """How far a partial match got, and what it waits for."""

    bound: tuple[Pattern, ...]  # the last of them is required, and bound last
    awaited: tuple[Pattern, ...]  # up to the next required part, with the negations between
    more: bool  # whether the last one, a Kleene variable, waits for a further event


def _states(pattern: Pattern) -> Iterator[_State]:
    parts = steps_of(pattern)
    for k, part in enumerate(parts):
        if is_absence(part):
            continue
        before, last = parts[:k], _present(part)
        awaited = up_to_required(parts[k + 1 :])
        if not is_list(last):
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


def _present(part: Pattern) -> Atom | Kleene:
    """A part of the sequence once it has an event."""
    inner = parts_of(part)[0] if form(part) is Form.OPTION else part
    if is_list(inner):
        return replace(inner, least=max(inner.least, 1))
    assert is_event(inner)
    return inner


# ------------------------------------------------------------------------------------ queries


def _query(query: Query, state: _State, time: str) -> Query:
    judge = _Conditions(query, state, time)
    parts: list[Pattern] = list(state.bound)
    where = judge.known()
    if judge.further is not None:
        parts.append(Not(judge.further))
        where += judge.of_further(judge.further)
    skipped: list[str] = []
    for part in state.awaited:
        if is_absence(part):
            parts.append(part)
            where += judge.of_negation(part, skipped)
            continue
        atom = next(positives(part))
        parts.append(Not(atom))
        where += judge.of_awaited(atom, skipped)
        skipped.append(atom.variable)
    return replace(
        query,
        pattern=Seq(tuple(parts)),
        where=tuple(where),
        after=None,
        returns=_returned(query.returns, judge.bound),
        having=None,
        limit=None,
        choose=None,
        text=None,
    )


def _returned(returns: Iterable[Returned], bound: Iterable[str]) -> tuple[Returned, ...]:
    """What can be computed. A RETURN of nothing would return everything: it always has a flag."""
    if not returns:
        return ()
    computed = [r for r in returns if variables(r.expr) <= set(bound)]
    return (*computed, Returned(Literal(True), TIMED_OUT))


class _Conditions:
    """Which conditions of a query speak of a partial match, and of the events it waits for."""

    def __init__(self, query: Query, state: _State, time: str) -> None:
        names = {a.variable for a in atoms(query.pattern)}
        bound = Seq(state.bound)
        self.bound = {a.variable for a in positives(bound)}
        self.kleenes = kleenes(query.pattern)
        last = state.bound[-1]
        self.open = last.atom.variable if is_list(last) else None
        self.further = (
            Atom(last.atom.type, _fresh(f"{last.atom.variable}_next", names))
            if is_list(last) and state.more
            else None
        )
        self.negated = {a.variable for a in atoms(bound)} - self.bound
        self.where = query.where
        self.time = time

    def known(self) -> list[Expr]:
        """Those that the bound events decide, whatever comes."""
        return [c for c in self.where if self._is_known(c)]

    def _is_known(self, condition: Expr) -> bool:
        return variables(condition) <= self.bound | self.negated and not any(
            self._grows(ref, self.open) for ref in references(condition)
        )

    def _grows(self, ref: Field | Aggregate, variable: str | None) -> bool:
        """Whether further events of a Kleene variable can change what a reference means."""
        if ref.variable != variable or variable not in self.kleenes or ref.at in _MOVING:
            return False
        return not (isinstance(ref, Field) and ref.at is At.NTH and ref.nth == 1)

    def of_further(self, further: Atom) -> list[Expr]:
        """On one more event of the open Kleene variable."""
        variable = self.open

        def moved(node: Expr) -> Expr:
            if not isinstance(node, Field | Aggregate) or node.variable != variable:
                return node
            if isinstance(node, Aggregate):
                return replace(node, at=At.ALL) if node.at is At.BEFORE else node
            match node.at:
                case At.CURRENT:
                    return Field(further.variable, node.name, span=node.span)
                case At.PREVIOUS:
                    return replace(node, at=At.LAST)
                case At.BEFORE:  # inside an aggregate
                    return replace(node, at=At.ALL)
                case _:
                    return node

        running = [
            c
            for c in self.known()
            if any(r.variable == variable and r.at in _MOVING for r in references(c))
        ]
        return [_about(rewrite_expr(c, moved), further, self.time) for c in running]

    def of_awaited(self, atom: Atom, skipped: Sequence[str]) -> list[Expr]:
        """On the first event of the next variable, if those between stay unbound."""
        found: list[Expr] = []
        reached = {*self.bound, *skipped, atom.variable}
        for condition in self.where:
            if not variables(condition) <= reached or self._is_known(condition):
                continue
            if any(self._grows(r, atom.variable) for r in references(condition)):
                continue
            rewritten = self._first(_without(condition, skipped), atom)
            if rewritten is not None:
                found.append(_about(rewritten, atom, self.time))
        return found

    def _first(self, condition: Expr | None, atom: Atom) -> Expr | None:
        """A condition on the first event of a variable; None if it speaks of later ones."""
        if condition is None:
            return None
        for ref in references(condition):
            if ref.variable == atom.variable and ref.at in (At.PREVIOUS, At.BEFORE):
                return None

        def single(node: Expr) -> Expr:
            if not isinstance(node, Field | Aggregate) or node.variable != atom.variable:
                return node
            if isinstance(node, Field):
                return replace(node, at=At.ONLY, nth=1)
            if node.function in _OF_ONE and node.argument is not None:
                return node.argument
            return node

        return rewrite_expr(condition, single)

    def of_negation(self, negation: Not, skipped: Sequence[str]) -> list[Expr]:
        """On the events that a negation among the awaited parts forbids."""
        inside = {a.variable for a in atoms(negation)}
        conditions = [_without(c, skipped) for c in self.where if variables(c) & inside]
        return [c for c in conditions if c is not None]


def _without(condition: Expr, unbound: Sequence[str]) -> Expr | None:
    """A condition where some variables stay unbound; None if it then does not apply."""
    if any(
        ref.variable in unbound and (isinstance(ref, Field) or ref.at in _MOVING)
        for ref in references(condition)
    ):
        return None

    def empty(node: Expr) -> Expr:
        if isinstance(node, Aggregate) and node.variable in unbound:
            return Literal(0 if node.function == "count" else None)
        return node

    return rewrite_expr(condition, empty)


def _about(condition: Expr, atom: Atom, time: str) -> Expr:
    """The condition as one on this event, also if it only speaks of those bound before.

    `count(b) > 3` is judged when the next event ends `b`: it says whether that event counts.
    """
    if atom.variable in variables(condition):
        return condition
    field = Field(atom.variable, time)
    never = Binary("and", IsNull(field), IsNull(field, negated=True))
    return Binary("or", condition, never)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
