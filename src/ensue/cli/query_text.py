"""The QUERY of a command line: a file, the text itself, or standard input."""

import re
import sys
from pathlib import Path

from ensue.algebra.correlation import Correlation
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.subscription import Subscription
from ensue.algebra.tower import Tower
from ensue.cli.terminal import UsageError
from ensue.errors import QueryError
from ensue.languages.parameters import Parameters
from ensue.languages.query_files import SUFFIXES, is_file, meant, names_a_file
from ensue.languages.sql.clauses import claims_sql, read_sql
from ensue.languages.sql.query import SqlQuery
from ensue.languages.sql.tokens import Dialect

_SQL = re.compile(r"(?>\s|--[^\n]*|/\*[\s\S]*?\*/|\()*(?:SELECT|WITH|FROM)\b", re.IGNORECASE)


def read_pattern(argument: str, parameters: Parameters) -> Query | Tower | Correlation:
    """The query, or the tower of definitions with a query on top, where SQL has no place."""
    read = read_query(argument, parameters)
    if isinstance(read, SqlQuery | Recognition):
        raise UsageError(
            "this is SQL, but a pattern is expected here\n"
            "  hint: ensue run takes one SQL query at a time, over files: --table NAME=PATH"
        )
    return read


def read_query(
    argument: str, parameters: Parameters, engine: str | None = None
) -> Query | Tower | Correlation | Recognition | SqlQuery:
    """A query in any language. What a file imports is looked for beside it, what another text
    imports in the current folder. The SQL around clauses is that of the engine."""
    from ensue.languages import table

    text = query_text(argument)
    if claims_sql(text):
        return read_sql(text, Dialect.SPARK if engine == "spark" else Dialect.DUCKDB, parameters)
    folder = Path(argument).parent if is_file(argument) else None
    try:
        read = table.parse(text, folder, parameters=parameters)
    except QueryError:
        if _SQL.match(text) is None:
            raise
        raise UsageError(
            "this is SQL without MATCH_RECOGNIZE\n"
            "  hint: a SQL query needs one: SELECT ... FROM name MATCH_RECOGNIZE (...)"
        ) from None
    if isinstance(read, Subscription):
        raise UsageError(
            "this is a subscription, but a query is expected here\n"
            "  hint: put it into ensue.Subscriptions, in Python"
        )
    return read


def query_text(argument: str) -> str:
    """The text of a query.

    >>> query_text("SEQ(A a, B b) WITHIN 5 minutes")
    'SEQ(A a, B b) WITHIN 5 minutes'
    >>> query_text("queries/missing.ensue")
    Traceback (most recent call last):
    ensue.cli.terminal.UsageError: there is no query file queries/missing.ensue
      hint: there is no folder queries (the current one is ...)
    """
    if argument == "-":
        return sys.stdin.read()
    if is_file(argument):
        return _read(Path(argument))
    if names_a_file(argument):
        path = Path(argument)
        if path.is_dir():
            raise UsageError(f"{argument} is a folder, not a query file")
        raise UsageError(f"there is no query file {argument}\n  hint: {meant(path)}")
    if argument.isidentifier():
        _require_no_file(argument)
    if not argument.strip():
        raise UsageError("the query is empty")
    return argument


def _require_no_file(word: str) -> None:
    """A word is a query for all events of a type; where a file goes by it, that may be meant."""
    if Path(word).is_dir():
        raise UsageError(f"{word} is a folder, not a query file")
    file = next((f"{word}{s}" for s in SUFFIXES if Path(f"{word}{s}").is_file()), None)
    if file is not None:
        raise UsageError(
            f"there is no query file {word}\n"
            f"  hint: did you mean '{file}'? For all events of type {word}, write '{word} "
            f"{word[0].lower()}'"
        )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the query file {path}: {error}") from None
