"""Parameters: values in place of `:names`, in every language and place that takes a value."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from ensue.errors import QueryError

MINUTE = timedelta(minutes=1)


def shown(text, **params):
    parsed = ensue.parse(text, params=params)
    language = "sql" if text.startswith("MATCH_RECOGNIZE") else "patterns"
    return ensue.show(parsed, language)


def refused(text, **params):
    with pytest.raises(QueryError) as error:
        ensue.parse(text, params=params)
    return error.value


@pytest.mark.parametrize(
    ("text", "params", "same"),
    [
        ("SEQ(A a, B b) WITHIN :gap", {"gap": 5 * MINUTE}, "SEQ(A a, B b) WITHIN 5 minutes"),
        ("SEQ(A a, B b) WITHIN :gap", {"gap": 5}, "SEQ(A a, B b) WITHIN 5"),
        ("SEQ(A a, B b) WITHIN :n min", {"n": 5}, "SEQ(A a, B b) WITHIN 5 minutes"),
        ("SEQ(A a, B b) WITHIN :n EVENTS", {"n": 5}, "SEQ(A a, B b) WITHIN 5 EVENTS"),
        ("A a LIMIT :n", {"n": 3}, "A a LIMIT 3"),
        ("A{:n,} a[]", {"n": 3}, "A{3,} a[]"),
        ("A{:n,:m} a[]", {"n": 3, "m": 4}, "A{3,4} a[]"),
        ("A+ a[] WHERE a[:n].x > 1", {"n": 2}, "A+ a[] WHERE a[2].x > 1"),
        ("A+ a[] RETURN percentile(a.x, :p) AS p", {"p": 90}, "A+ a[] RETURN percentile(a.x, 90) AS p"),
        ("A a THEN WITHIN :gap B b", {"gap": MINUTE}, "A a THEN WITHIN 1 minute B b"),
        ("SEQ(A a, B b WITHIN :gap OF a)", {"gap": MINUTE}, "SEQ(A a, B b WITHIN 1 minute OF a)"),
        ("SEQ(A a, !C c FROM a.end TO a.end + :gap)", {"gap": MINUTE}, "SEQ(A a, !C c FROM a.end TO a.end + 1 minute)"),
        (
            "A a JOIN ARCHIVE old A b RANGE :far BEFORE START LAST :n ON [k]",
            {"far": timedelta(days=1), "n": 2},
            "A a JOIN ARCHIVE old A b RANGE 1 day BEFORE START LAST 2 ON [k]",
        ),
        (
            "A a JOIN ARCHIVE old A b RANGE BETWEEN :far AND :near BEFORE END ON [k]",
            {"far": timedelta(days=1), "near": MINUTE},
            "A a JOIN ARCHIVE old A b RANGE BETWEEN 1 day AND 1 minute BEFORE END ON [k]",
        ),
        ("A a WHERE a.n LIKE :p", {"p": "x%"}, "A a WHERE a.n LIKE 'x%'"),
        ("A a WHERE a.n IN :ns", {"ns": ["x", "y"]}, "A a WHERE a.n IN ('x', 'y')"),
        ("A a WHERE a.n IN (:ns)", {"ns": ("x", "y")}, "A a WHERE a.n IN ('x', 'y')"),
        ("A a WHERE a.n IN ('w', :ns, 'z')", {"ns": {"y", "x"}}, "A a WHERE a.n IN ('w', 'x', 'y', 'z')"),
        ("A a WHERE a.n NOT IN :ns", {"ns": "x"}, "A a WHERE a.n NOT IN ('x')"),
        ("A a WHERE a.x > 2 - :n", {"n": -3}, "A a WHERE a.x > 2 - -3"),
        ("A a WHERE a.x > :n and a.y < :n", {"n": 1}, "A a WHERE a.x > 1 and a.y < 1"),
        ("A a WHERE distance(a.p, WKT :w) < 3", {"w": "POINT (1 2)"}, "A a WHERE distance(a.p, WKT 'POINT (1 2)') < 3"),
        (
            "MATCH_RECOGNIZE (PATTERN (A{:n,}) DEFINE A AS x > :low)",
            {"n": 2, "low": -1.5},
            "MATCH_RECOGNIZE (PATTERN (A{2,}) DEFINE A AS x > -1.5)",
        ),
        (
            "MATCH_RECOGNIZE (MEASURES LAST(A.x, :n) AS l PATTERN (A) WITHIN :gap DEFINE A AS x)",
            {"n": 2, "gap": MINUTE},
            ("MATCH_RECOGNIZE (MEASURES LAST(A.x, 2) AS l PATTERN (A) WITHIN INTERVAL '1 min' DEFINE A AS x)"),
        ),
        (
            "MATCH_RECOGNIZE(PATTERN(A) DEFINE A AS x IN :l AND y IN (0, :l) AND n LIKE :p)",
            {"l": [1, 2], "p": "z"},
            ("MATCH_RECOGNIZE(PATTERN(A) DEFINE A AS x IN (1, 2) AND y IN (0, 1, 2) AND n LIKE 'z')"),
        ),
        (
            "MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS t > :t AND ok = :ok)",
            {"t": datetime(2026, 1, 31), "ok": True},
            "MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS t > TIMESTAMP '2026-01-31' AND ok = TRUE)",
        ),
    ],
)
def test_a_value_is_what_its_text_would_be(text, params, same):
    assert shown(text, **params) == shown(same)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, "true"),
        (3, "3"),
        (2**70, str(2**70)),
        (-0.5, "-0.5"),
        (1e-9, "1e-9"),
        (Decimal("2.50"), "2.5"),
        (Decimal(7), "7"),
        ("it's; -- :x", "'it''s; -- :x'"),
        (None, "null"),
        (date(2026, 1, 31), "DATE '2026-01-31'"),
        (datetime(2026, 1, 31, 10, 0, 0, 5), "TIMESTAMP '2026-01-31 10:00:00.000005'"),
        (datetime(2026, 1, 31, tzinfo=UTC), "TIMESTAMP '2026-01-31 00:00:00+00:00'"),
        (timedelta(milliseconds=1500), "1500 ms"),
        (np.int32(3), "3"),
        (np.float64(0.5), "0.5"),
        (np.bool_(False), "false"),
        (np.str_("x"), "'x'"),
        (np.datetime64("2026-01-31T10:00"), "TIMESTAMP '2026-01-31 10:00:00'"),
        (np.timedelta64(5, "m"), "5 minutes"),
        (pd.Timestamp("2026-01-31", tz="UTC"), "TIMESTAMP '2026-01-31 00:00:00+00:00'"),
        (pd.Timedelta("5 min"), "5 minutes"),
        (pd.NaT, "null"),
        (pd.NA, "null"),
        (pa.scalar(3), "3"),
    ],
)
def test_values_of_python_and_of_libraries_of_tables(value, written):
    assert shown("A a WHERE a.x = :v", v=value) == shown(f"A a WHERE a.x = {written}")


@pytest.mark.parametrize(
    "several", [[1, 2], (1, 2), {1, 2}, np.array([1, 2]), pd.Series([1, 2]), pa.array([1, 2]), range(1, 3)]
)
def test_lists_of_python_and_of_libraries_of_tables(several):
    assert shown("A a WHERE a.x IN :v", v=several) == shown("A a WHERE a.x IN (1, 2)")


@given(st.text())
def test_a_text_is_never_read_as_a_part_of_the_query(text):
    query = ensue.parse("SEQ(A a, B b) WHERE a.n = :n WITHIN 5", params={"n": text})
    assert query.where[0].right.value == text
    again = ensue.parse(ensue.show(query))
    assert again == query


@pytest.mark.parametrize(
    ("text", "params", "problem", "place", "hint"),
    [
        ("A a WHERE a.x > :low", {}, "no value is given for :low", ":low", 'params={"low": ...}'),
        ("A a WHERE a.x > :low", {"lwo": 1}, "no value is given for :low", ":low", "'lwo'"),
        ("A a WHERE a.x > 1", {"low": 1}, "no query here has the parameter :low", None, "leave"),
        ("A a WHERE a.x > :low", {"low": 1, "lw": 2}, "no query here has the parameter :lw", None, "'low'"),
        ("SEQ(A a, B b) WITHIN :gap", {"gap": "5 min"}, "expected a number", ":gap", "timedelta"),
        ("A a LIMIT :n", {"n": "x"}, "expected a number, and :n is the text 'x'", ":n", None),
        ("A a LIMIT :n", {"n": 2.5}, "this must be a whole number", ":n", None),
        ("A{:n} a[]", {"n": -1}, "expected ',' or a number, and :n is the number -1", ":n", None),
        ("A a WHERE a.x = :l", {"l": [1, 2]}, ":l is a list", ":l", "a.kind IN :l"),
        ("A a WHERE a.x IN (:l + 1)", {"l": [1, 2]}, ":l is a list", ":l", "a.kind IN :l"),
        ("A a WHERE a.x IN :l", {"l": []}, ":l is an empty list", ":l", "leave"),
        ("A a WHERE a.x = :v", {"v": float("nan")}, ":v is nan", ":v", "None"),
        ("A a WHERE a.x = :v", {"v": object()}, ":v is of the type object", ":v", "None"),
        ("A a WHERE a.x = :v", {"v": pd.Timestamp(1)}, ":v is 1970", ":v", None),
        (":t a", {"t": "A"}, "expected an event type", ":t", "types of events are written"),
        (
            "MATCH_RECOGNIZE (PATTERN (A{:n}) DEFINE A AS x = 1)",
            {"n": "x"},
            "the value of :n is not a whole",
            ":n",
            None,
        ),
        ("MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS x = :l)", {"l": [1, 2]}, ":l is a list", ":l", None),
        ("MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS x = :l)", {}, "no value is given for :l", ":l", None),
    ],
)
def test_wrong_values_are_told_where_they_stand(text, params, problem, place, hint):
    error = refused(text, **params)
    assert error.problem.startswith(problem)
    assert (None if error.span is None else error.span.over(text)) == place
    assert hint is None or hint in str(error.hint)


@pytest.mark.parametrize("params", [[1], {":x": 1}, {1: 1}])
def test_what_is_no_mapping_of_names_is_refused(params):
    with pytest.raises(QueryError, match="params="):
        ensue.parse("A a", params=params)


EVENTS = pa.table({"t": [1, 2, 3], "kind": ["A", "B", "B"], "x": [5, 3, 9]})
QUERY = "SEQ(A a, B b) WHERE b.x > :low WITHIN :gap"
WRITTEN = "SEQ(A a, B b) WHERE b.x > 5 WITHIN 5"
COLUMNS = {"time": "t", "type": "kind"}
PARAMS = {"low": 5, "gap": 5}


def test_matches_have_the_ids_of_the_query_with_its_values():
    found = ensue.match(EVENTS, QUERY, params=PARAMS, **COLUMNS)
    assert found.equals(ensue.match(EVENTS, WRITTEN, **COLUMNS))
    assert found.num_rows == 1


def test_several_queries_share_parameters_and_each_need_not_use_all():
    found = ensue.match(EVENTS, [QUERY, "B b WHERE b.x > :low"], params=PARAMS, **COLUMNS)
    assert [table.num_rows for table in found.values()] == [1, 1]


def test_every_call_that_takes_a_text_takes_parameters():
    feeding = ensue.live(QUERY, schema=EVENTS.schema, params=PARAMS, **COLUMNS)
    assert feeding.feed(EVENTS).num_rows == 1
    assert ensue.explain(QUERY, params=PARAMS) == ensue.explain(WRITTEN)
    assert ensue.picture(QUERY, params=PARAMS) == ensue.picture(WRITTEN)
    measured = ensue.statistics(EVENTS, QUERY, params=PARAMS, **COLUMNS)
    assert measured == ensue.statistics(EVENTS, WRITTEN, **COLUMNS)
    (defined,) = ensue.define(f"EVENT Up AS {QUERY}", params=PARAMS)
    found = ensue.match(EVENTS, "Up u", definitions=[defined], options=ensue.OutputOptions(trace=True), **COLUMNS)
    text = f"EVENT Up AS {QUERY}; Up u"
    assert "Up" in str(ensue.trace(found, text, params=PARAMS))


def test_conditions_of_the_builder_take_parameters():
    made = ensue.pattern("a", "A").where("a.x > :low and a.n in :names", low=3, names=["x"])
    assert ensue.show(made).splitlines()[1:] == ["WHERE a.x > 3", "    and a.n in ('x')"]
    with pytest.raises(QueryError, match="no value is given for :low"):
        ensue.pattern("a", "A").where("a.x > :low", lw=3)


SQL = """
SELECT day, :label AS label FROM (SELECT * FROM prices WHERE n IN :names AND n IN ('z', :names))
MATCH_RECOGNIZE (
    ORDER BY day MEASURES LAST(day) AS day PATTERN (S UP{:least,}) DEFINE UP AS price > :step
)
WHERE day >= :low AND day::int > 0 LIMIT :n
"""
PRICES = pa.table({"day": [1, 2, 3], "price": [1.0, 2.0, 3.0], "n": ["x", "y", "x"]})
SQL_PARAMS = {"label": "it's", "names": ["x", "y"], "least": 1, "step": Decimal("1.5")}
SQL_PARAMS |= {"low": 3, "n": np.int64(2)}


def test_sql_takes_parameters_in_clauses_and_around_them():
    found = ensue.sql(SQL, tables={"prices": PRICES}, params=SQL_PARAMS)
    assert found.to_pylist() == [{"day": 3, "label": "it's"}]


@pytest.mark.parametrize("name", ["label", "step", "least"])
def test_a_missing_value_of_sql_is_told_where_it_stands(name):
    rest = {k: v for k, v in SQL_PARAMS.items() if k != name}
    with pytest.raises(QueryError) as error:
        ensue.sql(SQL, tables={"prices": PRICES}, params=rest)
    assert error.value.problem == f"no value is given for :{name}"
    assert error.value.span.over(SQL) == f":{name}"


def test_an_unused_value_of_sql_is_a_mistake():
    with pytest.raises(QueryError, match="no query here has the parameter :labl"):
        ensue.sql(SQL, tables={"prices": PRICES}, params={**SQL_PARAMS, "labl": 1})
