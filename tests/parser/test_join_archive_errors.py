"""What is wrong with a JOIN ARCHIVE, where, and the way out."""

import pytest

import ensue
from ensue.analyzer.join_checks import check_archive_join
from ensue.errors import QueryError
from ensue.parser.pattern_parser import parse, parse_statement
from ensue.schema import EventType, Schema, ValueKind, build_table_schema

JOIN = "A a JOIN ARCHIVE old B b "
WITH_RANGE = f"{JOIN}RANGE 5 BEFORE START "
ANTI = "A a ANTI JOIN ARCHIVE old B b RANGE 5 BEFORE START"


def error_of(text):
    with pytest.raises(QueryError) as caught:
        ensue.parse(text)
    return caught.value


SYNTAX = [
    # text, what is underlined, problem, hint
    (JOIN, "old", "JOIN ARCHIVE old has no RANGE", "as in RANGE 30 days BEFORE START"),
    (JOIN + "ON [k]", "ON", "found 'ON'", "a RANGE comes before ON"),
    (JOIN + "LAST 1", "LAST", "found 'LAST'", "a RANGE comes before LAST"),
    (JOIN + "RANGE", "RANGE", "found 'RANGE'", "say how far back: RANGE 30 days BEFORE START"),
    (JOIN + "RANGE '5 days' BEFORE START", "RANGE", "found 'RANGE'", "say how far back"),
    (JOIN + "RANGE 5 days", "", "expected BEFORE", "RANGE 30 days BEFORE START, or BEFORE END"),
    (JOIN + "RANGE 5 BEFORE NOW", "NOW", "expected START or END", "before the live match begins"),
    (JOIN + "RANGE 5 months BEFORE END", "months", "a unit of time", "differ in length"),
    (JOIN + "RANGE BETWEEN 5 s TO 1 s", "TO", "expected AND", "RANGE BETWEEN 30 days AND 1 day"),
    (WITH_RANGE + "ON [k] LAST 1", "LAST", "found 'LAST'", "LAST follows RANGE"),
    (WITH_RANGE + "WHERE b.x = 1", "b.x", "the other side", "belong in ON"),
    (WITH_RANGE + "LAST", "", "a number, found the end", ""),
    ("A a JOIN old B b", "JOIN", "found 'JOIN'", "is written JOIN ARCHIVE name pattern"),
    ("A a LEFT OUTER JOIN ARCHIVE old B b", "LEFT", "found 'LEFT'", "LEFT JOIN ARCHIVE ..."),
    ("SEQ(A a) RIGHT JOIN ARCHIVE old B b", "RIGHT", "found", "or ANTI JOIN ARCHIVE"),
    ("A a JOIN ARCHIVE old", "", "an event type", "a pattern follows the archive's name"),
    ("A a RETURN a.x JOIN ARCHIVE old B b", "old", "has no RANGE", "RANGE 30 days"),
    ("A a RANGE 5 BEFORE START", "RANGE", "found 'RANGE'", "RANGE belongs to JOIN ARCHIVE"),
]

RANGES = [
    (JOIN + "RANGE 5 EVENTS BEFORE END", "5 EVENTS", "not a number of events", "LAST 5"),
    (JOIN + "RANGE 0 BEFORE START", "0", "lengths must be positive", "as in RANGE 30 days"),
    (JOIN + "RANGE -3 days BEFORE END", "-3 days", "be positive", "as in RANGE 30 days"),
    (JOIN + "RANGE BETWEEN 5 AND 0 BEFORE END", "0", "be positive", "leave BETWEEN ... AND out"),
    (
        JOIN + "RANGE BETWEEN 1 day AND 30 days BEFORE START",
        "RANGE BETWEEN 1 day AND 30 days BEFORE START",
        "the RANGE is empty",
        "the far end comes first: RANGE BETWEEN 30 days AND 1 day",
    ),
    (
        JOIN + "RANGE BETWEEN 5 AND 5 BEFORE END",
        "RANGE BETWEEN 5 AND 5 BEFORE END",
        "the RANGE is empty",
        "the far end comes first",
    ),
    (
        JOIN + "RANGE BETWEEN 5 days AND 1 BEFORE END",
        "RANGE BETWEEN 5 days AND 1 BEFORE END",
        "one end of the RANGE has a unit of time",
        "write both the same way",
    ),
    (WITH_RANGE + "LAST 0", "LAST 0", "LAST must be at least 1", "LAST 1 is the latest"),
    (WITH_RANGE + "LAST -2", "LAST -2", "LAST must be at least 1", "LAST 1 is the latest"),
    (WITH_RANGE + "LAST 1.5", "1.5", "a whole number", ""),
]

