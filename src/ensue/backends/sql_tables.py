"""Runs SQL with MATCH_RECOGNIZE over tables in memory; DuckDB runs the SQL around the clauses."""

import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from ensue.errors import EnsueError, QueryError, RunnerError, did_you_mean
from ensue.optional_deps import require_extra
from ensue.parser.sql.sql_query import (
    INPUT_SCOPE_HINT,
    MatchClause,
    RewrittenSql,
    SqlQuery,
    build_clause_input,
    explain_clause_function,
    replace_clauses,
)

# Matches a clause over a relation.
MatchClauseFunction = Callable[[MatchClause, Any], Any]

_MATCH_TABLE = "__ensue_match_"
_MATCH_NAME = re.compile(rf'"?{_MATCH_TABLE}(\d+)"?')
_EXPLAIN = "EXPLAIN "
_MARK = "$"  # prefix of a parameter
_MISSING_TABLE = re.compile(r'Referenced table "(.*?)" not found')
_SUGGESTION = re.compile(r"\n(Did you mean .*|Candidate .*)", re.DOTALL)
_INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])  # Arrow's layout
_INTERRUPT_SECONDS = 10.0  # that an interrupted query may take to end


def run(
    query: SqlQuery,
    tables: Mapping[str, pa.Table],
    recognize: MatchClauseFunction,
    *,
    known: Collection[str] | None = None,
) -> pa.Table:
    """Run a query, on DuckDB only if it has more than clauses over tables.

    `known` are the names of all tables, if `tables` holds only those that the query names.
    """
    names = tuple(tables if known is None else known)
    with closing(_Database(query, tables, names)) as database:
        for clause in query.clauses:
            plain = query.plain_table(clause)
            relation = None if plain is None else database.tables.get(plain.lower())
            if relation is None:
                relation = database.execute(build_clause_input(query, clause, _quote_result, _MARK), clause)
            matches = match_clause(query, clause, relation, recognize)
            if clause is query.only:
                return matches
            database.put(f"{_MATCH_TABLE}{clause.number}", matches)
        return database.execute(replace_clauses(query, _quote_result, _MARK))


def match_clause(query: SqlQuery, clause: MatchClause, relation: Any, recognize: MatchClauseFunction) -> Any:
    """Match a clause; errors without a position point at the clause."""
    try:
        return recognize(clause, relation)
    except QueryError as error:
        raise error.at(clause.keyword, query.text) from None


def _quote_result(clause: MatchClause) -> str:
    return f'"{_MATCH_TABLE}{clause.number}"'


