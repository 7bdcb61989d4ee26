"""Types of events that nobody defines and that do not come in."""

import pyarrow as pa
import pytest

import ensue

TEXT = "EVENT Pair AS SEQ(A a, B b); EVENT Two AS SEQ(Pair a, Pair b); SEQ(Pare x, Two y)"


def test_an_unknown_type_is_an_error_where_the_tables_are_named():
    table = pa.table({"t": [1]})
    with pytest.raises(ensue.QueryError, match="unknown event type 'Pare'") as caught:
        ensue.match({"A": table, "B": table}, TEXT, time="t")
    assert "did you mean 'Pair'?" in str(caught.value)
    wrong = TEXT.replace("SEQ(A a", "SEQ(AA a").replace("Pare x", "Pair x")
    with pytest.raises(ensue.QueryError, match=r"in the definition of Pair: unknown .* 'AA'"):
        ensue.match({"A": table, "B": table}, wrong, time="t")


def test_a_type_that_does_not_come_is_warned_of():
    events = pa.table({"t": [1, 2], "type": ["A", "B"]})
    with pytest.warns(UserWarning, match="no event is of type 'Pare': did you mean 'Pair'"):
        ensue.match(events, TEXT, time="t", type="type")


def test_a_level_that_nobody_uses_is_emitted_where_it_is_asked_for():
    events = pa.table({"t": [1, 2], "type": ["A", "B"]})
    text = "EVENT Pair AS SEQ(A a, B b); EVENT Other AS SEQ(A a, B b); SEQ(Pair x)"
    with pytest.raises(ensue.QueryError, match="EMIT Other"):
        ensue.match(events, text, time="t", type="type", options=ensue.OutputOptions(levels=["Other"]))
    found = ensue.match(events, f"{text}; EMIT Other", time="t", type="type")
    assert {name: table.num_rows for name, table in found.items()} == {"Other": 1, "": 1}


# ------------------------------------------------------------------ names that are ours

EVENTS = pa.table({"t": [1, 2, 3], "type": list("ABC"), "x": [1.5, 2.5, 3.5]})


@pytest.fixture
def uncompiled(monkeypatch):
    """What a match holds is the same, and compiling takes seconds."""
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


@pytest.mark.parametrize(
    "definition", ["SEQ(A a, B b) RETURN a.x AS match_id", "SEQ(A match_id, B b)"], ids=["returned", "a variable"]
)
@pytest.mark.parametrize("levels", [None, "all"])
def test_the_match_id_of_a_definition_is_its_own(definition, levels):
    with pytest.raises(ensue.QueryError, match="cannot be called 'match_id' here") as caught:
        ensue.match(
            EVENTS, f"EVENT P AS {definition}; SEQ(P x, C c)",
            time="t", type="type", options=ensue.OutputOptions(levels=levels),
        )  # fmt: skip
    assert "^^^" in str(caught.value)
    assert "hint: " in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "EVENT P AS SEQ(A a, B b) RETURN a.x AS members; SEQ(P x, C c)",
        "EVENT P AS SEQ(A members, B b); SEQ(P x, C c)",
        "EVENT P AS SEQ(A a, B b); SEQ(P x, C c) RETURN c.x AS members",
    ],
)
@pytest.mark.usefixtures("uncompiled")
def test_members_are_those_of_a_trace(text):
    found = ensue.match(EVENTS, text, time="t", type="type")  # without a trace it is a name
    assert found.num_rows == 1
    with pytest.raises(ensue.QueryError, match="cannot be called 'members' here") as caught:
        ensue.match(EVENTS, text, time="t", type="type", options=ensue.OutputOptions(trace=True))
    assert "^^^" in str(caught.value)


@pytest.mark.usefixtures("uncompiled")
def test_the_query_on_top_may_put_something_in_the_place_of_its_id():
    text = "EVENT P AS SEQ(A a, B b); SEQ(P x, C c) RETURN c.x AS match_id"
    found = ensue.match(EVENTS, text, time="t", type="type")
    assert found.column("match_id").to_pylist() == [3.5]
