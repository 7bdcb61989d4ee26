"""The pattern language: text to a query, or a QueryError that points into the text."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache

from lark import Lark, Tree, UnexpectedInput

from ensue.algebra.check.correlation import check_correlation_structure, no_summary
from ensue.algebra.check.query import check_structure
from ensue.algebra.correlation import Correlation
from ensue.algebra.lapses import lapses
from ensue.algebra.operator import Operator, registered
from ensue.algebra.predicate import Expr
from ensue.algebra.query import Query
from ensue.errors import QueryError
from ensue.languages.archive_joins import archive_join, joined_pattern
from ensue.languages.clauses import Clauses, choose_of, limit_of, matched, returned_of
from ensue.languages.expressions import Node, expr_of, name_of, pieces, span_of
from ensue.languages.kept_grammars import grammar
from ensue.languages.parameter_tokens import AnywhereInText, read
from ensue.languages.parameters import NO_PARAMETERS, Parameters
from ensue.languages.pattern_trees import explicit_names, pattern_of, with_names, with_types
from ensue.languages.syntax import explain
from ensue.languages.whole_results import columns_of, whole_of

_DEEPEST = 200  # levels of syntax: what follows walks trees recursively
_WIDEST = 32  # levels that a chain of and/or adds at most


def parse(text: str, operators: Iterable[Operator] = ()) -> Query:
    """Reads a query over one stream. `operators` are known in it beside those that are registered.

    >>> query = parse("SEQ(Shelf x, !Counter y, Exit z) WHERE [tag] WITHIN 12 hours")
    >>> query.strategy.value
    'skip_till_any_match'
    """
    match statement(text, operators):
        case Query() as query:
            return query
        case Correlation() as correlation:
            raise QueryError(
                "JOIN ARCHIVE is not supported here yet",
                hint="leave it out: here a query covers one stream",
                span=correlation.joins[0].span,
                text=text,
            )


def statement(
    text: str,
    operators: Iterable[Operator] = (),
    parameters: Parameters = NO_PARAMETERS,
) -> Query | Correlation:
    """Reads a query, also one with JOIN ARCHIVE. `parameters` have the values of its `:names`.

    >>> found = statement("Pass p JOIN ARCHIVE passes Pass q RANGE 6 hours BEFORE START ON [tag]")
    >>> [join.archive for join in found.joins]
    ['passes']
    """
    if parameters.values:
        return _read(text, tuple(operators), parameters)
    try:
        return _kept(text, tuple(operators), registered())
    except QueryError:
        if ":" not in text:
            raise
        return _read(text, tuple(operators), parameters)  # whose errors say how a value is given


@lru_cache(maxsize=256)
def _kept(
    text: str, operators: tuple[Operator, ...], _registered: tuple[Operator, ...]
) -> Query | Correlation:
    """A text without parameters means the same as long as the same operators are known."""
    return _read(text, operators, NO_PARAMETERS)


def _read(
    text: str, operators: tuple[Operator, ...], parameters: Parameters
) -> Query | Correlation:
    try:
        tree = read(_grammar(), text, "start", parameters)
        limit_depth(tree)
        return _statement(tree, text, operators)
    except UnexpectedInput as error:
        raise explain(error, text, parameters) from None
    except QueryError as error:
        raise error.at(None, text) from None


@cache
def _grammar() -> Lark:
    return grammar_of("start")


def grammar_of(*rules: str) -> Lark:
    """The language, or as much of it as these rules need."""
    return grammar("ensue.languages", "patterns.lark", start=list(rules), postlex=AnywhereInText())


def limit_depth(tree: Node) -> None:
    """Raises a QueryError for a tree that is too deep to be walked."""
    left: list[tuple[Node, int]] = [(tree, 0)]
    while left:
        node, depth = left.pop()
        if depth > _DEEPEST:
            raise QueryError(
                "this is nested too deeply",
                hint="split the condition at its 'and's, or list values with IN (...)",
                span=span_of(node),
            )
        chained = node.data in ("expression", "conjunction")
        below = depth + (min(len(node.children), _WIDEST) if chained else 1)
        left += [(child, below) for child in node.children if isinstance(child, Tree)]


def _statement(tree: Node, text: str, operators: tuple[Operator, ...]) -> Query | Correlation:
    *name, body = pieces(tree)
    pattern, *given = pieces(body)
    joins = [clause for clause in given if clause.data == "join"]
    clauses = Clauses.of(clause for clause in given if clause.data != "join")
    returning, limit, choose = clauses.returning, clauses.limit, clauses.choose
    beside: list[list[Expr]] = [[] for _ in (pattern, *joins)]
    written = (pattern, *map(joined_pattern, joins))
    shapes = [
        pattern_of(node, operators, found) for node, found in zip(written, beside, strict=True)
    ]
    taken = {named for shape in shapes for named in explicit_names(shape)}
    live, *past = [
        with_types(with_names(shape, taken), found)
        for shape, found in zip(shapes, beside, strict=True)
    ]
    query = replace(
        matched(live, clauses, text, beside[0]),
        name=name_of(name[0]) if name else None,
    )
    columns, total, labelled = columns_of(returning)
    grouped = total is not None or clauses.grouping is not None
    exists = [column for column in columns if column.data == "exists"]
    returns = tuple(
        returned_of(column, grouped=grouped) for column in columns if column.data != "exists"
    )
    condition = expr_of(pieces(clauses.having)[0]) if clauses.having else None
    whole = whole_of(returns, total, clauses.grouping, clauses.ordering, limit)
    most = limit_of(limit) if limit and (whole is None or whole.first is None) else None
    if not joins:
        query = replace(query, returns=returns, having=condition, limit=most, exists=bool(exists))
        query = replace(query, choose=choose_of(choose) if choose else None)
        return check_structure(replace(query, all_events=labelled is not None, whole=whole))
    if labelled is not None:
        raise QueryError(
            "ALL EVENTS cannot be combined with JOIN ARCHIVE",
            hint="leave it out: a row has the events of all sides as structs",
            span=span_of(labelled),
        )
    if choose and choose_of(choose):
        raise QueryError(
            "CHOOSE cannot be combined with JOIN ARCHIVE",
            hint="leave it out; LAST 1 keeps the latest archived match for each live one",
            span=span_of(choose),
        )
    for negation, _ in (found for shape in (live, *past) for found in lapses(shape)):
        raise QueryError(
            "an absence with an explicit interval cannot be combined with JOIN ARCHIVE",
            hint="say between which events nothing happens: SEQ(A a, !C c, B b)",
            span=negation.span,
        )
    if exists:
        raise no_summary("EXISTS", span_of(exists[0]))
    found = tuple(
        archive_join(node, shape, text, conditions)
        for node, shape, conditions in zip(joins, past, beside[1:], strict=True)
    )
    return check_correlation_structure(
        Correlation(query, found, returns, condition, most, whole=whole, text=text)
    )
