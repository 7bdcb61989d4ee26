"""RETURN ALL EVENTS: one row for each event of a match, with the variable that it is bound to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ensue.analyzer.aggregation import ALL_EVENTS_COLUMNS
from ensue.errors import QueryError
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_positive_atoms
from ensue.projection.values import ColumnsOf, MatchValues
from ensue.vector.arrow_numpy import Ints
from ensue.vector.match_rows import Matches
from ensue.vector.take import take_values

_TYPES = {"variable": pa.string(), "position": pa.int64(), "index": pa.int64()}
_OF_EVENT = "event_"  # before the name of an event's column, where the match has one of that name


@dataclass(frozen=True)
class EventRowProjection:
    """The columns of events in a table of labelled rows, and which column of which variable each
    is: None where events of a variable have no such field."""

    schema: pa.Schema  # the labels, then the columns of events
    columns: tuple[dict[str, str], ...]  # by variable, one for each column of events
    variables: tuple[str, ...]

    @classmethod
    def of(
        cls, query: Query, arrow: pa.Schema, whole_of: ColumnsOf, others: Sequence[str]
    ) -> "EventRowProjection":
        """The labels of a query's rows beside columns of these names."""
        names = tuple(atom.variable for atom in iterate_positive_atoms(query.pattern))
        fields: dict[str, dict[str, str]] = {}
        for variable in names:
            for field, column in whole_of[variable]:
                fields.setdefault(field, {})[variable] = column
        taken_names = {*others, *ALL_EVENTS_COLUMNS}
        shown = [pa.field(name, _TYPES[name]) for name in ALL_EVENTS_COLUMNS]
        for field, columns in fields.items():
            name = field
            while name in taken_names:
                name = _OF_EVENT + name
            taken_names.add(name)
            types = {arrow.field(column).type for column in columns.values()}
            shown.append(pa.field(name, _common(field, types, query)))
        return cls(pa.schema(shown), tuple(fields.values()), names)

    def table(self, gathered: MatchValues) -> tuple[Ints, list[pa.Array]]:
        """For each row its match, and the columns."""
        owner, row, number, index = self._rows(gathered.matches)
        position = np.arange(len(owner)) - np.searchsorted(owner, owner) + 1
        called = pa.array(self.variables, pa.string()).take(pa.array(number))
        arrays = [called, pa.array(position), pa.array(index)]
        for columns, field in zip(
            self.columns, list(self.schema)[len(ALL_EVENTS_COLUMNS) :], strict=True
        ):
            arrays.append(self._column(columns, field.type, row, number, gathered))
        return owner, arrays

    def _rows(self, matches: Matches) -> tuple[Ints, Ints, Ints, Ints]:
        """The events of all matches, those of one in the order of time: whose they are, which
        rows, of which variable, and which of its events, from 1."""
        owners, rows, numbers, indices = [], [], [], []
        for number, variable in enumerate(self.variables):
            offsets, mine = matches.segments(variable)
            sizes = np.diff(offsets)
            owners.append(np.repeat(np.arange(matches.count), sizes))
            rows.append(mine)
            numbers.append(np.full(len(mine), number))
            indices.append(np.arange(len(mine)) - np.repeat(offsets[:-1], sizes) + 1)
        owner, row = np.concatenate(owners), np.concatenate(rows)
        of, index = np.concatenate(numbers), np.concatenate(indices)
        order = np.lexsort((of, row, owner))
        return owner[order], row[order], of[order], index[order]

    def _column(
        self,
        columns: dict[str, str],
        type_: pa.DataType,
        row: Ints,
        number: Ints,
        gathered: MatchValues,
    ) -> pa.Array:
        sources = {columns.get(variable) for variable in self.variables}
        if len(sources) == 1:
            (source,) = sources
            assert source is not None
            return _as(take_values(gathered.whole(source), row), type_)
        pieces, places = [], []
        for k, variable in enumerate(self.variables):
            mine = np.flatnonzero(number == k)
            source = columns.get(variable)
            if source is None:
                pieces.append(pa.nulls(len(mine), type_))
            else:
                pieces.append(_as(take_values(gathered.whole(source), row[mine]), type_))
            places.append(mine)
        back = np.argsort(np.concatenate(places), kind="stable")
        return pa.concat_arrays(pieces).take(pa.array(back))


def _as(array: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array if array.type == type_ else array.cast(type_)


def _common(field: str, types: set[pa.DataType], query: Query) -> pa.DataType:
    """The type of a column that events of several types share."""
    if len(types) == 1:
        return next(iter(types))
    schemas = [pa.schema({field: type_}) for type_ in sorted(types, key=str)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(field).type
    except pa.ArrowException:
        shown = " and ".join(sorted(str(type_) for type_ in types))
        raise QueryError(
            f"ALL EVENTS has one column for the field '{field}', which is {shown} in different "
            "tables of events",
            hint="bring it to one type first, or give it two names",
            text=query.text,
        ) from None
