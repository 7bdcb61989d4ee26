"""Reads the QUERY argument: a file, the query text, or standard input."""

import re
import sys
from pathlib import Path

from ensue.cli.terminal import UsageError
from ensue.errors import QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.row_pattern import RowPatternQuery
from ensue.ir.subscription import Subscription
from ensue.parser.parameters import Parameters
from ensue.parser.query_files import SUFFIXES, is_file, is_file_name, suggest_file
from ensue.parser.sql.sql_query import Dialect, SqlQuery, claims_sql

_SQL = re.compile(r"(?>\s|--[^\n]*|/\*[\s\S]*?\*/|\()*(?:SELECT|WITH|FROM)\b", re.IGNORECASE)


def read_pattern(argument: str, parameters: Parameters) -> Query | Hierarchy | ArchiveJoinQuery:
    """Read a pattern query or a hierarchy; SQL raises UsageError."""
    query = read_query(argument, parameters)
    if isinstance(query, SqlQuery | RowPatternQuery):
        raise UsageError(
            "this is SQL, but a pattern is expected here\n"
            "  hint: ensue run takes one SQL query at a time, over files: --table NAME=PATH"
        )
    return query


def read_query(
    argument: str, parameters: Parameters, engine: str | None = None
) -> Query | Hierarchy | ArchiveJoinQuery | RowPatternQuery | SqlQuery:
    """Read a query in any language. Imports are relative to the file, or to the current folder.
    The engine determines the dialect of SQL around clauses."""
    from ensue.parser import registry

    text = read_query_text(argument)
    if claims_sql(text):
        from ensue.parser.sql.sql_parser import parse_sql

        return parse_sql(text, Dialect.SPARK if engine == "spark" else Dialect.DUCKDB, parameters)
    folder = Path(argument).parent if is_file(argument) else None
    try:
        query = registry.parse(text, folder, parameters=parameters)
    except QueryError:
        if _SQL.match(text) is None:
            raise
        raise UsageError(
            "this is SQL without MATCH_RECOGNIZE\n"
            "  hint: a SQL query needs one: SELECT ... FROM name MATCH_RECOGNIZE (...)"
        ) from None
    if isinstance(query, Subscription):
        raise UsageError(
            "this is a subscription, but a query is expected here\n  hint: put it into ensue.Subscriptions, in Python"
        )
    return query


def read_query_text(argument: str) -> str:
    """Return the text of a query argument."""
    if argument == "-":
        return sys.stdin.read()
    if is_file(argument):
        return _read(Path(argument))
    if is_file_name(argument):
        path = Path(argument)
        if path.is_dir():
            raise UsageError(f"{argument} is a folder, not a query file")
        raise UsageError(f"there is no query file {argument}\n  hint: {suggest_file(path)}")
    if argument.isidentifier():
        _require_no_file(argument)
    if not argument.strip():
        raise UsageError("the query is empty")
    return argument


def _require_no_file(word: str) -> None:
    """Reject a single word, a query for all events of a type, if a query file has its name."""
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
