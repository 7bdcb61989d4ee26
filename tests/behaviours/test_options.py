"""The option objects and definitions of a call: which go where, and what is said about the others."""

import pyarrow as pa
import pytest

import ensue
from ensue.errors import EventError, QueryError

EVENTS = pa.table({"t": [1, 2], "type": ["A", "B"]})
QUERY = "SEQ(A a, B b) WITHIN 5"
COLUMNS = {"time": "t", "type": "type"}
SCHEMA = EVENTS.schema


def test_one_or_several():
    flat, limits = ensue.OutputOptions(flat=True), ensue.Limits(max_matches=1)
    for options in (flat, [flat], (flat, limits), [limits, flat]):
        assert "a.t" in ensue.match(EVENTS, QUERY, **COLUMNS, options=options).column_names
    assert "a" in ensue.match(EVENTS, QUERY, **COLUMNS, options=[]).column_names


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (3, "not an int"),
        ({"memory": "1 GB"}, "not a dict"),
        ([ensue.Limits(), None], "not a NoneType"),
        (ensue.Limits, "not a type"),
        ([ensue.Limits(memory="1 GB"), ensue.Limits(max_matches=3)], "has ensue.Limits twice"),
    ],
)
def test_what_is_no_option_says_how_to_write_it(options, problem):
    with pytest.raises(EventError, match=problem) as error:
        ensue.match(EVENTS, QUERY, **COLUMNS, options=options)
    assert "hint: " in str(error.value)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: ensue.picture(QUERY, options=ensue.Limits()), "picture takes ensue.PlannerOptions, not ensue.Limits"),
        (lambda: ensue.explain(QUERY, options=ensue.OutputOptions()), "not ensue.OutputOptions"),
        (lambda: ensue.sql("SELECT 1", options=ensue.PlannerOptions()), "takes ensue.Limits or ensue.StreamOptions"),
        (lambda: ensue.sql("SELECT 1", options=ensue.StreamOptions(bad_events="drop")), "SQL takes key_groups="),
        (lambda: live(ensue.Limits(shed="1 second")), r"Limits\(shed=...\) is for Spark streams"),
        (lambda: live(ensue.StreamOptions(key_groups=3)), "is for Spark streams"),
        (lambda: live(ensue.StreamOptions(max_ahead=None)), "is for Spark streams"),
    ],
)
def test_an_option_that_does_not_go_with_a_call(call, problem):
    with pytest.raises((EventError, QueryError), match=problem):
        call()


def live(options: object) -> object:
    return ensue.live(QUERY, schema=SCHEMA, **COLUMNS, options=options)


def test_an_old_parameter_is_none():
    with pytest.raises(TypeError, match="unexpected keyword argument 'memory'"):
        ensue.match(EVENTS, QUERY, **COLUMNS, memory="1 GB")


def test_archives_that_are_none():
    with pytest.raises(EventError, match="archives= is a dict of archives"):
        ensue.Archives([3])


def test_a_subscription_set_has_its_own_columns():
    fleet = ensue.Subscriptions(time="t", type="type")
    with pytest.raises(EventError, match=r"hint: ensue.Subscriptions\(location=\('x', 'y'\)"):
        ensue.match(EVENTS, fleet, location=ensue.Location("x", "y"))


# ------------------------------------------------------------------------------ definitions

NEAR = ensue.operator("near", q=lambda a, b, most: b.start - a.end <= most)
PAIR = ensue.define("EVENT Pair AS near(A a, B b, 3) r WITHIN 5", definitions=NEAR)


def test_definitions_are_known_where_they_are_passed():
    for known in (PAIR, [PAIR], [NEAR, *PAIR], (PAIR, [NEAR]), iter(PAIR)):
        assert ensue.match(EVENTS, "Pair p", **COLUMNS, definitions=known).num_rows == 1
    assert ensue.match(EVENTS, "near(A a, B b, 3) r", **COLUMNS, definitions=NEAR).num_rows == 1
    assert ensue.live("Pair p WITHIN 9", schema=SCHEMA, **COLUMNS, definitions=PAIR).feed(EVENTS).num_rows == 1
    for call in (ensue.explain, ensue.picture):
        assert "near" in call("Pair p", EVENTS, **COLUMNS, definitions=PAIR)
    with pytest.raises(QueryError, match="unknown operator 'near'"):
        ensue.match(EVENTS, "near(A a, B b, 3) r", **COLUMNS)


def test_a_query_that_is_parsed_may_be_given_definitions():
    for query in (ensue.parse("Pair p"), ensue.pattern("p", "Pair")):
        assert ensue.match(EVENTS, query, **COLUMNS, definitions=PAIR).num_rows == 1


def test_definitions_may_use_others():
    twice = ensue.define("EVENT Twice AS SEQ(Pair p, C c) WITHIN 9", definitions=[PAIR, NEAR])
    assert [definition.name for definition in twice] == ["Pair", "Twice"]
    events = pa.table({"t": [1, 2, 3], "type": list("ABC")})
    assert ensue.match(events, "Twice t", **COLUMNS, definitions=twice).num_rows == 1


def test_what_is_no_definition_says_how_to_write_it():
    for wrong in ("EVENT Pair AS SEQ(A a, B b)", 3, [NEAR, None]):
        with pytest.raises(EventError, match=r"hint: definitions=\[ensue.define"):
            ensue.match(EVENTS, QUERY, **COLUMNS, definitions=wrong)
