"""CASE, CAST and the comparisons of SQL that know NULL, on every runner."""

import pyarrow as pa
import pytest

import ensue
from ensue.errors import QueryError

pytestmark = pytest.mark.stateless

EVENTS = pa.table(
    {
        "t": range(6),
        "type": list("ABABAB"),
        "x": pa.array([1, 1, None, None, 3, 4], pa.int64()),
        "f": [0.5, 1.0, None, -2.5, 3.0, 1e300],
        "s": ["7", "x", None, " 8.9", "true", "2026-01-31"],
        "yes": [True, False, None, True, False, None],
    }
)


def pairs(runner, condition: str) -> list[tuple[int, int]]:
    query = f"SEQ(A a, B b) WHERE {condition} RETURN a.t AS a, b.t AS b"
    found = runner.match(EVENTS, query, time="t", type="type").to_pylist()
    return sorted((row["a"], row["b"]) for row in found)


def values(expression: str) -> list[object]:
    found = ensue.match(EVENTS, f"A a RETURN {expression} AS v", time="t", type="type")
    return found.column("v").to_pylist()


@pytest.mark.everywhere(slow=True)
def test_null_safe_comparison_between_events(runner):
    assert pairs(runner, "a.x IS NOT DISTINCT FROM b.x") == [(0, 1), (2, 3)]
    assert pairs(runner, "a.x IS DISTINCT FROM b.f") == [(0, 3), (0, 5), (2, 3), (2, 5), (4, 5)]
    assert pairs(runner, "nullif(a.x, b.x) IS NULL") == [(0, 1), (2, 3), (2, 5)]


@pytest.mark.everywhere(slow=True)
def test_a_case_between_events(runner):
    chosen = "CASE WHEN a.x = b.x THEN 1 WHEN a.x < b.x THEN b.f END"
    assert pairs(runner, f"{chosen} >= 1") == [(0, 1), (0, 5), (4, 5)]
    assert pairs(runner, f"{chosen} IS NULL") == [(0, 3), (2, 3), (2, 5)]
    assert pairs(runner, "if(a.yes, a.t, 9) + b.t < 6") == [(0, 1), (0, 3), (0, 5)]


def test_the_simple_case_compares():
    assert values("CASE a.x WHEN 1 THEN 'one' WHEN 3 THEN 'three' ELSE '?' END") == [
        "one", "?", "three",
    ]  # fmt: skip


def test_truth_is_known():
    assert values("a.yes IS TRUE") == [True, False, False]
    assert values("a.yes IS NOT TRUE") == [False, True, True]
    assert values("a.yes IS FALSE") == [False, False, True]
    assert values("a.yes IS NOT FALSE") == [True, True, False]


def test_what_cannot_be_cast_is_null():
    assert values("CAST(a.s AS int)") == [7, None, None]
    assert values("TRY_CAST(a.s AS boolean)") == [None, None, True]
    assert values("CAST(a.f AS bigint)") == [0, None, 3]
    assert values("CAST(a.f / 8 AS decimal(10, 2))") == [0.06, None, 0.38]
    assert values("CAST(a.f AS varchar)") == ["0.5", None, "3.0"]


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("CASE WHEN a.x THEN 1 END = 1", "case takes a condition, and this is an integer"),
        ("CASE WHEN a.yes THEN 1 ELSE 'x' END = 1", "values of one kind"),
        ("CAST(a.x AS colour) = 1", "unknown type 'colour'"),
        ("date_trunc('eon', a.t) = a.t", "'eon' is not a unit of time"),
        ("regexp_matches(a.s, '(x')", "is not a valid regular expression"),
        ("a.x IS DISTINCT FROM a.s", "cannot be compared"),
    ],
)
def test_mistakes_are_explained(condition, problem):
    with pytest.raises(QueryError, match=problem):
        ensue.match(EVENTS, f"A a WHERE {condition}", time="t", type="type")


def test_a_case_between_events_is_compiled():
    query = "SEQ(A a, B b) WHERE CASE WHEN a.x < b.x THEN a.f ELSE b.x END IS DISTINCT FROM b.f"
    assert "finished matches" not in ensue.explain(query, EVENTS, time="t", type="type")
