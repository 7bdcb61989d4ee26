"""SQL with MATCH_RECOGNIZE on Spark: clauses are ours, the rest is Spark's."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ensue.errors import EnsueError, QueryError, did_you_mean
from ensue.languages.sql.clauses import ALONE, function_of_clauses
from ensue.languages.sql.query import Clause, SqlQuery
from ensue.languages.sql.rewriting import Rewritten, around, input_of
from ensue.runners.spark.failure import condition_of, failure, spark_errors
from ensue.runners.spark.frames import quoted
from ensue.runners.spark.recipes import Around, note_around
from ensue.runners.sql_tables import Recognize, recognized
from ensue.span import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OWN = "__ensue_match_"
_MARK = ":"  # of a parameter
_OWN_NAME = re.compile(rf"`{_OWN}(\d+)`")
_VIEW = re.compile(r"`?_pyspark_(connect_temp_view_)?[0-9a-f]{32}`?")
_NOISE = re.compile(r"(\s*SQLSTATE: \w+)|(; line \d+ pos \d+.*)|(\s*\(line \d+, pos \d+\).*)")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")


def run(
    query: SqlQuery,
    spark: "SparkSession",
    frames: "Mapping[str, DataFrame]",
    recognize: Recognize,
) -> "DataFrame":
    """What a query gives: a DataFrame, of which nothing is computed yet."""
    session = _Session(query, spark, frames)
    for clause in query.clauses:
        plain = query.plain_table(clause)
        given = None if plain is None else session.given.get(plain.lower())
        if given is None:
            given = session.asked(input_of(query, clause, _named, _MARK), clause)
        session.refuse_ambiguous_columns(given, clause)
        found = recognized(query, clause, given, recognize)
        if clause is query.only:
            return found  # type: ignore[no-any-return]
        session.found[clause.number] = found
    whole = session.asked(around(query, _named, _MARK))
    return note_around(whole, session.rest()) if whole.isStreaming else whole


def _named(clause: Clause) -> str:
    return f"`{_OWN}{clause.number}`"


def _braces_doubled(text: str) -> str:
    """Braces mean something where Spark puts DataFrames in."""
    return text.replace("{", "{{").replace("}", "}}")


class _Session:
    """A session of Spark with tables that only this query knows.

    They are no views of the session: Spark itself takes DataFrames into a text, in ways that
    also Spark Connect has, and the query's own names for them are named queries before it.
    """

    def __init__(
        self, query: SqlQuery, spark: "SparkSession", frames: "Mapping[str, DataFrame]"
    ) -> None:
        self.query = query
        self.given = {name.lower(): frame for name, frame in frames.items()}
        self.found: dict[int, DataFrame] = {}
        self._spark = spark
        self._names = tuple(frames)
        self._used = {name: self.given[name.lower()] for name in frames}
        self._used = {n: f for n, f in self._used.items() if n.lower() in query.names}

    def asked(self, sql: Rewritten, clause: Clause | None = None) -> "DataFrame":
        """The DataFrame of a query: of all, or of the input of a clause."""
        text, put = self._filled(sql.text)
        try:
            frame = self._spark.sql(text, sql.values or None, **put)
            _ = frame.schema  # Spark Connect looks at a query only when it must
        except spark_errors() as error:
            raise self._meant(error, clause) from None
        return frame

    def refuse_ambiguous_columns(self, frame: "DataFrame", clause: Clause) -> None:
        """Spark, too, does not tell columns apart that differ in case only."""
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

    def rest(self) -> Around | None:
        """How the query goes on from what is left of the only stream in it, a clause's."""
        streams = [number for number, frame in self.found.items() if frame.isStreaming]
        text = around(self.query, _named, _MARK)
        named = {int(number) for number in _OWN_NAME.findall(text.text)}
        words = set(re.findall(r"\w+", text.text.lower()))
        others = [n for n, f in self._used.items() if f.isStreaming and n.lower() in words]
        if len(streams) != 1 or others or not named.issuperset(streams):
            return None

        def rest(left: "DataFrame") -> "DataFrame":
            mine = _Session(self.query, self._spark, {})
            mine._used = {n: f for n, f in self._used.items() if not f.isStreaming}
            mine.found = self.found | {streams[0]: left}
            return mine.asked(text)

        return rest

    def _filled(self, text: str) -> tuple[str, dict[str, Any]]:
        """A text with places for DataFrames, and the DataFrames."""
        used = {int(number) for number in _OWN_NAME.findall(text)}
        put: dict[str, Any] = {f"match_{number}": self.found[number] for number in sorted(used)}
        tables = {f"table_{k}": name for k, name in enumerate(self._used)}
        if not put and not tables:
            return text, {}
        text = _OWN_NAME.sub(r"{match_\1}", _braces_doubled(text))
        if tables:
            named = (
                f"{_braces_doubled(quoted(name))} AS (SELECT * FROM {{{place}}})"
                for place, name in tables.items()
            )
            text = f"WITH {', '.join(named)} (\n{text}\n)"
        return text, put | {place: self._used[name] for place, name in tables.items()}

    # ------------------------------------------------------------------ errors

    def _meant(self, error: Exception, clause: Clause | None) -> EnsueError:
        from pyspark.errors import AnalysisException

        if not isinstance(error, AnalysisException):
            return failure(error)
        condition = condition_of(error) or ""
        told: Mapping[str, str] = error.getMessageParameters() or {}
        place = self._place(error)
        said = str(error).strip().splitlines()
        problem = _CONDITION.sub("", _NOISE.sub("", said[0] if said else "")).strip()
        problem, hint = _VIEW.sub("MATCH_RECOGNIZE", problem), None
        if condition == "TABLE_OR_VIEW_NOT_FOUND":
            name = told.get("relationName", "").replace("`", "")
            problem, hint = f"unknown table '{name}'", did_you_mean(name, self._known())
        elif condition.startswith("UNRESOLVED_COLUMN"):
            parts = [p for p in told.get("objectName", "").strip("`").split("`.`") if p]
            near = [p.strip("` ") for p in told.get("proposal", "").split(",") if p]
            near = [_VIEW.sub("", p).lstrip(".`") for p in near]
            problem = f"unknown column '{'.'.join(parts)}'"
            hint = ALONE if clause is not None and len(parts) > 1 else None
            hint = hint or did_you_mean(parts[-1] if parts else "", near)
        elif condition == "UNRESOLVED_ROUTINE":
            name = told.get("routineName", "").strip("`")
            problem, hint = function_of_clauses(name) or (problem, hint)
        if place is None and clause is not None:
            place = clause.input
        return QueryError(problem, hint=hint, span=place, text=self.query.text)

    def _place(self, error: Any) -> Span | None:
        """Where Spark's words of the error stand in the text, if that is plain."""
        with suppress(Exception):
            for context in error.getQueryContext():
                words = context.fragment()
                if words and self.query.text.count(words) == 1:
                    start = self.query.text.index(words)
                    return Span(start, start + len(words))
        near = re.search(r"near '(.+?)'", str(error))
        if near and self.query.text.count(near[1]) == 1:
            start = self.query.text.index(near[1])
            return Span(start, start + len(near[1]))
        return None

    def _known(self) -> list[str]:
        names = list(self._names)
        with suppress(Exception):  # a hint is not worth an error
            names += [table.name for table in self._spark.catalog.listTables()]
        return names
