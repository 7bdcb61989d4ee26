"""Event files: CSV, JSON lines, Parquet and Arrow, read by Arrow or by Spark."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ensue.cli.terminal import UsageError, notice
from ensue.errors import EventError
from ensue.runners.event_files import (
    FORMS,
    TEXTS,
    EventFile,
    expanded,
    files_inside,
    is_hidden,
    matching_paths,
    read_alike,
    read_columns,
    require,
    unpacked,
)
from ensue.runners.text_columns import PLAIN, Spelling
from ensue.runners.text_files import concatenated

Events = Any  # an Arrow table or a Spark DataFrame, or one for each event type
_TYPED = re.compile(r"([^\W\d]\w*)=(.+)", re.DOTALL)


def event_files(
    arguments: Sequence[str], option: str = "--events", *, patterns: bool = True
) -> tuple[EventFile, ...]:
    """What the `--events` options name; `patterns`: files that are there may be named by one.

    >>> event_files(["Shelf=shelf.csv", "Exit=exit.csv"])[1]
    EventFile(path='exit.csv', type='Exit')
    """
    files = tuple(
        file for argument in arguments for file in _event_file(argument, patterns=patterns)
    )
    typed = [f for f in files if f.type is not None]
    if typed and len(typed) < len(files):
        raise UsageError(f"give a type to each {option} TYPE=PATH, or to none of them")
    return files


def _event_file(argument: str, *, patterns: bool = True) -> list[EventFile]:
    """The files that one argument names: a pattern, such as data/2026-*.csv, may name several."""
    path, type = argument, None
    typed = _TYPED.fullmatch(argument)
    # A folder of a partitioned table may itself be named day=2026-03-14.
    if typed and not Path(argument).exists() and not (patterns and matching_paths(argument)):
        type, path = typed[1], typed[2]
    return [EventFile(one, type) for one in (expanded(path) if patterns else [path])]


def table_files(arguments: Sequence[str]) -> tuple[EventFile, ...]:
    """What options name as tables of SQL; those without a name are called like their files.

    >>> [file.type for file in table_files(["day/prices.csv.gz", "trades=2026.csv", "TRADES=x"])]
    ['prices', 'trades', 'trades']
    """
    spelled: dict[str, str] = {}  # table names must differ in more than case
    named = []
    for file in (file for argument in arguments for file in _event_file(argument)):
        name = file.type or _stem(Path(file.path))
        named.append(EventFile(file.path, spelled.setdefault(name.lower(), name)))
    return tuple(named)


def _stem(path: Path) -> str:
    name = unpacked(path)
    return name.stem if name.suffix.lower() in FORMS else name.name


def read_local(
    files: Sequence[EventFile], spelling: Spelling = PLAIN, *, rows: int | None = None
) -> Events:
    """The events as Arrow tables; with `rows`, only the first ones, to know the columns."""
    require(files, notice)
    tables: dict[str | None, list[pa.Table]] = {}
    for type, form, alike in _alike(files, spelling):
        tables.setdefault(type, []).extend(read_alike(form, alike, spelling, notice, rows))
    joined = {type: concatenated(parts) for type, parts in tables.items()}
    return joined.get(None, joined)


def read_spark(files: Sequence[EventFile], spelling: Spelling = PLAIN) -> Events:
    """The events as DataFrames of an embedded Spark session."""
    from ensue.runners.spark import session as spark_session

    require(files, notice)
    groups = _alike(files, spelling)
    paths = [[as_spark_reads(file) for file in alike] for _, _, alike in groups]
    session = spark_session.embedded()
    frames: dict[str | None, Any] = {}
    for (type, form, alike), named in zip(groups, paths, strict=True):
        if form == "arrow":  # Spark has no reader for it
            read = [session.createDataFrame(read_columns(file, form, None)) for file in alike]
        elif form in TEXTS:
            read = [spark_session.read_text(session, named, form, spelling)]
        else:
            read = [spark_session.read(session, path, form) for path in named]
        for frame in read:
            known = frames.get(type)
            frames[type] = frame if known is None else known.unionByName(frame)
    return frames.get(None, frames)


def _alike(
    files: Sequence[EventFile], spelling: Spelling
) -> list[tuple[str | None, str, list[EventFile]]]:
    """The files by type and form: what a column of text files is, shows in all of them."""
    found: dict[tuple[str | None, str], list[EventFile]] = {}
    for file in files:
        found.setdefault((file.type, file.form), []).append(file)
    forms = {form for _, form in found}
    if spelling.delimiter is not None and not forms & {"csv", "tsv"}:
        raise UsageError("--delimiter says something of CSV files, and there is none")
    if spelling != PLAIN and not forms & set(TEXTS):
        said = "--null" if spelling.nulls else "--time-format"
        raise UsageError(
            f"{said} says something of text files, CSV or JSON lines, and there is none"
        )
    return [(type, form, alike) for (type, form), alike in found.items()]


def as_spark_reads(file: EventFile) -> str:
    """The path of a file or folder that is there; behind :// only Spark can look."""
    from ensue.runners.spark.paths import literal

    if "://" in file.path:
        return file.path
    path = Path(file.path)
    if any(inside.suffix == ".zst" for inside in files_inside(path)):
        raise EventError(
            f"Spark cannot unpack .zst files, as in {file.path}\n"
            "  hint: take --engine local, or pack them as .gz or .bz2"
        )
    if path.is_file() and is_hidden(Path(path.name)):
        raise EventError(
            f"Spark ignores files whose names start with _ or ., such as {file.path}\n"
            "  hint: rename it, or use --engine local"
        )
    return literal(file.path)


def _columns_of(events: Events, what: str) -> list[str]:
    """The columns of a kind, in every table if there are several; `what`: timestamp or date."""
    if isinstance(events, Mapping):
        every = [_columns_of(table, what) for table in events.values()]
        return [name for name in every[0] if all(name in names for names in every)]
    if isinstance(events, pa.Table):
        is_one = pa.types.is_timestamp if what == "timestamp" else pa.types.is_date
        return [f.name for f in events.schema if is_one(f.type)]
    return [f.name for f in events.schema.fields if f.dataType.typeName().startswith(what)]


def guessed_time(events: Events) -> str:
    """The only column that can be the time of an event, or a UsageError: one of timestamps, or
    one of dates where nothing is finer."""
    for what in ("timestamp", "date"):
        names = _columns_of(events, what)
        if len(names) == 1:
            return names[0]
        if names:
            raise UsageError(
                f"several columns hold {what}s: {', '.join(names)}\n"
                "  hint: say which one is the time of an event, --time COLUMN, or --time START,END"
            )
    raise UsageError(
        "no column holds timestamps or dates\n"
        "  hint: name the column with the time of an event, --time COLUMN; it may be numeric, and "
        "--time-format says how times are written"
    )
