"""The values of fields and aggregates, one per match."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.cached import cached_property
from ensue.functions.interpreter import compute_aggregate, find_mode
from ensue.ir.expression import Aggregate, EventPosition, Expr, FieldRef
from ensue.ir.traversal import iterate_references
from ensue.kernels import segment_aggregates
from ensue.projection.operator_results import OperatorColumns, OperatorProjection
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import Bools, Floats, Ints, as_read_only, fixed_array, get_raw_values, to_kernel_validity
from ensue.vector.arrow_types import Unit, time_unit
from ensue.vector.column_values import Vector, arrow_type, from_arrow, to_arrow, truth
from ensue.vector.evaluation import combine_validity, evaluate, round_duration
from ensue.vector.match_rows import Matches
from ensue.vector.take import combine_column, find_slice, take_values

ColumnsOf = Mapping[str, Sequence[tuple[str, str]]]  # variable -> (field, column of the events)


def index_columns(columns_of: ColumnsOf) -> dict[str, dict[str, str]]:
    """For each variable the column of a field, which may also go by the column's name.

    >>> index_columns({"a": [("price", "price@Stock")]})["a"]["price"]
    'price@Stock'
    """
    return {
        variable: {column: column for _, column in columns} | dict(columns) for variable, columns in columns_of.items()
    }


class MatchValues:
    """Evaluates expressions over matches; each column is looked up once, on demand."""

    def __init__(
        self,
        matches: Matches,
        events: pa.Table,
        columns_of: ColumnsOf,
        results: OperatorProjection | None = None,
        unit: Unit | None = None,
    ) -> None:
        self.matches = matches
        self.results = results
        self._made: OperatorColumns | None = None  # attributes of operator results
        self.events = events
        self.unit: Unit = time_unit(events.schema) if unit is None else unit
        self.columns = index_columns(columns_of)
        self._whole: dict[str, pa.Array | pa.ChunkedArray] = {}
        self._structs: dict[tuple[tuple[str, str], ...], pa.StructArray] = {}
        self._vectors: dict[FieldRef | Aggregate, Vector] = {}
        self._taken: list[tuple[str, Ints, pa.Array]] = []

    def with_matches(self, matches: Matches) -> "MatchValues":
        """The same events for other matches."""
        other = MatchValues(matches, self.events, {}, self.results, self.unit)
        other.columns, other._whole, other._structs = self.columns, self._whole, self._structs
        return other

    @cached_property
    def ends(self) -> tuple[Ints, Ints]:
        """The first and the last row of each match."""
        return self.matches.ends()

    def column(self, variable: str, name: str) -> pa.Array | pa.ChunkedArray:
        """The column of a variable's field; of an operator result, its values by match."""
        if not self.is_result(variable):
            return self.get_column(self.columns[variable][name])
        assert self.results is not None
        if name not in self.results.list_attributes(variable):
            source = self.results.origins[variable]
            return take_values(self.column(source, name), self.matches.nth(source, 1))
        return self._results().columns[variable][name]

    def get_column(self, column: str) -> pa.Array | pa.ChunkedArray:
        if column not in self._whole:
            self._whole[column] = combine_column(self.events, column)
        return self._whole[column]

    def take(self, column: str, rows: Ints) -> pa.Array:
        """A column of the events at some rows; it is often taken twice, as a time and as a field."""
        for name, places, values in self._taken:
            if name == column and np.array_equal(places, rows):
                return values
        self._taken.append((column, rows, take_values(self.get_column(column), rows)))
        return self._taken[-1][2]

    def slice_events(
        self, columns: Sequence[tuple[str, str]], type: pa.StructType, rows: Ints
    ) -> pa.StructArray | None:
        """Whole events at consecutive rows of a small table, which share its memory; None for other rows."""
        first = find_slice(rows, self.events.num_rows)
        if first is None:
            return None
        key = tuple(columns)
        if key not in self._structs:
            parts = [self.get_column(column) for _, column in key]
            if any(isinstance(part, pa.ChunkedArray) for part in parts):
                return None
            self._structs[key] = pa.StructArray.from_arrays(parts, fields=list(type))
        return self._structs[key].slice(first, len(rows))

    def add_column(self, column: str, values: pa.Array | pa.ChunkedArray) -> None:
        """Adds a column that is not in the events."""
        self._whole[column] = values

    def is_result(self, variable: str) -> bool:
        return self.results is not None and variable in self.results.applied

    def _results(self) -> OperatorColumns:
        assert self.results is not None
        if self._made is None:
            self._made = self.results.compute(self.matches, self.events)
        return self._made

    def select_bound(self, variable: str) -> Matches:
        """The matches with the rows of a variable; the row of a result is that of its match."""
        if not self.is_result(variable):
            return self.matches
        rows = np.where(self._results().there[variable], np.arange(self.matches.count), -1)
        return Matches({variable: rows}, {}, self.matches.count)

    def rows(self, field: FieldRef) -> Ints:
        """The row of the event of a reference, in each match; -1 for none."""
        matches = self.select_bound(field.variable)
        match field.at:
            case EventPosition.NTH:
                return matches.nth(field.variable, field.nth)
            case EventPosition.LAST:
                return matches.nth(field.variable, -1)
            case EventPosition.ONLY | EventPosition.ALL:
                return matches.nth(field.variable, 1)
            case _:
                raise AssertionError(f"a finished match has no {field.at.value}")

    def values(self, field: FieldRef) -> pa.Array:
        """A field's values, in the column's own type."""
        assert field.name is not None
        return take_values(self.column(field.variable, field.name), self.rows(field))

    def evaluate(self, expr: Expr) -> Vector:
        """The values of an expression."""
        return evaluate(expr, self._vector, self.matches.count, self.unit)

    def holds(self, condition: Expr) -> Bools:
        """Where a conjunct is true, or does not apply since a variable is unbound."""
        kept = truth(self.evaluate(condition))
        for ref in iterate_references(condition):
            if isinstance(ref, FieldRef):
                rows = self.rows(ref)
                if rows.size and rows.min() < 0:
                    kept = kept | (rows < 0)
        return kept

    def _vector(self, ref: FieldRef | Aggregate) -> Vector:
        if ref not in self._vectors:
            if isinstance(ref, Aggregate):
                self._vectors[ref] = self._aggregate(ref)
            else:
                self._vectors[ref] = from_arrow(self.values(ref), self.unit, ref.name)
        return self._vectors[ref]

    def pick_value(self, aggregate: Aggregate) -> pa.Array:
        """A first, last, min or max of a plain field, in the column's own type."""
        field = aggregate.argument
        assert isinstance(field, FieldRef)
        assert field.name is not None
        offsets, elements = self.select_bound(aggregate.variable).segments(aggregate.variable)
        if aggregate.function in ("first", "last"):
            places = _ends(aggregate.function, offsets)
        elif aggregate.function in ("any_value", "mode"):
            places = _pick_positions(aggregate.function, offsets, self._argument(aggregate))
        else:
            places = _extremes(aggregate.function, offsets, self._argument(aggregate))
        rows = np.full(len(places), -1, np.int64)
        if len(elements):
            rows = np.where(places >= 0, elements[np.maximum(places, 0)], np.int64(-1))
        return take_values(self.column(field.variable, field.name), rows)

    def _argument(self, aggregate: Aggregate) -> Vector:
        """The argument's values for every event of the variable, in all matches."""
        _, elements = self.select_bound(aggregate.variable).segments(aggregate.variable)

        def lookup(ref: FieldRef | Aggregate) -> Vector:
            assert isinstance(ref, FieldRef)
            assert ref.name is not None
            column = take_values(self.column(ref.variable, ref.name), elements)
            return from_arrow(column, self.unit, ref.name)

        assert aggregate.argument is not None
        return evaluate(aggregate.argument, lookup, len(elements), self.unit)

    def _aggregate(self, aggregate: Aggregate) -> Vector:
        assert aggregate.at in (EventPosition.ALL, EventPosition.ONLY), "a finished match has no current event"
        offsets, _ = self.select_bound(aggregate.variable).segments(aggregate.variable)
        if aggregate.argument is None:
            return Vector(ValueKind.INTEGER, np.diff(offsets))
        argument = self._argument(aggregate)
        function = aggregate.function
        offsets, valid = as_read_only(offsets), to_kernel_validity(argument.valid)
        if function == "count":
            return Vector(ValueKind.INTEGER, segment_aggregates.counts(offsets, valid))
        if function == "count_distinct":
            return Vector(ValueKind.INTEGER, _distinct(offsets, argument))
        if argument.kind is ValueKind.NULL:
            empty = np.zeros(self.matches.count, np.bool_)
            return Vector(ValueKind.NULL, empty, empty)
        match function:
            case "first" | "last":
                return take_vector(argument, _ends(function, offsets))
            case "min" | "max":
                return take_vector(argument, _extremes(function, offsets, argument))
            case "bool_and" | "bool_or":
                least_or_most = "min" if function == "bool_and" else "max"
                return take_vector(argument, _extremes(least_or_most, offsets, argument))
            case "any_value" | "mode":
                return take_vector(argument, _pick_positions(function, offsets, argument))
            case "string_agg" | "product" | "stddev_pop" | "variance" | "var_pop":
                return self._interpret_rows(aggregate, offsets, argument)
            case _:
                pass
        numbers = as_read_only(np.asarray(argument.values))
        match function:
            case "sum" | "avg" if argument.kind in (ValueKind.INTEGER, ValueKind.DURATION):
                return _aggregate_integers(function, argument.kind, offsets, numbers, valid)
            case "sum":
                return _build_vector(ValueKind.FLOAT, *segment_aggregates.sums(offsets, numbers, valid))
            case "avg":
                return _build_vector(ValueKind.FLOAT, *segment_aggregates.averages(offsets, numbers, valid))
            case "stddev":
                return _build_vector(ValueKind.FLOAT, *segment_aggregates.deviations(offsets, numbers, valid))
            case _:
                assert aggregate.parameter is not None
                percent = float(aggregate.parameter)
                found = segment_aggregates.percentiles(offsets, numbers, valid, percent)
                if argument.kind is ValueKind.DURATION:
                    return round_duration(*found)
                return _build_vector(ValueKind.FLOAT, *found)

    def _interpret_rows(self, aggregate: Aggregate, offsets: Ints, argument: Vector) -> Vector:
        """An aggregate of each match, interpreted in Python."""
        values = to_arrow(argument, self.unit).to_pylist()
        ends = offsets.tolist()
        found = [
            compute_aggregate(aggregate.function, values[start:end], aggregate.parameter)
            for start, end in pairwise(ends)
        ]
        kind = ValueKind.STRING if aggregate.function == "string_agg" else ValueKind.FLOAT
        return from_arrow(pa.array(found, arrow_type(kind, self.unit)), self.unit)


