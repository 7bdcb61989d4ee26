"""SQL with MATCH_RECOGNIZE over tables in memory: clauses are ours, the rest is DuckDB's."""

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
from ensue.extras import needed
from ensue.languages.sql.clauses import ALONE, function_of_clauses
from ensue.languages.sql.query import Clause, ClauseText, SqlQuery
from ensue.languages.sql.rewriting import Rewritten, around, input_of
from ensue.span import Span

# What a clause finds in a relation; the clause is a part of a text: (text, start, end).
Recognize = Callable[[ClauseText, Any], Any]

_OWN = "__ensue_match_"
_OWN_NAME = re.compile(rf'"?{_OWN}(\d+)"?')
_EXPLAIN = "EXPLAIN "
_MARK = "$"  # of a parameter
_MISSING_TABLE = re.compile(r'Referenced table "(.*?)" not found')
_MEANT = re.compile(r"\n(Did you mean .*|Candidate .*)", re.DOTALL)
_INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])  # Arrow's own
_PATIENCE = 10.0  # seconds that an interrupted query may take to end


def run(
    query: SqlQuery,
    tables: Mapping[str, pa.Table],
    recognize: Recognize,
    *,
    known: Collection[str] | None = None,
) -> pa.Table:
    """What a query gives; DuckDB is asked only where there is more than clauses over tables.

    `known` are the names of all tables, where only those are given that the query names.
    """
    names = tuple(tables if known is None else known)
    with closing(_Database(query, tables, names)) as database:
        for clause in query.clauses:
            plain = query.plain_table(clause)
            given = None if plain is None else database.given.get(plain.lower())
            if given is None:
                given = database.asked(input_of(query, clause, _named, _MARK), clause)
            found = recognized(query, clause, given, recognize)
            if clause is query.only:
                return found
            database.put(f"{_OWN}{clause.number}", found)
        return database.asked(around(query, _named, _MARK))


def recognized(query: SqlQuery, clause: Clause, given: Any, recognize: Recognize) -> Any:
    """What a clause finds; errors that name no place point at the clause."""
    try:
        return recognize(query.body(clause), given)
    except QueryError as error:
        raise error.at(clause.keyword, query.text) from None


def _named(clause: Clause) -> str:
    return f'"{_OWN}{clause.number}"'


