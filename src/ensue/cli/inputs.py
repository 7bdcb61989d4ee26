"""Reads the inputs of a command: the query, and its event files with Arrow or Spark."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ensue.backends.event_files import (
    FORMATS,
    TEXT_FORMATS,
    EventFile,
    expand_pattern,
    glob_paths,
    is_hidden,
    list_event_files,
    read_columnar_file,
    read_files,
    require_files,
    strip_compression_suffix,
)
from ensue.backends.text_columns import DEFAULT_TEXT_OPTIONS, TextFileOptions
from ensue.backends.text_files import concat_event_tables
from ensue.cli.terminal import UsageError, print_notice
from ensue.errors import EventError, QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.row_pattern import RowPatternQuery
from ensue.ir.subscription import Subscription
from ensue.parser.parameters import Parameters
from ensue.parser.query_files import SUFFIXES, is_file, is_file_name, suggest_file
from ensue.parser.sql.sql_query import Dialect, SqlQuery, claims_sql

Events = Any  # an Arrow table or a Spark DataFrame, or one for each event type
_TYPED = re.compile(r"([^\W\d]\w*)=(.+)", re.DOTALL)


def resolve_event_files(
    arguments: Sequence[str], option: str = "--events", *, patterns: bool = True
) -> tuple[EventFile, ...]:
    """Resolve the values of `--events`; `patterns` allows glob patterns."""
    files = tuple(file for argument in arguments for file in _event_file(argument, patterns=patterns))
    typed = [f for f in files if f.type is not None]
    if typed and len(typed) < len(files):
        raise UsageError(f"give a type to each {option} TYPE=PATH, or to none of them")
    return files


def _event_file(argument: str, *, patterns: bool = True) -> list[EventFile]:
    """Resolve one argument, which may be a pattern such as data/2026-*.csv."""
    path, type = argument, None
    typed = _TYPED.fullmatch(argument)
    # A folder of a partitioned table may be named day=2026-03-14.
    if typed and not Path(argument).exists() and not (patterns and glob_paths(argument)):
        type, path = typed[1], typed[2]
    return [EventFile(name, type) for name in (expand_pattern(path) if patterns else [path])]


def resolve_table_files(arguments: Sequence[str]) -> tuple[EventFile, ...]:
    """Resolve options that name SQL tables; a table without a name has that of its file.

    >>> [file.type for file in resolve_table_files(["day/prices.csv.gz", "trades=2026.csv", "TRADES=x"])]
    ['prices', 'trades', 'trades']
    """
    names: dict[str, str] = {}  # table names must differ in more than case
    files = []
    for file in (file for argument in arguments for file in _event_file(argument)):
        path = strip_compression_suffix(Path(file.path))
        name = file.type or (path.stem if path.suffix.lower() in FORMATS else path.name)
        files.append(EventFile(file.path, names.setdefault(name.lower(), name)))
    return tuple(files)


def read_local(
    files: Sequence[EventFile], spelling: TextFileOptions = DEFAULT_TEXT_OPTIONS, *, rows: int | None = None
) -> Events:
    """Read the events into Arrow tables, or only the first `rows` to get the columns."""
    require_files(files, print_notice)
    tables: dict[str | None, list[pa.Table]] = {}
    for type, form, group in _group_files(files, spelling):
        tables.setdefault(type, []).extend(read_files(form, group, spelling, print_notice, rows))
    by_type = {type: concat_event_tables(parts) for type, parts in tables.items()}
    return by_type.get(None, by_type)


def read_spark(files: Sequence[EventFile], spelling: TextFileOptions = DEFAULT_TEXT_OPTIONS) -> Events:
    from ensue.backends.spark.session import get_or_create_session

    require_files(files, print_notice)
    groups = _group_files(files, spelling)
    paths = [[to_spark_path(file) for file in group] for _, _, group in groups]
    session = get_or_create_session()
    from ensue.backends.spark import event_sources  # imports Spark

    frames: dict[str | None, Any] = {}
    for (type, form, group), spark_paths in zip(groups, paths, strict=True):
        if form == "arrow":  # Spark has no reader for it
            parts = [session.createDataFrame(read_columnar_file(file, form, None)) for file in group]
        elif form in TEXT_FORMATS:
            parts = [event_sources.read_events(session, spark_paths, form, spelling)]
        else:
            parts = [event_sources.read_events(session, [path], form) for path in spark_paths]
        for frame in parts:
            previous = frames.get(type)
            frames[type] = frame if previous is None else previous.unionByName(frame)
    return frames.get(None, frames)


def _group_files(
    files: Sequence[EventFile], spelling: TextFileOptions
) -> list[tuple[str | None, str, list[EventFile]]]:
    """Group files by event type and format, since text files share their column types."""
    groups: dict[tuple[str | None, str], list[EventFile]] = {}
    for file in files:
        groups.setdefault((file.type, file.form), []).append(file)
    forms = {form for _, form in groups}
    if spelling.delimiter is not None and not forms & {"csv", "tsv"}:
        raise UsageError("--delimiter is for CSV files, and there is none")
    if spelling != DEFAULT_TEXT_OPTIONS and not forms & set(TEXT_FORMATS):
        option = "--null" if spelling.nulls else "--time-format"
        raise UsageError(f"{option} is for CSV and JSON lines files, and there is none")
    return [(type, form, group) for (type, form), group in groups.items()]


def to_spark_path(file: EventFile) -> str:
    """Check a local file or folder and return its path for Spark; other URLs are not checked."""
    from ensue.backends.spark.stream_folders import escape_path

    if "://" in file.path:
        return file.path
    path = Path(file.path)
    if any(inside.suffix == ".zst" for inside in list_event_files(path)):
        raise EventError(
            f"Spark cannot decompress .zst files, as in {file.path}\n"
            "  hint: use --engine local, or compress them as .gz or .bz2"
        )
    if path.is_file() and is_hidden(Path(path.name)):
        raise EventError(
            f"Spark ignores files whose names start with _ or ., such as {file.path}\n"
            "  hint: rename it, or use --engine local"
        )
    return escape_path(file.path)


def _find_time_columns(events: Events, what: str) -> list[str]:
    """Return the timestamp or date columns that all tables have."""
    if isinstance(events, Mapping):
        by_table = [_find_time_columns(table, what) for table in events.values()]
        return [name for name in by_table[0] if all(name in names for names in by_table)]
    if isinstance(events, pa.Table):
        has_type = pa.types.is_timestamp if what == "timestamp" else pa.types.is_date
        return [f.name for f in events.schema if has_type(f.type)]
    return [f.name for f in events.schema.fields if f.dataType.typeName().startswith(what)]


def guess_time_column(events: Events) -> str:
    """Return the only timestamp column, or else the only date column; raise UsageError if there
    is no such column."""
    for what in ("timestamp", "date"):
        names = _find_time_columns(events, what)
        if len(names) == 1:
            return names[0]
        if names:
            raise UsageError(
                f"several columns hold {what}s: {', '.join(names)}\n"
                "  hint: name the time of an event with --time COLUMN, or --time START,END"
            )
    raise UsageError(
        "no column holds timestamps or dates\n"
        "  hint: name the time of an event with --time COLUMN; it may be numeric, and "
        "--time-format sets the format of times"
    )


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

        dialect = Dialect.SPARK if engine == "spark" else Dialect.DUCKDB
        return parse_sql(text, dialect, parameters, lambda *_: [None])  # a subquery runs with its tables
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
