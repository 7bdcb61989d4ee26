"""Transforms the syntax trees of clauses, JOIN ARCHIVE and result settings to the IR."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lark import Token

from ensue.errors import QueryError, Span, did_you_mean
from ensue.ir.archive_join import ArchiveJoin, JoinKind, LookbackRange, RangeAnchor
from ensue.ir.expression import MATCHES, Expr, FieldRef
from ensue.ir.pattern import Pattern
from ensue.ir.query import Limit, Query, ResultModifiers, ReturnItem, SortKey
from ensue.ir.selection import (
    AfterMatch,
    ByEvents,
    ByTime,
    ByUnits,
    Choose,
    MatchChoice,
    MatchOrder,
    SkipTarget,
    Strategy,
    Window,
)
from ensue.ir.traversal import iterate_atoms, iterate_positive_atoms
from ensue.ir.values import convert_to_nanoseconds
from ensue.parser.expressions import (
    Node,
    build_conjuncts,
    build_event_reference,
    build_expression,
    build_group_aggregate,
    get_children,
    get_span,
    parse_interval,
    parse_number,
    unquote_name,
)
from ensue.printing.pattern_printer import format_return_item, get_default_name


def build_window(node: Node) -> Window:
    """Builds a window: a duration, or a number of events."""
    span = get_span(node)
    match node.data, get_children(node):
        case "interval", [text, unit]:
            return ByTime(parse_interval(text, unit, span), span)
        case "units", [sign, amount]:
            return ByUnits(-parse_number(amount) if sign else parse_number(amount), span)
        case "time", [sign, amount, unit]:
            length = convert_to_nanoseconds(amount, unit, span)
            return ByTime(-length if sign else length, span)
        case _, [sign, amount, _]:
            count = parse_whole_number(amount)
            return ByEvents(-count if sign else count, span)
        case _:
            raise AssertionError(node.data)


def build_duration(node: Node) -> ByTime | ByUnits:
    """Builds the duration that bounds a part."""
    span = get_span(node)
    amount, unit, *_ = get_children(node)
    if node.data == "interval":
        return ByTime(parse_interval(amount, unit, span), span)
    if unit is None:
        return ByUnits(parse_number(amount), span)
    return ByTime(convert_to_nanoseconds(amount, unit, span), span)


def parse_whole_number(digits: Token) -> int:
    """Parses a whole number below a billion."""
    if digits.isdigit() and len(digits) <= 9:
        return int(digits)
    raise QueryError("this must be a whole number", hint="below a billion", span=get_span(digits))


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


def collect_clauses(nodes: Iterable[Node]) -> dict[str, Node]:
    """Returns the clauses after a pattern by name; raises a QueryError for a second one."""
    clauses: dict[str, Node] = {}
    for node in nodes:
        clause = _CLAUSE[node.data]
        if clause in clauses:
            word = _WORDS.get(clause, clause.upper())
            hint = "join both conditions with 'and'" if clause in _CONDITIONS else None
            raise QueryError(f"a second {word}", hint=hint or "leave one of them out", span=get_span(node))
        if clause == "having" and "grouping" in clauses:
            raise QueryError(
                "HAVING after GROUP BY",
                hint="HAVING filters matches, and stands before GROUP BY; filter groups in the result",
                span=get_span(node),
            )
        clauses[clause] = node
    return clauses


def build_match_query(shape: Pattern, clauses: Mapping[str, Node], text: str, inline: Sequence[Expr] = ()) -> Query:
    """Builds a query of a pattern with USING, WHERE, WITHIN and AFTER MATCH.

    `inline` are the conditions written inside the pattern.
    """
    using, where, within, after = map(clauses.get, ("using", "where", "within", "after"))
    conditions = None
    strategy = Strategy[get_children(using)[0].upper()] if using else Strategy.ANY
    if where is not None:
        *selection, conditions = get_children(where)
        if selection:
            if using:
                raise QueryError(
                    "the strategy is named twice",
                    hint=f"leave out {selection[0]}(...) {{ }} around the conditions, or USING",
                    span=get_span(using),
                )
            strategy = Strategy(selection[0].lower())
            _expect_all(selection[1:], shape, get_span(where))
    conjuncts, equivalence = build_conjuncts(conditions) if conditions else ((), ())
    return Query(
        pattern=shape,
        strategy=strategy,
        where=(*inline, *conjuncts),
        equivalence=equivalence,
        within=build_window(get_children(within)[0]) if within else None,
        after=_build_after(after) if after else None,
        text=text,
    )


def _expect_all(members: Sequence[Node], pattern: Pattern, clause: Span) -> None:
    """Requires that the strategy's list names every positive variable once."""
    expected = [atom.variable for atom in iterate_positive_atoms(pattern)]
    seen: set[str] = set()
    for member in members:
        variable = unquote_name(get_children(member)[0])
        if variable not in expected:
            negated = variable in [atom.variable for atom in iterate_atoms(pattern)]
            raise QueryError(
                f"'{variable}' is negated: no event of it is selected" if negated else f"unknown variable '{variable}'",
                hint="leave it out of the list" if negated else did_you_mean(variable, expected),
                span=get_span(member),
            )
        if variable in seen:
            raise QueryError(f"'{variable}' is listed twice", hint="list it once", span=get_span(member))
        seen.add(variable)
    missing = [variable for variable in expected if variable not in seen]
    if missing:
        raise QueryError(
            f"the strategy's list leaves out {', '.join(missing)}",
            hint=f"list every variable: ({', '.join(expected)})",
            span=get_span(members[0]).to(get_span(members[-1])) if members else clause,
        )