class _Database:
    """A private DuckDB in memory, opened on demand, without access to files or extensions."""

    def __init__(self, query: SqlQuery, tables: Mapping[str, pa.Table], names: tuple[str, ...]) -> None:
        self.query = query
        self.tables = {name.lower(): table for name, table in tables.items()}
        self._names = names
        self._connection: Any = None

    def put(self, name: str, table: pa.Table) -> None:
        self.tables[name] = table
        if self._connection is not None:
            self._connection.register(name, table)

    def execute(self, sql: RewrittenSql, clause: MatchClause | None = None) -> pa.Table:
        duckdb, opened = _duckdb(), self._open()
        try:
            (statement,) = opened.extract_statements(sql.text)
            if statement.type != duckdb.StatementType.SELECT:
                raise QueryError(
                    "this is not a plain query",
                    hint="PIVOT names its columns: PIVOT t ON x IN ('a', 'b') USING ...",
                    span=self.query.span,
                    text=self.query.text,
                )
            self._refuse_ambiguous_columns(sql, clause)
            return _interruptible(opened, sql)
        except duckdb.Error as error:
            raise self._translate(self._details(error, sql), sql, clause) from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _refuse_ambiguous_columns(self, sql: RewrittenSql, clause: MatchClause | None) -> None:
        """Reject columns that differ only in case: DuckDB would rename one of them."""
        tables = any(_find_case_clash(table.column_names) for table in self.tables.values())
        if not tables and not self.query.mixed_case:
            return
        for node in self._nodes(sql):
            name = str(node.get("table_name", "")).lower()
            table = self.tables.get(name)
            clash = _find_case_clash(_columns(node, () if table is None else table.column_names))
            if clash is None:
                continue
            details = {"position": node["query_location"]} if "query_location" in node else {}
            if details and "query_location_length" in node:
                details["location"] = f"[0, {node['query_location_length']}]"
            span = self._origin(details, sql, clause)
            if name.startswith(_MATCH_TABLE):
                span = self.query.clauses[int(name.removeprefix(_MATCH_TABLE)) - 1].whole
                name = "MATCH_RECOGNIZE"
            name = node.get("alias") or name
            of_table = f" of {name}" if name else ""
            raise QueryError(
                f"the columns '{clash[0]}' and '{clash[1]}'{of_table} have the same name: SQL ignores case",
                hint="give one of them another name: FROM t AS k(x, y, z), or SELECT a AS x",
                span=span,
                text=self.query.text,
            )

    def _nodes(self, sql: RewrittenSql) -> Iterator[dict[str, Any]]:
        """Yield the nodes of DuckDB's syntax tree, without references to named queries."""
        query = "SELECT json_serialize_sql($text, skip_null := true, skip_default := true)"
        ((tree,),) = self._connection.execute(query, {"text": sql.text}).fetchall()
        try:
            stack = [json.loads(tree)]
        except RecursionError:
            raise QueryError(
                "the query is nested too deeply to check its column names",
                hint="give columns names that differ in more than case",
                text=self.query.text,
            ) from None
        named = {query.name.lower() for with_ in self.query.withs for query in with_.queries}
        while stack:
            node = stack.pop()
            if isinstance(node, list):
                stack += node
            elif isinstance(node, dict):
                if str(node.get("table_name", "")).lower() not in named:
                    yield node
                stack += node.values()

    def _open(self) -> Any:
        if self._connection is not None:
            return self._connection
        duckdb = _duckdb()
        opened = self._connection = duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "errors_as_json": True,
                "python_enable_replacements": False,  # Python variables are not tables
                "temp_directory": str(Path(tempfile.gettempdir()) / f"ensue-sql-{uuid4().hex}"),
                "threads": pa.cpu_count(),  # as many as Arrow uses
            },
        )
        opened.execute("SET TimeZone = 'UTC'")  # the same results on every machine
        opened.execute("SET enable_external_access = false")
        opened.execute("SET lock_configuration = true")
        for name, table in self.tables.items():
            opened.register(name, table)
        return opened

    # ------------------------------------------------------------------ errors

    def _details(self, error: Exception, sql: RewrittenSql) -> dict[str, Any]:
        """Read DuckDB's error; for a binder error only EXPLAIN gives the position."""
        details = _as_json(error)
        if details is None:
            duckdb = _duckdb()
            try:
                self._connection.execute(_EXPLAIN + sql.text, sql.values or None)
            except duckdb.Error as explain_error:
                details = _as_json(explain_error)
                if details is not None and "position" in details:
                    details["position"] = int(details["position"]) - len(_EXPLAIN)
        return details or {"exception_message": str(error)}

    def _translate(self, details: dict[str, Any], sql: RewrittenSql, clause: MatchClause | None) -> EnsueError:
        message = str(details.get("exception_message", ""))
        message = _MATCH_NAME.sub("MATCH_RECOGNIZE", message).strip()
        kind = str(details.get("exception_type", "")).lower()
        if kind in ("out of memory", "io", "internal", "fatal", "interrupt"):
            return RunnerError(f"DuckDB could not finish: {message}")
        problem, *suggestions = _SUGGESTION.split(message)
        problem, hint = problem.rstrip("!"), suggestions[0] if suggestions else None
        missing = _MISSING_TABLE.match(message)
        name, subtype = str(details.get("name", "")), details.get("error_subtype")
        if missing:
            problem, hint = f"unknown table '{missing[1]}'", self._hint(missing[1], clause, hint)
        elif subtype == "COLUMN_NOT_FOUND" and name:
            columns = list(filter(None, str(details.get("candidates", "")).split(",")))
            problem, hint = f"unknown column '{name}'", did_you_mean(name, columns)
            if clause is not None and not str(hint).startswith("did you mean"):
                hint = INPUT_SCOPE_HINT
        elif subtype == "MISSING_ENTRY" and details.get("type") == "Table":
            ways = f"pass it: tables={{'{name}': ...}}; without tables= it may be a variable or a file"
            problem, hint = f"unknown table '{name}'", did_you_mean(name, self._names) or ways
        elif (wrong := explain_clause_function(name)) is not None:
            problem, hint = wrong
        elif kind == "permission":
            hint = "a query only reads the tables you pass: tables={...}"
        return QueryError(problem, hint=hint, span=self._origin(details, sql, clause), text=self.query.text)

    def _hint(self, name: str, clause: MatchClause | None, hint: str | None) -> str | None:
        """Return a hint for a table name that is only known in another scope."""
        if clause is not None:
            return INPUT_SCOPE_HINT
        for other in self.query.clauses:
            if name.lower() in {str(other.table).lower(), str(other.input_alias).lower()}:
                return (
                    "after MATCH_RECOGNIZE its input has no name, but its result can have one: "
                    "MATCH_RECOGNIZE (...) AS m"
                )
        return hint

    def _origin(self, details: dict[str, Any], sql: RewrittenSql, clause: MatchClause | None) -> Any:
        if "position" in details:
            raw = sql.text.encode()
            first = int(details["position"])  # in bytes
            start, length = len(raw[:first].decode(errors="ignore")), 1
            if "location" in details:
                last = first + json.loads(details["location"])[1]
                length = len(raw[first:last].decode(errors="ignore"))
            span = sql.origin(start, start + length)
            if span is not None:
                return span
        return None if clause is None else clause.input


