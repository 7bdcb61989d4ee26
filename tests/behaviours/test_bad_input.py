"""Events that are not as the call says."""

import warnings

import pyarrow as pa
import pytest

import ensue
from ensue.errors import EventError, QueryError

QUERY = "SEQ(A a, B b)"
EVENTS = pa.table({"at": [1, 2], "type": ["A", "B"], "x": [1, 2]})


def with_times(*times, types="AAB"):
    return pa.table({"at": list(times), "type": list(types), "k": [1, 1, 1]})


@pytest.mark.in_process("on Spark it shows in a task")
@pytest.mark.parametrize("bad", [None, float("nan")])
def test_an_event_without_time_is_an_error(runner, bad):
    with pytest.raises(EventError, match=r"1 of 3 events have no usable time.*row 1"):
        runner.match(with_times(1.0, bad, 3.0), QUERY, time="at", type="type")


@pytest.mark.in_process("on Spark it shows in a task")
@pytest.mark.parametrize("bad", [None, float("nan")])
def test_or_it_is_left_out_and_counted(runner, bad):
    with pytest.warns(UserWarning, match="1 events without usable time are left out"):
        found = runner.match(
            with_times(1.0, bad, 3.0), QUERY, time="at", type="type", options=ensue.StreamOptions(bad_events="drop")
        )
    assert found.num_rows == 1


@pytest.mark.everywhere
@pytest.mark.parametrize("query", [QUERY, "SEQ(A a, !C c, B b)", "SEQ(A a, B b) WHERE [k]"])
def test_an_event_without_time_that_no_part_of_the_query_names_is_in_no_match(runner, query):
    events = with_times(1.0, None, 3.0, types="AXB")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", "strict contiguity|the query has no")
        warnings.filterwarnings("ignore", "no event is of type")
        for bad_events in ("raise", "drop"):
            options = {"time": "at", "type": "type", "options": ensue.StreamOptions(bad_events=bad_events)}
            assert runner.match(events, query, **options).num_rows == 1


@pytest.mark.in_process("on Spark it shows in a task")
@pytest.mark.parametrize(
    ("query", "types"),
    [
        ("SEQ(A a, !X x, B b)", "AXB"),
        ("SEQ(A a, B b) WITHIN 5 EVENTS", "AXB"),
        ("SEQ(A a, B b) WHERE strict_contiguity(a, b) { 1 = 1 }", "AXB"),
        ("SEQ(A a, B b) WHERE partition_contiguity(a, b) { [k] }", "AXB"),
    ],
)
@pytest.mark.filterwarnings("ignore:no event is of type")
def test_it_is_an_error_where_it_could_forbid_a_match_or_its_place_counts(runner, query, types):
    with pytest.raises(EventError, match="1 of 3 events have no usable time"):
        runner.match(with_times(1.0, None, 3.0, types=types), query, time="at", type="type")


@pytest.mark.in_process("on Spark it shows in a task")
def test_what_has_neither_time_nor_type_is_an_error(runner):
    events = with_times(1.0, None, 3.0, types=["A", None, "B"])
    with pytest.raises(EventError, match="1 of 3 events have no usable time"):
        runner.match(events, QUERY, time="at", type="type")


def test_of_several_queries_each_says_which_events_matter():
    events = with_times(1.0, None, 3.0, types="AXB")
    found = ensue.match(events, [QUERY, "SEQ(B b)"], time="at", type="type")
    assert [t.num_rows for t in found.values()] == [1, 1]
    with pytest.raises(EventError, match="no usable time"):
        ensue.match(events, [QUERY, "SEQ(X x)"], time="at", type="type")


def test_of_a_hierarchy_all_levels_say_which_events_matter():
    hierarchy = "EVENT Both AS SEQ(A a, B b) WITHIN 5; SEQ(Both x) WITHIN 9"
    options = {"time": "at", "type": "type"}
    assert ensue.match(with_times(1.0, None, 3.0, types="AXB"), hierarchy, **options).num_rows == 1
    with pytest.raises(EventError, match="no usable time"):
        ensue.match(with_times(1.0, None, 3.0, types="AAB"), hierarchy, **options)


