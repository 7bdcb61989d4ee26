"""Writes matches as a printed table, JSON lines, CSV or Parquet."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ensue.cli.terminal import UsageError, get_output_console
from ensue.projection.match_table import flatten_table
from ensue.projection.notification_rows import convert_to_json_rows, format_cell

_ENDINGS = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet",
}  # fmt: skip
_ID, _SHORT = "match_id", 10  # characters of an id on a terminal
_LONGEST = 72  # characters of a cell
_NARROWEST = 24  # longer words may be broken: the longest part of a time


def choose_format(named: str | None, target: str) -> str:
    """Return the requested format, or that of the output's extension, or "table".

    >>> choose_format(None, "found.jsonl"), choose_format(None, "-")
    ('json', 'table')
    """
    return named or _ENDINGS.get(Path(target).suffix.lower(), "table")


def write_matches(matches: pa.Table, target: str, form: str, limit: int, *, full_ids: bool = False) -> None:
    """Write to a file, or to standard output if the target is `-`."""
    if form == "table" and target == "-":
        print_matches(get_output_console(), matches, limit, short_ids=sys.stdout.isatty() and not full_ids)
        return
    if form == "parquet" and target == "-" and sys.stdout.isatty():
        raise UsageError("Parquet cannot be printed to a terminal; name a file with --output")
    with _open_target(target) as stream:
        match form:
            case "json":
                for batch in matches.to_batches(max_chunksize=10_000):
                    lines = (
                        json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
                        for row in convert_to_json_rows(pa.Table.from_batches([batch]))
                    )
                    stream.write("".join(lines).encode())
            case "csv":
                pa.csv.write_csv(flatten_for_csv(matches), stream)
            case "parquet":
                pa.parquet.write_table(matches, stream)
            case _:
                text = io.StringIO()
                print_matches(Console(file=text, width=200), matches, limit)
                stream.write(text.getvalue().encode())


@contextmanager
def _open_target(target: str) -> Iterator[BinaryIO]:
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        stream = Path(target).open("wb")  # noqa: SIM115  closed below
    except OSError as error:
        raise UsageError(f"cannot write to {target}: {error.strerror}") from None
    with stream:
        yield stream


def write_text(target: str, text: str) -> None:
    """Write a text file."""
    with _open_target(target) as stream:
        stream.write(text.encode())


def print_matches(console: Console, matches: pa.Table, limit: int, *, short_ids: bool = False) -> None:
    """Print the first matches as a table with wrapped cells, and the number of further ones.

    If even words would have to be broken, each match is printed as a list of its columns.
    """
    shown = convert_to_json_rows(matches.slice(0, limit))
    if short_ids:
        shown = [row | {_ID: str(row[_ID])[:_SHORT]} if row.get(_ID) else row for row in shown]
    table = Table(show_edge=False, header_style="bold", pad_edge=False)
    for field in matches.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        number |= pa.types.is_decimal(field.type)
        table.add_column(
            Text(field.name), justify="right" if number else "left", overflow="fold",
            no_wrap=number or field.name == _ID or pa.types.is_boolean(field.type),
        )  # fmt: skip
    for row in shown:
        table.add_row(*(Text(_shorten(value)) for value in row.values()))
    # Rich makes all wrapping columns equally narrow, so all need room for the longest word.
    wrapping = [column for column in table.columns if not column.no_wrap]
    words = (w for c in wrapping for cell in (c.header, *c.cells) for w in str(cell).split())
    least = min(max(map(len, words), default=0), _NARROWEST)
    for column in wrapping:
        widest = max(len(str(cell)) for cell in (column.header, *column.cells))
        column.min_width = min(least, widest)
    measured = console.measure(table, options=console.options.update_width(1_000_000))
    table.show_lines = measured.maximum > console.width
    if measured.minimum <= console.width:
        console.print(table)
    else:
        _print_each(console, shown)
    if matches.num_rows > limit:
        console.print(Text(f"... and {matches.num_rows - limit:,} more", style="dim italic"))


def _print_each(console: Console, shown: list[dict[str, Any]]) -> None:
    for number, row in enumerate(shown, 1):
        console.print(Text(f"match {number}", style="bold"))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(max_width=console.width // 3, no_wrap=True, overflow="ellipsis")
        grid.add_column(overflow="fold")
        for name, value in row.items():
            grid.add_row(Text(f"  {name}"), Text("" if value is None else format_cell(value)))
        console.print(grid)


def _shorten(value: Any) -> str:
    """Shorten a value for a cell to its first fields or words.

    >>> _shorten({"text": "x" * 60, "price": 12345.75})[-14:]
    'xxxxxxxxxx, …}'
    """
    text = "" if value is None else format_cell(value)
    if len(text) <= _LONGEST:
        return text
    separator = ", " if isinstance(value, dict | list) else " "
    kept = text[: _LONGEST - 3].rpartition(separator)[0] or text[: _LONGEST - 3]
    closing = "}" if isinstance(value, dict) else "]" if isinstance(value, list) else ""
    return f"{kept}{separator}…{closing}"


def flatten_for_csv(matches: pa.Table) -> pa.Table:
    """Flatten structs to columns (`a.price`) and convert lists to JSON text, for CSV."""
    matches = flatten_table(matches, lists=False)
    for number, field in enumerate(matches.schema):
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            values = (row[field.name] for row in convert_to_json_rows(matches.select([number])))
            texts = [
                value if value is None or isinstance(value, str)
                else json.dumps(value, ensure_ascii=False)
                for value in values
            ]  # fmt: skip
            matches = matches.set_column(number, field.name, pa.array(texts, pa.string()))
        elif pa.types.is_duration(field.type) or pa.types.is_decimal(field.type):
            text = pc.cast(matches.column(number), pa.string())
            matches = matches.set_column(number, field.name, text)
    return matches
