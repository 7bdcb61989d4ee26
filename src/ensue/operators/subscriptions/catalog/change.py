"""The changes of a subscription set, and the files that hold them."""

import contextlib
import hashlib
import json
import os
import struct
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from ensue.cached import cached_property
from ensue.errors import StateError

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ChangeKind(Enum):
    """The kind of a change. The numbers are those in files."""

    ADD = 0
    CANCEL = 1
    REPLACE = 2  # its state is dropped, as if it were cancelled and added


@dataclass(frozen=True, slots=True)
class SubscriptionChange:
    """A subscription that is added, cancelled, or replaced by another of the same name."""

    kind: ChangeKind
    name: str
    text: str | None = None  # None: it is cancelled
    language: str | None = None
    regions: Mapping[str, str] = field(default_factory=lambda: _NOTHING)  # named in its text
    options: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)  # JSON values

    @classmethod
    def add(cls, name: str, text: str, **rest: Any) -> "SubscriptionChange":
        return cls(ChangeKind.ADD, name, text, **rest)

    @classmethod
    def cancel(cls, name: str) -> "SubscriptionChange":
        return cls(ChangeKind.CANCEL, name)

    @classmethod
    def replace(cls, name: str, text: str, **rest: Any) -> "SubscriptionChange":
        return cls(ChangeKind.REPLACE, name, text, **rest)


# ------------------------------------------------------------ exclusive creation of files

TEMPORARY_PREFIX = ".tmp-"  # prefix of incomplete files
_ABANDONED = 3_600.0  # seconds after which the writer of an incomplete file has failed


def temporary_path(folder: Path) -> Path:
    """Returns a temporary name for a file or folder."""
    return folder / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"


