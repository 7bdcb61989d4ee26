"""Parses SQL queries with MATCH_RECOGNIZE clauses: the clauses, and the parts around them that an engine runs."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache

from sqlglot import TokenType, exp
from sqlglot.tokenizer_core import Token

from ensue.errors import QueryError, Span
from ensue.parser.parameters import NO_PARAMETERS, Parameters
from ensue.parser.sql.clause_parser import ClauseTokens, RunSubquery, find_subqueries
from ensue.parser.sql.sql_query import (
    KEYWORD,
    Dialect,
    MatchClause,
    NamedQuery,
    ParameterPosition,
    SqlQuery,
    WithClause,
)
from ensue.parser.sql.sqlglot_dialect import get_span, get_word, is_name, match_brackets, parse_statement, tokenize

_WRITES = (exp.DML, exp.DDL, exp.Command)


def parse_sql(
    text: str,
    dialect: Dialect = Dialect.DUCKDB,
    parameters: Parameters = NO_PARAMETERS,
    run_subquery: RunSubquery | None = None,
) -> SqlQuery:
    """Parses a query with its clauses, or raises a QueryError for anything but one query.

    Subqueries inside of clauses are run when their clause is parsed, by `run_subquery`.

    >>> query = parse_sql("SELECT * FROM a x, (SELECT 1) MATCH_RECOGNIZE (PATTERN (A)) AS m")
    >>> [clause.input.over(query.text) for clause in query.clauses]
    ['(SELECT 1)']
    >>> query.clauses[0].body.over(query.text), query.clauses[0].alias
    ('PATTERN (A)', 'm')
    """
    try:
        if not parameters.values:
            query = _read_without_values(text, dialect, parameters.how)
            if not query.has_subqueries or run_subquery is None:
                return query
        return _StatementReader(text, dialect, parameters, run_subquery).read()
    except QueryError as error:
        raise error.at(None, text) from None


@lru_cache(maxsize=64)
def _read_without_values(text: str, dialect: Dialect, how: Callable[[str], str]) -> SqlQuery:
    return _StatementReader(text, dialect, Parameters({}, how)).read()


@lru_cache(maxsize=64)
def find_table_names(text: str, dialect: Dialect = Dialect.DUCKDB) -> tuple[str, ...]:
    """Returns the names of the tables that a query reads, in its clauses too; some may be named queries.

    >>> find_table_names("WITH w AS (SELECT a, b FROM t x, u) SELECT c, d FROM w JOIN v USING (k)")
    ('w', 'v', 't', 'u')
    """
    reader = _StatementReader(text, dialect, NO_PARAMETERS)
    tree = reader.parse()
    inside = [
        get_span(body.tokens[first]).to(get_span(body.tokens[last])).over(text)[1:-1]
        for body in reader.bodies.values()
        for first, last in find_subqueries(body.tokens)
    ]
    tables = (table for table in tree.find_all(exp.Table) if not table.db and table.args.get("match") is None)
    names = [table.name for table in tables if isinstance(table.this, exp.Identifier)]
    names += (name for subquery in inside for name in find_table_names(subquery, dialect))
    return tuple(dict.fromkeys(names))


class _StatementReader:
    """Parses a text to a tree, and finds the clauses and named queries in it."""

    def __init__(
        self, text: str, dialect: Dialect, parameters: Parameters, run_subquery: RunSubquery | None = None
    ) -> None:
        self.run_subquery = run_subquery
        self.text = text
        self.dialect = dialect
        self.parameters = parameters
        tokens = tokenize(text, dialect)
        while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
            tokens.pop()
        if not tokens:
            raise QueryError("an empty text is not a query", hint="SELECT ... FROM ...")
        self.span = Span(0, tokens[-1].end + 1)
        self.bodies: dict[int, ClauseTokens] = {}  # by the start of the keyword
        self.pairs = match_brackets(tokens)
        self.tokens = tokens
        self.outer = list(self._separate_bodies())

    def read(self) -> SqlQuery:
        tree = self.parse()
        withs = tuple(self._withs(tree))
        names = {token.text for token in self.tokens if is_name(token)}
        folded = frozenset(name.lower() for name in names)
        tables = sorted(_clause_tables(tree), key=_get_keyword)
        clauses = tuple(
            self._build_clause(table, number, "match_id" in folded) for number, table in enumerate(tables, 1)
        )
        places = tuple(_find_parameters(tree))
        for place in places:  # a missing value is reported before anything runs
            self.parameters.constants(place.name, place.span)
        words = folded | {token.text.lower() for token in self.tokens if token.token_type is TokenType.STRING}
        mixed = len(folded) < len(names)
        only = clauses[-1] if clauses and _is_only(tree, tables[-1]) else None
        inside = any(True for body in self.bodies.values() for _ in find_subqueries(body.tokens))
        return SqlQuery(self.text, self.span, clauses, withs, words, mixed, only, places, inside, self.parameters, tree)

    def _separate_bodies(self) -> Iterator[Token]:
        """Yields the tokens outside the bodies of clauses."""
        close = -1
        for number, token in enumerate(self.tokens):
            inside = number <= close
            if token.token_type is TokenType.SEMICOLON and not inside:
                raise QueryError("this is more than one statement", span=get_span(self.tokens[number + 1]))
            if token.token_type is TokenType.MATCH_RECOGNIZE:
                if inside:
                    raise QueryError(
                        "MATCH_RECOGNIZE cannot be inside the parentheses of another",
                        hint="use the result of one as the input of another: FROM (SELECT * FROM t "
                        "MATCH_RECOGNIZE (...)) MATCH_RECOGNIZE (...)",
                        span=get_span(token),
                    )
                following = self.tokens[number + 1 : number + 2]
                if not following or following[0].token_type is not TokenType.L_PAREN:
                    raise QueryError(
                        "a parenthesis is missing after MATCH_RECOGNIZE",
                        hint='MATCH_RECOGNIZE (...); a column of this name is written "MATCH_RECOGNIZE"',
                        span=get_span(token),
                    )
                close = self.pairs[number + 1]
                body = self.tokens[number + 2 : close]
                span = Span(following[0].end + 1, self.tokens[close].start)
                self.bodies[token.start] = ClauseTokens(self.text, span, body, self.parameters, self.run_subquery)
            if not inside:
                yield token

    def parse(self) -> exp.Expr:
        try:
            tree = parse_statement(self.outer, self.dialect, self.span)
        except QueryError:
            self._refuse_windows()
            raise
        first = self.outer[0]
        if not isinstance(tree, exp.Query | exp.Values):
            raise QueryError(
                f"{first.text} does not begin a query",
                hint="a query starts with SELECT, WITH, FROM, VALUES or a parenthesis",
                span=get_span(first),
            )
        if tree.find(*_WRITES):
            raise QueryError("a query cannot write", hint="it starts with SELECT, WITH, FROM or VALUES", span=self.span)
        return tree

    def _refuse_windows(self) -> None:
        """Refuses `OVER (... PATTERN (...) DEFINE ...)` and `WINDOW w AS (...)`."""
        words = {get_word(token): token for token in self.outer}
        if {"PATTERN", "DEFINE"} <= words.keys() and not {"OVER", "WINDOW"}.isdisjoint(words):
            raise QueryError(
                "row patterns in windows are not supported",
                hint="write FROM t MATCH_RECOGNIZE (PARTITION BY ... ORDER BY ... MEASURES ... "
                "PATTERN (...) DEFINE ...)",
                span=get_span(words["PATTERN"]),
            )

    def _withs(self, tree: exp.Expr) -> Iterator[WithClause]:
        """Yields the WITH clauses in the order of the text."""
        for with_ in sorted(tree.find_all(exp.With), key=_get_start):
            queries = sorted((cte for cte in with_.expressions if "start" in cte.meta), key=_get_start)
            for cte in queries if with_.args.get("recursive") else ():
                _refuse_recursion(cte)
            named = (NamedQuery(cte.alias, Span(cte.meta["start"], cte.meta["end"] + 1)) for cte in queries)
            scope = Span(_get_start(with_), self._find_scope_end(_get_start(with_)))
            yield WithClause(scope, tuple(named), bool(with_.args.get("recursive")))

    def _find_scope_end(self, start: int) -> int:
        """Returns the end of the innermost brackets around a position."""
        number = bisect_right(self.tokens, start, key=lambda token: token.start)
        around = [close for opened, close in self.pairs.items() if opened < number - 1 < close]
        return self.tokens[min(around)].start if around else len(self.text)

    def _build_clause(self, table: exp.Table, number: int, asks_ids: bool) -> MatchClause:
        node = table.args["match"]
        tokens = self.bodies[node.meta["keyword"]]
        alias = table.args.get("alias")
        last = self.bodies.get(node.meta["end"] + 1 - len(KEYWORD))  # of a clause before this one
        source = Span(node.meta["start"], node.meta["end"] + 1 if last is None else last.span.end + 1)
        table_name, input_alias = _describe_input(node.this)
        keyword = Span(node.meta["keyword"], node.meta["keyword"] + len(KEYWORD))
        table.this.set("this", str(number))  # from now on a clause is known by its number
        whole = Span(source.start, tokens.span.end + 1)
        return MatchClause(
            number,
            source,
            keyword,
            tokens.span,
            whole,
            table_name,
            input_alias,
            alias.name if alias is not None else None,
            asks_ids,
            tokens=tokens,
        )


def _get_start(node: exp.Expr) -> int:
    return int(node.meta["start"])


def _get_keyword(table: exp.Table) -> int:
    return int(table.args["match"].meta["keyword"])


def _clause_tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """Yields the tables that stand for the clauses in a tree."""
    return (table for table in tree.find_all(exp.Table) if table.args.get("match") is not None)


def _find_parameters(tree: exp.Expr) -> list[ParameterPosition]:
    """Returns the parameters outside of clauses, in the order of the text.

    >>> tree = _StatementReader(
    ...     "SELECT x::int, l[1:n] FROM t WHERE x > :low AND y IN (:names)", Dialect.DUCKDB, NO_PARAMETERS
    ... ).parse()
    >>> [(place.name, place.listed) for place in _find_parameters(tree)]
    [('low', False), ('names', True)]
    """
    places = []
    for node in tree.find_all(exp.Placeholder):
        if isinstance(node.this, str) and "start" in node.meta:
            inside = node.arg_key if isinstance(node.parent, exp.In) else None
            span = Span(node.meta["start"], node.meta["end"] + 1)
            places.append(ParameterPosition(node.this, span, inside == "field", inside == "expressions"))
    return sorted(places, key=lambda place: place.span.start)


def _is_only(tree: exp.Expr, table: exp.Table) -> bool:
    """Whether a query is `SELECT *` of one clause, with or without a name."""
    source = tree.args.get("from_")
    return (
        isinstance(tree, exp.Select)
        and source is not None
        and source.this is table
        and [type(item) for item in tree.expressions] == [exp.Star]
        and not any(tree.expressions[0].args.values())
        and not any(value for name, value in tree.args.items() if name not in ("expressions", "from_"))
        and _is_plain(table)
    )


def _is_plain(table: exp.Expr) -> bool:
    """Whether a table has nothing but a name, or a name after it."""
    alias = table.args.get("alias")
    others = any(value for name, value in table.args.items() if name not in ("this", "alias", "match"))
    return not others and (alias is None or not alias.args.get("columns"))


def _describe_input(table: exp.Expr) -> tuple[str | None, str | None]:
    """Returns the name of a table that is only a name, and the name after it."""
    is_named = isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier) and not table.args.get("match")
    return table.name if is_named and _is_plain(table) else None, table.alias or None


def _refuse_recursion(query: exp.CTE) -> None:
    """Refuses a clause inside a named query that refers to itself."""
    clause = next(_clause_tables(query), None)
    tables = (table for table in query.find_all(exp.Table) if not table.args.get("match"))
    if clause is not None and any(table.name.lower() == query.alias.lower() for table in tables):
        raise QueryError(
            f"MATCH_RECOGNIZE is inside {query.alias}, which refers to itself",
            hint="put it after WITH RECURSIVE, over its result",
            span=Span(_get_keyword(clause), _get_keyword(clause) + len(KEYWORD)),
        )