def _build_after(node: Node) -> AfterMatch:
    *variable, order_node = get_children(node)
    order = MatchOrder(get_children(order_node)[0].upper()) if order_node else MatchOrder.END
    to = SkipTarget[node.data.upper().removeprefix("TO_")]
    if variable:
        return AfterMatch(to, unquote_name(variable[0]), order, get_span(variable[0]))
    return AfterMatch(to, None, order, get_span(node))


def build_column(node: Node, *, grouped: bool = False) -> ReturnItem:
    """Builds a column of RETURN; a `grouped` one may aggregate matches."""
    if node.data == "variables":
        return ReturnItem(FieldRef(MATCHES, None), MATCHES, every=True, span=get_span(node))
    if node.data == "fields":
        variable, index, _, alias = get_children(node)
        event = build_event_reference(variable, index, get_span(node))
        name = event.variable if alias is None else unquote_name(alias)
        return ReturnItem(event, name, every=True, span=get_span(node))
    expression, alias = get_children(node)
    aggregated = build_group_aggregate(expression) if grouped else None
    if aggregated is not None:
        expr, over = aggregated
        column = ReturnItem(expr, "", over=over, span=get_span(node))
        return replace(column, name=unquote_name(alias) if alias else format_return_item(column))
    expr = build_expression(expression)
    return ReturnItem(expr, unquote_name(alias) if alias else get_default_name(expr), span=get_span(node))


def build_choose(node: Node) -> Choose | None:
    """Builds CHOOSE LATEST or ONCE; ALL is the default."""
    word = str(get_children(node)[0]).upper()
    return None if word == "ALL" else Choose(MatchChoice(word), get_span(node))


def build_limit(node: Node) -> Limit:
    """Builds LIMIT n, or LAST n."""
    sign, amount = get_children(node)
    count = parse_whole_number(amount)
    return Limit(-count if sign else count, get_span(node))


