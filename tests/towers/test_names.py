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
        ensue.match(events, text, time="t", type="type", levels=["Other"])
    found = ensue.match(events, f"{text}; EMIT Other", time="t", type="type")
    assert {name: table.num_rows for name, table in found.items()} == {"Other": 1, "": 1}
