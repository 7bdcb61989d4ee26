"""One version of a set of subscriptions as a file: its changes as columns, and a checksum.

A block of 1,024 bytes comes first: what the file is, its format, the number of the version, how
many changes it has and where, and the digests of this block and of what follows. Then come two
tables in Arrow's file format: the changes, and the texts of regions that they share, each once.
Readers map the file into memory and go over it piece by piece, however many changes it has.
"""

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from ensue.computed import cached_property
from ensue.errors import StateError
from ensue.workload.subscriptions.catalogue.change import Change, Kind

MAGIC = b"ENSUESUB"
FORMAT = 1
BLOCK = 1_024  # bytes before the tables; a multiple of what Arrow aligns to
ROWS = 16_384  # changes that are in memory at a time
_PREFIX = struct.Struct("<8sII32s")  # magic, format, length of the head, digest of the head
_CHANGES = pa.schema(
    {
        "kind": pa.int8(),
        "name": pa.string(),
        "text": pa.string(),
        "language": pa.string(),
        "region_names": pa.list_(pa.string()),
        "region_texts": pa.list_(pa.int32()),  # rows of the second table
        "options": pa.string(),  # JSON
    }
)
_REGIONS = pa.schema({"text": pa.large_string()})
_DAMAGED = (
    "restore the file from a copy of the folder; or make a new folder, add the subscriptions "
    "to it, and start the stream with a new checkpoint"
)


@dataclass(frozen=True, slots=True)
class Head:
    """What a reader knows of a version before it reads the changes."""

    version: int
    at: int  # microseconds since 1970 on the writer's clock
    count: int  # changes of this version
    total: int  # changes of all versions up to it
    sizes: tuple[int, int]  # bytes of the two tables
    digest: str  # of both


class Written:
    """A file of changes that is complete but for the number of its version."""

    def __init__(self, path: Path, changes: Iterable[Change], at: int) -> None:
        self.path = path
        regions: dict[str, int] = {}
        waiting = iter(changes)
        with path.open("xb") as file:
            file.write(bytes(BLOCK))
            with pa.ipc.new_file(_unclosed(file), _CHANGES) as writer:
                count = 0
                while piece := list(islice(waiting, ROWS)):
                    writer.write_batch(_columns(piece, regions))
                    count += len(piece)
            middle = file.tell()
            with pa.ipc.new_file(_unclosed(file), _REGIONS) as writer:
                texts = iter(regions)
                while some := list(islice(texts, ROWS)):
                    writer.write_batch(pa.record_batch([some], schema=_REGIONS))
            end = file.tell()
        sizes = (middle - BLOCK, end - middle)
        self.head = Head(0, at, count, count, sizes, _digest(path))

    def read(self) -> "ChangeFile":
        """What was written, before it has its number."""
        return ChangeFile(self.path, self.head)

    def number(self, version: int, total: int) -> None:
        """Makes it the file of a version."""
        self.head = replace(self.head, version=version, total=total)
        with self.path.open("r+b") as file:
            file.write(_block(self.head))
            _flush(file)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _unclosed(file: BinaryIO) -> Any:
    return pa.PythonFile(file, mode="w")


class ChangeFile:
    """The changes of one version, as they were written."""

    def __init__(self, path: Path, head: Head) -> None:
        self.path = path
        self.head = head

    @classmethod
    def open(cls, path: Path, version: int) -> "ChangeFile":
        """The file of a version, or a StateError that says what to do."""
        return cls(path, read_head(path, version))

    @cached_property
    def _mapped(self) -> pa.Buffer:
        """The whole file, mapped into memory once it is known to be what was written."""
        if _digest(self.path) != self.head.digest:
            raise damaged(self.path, "its checksum is wrong")
        with pa.memory_map(str(self.path)) as file:
            return file.read_buffer()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The changes as columns, piece by piece."""
        reader = self._table(BLOCK, self.head.sizes[0])
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)

    @cached_property
    def regions(self) -> pa.ChunkedArray:
        """The texts of regions that the changes name by number."""
        return self._table(BLOCK + self.head.sizes[0], self.head.sizes[1]).read_all()["text"]

    def __iter__(self) -> Iterator[Change]:
        for batch in self.batches():
            yield from (self._change(row) for row in batch.to_pylist())

    def some(self, rows: Sequence[int]) -> Iterator[Change]:
        """The changes in some rows, which ascend."""
        wanted, start = np.asarray(rows, np.int64), 0
        for batch in self.batches():
            first, last = np.searchsorted(wanted, [start, start + batch.num_rows])
            if first < last:
                taken = batch.take(pa.array(wanted[first:last] - start))
                yield from (self._change(row) for row in taken.to_pylist())
            start += batch.num_rows

    def _change(self, row: Mapping[str, Any]) -> Change:
        texts = [self.regions[number].as_py() for number in row["region_texts"] or ()]
        return Change(
            Kind(row["kind"]),
            row["name"],
            row["text"],
            row["language"],
            dict(zip(row["region_names"] or (), texts, strict=True)),
            json.loads(row["options"]) if row["options"] else {},
        )

    def _table(self, start: int, size: int) -> Any:
        return pa.ipc.open_file(pa.BufferReader(self._mapped.slice(start, size)))


def read_head(path: Path, version: int) -> Head:
    """What is known of the version that a file holds, or a StateError that says what to do."""
    try:
        with path.open("rb") as file:
            block = file.read(BLOCK)
            size = file.seek(0, 2)
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    if len(block) < BLOCK or block[: len(MAGIC)] != MAGIC:
        raise damaged(path, "it is no file of changes, or its beginning is lost")
    _, format, length, digest = _PREFIX.unpack_from(block)
    if format != FORMAT:
        raise StateError(
            f"{path} was written in format {format}, and this release reads format {FORMAT}\n"
            "  hint: use the release that wrote it"
        )
    text = block[_PREFIX.size : _PREFIX.size + length]
    if hashlib.sha256(text).digest() != digest:
        raise damaged(path, "its checksum is wrong")
    values = json.loads(text)
    head = Head(**(values | {"sizes": tuple(values["sizes"])}))
    if head.version != version:
        raise damaged(path, f"it holds version {head.version}")
    if size != BLOCK + sum(head.sizes):
        raise damaged(path, f"it has {size} bytes instead of {BLOCK + sum(head.sizes)}")
    return head


def damaged(path: Path, why: str) -> StateError:
    """What to say of a file of the log that cannot be read."""
    return StateError(f"{path} cannot be read: {why}\n  hint: {_DAMAGED}")


def _block(head: Head) -> bytes:
    text = json.dumps(asdict(head)).encode()
    prefix = _PREFIX.pack(MAGIC, FORMAT, len(text), hashlib.sha256(text).digest())
    return (prefix + text).ljust(BLOCK, b"\0")


def _digest(path: Path) -> str:
    """Of all that follows the first block."""
    with path.open("rb") as file:
        file.seek(BLOCK)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _columns(changes: Sequence[Change], regions: dict[str, int]) -> pa.RecordBatch:
    """Changes as columns; texts of regions that are new get the next numbers."""
    return pa.record_batch(
        [
            [change.kind.value for change in changes],
            [change.name for change in changes],
            [change.text for change in changes],
            [change.language for change in changes],
            [list(change.regions) or None for change in changes],
            [
                [regions.setdefault(text, len(regions)) for text in change.regions.values()]
                or None
                for change in changes
            ],
            [json.dumps(dict(change.options)) if change.options else None for change in changes],
        ],
        schema=_CHANGES,
    )
