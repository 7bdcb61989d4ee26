"""Aggregates over the rows of a match: what they mean, one function at a time."""

from datetime import timedelta

import pytest

from ensue.functions.row_aggregates import ROW_AGGREGATES, compute_row_aggregate, find_row_aggregate


@pytest.mark.parametrize(
    ("function", "rows", "value"),
    [
        ("count", [(), ()], 2),
        ("count", [(1,), (None,)], 1),
        ("count", [], 0),
        ("sum", [(1,), (None,), (2,)], 3),
        ("sum", [(None,)], None),
        ("sum", [(timedelta(1),), (timedelta(2),)], timedelta(3)),
        ("avg", [(1,), (2,)], 1.5),
        ("min", [("b",), ("a",)], "a"),
        ("max", [(1,), (None,), (3,)], 3),
        ("any_value", [(None,), (7,)], 7),
        ("any_value", [(None,)], None),
        ("array_agg", [(1,), (None,), (1,)], [1, None, 1]),
        ("array_agg", [], None),
        ("string_agg", [("a", "-"), (None, "-"), ("b", "-")], "a-b"),
        ("string_agg", [("a",), ("b",)], "ab"),
        ("string_agg", [(None, "-")], None),
        ("max_by", [("a", 1), ("b", 3), ("c", 3), ("d", None)], "b"),
        ("max_by", [(None, 5), ("b", 3)], None),
        ("min_by", [("a", 2), ("b", 1)], "b"),
        ("min_by", [("a", None)], None),
        ("stddev", [(1,), (3,)], 2**0.5),
        ("stddev", [(1,)], None),
        ("stddev_pop", [(1,), (3,)], 1.0),
        ("stddev_pop", [(1,)], 0.0),
        ("variance", [(1,), (None,), (3,)], 2.0),
        ("variance", [(1,)], None),
        ("var_pop", [(1,), (3,)], 1.0),
        ("median", [(1,), (4,), (2,), (None,)], 2.0),
        ("percentile", [(1, 50), (2, 50)], 1.5),
        ("percentile", [(None, 50)], None),
        ("bool_and", [(True,), (None,)], True),
        ("bool_and", [(True,), (False,)], False),
        ("bool_and", [(None,)], None),
        ("bool_or", [(False,), (None,)], False),
        ("bool_or", [(False,), (True,)], True),
    ],
)
def test_meanings(function, rows, value):
    assert compute_row_aggregate(function, rows) == value


def test_over_no_rows_all_but_count_are_null():
    for function in ROW_AGGREGATES:
        assert compute_row_aggregate(function.name, []) == (0 if function.name == "count" else None)


def test_names_and_aliases_are_different():
    names = [name for f in ROW_AGGREGATES for name in (f.name, *f.aliases)]
    assert len(names) == len(set(names))
    assert all(find_row_aggregate(name) is not None for name in names)
