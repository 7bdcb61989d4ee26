"""`ensue archive create|append|compact|show|release`."""

import time
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

import ensue
from ensue.archives.archive import ArchiveLayout, ArchiveOptions
from ensue.archives.delta import open_delta_archive
from ensue.archives.delta_writer import compact, create, get_writer, release, vacuum
from ensue.archives.file_archive import FileArchive, describe_scan_cost
from ensue.cli import inputs
from ensue.cli.options import get_text_options
from ensue.cli.terminal import ExitCode, UsageError, format_count, get_output_console, print_notice
from ensue.schema import parse_columns


def run_create(options: Namespace) -> ExitCode:
    """Create an archive with the columns of the events, and append the events."""
    events = _read(options)
    columns = {"type": options.type, "key": options.key, "order": options.order}
    created = create(
        options.place,
        events.schema,
        time=_time(options) or inputs.guess_time_column(events),
        buckets=options.buckets,
        day=options.day,
        **columns,
    )
    if options.empty:
        print_notice(f"created {options.place}, without events")
        return ExitCode.FINE
    try:
        return _append(created, events)
    except ensue.EnsueError:
        print_notice(f"{options.place} was created, and is empty")
        raise


def run_append(options: Namespace) -> ExitCode:
    events = _read(options)
    return _append(open_delta_archive(options.place, ArchiveOptions(None)), events)


def _append(archive: FileArchive, events: pa.Table) -> ExitCode:
    began = time.perf_counter()
    count = archive.append(events)
    seconds = time.perf_counter() - began
    print_notice(f"appended {format_count(count, 'event', 'events')} to {archive.place} in {seconds:.2f} s")
    return ExitCode.FINE


def run_compact(options: Namespace) -> ExitCode:
    """Merge the files of parts with many files; with --vacuum, delete old files."""
    if options.vacuum is not None and options.vacuum < 0:
        raise UsageError("--vacuum needs a number of hours, 0 or more; 168 is a week")
    began = time.perf_counter()
    done = compact(open_delta_archive(options.place, ArchiveOptions(None)), fewest=options.fewest)
    seconds = time.perf_counter() - began
    if done.parts:
        print_notice(
            f"merged {format_count(done.before, 'file', 'files')} of {format_count(done.parts, 'part', 'parts')} "
            f"into {done.after:,}, with {format_count(done.rows, 'event', 'events')}, in {seconds:.2f} s"
        )
    else:
        print_notice(f"nothing to do: no day and bucket has {options.fewest} files")
    if options.vacuum is not None:
        deleted = vacuum(options.place, hours=options.vacuum)
        print_notice(f"deleted {format_count(deleted, 'file', 'files')} that no version needs")
    return ExitCode.FINE


def run_show(options: Namespace) -> ExitCode:
    """Print the layout of an archive, and warn if reads will be expensive."""
    archive = ensue.archive(options.place, time=_time(options), type=options.type, key=options.key, order=options.order)
    layout = archive.layout()
    writer = get_writer(options.place) if layout.buckets is not None else None
    get_output_console().print(_describe(layout, archive, writer))
    warning = describe_scan_cost(layout)
    if warning is not None and archive.key:
        print_notice(f"warning: {warning}")
    return ExitCode.FINE


def run_release(options: Namespace) -> ExitCode:
    """Clear the stream that writes an archive."""
    owner = release(options.place)
    if owner is None:
        print_notice(f"no stream writes to {options.place}")
    else:
        print_notice(f"stream {owner} no longer writes to {options.place}")
    return ExitCode.FINE


def _describe(layout: ArchiveLayout, archive: Any, writer: str | None) -> Table:
    schema = archive.shape.schema
    times = schema.end if schema.start == schema.end else f"{schema.start} to {schema.end}"
    kind = layout.kind if layout.version is None else f"{layout.kind}, version {layout.version}"
    if layout.buckets is not None:
        partitioning = f"by day and {layout.buckets} buckets"
    else:
        partitioning = f"by {', '.join(layout.partitioned_by)}" if layout.partitioned_by else ""
    parts = [
        partitioning,
        f"sorted by {', '.join(layout.sorted_by)}" if layout.sorted_by else "",
        "" if layout.clustered or not archive.key else "not clustered by key",
    ]
    files = format_count(layout.files, "file", "files")
    size = "" if layout.bytes is None else f", {decimal(layout.bytes)}"
    facts = {
        "archive": f"{layout.place} ({kind})",
        "events": "not known" if layout.rows is None else f"{layout.rows:,}",
        "from": None if layout.since is None else str(layout.since),
        "to": None if layout.until is None else str(layout.until),
        "files": f"{files}{size}",
        "layout": ", ".join(part for part in parts if part) or "in arrival order",
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


def _time(options: Namespace) -> str | tuple[str, str] | None:
    return None if options.time is None else parse_columns(options.time)


def _read(options: Namespace) -> pa.Table:
    files = inputs.resolve_event_files(options.events)
    events = inputs.read_local(files, get_text_options(options))
    if isinstance(events, Mapping):
        raise UsageError(
            "an archive is a single table: TYPE=PATH is not allowed\n"
            "  hint: add a column with the type to the files, and name it with --type"
        )
    return events
