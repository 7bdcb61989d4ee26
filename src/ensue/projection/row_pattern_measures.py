"""Evaluates the MEASURES of MATCH_RECOGNIZE for all rows of the result."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.analyzer.row_pattern_checks import infer_operand_kind
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
from ensue.kernels import row_search
from ensue.planner.row_pattern_plan import RowPatternPlan
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import Bools, Ints, build_texts, fixed_array, wrap_numbers
from ensue.vector.column_values import Vector, arrow_type, from_arrow, to_arrow, truth
from ensue.vector.evaluation import combine_validity, evaluate
from ensue.vector.take import combine_column, take_values

_KERNELS = ("count", "sum", "avg", "min", "max")
_WIDE = 2.0**62
_ANY = Literal(None)


class MeasureEvaluator:
    """Evaluates measures in the rows of a result.

    `match` is the match of each row (-1: none), and `place` the index of its label (-1: an empty
    match). With one row per match, `place` is None.
    """

    def __init__(
        self, plan: RowPatternPlan, partitions: Partitions, found: RowMatches, match: Ints, place: Ints | None
    ) -> None:
        self._plan = plan
        self._partitions = partitions
        self._found = found
        self._match = match
        self._place = place
        self._some = bool(len(match)) and bool((match >= 0).any())
        self._members: dict[tuple[str, ...], tuple[Ints, Ints, Ints]] = {}
        self._places: dict[Navigation, Ints] = {}
        # every label is a row of the result, in this order
        self._all_labels = place is not None and np.array_equal(place, np.arange(len(found.labels)))

    def __len__(self) -> int:
        return len(self._match)

    def arrow(self, value: RowExpression, type: pa.DataType, zone: str | None) -> pa.Array:
        """The values of a measure."""
        only = value.only
        if isinstance(only, Navigation) and _is_column(only.expr):
            assert isinstance(only.expr, FieldRef)
            assert only.expr.name is not None
            column = combine_column(self._partitions.table, only.expr.name)
            row = replace(only, expr=_ANY, span=None)
            if row not in self._places:
                self._places[row] = self._partitions.places(self._rows(row))
            return take_values(column, self._places[row])
        if isinstance(only, RowAggregate):
            return self._aggregate(only, type)
        array = to_arrow(self._evaluate(value), self._partitions.unit, zone)
        return array if array.type == type else array.cast(type)

    def _evaluate(self, value: RowExpression) -> Vector:
        known: dict[RowOperand, Vector] = {}

        def lookup(leaf: FieldRef | Aggregate) -> Vector:
            assert isinstance(leaf, FieldRef)
            reach = value.reach(leaf)
            if reach not in known:
                known[reach] = self._reach(reach)
            return known[reach]

        return self._hide(evaluate(value.expr, lookup, len(self), self._partitions.unit))

    def _reach(self, reach: RowOperand) -> Vector:
        match reach:
            case MatchNumber():
                return self._number(self._match)
            case Navigation(expr=expr):
                return self._at(self._rows(reach), self._match, expr)
            case RowAggregate():
                kind = infer_operand_kind(reach, self._plan.columns)
                if kind is ValueKind.OTHER:
                    raise AssertionError("lists are not computed with")
                type = arrow_type(kind, self._partitions.unit)
                return from_arrow(self._aggregate(reach, type), self._partitions.unit)

    def _select_variables(self, variables: tuple[str, ...]) -> Bools:
        names = self._plan.automaton.variables
        return np.array([not variables or name in variables for name in names], np.bool_)

    def _rows(self, reach: Navigation) -> Ints:
        """The target row of a navigation, for each row of the result; -1: none."""
        found, match = self._found, self._match
        if not self._some:
            return np.full(len(match), -1, np.int64)
        selected = self._select_variables(reach.variables)
        labels = (found.labels, found.offsets, found.starts, selected, reach.first, reach.offset)
        if self._place is None or reach.final:
            if selected.all():
                rows = found.starts + reach.offset if reach.first else found.stops - 1 - reach.offset
                rows = np.where((rows >= found.starts) & (rows < found.stops), rows, -1)
            else:
                rows = row_search.find_nth_rows(*labels)
            if self._place is not None:
                rows = np.where(match >= 0, rows[np.maximum(match, 0)], -1)
        else:
            rows, place = row_search.find_running_nth_rows(*labels), self._place
            if not len(rows):
                return np.full(len(match), -1, np.int64)
            if not self._all_labels:
                rows = np.where(place >= 0, rows[np.maximum(place, 0)], -1)
        if reach.shift == 0:
            return rows
        bounds, p = self._partitions.bounds, found.partitions[np.maximum(match, 0)]
        moved = rows + reach.shift
        there = (rows >= 0) & (moved >= bounds[p]) & (moved < bounds[p + 1])
        return np.where(there, moved, -1)

    def _at(self, rows: Ints, match: Ints, expr: Expr) -> Vector:
        """The values of an expression at some rows of matches; NULL at -1."""
        unit = self._partitions.unit
        values = evaluate(expr, lambda field: self._column(field, rows, match), len(rows), unit)
        return _keep_where(values, rows >= 0)

    def _column(self, field: FieldRef | Aggregate, rows: Ints, match: Ints) -> Vector:
        assert isinstance(field, FieldRef)
        assert field.name is not None
        if field.name == CLASSIFIER:
            return self._classify(rows, match)
        if field.name == MATCH_NUMBER:
            return self._number(match)
        return from_arrow(self._take(field.name, rows), self._partitions.unit, field.name)

    def _take(self, name: str, rows: Ints) -> pa.Array:
        column = combine_column(self._partitions.table, name)
        return take_values(column, self._partitions.places(rows))

    def _number(self, match: Ints) -> Vector:
        """MATCH_NUMBER()."""
        safe = np.maximum(match, 0)
        numbers = self._found.numbers[safe] if len(self._found) else safe
        return Vector(ValueKind.INTEGER, numbers, match >= 0)

    def _classify(self, rows: Ints, match: Ints) -> Vector:
        """CLASSIFIER(): the variables that rows are mapped to."""
        found = self._found
        names = build_texts(self._plan.automaton.variables)
        m = np.maximum(match, 0)
        if not len(found):
            nulls = pa.nulls(len(rows), pa.string())
            return Vector(ValueKind.STRING, nulls, np.zeros(len(rows), np.bool_))
        mapped = (match >= 0) & (rows >= found.starts[m]) & (rows < found.stops[m])
        places = np.where(mapped, found.offsets[m] + rows - found.starts[m], 0)
        if not len(found.labels):
            mapped[:] = False
            codes = np.zeros(len(rows), np.int64)
        else:
            codes = (found.labels[places] & row_search.VARIABLE).astype(np.int64)
        return Vector(ValueKind.STRING, names.take(fixed_array(pa.int64(), codes, mapped)), mapped)

    def _aggregate(self, reach: RowAggregate, type: pa.DataType) -> pa.Array:
        """An aggregate for each row of the result."""
        unit = self._partitions.unit
        if not self._some:
            empty = compute_row_aggregate(reach.function, [])
            return pa.array([None if m < 0 else empty for m in self._match.tolist()], type)
        places, rows, upto = self._select_rows(reach)
        match = np.repeat(np.arange(len(self._found)), np.diff(places))
        vectors = [self._at(rows, match, argument) for argument in reach.arguments]
        first, last = self._find_segments(reach, places, upto)
        if reach.function in _KERNELS and not reach.distinct and not reach.order:
            result = self._run_kernel(reach, places, vectors, first, last)
            if isinstance(result, Vector):
                zone = type.tz if pa.types.is_timestamp(type) else None
                array = to_arrow(self._hide(result), unit, zone)
                return array if array.type == type else array.cast(type)
            if result is not None:
                values = self._argument(reach.arguments[0], rows, vectors[0])
                return take_values(values, result).cast(type)
        if reach.function == "array_agg" and not reach.distinct and not reach.order:
            values = self._argument(reach.arguments[0], rows, vectors[0])
            return self._build_lists(values, first, last, type)
        keys = [self._at(rows, match, by.expr) for by in reach.order]
        return self._interpret(reach, vectors, keys, first, last, type)

    def _hide(self, vector: Vector) -> Vector:
        """A row without a match has no measures."""
        return _keep_where(vector, self._match >= 0)

    def _argument(self, expr: Expr, rows: Ints, vector: Vector) -> pa.Array:
        """The values of an argument, in the type of the column if it is one."""
        if not _is_column(expr):
            return to_arrow(vector, self._partitions.unit)
        assert isinstance(expr, FieldRef)
        assert expr.name is not None
        return self._take(expr.name, rows)

    def _select_rows(self, reach: RowAggregate) -> tuple[Ints, Ints, Ints]:
        """The rows of an aggregate: the offsets of matches, the rows, and for each label the
        number of rows up to it."""
        found = self._found
        if reach.variables not in self._members:
            selected = self._select_variables(reach.variables)
            self._members[reach.variables] = row_search.select_rows(found.labels, found.offsets, found.starts, selected)
        places, rows, upto = self._members[reach.variables]
        if reach.only is None:
            return places, rows, upto
        match = np.repeat(np.arange(len(found)), np.diff(places))
        kept = truth(self._at(rows, match, reach.only))
        running = row_search.running_sums(places, kept.astype(np.int64), kept)
        flat = np.repeat(np.arange(len(found)), np.diff(found.offsets))
        before = places[flat] + upto - 1
        fewer = np.where(upto > 0, running[np.maximum(before, 0)] if len(running) else 0, 0)
        sizes = np.bincount(match[kept], minlength=len(found))
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), rows[kept], fewer

    def _find_segments(self, reach: RowAggregate, places: Ints, upto: Ints) -> tuple[Ints, Ints]:
        """The range of selected rows of an aggregate, for each row of the result."""
        m = np.maximum(self._match, 0)
        first = places[m]
        if self._place is None or reach.final:
            last = places[m + 1]
        else:
            count = upto[np.maximum(self._place, 0)] if len(upto) else np.zeros(len(m), np.int64)
            last = first + np.where(self._place >= 0, count, 0)
        outside = self._match < 0
        return np.where(outside, 0, first), np.where(outside, 0, last)

    def _run_kernel(
        self, reach: RowAggregate, places: Ints, vectors: Sequence[Vector], first: Ints, last: Ints
    ) -> Vector | Ints | None:
        """An aggregate's values, or the positions of its values; None: no kernel supports it."""
        if not vectors:
            return Vector(ValueKind.INTEGER, last - first)
        vector = vectors[0]
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
            running = row_search.running_sums(places, np.ones(count, np.int64), np.ascontiguousarray(kept))
            known = at_end(running).astype(np.int64)
        if reach.function == "count":
            return Vector(ValueKind.INTEGER, known)
        if vector.kind is ValueKind.NULL:
            return None
        there = known > 0
        valid = np.ascontiguousarray(kept)
        if reach.function in ("min", "max"):
            values = _numbers(vector)
            best = row_search.running_best(places, values, valid, reach.function == "min")
            return np.where(there, at_end(best), -1).astype(np.int64)
        if vector.kind in (ValueKind.INTEGER, ValueKind.DURATION):
            values = np.ascontiguousarray(vector.values)
            most = float(np.abs(values.astype(np.float64)).max()) if count else 0.0
            if most * max(1, count) >= _WIDE:
                return None  # a sum may leave 64 bits
            totals = at_end(row_search.running_sums(places, values, valid)).astype(np.int64)
            if reach.function == "sum":
                return Vector(vector.kind, totals, there)
            if vector.kind is ValueKind.DURATION:
                return None
            means = totals.astype(np.float64) / np.maximum(known, 1)
            return Vector(ValueKind.FLOAT, means, there)
        values = np.ascontiguousarray(vector.values, np.float64)
        sums = at_end(row_search.running_sums(places, values, valid)).astype(np.float64)
        if reach.function == "avg":
            sums = sums / np.maximum(known, 1)
        return Vector(ValueKind.FLOAT, sums, there)

    def _interpret(
        self,
        reach: RowAggregate,
        vectors: Sequence[Vector],
        keys: Sequence[Vector],
        first: Ints,
        last: Ints,
        type: pa.DataType,
    ) -> pa.Array:
        """An aggregate, computed row by row in Python."""
        unit = self._partitions.unit
        values = list(zip(*(to_arrow(v, unit).to_pylist() for v in vectors), strict=True))
        sorted_by = list(zip(*(to_arrow(k, unit).to_pylist() for k in keys), strict=True))
        out: list[object] = []
        for begin, end, match in zip(first.tolist(), last.tolist(), self._match.tolist(), strict=True):
            if match < 0:
                out.append(None)
                continue
            rows = values[begin:end]
            by = sorted_by[begin:end] if keys else [()] * len(rows)
            out.append(compute_row_aggregate(reach.function, order_and_deduplicate(reach, rows, by)))
        return pa.array(out, type)

    def _build_lists(self, values: pa.Array, first: Ints, last: Ints, type: pa.DataType) -> pa.Array:
        sizes = last - first
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - first, sizes)
        items = take_values(values, rows) if len(rows) else values.slice(0, 0)
        empty = sizes == 0
        lists = pa.LargeListArray.from_arrays(wrap_numbers(offsets), items)
        if empty.any():
            lists = lists.take(pa.array(np.where(empty, 0, np.arange(len(sizes))), mask=empty))
        return lists.cast(type)


def _is_column(expr: Expr) -> bool:
    return isinstance(expr, FieldRef) and expr.name not in MATCH_COLUMNS


def _numbers(vector: Vector) -> npt.NDArray[np.generic]:
    """Numbers in the order of the values."""
    if not isinstance(vector.values, np.ndarray):
        return rank_texts([vector])[0]
    if vector.kind is ValueKind.BOOLEAN:
        return vector.values.astype(np.int64)
    return np.ascontiguousarray(vector.values)


def _keep_where(vector: Vector, there: Bools) -> Vector:
    """The values, NULL elsewhere."""
    if vector.kind is ValueKind.NULL or there.all():
        return vector
    if isinstance(vector.values, np.ndarray):
        return Vector(vector.kind, vector.values, combine_validity(vector.valid, there))
    rows = np.where(there, np.arange(len(there)), -1)
    return from_arrow(take_values(to_arrow(vector, "us"), rows), "us")
