"""Output of hierarchies: a table for each level, and matches expanded to raw events."""

from argparse import Namespace
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.text import Text

import ensue
from ensue.analyzer.hierarchy_layers import build_layers
from ensue.backends.spark.stream_folders import name_folders
from ensue.cli import output
from ensue.cli.stream_progress import format_count
from ensue.cli.terminal import UsageError, get_message_console, get_output_console, print_notice
from ensue.errors import EventError, did_you_mean
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Hierarchy, get_pattern_types
from ensue.ir.query import Query
from ensue.lineage.trace import Trace, trace_match

EXTENSIONS = {"table": "txt", "json": "jsonl", "csv": "csv", "parquet": "parquet"}
UNNAMED_QUERY = "top"  # the name of an unnamed query
ALL = "all"


def get_output_options(options: Namespace, query: Query | Hierarchy | ArchiveJoinQuery) -> ensue.OutputOptions:
    return ensue.OutputOptions(
        levels=None if options.levels is None else _levels(options.levels, query),
        trace=bool(options.trace or options.picture),
        flat=options.flat,
        emit_timeouts=options.timeouts,
    )


def _levels(named: str, query: Query | Hierarchy | ArchiveJoinQuery) -> str | list[str]:
    if not isinstance(query, Hierarchy):
        raise UsageError(
            "--levels: the query has no definitions\n  hint: define one before the query with EVENT Name AS ...;"
        )
    names = split_levels(named)
    if isinstance(names, str):
        return names
    known = [*query.names, query.query.name or UNNAMED_QUERY]
    for name in names:
        if name not in known:
            raise UsageError(
                f"--levels {name}: there is no such definition\n  hint: {did_you_mean(name, [*known, ALL])}"
            )
    return [name for name in names if name != UNNAMED_QUERY or query.query.name == UNNAMED_QUERY]


def split_levels(named: str) -> str | list[str]:
    """Return the levels of `ensue.OutputOptions`."""
    return ALL if named == ALL else [name.strip() for name in named.split(",")]


def require_folders(options: Namespace, query: Query | Hierarchy | ArchiveJoinQuery) -> None:
    """Raise UsageError if two levels would share a folder or file."""
    if isinstance(query, Hierarchy) and options.output != "-":
        name_outputs((*query.names, query.query.name or ""))


def name_outputs(names: Iterable[str]) -> dict[str, str]:
    """Return the folder or file name of each level or query."""
    try:
        return {str(name): place for name, place in name_folders(names, UNNAMED_QUERY).items()}
    except EventError as error:
        raise UsageError(str(error)) from None


def write_each(tables: Mapping[str, pa.Table], options: Namespace) -> None:
    """Print the matches of each level or query as a table, or write them to files."""
    form = choose_format_of_several(options, "several levels")
    places, folder = name_outputs(tables), Path(options.output)
    if options.output != "-":
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write to {folder}: {error.strerror}") from None
    for name, table in tables.items():
        heading = f"{name or UNNAMED_QUERY}: {format_count(table.num_rows, 'match', 'matches')}"
        if options.output == "-":
            get_output_console().print(Text(heading, style="bold"))
        else:
            print_notice(heading)
        shown = drop_members(table) if form in ("table", "csv") else table
        target = options.output
        if target != "-":
            target = str(folder / f"{places[name]}.{EXTENSIONS[form]}")
        output.write_matches(shown, target, form, options.limit, full_ids=options.full_ids)


def choose_format_of_several(options: Namespace, what: str) -> str:
    """Return the format of several tables; all but printed tables need a folder."""
    form: str = options.format or ("table" if options.output == "-" else "parquet")
    if options.output == "-" and form != "table":
        raise UsageError(f"{what} as {form} need a folder: --output FOLDER")
    return form


def drop_members(table: pa.Table) -> pa.Table:
    """Drop the struct column of members, which only --trace shows."""
    last = table.schema[-1] if table.num_columns else None
    if last is None or last.name != "members" or not pa.types.is_struct(last.type):
        return table
    return table.drop_columns(["members"])


def show_traces(
    tables: Mapping[str, pa.Table], query: Query | Hierarchy | ArchiveJoinQuery, options: Namespace, *, aside: bool
) -> None:
    """Print the first matches of the highest level with any; `aside` uses standard error."""
    if not (options.trace or options.picture):
        return
    name, table = next(
        ((n, t) for n, t in reversed(list(tables.items())) if t.num_rows), ("", next(iter(tables.values())))
    )
    console = get_message_console() if aside else get_output_console()
    for number in range(min(options.trace or 0, table.num_rows)):
        console.print()
        console.print(Text(str(_trace(table, number, query, name))), soft_wrap=True)
    if options.picture:
        if not table.num_rows:
            print_notice("no picture, since there is no match")
            return
        output.write_text(options.picture, _trace(table, 0, query, name).svg)
        print_notice(f"picture of the first match written to {options.picture}")


def _trace(table: pa.Table, number: int, query: Query | Hierarchy | ArchiveJoinQuery, level: str) -> Trace:
    row = table.slice(number, 1)
    if isinstance(query, ArchiveJoinQuery):
        return trace_match(row, None, None)
    return trace_match(row, query, level if isinstance(query, Hierarchy) else None)


def check_levels(query: Query | Hierarchy | ArchiveJoinQuery) -> None:
    """Check the fields that levels use of each other, and note event types that resemble a
    definition."""
    if not isinstance(query, Hierarchy):
        return
    build_layers(query)
    defined = query.names
    for level in (*(d.query for d in query.definitions), query.query):
        for name in get_pattern_types(level):
            near = get_close_matches(name, defined, n=1, cutoff=0.8)
            if name not in defined and near:
                print_notice(f"note: '{name}' is an input event type; did you mean '{near[0]}'?")


def check_columns(
    query: Query | Hierarchy | ArchiveJoinQuery, events: Any, columns: dict[str, Any], archives: ensue.Archives | None
) -> None:
    """Raise an error if a query does not fit the columns of its events or archives."""
    if not isinstance(query, Hierarchy):
        ensue.explain(query, events, **columns, archives=archives)
        return
    from ensue.backends.dataframe_libs import read_event_table
    from ensue.operators.hierarchy.hierarchy_planner import compile_hierarchy

    compile_hierarchy(query, read_event_table(events, **columns)[1])
