"""`ensue archive create|append|compact|show|release`: tables of past events."""

import time
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from rich.table import Table
from rich.text import Text

import ensue
from ensue.archives.clustering import cost_of
from ensue.archives.compaction import compact, vacuum
from ensue.archives.contract import Layout
from ensue.archives.writing import append, create, release, writer_of
from ensue.cli import event_files
from ensue.cli.stream_counters import many
from ensue.cli.terminal import Exit, UsageError, notice, output
from ensue.cli.text_options import spelling_of

_UNITS = ("bytes", "KB", "MB", "GB", "TB")


def run_create(options: Namespace) -> Exit:
    """Makes an archive with the columns of the events, and puts them in."""
    events = _read(options)
    given = {"type": options.type, "key": options.key, "order": options.order}
    create(
        options.place,
        events.schema,
        time=_time(options.time) or event_files.guessed_time(events),
        buckets=options.buckets,
        day=options.day,
        **given,
    )
    if options.empty:
        notice(f"created {options.place}, without events")
        return Exit.FINE
    try:
        return _append(options.place, events)
    except ensue.EnsueError:
        notice(f"{options.place} was created, and is empty")
        raise


def run_append(options: Namespace) -> Exit:
    """Puts events into an archive."""
    return _append(options.place, _read(options))


def _append(place: str, events: pa.Table) -> Exit:
    began = time.perf_counter()
    count = append(place, events)
    seconds = time.perf_counter() - began
    notice(f"{many(count, 'event', 'events')} put into {place} in {seconds:.2f} s")
    return Exit.FINE


def run_compact(options: Namespace) -> Exit:
    """Rewrites parts that have many files; removes old files if asked to."""
    if options.vacuum is not None and options.vacuum < 0:
        raise UsageError("--vacuum takes hours, 0 or more; 168 are a week")
    began = time.perf_counter()
    done = compact(options.place, fewest=options.fewest)
    seconds = time.perf_counter() - began
    if done.parts:
        notice(
            f"{many(done.before, 'file', 'files')} of {many(done.parts, 'part', 'parts')} are "
            f"{done.after:,} now, with {many(done.rows, 'event', 'events')}, in {seconds:.2f} s"
        )
    else:
        notice(f"nothing to do: no day and bucket has {options.fewest} files")
    if options.vacuum is not None:
        gone = vacuum(options.place, hours=options.vacuum)
        notice(f"{many(gone, 'file', 'files')} removed that no version needs any more")
    return Exit.FINE


def run_show(options: Namespace) -> Exit:
    """Prints the layout of an archive, and warns if reads will be dear."""
    archive = ensue.archive(
        options.place,
        time=_time(options.time),
        type=options.type,
        key=options.key,
        order=options.order,
    )
    layout = archive.layout()
    writer = writer_of(options.place) if layout.buckets is not None else None
    output().print(_drawn(layout, archive, writer))
    warning = cost_of(layout)
    if warning is not None and archive.key:
        notice(f"warning: {warning}")
    return Exit.FINE


def run_release(options: Namespace) -> Exit:
    """Forgets which stream writes an archive."""
    owner = release(options.place)
    said = "no stream writes" if owner is None else f"stream {owner} does not write any more"
    notice(f"{said}: {options.place}")
    return Exit.FINE


def _drawn(layout: Layout, archive: Any, writer: str | None) -> Table:
    schema = archive.shape.schema
    times = schema.end if schema.start == schema.end else f"{schema.start} to {schema.end}"
    kind = layout.kind if layout.version is None else f"{layout.kind}, version {layout.version}"
    if layout.buckets is not None:
        apart = f"by day and {layout.buckets} buckets"
    else:
        apart = f"by {', '.join(layout.partitioned_by)}" if layout.partitioned_by else ""
    laid_out = [
        apart,
        f"sorted by {', '.join(layout.sorted_by)}" if layout.sorted_by else "",
        "" if layout.clustered or not archive.key else "objects are not stored together",
    ]
    files = many(layout.files, "file", "files")
    size = "" if layout.bytes is None else f", {_size(layout.bytes)}"
    facts = {
        "archive": f"{layout.place} ({kind})",
        "events": "not known" if layout.rows is None else f"{layout.rows:,}",
        "from": _moment(layout.since),
        "to": _moment(layout.until),
        "files": f"{files}{size}",
        "layout": ", ".join(part for part in laid_out if part) or "as it came",
        "time": times,
        "type": schema.type_column,
        "key": ", ".join(archive.key),
        "order": ", ".join(schema.order),
        "columns": ", ".join(f"{f.name} {f.type}" for f in archive.shape.arrow),
        "written by": writer and f"stream {writer}",
    }
    table = Table(show_header=False, show_edge=False, pad_edge=False, box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        if fact:
            table.add_row(name, Text(fact))
    return table


def _moment(value: object) -> str | None:
    return None if value is None else str(value)


def _size(count: int) -> str:
    """A number of bytes as a person reads it.

    >>> _size(999), _size(50_080_806)
    ('999 bytes', '50.1 MB')
    """
    size, unit = float(count), 0
    while size >= 1_000 and unit < len(_UNITS) - 1:
        size, unit = size / 1_000, unit + 1
    return f"{count} bytes" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def _time(text: str | None) -> str | tuple[str, str] | None:
    if text is None or "," not in text:
        return text
    start, _, end = text.partition(",")
    return (start.strip(), end.strip())


def _read(options: Namespace) -> pa.Table:
    files = event_files.event_files(options.events)
    events = event_files.read_local(files, spelling_of(options))
    if isinstance(events, Mapping):
        raise UsageError(
            "the events of an archive are one table: TYPE=PATH is not allowed\n"
            "  hint: add a column with the type to the files, and name it with --type"
        )
    return events
