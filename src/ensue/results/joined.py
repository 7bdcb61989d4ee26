"""Matches of several queries side by side: what they say together, and their common table.

A side is a table of matches as a query without RETURN gives it: `match_id`, `start`, `end`, then a
struct for each variable, or a list of them. A joined row names a row of each side, or none (-1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.check.kinds import kind_of
from ensue.algebra.pattern import Atom, Kleene, Pattern, Seq
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.query import Query, Returned
from ensue.columns.arrow_kinds import kind_of_arrow, plain_type, time_unit
from ensue.columns.buffers import Bools, Ints, frozen, single
from ensue.columns.evaluate import Vector, truth
from ensue.columns.matches import Matches
from ensue.columns.rows import no_rows, taken
from ensue.kernels import hashing
from ensue.results.gather import Gathered
from ensue.results.identity import DIGITS, hash_rows, salts
from ensue.results.table import ResultShape
from ensue.schema import Kind, Schema

STANDARD = ("match_id", "start", "end")
LOCATION = "location"  # where events have one
_TOGETHER = Schema(MappingProxyType({}), "", "", Kind.INTEGER)  # sides have times of their own


@dataclass(frozen=True)
class Side:
    """What is known of the matches of one query: its columns, and the variables among them."""

    schema: pa.Schema
    variables: tuple[str, ...]

    def kleene(self, variable: str) -> bool:
        return bool(pa.types.is_list(self.schema.field(variable).type))

    def fields(self, variable: str) -> list[pa.Field]:
        """The fields of a variable's events."""
        type_ = self.schema.field(variable).type
        return list(type_.value_type if self.kleene(variable) else type_)


