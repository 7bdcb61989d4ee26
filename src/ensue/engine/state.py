"""The state of a matcher as bytes: versioned, compact, checked when it is read."""

import hashlib
import io
import json
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import StateError

MAGIC = b"ENSUE"
VERSION = 1

Arrays = dict[str, npt.NDArray[Any]]


def to_bytes(table: pa.Table) -> bytes:
    """A table in Arrow's stream format."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def from_bytes(data: bytes) -> pa.Table:
    """The table that `to_bytes` was given.

    >>> from_bytes(to_bytes(pa.table({"x": [1, None]})))["x"].to_pylist()
    [1, None]
    """
    return pa.ipc.open_stream(data).read_all()


def packed(header: dict[str, Any], arrays: Arrays, blobs: dict[str, bytes]) -> bytes:
    """A header, named arrays and named bytes as one piece.

    >>> data = packed({"query": "q"}, {"a": np.arange(3)}, {"b": b"xyz"})
    >>> header, arrays, blobs = unpacked(data)
    >>> header["query"], arrays["a"].tolist(), blobs["b"]
    ('q', [0, 1, 2], b'xyz')
    """
    head = json.dumps(
        header
        | {
            "arrays": [(n, a.dtype.str, a.shape) for n, a in arrays.items()],
            "blobs": [(n, len(b)) for n, b in blobs.items()],
        }
    ).encode()
    body = b"".join(
        [struct.pack("<I", len(head)), head]
        + [np.ascontiguousarray(a).tobytes() for a in arrays.values()]
        + list(blobs.values())
    )
    return MAGIC + struct.pack("<H", VERSION) + hashlib.sha256(body).digest()[:8] + body


def unpacked(data: object) -> tuple[dict[str, Any], Arrays, dict[str, bytes]]:
    """What `packed` was given, or a StateError that says why it cannot be read."""
    if not isinstance(data, bytes | bytearray | memoryview):
        kind = "None" if data is None else f"a value of type {type(data).__name__}"
        raise StateError(
            f"a saved state is bytes, not {kind}\n  hint: pass what save() has returned"
        )
    given, start = bytes(data), len(MAGIC) + 2
    if given[: len(MAGIC)] != MAGIC or len(given) < start + 12:
        raise StateError("this is not a saved state of Ensue")
    (version,) = struct.unpack_from("<H", given, len(MAGIC))
    if version != VERSION:
        raise StateError(
            f"the state was saved in version {version}, and this release reads version {VERSION}\n"
            "  hint: restore it with the release that saved it, or start from an empty state"
        )
    digest, body = given[start : start + 8], given[start + 8 :]
    if hashlib.sha256(body).digest()[:8] != digest:
        raise StateError("the saved state is damaged: its checksum is wrong")
    (size,) = struct.unpack_from("<I", body)
    header = json.loads(body[4 : 4 + size])
    place = 4 + size
    arrays: Arrays = {}
    for name, dtype, shape in header.pop("arrays"):
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(body, np.dtype(dtype), count, place)
        arrays[name] = array.reshape(shape).copy()
        place += array.nbytes
    blobs = {}
    for name, length in header.pop("blobs"):
        blobs[name] = body[place : place + length]
        place += length
    return header, arrays, blobs
