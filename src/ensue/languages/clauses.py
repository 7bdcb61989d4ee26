"""Syntax trees of clauses to algebra."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ensue.algebra.pattern import Pattern
from ensue.algebra.policy import AfterMatch, Choice, Choose, InOrderOf, SkipTo, Strategy
from ensue.algebra.predicate import MATCHES, Expr, Field
from ensue.algebra.query import Limit, Query, Returned
from ensue.algebra.text import default_name, show_returned
from ensue.algebra.walk import atoms, positives
from ensue.errors import QueryError, did_you_mean
from ensue.languages.expressions import (
    Node,
    condition,
    event_of,
    expr_of,
    name_of,
    over_matches,
    pieces,
    span_of,
)
from ensue.languages.windows import whole, window_of
from ensue.span import Span

_CLAUSES = {
    "using": ("using",),
    "where": ("where", "selecting"),
    "within": ("within",),
    "after": ("next_event", "past_last", "to_first", "to_last"),
    "returning": ("returning", "returning_events"),
    "having": ("having",),
    "grouping": ("groups", "all_groups", "one_group"),
    "ordering": ("ordering",),
    "limit": ("limit", "fetch"),
    "choose": ("choose",),
}
_CONDITIONS = ("where", "having")
_CLAUSE = {rule: clause for clause, rules in _CLAUSES.items() for rule in rules}
_WORDS = {
    "after": "AFTER MATCH", "returning": "RETURN", "grouping": "GROUP BY", "ordering": "ORDER BY",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Clauses:
    """The clauses behind a pattern, whatever order they are written in."""

    using: Node | None = None
    where: Node | None = None
    within: Node | None = None
    after: Node | None = None
    returning: Node | None = None
    having: Node | None = None
    grouping: Node | None = None
    ordering: Node | None = None
    limit: Node | None = None
    choose: Node | None = None

    @classmethod
    def of(cls, given: Iterable[Node]) -> "Clauses":
        """Raises a QueryError for a clause that is there twice."""
        found: dict[str, Node] = {}
        for node in given:
            clause = _CLAUSE[node.data]
            if clause in found:
                word = _WORDS.get(clause, clause.upper())
                hint = "join both conditions with 'and'" if clause in _CONDITIONS else None
                raise QueryError(
                    f"a second {word}", hint=hint or "leave one of them out", span=span_of(node)
                )
            if clause == "having" and "grouping" in found:
                raise QueryError(
                    "HAVING behind GROUP BY",
                    hint="HAVING is about a match, and comes before GROUP BY; "
                    "filter groups in the result",
                    span=span_of(node),
                )
            found[clause] = node
        return cls(**found)


def matched(shape: Pattern, given: Clauses, text: str, beside: Sequence[Expr] = ()) -> Query:
    """What is to be matched: a pattern with USING, WHERE, WITHIN and AFTER MATCH.

    `beside` are conditions that stand beside parts of the pattern.
    """
    using, where, within, after = given.using, given.where, given.within, given.after
    conditions = None
    strategy = Strategy[pieces(using)[0].upper()] if using else Strategy.ANY
    if where is not None:
        *selection, conditions = pieces(where)
        if selection:
            if using:
                raise QueryError(
                    "the strategy is named twice",
                    hint=f"leave out {selection[0]}(...) {{ }} around the conditions, or USING",
                    span=span_of(using),
                )
            strategy = Strategy(selection[0].lower())
            _expect_all(selection[1:], shape, span_of(where))
    conjuncts, equivalence = condition(conditions) if conditions else ((), ())
    return Query(
        pattern=shape,
        strategy=strategy,
        where=(*beside, *conjuncts),
        equivalence=equivalence,
        within=window_of(pieces(within)[0]) if within else None,
        after=_after_of(after) if after else None,
        text=text,
    )


def _expect_all(listed: Sequence[Node], pattern: Pattern, clause: Span) -> None:
    """The strategy's list names every positive variable once."""
    expected = [atom.variable for atom in positives(pattern)]
    named: set[str] = set()
    for member in listed:
        variable = name_of(pieces(member)[0])
        if variable not in expected:
            negated = variable in [atom.variable for atom in atoms(pattern)]
            raise QueryError(
                f"'{variable}' is negated: no event of it is selected"
                if negated
                else f"unknown variable '{variable}'",
                hint="leave it out of the list" if negated else did_you_mean(variable, expected),
                span=span_of(member),
            )
        if variable in named:
            raise QueryError(
                f"'{variable}' is listed twice", hint="list it once", span=span_of(member)
            )
        named.add(variable)
    missing = [variable for variable in expected if variable not in named]
    if missing:
        raise QueryError(
            f"the strategy's list leaves out {', '.join(missing)}",
            hint=f"list every variable: ({', '.join(expected)})",
            span=span_of(listed[0]).to(span_of(listed[-1])) if listed else clause,
        )


def _after_of(node: Node) -> AfterMatch:
    span = span_of(node)
    match node.data, pieces(node):
        case "next_event", [order]:
            return AfterMatch(SkipTo.NEXT_EVENT, None, _order(order), span)
        case "past_last", [order]:
            return AfterMatch(SkipTo.PAST_LAST, None, _order(order), span)
        case kind, [variable, order]:
            to = SkipTo.FIRST if kind == "to_first" else SkipTo.LAST
            return AfterMatch(to, name_of(variable), _order(order), span_of(variable))
        case _:
            raise AssertionError(node.data)


def _order(node: Node | None) -> InOrderOf:
    return InOrderOf(str(pieces(node)[0]).upper()) if node else InOrderOf.END


def returned_of(node: Node, *, grouped: bool = False) -> Returned:
    """A column of RETURN, or all fields of an event; `grouped`: it may be over matches."""
    if node.data == "variables":
        return Returned(Field(MATCHES, None), MATCHES, every=True, span=span_of(node))
    if node.data == "fields":
        variable, index, _, alias = pieces(node)
        event = event_of(variable, index, span_of(node))
        called = event.variable if alias is None else name_of(alias)
        return Returned(event, called, every=True, span=span_of(node))
    expression, alias = pieces(node)
    found = over_matches(expression) if grouped else None
    if found is not None:
        expr, over = found
        returned = Returned(expr, "", over=over, span=span_of(node))
        return replace(returned, name=name_of(alias) if alias else show_returned(returned))
    expr = expr_of(expression)
    return Returned(expr, name_of(alias) if alias else default_name(expr), span=span_of(node))


def choose_of(node: Node) -> Choose | None:
    """CHOOSE LATEST or ONCE; ALL is what a query does anyway."""
    word = str(pieces(node)[0]).upper()
    return None if word == "ALL" else Choose(Choice(word), span_of(node))


def limit_of(node: Node) -> Limit:
    """LIMIT n, or LAST n."""
    sign, amount = pieces(node)
    count = whole(amount)
    return Limit(-count if sign else count, span_of(node))