def _columns(node: dict[str, Any], table_columns: Sequence[str]) -> list[str]:
    """Return the columns of a relation that the query names."""
    columns = list(table_columns)
    if node.get("type") == "SUBQUERY" and "subquery" in node:
        selected = node["subquery"]["node"].get("select_list", ())
        names = (item.get("alias") or item.get("column_names", [""])[-1] for item in selected)
        columns = [name for name in names if name]
    listed = list(node.get("column_name_alias") or node.get("aliases") or ())
    return [*listed, *columns[len(listed) :]]


def _find_case_clash(names: Sequence[str]) -> tuple[str, str] | None:
    """Find two names that differ only in case; DuckDB numbers equal ones."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            return other, name
    return None


def _as_json(error: Exception) -> dict[str, Any] | None:
    start = str(error).find("{")
    try:
        details = json.loads(str(error)[start:]) if start >= 0 else None
    except ValueError:
        return None
    return details if isinstance(details, dict) else None


def _interruptible(connection: Any, sql: RewrittenSql) -> pa.Table:
    """Run a query in a thread: DuckDB does not notice Ctrl-C while it builds an Arrow table."""
    results: list[pa.Table] = []
    errors: list[BaseException] = []
    done = Event()

    def work() -> None:
        try:
            relation = connection.sql(sql.text, params=sql.values or None)
            results.append(_cast_duckdb_types(relation.to_arrow_table(), relation.types))
        except BaseException as error:  # noqa: BLE001  raised by the calling thread
            errors.append(error)
        finally:
            done.set()

    Thread(target=work, name="ensue-sql", daemon=True).start()
    try:
        while not done.wait(0.1):  # a signal may reach another thread and not wake this one
            pass
    except BaseException:
        connection.interrupt()
        done.wait(_INTERRUPT_SECONDS)
        raise
    if errors:
        raise errors[0]
    return results[0]


def _cast_duckdb_types(table: pa.Table, types: Any) -> pa.Table:
    """Cast sums of integers from 128 to 64 bits, and intervals to durations, if all values fit."""
    for number, type in enumerate(types):
        column = table.column(number)
        match str(type):
            case "HUGEINT":
                values = _integers(column)
            case "INTERVAL":
                values = _durations(column)
            case _:
                continue
        if values is not None:
            field = table.field(number).with_type(values.type)
            table = table.set_column(number, field, values)
    return table


def _integers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def _durations(column: pa.ChunkedArray) -> pa.Array | None:
    if not pa.types.is_interval(column.type):
        return None
    array = pa.concat_arrays([pa.array([], column.type), *column.chunks])
    intervals = np.frombuffer(array.buffers()[1] or b"", dtype=_INTERVAL)
    intervals = intervals[array.offset : array.offset + len(array)]
    missing = array.is_null().to_numpy(zero_copy_only=False)
    if intervals["months"][~missing].any():
        return None
    micros = intervals["days"] * np.int64(86_400_000_000) + intervals["nanos"] // 1_000
    return pa.array(micros, pa.duration("us"), mask=missing)


def _duckdb() -> Any:
    with require_extra("SQL around MATCH_RECOGNIZE", "sql"):
        import duckdb
    return duckdb
