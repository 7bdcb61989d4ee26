"""Parses the pattern language to queries; errors point into the text."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache

from lark import Lark, Tree, UnexpectedInput

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.analyzer.query import check_structure
from ensue.errors import QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.expression import Expr
from ensue.ir.query import Query
from ensue.ir.user_operator import UserOperator
from ensue.parser.clauses import (
    build_choose,
    build_column,
    build_limit,
    build_match_query,
    build_whole_result,
    collect_clauses,
    split_return,
)
from ensue.parser.expressions import Node, build_expression, get_children, get_span, unquote_name
from ensue.parser.grammar import ParameterPostLex, load_grammar, parse_tree
from ensue.parser.parameters import NO_PARAMETERS, Parameters
from ensue.parser.pattern_transformer import collect_variables, name_variables, resolve_until_types, transform_pattern

_DEEPEST = 200  # levels of syntax, since later passes recurse
_WIDEST = 32  # most levels that a chain of and/or adds


def parse(text: str, operators: Iterable[UserOperator] = ()) -> Query:
    """Parses a query over one stream, which may use these operators.

    >>> query = parse("SEQ(Shelf x, !Counter y, Exit z) WHERE [tag] WITHIN 12 hours")
    >>> query.strategy.value
    'skip_till_any_match'
    """
    match parse_statement(text, operators):
        case Query() as query:
            return query
        case ArchiveJoinQuery() as archive_join:
            raise QueryError(
                "JOIN ARCHIVE is not supported here yet",
                hint="leave it out: here a query covers one stream",
                span=archive_join.joins[0].span,
                text=text,
            )


def parse_statement(
    text: str, operators: Iterable[UserOperator] = (), parameters: Parameters = NO_PARAMETERS
) -> Query | ArchiveJoinQuery:
    """Parses a query, also one with JOIN ARCHIVE; `parameters` hold the values of its `:names`.

    >>> text = "Pass p JOIN ARCHIVE passes Pass q RANGE 6 hours BEFORE START ON [tag]"
    >>> parse_statement(text).joins[0].archive
    'passes'
    """
    if parameters.values:
        return _read(text, tuple(operators), parameters)
    try:
        return _read_cached(text, tuple(operators))
    except QueryError:
        if ":" not in text:
            raise
        return _read(text, tuple(operators), parameters)  # its errors explain how to pass a value


@lru_cache(maxsize=256)
def _read_cached(text: str, operators: tuple[UserOperator, ...]) -> Query | ArchiveJoinQuery:
    """Caches texts without parameters, whose meaning depends only on the known operators."""
    return _read(text, operators, NO_PARAMETERS)


def _read(text: str, operators: tuple[UserOperator, ...], parameters: Parameters) -> Query | ArchiveJoinQuery:
    try:
        tree = parse_tree(_grammar(), text, "start", parameters)
        check_depth(tree)
        return _statement(tree, text, operators)
    except UnexpectedInput as error:
        from ensue.parser.syntax_errors import explain_syntax_error

        raise explain_syntax_error(error, text, parameters) from None
    except QueryError as error:
        raise error.at(None, text) from None


@cache
def _grammar() -> Lark:
    return load_pattern_grammar("start")


def load_pattern_grammar(*rules: str) -> Lark:
    """Loads the grammar of the language, or the part that these rules need."""
    return load_grammar("ensue.parser", "patterns.lark", start=list(rules), postlex=ParameterPostLex())


def check_depth(tree: Node) -> None:
    """Raises a QueryError for a tree that is too deep for recursion."""
    pending: list[tuple[Node, int]] = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > _DEEPEST:
            raise QueryError(
                "this is nested too deeply",
                hint="split the condition at its 'and's, or list values with IN (...)",
                span=get_span(node),
            )
        is_chain = node.data in ("expression", "conjunction")
        child_depth = depth + (min(len(node.children), _WIDEST) if is_chain else 1)
        pending += [(child, child_depth) for child in node.children if isinstance(child, Tree)]


def _statement(tree: Node, text: str, operators: tuple[UserOperator, ...]) -> Query | ArchiveJoinQuery:
    *name, body = get_children(tree)
    pattern, *clause_nodes = get_children(body)
    joins = [clause for clause in clause_nodes if clause.data == "join"]
    clauses = collect_clauses(clause for clause in clause_nodes if clause.data != "join")
    limit, choose, grouping = (clauses.get(name) for name in ("limit", "choose", "grouping"))
    inline: list[list[Expr]] = [[] for _ in (pattern, *joins)]
    pattern_nodes = (pattern, *(get_children(join)[2] for join in joins))
    shapes = [
        transform_pattern(node, operators, conditions) for node, conditions in zip(pattern_nodes, inline, strict=True)
    ]
    names = set().union(*map(collect_variables, shapes))
    live, *archived = [
        resolve_until_types(name_variables(shape, names), conditions)
        for shape, conditions in zip(shapes, inline, strict=True)
    ]
    query = replace(build_match_query(live, clauses, text, inline[0]), name=unquote_name(name[0]) if name else None)
    columns, total, all_events = split_return(clauses.get("returning"))
    grouped = total is not None or grouping is not None
    exists = [column for column in columns if column.data == "exists"]
    returns = tuple(build_column(column, grouped=grouped) for column in columns if column.data != "exists")
    having = build_expression(get_children(clauses["having"])[0]) if "having" in clauses else None
    whole = build_whole_result(returns, total, grouping, clauses.get("ordering"), limit)
    match_limit = build_limit(limit) if limit and (whole is None or whole.first is None) else None
    if not joins:
        query = replace(query, returns=returns, having=having, limit=match_limit, exists=bool(exists))
        query = replace(query, choose=build_choose(choose) if choose else None)
        return check_structure(replace(query, all_events=all_events is not None, whole=whole))
    from ensue.analyzer.join_checks import build_no_summary_error, check_archive_join_structure
    from ensue.parser.clauses import build_archive_join

    if all_events is not None:
        raise QueryError(
            "ALL EVENTS cannot be combined with JOIN ARCHIVE",
            hint="leave it out: a row has the events of all sides as structs",
            span=get_span(all_events),
        )
    if choose and build_choose(choose):
        raise QueryError(
            "CHOOSE cannot be combined with JOIN ARCHIVE",
            hint="leave it out; LAST 1 keeps the latest archived match for each live one",
            span=get_span(choose),
        )
    for negation, _ in (conditions for shape in (live, *archived) for conditions in iterate_interval_negations(shape)):
        raise QueryError(
            "an absence with an explicit interval cannot be combined with JOIN ARCHIVE",
            hint="name the events between which nothing happens: SEQ(A a, !C c, B b)",
            span=negation.span,
        )
    if exists:
        raise build_no_summary_error("EXISTS", get_span(exists[0]))
    conditions = tuple(
        build_archive_join(node, shape, text, conditions)
        for node, shape, conditions in zip(joins, archived, inline[1:], strict=True)
    )
    return check_archive_join_structure(
        ArchiveJoinQuery(query, conditions, returns, having, match_limit, whole=whole, text=text)
    )