def build_archive_join(node: Node, shape: Pattern, text: str, inline: Sequence[Expr] = ()) -> ArchiveJoin:
    """Builds a JOIN ARCHIVE with the pattern `shape` and the `inline` conditions of its parts."""
    keyword, name, _, selections, range_, latest, on = get_children(node)
    archive, span = unquote_name(name), get_span(name)
    if range_ is None:
        raise QueryError(
            f"JOIN ARCHIVE {archive} has no RANGE: how far back may its matches be?",
            hint="add it after the pattern, as in RANGE 30 days BEFORE START",
            span=span,
        )
    conjuncts, equivalence = build_conjuncts(get_children(on)[0]) if on else ((), ())
    last = build_limit(latest) if latest else None
    if last is not None and last.count < 1:
        raise QueryError(
            "LAST must be at least 1",
            hint="LAST 1 is the latest; ANTI JOIN ARCHIVE requires that there is none",
            span=last.span,
        )
    return ArchiveJoin(
        archive=archive,
        query=build_match_query(shape, collect_clauses(get_children(selections)), text, inline),
        range=_build_range(range_),
        on=conjuncts,
        equivalence=equivalence,
        last=None if last is None else last.count,
        kind=next((k for k in JoinKind if keyword.upper().startswith(k.name)), JoinKind.INNER),
        span=span,
    )


def _build_range(node: Node) -> LookbackRange:
    far, *near, anchor = get_children(node)
    return LookbackRange(
        _build_length(far), RangeAnchor(anchor.upper()), _build_length(near[0]) if near else None, get_span(node)
    )


def _build_length(node: Node) -> ByTime | ByUnits:
    match build_window(node):
        case ByEvents(count=count, span=span):
            raise QueryError(
                "RANGE must be a length of time, not a number of events",
                hint="as in RANGE 30 days BEFORE START; "
                f"the latest {max(count, 1)} of the matches are LAST {max(count, 1)}",
                span=span,
            )
        case length:
            return length


# ------------------------------------------------- RETURN, GROUP BY, ORDER BY, FETCH FIRST


def split_return(returning: Node | None) -> tuple[list[Node], Token | None, Token | None]:
    """Splits RETURN into its columns and its words TOTAL and ALL EVENTS."""
    if returning is None:
        return [], None, None
    if returning.data == "returning_events":
        return [], None, get_children(returning)[0]
    total, *columns, labelled = get_children(returning)
    return columns, total, labelled


def build_whole_result(
    returns: Sequence[ReturnItem], total: Token | None, grouping: Node | None, ordering: Node | None, limit: Node | None
) -> ResultModifiers | None:
    """Builds GROUP BY, TOTAL, ORDER BY and FETCH FIRST; None if the query has none of them."""
    if total is not None and grouping is not None:
        raise QueryError(
            "TOTAL takes all matches together, and GROUP BY makes groups of them",
            hint="leave one of them out",
            span=get_span(grouping),
        )
    keys: tuple[Expr, ...] | None = () if total is not None else None
    if grouping is not None:
        keys = _build_keys(grouping, returns)
    order = tuple(build_sort_key(node) for node in get_children(ordering)) if ordering else ()
    row_limit = None
    if limit is not None and (limit.data == "fetch" or order or keys is not None):
        row_limit = build_limit(limit).count
        if row_limit < 1:
            raise QueryError("at least 1 row is to be returned", span=get_span(limit))
    if keys is None and not order and row_limit is None:
        return None
    nodes: list[Any] = [part for part in (total, grouping, ordering, limit) if part is not None]
    return ResultModifiers(keys, order, row_limit, get_span(nodes[0]))


def _build_keys(grouping: Node, returns: Sequence[ReturnItem]) -> tuple[Expr, ...]:
    match grouping.data:
        case "one_group":
            return ()
        case "all_groups":  # as DuckDB and Spark have it: by all columns that are no aggregates
            return tuple(column.expr for column in returns if column.over is None)
        case _:
            return tuple(build_expression(key) for key in get_children(grouping))


def build_sort_key(node: Node) -> SortKey:
    """Builds a key of ORDER BY with its direction and the position of NULL."""
    expression, direction, nulls = get_children(node)
    return SortKey(
        build_expression(expression),
        direction is not None and direction.upper() == "DESC",
        nulls is not None and nulls.upper().endswith("FIRST"),
        get_span(node),
    )