VARIABLES = [
    ("A a JOIN ARCHIVE old B a RANGE 5 BEFORE START", "B a", "'a' is a variable of the live", "a2"),
    (
        WITH_RANGE + "JOIN ARCHIVE older C b RANGE 5 BEFORE START",
        "C b",
        "'b' is a variable of JOIN ARCHIVE old already",
        "b2",
    ),
    (
        "SEQ(A a, !N n, B b) JOIN ARCHIVE old SEQ(C c, !D n, E e) RANGE 5 BEFORE START",
        "D n",
        "'n' is a variable of the live pattern already",
        "n2",
    ),
    (
        "A a WHERE b.x = 1 JOIN ARCHIVE old B b RANGE 5 BEFORE START",
        "b.x",
        "'b' belongs to the other side",
        "belong in ON",
    ),
    (
        "A a JOIN ARCHIVE old B b WHERE b.x = a.x RANGE 5 BEFORE START",
        "a.x",
        "'a' belongs to the other side",
        "belong in ON",
    ),
    (WITH_RANGE + "ON c.x = a.x", "c.x", "unknown variable 'c'", "known here: a, b"),
    (WITH_RANGE + "RETURN c.x", "c.x", "unknown variable 'c'", "known here: a, b"),
    (
        "A a JOIN ARCHIVE old SEQ(B b, !N n, C c) RANGE 5 BEFORE START ON n.x = a.x",
        "n.x",
        "n is negated: a match has no such event to use in ON",
        "the WHERE of its side",
    ),
    (
        "SEQ(A a, !N n, B b) JOIN ARCHIVE old C c RANGE 5 BEFORE START ON n.x = c.x",
        "n.x",
        "n is negated",
        "the WHERE of its side",
    ),
    (
        "A a JOIN ARCHIVE old B+ b[] RANGE 5 BEFORE START ON b[i].x > a.x",
        "b[i].x",
        "a running position in ON",
        "use [i] only in the WHERE of its side",
    ),
    (
        "A+ a[] JOIN ARCHIVE old B b RANGE 5 BEFORE START ON avg(a[..i-1].x) > b.x",
        "avg(a[..i-1].x)",
        "a running position in ON",
        "the WHERE of its side",
    ),
    ("A a JOIN ARCHIVE old B+ b[] RANGE 5 BEFORE START ON b.x > a.x", "b.x", "b stands for several events", "avg(b.x)"),
    (WITH_RANGE + "ON b = a", "b", "b is a whole event", "b.price"),
    (WITH_RANGE + "ON [k] or a.x = 1", "[k]", "must be a separate condition in WHERE or ON", ""),
    (
        WITH_RANGE + "ON c.x = 1 JOIN ARCHIVE older C c RANGE 5 BEFORE START",
        "c.x",
        "'c' belongs to a later JOIN ARCHIVE (older)",
        "move the condition to its ON",
    ),
    (
        f"{ANTI} RETURN a.x, b.y",
        "b.y",
        "'b' belongs to ANTI JOIN ARCHIVE old: a row has no such event",
        "JOIN or LEFT JOIN ARCHIVE return archived matches",
    ),
    (f"{ANTI} HAVING b.y > 1", "b.y", "'b' belongs to ANTI JOIN ARCHIVE old", "without an archived one"),
    (
        f"{ANTI} JOIN ARCHIVE old C c RANGE 5 BEFORE START ON b.x = c.x",
        "b.x",
        "'b' belongs to ANTI JOIN ARCHIVE old",
        "without an archived one",
    ),
]

