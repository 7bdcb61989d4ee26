"""What measures reach from matches, for all rows of the result at once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.row_match.row_partitions import Partitions, rank_texts
from ensue.engine.row_match.search import RowMatches
from ensue.functions.row_aggregates import compute_row_aggregate, order_and_deduplicate
from ensue.ir.expression import Aggregate, Expr, FieldRef, Literal
from ensue.ir.row_pattern import (
    CLASSIFIER,
    MATCH_COLUMNS,
    MATCH_NUMBER,
    MatchNumber,
    Navigation,
    RowAggregate,
    RowExpression,
    RowOperand,
)
from ensue.kernels import row_search as loops
from ensue.planner.row_pattern_plan import RowPatternPlan, infer_reach_kind
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import Bools, Ints, fixed_array
from ensue.vector.column_values import Vector, arrow_type, from_arrow, to_arrow, truth
from ensue.vector.evaluation import evaluate
from ensue.vector.operators import combine_validity
from ensue.vector.take import combine_column, take_values

_KERNELS = ("count", "sum", "avg", "min", "max")
_WIDE = 2.0**62
_ANY = Literal(None)


class MeasureEvaluator:
    """The rows of a result, and what is reached from them.

    `match` is the match that each row of the result is of (-1: none), and `place` how far in the
    match it is: the place of its label (-1: an empty match, or the match as a whole).
    """

    def __init__(
        self,
        plan: RowPatternPlan,
        partitions: Partitions,
        found: RowMatches,
        match: Ints,
        place: Ints | None,
    ) -> None:
        self._plan = plan
        self._partitions = partitions
        self._found = found
        self._match = match
        self._place = place
        self._some = bool(len(match)) and bool((match >= 0).any())
        self._members: dict[tuple[str, ...], tuple[Ints, Ints, Ints]] = {}
        self._places: dict[Navigation, Ints] = {}
        # every label is a row of the result, and in its place
        self._all_labels = place is not None and np.array_equal(
            place, np.arange(len(found.labels))
        )

    def __len__(self) -> int:
        return len(self._match)

    def arrow(self, value: RowExpression, type: pa.DataType, zone: str | None) -> pa.Array:
        """The values of a measure."""
        only = value.only
        if isinstance(only, Navigation) and _is_column(only.expr):
            assert isinstance(only.expr, FieldRef)
            assert only.expr.name is not None
            column = combine_column(self._partitions.table, only.expr.name)
            return take_values(column, self._places_of(only))
        if isinstance(only, RowAggregate):
            return self._aggregate(only, type)
        found = to_arrow(self.vector(value), self._partitions.unit, zone)
        return found if found.type == type else found.cast(type)

    def vector(self, value: RowExpression) -> Vector:
        """The same as a vector."""
        known: dict[RowOperand, Vector] = {}

        def lookup(leaf: FieldRef | Aggregate) -> Vector:
            assert isinstance(leaf, FieldRef)
            reach = value.reach(leaf)
            if reach not in known:
                known[reach] = self._reach(reach)
            return known[reach]

        found = evaluate(value.expr, lookup, len(self), self._partitions.unit)
        outside = self._match < 0
        if not outside.any():
            return found
        return _where(found, ~outside)  # a row without a match has no measures

    # ------------------------------------------------------------------------------ one reach

    def _reach(self, reach: RowOperand) -> Vector:
        match reach:
            case MatchNumber():
                safe = np.maximum(self._match, 0)
                numbers = self._found.numbers[safe] if len(self._found) else safe
                return Vector(ValueKind.INTEGER, numbers, self._match >= 0)
            case Navigation(expr=expr):
                return self._at(self._rows(reach), self._match, expr)
            case RowAggregate():
                kind = infer_reach_kind(reach, self._plan.columns)
                if kind is ValueKind.OTHER:
                    raise AssertionError("lists are not computed with")
                type = arrow_type(kind, self._partitions.unit)
                return from_arrow(self._aggregate(reach, type), self._partitions.unit)

    def _wanted(self, variables: tuple[str, ...]) -> Bools:
        names = self._plan.automaton.variables
        return np.array([not variables or name in variables for name in names], np.bool_)

    def _places_of(self, reach: Navigation) -> Ints:
        """Where in the table the row is that a reach is at, whatever it looks at there."""
        row = replace(reach, expr=_ANY, span=None)
        if row not in self._places:
            self._places[row] = self._partitions.places(self._rows(row))
        return self._places[row]

    def _rows(self, reach: Navigation) -> Ints:
        """The row that a reach is at, for each row of the result; -1: there is none."""
        found, match = self._found, self._match
        if not self._some:
            return np.full(len(match), -1, np.int64)
        wanted = self._wanted(reach.variables)
        given = (found.labels, found.offsets, found.starts, wanted, reach.first, reach.offset)
        if self._place is None or reach.final:
            if wanted.all():
                rows = (
                    found.starts + reach.offset if reach.first else found.stops - 1 - reach.offset
                )
                rows = np.where((rows >= found.starts) & (rows < found.stops), rows, -1)
            else:
                rows = loops.find_nth_rows(*given)
            if self._place is not None:  # else a row of the result is a match
                rows = np.where(match >= 0, rows[np.maximum(match, 0)], -1)
        else:
            so_far = loops.find_running_nth_rows(*given)
            place = self._place
            if not len(so_far):
                return np.full(len(match), -1, np.int64)
            rows = (
                so_far
                if self._all_labels
                else np.where(place >= 0, so_far[np.maximum(place, 0)], -1)
            )
        if reach.shift == 0:
            return rows
        bounds, p = self._partitions.bounds, found.partitions[np.maximum(match, 0)]
        moved = rows + reach.shift
        there = (rows >= 0) & (moved >= bounds[p]) & (moved < bounds[p + 1])
        return np.where(there, moved, -1)

    def _at(self, rows: Ints, match: Ints, expr: Expr) -> Vector:
        """The values of an expression at some rows, each seen from a match; NULL at -1."""
        partitions = self._partitions
        if not len(rows):
            found = evaluate(
                expr, lambda field: self._column(field, rows, match), 0, partitions.unit
            )
        else:
            found = evaluate(
                expr, lambda field: self._column(field, rows, match), len(rows), partitions.unit
            )
        there = rows >= 0
        return found if there.all() else _where(found, there)

    def _column(self, field: FieldRef | Aggregate, rows: Ints, match: Ints) -> Vector:
        assert isinstance(field, FieldRef)
        assert field.name is not None
        if field.name == CLASSIFIER:
            return self._classified(rows, match)
        if field.name == MATCH_NUMBER:
            safe = np.maximum(match, 0)
            numbers = self._found.numbers[safe] if len(self._found) else safe
            return Vector(ValueKind.INTEGER, numbers, match >= 0)
        column = take_values(
            combine_column(self._partitions.table, field.name), self._partitions.places(rows)
        )
        return from_arrow(column, self._partitions.unit, field.name)

    def _classified(self, rows: Ints, match: Ints) -> Vector:
        """The variables that rows are mapped to in a match."""
        found = self._found
        names = pa.array(self._plan.automaton.variables, pa.string())
        m = np.maximum(match, 0)
        if not len(found):
            return Vector(
                ValueKind.STRING, pa.nulls(len(rows), pa.string()), rows >= len(rows) + 1
            )
        mapped = (match >= 0) & (rows >= found.starts[m]) & (rows < found.stops[m])
        places = np.where(mapped, found.offsets[m] + rows - found.starts[m], 0)
        if not len(found.labels):
            mapped[:] = False
            codes = np.zeros(len(rows), np.int64)
        else:
            codes = (found.labels[places] & loops.VARIABLE).astype(np.int64)
        return Vector(ValueKind.STRING, names.take(fixed_array(pa.int64(), codes, mapped)), mapped)

    # ----------------------------------------------------------------------------- aggregates

    def _aggregate(self, reach: RowAggregate, type: pa.DataType) -> pa.Array:
        """An aggregate for each row of the result."""
        unit = self._partitions.unit
        if not self._some:
            whole = self._over_nothing(reach, type)
            return whole if len(whole) == len(self) else whole.take(pa.array([0] * len(self)))
        places, rows, upto = self._chosen(reach)
        match = np.repeat(np.arange(len(self._found)), np.diff(places))
        columns = [
            _Argument(self._at(rows, match, a), self._whole(a, rows)) for a in reach.arguments
        ]
        first, last = self._segments(reach, places, upto)
        if reach.function in _KERNELS and not reach.distinct and not reach.order:
            vector = self._counted(reach, places, columns, first, last)
            if vector is not None:
                if vector.places is not None:  # a value as it is
                    return take_values(columns[0].arrow(unit), vector.places).cast(type)
                assert vector.values is not None
                found = self._hide(vector.values)
                made = to_arrow(found, unit, type.tz if pa.types.is_timestamp(type) else None)
                return made if made.type == type else made.cast(type)
        keys = [self._at(rows, match, by.expr) for by in reach.order]
        return self._one_by_one(reach, columns, keys, first, last, type)

    def _hide(self, vector: Vector) -> Vector:
        outside = self._match < 0
        return _where(vector, ~outside) if outside.any() else vector

    def _over_nothing(self, reach: RowAggregate, type: pa.DataType) -> pa.Array:
        nothing = compute_row_aggregate(reach.function, [])
        values = [None if m < 0 else nothing for m in self._match.tolist()]
        return pa.array(values, type)

    def _whole(self, expr: Expr, rows: Ints) -> pa.Array | None:
        if not _is_column(expr):
            return None
        assert isinstance(expr, FieldRef)
        assert expr.name is not None
        return take_values(
            combine_column(self._partitions.table, expr.name), self._partitions.places(rows)
        )

    def _chosen(self, reach: RowAggregate) -> tuple[Ints, Ints, Ints]:
        """The rows that an aggregate is over: where those of a match begin, the rows, and of each
        label how many there are up to it."""
        found = self._found
        if reach.variables not in self._members:
            wanted = self._wanted(reach.variables)
            self._members[reach.variables] = loops.select_rows(
                found.labels, found.offsets, found.starts, wanted
            )
        places, rows, upto = self._members[reach.variables]
        if reach.only is None:
            return places, rows, upto
        match = np.repeat(np.arange(len(found)), np.diff(places))
        kept = truth(self._at(rows, match, reach.only))
        running = loops.running_sums(places, kept.astype(np.int64), kept)
        flat = np.repeat(np.arange(len(found)), np.diff(found.offsets))
        before = places[flat] + upto - 1
        fewer = np.where(upto > 0, running[np.maximum(before, 0)] if len(running) else 0, 0)
        sizes = np.bincount(match[kept], minlength=len(found))
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), rows[kept], fewer

    def _segments(self, reach: RowAggregate, places: Ints, upto: Ints) -> tuple[Ints, Ints]:
        """From which chosen row on, up to which, an aggregate is, for each row of the result."""
        m = np.maximum(self._match, 0)
        first = places[m]
        if self._place is None or reach.final:
            last = places[m + 1]
        else:
            count = upto[np.maximum(self._place, 0)] if len(upto) else np.zeros(len(m), np.int64)
            last = first + np.where(self._place >= 0, count, 0)
        outside = self._match < 0
        return np.where(outside, 0, first), np.where(outside, 0, last)

    def _counted(
        self,
        reach: RowAggregate,
        places: Ints,
        columns: "Sequence[_Argument]",
        first: Ints,
        last: Ints,
    ) -> "_Made | None":
        """Aggregates that loops run along; None: not for these values."""
        if not columns:
            return _Made(Vector(ValueKind.INTEGER, last - first))
        vector = columns[0].vector
        count = len(vector)
        kept = np.ones(count, np.bool_) if vector.valid is None else vector.valid
        end = np.maximum(last - 1, 0)
        any_row = last > first

        def at_end(running: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
            if not count:
                return np.zeros(len(end), running.dtype)
            return np.where(any_row, running[end], np.zeros(1, running.dtype))

        if vector.kind is ValueKind.NULL:
            known = np.zeros(len(end), np.int64)
        else:
            running = loops.running_sums(
                places, np.ones(count, np.int64), np.ascontiguousarray(kept)
            )
            known = at_end(running).astype(np.int64)
        if reach.function == "count":
            return _Made(Vector(ValueKind.INTEGER, known))
        if vector.kind is ValueKind.NULL:
            return None
        there = known > 0
        valid = np.ascontiguousarray(kept)
        if reach.function in ("min", "max"):
            values = _numbers(vector)
            best = loops.running_best(places, values, valid, reach.function == "min")
            found = np.where(there, at_end(best), -1).astype(np.int64)
            return _Made(None, found)
        if vector.kind in (ValueKind.INTEGER, ValueKind.DURATION):
            values = np.ascontiguousarray(vector.values)
            most = float(np.abs(values.astype(np.float64)).max()) if count else 0.0
            if most * max(1, count) >= _WIDE:
                return None  # a sum may leave 64 bits
            totals = at_end(loops.running_sums(places, values, valid)).astype(np.int64)
            if reach.function == "sum":
                return _Made(Vector(vector.kind, totals, there))
            if vector.kind is ValueKind.DURATION:
                return None
            means = totals.astype(np.float64) / np.maximum(known, 1)
            return _Made(Vector(ValueKind.FLOAT, means, there))
        values = np.ascontiguousarray(vector.values, np.float64)
        sums = at_end(loops.running_sums(places, values, valid)).astype(np.float64)
        if reach.function == "avg":
            sums = sums / np.maximum(known, 1)
        return _Made(Vector(ValueKind.FLOAT, sums, there))

    def _one_by_one(
        self,
        reach: RowAggregate,
        columns: "Sequence[_Argument]",
        keys: Sequence[Vector],
        first: Ints,
        last: Ints,
        type: pa.DataType,
    ) -> pa.Array:
        """Aggregates by their plain meaning."""
        unit = self._partitions.unit
        if reach.function == "array_agg" and not reach.distinct and not reach.order:
            return self._lists(columns[0].arrow(unit), first, last, type)
        values = list(zip(*(c.values(unit) for c in columns), strict=True))
        sorted_by = list(zip(*(to_arrow(k, unit).to_pylist() for k in keys), strict=True))
        out: list[object] = []
        for begin, end, match in zip(
            first.tolist(), last.tolist(), self._match.tolist(), strict=True
        ):
            if match < 0:
                out.append(None)
                continue
            rows = values[begin:end]
            by = sorted_by[begin:end] if keys else [()] * len(rows)
            out.append(
                compute_row_aggregate(reach.function, order_and_deduplicate(reach, rows, by))
            )
        return pa.array(out, type)

    def _lists(self, values: pa.Array, first: Ints, last: Ints, type: pa.DataType) -> pa.Array:
        sizes = last - first
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - first, sizes)
        items = take_values(values, rows) if len(rows) else values.slice(0, 0)
        empty = sizes == 0
        whole = pa.LargeListArray.from_arrays(
            pa.array([*offsets[:-1].tolist(), int(offsets[-1])], pa.int64()), items
        )
        if empty.any():
            whole = whole.take(pa.array(np.where(empty, 0, np.arange(len(sizes))), mask=empty))
        return whole.cast(type)


class _Argument:
    """The values of an argument at all rows that an aggregate may be over."""

    def __init__(self, vector: Vector, whole: pa.Array | None) -> None:
        self.vector = vector
        self._whole = whole

    def arrow(self, unit: str) -> pa.Array:
        """As they came, where they are a column."""
        return to_arrow(self.vector, unit) if self._whole is None else self._whole  # type: ignore[arg-type]

    def values(self, unit: str) -> list[object]:
        return list(to_arrow(self.vector, unit).to_pylist())  # type: ignore[arg-type]


class _Made:
    """What a loop has found: values, or the places of values."""

    def __init__(self, values: Vector | None, places: Ints | None = None) -> None:
        self.values = values
        self.places = places


def _is_column(expr: Expr) -> bool:
    return isinstance(expr, FieldRef) and expr.name not in MATCH_COLUMNS


def _numbers(vector: Vector) -> npt.NDArray[np.generic]:
    """Numbers in the order of the values."""
    if not isinstance(vector.values, np.ndarray):
        return rank_texts([vector])[0]
    if vector.kind is ValueKind.BOOLEAN:
        return vector.values.astype(np.int64)
    return np.ascontiguousarray(vector.values)


def _where(vector: Vector, there: Bools) -> Vector:
    """The values, NULL elsewhere."""
    if vector.kind is ValueKind.NULL:
        return vector
    if isinstance(vector.values, np.ndarray):
        return Vector(vector.kind, vector.values, combine_validity(vector.valid, there))
    rows = np.where(there, np.arange(len(there)), -1)
    return from_arrow(take_values(to_arrow(vector, "us"), rows), "us")
