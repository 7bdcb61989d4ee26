"""Runs SQL with MATCH_RECOGNIZE on Spark, which runs the SQL around the clauses."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ensue.backends.spark.frames import quote_name
from ensue.backends.spark.match_frames import OUTER_QUERIES, OuterQuery
from ensue.backends.spark.spark_errors import get_condition, get_error_types, translate_error
from ensue.backends.sql_tables import MatchClauseFunction, match_clause
from ensue.errors import EnsueError, QueryError, Span, did_you_mean
from ensue.parser.sql.sql_query import (
    INPUT_SCOPE_HINT,
    MatchClause,
    RewrittenSql,
    SqlQuery,
    build_clause_input,
    explain_clause_function,
    replace_clauses,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MATCH_TABLE = "__ensue_match_"
_MARK = ":"  # prefix of a parameter
_MATCH_NAME = re.compile(rf"`{_MATCH_TABLE}(\d+)`")
_VIEW = re.compile(r"`?_pyspark_(connect_temp_view_)?[0-9a-f]{32}`?")
_NOISE = re.compile(r"(\s*SQLSTATE: \w+)|(; line \d+ pos \d+.*)|(\s*\(line \d+, pos \d+\).*)")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")


def run(
    query: SqlQuery, spark: "SparkSession", frames: "Mapping[str, DataFrame]", recognize: MatchClauseFunction
) -> "DataFrame":
    session = _Session(query, spark, frames)
    for clause in query.clauses:
        plain = query.plain_table(clause)
        relation = None if plain is None else session.frames.get(plain.lower())
        if relation is None:
            relation = session.execute(build_clause_input(query, clause, _quote_result, _MARK), clause)
        session.refuse_ambiguous_columns(relation, clause)
        matches = match_clause(query, clause, relation, recognize)
        if clause is query.only:
            return matches  # type: ignore[no-any-return]
        session.matches[clause.number] = matches
    result = session.execute(replace_clauses(query, _quote_result, _MARK))
    if result.isStreaming:
        OUTER_QUERIES.put(result, session.outer_query())
    return result


def _quote_result(clause: MatchClause) -> str:
    return f"`{_MATCH_TABLE}{clause.number}`"


def _escape_braces(text: str) -> str:
    """Escape braces, which Spark replaces by DataFrames."""
    return text.replace("{", "{{").replace("}", "}}")


class _Session:
    """A Spark session with tables that only this query knows.

    They are not views of the session: `spark.sql` inserts DataFrames into the text, also over
    Spark Connect, and a WITH clause gives them the names of the query.
    """

    def __init__(self, query: SqlQuery, spark: "SparkSession", frames: "Mapping[str, DataFrame]") -> None:
        self.query = query
        self.frames = {name.lower(): frame for name, frame in frames.items()}
        self.matches: dict[int, DataFrame] = {}
        self._spark = spark
        self._names = tuple(frames)
        self._used = {name: self.frames[name.lower()] for name in frames}
        self._used = {n: f for n, f in self._used.items() if n.lower() in query.names}

    def execute(self, sql: RewrittenSql, clause: MatchClause | None = None) -> "DataFrame":
        text, inserted = self._insert_frames(sql.text)
        try:
            frame = self._spark.sql(text, sql.values or None, **inserted)
            _ = frame.schema  # Spark Connect analyzes a query lazily
        except get_error_types() as error:
            raise self._translate(error, clause) from None
        return frame

    def refuse_ambiguous_columns(self, frame: "DataFrame", clause: MatchClause) -> None:
        """Raise QueryError for columns that differ only in case, if Spark ignores case."""
        known: dict[str, str] = {}
        for name in frame.columns:
            other = known.pop(name.lower(), None)
            if other is not None and self._spark.conf.get("spark.sql.caseSensitive") != "true":
                raise QueryError(
                    f"the columns '{other}' and '{name}' have the same name: SQL ignores case",
                    hint="give one of them another name: FROM t AS k(x, y, z)",
                    span=clause.input,
                    text=self.query.text,
                )
            known[name.lower()] = name

    def outer_query(self) -> OuterQuery | None:
        """Return the query as a function of the matches of its only streaming clause, if any."""
        streams = [number for number, frame in self.matches.items() if frame.isStreaming]
        text = replace_clauses(self.query, _quote_result, _MARK)
        named = {int(number) for number in _MATCH_NAME.findall(text.text)}
        words = set(re.findall(r"\w+", text.text.lower()))
        others = [n for n, f in self._used.items() if f.isStreaming and n.lower() in words]
        if len(streams) != 1 or others or not named.issuperset(streams):
            return None

        def run_outer(remaining: "DataFrame") -> "DataFrame":
            copy = _Session(self.query, self._spark, {})
            copy._used = {n: f for n, f in self._used.items() if not f.isStreaming}
            copy.matches = self.matches | {streams[0]: remaining}
            return copy.execute(text)

        return run_outer

    def _insert_frames(self, text: str) -> tuple[str, dict[str, Any]]:
        """Replace table names by placeholders; return the text and the DataFrames."""
        used = {int(number) for number in _MATCH_NAME.findall(text)}
        inserted: dict[str, Any] = {f"match_{number}": self.matches[number] for number in sorted(used)}
        tables = {f"table_{k}": name for k, name in enumerate(self._used)}
        if not inserted and not tables:
            return text, {}
        text = _MATCH_NAME.sub(r"{match_\1}", _escape_braces(text))
        if tables:
            named = (
                f"{_escape_braces(quote_name(name))} AS (SELECT * FROM {{{placeholder}}})"
                for placeholder, name in tables.items()
            )
            text = f"WITH {', '.join(named)} (\n{text}\n)"
        return text, inserted | {placeholder: self._used[name] for placeholder, name in tables.items()}

    # ------------------------------------------------------------------ errors

    def _translate(self, error: Exception, clause: MatchClause | None) -> EnsueError:
        from pyspark.errors import AnalysisException

        if not isinstance(error, AnalysisException):
            return translate_error(error)
        condition = get_condition(error) or ""
        parameters: Mapping[str, str] = error.getMessageParameters() or {}
        span = self._find_span(error)
        lines = str(error).strip().splitlines()
        problem = _CONDITION.sub("", _NOISE.sub("", lines[0] if lines else "")).strip()
        problem, hint = _VIEW.sub("MATCH_RECOGNIZE", problem), None
        if condition == "TABLE_OR_VIEW_NOT_FOUND":
            name = parameters.get("relationName", "").replace("`", "")
            problem, hint = f"unknown table '{name}'", did_you_mean(name, self._known_tables())
        elif condition.startswith("UNRESOLVED_COLUMN"):
            parts = [p for p in parameters.get("objectName", "").strip("`").split("`.`") if p]
            near = [p.strip("` ") for p in parameters.get("proposal", "").split(",") if p]
            near = [_VIEW.sub("", p).lstrip(".`") for p in near]
            problem = f"unknown column '{'.'.join(parts)}'"
            hint = INPUT_SCOPE_HINT if clause is not None and len(parts) > 1 else None
            hint = hint or did_you_mean(parts[-1] if parts else "", near)
        elif condition == "UNRESOLVED_ROUTINE":
            name = parameters.get("routineName", "").strip("`")
            problem, hint = explain_clause_function(name) or (problem, hint)
        if span is None and clause is not None:
            span = clause.input
        return QueryError(problem, hint=hint, span=span, text=self.query.text)

    def _find_span(self, error: Any) -> Span | None:
        """Return the position of the fragment that Spark's error quotes, if it is unique."""
        with suppress(Exception):
            for context in error.getQueryContext():
                fragment = context.fragment()
                if fragment and self.query.text.count(fragment) == 1:
                    start = self.query.text.index(fragment)
                    return Span(start, start + len(fragment))
        near = re.search(r"near '(.+?)'", str(error))
        if near and self.query.text.count(near[1]) == 1:
            start = self.query.text.index(near[1])
            return Span(start, start + len(near[1]))
        return None

    def _known_tables(self) -> list[str]:
        names = list(self._names)
        with suppress(Exception):  # a hint is not worth an error
            names += [table.name for table in self._spark.catalog.listTables()]
        return names
