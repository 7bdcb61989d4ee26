"""Names of matches depend on what the events are, not on how they are stored."""

from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.projection.match_ids import compute_match_ids, find_equal_times, get_event_times, hash_rows
from ensue.vector.match_rows import Matches
from support.seeds import scaled

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # with JIT off, scalars warn


def ids(events, rows=None, lists=None, query=b"q", columns=None):
    rows = {v: np.array(r, np.int64) for v, r in (rows or {}).items()}
    lists = {v: (np.array(o, np.int64), np.array(r, np.int64)) for v, (o, r) in (lists or {}).items()}
    count = len(next(iter(rows.values()))) if rows else len(next(iter(lists.values()))[0]) - 1
    names = columns or [(n, n) for n in events.column_names]
    found = compute_match_ids(query, Matches(rows, lists, count), events, dict.fromkeys([*rows, *lists], names), "t")
    found.validate(full=True)
    return found.to_pylist()


EVENTS = pa.table(
    {"t": pa.array([1, 2, 2, 2, 3]), "id": pa.array([7, 8, 8, None, 9]), "name": pa.array(["x", "y", "y", None, "z"])}
)


def test_an_id_is_32_hexadecimal_digits():
    (found,) = ids(EVENTS, {"a": [0], "b": [4]})
    assert len(found) == 32
    assert set(found) <= set("0123456789abcdef")


def test_matches_differ_by_query_variable_and_events():
    found = [
        *ids(EVENTS, {"a": [0, 4, -1], "b": [4, 0, 0]}),
        *ids(EVENTS, {"a": [0], "b": [4]}, query=b"other"),
        *ids(EVENTS, {"a": [0], "c": [4]}),
        *ids(EVENTS, {"a": [0]}),
        *ids(EVENTS, lists={"a": ([0, 2, 4, 5, 5], [0, 1, 1, 0, 0])}),
    ]
    assert len(set(found)) == len(found)


def test_equal_events_are_told_apart():
    found = ids(EVENTS, {"a": [1, 2, 3]})
    assert len(set(found)) == 3


def test_an_id_does_not_depend_on_other_events():
    before = ids(EVENTS, {"a": [1, 4]})
    assert ids(EVENTS.slice(1), {"a": [0, 3]}) == before
    assert ids(EVENTS, {"a": [0, 1, 4]})[1:] == before


def test_an_id_does_not_depend_on_the_order_of_columns_or_on_empty_ones():
    more = EVENTS.select(["name", "id", "t"]).append_column("none", pa.nulls(5))
    more = more.append_column("empty", pa.array([None] * 5, pa.float64()))
    assert ids(more, {"a": [0, 1, 2]}) == ids(EVENTS, {"a": [0, 1, 2]})


def test_fields_may_lie_in_columns_of_other_names():
    renamed = EVENTS.rename_columns(["t", "id@A", "name"])
    columns = [("t", "t"), ("id", "id@A"), ("name", "name")]
    assert ids(renamed, {"a": [0, 1]}, columns=columns) == ids(EVENTS, {"a": [0, 1]})


MOMENT = datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    "encodings",
    [
        [pa.array([5], type) for type in (pa.int8(), pa.int64(), pa.uint16())]
        + [pa.array([5]).dictionary_encode()],
        [pa.array([0.5], type) for type in (pa.float32(), pa.float64())],
        [pa.array([-0.0]), pa.array([0.0])],
        [pa.array(["x"], type) for type in (pa.string(), pa.large_string(), pa.string_view())]
        + [pa.array(["x"]).dictionary_encode()],
        [pa.array([MOMENT], pa.timestamp(unit)) for unit in ("s", "us", "ns")]
        + [pa.array([MOMENT], pa.timestamp("ms", "UTC"))],
        [pa.array([Decimal("1.50")], pa.decimal128(9, s)) for s in (1, 2, 5)]
        + [pa.array([Decimal("1.50")], pa.decimal256(60, 9))],
        [pa.array([b"x"], type) for type in (pa.binary(), pa.large_binary())],
        [pa.array([[1]], type) for type in (pa.list_(pa.int8()), pa.large_list(pa.int64()))],
    ],
    ids=["integer", "float", "zero", "string", "timestamp", "decimal", "binary", "list"],
)  # fmt: skip
def test_an_id_does_not_depend_on_the_encoding(encodings):
    found = {ids(pa.table({"t": [1], "x": column}), {"a": [0]})[0] for column in encodings}
    assert len(found) == 1


def test_small_and_negative_decimals():
    values = [Decimal("0.000000001"), Decimal("-0.000000001"), Decimal(0), Decimal(100)]
    fine = pa.table({"t": range(4), "x": pa.array(values, pa.decimal128(38, 9))})
    finer = pa.table({"t": range(4), "x": pa.array(values, pa.decimal128(38, 20))})
    rows = {"a": [0, 1, 2, 3]}
    assert ids(fine, rows) == ids(finer, rows)
    assert len(set(ids(fine, rows))) == 4


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=12), st.data())
@settings(max_examples=scaled(60), deadline=None)
def test_different_events_have_different_ids(events, data):
    events = sorted(events, key=lambda e: e[0])
    table = pa.table({"t": [e[0] for e in events], "x": [e[1] for e in events]})
    rows = data.draw(st.lists(st.integers(0, len(events) - 1), min_size=1, unique=True))
    found = ids(table, {"a": rows})
    assert len(set(found)) == len(rows)
    everything = ids(table, {"a": range(len(events))})
    assert found == [everything[r] for r in rows]


@given(st.lists(st.none() | st.text(max_size=12), min_size=1, max_size=20), st.integers(0, 5), st.data())
@settings(max_examples=scaled(40), deadline=None)
def test_rows_have_the_hashes_that_they_have_in_a_table_of_their_own(texts, before, data):
    texts = [None, *texts, "", "twelve bytes"]
    table = pa.table({"s": pa.array(["before"] * before + texts, pa.string()), "n": range(before + len(texts))})
    table = table.slice(before)
    rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=len(texts) - 1)))
    columns = [("s", "s"), ("n", "n")]
    found, wanted = hash_rows(table, columns, rows), hash_rows(table.take(pa.array(rows)), columns)
    assert [h.tolist() for h in found] == [h.tolist() for h in wanted]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_in_the_unit_of_their_column_compare_as_before(unit):
    times = pa.array([3, 4, 4, 9], pa.timestamp(unit))
    table = pa.table({"t": times, "x": [1, 2, 2, 2]})
    marks = find_equal_times(get_event_times(table, "t"), np.ones(4, np.bool_))
    assert marks.tolist() == [False, True, True, False]
    assert ids(table, {"a": [1, 2]})[0] != ids(table, {"a": [1, 2]})[1]


def test_no_matches_have_no_ids():
    assert ids(EVENTS, {"a": []}) == []
    assert ids(EVENTS.slice(0, 0), {"a": []}) == []