ANSWERS = [
    (WITH_RANGE + "RETURN a.x, b.x", "b.x", "two columns are called 'x'", "AS"),
    (WITH_RANGE + "RETURN COUNT(*) AS n", "COUNT(*)", "COUNT(*) with JOIN ARCHIVE", "count the rows"),
    (WITH_RANGE + "RETURN EXISTS", "EXISTS", "EXISTS with JOIN ARCHIVE is not supported yet", "ANTI"),
    (WITH_RANGE + "HAVING COUNT(*) > 1", "COUNT(*)", "is not supported yet", "count the rows"),
    (WITH_RANGE + "LIMIT 0", "LIMIT 0", "LIMIT must be at least 1", "every row"),
    (
        "A a JOIN ARCHIVE old SEQ(B b, !N n) RANGE 5 BEFORE START",
        "!N n",
        "a negation at the end needs a window",
        "add WITHIN",
    ),
    (
        "A a JOIN ARCHIVE old SEQ(B b, !N n, C c) AFTER MATCH SKIP TO LAST n RANGE 5 BEFORE END",
        "n",
        "'n' is negated",
        "known here: b, c",
    ),
    (
        "EVENT X AS A a; X x JOIN ARCHIVE old B b RANGE 5 BEFORE START",
        "old",
        "JOIN ARCHIVE together with definitions is not supported yet",
        "write the matches of the definitions to a table first",
    ),
    (
        "EVENT X AS A a JOIN ARCHIVE old B b RANGE 5 BEFORE START; SEQ(X x, Y y)",
        "old",
        "JOIN ARCHIVE together with definitions is not supported yet",
        "",
    ),
]


@pytest.mark.parametrize(("text", "underlined", "problem", "hint"), SYNTAX + RANGES + VARIABLES + ANSWERS)
def test_an_error_names_the_place_and_the_way_out(text, underlined, problem, hint):
    error = error_of(text)
    assert problem in error.problem
    assert hint in (error.hint or "")
    assert error.span.over(error.text) == underlined
    assert error.text == text


def test_a_defined_event_is_refused_on_either_side():
    (hot,) = ensue.define("EVENT Hot AS SEQ(T a, T b) WITHIN 5")
    for text in ("Hot h JOIN ARCHIVE old B b RANGE 5 BEFORE START", "A a JOIN ARCHIVE old Hot h RANGE 5 BEFORE START"):
        with pytest.raises(QueryError, match="'Hot' is a defined event, and JOIN ARCHIVE") as caught:
            ensue.parse(text, definitions=[hot])
        assert caught.value.span.over(text) == "Hot h"


def test_where_one_stream_is_meant_a_join_is_refused():
    with pytest.raises(QueryError, match="JOIN ARCHIVE is not supported here yet"):
        parse(WITH_RANGE)


# ------------------------------------------------------------------------------- against schemas

FIELDS = {"t": ValueKind.TIMESTAMP, "k": ValueKind.INTEGER, "x": ValueKind.FLOAT, "s": ValueKind.STRING}
CLOCK = build_table_schema(FIELDS | {"nested": ValueKind.OTHER}, time="t")
OTHER = build_table_schema(
    FIELDS | {"k": ValueKind.STRING, "nested": ValueKind.OTHER, "more": ValueKind.FLOAT}, time="t"
)
COUNTER = build_table_schema(FIELDS | {"t": ValueKind.INTEGER}, time="t")
DAYS = "E a JOIN ARCHIVE old E b RANGE 5 days BEFORE START "


def check_error(text, live=CLOCK, old=CLOCK, **more):
    with pytest.raises(QueryError) as caught:
        check_archive_join(parse_statement(text), live, {"old": old}, **more)
    return caught.value


