"""Where several names may be given, one may be given as it is."""

import pyarrow as pa
import pytest

import ensue

pytestmark = pytest.mark.stateless

EVENTS = pa.table({"t": [1, 1, 2], "kind": ["A", "B", "B"], "seq": [2, 1, 3], "x": [1, 2, 3]})
QUERY = "SEQ(A a, B b) WITHIN 5"
NAMES = {"time": "t", "type": "kind"}


def analyzed(**given):
    told = ensue.explain(QUERY, EVENTS, **given, analyze=True)
    return told.partition("time: ")[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda **given: ensue.explain(QUERY, EVENTS, **NAMES, **given),
        lambda **given: analyzed(**NAMES, **given),
        lambda **given: ensue.explain(f"EVENT X AS {QUERY}; X x", EVENTS, **NAMES, **given),
        lambda **given: ensue.picture(QUERY, EVENTS, **NAMES, **given),
        lambda **given: ensue.statistics(EVENTS, QUERY, **NAMES, **given),
        lambda **given: ensue.match(EVENTS, QUERY, **NAMES, **given),
        lambda **given: ensue.match(EVENTS, [QUERY], **NAMES, **given),
    ],
    ids=["explain", "analyze", "explain a hierarchy", "picture", "statistics", "match", "several"],
)
def test_one_name_of_an_order(call, monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    assert call(order="seq") == call(order=["seq"]) == call(order=iter(["seq"]))
    with pytest.raises(ensue.EventError, match="no column 'sequence'"):
        call(order="sequence")
    with pytest.raises(ensue.EventError, match="order=5 must be a name or several names"):
        call(order=5)


def test_one_rule_to_leave_out():
    assert ensue.explain(QUERY, options=ensue.PlannerOptions(off="window")) == ensue.explain(
        QUERY, options=ensue.PlannerOptions(off=["window"])
    )


def test_one_level():
    hierarchy = f"EVENT X AS {QUERY}; EVENT Y AS SEQ(X x, B b) WITHIN 9; Y y"
    found = ensue.match(EVENTS, hierarchy, **NAMES, options=ensue.OutputOptions(levels="X"))
    assert list(found) == list(ensue.match(EVENTS, hierarchy, **NAMES, options=ensue.OutputOptions(levels=["X"])))


def test_one_field_that_an_operator_reads():
    def q(a, b):
        return getattr(a, "place") == getattr(b, "place")  # noqa: B009

    one = ensue.operator("beside", q=q, reads="place")
    assert one.reads == ensue.operator("beside", q=q, reads=["place"]).reads


def near(**given):
    return ensue.operator("near", q=lambda a, b: b.x - a.x < 5, **given)


def test_one_operator(monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    query = "near(A a, B b) r WITHIN 5"
    assert ensue.match(EVENTS, query, **NAMES, definitions=near()).num_rows == 2
    with pytest.raises(ensue.EventError, match="definitions= takes definitions and operators, not a str"):
        ensue.match(EVENTS, query, **NAMES, definitions="near")


def test_operators_that_can_be_looked_through_once_serve_every_query(monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    query = "near(A a, B b) r WITHIN 5"
    found = ensue.match(EVENTS, [query, query], **NAMES, definitions=iter([near()]))
    assert [table.num_rows for table in found.values()] == [2, 2]
