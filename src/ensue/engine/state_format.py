"""The binary format of saved states: versioned, checksummed, bound to a query and schema."""

import hashlib
import io
import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import StateError
from ensue.ir.canonical_form import canonical_form
from ensue.planner.physical_plan import PhysicalPlan
from ensue.planner.predicate_order import get_state_layout
from ensue.schema import Schema
from ensue.vector.arrow_types import Unit

MAGIC = b"ENSUE"
VERSION = 1

Arrays = dict[str, npt.NDArray[Any]]


def serialize_table(table: pa.Table) -> bytes:
    """Serialize a table in Arrow's stream format."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def deserialize_table(data: bytes) -> pa.Table:
    """Read a table that `serialize_table` wrote.

    >>> deserialize_table(serialize_table(pa.table({"x": [1, None]})))["x"].to_pylist()
    [1, None]
    """
    return pa.ipc.open_stream(data).read_all()


def pack_state(header: dict[str, Any], arrays: Arrays, blobs: dict[str, bytes]) -> bytes:
    """Serialize a header, named arrays and named bytes.

    >>> data = pack_state({"query": "q"}, {"a": np.arange(3)}, {"b": b"xyz"})
    >>> header, arrays, blobs = unpack_state(data)
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


def unpack_state(data: object) -> tuple[dict[str, Any], Arrays, dict[str, bytes]]:
    """Read what `pack_state` wrote, or raise StateError with the reason."""
    if not isinstance(data, bytes | bytearray | memoryview):
        kind = "None" if data is None else f"a value of type {type(data).__name__}"
        raise StateError(f"a saved state is bytes, not {kind}\n  hint: pass what save() has returned")
    content, start = bytes(data), len(MAGIC) + 2
    if content[: len(MAGIC)] != MAGIC or len(content) < start + 12:
        raise StateError("this is not a saved state of Ensue")
    (version,) = struct.unpack_from("<H", content, len(MAGIC))
    if version != VERSION:
        raise StateError(
            f"the state was saved in version {version}, and this release reads version {VERSION}\n"
            "  hint: restore it with the release that saved it, or start from an empty state"
        )
    digest, body = content[start : start + 8], content[start + 8 :]
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


VERSION_MEANING = 1  # of the signature


def make_signature(plan: PhysicalPlan, schema: Schema, unit: Unit) -> dict[str, Any]:
    """The signature that binds a state to its query and schema."""
    structure = get_state_layout(plan.structure, plan.query.where)
    meaning = canonical_form((plan.query, structure, schema.common or {}, unit))
    return {"query": hashlib.sha256(meaning.encode()).hexdigest(), "text": VERSION_MEANING}


def check_signature(header: Mapping[str, Any], plan: PhysicalPlan, schema: Schema, unit: Unit) -> None:
    """Raise StateError unless the same query on events of the same schema saved the state."""
    check_signature_version(header)
    if header["query"] != make_signature(plan, schema, unit)["query"]:
        raise StateError(
            "the state belongs to another query, or to events with other columns\n"
            "  hint: restore it with the same query text and columns"
        )


def check_signature_version(header: Mapping[str, Any]) -> None:
    """Raise StateError unless the signature has the version of this release."""
    version = header.get("text")
    if version != VERSION_MEANING:
        raise StateError(
            f"the query text in the state has version {version}, and this release reads "
            f"version {VERSION_MEANING}\n"
            "  hint: restore it with the release that saved it, or start from an empty state"
        )
