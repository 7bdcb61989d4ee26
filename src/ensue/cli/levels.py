"""`ensue run` with a tower: the levels it delivers, and matches opened down to raw events."""

from argparse import Namespace
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.text import Text

import ensue
from ensue.algebra.correlation import Correlation
from ensue.algebra.query import Query
from ensue.algebra.tower import Tower, types_of
from ensue.algebra.towers.layers import layers
from ensue.cli import matches
from ensue.cli.stream_counters import many
from ensue.cli.terminal import UsageError, messages, notice, output
from ensue.errors import EventError, did_you_mean
from ensue.runners.spark.folders import folders
from ensue.tracing.trace import Trace, trace_of

ENDINGS = {"table": "txt", "json": "jsonl", "csv": "csv", "parquet": "parquet"}
TOP = "top"  # what a query without a name goes by
ALL = "all"


def delivery(options: Namespace, query: Query | Tower | Correlation) -> dict[str, Any]:
    """The arguments of `ensue.match` that say what is delivered."""
    asked: dict[str, Any] = {}
    if options.levels is not None:
        asked["levels"] = _levels(options.levels, query)
    if options.trace or options.picture:
        asked["trace"] = True
    return asked


def _levels(named: str, query: Query | Tower | Correlation) -> str | list[str]:
    if not isinstance(query, Tower):
        raise UsageError(
            "--levels: the query defines no events of its own\n"
            "  hint: define one before the query with EVENT Name AS ...;"
        )
    if named == ALL:
        return ALL
    names = [name.strip() for name in named.split(",")]
    known = [*query.names, query.query.name or TOP]
    for name in names:
        if name not in known:
            raise UsageError(
                f"--levels {name}: no such event is defined\n"
                f"  hint: {did_you_mean(name, [*known, ALL])}"
            )
    return [name for name in names if name != TOP or query.query.name == TOP]


def require_folders(options: Namespace, query: Query | Tower | Correlation) -> None:
    """Raises where two levels that may be delivered would share a folder or file."""
    if isinstance(query, Tower) and options.output != "-":
        places_of((*query.names, query.query.name or ""))


def places_of(names: Iterable[str]) -> dict[str, str]:
    """What the folder or file of each level or query is called in that of all of them."""
    try:
        return {str(name): place for name, place in folders(names, TOP).items()}
    except EventError as error:
        raise UsageError(str(error)) from None


def write_each(found: Mapping[str, pa.Table], options: Namespace) -> None:
    """Writes the matches of each level or query: tables one below the other, or a file each."""
    form = form_of_several(options, "several levels")
    places = places_of(found)
    for name, table in found.items():
        counted = f"{name or TOP}: {many(table.num_rows, 'match', 'matches')}"
        if options.output == "-":
            output().print(Text(counted, style="bold"))
        else:
            notice(counted)
        shown = without_members(table) if form in ("table", "csv") else table
        target = target_of(options.output, places[name], form)
        matches.write(shown, target, form, options.limit, full_ids=options.full_ids)


def form_of_several(options: Namespace, what: str) -> str:
    """The format of several tables; all but tables for people need a folder."""
    form: str = options.format or ("table" if options.output == "-" else "parquet")
    if options.output == "-" and form != "table":
        raise UsageError(f"{what} as {form} need a folder: --output FOLDER")
    return form


def target_of(output: str, name: str, form: str) -> str:
    """The file for the matches of a level or query, in the folder of the output."""
    if output == "-":
        return output
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {output}: {error.strerror}") from None
    return str(folder / f"{name}.{ENDINGS[form]}")


def without_members(table: pa.Table) -> pa.Table:
    """The matches without what a tree shows better: the last column, unless RETURN has named one
    so that is no struct."""
    last = table.schema[-1] if table.num_columns else None
    if last is None or last.name != "members" or not pa.types.is_struct(last.type):
        return table
    return table.drop_columns(["members"])


def show_traces(
    found: Mapping[str, pa.Table],
    query: Query | Tower | Correlation,
    options: Namespace,
    *,
    aside: bool,
) -> None:
    """Opens the first matches of the highest level that has any; `aside` of other output."""
    if not (options.trace or options.picture):
        return
    name, table = next(
        ((n, t) for n, t in reversed(list(found.items())) if t.num_rows),
        ("", next(iter(found.values()))),
    )
    console = messages() if aside else output()
    for number in range(min(options.trace or 0, table.num_rows)):
        console.print()
        console.print(Text(str(_trace(table, number, query, name))), soft_wrap=True)
    if options.picture:
        if not table.num_rows:
            notice("no match, so no picture")
            return
        draw(_trace(table, 0, query, name), options.picture)


def _trace(table: pa.Table, number: int, query: Query | Tower | Correlation, level: str) -> Trace:
    row = table.slice(number, 1)
    if isinstance(query, Correlation):
        return trace_of(row, None, None)
    return trace_of(row, query, level if isinstance(query, Tower) else None)


def draw(trace: Trace, file: str) -> None:
    """Writes the picture of a match."""
    try:
        Path(file).write_text(trace.svg, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write to {file}: {error.strerror}") from None
    notice(f"picture of the first match written to {file}")


def checked(query: Query | Tower | Correlation) -> None:
    """Raises where a level names what the events of another do not have; says which types look
    like a defined one, and are not."""
    if not isinstance(query, Tower):
        return
    layers(query)
    defined = query.names
    for level in (*(d.query for d in query.definitions), query.query):
        for name in types_of(level):
            near = get_close_matches(name, defined, n=1, cutoff=0.8)
            if name not in defined and near:
                notice(f"note: '{name}' is not defined, so it must come in; is '{near[0]}' meant?")


def fits(
    query: Query | Tower | Correlation,
    events: Any,
    columns: dict[str, Any],
    past: dict[str, Any],
) -> None:
    """Raises where a query does not fit the columns of events, or of its archives."""
    if not isinstance(query, Tower):
        ensue.explain(query, events, **columns, **past)
        return
    from ensue.runners.tables import stream_of
    from ensue.workload.towers.prepare import prepare_tower

    prepare_tower(query, stream_of(events, **columns)[1])