def _build_vector(kind: ValueKind, values: Ints | Floats, known: Bools) -> Vector:
    return Vector(kind, values, None if known.all() else known)


def _aggregate_integers(function: str, kind: ValueKind, offsets: Ints, numbers: Ints, valid: Bools) -> Vector:
    """The sum of integers, NULL beyond 64 bits, or their average."""
    if function == "sum":
        totals, carry, known = segment_aggregates.integer_sums(offsets, numbers, valid)
        return _build_vector(kind, totals, known & (carry == 0))
    means, known = segment_aggregates.integer_averages(offsets, numbers, valid)
    if kind is ValueKind.DURATION:
        return round_duration(means, known)
    return _build_vector(ValueKind.FLOAT, means, known)


_FIRST_OR_LAST = {"first": segment_aggregates.find_firsts, "last": segment_aggregates.find_lasts}


def _ends(function: str, offsets: Ints) -> Ints:
    places: Ints = _FIRST_OR_LAST[function](as_read_only(offsets))
    return places


def _extremes(function: str, offsets: Ints, argument: Vector) -> Ints:
    if argument.kind is ValueKind.NULL:
        return np.full(len(offsets) - 1, -1, np.int64)
    valid = to_kernel_validity(argument.valid)
    values = as_read_only(_to_sortable(argument))
    places: Ints = segment_aggregates.find_extremes(as_read_only(offsets), values, valid, function == "min")
    return places


