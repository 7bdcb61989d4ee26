"""GROUP BY, ORDER BY and FETCH FIRST over a table of all matches.

Matches are sorted by time first, so that results are equal to the last digit on every backend.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analyzer.output_mode import ResultAggregation, ResultSortKey
from ensue.errors import QueryError
from ensue.ir.expression import GROUP, Aggregate, EventPosition, Expr, FieldRef, FunctionCall, Literal
from ensue.ir.pattern import Atom, Kleene
from ensue.ir.query import Query, ReturnItem
from ensue.projection.match_table import ResultShape
from ensue.projection.values import MatchValues
from ensue.schema import Schema, ValueKind
from ensue.vector.arrow_numpy import Bools, Ints, to_single_array, wrap_numbers
from ensue.vector.match_rows import Matches
from ensue.vector.take import combine_column, take_values

STANDARD_COLUMNS = ("end", "start", "match_id")  # what orders matches, in this order
_NOTHING = Schema(MappingProxyType({}), "", "", ValueKind.INTEGER)


@dataclass(frozen=True)
class ResultFinisher:
    """Aggregates, sorts and limits matches with these columns."""

    finishing: ResultAggregation
    matches: pa.Schema

    def __post_init__(self) -> None:
        for key in self.finishing.keys if self.finishing.whole.grouped else ():
            _require_plain("GROUP BY", key.name, self.matches.field(key.source).type)
        for by in self.finishing.order:
            _require_plain("ORDER BY", by.source, self.rows.field(by.source).type)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        rows = self.rows
        return pa.schema([rows.field(here).with_name(name) for name, here in self.shown.items()])

    @property
    def shown(self) -> dict[str, str]:
        """The columns of the result, and their names in `rows`."""
        if self.finishing.whole.grouped:
            return {column.name: column.name for column in self.finishing.columns}
        renamed = {c.source: c.name for c in self.finishing.columns if c.source != c.name}
        left_out = {*self.finishing.hidden, *renamed.values()}
        shown = {renamed.get(name, name): name for name in self.matches.names}
        return {name: source for name, source in shown.items() if source not in left_out}

    @property
    def rows(self) -> pa.Schema:
        """The columns before sorting: matches, or groups with the times of their first match."""
        if not self.finishing.whole.grouped:
            return self.matches
        shape = self._shape
        own = [pa.field(r.name, shape.get_type(r.expr)) for r in shape.list_returned()]
        times = [self.matches.field(name).with_name(f" {name}") for name in STANDARD_COLUMNS[:2]]
        return pa.schema([*own, *times])

    @property
    def times(self) -> tuple[str, ...]:
        """The columns of `rows` that break ties: the times, and the keys of groups."""
        if not self.finishing.whole.grouped:
            return (*STANDARD_COLUMNS, *self.finishing.ties)
        return (*(f" {name}" for name in STANDARD_COLUMNS[:2]), *(key.name for key in self.finishing.keys))

    def finish(self, matches: pa.Table) -> pa.Table:
        """The result of all matches."""
        return self.order(self.group(matches))

    def group(self, matches: pa.Table) -> pa.Table:
        """Groups matches, if the query says so; can be applied to disjoint sets of keys."""
        if not self.finishing.whole.grouped:
            return matches
        matches = matches.take(_order(matches, (), STANDARD_COLUMNS))
        offsets, rows = self._groups(matches)
        shape, groups = self._shape, Matches({}, {GROUP: (offsets, rows)}, len(offsets) - 1)
        gathered = MatchValues(groups, matches, shape.columns_of, shape.results)
        firsts = groups.nth(GROUP, 1)
        times = {
            f" {name}": partial(take_values, combine_column(matches, name), firsts) for name in STANDARD_COLUMNS[:2]
        }
        return shape.build_table(self.rows, gathered, times)

    def order(self, rows: pa.Table) -> pa.Table:
        """Sorts and limits matches or groups, and selects the columns of the result."""
        order = _order(rows, self.finishing.order, self.times)
        first = self.finishing.whole.first
        rows = rows.take(order if first is None else order.slice(0, first))
        return pa.table([rows.column(here) for here in self.shown.values()], schema=self.schema)

    @property
    def _shape(self) -> ResultShape:
        """The columns over groups, each as the events of one Kleene variable."""
        returns = []
        for column in self.finishing.columns:
            value: Expr = FieldRef(GROUP, column.source, EventPosition.ALL)
            if column.over is None:
                returns.append(ReturnItem(FieldRef(GROUP, column.source, EventPosition.NTH, 1), column.name))
                continue
            over: Expr = replace(column.over, argument=value)
            if column.source == self.finishing.counts:
                over = FunctionCall("coalesce", (Aggregate("sum", GROUP, value), Literal(0)))
            returns.append(ReturnItem(over, column.name))
        query = Query(Kleene(Atom(GROUP, GROUP), 0, None), returns=tuple(returns))
        columns = [(name, name) for name in self.matches.names]
        return ResultShape(query, _NOTHING, self.matches, {GROUP: columns})

    def _groups(self, matches: pa.Table) -> tuple[Ints, Ints]:
        """Offsets and rows of groups, in the order of their first matches."""
        keys = [key.source for key in self.finishing.keys]
        if not keys:  # all matches, or none, are one group
            return np.array([0, matches.num_rows]), np.arange(matches.num_rows)
        code = np.zeros(matches.num_rows, np.int64)
        for key in keys:
            ranks = _ranks(combine_column(matches, key))
            both = code * (int(ranks.max(initial=0)) + 1) + ranks
            _, code = np.unique(both, return_inverse=True)
        _, first, owner = np.unique(code, return_index=True, return_inverse=True)
        place = np.empty(len(first), np.int64)  # by first match
        place[np.argsort(first)] = np.arange(len(first))
        rows = np.argsort(place[owner], kind="stable")
        offsets = np.zeros(len(first) + 1, np.int64)
        np.cumsum(np.bincount(place[owner], minlength=len(first)), out=offsets[1:])
        return offsets, rows


def _order(rows: pa.Table, keys: Sequence[ResultSortKey], times: Sequence[str]) -> pa.Array:
    """The order of rows by the keys, then by time."""
    by: list[Ints | Bools] = []
    for key in keys:
        column = combine_column(rows, key.source)
        missing = np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False))
        ranks = _ranks(column)
        by += [~missing if key.nulls_first else missing, -ranks if key.descending else ranks]
    by += [_ranks(combine_column(rows, name)) for name in times]
    return wrap_numbers(np.lexsort(tuple(reversed(by))))


def _ranks(column: pa.Array | pa.ChunkedArray) -> Ints:
    """A number for each value, higher for greater ones and the same for equal ones.

    NULL is 0. NaN is greater than all numbers, and -0.0 equals 0.0.
    """
    array = to_single_array(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    ranks = np.zeros(len(array), np.int64)
    if pa.types.is_null(array.type) or not len(array):
        return ranks
    known = np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False))
    values = array.drop_null()
    if pa.types.is_floating(array.type):
        numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
        _, ranks[known] = np.unique(numbers, return_inverse=True)
    else:
        encoded = values.dictionary_encode()
        order = pc.sort_indices(encoded.dictionary).to_numpy()
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        ranks[known] = place[encoded.indices.to_numpy()]
    ranks[known] += 1
    return ranks


def _require_plain(clause: str, name: str, type_: pa.DataType) -> None:
    """Raises a QueryError for values that have no order."""
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_nested(plain):
        what = "a list" if pa.types.is_list(plain) else "a whole event"
        raise QueryError(
            f"{clause} {name.strip()}: {what} has no order", hint=f"take a field, as in {clause} {name.strip()}.price"
        )
