"""Files of events, as chunks of rows that a service reads."""

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from ensue.service.intake import ARROW, JSON_LINES
from ensue.service.sources.payloads import lines_of

UNREADABLE = (OSError, EOFError, ValueError, zlib.error, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a file that follow each other."""

    first: int  # the number of the first row in the file
    rows: "tuple[bytes, ...] | pa.Table"  # lines of JSON, or a table

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def media(self) -> str:
        return JSON_LINES if isinstance(self.rows, tuple) else ARROW

    def body(self) -> bytes:
        """The rows as bytes of that media type."""
        if isinstance(self.rows, tuple):
            return b"\n".join(self.rows)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.rows.schema) as writer:
            writer.write_table(self.rows)
        made: bytes = sink.getvalue().to_pybytes()
        return made

    def halves(self) -> "tuple[Chunk, Chunk]":
        """The same rows in two chunks."""
        middle = self.count // 2
        if isinstance(self.rows, tuple):
            front, back = self.rows[:middle], self.rows[middle:]
        else:
            front, back = self.rows.slice(0, middle), self.rows.slice(middle)
        return Chunk(self.first, front), Chunk(self.first + middle, back)


class CutOffError(ValueError):
    """The last line of a file is not all there."""


def known(name: str) -> bool:
    """Whether files of this name can be read.

    >>> known("day.jsonl.gz"), known("README.txt")
    (True, False)
    """
    return _reader(name) is not None


def chunks_of(path: Path, position: int, most: int) -> Iterator[Chunk]:
    """The rows of a file from a position on, at most so many at a time."""
    reader = _reader(path.name)
    if reader is None:
        raise ValueError(f"'{path.name}' is not an event file")
    return reader(path, position, most)


def _reader(name: str) -> Callable[[Path, int, int], Iterator[Chunk]] | None:
    return _READERS.get(Path(name.lower().removesuffix(".gz")).suffix)


# -------------------------------------------------------------------------------------- JSON


def _json_lines(path: Path, position: int, most: int) -> Iterator[Chunk]:
    with _opened(path) as file:
        row = 0
        some: list[bytes] = []
        for line in file:
            text = line.strip()
            if not text:
                continue
            if not line.endswith(b"\n") and not _is_json(text):
                if some:
                    yield Chunk(row - len(some), tuple(some))
                raise CutOffError(f"its last line, row {row}, is cut off")
            row += 1
            if row > position:
                some.append(text)
            if len(some) == most:
                yield Chunk(row - most, tuple(some))
                some = []
        if some:
            yield Chunk(row - len(some), tuple(some))


def _json(path: Path, position: int, most: int) -> Iterator[Chunk]:
    with _opened(path) as file:
        lines = lines_of(file.read())
    for first in range(position, len(lines), most):
        yield Chunk(first, tuple(lines[first : first + most]))


def _opened(path: Path) -> IO[bytes]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path)  # type: ignore[return-value]
    return path.open("rb")


def _is_json(text: bytes) -> bool:
    import orjson

    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


# ------------------------------------------------------------------------------------ tables


def _csv(path: Path, position: int, most: int) -> Iterator[Chunk]:
    from pyarrow import csv

    with csv.open_csv(path) as reader:
        yield from _chunks(reader, position, most)


def _parquet(path: Path, position: int, most: int) -> Iterator[Chunk]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        if file.metadata.num_rows > position:
            yield from _chunks(file.iter_batches(batch_size=most), position, most)


def _arrow(path: Path, position: int, most: int) -> Iterator[Chunk]:
    with pa.memory_map(str(path)) as data:
        try:
            file = pa.ipc.open_file(data)
        except pa.ArrowInvalid:
            data.seek(0)
            with pa.ipc.open_stream(data) as stream:
                yield from _chunks(stream, position, most)
            return
        batches = (file.get_batch(number) for number in range(file.num_record_batches))
        yield from _chunks(batches, position, most)


def _chunks(batches: Any, position: int, most: int) -> Iterator[Chunk]:
    row = 0
    for batch in batches:
        table = pa.Table.from_batches([batch])
        skip = min(max(0, position - row), table.num_rows)
        for first in range(skip, table.num_rows, most):
            yield Chunk(row + first, table.slice(first, most))
        row += table.num_rows


_READERS: Mapping[str, Callable[[Path, int, int], Iterator[Chunk]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".arrows": _arrow,
    ".feather": _arrow,
    ".ipc": _arrow,
}
