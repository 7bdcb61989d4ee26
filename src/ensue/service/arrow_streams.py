"""Arrow streams from clients, whose decoded size is checked before decoding.

A few kilobytes of compressed buffers, a dictionary, or a column of NULLs can expand to gigabytes.
The metadata of each message declares the number of rows and bytes, and Arrow rejects buffers
that differ. PyArrow does not expose these declarations, so they are read here, from FlatBuffers
that PyArrow has verified (Message.fbs of the Arrow format).
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.errors import EventError
from ensue.service.errors import OverLimitError

# Slots of tables in Message.fbs.
_HEADER = 2
_ROWS, _BUFFERS, _COMPRESSION = 0, 2, 3
_DICTIONARY = 1
_UNREADABLE = (pa.ArrowException, OSError, ValueError, struct.error)


def measure_stream(data: Any) -> tuple[int, int]:
    """Returns the declared rows and bytes of an Arrow stream, without decompressing it."""
    rows = size = 0
    try:
        for message in pa.ipc.MessageReader.open_stream(data):
            if message.type not in ("record batch", "dictionary"):
                continue
            if message.metadata_version != pa.ipc.MetadataVersion.V5:
                raise EventError(
                    "the events are an Arrow stream of a format before 1.0\n  hint: write it with metadata version V5"
                )
            metadata = memoryview(message.metadata)
            (root,) = struct.unpack_from("<I", metadata)
            batch = _table(metadata, _field(metadata, root, _HEADER))
            if message.type == "dictionary":
                batch = _table(metadata, _field(metadata, batch, _DICTIONARY))
            else:
                rows += _row_count(metadata, batch)
            size += sum(_buffer_sizes(metadata, batch, memoryview(message.body)))
    except _UNREADABLE as error:
        raise _unreadable(error) from None
    return rows, size


def read_stream(data: Any, most_bytes: int, most_rows: int) -> pa.Table:
    """Decodes an Arrow stream; a stream above the limits is rejected before decoding."""
    rows, size = measure_stream(data)
    if rows > most_rows:
        raise event_limit_error(rows, most_rows)
    if size > most_bytes:
        raise _build_size_error(size, most_bytes)
    try:
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except _UNREADABLE as error:
        raise _unreadable(error) from None
    named = zip(table.column_names, table.columns, strict=True)
    plain = sum(_plain_bytes(name, column) for name, column in named)
    if plain > most_bytes:
        raise _build_size_error(plain, most_bytes)
    return table


def event_limit_error(count: int, most: int) -> OverLimitError:
    """The error for a request with too many events."""
    return OverLimitError(
        "events_per_request",
        f"{count:,} events in one request exceed the limit of {most:,}\n  hint: send them in several requests",
    )


def _build_size_error(size: int, most: int) -> OverLimitError:
    return OverLimitError(
        "body_bytes",
        f"the decoded events have {size:,} bytes, more than the limit of {most:,}\n"
        "  hint: send them in several requests",
    )


def _unreadable(error: Exception) -> EventError:
    return EventError(f"the events are not an Arrow stream: {error}")


def _plain_bytes(name: str, column: pa.ChunkedArray) -> int:
    """Size of the strings of a column without dictionary encoding."""
    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        raise EventError(f"column '{name}' is run-end encoded\n  hint: send it as {kind.value_type}")
    total = 0
    for chunk in column.chunks:
        shared = pa.types.is_dictionary(kind)
        lengths = _lengths(chunk.dictionary if shared else chunk)
        if lengths is not None and shared:
            lengths = lengths[chunk.indices.drop_null().to_numpy()]
        total += 0 if lengths is None else int(lengths.sum())
    return total


def _lengths(array: pa.Array) -> Any:
    """The length of each string, or None for types that cannot share values."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = np.frombuffer(array.buffers()[1], np.int32)[::4]  # a view begins with its length
        return views[array.offset : array.offset + len(array)].astype(np.int64)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.binary_length(array).fill_null(0).to_numpy().astype(np.int64)
    return None


# -------------------------------------------------------------------------------- FlatBuffers


def _buffer_sizes(metadata: memoryview, batch: int, body: memoryview) -> Iterator[int]:
    """The size of each buffer of a batch; a compressed one begins with it."""
    compressed = _field(metadata, batch, _COMPRESSION) is not None
    buffers = _field(metadata, batch, _BUFFERS)
    if buffers is None:
        return
    vector = _table(metadata, buffers)
    (count,) = struct.unpack_from("<I", metadata, vector)
    for offset, length in struct.iter_unpack("<qq", metadata[vector + 4 :][: 16 * count]):
        if compressed and length > 0:
            (declared,) = struct.unpack_from("<q", body[max(0, offset) :])
            yield length if declared < 0 else declared  # -1: not compressed
        else:
            yield max(0, length)


def _row_count(metadata: memoryview, batch: int) -> int:
    place = _field(metadata, batch, _ROWS)
    count = 0 if place is None else int(struct.unpack_from("<q", metadata, place)[0])
    if count < 0:
        raise ValueError(f"a batch of {count} rows")
    return count


def _table(metadata: memoryview, place: int | None) -> int:
    """The offset of the table or vector that a field refers to."""
    if place is None:
        raise ValueError("a message without its content")
    return place + int(struct.unpack_from("<I", metadata, place)[0])


def _field(metadata: memoryview, table: int, slot: int) -> int | None:
    """The offset of a field of a table, or None if it is absent."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    (size,) = struct.unpack_from("<H", metadata, vtable)
    at = 4 + 2 * slot
    offset = struct.unpack_from("<H", metadata, vtable + at)[0] if at < size else 0
    return table + offset if offset else None
