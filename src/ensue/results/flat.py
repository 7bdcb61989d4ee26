"""Nested columns as plain ones: `a.price` in the place of a struct `a`."""

import pyarrow as pa
from pyarrow import types

from ensue.errors import QueryError


def flat_schema(schema: pa.Schema, *, lists: bool = True) -> pa.Schema:
    """The columns that `flat` gives.

    >>> event = pa.struct({"t": pa.int64(), "x": pa.string()})
    >>> flat_schema(pa.schema({"id": pa.string(), "a": event, "b": pa.list_(event)})).names
    ['id', 'a.t', 'a.x', 'b.t', 'b.x']
    """
    fields = [leaf for field in schema for leaf in _leaves(field.name, field.type, lists)]
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise QueryError(
                f"two columns would be called '{name}' where events are plain columns",
                hint="name one of them otherwise, with AS",
            )
    return pa.schema(fields)


def flat(table: pa.Table, *, lists: bool = True) -> pa.Table:
    """Structs as a column for each field, and lists of structs as a list for each field.

    >>> nested = pa.table({"a": [{"x": 1}], "b": [[{"x": 2}, {"x": 3}]]})
    >>> flat(nested).to_pylist()
    [{'a.x': 1, 'b.x': [2, 3]}]
    """
    wanted = flat_schema(table.schema, lists=lists)
    if wanted.names == table.schema.names:
        return table
    columns: list[pa.ChunkedArray] = []
    for field, column in zip(table.schema, table.columns, strict=True):
        chunks = [_parts(pa.concat_arrays([chunk]), lists) for chunk in column.chunks]
        leaves = _leaves(field.name, field.type, lists)
        for number, leaf in enumerate(leaves):
            columns.append(pa.chunked_array([parts[number] for parts in chunks], leaf.type))
    return pa.Table.from_arrays(columns, schema=wanted)


def _leaves(name: str, type: pa.DataType, lists: bool) -> list[pa.Field]:
    if types.is_struct(type):
        return [leaf for f in type for leaf in _leaves(f"{name}.{f.name}", f.type, lists)]
    if lists and _of_structs(type):
        inside = _leaves(name, type.value_type, lists)
        return [pa.field(leaf.name, _list_of(type, leaf.type)) for leaf in inside]
    return [pa.field(name, type)]


def _parts(array: pa.Array, lists: bool) -> list[pa.Array]:
    """The plain columns of an array that is no slice."""
    if types.is_struct(array.type):
        return [part for field in array.flatten() for part in _parts(field, lists)]
    if lists and _of_structs(array.type):
        make = pa.LargeListArray if types.is_large_list(array.type) else pa.ListArray
        mask = array.is_null() if array.null_count else None
        return [
            make.from_arrays(array.offsets, part, mask=mask)
            for part in _parts(array.values, lists)
        ]
    return [array]


def _of_structs(type: pa.DataType) -> bool:
    listed = types.is_list(type) or types.is_large_list(type)
    return bool(listed and types.is_struct(type.value_type))


def _list_of(type: pa.DataType, inside: pa.DataType) -> pa.DataType:
    return pa.large_list(inside) if types.is_large_list(type) else pa.list_(inside)
