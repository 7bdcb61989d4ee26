"""Source for files in a folder, in the order of their names, each file once."""

import asyncio
import gzip
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa

from ensue.errors import EventError
from ensue.service.brokers import UnavailableError
from ensue.service.endpoints import ConfigReader
from ensue.service.errors import OverLimitError
from ensue.service.intake import ARROW, JSON_LINES
from ensue.service.sources.source import EventSource, split_events

UNREADABLE = (OSError, EOFError, ValueError, zlib.error, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of a file."""

    first: int  # index of the first row in the file
    rows: "tuple[bytes, ...] | pa.Table"  # lines of JSON, or a table

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def media(self) -> str:
        return JSON_LINES if isinstance(self.rows, tuple) else ARROW

    def body(self) -> bytes:
        if isinstance(self.rows, tuple):
            return b"\n".join(self.rows)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.rows.schema) as writer:
            writer.write_table(self.rows)
        encoded: bytes = sink.getvalue().to_pybytes()
        return encoded

    def halves(self) -> "tuple[Chunk, Chunk]":
        middle = self.count // 2
        front, back = self.rows[:middle], self.rows[middle:]
        return Chunk(self.first, front), Chunk(self.first + middle, back)


def get_format(name: str) -> str:
    """Returns the suffix of a file name, without compression.

    >>> get_format("day.jsonl.gz"), get_format("README.TXT")
    ('.jsonl', '.txt')
    """
    return Path(name.lower().removesuffix(".gz")).suffix


def read_chunks(path: Path, position: int, most: int) -> Iterator[Chunk]:
    """Reads the rows of an event file from a position on, at most `most` per chunk."""
    return _READERS[get_format(path.name)](path, position, most)


def _json_lines(path: Path, position: int, most: int) -> Iterator[Chunk]:
    with _open(path) as file:
        row = 0
        rows: list[bytes] = []
        for line in file:
            text = line.strip()
            if not text:
                continue
            if not line.endswith(b"\n") and not _is_json(text):
                if rows:
                    yield Chunk(row - len(rows), tuple(rows))
                raise ValueError(f"its last line, row {row}, is cut off")
            row += 1
            if row > position:
                rows.append(text)
            if len(rows) == most:
                yield Chunk(row - most, tuple(rows))
                rows = []
        if rows:
            yield Chunk(row - len(rows), tuple(rows))


def _json(path: Path, position: int, most: int) -> Iterator[Chunk]:
    with _open(path) as file:
        lines = split_events(file.read())
    for first in range(position, len(lines), most):
        yield Chunk(first, tuple(lines[first : first + most]))


def _open(path: Path) -> IO[bytes]:
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


class FileState(NamedTuple):
    """The attributes by which a change of a file is detected."""

    size: int
    written: int
    file: int  # inode: the same name may be another file


class FolderSource(EventSource):
    """Reads the files of a folder; names that begin with '.' or '_' are ignored.

    A file is read when it did not change between two looks. A file that is still being written
    blocks those with later names.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Reads `path`: files in JSON lines, JSON, CSV, Parquet and Arrow. The source looks for
        new files every `look` seconds and publishes `most` rows at a time."""
        reader = ConfigReader("folder source", config)
        path = reader.text("path", hint="a folder that the service can read")
        self._path = Path(path).absolute()
        super().__init__(f"folder:{self._path}")
        self._most = reader.read_integer("most", 5_000)
        self._look = reader.seconds("look", 1.0)
        reader.done()
        self._seen: dict[str, FileState] = {}
        self._taken: dict[str, FileState] = {}  # read completely, or rejected

    def __repr__(self) -> str:
        return f"FolderSource({str(self._path)!r})"

    async def _read(self) -> None:
        while True:
            try:
                looks = await asyncio.to_thread(self._read_file_states)
            except OSError as error:
                why = f"the folder {self._path} cannot be listed: {error.strerror}"
                raise UnavailableError(why) from None
            self.progress.clear_problem()
            ready = self._ready(looks)
            self._seen = looks
            self._taken = {name: look for name, look in self._taken.items() if name in looks}
            for name in ready:
                await self._take(name, looks[name])
            await asyncio.sleep(self._look)

    def _read_file_states(self) -> dict[str, FileState]:
        files = {}
        for path in self._path.iterdir():
            try:
                if path.name[0] not in "._" and path.is_file():
                    now = path.stat()
                    files[path.name] = FileState(now.st_size, now.st_mtime_ns, now.st_ino)
            except FileNotFoundError:  # renamed or removed meanwhile
                continue
        return files

    def _ready(self, looks: Mapping[str, FileState]) -> list[str]:
        """The files to read now, by name."""
        ready = []
        for name in sorted(looks):
            if looks[name] == self._taken.get(name):
                continue
            if get_format(name) not in _READERS:
                if self._taken.get(name) is None:
                    why = f"ignored: {name} has an unknown file type"
                    self.progress.count_dropped("left_out", why, level=logging.INFO)
                self._taken[name] = looks[name]
                continue
            if looks[name] != self._seen.get(name):
                break  # it is still being written
            ready.append(name)
        return ready

    async def _take(self, name: str, look: FileState) -> None:
        before = self._taken.get(name)
        self._taken[name] = look
        producer = f"{self.name}:{name}"
        position = await self._service.position(producer) or 0
        replaced = before is not None and (look.file != before.file or look.size < before.size)
        if position and replaced:
            why = f"{name} was replaced after {position} of its rows were read"
            hint = "write new events to a file with a new name"
            await self._put_aside(f"{why}\n  hint: {hint}", producer)
            return
        try:
            chunks = read_chunks(self._path / name, position, self._most)
            while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
                await self._offer(chunk, producer)
        except UNREADABLE as error:
            await self._put_aside(f"{name}: {_reason(error)}", producer)
        except EventError as error:
            await self._put_aside(f"{name}: {error}", producer)

    async def _put_aside(self, why: str, producer: str) -> None:
        """Rejects a file or a row, and stores the reason as a bad event."""
        self.progress.count_dropped("bad", f"rejected: {why}")
        await self._service.put_aside(b"", why, producer=producer)

    async def _offer(self, chunk: Chunk, producer: str) -> None:
        numbers = range(chunk.first, chunk.first + chunk.count)
        try:
            await self._publish_batch(chunk.body(), chunk.media, producer, numbers)
        except OverLimitError as error:
            if chunk.count > 1:
                for half in chunk.halves():
                    await self._offer(half, producer)
            else:
                why = f"{producer}, row {chunk.first}: {error}"
                await self._put_aside(why, producer)
        else:
            self.progress.count("messages", chunk.count)


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text or type(error).__name__).partition("\n")[0]
