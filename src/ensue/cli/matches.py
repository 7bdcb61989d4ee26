"""Writing matches: a table for people, JSON lines, CSV and Parquet for programs."""

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

from ensue.cli.drawn_tables import DrawnTable
from ensue.cli.terminal import UsageError, output
from ensue.results.flat import flat
from ensue.results.readable import rows

_ENDINGS = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet",
}  # fmt: skip


def chosen_format(named: str | None, target: str) -> str:
    """The format asked for, else the one the output's name ends in, else a table.

    >>> chosen_format(None, "found.jsonl"), chosen_format(None, "-")
    ('json', 'table')
    """
    return named or _ENDINGS.get(Path(target).suffix.lower(), "table")


def write(
    matches: pa.Table, target: str, form: str, limit: int, *, full_ids: bool = False
) -> None:
    """Writes to a file, or to standard output if the target is `-`."""
    if form == "table" and target == "-":
        output().print(drawn(matches, limit, full_ids=full_ids))
        return
    if form == "parquet" and target == "-" and sys.stdout.isatty():
        raise UsageError("Parquet cannot be printed to a terminal; name a file with --output")
    with _opened(target) as stream:
        match form:
            case "json":
                for batch in matches.to_batches(max_chunksize=10_000):
                    lines = (
                        json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
                        for row in rows(pa.Table.from_batches([batch]))
                    )
                    stream.write("".join(lines).encode())
            case "csv":
                pa.csv.write_csv(flattened(matches), stream)
            case "parquet":
                pa.parquet.write_table(matches, stream)
            case _:
                text = io.StringIO()
                Console(file=text, width=200).print(drawn(matches, limit, full_ids=True))
                stream.write(text.getvalue().encode())


@contextmanager
def _opened(target: str) -> Iterator[BinaryIO]:
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


def drawn(matches: pa.Table, limit: int, *, full_ids: bool = False) -> DrawnTable:
    """The first matches as a table, and how many more there are; on a terminal ids are short."""
    return DrawnTable(matches, limit, short_ids=sys.stdout.isatty() and not full_ids)


def flattened(matches: pa.Table) -> pa.Table:
    """Structs as columns of their own (`a.price`), lists as JSON text: what CSV can hold.

    >>> flattened(pa.table({"a": [{"price": 3, "tags": ["x"]}]})).to_pylist()
    [{'a.price': 3, 'a.tags': '["x"]'}]
    """
    matches = flat(matches, lists=False)
    for number, field in enumerate(matches.schema):
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            texts = [_text(row[field.name]) for row in rows(matches.select([number]))]
            matches = matches.set_column(number, field.name, pa.array(texts, pa.string()))
        elif pa.types.is_duration(field.type) or pa.types.is_decimal(field.type):
            text = pc.cast(matches.column(number), pa.string())
            matches = matches.set_column(number, field.name, text)
    return matches


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
