"""Aggregates over segments give the bits that plain Python gives."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.functions.interpreter import compute_aggregate
from ensue.kernels import segment_aggregates as segments
from support.seeds import scaled

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

NUMBERS = {np.float64: st.floats(width=64), np.int64: st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9)}


@st.composite
def columns(draw, dtype):
    lists = draw(st.lists(st.lists(st.none() | NUMBERS[dtype], max_size=5), max_size=5))
    flat = [value for values in lists for value in values]
    offsets = np.cumsum([0, *(len(values) for values in lists)]).astype(np.int64)
    stored = np.array([0 if v is None else v for v in flat], dtype)
    valid = np.array([v is not None for v in flat], np.bool_)
    if valid.all() and draw(st.booleans()):
        valid = valid[:0]
    writeable = draw(st.booleans())
    for array in (offsets, stored, valid):
        array.flags.writeable = writeable
    return lists, offsets, stored, valid


def same(found, wanted):
    if isinstance(wanted, float) and math.isnan(wanted):
        return math.isnan(found)
    return found == wanted


def whole_sums(offsets, values, valid):
    found, carry, known = segments.integer_sums(offsets, values, valid)
    return found, known & (carry == 0)


KERNELS = {
    np.float64: {"sum": segments.sums, "avg": segments.averages, "stddev": segments.deviations},
    np.int64: {"sum": whole_sums, "avg": segments.integer_averages, "stddev": segments.deviations},
}


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("function", ["sum", "avg", "stddev", "percentile"])
@settings(max_examples=scaled(50), deadline=None)
@given(st.data())
def test_a_segment_has_the_aggregate_of_its_values(dtype, function, data):
    lists, offsets, values, valid = data.draw(columns(dtype))
    if function == "percentile":
        percent = data.draw(st.floats(0, 100))
        found, known = segments.percentiles(offsets, values, valid, percent)
    else:
        percent = None
        found, known = KERNELS[dtype][function](offsets, values, valid)
    for k, elements in enumerate(lists):
        wanted = compute_aggregate(function, elements, percent)
        assert bool(known[k]) == (wanted is not None)
        assert wanted is None or same(found[k], wanted)


@pytest.mark.parametrize("dtype", NUMBERS)
@settings(max_examples=scaled(50), deadline=None)
@given(st.data())
def test_positions_and_counts(dtype, data):
    lists, offsets, values, valid = data.draw(columns(dtype))
    for function in ("min", "max"):
        places = segments.find_extremes(offsets, values, valid, function == "min")
        for k, elements in enumerate(lists):
            wanted = compute_aggregate(function, elements)
            assert (places[k] < 0) == (wanted is None)
            if wanted is not None:
                assert offsets[k] <= places[k] < offsets[k + 1]
                assert same(values[places[k]], wanted)
    counts = segments.counts(offsets, valid)
    assert counts.tolist() == [compute_aggregate("count", elements) for elements in lists]
    ends = zip(segments.find_firsts(offsets), segments.find_lasts(offsets), lists, strict=True)
    for k, (first, last, elements) in enumerate(ends):
        if elements:
            assert (first, last) == (offsets[k], offsets[k + 1] - 1)
        else:
            assert first == last == -1