def _pick_positions(function: str, offsets: Ints, argument: Vector) -> Ints:
    """The position of the value that an aggregate picks of each match; -1 for none."""
    found = np.full(len(offsets) - 1, -1, np.int64)
    if argument.kind is ValueKind.NULL:
        return found
    values = _to_sortable(argument).tolist()
    valid = None if argument.valid is None else argument.valid.tolist()
    for match, (start, end) in enumerate(pairwise(offsets.tolist())):
        there = [k for k in range(start, end) if valid is None or valid[k]]
        if there:
            place = 0 if function == "any_value" else find_mode([values[k] for k in there])
            found[match] = there[place]
    return found


def _distinct(offsets: Ints, argument: Vector) -> Ints:
    """The number of distinct values in each match."""
    count = len(offsets) - 1
    if argument.kind is ValueKind.NULL:
        return np.zeros(count, np.int64)
    values = _to_sortable(argument)
    owners = np.repeat(np.arange(count, dtype=np.int64), np.diff(offsets))
    if argument.valid is not None:
        values, owners = values[argument.valid], owners[argument.valid]
    order = np.lexsort((values, owners))
    values, owners = values[order], owners[order]
    same = (values[1:] == values[:-1]) | ((values[1:] != values[1:]) & (values[:-1] != values[:-1]))
    fresh = np.ones(len(values), np.bool_)
    fresh[1:] = ~(same & (owners[1:] == owners[:-1]))
    return np.bincount(owners[fresh], minlength=count).astype(np.int64)


def _to_sortable(vector: Vector) -> Ints | Floats:
    """Numbers in the order of the values."""
    if vector.kind is ValueKind.BOOLEAN:
        return np.asarray(vector.values, np.int64)
    if vector.kind is not ValueKind.STRING:
        return np.asarray(vector.values)
    texts: pa.Array = vector.values
    if not pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_encode()
    ranks = np.zeros(len(texts.dictionary) + 1, np.int64)
    ranks[: len(texts.dictionary)] = get_raw_values(
        pc.rank(texts.dictionary, tiebreaker="dense").cast(pa.int64()), np.int64
    )
    indices = pc.fill_null(texts.indices, 0).cast(pa.int64())
    ordered: Ints = ranks[get_raw_values(indices, np.int64)]
    return ordered


def take_vector(vector: Vector, places: Ints) -> Vector:
    """The values at some positions; NULL at -1."""
    there = places >= 0
    if not isinstance(vector.values, np.ndarray):
        found = vector.values.take(fixed_array(pa.int64(), places, there))
        return from_arrow(found, "us")
    if not len(vector):
        return Vector(vector.kind, np.zeros(len(places), vector.values.dtype), there)
    safe = np.maximum(places, 0)
    valid = None if there.all() else there
    if vector.valid is not None:
        valid = combine_validity(valid, vector.valid[safe])
    return Vector(vector.kind, vector.values[safe], valid)