class _Database:
    """A private DuckDB in memory, opened when it is needed: it reads and writes no files of users
    and loads nothing, whatever a text asks for."""

    def __init__(
        self, query: SqlQuery, tables: Mapping[str, pa.Table], names: tuple[str, ...]
    ) -> None:
        self.query = query
        self.given = {name.lower(): table for name, table in tables.items()}
        self._names = names
        self._connection: Any = None

    def put(self, name: str, table: pa.Table) -> None:
        self.given[name] = table
        if self._connection is not None:
            self._connection.register(name, table)

    def asked(self, sql: Rewritten, clause: Clause | None = None) -> pa.Table:
        """The rows of a query: of all, or of the input of a clause."""
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
            raise self._meant(self._told(error, sql), sql, clause) from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _refuse_ambiguous_columns(self, sql: Rewritten, clause: Clause | None) -> None:
        """SQL does not tell columns apart that differ in case only; DuckDB renames one of them."""
        tables = any(_alike(table.column_names) for table in self.given.values())
        if not tables and not self.query.mixed_case:
            return
        for node in self._nodes(sql):
            table = str(node.get("table_name", "")).lower()
            given = self.given.get(table)
            alike = _alike(_columns(node, () if given is None else given.column_names))
            if alike is None:
                continue
            place = {"position": node["query_location"]} if "query_location" in node else {}
            if place and "query_location_length" in node:
                place["location"] = f"[0, {node['query_location_length']}]"
            span = self._origin(place, sql, clause)
            if table.startswith(_OWN):
                span = self.query.clauses[int(table.removeprefix(_OWN)) - 1].whole
                table = "MATCH_RECOGNIZE"
            name = node.get("alias") or table
            raise self._ambiguous(alike, f" of {name}" if name else "", span)

    def _ambiguous(self, alike: tuple[str, str], of: str, span: Span | None) -> QueryError:
        first, second = alike
        return QueryError(
            f"the columns '{first}' and '{second}'{of} have the same name: SQL ignores case",
            hint="give one of them another name: FROM t AS k(x, y, z), or SELECT a AS x",
            span=span,
            text=self.query.text,
        )

    def _nodes(self, sql: Rewritten) -> Iterator[dict[str, Any]]:
        """The nodes of a query that DuckDB has parsed, those of named queries without the tables
        that they hide."""
        query = "SELECT json_serialize_sql($text, skip_null := true, skip_default := true)"
        ((tree,),) = self._connection.execute(query, {"text": sql.text}).fetchall()
        try:
            stack = [json.loads(tree)]
        except RecursionError:
            raise QueryError(
                "the query is nested too deep to find out which columns it means",
                hint="give columns names that differ in more than case",
                text=self.query.text,
            ) from None
        named = {query.name.lower() for one in self.query.withs for query in one.queries}
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
                "python_enable_replacements": False,  # variables of a program are no tables
                "temp_directory": str(Path(tempfile.gettempdir()) / f"ensue-sql-{uuid4().hex}"),
                "threads": pa.cpu_count(),  # as many as Arrow takes
            },
        )
        opened.execute("SET TimeZone = 'UTC'")  # the same answers everywhere
        opened.execute("SET enable_external_access = false")
        opened.execute("SET lock_configuration = true")
        for name, table in self.given.items():
            opened.register(name, table)
        return opened

    # ------------------------------------------------------------------ errors

    def _told(self, error: Exception, sql: Rewritten) -> dict[str, Any]:
        """What DuckDB says of an error; of one in binding a query it says more to EXPLAIN."""
        told = _as_json(error)
        if told is None:
            duckdb = _duckdb()
            try:
                self._connection.execute(_EXPLAIN + sql.text, sql.values or None)
            except duckdb.Error as again:
                told = _as_json(again)
                if told is not None and "position" in told:
                    told["position"] = int(told["position"]) - len(_EXPLAIN)
        return told or {"exception_message": str(error)}

    def _meant(self, told: dict[str, Any], sql: Rewritten, clause: Clause | None) -> EnsueError:
        message = _OWN_NAME.sub("MATCH_RECOGNIZE", str(told.get("exception_message", ""))).strip()
        kind = str(told.get("exception_type", "")).lower()
        if kind in ("out of memory", "io", "internal", "fatal", "interrupt"):
            return RunnerError(f"DuckDB could not finish: {message}")
        said = _MEANT.split(message)
        problem, hint = said[0].rstrip("!"), said[1] if len(said) > 1 else None
        missing = _MISSING_TABLE.match(message)
        name = str(told.get("name", ""))
        if missing:
            problem, hint = f"unknown table '{missing[1]}'", self._hint(missing[1], clause, hint)
        elif told.get("error_subtype") == "COLUMN_NOT_FOUND" and name:
            known = [one for one in str(told.get("candidates", "")).split(",") if one]
            problem, hint = f"unknown column '{name}'", did_you_mean(name, known)
            if clause is not None and not str(hint).startswith("did you mean"):
                hint = ALONE
        elif told.get("error_subtype") == "MISSING_ENTRY" and told.get("type") == "Table":
            problem, hint = f"unknown table '{name}'", did_you_mean(name, self._names)
        elif (wrong := function_of_clauses(name)) is not None:
            problem, hint = wrong
        elif kind == "permission":
            hint = "a query only reads the tables you pass: tables={...}"
        return QueryError(
            problem, hint=hint, span=self._origin(told, sql, clause), text=self.query.text
        )

    def _hint(self, name: str, clause: Clause | None, hint: str | None) -> str | None:
        """A name that is known elsewhere: outside of an input, or before a clause."""
        if clause is not None:
            return ALONE
        for one in self.query.clauses:
            if name.lower() in {str(one.table).lower(), str(one.input_alias).lower()}:
                return (
                    "after MATCH_RECOGNIZE its input has no name, but its result can have one: "
                    "MATCH_RECOGNIZE (...) AS m"
                )
        return hint

    def _origin(self, told: dict[str, Any], sql: Rewritten, clause: Clause | None) -> Any:
        if "position" in told:
            raw = sql.text.encode()
            first = int(told["position"])  # in bytes
            start = len(raw[:first].decode(errors="ignore"))
            length = 1
            if "location" in told:
                length = len(
                    raw[first : first + json.loads(told["location"])[1]].decode(errors="ignore")
                )
            found = sql.origin(start, start + length)
            if found is not None:
                return found
        return None if clause is None else clause.input


