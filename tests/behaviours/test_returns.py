"""What a match looks like: without RETURN, with it, and HAVING."""

from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from ensue.errors import QueryError

pytestmark = [pytest.mark.stateless, pytest.mark.filterwarnings("ignore:no event is of type")]

EVENTS = pa.table(
    {"at": [10, 11, 12, 13], "type": list("AABB"), "price": [1.5, 2.5, 3.5, 4.5], "name": ["p", "q", "r", None]}
)


def result(runner, query, events=EVENTS):
    found = runner.match(events, query, time="at", type="type")
    return found.sort_by([(found.column_names[1], "ascending")]) if found.num_rows > 1 else found


@pytest.mark.everywhere
def test_without_return_every_variable_is_a_struct(runner):
    query = "SEQ(A+ a[], B b) WHERE strict_contiguity(a[], b) { a[1].price = 1.5 }"
    found = result(runner, query)
    assert found.column_names == ["match_id", "start", "end", "a", "b"]
    (row,) = found.to_pylist()
    assert (row["start"], row["end"]) == (10, 12)
    assert row["a"] == EVENTS.slice(0, 2).to_pylist()
    assert row["b"] == EVENTS.slice(2, 1).to_pylist()[0]
    assert pa.types.is_list(found.schema.field("a").type)


def test_an_unbound_variable_is_null(runner):
    found = result(runner, "SEQ(A a, C? c, B b) WHERE a.price = 1.5 and b.price = 3.5")
    (row,) = found.to_pylist()
    assert row["c"] is None
    assert found.column_names == ["match_id", "start", "end", "a", "c", "b"]


def test_negated_variables_are_no_columns(runner):
    assert "c" not in result(runner, "SEQ(A a, !C c, B b)").column_names


@pytest.mark.streams(slow=True)
def test_returned_expressions(runner):
    query = """SEQ(A a, B b) WHERE strict_contiguity(a, b) { 1 = 1 }
        RETURN a.price AS low, b.price - a.price AS rise,
               upper(a.name) AS who, a.price > 2 AS big"""
    found = result(runner, query)
    assert found.column_names == ["match_id", "start", "end", "low", "rise", "who", "big"]
    (row,) = found.drop_columns(["match_id"]).to_pylist()
    assert row == {"start": 11, "end": 12, "low": 2.5, "rise": 1.0, "who": "Q", "big": True}


def test_names_of_columns_without_as(runner):
    query = "SEQ(A+ a[], B b) RETURN b.price, avg(a.price), a[1].name"
    found = result(runner, query)
    assert found.column_names == ["match_id", "start", "end", "price", "avg(a.price)", "name"]


def test_a_returned_name_replaces_a_standard_column(runner):
    query = "SEQ(A a, B b) WHERE a.price = 1.5 and b.price = 3.5 RETURN a.name AS start, b.at AS end"
    found = runner.match(EVENTS, query, time="at", type="type")
    (row,) = found.drop_columns(["match_id"]).to_pylist()
    assert row == {"start": "p", "end": 12}


def test_two_columns_of_one_name_are_a_mistake(runner):
    with pytest.raises(QueryError, match="two columns are called 'price'"):
        result(runner, "SEQ(A a, B b) RETURN a.price, b.price")


def test_whole_events_and_lists(runner):
    query = """SEQ(A+ a[], B b) WHERE strict_contiguity(a[], b) { a.LEN = 2 }
        RETURN b AS last, a[1] AS first, a[a.LEN] AS second, a[] AS all, a[].price AS prices"""
    (row,) = result(runner, query).to_pylist()
    events = EVENTS.to_pylist()
    assert (row["last"], row["first"], row["second"]) == (events[2], events[0], events[1])
    assert row["all"] == events[:2]
    assert row["prices"] == [1.5, 2.5]


def test_a_missing_element_is_null(runner):
    query = "SEQ(A+ a[], B b) WHERE strict_contiguity(a[], b) { a.LEN = 1 } RETURN a[2].name AS n"
    (row,) = result(runner, query).to_pylist()
    assert row["n"] is None


@pytest.mark.everywhere(slow=True)
def test_having_drops_matches(runner):
    query = "SEQ(A+ a[], B b) RETURN sum(a.price) AS total HAVING sum(a.price) > 3 and b.price < 4"
    assert result(runner, query).column("total").to_pylist() == [4.0]


def test_having_without_return(runner):
    query = "SEQ(A a, B b) HAVING b.price - a.price > 2"
    assert result(runner, query).num_rows == 1


def test_having_that_is_unknown_drops(runner):
    assert result(runner, "SEQ(A a, B b) HAVING b.name = 'r'").num_rows == 2


def test_no_match_gives_the_same_columns(runner):
    some = result(runner, "SEQ(A a, B b) RETURN avg(a.price) AS m, a AS a")
    none = result(runner, "SEQ(B b, A a) RETURN avg(a.price) AS m, a AS a")
    assert none.num_rows == 0
    assert none.schema == some.schema


# ------------------------------------------------------------------------------- of a paper

ZEUS = (
    "PATTERN ClientPMs+ A[] -> DataTransPMs+ B[] -> ClientCancel C "
    "WHERE skip_till_next_match(A[], B[], C) { A[i].appId = 'app1' and "
    "B[i].endpoint = 'zeus-1' and C.appId = 'app1' } WITHIN 5 min "
    "RETURN percentile(A.responseTime, 90), avg(B.inTransferRate) "
    "HAVING percentile(A.responseTime, 90) > 100 or avg(B.inTransferRate) < 128"
)


@pytest.mark.everywhere(slow=True)
def test_slow_clients_and_slow_transfers_that_end_in_a_cancellation(runner):
    noon = datetime(2026, 1, 1, 12)
    rows = [
        # type, appId, endpoint, responseTime, inTransferRate
        ("ClientPMs", "app1", None, 90, None),
        ("ClientPMs", "app2", None, 900, None),  # another application
        ("ClientPMs", "app1", None, 110, None),
        ("DataTransPMs", None, "zeus-1", None, 200.0),
        ("DataTransPMs", None, "zeus-2", None, 1.0),  # another endpoint
        ("DataTransPMs", None, "zeus-1", None, 100.0),
        ("ClientCancel", "app1", None, None, None),
    ]
    names = ["type", "appId", "endpoint", "responseTime", "inTransferRate"]
    events = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    times = [noon + timedelta(seconds=30 * k) for k in range(len(rows))]
    events = events.append_column("at", pa.array(times))
    found = runner.match(events, ZEUS, time="at", type="type")
    values = sorted((row["percentile(A.responseTime, 90)"], row["avg(B.inTransferRate)"]) for row in found.to_pylist())
    # from the first response or from the second one; the transfers both, or only the later
    assert values == [(108.0, 100.0), (108.0, 150.0), (110.0, 100.0), (110.0, 150.0)]