@pytest.mark.parametrize(
    ("text", "old", "underlined", "problem", "hint"),
    [
        (DAYS + "ON [y]", CLOCK, "y", "unknown field 'y' of event a (E)", "known here: t, k, x, s"),
        (DAYS + "ON [more]", OTHER, "more", "unknown field 'more' of event a (E)", "known here"),
        (DAYS + "ON b.mor = a.x", OTHER, "b.mor", "unknown field 'mor' of event b", "'more'"),
        (DAYS + "RETURN b.z", CLOCK, "b.z", "unknown field 'z' of event b (E)", "known here"),
        (
            DAYS + "ON [k]",
            OTHER,
            "k",
            "[k] is integer in a but string in b of archive 'old'",
            "convert the columns to one type first",
        ),
        (DAYS + "ON [nested]", OTHER, "nested", "a nested or binary value", "a plain value"),
        (DAYS + "ON b.k = a.k", OTHER, "b.k = a.k", "a string cannot be compared with an integer", ""),
        (DAYS + "ON a.x + b.x", CLOCK, "a.x + b.x", "ON needs a condition", "compare it"),
        (DAYS + "HAVING b.x", CLOCK, "b.x", "HAVING needs a condition", "compare it"),
        (DAYS + "RETURN b.s - a.x AS d", CLOCK, "b.s - a.x", "'-' cannot be combined with a string", ""),
        (
            "E a JOIN ARCHIVE old E b WHERE b.y = 1 RANGE 5 days BEFORE START",
            CLOCK,
            "b.y",
            "unknown field 'y' of event b",
            "known here",
        ),
        (
            "E a JOIN ARCHIVE old SEQ(E b, E c) WITHIN 5 RANGE 5 days BEFORE START",
            CLOCK,
            "5",
            "WITHIN 5 of what?",
            "WITHIN 5 seconds",
        ),
        (
            "E a JOIN ARCHIVE old E b RANGE 5 BEFORE START",
            CLOCK,
            "5",
            "RANGE 5 of what? The time column t holds timestamps",
            "or RANGE 5 days?",
        ),
        ("E a JOIN ARCHIVE old E b RANGE BETWEEN 5 AND 3 BEFORE START", CLOCK, "5", "RANGE 5 of what?", ""),
        (
            DAYS,
            COUNTER,
            "old",
            "have a time of kind timestamp (t), those of archive 'old' one of kind integer (t)",
            "convert the time columns to one type first",
        ),
        (
            "E a JOIN ARCHIVE odl E b RANGE 5 days BEFORE START",
            CLOCK,
            "odl",
            "unknown archive 'odl'",
            "did you mean 'old'?",
        ),
    ],
)
def test_what_does_not_fit_the_events(text, old, underlined, problem, hint):
    error = check_error(text, old=old)
    assert problem in error.problem
    assert hint in (error.hint or "")
    assert error.span.over(text) == underlined


def test_numbers_have_no_unit():
    error = check_error(DAYS, live=COUNTER, old=COUNTER)
    assert "the time column t holds numbers, which have no unit" in error.problem
    assert "RANGE 300" in error.hint


def test_without_any_archive_the_call_is_shown():
    with pytest.raises(QueryError) as caught:
        check_archive_join(parse_statement(DAYS), CLOCK, {})
    assert caught.value.hint == "pass archives={'old': ensue.archive(...)}"


def test_a_stream_needs_a_window_on_the_live_side_only():
    text = DAYS.replace("E a", "SEQ(E a, E c)")
    error = check_error(text, streaming=True)
    assert "would have to store every event" in error.problem
    assert error.span.over(text) == "SEQ(E a, E c)"
    check_archive_join(parse_statement(DAYS), CLOCK, {"old": CLOCK}, streaming=True)  # one event
    windowed = text.replace("E c)", "E c) WITHIN 5 minutes")
    check_archive_join(parse_statement(windowed), CLOCK, {"old": CLOCK}, streaming=True)


def test_unknown_types_are_those_of_their_side():
    tables = Schema({"P": EventType("P", FIELDS)}, "t", "t", ValueKind.TIMESTAMP)
    text = "E a JOIN ARCHIVE old Pass b RANGE 5 days BEFORE START"
    error = check_error(text, old=tables)
    assert (error.problem, error.hint) == ("unknown event type 'Pass'", "known here: P")


def test_start_and_end_are_the_time_columns_of_each_side():
    spans = build_table_schema(FIELDS | {"b": ValueKind.TIMESTAMP, "e": ValueKind.TIMESTAMP}, time=("b", "e"))
    text = DAYS + "ON b.end < a.start RETURN a.end, b.start AS since HAVING b.start < a.end"
    found = check_archive_join(parse_statement(text), CLOCK, {"old": spans})
    assert [found.joins[0].on[0].left.name, found.joins[0].on[0].right.name] == ["e", "t"]
    assert [column.expr.name for column in found.returns] == ["t", "b"]
    assert found.having.left.name == "b"


def test_checking_twice_changes_nothing():
    text = "SEQ(E a, E+ c[]) JOIN ARCHIVE old E b RANGE 5 days BEFORE END ON [k] and b.x > -1"
    once = check_archive_join(parse_statement(text), CLOCK, {"old": CLOCK})
    assert check_archive_join(once, CLOCK, {"old": CLOCK}) == once
