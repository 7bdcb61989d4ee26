"""Two clauses of SQL that are joined, one over live rows and one over an archive of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError

from ensue.algebra.check.correlation import check_clause_side
from ensue.algebra.correlation import ArchiveJoin, ClauseSide, Correlation, JoinKind
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.query import Returned
from ensue.algebra.row_patterns.aggregates import row_aggregate
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.walk import conjuncts
from ensue.errors import QueryError, did_you_mean
from ensue.languages.row_patterns.dialect import RowSql
from ensue.languages.row_patterns.parameters import filled
from ensue.languages.row_patterns.scalars import Place, expression_of
from ensue.languages.row_patterns.tokens import tokens_of
from ensue.languages.sql.clauses import read_sql
from ensue.languages.sql.query import Clause, SqlQuery
from ensue.languages.sql.ranges import range_of
from ensue.languages.sql.rewriting import around
from ensue.languages.sql.tokens import Dialect
from ensue.span import Span

MATCH_ID = "match_id"
FORM = (
    "the form is SELECT L.x, A.y AS z FROM live MATCH_RECOGNIZE (...) AS L JOIN archive "
    "MATCH_RECOGNIZE (...) AS A ON A.key = L.key AND A.ended < L.started "
    "AND A.started >= L.started - INTERVAL '30' DAY"
)
_PARTS = {"expressions", "from", "from_", "joins", "where"}
_KINDS = {
    ("", ""): JoinKind.INNER,
    ("", "INNER"): JoinKind.INNER,
    ("LEFT", ""): JoinKind.LEFT,
    ("LEFT", "OUTER"): JoinKind.LEFT,
    ("", "ANTI"): JoinKind.ANTI,
    ("LEFT", "ANTI"): JoinKind.ANTI,
}
_NAME = "__ensue_match_"

Resolved = Callable[[Clause], Recognition]  # what a clause means, with the columns of its table


class MisfitError(QueryError):
    """A query in which a clause over an archive is not joined in the form that Ensue runs."""


def over_archives(query: SqlQuery, archives: Mapping[str, object]) -> tuple[Clause, ...]:
    """The clauses over archives, which are known by names in lower case."""
    return tuple(
        clause
        for clause in query.clauses
        if (table := query.plain_table(clause)) is not None and table.lower() in archives
    )


def correlation_of(
    query: SqlQuery,
    archives: Mapping[str, str],
    resolved: Resolved,
    dialect: Dialect = Dialect.DUCKDB,
) -> Correlation:
    """The query as a live clause that is joined with archives, or a MisfitError that says why not.

    `archives` are their names by those in lower case.
    """
    try:
        return _Reading(query, archives, resolved, dialect).read()
    except MisfitError:
        raise
    except QueryError as error:
        raise MisfitError(
            error.problem, hint=error.hint, span=error.span, text=error.text or query.text
        ) from None


def read_joined(text: str) -> Correlation:
    """What `show_joined` has written."""
    from ensue.languages.row_patterns.clause import read_clause

    query = read_sql(text)
    tables = [str(clause.table) for clause in query.clauses[1:]]

    def resolved(clause: Clause) -> Recognition:
        return read_clause(text, clause.body.start, clause.body.end, clause.table)

    return correlation_of(query, {name.lower(): name for name in tables}, resolved)


@dataclass(slots=True)
class _Reading:
    query: SqlQuery
    archives: Mapping[str, str]
    resolved: Resolved
    dialect: Dialect
    sides: dict[str, ClauseSide] | None = None  # by alias in lower case
    place: Place | None = None

    def read(self) -> Correlation:
        query = self.query
        tree = self._tree()
        self._only_these_parts(tree)
        source = tree.args.get("from") or tree.args.get("from_")
        live_clause = self._clause(source.this if source is not None else None, tree)
        table = query.plain_table(live_clause)
        if table is None or table.lower() in self.archives:
            raise self._misfit(
                "FROM must begin with a clause over the live rows", live_clause.keyword
            )
        self.sides = {}
        live = self._side(live_clause)
        joins = tuple(self._join(join, live) for join in tree.args.get("joins") or ())
        if not joins:
            raise self._misfit("no clause over an archive is joined", live_clause.keyword)
        if len(joins) + 1 != len(query.clauses):
            raise self._misfit("some clauses are not joined", query.clauses[0].keyword)
        where = tree.args.get("where")
        having = None if where is None else self._expr(where.this)
        returns, columns = self._returned(tree)
        return Correlation(live, joins, returns, having, columns=columns, text=query.text)

    # ------------------------------------------------------------------ the statement

    def _tree(self) -> exp.Select:
        """The query with names in place of its clauses, everything where it stands."""
        query = self.query

        def named(clause: Clause) -> str:
            return f"{_NAME}{clause.number}".ljust(clause.whole.end - clause.whole.start)

        text = around(query, named).text
        if self.dialect is Dialect.SPARK and ('"' in text or "\\" in text):
            raise self._misfit("it has a text in double quotes, or escapes", query.span)
        try:
            found = RowSql().parse(text)
        except (SqlglotError, RecursionError):
            raise self._misfit("it is more than that", query.span) from None
        tree = found[0] if len(found) == 1 else None
        if not isinstance(tree, exp.Select):
            raise self._misfit("it is more than one SELECT", query.span)
        filled(tree, query.parameters, 0)
        self.place = Place(tree, tokens_of(text, 0, len(text)), Span(0, len(text)))
        return tree

    def _only_these_parts(self, tree: exp.Select) -> None:
        for name, value in tree.args.items():
            if value and name not in _PARTS:
                raise self._misfit(f"it has {name.rstrip('_').upper()}", self._span(value))

    def _span(self, value: object) -> Span:
        assert self.place is not None
        if isinstance(value, list) and value:
            value = value[0]
        return self.place.span(value) if isinstance(value, exp.Expr) else self.query.span

    def _clause(self, table: exp.Expr | None, around: exp.Expr) -> Clause:
        name = table.name if isinstance(table, exp.Table) else ""
        number = name.removeprefix(_NAME)
        plain = isinstance(table, exp.Table) and not any(
            value for key, value in table.args.items() if key not in ("this", "alias")
        )
        if not plain or not name.startswith(_NAME) or not number.isdigit():
            raise self._misfit(
                "there is a table where a clause is expected", self._span(table or around)
            )
        clause = self.query.clauses[int(number) - 1]
        if clause.alias is None:
            raise self._misfit("a clause has no name: MATCH_RECOGNIZE (...) AS L", clause.keyword)
        return clause

    def _side(self, clause: Clause) -> ClauseSide:
        assert clause.alias is not None
        assert self.sides is not None
        if clause.alias.lower() in self.sides:
            raise self._misfit(f"two clauses are called {clause.alias}", clause.keyword)
        meant = self.resolved(clause)
        names = {column.lower() for column in _columns(meant)}
        ids = MATCH_ID in self.query.names and MATCH_ID not in names
        found = ClauseSide(meant, clause.alias, ids, str(clause.table))
        check_clause_side(found)
        self.sides[clause.alias.lower()] = found
        return found

    def _join(self, join: exp.Join, live: ClauseSide) -> ArchiveJoin:
        clause = self._clause(join.this, join)
        kind = _KINDS.get((str(join.side).upper(), str(join.kind).upper()))
        if kind is None or join.args.get("using") or join.args.get("method"):
            raise self._misfit("it is not joined with JOIN or LEFT JOIN", clause.keyword)
        table = self.query.plain_table(clause)
        archive = None if table is None else self.archives.get(table.lower())
        if archive is None:
            raise self._misfit(
                "what is joined is not a clause over one of archives=", clause.keyword
            )
        side = self._side(clause)
        if join.args.get("on") is None:
            raise self._misfit("there is no ON", clause.keyword)
        on = tuple(conjuncts(self._expr(join.args["on"])))
        range_ = range_of(on, live, side)
        if range_ is None:
            raise self._misfit(
                f"ON does not say that {side.alias} ends before {live.alias} starts, and how long "
                "before it starts at most, by measures that are the time of the first or last row",
                self._span(join.args["on"]),
            )
        return ArchiveJoin(archive, side, range_, on, kind=kind, span=clause.input)

    # ------------------------------------------------------------------ values

    def _returned(self, tree: exp.Select) -> tuple[tuple[Returned, ...], tuple[str, ...]]:
        returns: list[Returned] = []
        columns: list[str] = []
        for item in tree.expressions:
            value, name = item, None
            if isinstance(item, exp.Alias):
                value, name = item.this, item.alias
            span = self._span(item)
            if self._is_row_id(value):
                if (name or MATCH_ID).lower() != MATCH_ID:
                    raise self._misfit(f"{MATCH_ID} has another name", span)
                columns.append(MATCH_ID)
                continue
            if isinstance(value, exp.Star) or isinstance(value.this, exp.Star):
                raise self._misfit("* is not allowed: name the columns", span)
            expr = self._expr(value)
            if name is None and isinstance(expr, Field):
                name = expr.name  # as the clause calls it
            if name is None:
                raise self._misfit("a column has no name: give it one with AS", span)
            if name.lower() in {known.lower() for known in columns}:
                raise self._misfit(f"two columns are called {name}: rename one with AS", span)
            returns.append(Returned(expr, name, span=span))
            columns.append(name)
        return tuple(returns), tuple(columns)

    def _is_row_id(self, value: exp.Expr) -> bool:
        """`match_id` without a table: the id of the joined row."""
        return isinstance(value, exp.Column) and value.name.lower() == MATCH_ID and not value.table

    def _expr(self, node: exp.Expr) -> Expr:
        assert self.place is not None
        return expression_of(node, self.place, self._leaf)

    def _leaf(self, node: exp.Expr, span: Span) -> Expr | None:
        if isinstance(node, exp.Anonymous) and row_aggregate(node.name.lower()) is not None:
            raise self._misfit(f"{node.name} is about many rows", span)
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        assert self.sides is not None
        sides = self.sides
        if node.args.get("db"):
            raise self._misfit("a column is written as L.column", span)
        owner = node.table.lower()
        if owner and owner not in sides:
            raise QueryError(
                f"unknown table '{node.table}'",
                hint=did_you_mean(node.table, [side.alias for side in sides.values()]),
                span=span,
            )
        mine = [sides[owner]] if owner else list(sides.values())
        found = [(s.alias, c) for s in mine for c in _known(s) if c.lower() == node.name.lower()]
        if len(found) != 1:
            known = [column for side in mine for column in _known(side)]
            what = "unknown column" if not found else "more than one clause has a column"
            hint = did_you_mean(node.name, known) if not found else f"write L.{node.name}"
            raise QueryError(f"{what} '{node.name}'", hint=hint, span=span)
        return Field(*found[0], span=span)

    def _misfit(self, why: str, span: Span) -> MisfitError:
        return MisfitError(
            f"a clause over an archive is joined in a way that is not possible on a stream: {why}",
            hint=FORM,
            span=span,
            text=self.query.text,
        )


def _known(side: ClauseSide) -> Iterator[str]:
    if side.ids:
        yield MATCH_ID
    yield from _columns(side.recognition)


def _columns(recognition: Recognition) -> Iterator[str]:
    """The columns that a clause gives, with ONE ROW PER MATCH."""
    yield from (key.name for key in recognition.partition)
    yield from (measure.name for measure in recognition.measures)