def create_exclusively(path: Path, content: bytes) -> bool:
    """Creates a file unless it exists; returns whether it did."""
    temporary = temporary_path(path.parent)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            _flush(file)
        return link_exclusively(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def link_exclusively(temporary: Path, path: Path) -> bool:
    """Gives a complete file its final name unless that exists; returns whether it did."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        # NFS may create the link, lose the response and repeat the request
        return path.exists() and temporary.samefile(path)
    except OSError as error:
        if error.errno is None or isinstance(error, FileNotFoundError):
            raise
        raise StateError(
            f"cannot create {path}: {os.strerror(error.errno).lower()}\n"
            "  hint: the folder of a set of subscriptions needs a file system with hard "
            "links that all machines share (a local disk, NFS); name another folder"
        ) from error
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power failure, where the system can."""
    with contextlib.suppress(OSError):  # not every file system opens folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def list_abandoned_files(folder: Path) -> list[Path]:
    """Lists the incomplete files of writers that failed long ago."""
    paths = []
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # its writer has just finished
            if time.time() - path.stat().st_mtime > _ABANDONED:
                paths.append(path)
    return paths


# ------------------------------------------------------------ files of changes

MAGIC = b"ENSUESUB"
FORMAT = 1
BLOCK = 1_024  # bytes before the changes; a multiple of what Arrow aligns to
ROWS = 16_384  # changes per record batch
_PREFIX = struct.Struct("<8sII32s")  # magic, format, length of the head, digest of the head
_REGION_TEXT = pa.dictionary(pa.int32(), pa.large_string())  # subscriptions share regions
_CHANGES = pa.schema(
    {
        "kind": pa.int8(),
        "name": pa.string(),
        "text": pa.string(),
        "language": pa.string(),
        "regions": pa.map_(pa.string(), _REGION_TEXT),
        "options": pa.string(),  # JSON
    }
)
_DAMAGED = (
    "restore the file from a copy of the folder; or make a new folder, add the subscriptions "
    "to it, and start the stream with a new checkpoint"
)


@dataclass(frozen=True, slots=True)
class ChangeFileHeader:
    """The metadata of a version."""

    version: int
    at: int  # microseconds since 1970 on the writer's clock
    count: int  # changes of this version
    total: int  # changes of all versions up to it
    size: int  # bytes of the changes
    digest: str  # of them


class ChangeFileWriter:
    """A file of changes that is complete except for its version number."""

    def __init__(self, path: Path, changes: Iterable[SubscriptionChange], at: int) -> None:
        self.path = path
        remaining, count = iter(changes), 0
        with path.open("xb") as file:
            file.write(bytes(BLOCK))
            with pa.ipc.new_stream(pa.PythonFile(file, mode="w"), _CHANGES) as writer:
                while batch := list(islice(remaining, ROWS)):
                    writer.write_batch(_columns(batch))
                    count += len(batch)
            size = file.tell() - BLOCK
        self.head = ChangeFileHeader(0, at, count, count, size, _digest(path))

    def read(self) -> "ChangeFile":
        """Opens the file before it has its number."""
        return ChangeFile(self.path, self.head)

    def number(self, version: int, total: int) -> None:
        self.head = replace(self.head, version=version, total=total)
        with self.path.open("r+b") as file:
            file.write(_block(self.head))
            _flush(file)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


class ChangeFile:
    """The changes of one version."""

    def __init__(self, path: Path, head: ChangeFileHeader) -> None:
        self.path = path
        self.head = head

    @classmethod
    def open(cls, path: Path, version: int) -> "ChangeFile":
        """Opens the file of a version; a StateError names the remedy for damage."""
        return cls(path, read_header(path, version))

    @cached_property
    def _mapped(self) -> pa.Buffer:
        """The file, mapped into memory after its checksum was verified."""
        if _digest(self.path) != self.head.digest:
            raise damage_error(self.path, "its checksum is wrong")
        with pa.memory_map(str(self.path)) as file:
            return file.read_buffer()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the changes as record batches."""
        yield from pa.ipc.open_stream(pa.BufferReader(self._mapped.slice(BLOCK)))

    def __iter__(self) -> Iterator[SubscriptionChange]:
        for batch in self.batches():
            yield from map(_read_change, batch.to_pylist())

    def iterate_rows(self, rows: Sequence[int]) -> Iterator[SubscriptionChange]:
        """Yields the changes in some ascending rows."""
        numbers, start = np.asarray(rows, np.int64), 0
        for batch in self.batches():
            first, last = np.searchsorted(numbers, [start, start + batch.num_rows])
            if first < last:
                taken = batch.take(pa.array(numbers[first:last] - start))
                yield from map(_read_change, taken.to_pylist())
            start += batch.num_rows


def _read_change(row: Mapping[str, Any]) -> SubscriptionChange:
    options = json.loads(row["options"]) if row["options"] else {}
    kind = ChangeKind(row["kind"])
    return SubscriptionChange(kind, row["name"], row["text"], row["language"], dict(row["regions"] or ()), options)


def read_header(path: Path, version: int) -> ChangeFileHeader:
    """Reads and verifies the metadata of a version; a StateError names the remedy for damage."""
    try:
        with path.open("rb") as file:
            block = file.read(BLOCK)
            size = file.seek(0, 2)
    except FileNotFoundError:
        raise damage_error(path, "it is missing") from None
    if len(block) < BLOCK or block[: len(MAGIC)] != MAGIC:
        raise damage_error(path, "it is no file of changes, or its beginning is lost")
    _, format, length, digest = _PREFIX.unpack_from(block)
    if format != FORMAT:
        raise StateError(
            f"{path} was written in format {format}, and this release reads format {FORMAT}\n"
            "  hint: use the release that wrote it"
        )
    text = block[_PREFIX.size : _PREFIX.size + length]
    if hashlib.sha256(text).digest() != digest:
        raise damage_error(path, "its checksum is wrong")
    head = ChangeFileHeader(**json.loads(text))
    if head.version != version:
        raise damage_error(path, f"it holds version {head.version}")
    if size != BLOCK + head.size:
        raise damage_error(path, f"it has {size} bytes instead of {BLOCK + head.size}")
    return head


def damage_error(path: Path, why: str) -> StateError:
    """Builds the error for an unreadable file of the log."""
    return StateError(f"{path} cannot be read: {why}\n  hint: {_DAMAGED}")


def _block(head: ChangeFileHeader) -> bytes:
    text = json.dumps(asdict(head)).encode()
    prefix = _PREFIX.pack(MAGIC, FORMAT, len(text), hashlib.sha256(text).digest())
    return (prefix + text).ljust(BLOCK, b"\0")


def _digest(path: Path) -> str:
    """Hashes everything after the first block."""
    with path.open("rb") as file:
        file.seek(BLOCK)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _columns(changes: Sequence[SubscriptionChange]) -> pa.RecordBatch:
    """Converts changes to columns, with each text of a region once."""
    numbers: dict[str, int] = {}
    regions = [change.regions for change in changes]
    places = [numbers.setdefault(text, len(numbers)) for named in regions for text in named.values()]
    texts = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(numbers, pa.large_string()))
    names = pa.array([name for named in regions for name in named], pa.string())
    offsets = np.cumsum([0, *map(len, regions)], dtype=np.int32)
    return pa.record_batch(
        [
            [change.kind.value for change in changes],
            [change.name for change in changes],
            [change.text for change in changes],
            [change.language for change in changes],
            pa.MapArray.from_arrays(pa.array(offsets), names, texts),
            [json.dumps(dict(change.options)) if change.options else None for change in changes],
        ],
        schema=_CHANGES,
    )
