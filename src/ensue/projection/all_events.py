"""RETURN ALL EVENTS: one row for each event of a match, with the variable that it is bound to."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ensue.analyzer.output_mode import ALL_EVENTS_COLUMNS
from ensue.errors import QueryError
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_positive_atoms
from ensue.projection.values import ColumnsOf, MatchValues
from ensue.vector.arrow_numpy import Ints
from ensue.vector.match_rows import Matches
from ensue.vector.take import take_values

_TYPES = {"variable": pa.string(), "position": pa.int64(), "index": pa.int64()}
_OF_EVENT = "event_"  # prefix of an event column whose name a match column has


@dataclass(frozen=True)
class EventRowProjection:
    """The columns of a result with one row per event."""

    schema: pa.Schema  # variable, position and index, then the fields of events
    columns: tuple[dict[str, str], ...]  # for each field its column by variable
    variables: tuple[str, ...]

    @classmethod
    def from_query(
        cls, query: Query, arrow: pa.Schema, whole_of: ColumnsOf, others: Collection[str]
    ) -> "EventRowProjection":
        """The event columns of a query whose match columns have the names `others`."""
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
            shown.append(pa.field(name, _unify_types(field, types, query)))
        return cls(pa.schema(shown), tuple(fields.values()), names)

    def table(self, gathered: MatchValues) -> tuple[Ints, list[pa.Array]]:
        """The match of each row, and the columns."""
        owner, row, number, index = self._rows(gathered.matches)
        position = np.arange(len(owner)) - np.searchsorted(owner, owner) + 1
        variable = pa.array(self.variables, pa.string()).take(pa.array(number))
        arrays = [variable, pa.array(position), pa.array(index)]
        for columns, field in zip(self.columns, list(self.schema)[len(ALL_EVENTS_COLUMNS) :], strict=True):
            arrays.append(self._column(columns, field.type, row, number, gathered))
        return owner, arrays

    def _rows(self, matches: Matches) -> tuple[Ints, Ints, Ints, Ints]:
        """The events of all matches, by match and time: match, row, variable, and index (from 1)
        among the variable's events."""
        owners, rows, numbers, indices = [], [], [], []
        for number, variable in enumerate(self.variables):
            offsets, members = matches.segments(variable)
            sizes = np.diff(offsets)
            owners.append(np.repeat(np.arange(matches.count), sizes))
            rows.append(members)
            numbers.append(np.full(len(members), number))
            indices.append(np.arange(len(members)) - np.repeat(offsets[:-1], sizes) + 1)
        owner, row = np.concatenate(owners), np.concatenate(rows)
        bound, index = np.concatenate(numbers), np.concatenate(indices)
        order = np.lexsort((bound, row, owner))
        return owner[order], row[order], bound[order], index[order]

    def _column(
        self, columns: dict[str, str], type_: pa.DataType, row: Ints, number: Ints, gathered: MatchValues
    ) -> pa.Array:
        """A field of the events, which is in different columns for different variables."""

        def take(source: str | None, rows: Ints) -> pa.Array:
            if source is None:
                return pa.nulls(len(rows), type_)
            array = take_values(gathered.get_column(source), rows)
            if isinstance(array, pa.ChunkedArray):
                array = array.combine_chunks()
            return array if array.type == type_ else array.cast(type_)

        sources = [columns.get(variable) for variable in self.variables]
        if len(set(sources)) == 1:
            return take(sources[0], row)
        places = [np.flatnonzero(number == k) for k in range(len(sources))]
        pieces = [take(source, row[own]) for source, own in zip(sources, places, strict=True)]
        order = np.argsort(np.concatenate(places), kind="stable")
        return pa.concat_arrays(pieces).take(pa.array(order))


def _unify_types(field: str, types: set[pa.DataType], query: Query) -> pa.DataType:
    """The common type of a field that several types of events have."""
    if len(types) == 1:
        return next(iter(types))
    schemas = [pa.schema({field: type_}) for type_ in sorted(types, key=str)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(field).type
    except pa.ArrowException:
        shown = " and ".join(sorted(str(type_) for type_ in types))
        raise QueryError(
            f"ALL EVENTS has one column for the field '{field}', which is {shown} in different tables of events",
            hint="bring it to one type first, or give it two names",
            text=query.text,
        ) from None