def _columns(node: dict[str, Any], of_table: Sequence[str]) -> list[str]:
    """The columns of a relation, as far as the query names them."""
    columns = list(of_table)
    if node.get("type") == "SUBQUERY" and "subquery" in node:
        selected = node["subquery"]["node"].get("select_list", ())
        names = (one.get("alias") or one.get("column_names", [""])[-1] for one in selected)
        columns = [name for name in names if name]
    listed = list(node.get("column_name_alias") or node.get("aliases") or ())
    return [*listed, *columns[len(listed) :]]


def _alike(names: Sequence[str]) -> tuple[str, str] | None:
    """Two names that differ in case only; those that are the same are numbered by DuckDB."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            return other, name
    return None


def _as_json(error: Exception) -> dict[str, Any] | None:
    start = str(error).find("{")
    try:
        told = json.loads(str(error)[start:]) if start >= 0 else None
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _interruptible(connection: Any, sql: Rewritten) -> pa.Table:
    """The rows of a query. DuckDB does not notice Ctrl-C while it makes an Arrow table, so it
    works in a thread of its own and is told."""
    given: list[pa.Table] = []
    failed: list[BaseException] = []
    done = Event()

    def work() -> None:
        try:
            found = connection.sql(sql.text, params=sql.values or None)
            given.append(_plain(found.to_arrow_table(), found.types))
        except BaseException as error:  # noqa: BLE001  raised where it was asked
            failed.append(error)
        finally:
            done.set()

    Thread(target=work, name="ensue-sql", daemon=True).start()
    try:
        while not done.wait(0.1):  # a signal may reach another thread and not wake this one
            pass
    except BaseException:
        connection.interrupt()
        done.wait(_PATIENCE)
        raise
    if failed:
        raise failed[0]
    return given[0]


def _plain(table: pa.Table, types: Any) -> pa.Table:
    """What DuckDB has types of its own for, as others have it: sums of integers are of 128 bits,
    differences of times intervals that may have months. Those that do not fit stay as they are."""
    for number, type in enumerate(types):
        column = table.column(number)
        match str(type):
            case "HUGEINT":
                made = _integers(column)
            case "INTERVAL":
                made = _durations(column)
            case _:
                continue
        if made is not None:
            field = table.field(number).with_type(made.type)
            table = table.set_column(number, field, made)
    return table


def _integers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def _durations(column: pa.ChunkedArray) -> pa.Array | None:
    if not pa.types.is_interval(column.type):
        return None
    whole = pa.concat_arrays([pa.array([], column.type), *column.chunks])
    held = np.frombuffer(whole.buffers()[1] or b"", dtype=_INTERVAL)
    held = held[whole.offset : whole.offset + len(whole)]
    missing = whole.is_null().to_numpy(zero_copy_only=False)
    if held["months"][~missing].any():
        return None
    micros = held["days"] * np.int64(86_400_000_000) + held["nanos"] // 1_000
    return pa.array(micros, pa.duration("us"), mask=missing)


def _duckdb() -> Any:
    with needed("SQL around MATCH_RECOGNIZE", "sql"):
        import duckdb
    return duckdb