class JoinedShape:
    """Sides that are looked at together."""

    def __init__(
        self,
        sides: Sequence[Side],
        returns: Sequence[Returned] = (),
        having: Expr | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.sides = tuple(sides)
        self.having = having
        self.wanted = columns  # of a result, in their order
        parts: list[Pattern] = []
        columns_of: dict[str, list[tuple[str, str]]] = {}
        fields: list[pa.Field] = []
        for side in sides:
            for variable in side.variables:
                atom = Atom(variable, variable)
                parts.append(Kleene(atom, 0, None) if side.kleene(variable) else atom)
                own = side.fields(variable)
                columns_of[variable] = [(f.name, column_of(variable, f.name)) for f in own]
                fields += [pa.field(column_of(variable, f.name), f.type) for f in own]
        self.arrow = pa.schema(fields)
        self.unit = time_unit(self.arrow)
        query = Query(Seq(tuple(parts)), returns=tuple(returns))
        self.shape = ResultShape(query, _TOGETHER, self.arrow, columns_of)
        self.columns_of = columns_of

    def kind(self, expr: Expr) -> Kind:
        """The kind of an expression over the sides."""

        def of(field: Field) -> Kind:
            type_ = self.arrow.field(column_of(field.variable, field.name or "")).type
            return kind_of_arrow(type_)

        return kind_of(expr, of)

    @property
    def result(self) -> pa.Schema:
        """The columns of joined rows: `start`, `end` and place are those of the first side."""
        first = self.sides[0].schema
        returned = self.shape.returned()
        names = {r.name for r in returned}
        standard = [n for n in (*STANDARD, LOCATION) if n in first.names and n not in names]
        fields = [pa.field(name, plain_type(first.field(name).type)) for name in standard]
        whole = pa.schema([*fields, *((r.name, self.shape.type_of(r.expr)) for r in returned)])
        return whole if self.wanted is None else pa.schema(map(whole.field, self.wanted))


class JoinedRows:
    """Rows of several sides beside each other."""

    def __init__(self, shape: JoinedShape, tables: Sequence[pa.Table], rows: Sequence[Ints]):
        self.shape, self.tables, self.rows = shape, tuple(tables), tuple(rows)
        self.gathered = Gathered(
            _matches(shape.sides, tables, rows), no_rows(shape.arrow), shape.columns_of,
            shape.shape.results, shape.unit,
        )  # fmt: skip
        for side, table in zip(shape.sides, tables, strict=True):
            for variable in side.variables:
                array = _events(table, variable)
                for k, field in enumerate(array.type):
                    name = column_of(variable, field.name)
                    self.gathered.know(name, array.field(k))

    def values(self, expr: Expr) -> Vector:
        return self.gathered.evaluate(expr)

    def holds(self, conjuncts: Sequence[Expr]) -> Bools:
        """Where all conditions are true; what is compared with nothing is not."""
        kept = np.ones(self.gathered.matches.count, np.bool_)
        for conjunct in conjuncts:
            kept &= truth(self.values(conjunct))
        return kept

    def column(self, name: str, side: int = 0) -> pa.Array:
        """A column of a side, by joined row."""
        return taken(single(self.tables[side].column(name)), self.rows[side])

    def table(self, identity: bytes) -> pa.Table:
        """The joined rows as a result. HAVING is asked before."""
        shape, wanted = self.shape.shape, self.shape.result
        returned = {r.name: r.expr for r in shape.returned()}
        arrays = []
        for field in wanted:
            if field.name in returned:
                array = shape.array_of(returned[field.name], self.gathered)
            elif field.name == "match_id":
                array = self._ids(identity)
            else:
                array = self.column(field.name)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.Table.from_arrays(arrays, schema=wanted)

    def _ids(self, identity: bytes) -> pa.Array:
        """Ids that hash the meaning of the query and the ids of all sides."""
        count = self.gathered.matches.count
        first, second = salts(identity)
        high, low = np.full(count, first), np.full(count, second)
        for number, (table, rows) in enumerate(zip(self.tables, self.rows, strict=True)):
            every = np.arange(table.num_rows)
            hashed = hash_rows(table.select(["match_id"]), [("match_id", "match_id")], every)
            salt, _ = salts(f"side {number}".encode())
            hashing.fold_rows(frozen(rows), *hashed, salt, high, low)
        data = hashing.hexadecimal(high, low, DIGITS)
        places = np.arange(0, 32 * count + 1, 32, dtype=np.int64)
        buffers = [None, pa.py_buffer(places), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.large_string(), count, buffers).cast(pa.string())


def column_of(variable: str, field: str) -> str:
    """The column of a variable's field among those of all sides."""
    return f"{variable}.{field}"


def _events(table: pa.Table, variable: str) -> pa.StructArray:
    """The events of a variable in all matches of a table, one behind the other."""
    column = single(table.column(variable))
    return column.flatten() if pa.types.is_list(column.type) else column


def _matches(sides: Sequence[Side], tables: Sequence[pa.Table], rows: Sequence[Ints]) -> Matches:
    singles: dict[str, Ints] = {}
    lists: dict[str, tuple[Ints, Ints]] = {}
    for side, table, chosen in zip(sides, tables, rows, strict=True):
        for variable in side.variables:
            column = single(table.column(variable))
            if side.kleene(variable):
                lists[variable] = _segments(column, chosen)
                continue
            there = np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), np.bool_)
            own = np.append(np.where(there, np.arange(len(there)), -1), -1)  # [-1]: no match
            singles[variable] = own[chosen]
    return Matches(singles, lists, len(rows[0]))


def _segments(column: pa.ListArray, chosen: Ints) -> tuple[Ints, Ints]:
    """Of each chosen match the places of its events among those of all; no match has none."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    counts = np.append(np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64), 0)
    begins = np.append(np.cumsum(counts[:-1]) - counts[:-1], 0)
    mine = counts[chosen]
    offsets = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(mine, out=offsets[1:])
    shift = np.repeat(begins[chosen] - offsets[:-1], mine)
    return offsets, shift + np.arange(offsets[-1])


def having_kept(joined: JoinedRows) -> Bools | None:
    """Which rows HAVING keeps; None: all."""
    having = joined.shape.having
    return None if having is None else truth(joined.values(having))


def picked(rows: Sequence[Ints], kept: Bools) -> tuple[Ints, ...]:
    """Some of the joined rows."""
    return tuple(one[kept] for one in rows)
