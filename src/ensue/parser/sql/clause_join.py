"""Parses joins of a MATCH_RECOGNIZE clause over live rows with clauses over archives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlglot import exp

from ensue.analyzer.join_checks import check_row_pattern_side
from ensue.analyzer.row_pattern_checks import MatchEnd, find_match_ends
from ensue.errors import QueryError, Span, did_you_mean
from ensue.functions.row_aggregates import find_row_aggregate
from ensue.ir.archive_join import ArchiveJoin, ArchiveJoinQuery, JoinKind, LookbackRange, RangeAnchor, RowPatternSide
from ensue.ir.expression import Between, Binary, Expr, FieldRef, Literal, Unary
from ensue.ir.query import ReturnItem
from ensue.ir.row_pattern import RowPatternQuery
from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.traversal import get_conjuncts
from ensue.parser.sql.sql_expressions import SyntaxTree, build_sql_expression
from ensue.parser.sql.sql_parser import parse_sql
from ensue.parser.sql.sql_query import MatchClause, SqlQuery, UnsupportedJoinError
from ensue.parser.sql.sqlglot_dialect import bind_parameters

Length = timedelta | int | float
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class _Linear:
    """A sum of columns with signs, and a constant."""

    fields: dict[tuple[str, str], int]
    constant: Length | None = None  # None: no constant

    def plus(self, other: "_Linear", sign: int) -> "_Linear | None":
        fields = dict(self.fields)
        for column, times in other.fields.items():
            fields[column] = fields.get(column, 0) + sign * times
        constant, added = self.constant, other.constant
        if added is None:
            return _Linear(fields, constant)
        signed = added if sign > 0 else -added
        if constant is None:
            return _Linear(fields, signed)
        if isinstance(constant, timedelta) != isinstance(signed, timedelta):
            return None
        return _Linear(fields, constant + signed)  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class _Bound:
    """`archived <= live - back`, or `>=`; a single row is both ends of its match."""

    archived: frozenset[MatchEnd]
    live: frozenset[MatchEnd]
    operator: str
    back: Length | None  # None: 0


def infer_range(on: Sequence[Expr], live: RowPatternSide, archived: RowPatternSide) -> LookbackRange | None:
    """Infers the smallest range that contains all archived matches the conditions allow.

    It may contain more, since the conditions are still evaluated.
    """
    bounds = [bound for part in on for bound in _bounds(part, live, archived)]
    for anchor, end in ((RangeAnchor.START, MatchEnd.FIRST), (RangeAnchor.END, MatchEnd.LAST)):
        nears = [b.back for b in bounds if end in b.live and _is_upper(b)]
        # a match ends no earlier than it starts: bounds from its end are narrower
        fars = [
            b.back
            for b in bounds
            if b.operator in (">", ">=")
            and MatchEnd.FIRST in b.archived
            and b.live & {end, MatchEnd.LAST}
            and b.back is not None
            and _amount(b.back) > 0
        ]
        if nears and fars:
            far, near = min(fars, key=_amount), max(nears, key=_amount)
            window = _window(near) if near is not None and _amount(near) else None
            if _amount(near) < _amount(far):
                return LookbackRange(_window(far), anchor, window)
    return None


def _is_upper(bound: _Bound) -> bool:
    """Whether the bound requires that an archived match ends before the live one."""
    if MatchEnd.LAST not in bound.archived or bound.operator not in ("<", "<="):
        return False
    back = _amount(bound.back)
    return back > 0 or (back == 0 and bound.operator == "<")


def _amount(length: Length | None) -> int | float:
    return length // timedelta(microseconds=1) if isinstance(length, timedelta) else length or 0


def _window(length: Length) -> ByTime | ByUnits:
    if isinstance(length, timedelta):
        return ByTime(length // timedelta(microseconds=1) * 1_000)
    return ByUnits(length)


def _bounds(condition: Expr, live: RowPatternSide, archived: RowPatternSide) -> Iterator[_Bound]:
    match condition:
        case Between(operand=operand, low=low, high=high, negated=False):
            yield from _bounds(Binary(">=", operand, low), live, archived)
            yield from _bounds(Binary("<=", operand, high), live, archived)
        case Binary(operator=operator, left=left, right=right) if operator in _MIRRORED:
            difference = _linearize(Binary("-", left, right))
            if difference is None:
                return
            fields = {field: times for field, times in difference.fields.items() if times}
            live_names = [name for variable, name in fields if variable == live.alias]
            archived_names = [name for variable, name in fields if variable == archived.alias]
            if len(fields) != 2 or len(live_names) != 1 or len(archived_names) != 1:
                return
            signs = fields[archived.alias, archived_names[0]], fields[live.alias, live_names[0]]
            back = difference.constant  # archived - live + back <operator> 0
            if signs == (-1, 1):
                operator = _MIRRORED[operator]
                back = None if back is None else -back
            elif signs != (1, -1):
                return
            yield _Bound(_ends(archived, archived_names[0]), _ends(live, live_names[0]), operator, back)


def _ends(side: RowPatternSide, name: str) -> frozenset[MatchEnd]:
    for measure in side.row_pattern.measures:
        if measure.name == name:
            return find_match_ends(side.row_pattern, measure.value)
    return frozenset()


def _linearize(expr: Expr) -> _Linear | None:
    match expr:
        case FieldRef(variable=variable, name=str(name)):
            return _Linear({(variable, name): 1})
        case Literal(value=timedelta() as value):
            return _Linear({}, value)
        case Literal(value=int() | float() as value) if not isinstance(value, bool):
            return _Linear({}, value)
        case Unary(operator="-", operand=operand):
            inner = _linearize(operand)
            return None if inner is None else _Linear({}).plus(inner, -1)
        case Binary(operator="+" | "-" as operator, left=left, right=right):
            left_sum, right_sum = _linearize(left), _linearize(right)
            if left_sum is None or right_sum is None:
                return None
            return left_sum.plus(right_sum, 1 if operator == "+" else -1)
        case _:
            return None


MATCH_ID = "match_id"
JOIN_FORM = (
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
# Parses a clause, with the columns of its table.
ResolveClause = Callable[[MatchClause], RowPatternQuery]


def find_archive_clauses(query: SqlQuery, archives: Mapping[str, object]) -> tuple[MatchClause, ...]:
    """Returns the clauses over archives, whose names are in lower case."""
    return tuple(
        clause
        for clause in query.clauses
        if (table := query.plain_table(clause)) is not None and table.lower() in archives
    )


def read_archive_join(query: SqlQuery, archives: Mapping[str, str], resolve: ResolveClause) -> ArchiveJoinQuery:
    """Parses a live clause that is joined with archives, or raises an UnsupportedJoinError.

    `archives` maps names in lower case to the names of the archives.
    """
    try:
        return _JoinReader(query, archives, resolve).read()
    except UnsupportedJoinError:
        raise
    except QueryError as error:
        raise UnsupportedJoinError(
            error.problem, hint=error.hint, span=error.span, text=error.text or query.text
        ) from None


def parse_archive_join_text(text: str) -> ArchiveJoinQuery:
    """Parses a text that `format_archive_join` has printed."""
    query = parse_sql(text)
    tables = [str(clause.table) for clause in query.clauses[1:]]
    return read_archive_join(query, {name.lower(): name for name in tables}, lambda clause: clause.row_pattern)


class _JoinReader:
    """Reads the tree of a query that joins clauses."""

    def __init__(self, query: SqlQuery, archives: Mapping[str, str], resolve: ResolveClause) -> None:
        self.query = query
        self.archives = archives
        self.resolve = resolve
        self.sides: dict[str, RowPatternSide] = {}  # by alias in lower case
        assert query.tree is not None
        self.tree = SyntaxTree(bind_parameters(query.tree.copy(), query.parameters), query.span)

    def read(self) -> ArchiveJoinQuery:
        query, tree = self.query, self.tree.root
        if not isinstance(tree, exp.Select):
            raise self._misfit("it is more than one SELECT", query.span)
        for name, value in tree.args.items():
            if value and name not in _PARTS:
                raise self._misfit(f"it has {name.rstrip('_').upper()}", self._span(value))
        source = tree.args.get("from") or tree.args.get("from_")
        live_clause = self._clause(source.this if source is not None else None, tree)
        table = query.plain_table(live_clause)
        if table is None or table.lower() in self.archives:
            raise self._misfit("FROM must begin with a clause over the live rows", live_clause.keyword)
        live = self._side(live_clause)
        joins = tuple(self._join(join, live) for join in tree.args.get("joins") or ())
        if not joins:
            raise self._misfit("no clause over an archive is joined", live_clause.keyword)
        if len(joins) + 1 != len(query.clauses):
            raise self._misfit("some clauses are not joined", query.clauses[0].keyword)
        where = tree.args.get("where")
        having = None if where is None else self._expr(where.this)
        returns, columns = self._parse_returned(tree)
        return ArchiveJoinQuery(live, joins, returns, having, columns=columns, text=query.text)

    def _span(self, value: object) -> Span:
        if isinstance(value, list) and value:
            value = value[0]
        return self.tree.span(value) if isinstance(value, exp.Expr) else self.query.span

    def _clause(self, table: exp.Expr | None, around: exp.Expr) -> MatchClause:
        others = [] if table is None else [key for key, value in table.args.items() if value]
        if not isinstance(table, exp.Table) or not {"match"} <= set(others) <= {"this", "alias", "match"}:
            raise self._misfit("there is a table where a clause is expected", self._span(table or around))
        clause = self.query.clauses[int(table.name) - 1]
        if clause.alias is None:
            raise self._misfit("a clause has no name: MATCH_RECOGNIZE (...) AS L", clause.keyword)
        return clause

    def _side(self, clause: MatchClause) -> RowPatternSide:
        assert clause.alias is not None
        if clause.alias.lower() in self.sides:
            raise self._misfit(f"two clauses are called {clause.alias}", clause.keyword)
        row_pattern = self.resolve(clause)
        names = {column.lower() for column in _columns(row_pattern)}
        ids = clause.asks_ids and MATCH_ID not in names
        side = RowPatternSide(row_pattern, clause.alias, ids, str(clause.table))
        check_row_pattern_side(side)
        self.sides[clause.alias.lower()] = side
        return side

    def _join(self, join: exp.Join, live: RowPatternSide) -> ArchiveJoin:
        clause = self._clause(join.this, join)
        kind = _KINDS.get((str(join.side).upper(), str(join.kind).upper()))
        if kind is None or join.args.get("using") or join.args.get("method"):
            raise self._misfit("it is not joined with JOIN or LEFT JOIN", clause.keyword)
        table = self.query.plain_table(clause)
        archive = None if table is None else self.archives.get(table.lower())
        if archive is None:
            raise self._misfit("the joined table is not a clause over one of archives=", clause.keyword)
        side = self._side(clause)
        if join.args.get("on") is None:
            raise self._misfit("there is no ON", clause.keyword)
        on = tuple(get_conjuncts(self._expr(join.args["on"])))
        range_ = infer_range(on, live, side)
        if range_ is None:
            raise self._misfit(
                f"ON must bound how long before {live.alias} the match {side.alias} starts and "
                "ends, by measures that are the time of the first or last row",
                self._span(join.args["on"]),
            )
        return ArchiveJoin(archive, side, range_, on, kind=kind, span=clause.input)

    def _parse_returned(self, tree: exp.Select) -> tuple[tuple[ReturnItem, ...], tuple[str, ...]]:
        returns: list[ReturnItem] = []
        columns: list[str] = []
        for item in tree.expressions:
            value, name = item, None
            if isinstance(item, exp.Alias):
                value, name = item.this, item.alias
            span = self._span(item)
            column = isinstance(value, exp.Column) and not value.table
            if column and value.name.lower() == MATCH_ID:  # the id of the joined row
                if (name or MATCH_ID).lower() != MATCH_ID:
                    raise self._misfit(f"{MATCH_ID} has another name", span)
                columns.append(MATCH_ID)
                continue
            if isinstance(value, exp.Star) or isinstance(value.this, exp.Star):
                raise self._misfit("* is not allowed: name the columns", span)
            expr = self._expr(value)
            if name is None and isinstance(expr, FieldRef):
                name = expr.name  # in the spelling of the clause
            if name is None:
                raise self._misfit("a column has no name: give it one with AS", span)
            if name.lower() in {known.lower() for known in columns}:
                raise self._misfit(f"two columns are called {name}: rename one with AS", span)
            returns.append(ReturnItem(expr, name, span=span))
            columns.append(name)
        return tuple(returns), tuple(columns)

    def _expr(self, node: exp.Expr) -> Expr:
        return build_sql_expression(node, self.tree, self._leaf)

    def _leaf(self, node: exp.Expr, span: Span) -> Expr | None:
        if isinstance(node, exp.Anonymous) and find_row_aggregate(node.name.lower()) is not None:
            raise self._misfit(f"{node.name} aggregates many rows", span)
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        if node.args.get("db"):
            raise self._misfit("a column is written as L.column", span)
        owner = node.table.lower()
        if owner and owner not in self.sides:
            raise QueryError(
                f"unknown table '{node.table}'",
                hint=did_you_mean(node.table, [side.alias for side in self.sides.values()]),
                span=span,
            )
        candidates = [self.sides[owner]] if owner else list(self.sides.values())
        columns = [(side.alias, column) for side in candidates for column in _side_columns(side)]
        owners = [(s, column) for s, column in columns if column.lower() == node.name.lower()]
        if len(owners) != 1:
            known = [column for _, column in columns]
            problem = "unknown column" if not owners else "more than one clause has a column"
            hint = did_you_mean(node.name, known) if not owners else f"write L.{node.name}"
            raise QueryError(f"{problem} '{node.name}'", hint=hint, span=span)
        return FieldRef(*owners[0], span=span)

    def _misfit(self, why: str, span: Span) -> UnsupportedJoinError:
        return UnsupportedJoinError(
            f"a clause over an archive cannot be joined in this way on a stream: {why}",
            hint=JOIN_FORM,
            span=span,
            text=self.query.text,
        )


def _side_columns(side: RowPatternSide) -> Iterator[str]:
    if side.ids:
        yield MATCH_ID
    yield from _columns(side.row_pattern)


def _columns(row_pattern: RowPatternQuery) -> Iterator[str]:
    """Yields the output columns of a clause with ONE ROW PER MATCH."""
    yield from (key.name for key in row_pattern.partition)
    yield from (measure.name for measure in row_pattern.measures)
