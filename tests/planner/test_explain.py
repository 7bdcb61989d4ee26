"""What explain says beyond the golden plans."""

import pyarrow as pa
import pytest

import ensue
from ensue.planner.explain.plan_description import MAX_STATES, describe_plan
from ensue.planner.explain.plan_node import format_plan


def test_a_long_list_of_states_is_cut(case):
    atoms = ", ".join(f"A a{n}" for n in range(8))
    text = format_plan(describe_plan(case(f"AND({atoms})").plan))
    assert text.count("\n  state ") == MAX_STATES
    assert f"and {2**8 - MAX_STATES} more states" in text


def test_names_that_need_quotes_have_them(case):
    text = format_plan(describe_plan(case('SEQ("my type" "a b", B b) WHERE "a b".x < b.x').plan))
    assert '"my type" "a b": kept on a stack' in text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SEQ(A a, B b) WHERE [k, s]", "partition  [k, s]"),
        ("SEQ(A a, B b) WITHIN 3 EVENTS", "window     3 EVENTS, pushed into the scan"),
        ("SEQ(A a, B b)", "window     none"),
        ("EVENT Rise AS SEQ(A a, B b)", "event      Rise"),
        ("SEQ(A a, B b) HAVING a.x > 1", "  HAVING a.x > 1"),
        ("SEQ(A{1,2} a[], B b)", "      at most 2 events in a[]"),
        ("SEQ(A{3} a[], B b)", "      at least 3 events in a[]"),
    ],
)
def test_a_line_of_the_plan(case, text, line):
    assert line in format_plan(describe_plan(case(text).plan)).splitlines()


def test_with_events_the_kinds_are_theirs():
    events = pa.table({"t": [1, 2], "kind": ["A", "B"], "x": [1, 2]})
    query = "SEQ(A a, B b) WHERE a.x < b.x WITHIN 5"
    told = ensue.explain(query, events, time="t", type="kind")
    assert "the kinds of fields are assumed" not in told
    assert ensue.explain(query).startswith(told)
    assert ensue.picture(query, events, time="t", type="kind").startswith("<svg")


SEVERAL = {
    "rises": "SEQ(A a, B b) WHERE [k] and a.x < b.x WITHIN 5",
    "how much": "SEQ(A a, B b) WHERE [k] and a.x < b.x WITHIN 5 RETURN b.x - a.x AS much",
    "high": "B b WHERE b.x > 3",
}
OVER = pa.table({"t": [1, 2, 3, 4], "kind": list("ABAB"), "k": [1, 1, 1, 1], "x": [1, 2, 3, 4]})


def test_several_queries_are_explained_with_what_they_share():
    told = ensue.explain(SEVERAL, OVER, time="t", type="kind", analyze=True)
    head, *plans = told.split("\n\n--- ")
    assert head.splitlines() == [
        "3 queries, one scan of the events",
        "  engines  2; one for rises, how much, which find the same",
        "  tests    3 of single events, used 3 times",
    ]
    found = ensue.match(OVER, SEVERAL, time="t", type="kind")
    for (name, query), plan in zip(SEVERAL.items(), plans, strict=True):
        alone = ensue.explain(query, OVER, time="t", type="kind")
        assert plan.startswith(f"{name} ---\n{alone}\n")
        assert f"matches in the result: {found[name].num_rows}" in plan


def test_queries_of_several_kinds_are_explained_in_one_call():
    hot = "EVENT Hot AS SEQ(A a, B b) WHERE [k] WITHIN 5 RETURN a.k AS k; "
    queries = {"twice": hot + "SEQ(Hot p, Hot q) WITHIN 9", "again": hot + "SEQ(Hot p, B b) WITHIN 9", "plain": "A a"}
    told = ensue.explain(queries)
    for title in ("plain", "queries twice and again", "the query twice", "the query again", "Hot"):
        assert told.count(f"--- {title} ---") == 1
    assert told.count("EVENT Hot") == 0
    drawn = ensue.picture(queries)
    assert "queries twice and again" in drawn
    assert "the query again" in drawn


def test_without_events_what_one_query_shows_of_a_field_is_known_to_all():
    queries = ["SEQ(A a, B b) WHERE a.x != b.x", "SEQ(A a, B b) WHERE a.x = 'p' WITHIN 5 minutes"]
    for several in (queries, queries[::-1]):
        told = ensue.explain(several)
        assert "a.x != b.x" in told
        assert "a.x = 'p'" in told
    with pytest.raises(ensue.QueryError, match="query 1: "):
        ensue.explain([queries[0], "SEQ(A a, B a)"])


def test_a_call_is_planned_once(monkeypatch):
    """Explaining after matching takes the plan of the same operators from the cache."""
    from ensue.runtime import workload

    plans = []
    plan = workload.plan_operators
    monkeypatch.setattr(workload, "plan_operators", lambda job: plans.append(job) or plan(job))
    query = "SEQ(A a, B b, A planned_once) WITHIN 5"
    for _ in range(3):
        ensue.explain(query, OVER, time="t", type="kind", analyze=True, kernel=True)
    assert len(plans) == 1


def test_subscriptions_are_run_too():
    alarms = ensue.Subscriptions(time="t", type="kind")
    alarms.add("rises", SEVERAL["rises"], language="patterns")
    told = ensue.explain(alarms, OVER, analyze=True)
    assert told.endswith(f"\n\n{ensue.match(OVER, alarms).num_rows} matches in 4 events")
