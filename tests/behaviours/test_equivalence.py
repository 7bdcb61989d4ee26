"""`[attr]`: every event of a match has the same value, and partitions are what shares it."""

from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from ensue.errors import QueryError

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

BY_KEY = "SEQ(A a, B b) WHERE [k]"


@pytest.mark.everywhere
def test_events_of_one_key(matched):
    assert matched(BY_KEY, "AABB", k="pqqp") == [(0, 3), (1, 2)]


@pytest.mark.everywhere
def test_null_equals_nothing(matched):
    assert matched(BY_KEY, "AABB", k=["p", None, None, "p"]) == [(0, 3)]


@pytest.mark.everywhere
def test_nan_equals_not_even_itself(matched):
    nan = float("nan")
    assert matched(BY_KEY, "AABB", k=[1.0, nan, nan, 1.0]) == [(0, 3)]


@pytest.mark.everywhere
def test_negative_zero_is_zero(matched):
    assert matched(BY_KEY, "AB", k=[0.0, -0.0]) == [(0, 1)]


@pytest.mark.everywhere
def test_several_attributes(matched):
    query = "SEQ(A a, B b) WHERE [k, s]"
    assert matched(query, "ABBB", k="pppq", s="xyxx") == [(0, 2)]


def test_attributes_one_by_one(matched):
    query = "SEQ(A a, B b) WHERE [k] and [s]"
    assert matched(query, "ABBB", k="pppq", s="xyxx") == [(0, 2)]


def test_a_null_in_one_of_several(matched):
    query = "SEQ(A a, B b) WHERE [k, s]"
    assert matched(query, "AB", k="pp", s=["x", None]) == []


def test_texts_that_would_be_equal_when_glued_together(matched):
    query = "SEQ(A a, B b) WHERE [k, s]"
    assert matched(query, "AB", k=["ab", "a"], s=["c", "bc"]) == []


@pytest.mark.in_process("types that Spark does not have")
@pytest.mark.parametrize(
    "keys",
    [
        pa.array([True, False, True]),
        pa.array([1, 2, 1], pa.int8()),
        pa.array([1, 2, 1], pa.uint64()),
        pa.array([Decimal("1.10"), Decimal("1.20"), Decimal("1.10")]),
        pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2), datetime(2026, 1, 1)]),
        pa.array(["ä", "b", "ä"]).dictionary_encode(),
        pa.array(["ä", "b", "ä"], pa.large_string()),
        pa.array(["", "b", ""]),
    ],
    ids=lambda keys: str(keys.type),
)
def test_keys_of_every_kind(matched, keys):
    assert matched(BY_KEY, "ABB", k=keys) == [(0, 2)]


def test_a_kleene_variable_shares_the_key(matched):
    query = "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [k] }"
    assert matched(query, "AAAB", k="pqpp") == [((0, 2), 3), ((2,), 3)]


# ------------------------------------------------------------------------------- by equalities


def test_equalities_of_all_variables(matched):
    query = "SEQ(A a, B b, C c) WHERE a.k = b.k and a.k = c.k"
    assert matched(query, "ABBCC", k="pqpqp") == [(0, 2, 4)]


def test_equalities_of_some_variables(matched):
    query = "SEQ(A a, B b, C c) WHERE a.k = c.k"
    assert matched(query, "ABC", k="pqp") == [(0, 1, 2)]


def test_an_equality_with_null_is_not_true(matched):
    assert matched("SEQ(A a, B b) WHERE a.k = b.k", "AB", k=pa.array([None, None], "string")) == []


THEFT = (
    "EVENT SEQ (SHELF_READING x , ! (COUNT_READING y), EXIT_READING z) WHERE {} WITHIN 12 hours"
)
READINGS = pa.table(
    {
        "ts": [datetime(2026, 1, 5, hour) for hour in (8, 8, 9, 10, 11, 12, 21)],
        "reader": [
            "SHELF_READING",
            "SHELF_READING",
            "SHELF_READING",
            "COUNT_READING",
            "EXIT_READING",
            "EXIT_READING",
            "EXIT_READING",
        ],
        "id": ["bought", "stolen", "left late", "bought", "bought", "stolen", "left late"],
    }
)


@pytest.mark.everywhere
@pytest.mark.parametrize("condition", ["[id]", "x.id = y.id ∧ y.id = z.id"])
def test_the_theft_query_as_the_papers_print_it(runner, condition):
    found = runner.match(READINGS, THEFT.format(condition), time="ts", type="reader")
    assert sorted(row["x"]["id"] for row in found.to_pylist()) == ["left late", "stolen"]


# ------------------------------------------------------------------------------- mistakes


def test_an_unknown_attribute(matched):
    with pytest.raises(QueryError, match="unknown field 'kk'"):
        matched("SEQ(A a, B b) WHERE [kk]", "AB", k="pp")


def test_nested_values_are_no_keys(matched):
    with pytest.raises(QueryError, match="nested"):
        matched(BY_KEY, "AB", k=[[1], [1]])
