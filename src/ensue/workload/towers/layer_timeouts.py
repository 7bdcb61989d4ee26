"""The timed-out partial matches of a layer: found in the events it sees, delivered with its own.

They are no events: the layers above do not see them.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import pyarrow as pa

from ensue.algebra.equivalence import with_equivalence
from ensue.algebra.query import Query
from ensue.algebra.timeouts import TIMED_OUT, timeout_queries
from ensue.algebra.tower import types_of
from ensue.algebra.towers.behind import AT
from ensue.algebra.towers.layers import MEMBERS, STANDARD, Layer, column_of
from ensue.columns.stream import Shape
from ensue.workload.prepared import Prepared
from ensue.workload.towers.layer_stream import folded


def timeouts_of(layer: Layer, checked: Query, main: Prepared) -> tuple[Query, ...]:
    """The queries that find the timed-out partial matches of a layer.

    `checked` is its query, `main` what it was prepared to.
    """
    shown = {column_of(name) for name in layer.fields}
    returns = tuple(r for r in checked.returns if r.name in shown)
    return timeout_queries(keyed(replace(checked, returns=returns), main), AT)


def keyed(checked: Query, main: Prepared) -> Query:
    """The query with the keys that its plan found in equalities between all variables.

    Then an event that has no key is no partial match, and all queries split the stream alike.
    """
    for key in main.plan.query.equivalence:
        field = _field(key.field_name, types_of(checked), main.shape)
        if field is not None:
            checked = with_equivalence(checked, field)
    return checked


def _field(column: str, types: Sequence[str], shape: Shape) -> str | None:
    """What all types call the field that is in a column."""
    if shape.by_type is None:
        return column
    found = {next((f for f, c in shape.by_type[t] if c == column), None) for t in types}
    return found.pop() if len(found) == 1 else None


def identity_of(layer: bytes) -> bytes:
    """What tells timed-out partial matches from the matches of the layer, and of others."""
    return blake2b(layer, digest_size=16, person=b"timed out").digest()


def with_flag(result: pa.Schema, layer: Layer) -> pa.Schema:
    """The columns that are delivered, with the one that says what timed out."""
    place = sum(f.name in STANDARD and f.name not in layer.fields for f in result)
    return result.insert(place, pa.field(TIMED_OUT, pa.bool_()))


def delivered_timeouts(found: pa.Table, layer: Layer, result: pa.Schema) -> pa.Table:
    """Timed-out partial matches as the layer's subscribers get them: what they lack is NULL."""
    found = folded(found)
    columns = []
    for field in result:
        name = column_of(field.name) if field.name in layer.fields else field.name
        if name not in found.column_names:
            columns.append(pa.nulls(found.num_rows, field.type))
        elif field.name == MEMBERS and MEMBERS not in layer.fields:
            columns.append(_all_members(found.column(name).combine_chunks(), field.type))
        else:
            columns.append(found.column(name).cast(field.type))
    return pa.table(columns, schema=result)


def _all_members(some: pa.StructArray, type_: pa.StructType) -> pa.StructArray:
    known = {some.type.field(k).name: some.field(k) for k in range(some.type.num_fields)}
    arrays = [known.get(f.name, pa.nulls(len(some), f.type)).cast(f.type) for f in type_]
    return pa.StructArray.from_arrays(arrays, fields=list(type_))