@pytest.mark.in_process("on Spark it shows in a task")
def test_an_event_that_ends_before_it_starts(runner):
    events = pa.table({"b": [1, 9], "e": [2, 3], "type": ["A", "B"]})
    with pytest.raises(EventError, match="ends before it starts"):
        runner.match(events, QUERY, time=("b", "e"), type="type")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time": "att", "type": "type"}, "no column 'att' for time=\n  hint: did you mean 'at'"),
        ({"time": "at", "type": "typ"}, "no column 'typ' for type="),
        ({"time": "at", "type": "type", "order": ["z"]}, "no column 'z' for order="),
        ({"time": "type", "type": "type"}, "is not an ISO time"),
        ({"time": ("at", "type"), "type": "type"}, "is not an ISO time"),
        ({"time": 3, "type": "type"}, "be a column name or a pair"),
        ({"time": ("at", "at", "at"), "type": "type"}, "be a column name or a pair"),
    ],
)
def test_columns_that_are_not_there_or_of_the_wrong_kind(arguments, message):
    with pytest.raises(EventError) as error:
        ensue.match(EVENTS, QUERY, **arguments)
    assert message in str(error.value)


@pytest.mark.parametrize("option", ["late_events", "bad_events"])
def test_options_of_unknown_values(option):
    with pytest.raises(EventError, match=f"{option} must be '[a-z]+' or '[a-z]+', not 'keep'"):
        ensue.StreamOptions(**{option: "keep"})


def test_types_that_are_numbers_are_named_by_their_digits(runner):
    events = pa.table({"at": [1, 2], "type": [1, 2]})
    found = runner.match(events, 'SEQ("1" a, "2" b)', time="at", type="type")
    assert found.num_rows == 1


def test_start_and_end_of_different_kinds(runner):
    events = pa.table({"b": [1], "e": [2.0], "type": ["A"]})
    with pytest.raises(EventError, match="different kinds"):
        runner.match(events, QUERY, time=("b", "e"), type="type")


@pytest.mark.everywhere
def test_no_events_no_matches(runner):
    found = runner.match(EVENTS.slice(0, 0), QUERY, time="at", type="type")
    assert found.num_rows == 0
    assert found.column_names == ["match_id", "start", "end", "a", "b"]


def test_no_events_and_a_key(runner):
    found = runner.match(EVENTS.slice(0, 0), QUERY + " WHERE [x]", time="at", type="type")
    assert found.num_rows == 0


def test_a_table_without_columns(runner):
    with pytest.raises(EventError, match="no column 'at'"):
        runner.match(pa.table({}), QUERY, time="at", type="type")


def test_a_type_that_does_not_occur_warns():
    with pytest.warns(UserWarning, match=r"no event is of type 'BB': did you mean 'B'\?"):
        ensue.match(EVENTS, "SEQ(A a, BB b)", time="at", type="type")


def test_types_that_occur_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ensue.match(EVENTS, QUERY, time="at", type="type")


@pytest.mark.filterwarnings("ignore:no event is of type")
def test_an_event_without_type_is_of_no_type(runner):
    events = pa.table({"at": [1, 2, 3], "type": ["A", None, "B"]})
    assert runner.match(events, QUERY, time="at", type="type").num_rows == 1
    query = "SEQ(A a, B b) WHERE strict_contiguity(a, b) { 1 = 1 }"
    assert runner.match(events, query, time="at", type="type").num_rows == 0


def test_a_query_that_is_no_text():
    with pytest.raises(QueryError, match="a query is a text"):
        ensue.match(EVENTS, 3, time="at", type="type")


@pytest.mark.parametrize("name", ["__ordinal", "__key_group", "__time", "__type", "__at"])
def test_a_column_with_a_name_of_ours_is_refused(runner, name):
    events = EVENTS.append_column(name, pa.array(["u", "v"]))
    with pytest.raises(EventError, match=f"a column '{name}', a name that Ensue uses"):
        runner.match(events, QUERY, time="at", type="type")


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("watermark", {"watermark": "10 seconds"}),
        ("late_events", {"options": ensue.StreamOptions(late_events="deliver")}),
        ("max_ahead", {"options": ensue.StreamOptions(max_ahead=None)}),
    ],
)
def test_what_only_streams_take_is_refused_for_a_table(name, option):
    events = pa.table({"at": [1, 2], "type": ["A", "B"]})
    with pytest.raises(EventError, match=rf"{name}=.* is only for streams(.|\n)*leave it out"):
        ensue.match(events, "SEQ(A a, B b)", time="at", type="type", **option)
