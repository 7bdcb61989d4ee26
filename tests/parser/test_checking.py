"""Queries against the events they are for: names, kinds, windows."""

import pytest

from ensue.analyzer.query import check_query
from ensue.analyzer.types import infer_kind
from ensue.errors import QueryError
from ensue.ir.expression import EventPosition, FieldRef
from ensue.parser.pattern_parser import parse
from ensue.schema import EventType, Schema, ValueKind, build_table_schema

FIELDS = {
    "n": ValueKind.INTEGER,
    "f": ValueKind.FLOAT,
    "d": ValueKind.DECIMAL,
    "b": ValueKind.BOOLEAN,
    "s": ValueKind.STRING,
    "t": ValueKind.TIMESTAMP,
    "day": ValueKind.DATE,
    "span": ValueKind.DURATION,
    "nested": ValueKind.OTHER,
    "void": ValueKind.NULL,
    "kind": ValueKind.STRING,
}
CLOCK = build_table_schema(FIELDS, time="t", type_column="kind")
COUNTER = build_table_schema(FIELDS, time="n", type_column="kind")


def two_tables(a, b, **more):
    types = {"A": EventType("A", a), "B": EventType("B", b)}
    return Schema(types, start="t", end="t", time_kind=ValueKind.TIMESTAMP, **more)


def kind(text):
    """The kind of an expression over the plain event a and the Kleene events k."""
    query = check_query(parse(f"SEQ(A a, K+ k[]) RETURN {text} AS x"), CLOCK)
    return infer_kind(query.returns[0].expr, lambda field: FIELDS[field.name])


def error_of(text, schema=CLOCK, **more):
    query = parse(text)
    with pytest.raises(QueryError) as caught:
        check_query(query, schema, **more)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.n + a.n", ValueKind.INTEGER),
        ("a.n + a.f", ValueKind.FLOAT),
        ("a.d + a.d", ValueKind.FLOAT),
        ("a.n / a.n", ValueKind.FLOAT),
        ("a.n % 2", ValueKind.INTEGER),
        ("-a.d", ValueKind.FLOAT),
        ("9223372036854775808", ValueKind.FLOAT),
        ("a.t - a.t", ValueKind.DURATION),
        ("a.t - a.day", ValueKind.DURATION),
        ("a.t + 5 minutes", ValueKind.TIMESTAMP),
        ("5 minutes + a.t", ValueKind.TIMESTAMP),
        ("a.day - 1 day", ValueKind.TIMESTAMP),
        ("a.span * 2", ValueKind.DURATION),
        ("2.5 * a.span", ValueKind.DURATION),
        ("a.span / 2", ValueKind.DURATION),
        ("a.span / a.span", ValueKind.FLOAT),
        ("a.span % a.span", ValueKind.DURATION),
        ("-a.span", ValueKind.DURATION),
        ("a.n + null", ValueKind.NULL),
        ("a.void + a.t", ValueKind.NULL),
        ("a.s || 'x'", ValueKind.STRING),
        ("a.day < a.t", ValueKind.BOOLEAN),
        ("a.n = a.d", ValueKind.BOOLEAN),
        ("a.s = null", ValueKind.BOOLEAN),
        ("a.n IN (1, 2.5, null)", ValueKind.BOOLEAN),
        ("a.nested IS NULL", ValueKind.BOOLEAN),
        ("a.b and null", ValueKind.BOOLEAN),
        ("avg(k.n)", ValueKind.FLOAT),
        ("sum(k.n)", ValueKind.INTEGER),
        ("sum(k.d)", ValueKind.FLOAT),
        ("avg(k.span)", ValueKind.DURATION),
        ("sum(k.span)", ValueKind.DURATION),
        ("max(k.s)", ValueKind.STRING),
        ("min(k.d)", ValueKind.DECIMAL),
        ("first(k.nested)", ValueKind.OTHER),
        ("count(k.nested)", ValueKind.INTEGER),
        ("k.LEN", ValueKind.INTEGER),
        ("percentile(k.n, 50)", ValueKind.FLOAT),
        ("k[].s", ValueKind.STRING),
        ("k", ValueKind.OTHER),
        ("abs(a.n)", ValueKind.INTEGER),
        ("floor(a.d)", ValueKind.FLOAT),
        ("sqrt(a.n)", ValueKind.FLOAT),
        ("round(a.f, 2)", ValueKind.FLOAT),
        ("coalesce(a.void, a.n, a.f)", ValueKind.FLOAT),
        ("greatest(a.day, a.t)", ValueKind.TIMESTAMP),
        ("least(a.d, a.d)", ValueKind.DECIMAL),
        ("nullif(a.s, '')", ValueKind.STRING),
        ("length(a.s)", ValueKind.INTEGER),
        ("substring(a.s, 1, 2)", ValueKind.STRING),
        ("starts_with(a.s, 'x')", ValueKind.BOOLEAN),
        ("hour(a.t)", ValueKind.INTEGER),
        ("year(a.day)", ValueKind.INTEGER),
    ],
)
def test_kinds(text, expected):
    assert kind(text) is expected


@pytest.mark.parametrize(
    ("condition", "underlined", "problem", "hint"),
    [
        ("a.s + 1 = 2", "a.s + 1", "'+' cannot be combined with a string and an integer", "length"),
        ("a.s + a.s = 'x'", "a.s + a.s", "a string and a string", "||"),
        ("a.t + 5 = a.t", "a.t + 5", "a timestamp and an integer", "5 minutes"),
        ("a.t + a.t = a.t", "a.t + a.t", "cannot be combined with", ""),
        ("5 minutes - a.t = a.t", "5 minutes - a.t", "cannot be combined with", ""),
        ("1 / a.span = 1", "1 / a.span", "cannot be combined with", ""),
        ("a.b + 1 = 1", "a.b + 1", "a boolean and an integer", ""),
        ("a.nested + null = 1", "a.nested + null", "cannot be combined with", ""),
        ("-a.s = 1", "a.s", "a string has no negative", ""),
        ("a.n = '3'", "a.n = '3'", "an integer cannot be compared", "without quotes"),
        ("a.s = 3", "a.s = 3", "a string cannot be compared with an integer", "quotes: '3'"),
        ("a.t > '2026-01-01'", "a.t > '2026-01-01'", "with a string", "TIMESTAMP '2026-01-01'"),
        ("a.span < 5", "a.span < 5", "a duration cannot", "5 minutes"),
        ("a.t < 5 minutes", "a.t < 5 minutes", "a timestamp cannot", "b.time - a.time"),
        ("a.nested = a.nested", "a.nested = a.nested", "a nested or binary value", "IS NULL"),
        ("a.n IN (1, 'x')", "'x'", "cannot be compared with a string", ""),
        ("a.n BETWEEN 1 AND 'x'", "'x'", "cannot be compared with a string", ""),
        ("a.n LIKE 'x'", "a.n", "LIKE takes a string", "BETWEEN"),
        ("a.n and a.b", "a.n", "WHERE needs a condition", "a.price > 3"),
        ("a.b or a.n", "a.n", "'or' joins conditions", "a.price > 3"),
        ("not a.n", "a.n", "'not' negates a condition", ""),
        ("a.n", "a.n", "WHERE needs a condition", "a.price > 3"),
        ("a.s || 1 = 'x'", "1", "'||' takes a string", ""),
        ("avg(k.s) = 1", "avg(k.s)", "avg does not work on a string", "count"),
        ("sum(k.t) = 1", "sum(k.t)", "sum does not work on a timestamp", ""),
        ("stddev(k.span) = 1", "stddev(k.span)", "stddev does not work on a duration", ""),
        ("min(k.nested) = 1", "min(k.nested)", "min does not work on a nested", "count"),
        ("abs(a.s) = 1", "a.s", "abs takes a number, and this is a string", ""),
        ("length(a.n) = 1", "a.n", "length takes a string", ""),
        ("round(a.n, 1.5) = 1", "1.5", "round takes a whole number", ""),
        ("hour(a.n) = 1", "a.n", "hour takes a time", ""),
        ("coalesce(a.n, a.s) = 1", "a.s", "values of one kind", ""),
        ("a.pric = 1", "a.pric", "unknown field 'pric' of event a (A)", "known here"),
        ("k[i].spam < k[i].span", "k[i].spam", "unknown field 'spam'", "did you mean 'span'?"),
        ("sum(k.m) = 1", "k.m", "unknown field 'm'", ""),
    ],
)
def test_parts_that_do_not_go_together(condition, underlined, problem, hint):
    text = f"SEQ(A a, K+ k[]) WHERE {condition}"
    error = error_of(text)
    assert problem in error.problem
    assert error.text == text
    assert error.span.over(text) == underlined
    assert hint in (error.hint or "")


def test_having_needs_a_condition():
    assert "HAVING needs a condition" in error_of("A a HAVING a.n").problem


def test_null_is_a_condition_that_never_holds():
    check_query(parse("A a WHERE null and a.void HAVING null"), CLOCK)


# -------------------------------------------------------------------------------- time and types


def test_start_and_end_are_the_time_columns():
    schema = build_table_schema({"from": ValueKind.TIMESTAMP, "to": ValueKind.TIMESTAMP}, time=("from", "to"))
    query = check_query(parse("SEQ(A a, A+ k[]) WHERE a.end < k[1].start RETURN max(k.end) - a.start AS x"), schema)
    assert query.where[0].left == FieldRef("a", "to")
    assert query.where[0].right == FieldRef("k", "from", EventPosition.NTH, 1)
    assert query.returns[0].expr.left.argument == FieldRef("k", "to", EventPosition.ALL)


def test_a_field_called_end_is_that_field():
    schema = build_table_schema({"t": ValueKind.TIMESTAMP, "end": ValueKind.STRING}, time="t")
    assert check_query(parse("A a WHERE a.end = 'x'"), schema).where[0].left == FieldRef("a", "end")


def test_only_the_event_without_such_a_field_takes_the_time_column():
    schema = two_tables({"t": ValueKind.TIMESTAMP, "end": ValueKind.TIMESTAMP}, {"t": ValueKind.TIMESTAMP})
    condition = check_query(parse("SEQ(A a, B b) WHERE a.end = b.end"), schema).where[0]
    assert (condition.left, condition.right) == (FieldRef("a", "end"), FieldRef("b", "t"))


def test_unknown_event_types():
    schema = two_tables({"t": ValueKind.TIMESTAMP}, {"t": ValueKind.TIMESTAMP})
    error = error_of("SEQ(A a, Bb b)", schema)
    assert (error.problem, error.span.over(error.text)) == ("unknown event type 'Bb'", "Bb b")
    assert error.hint == "did you mean 'B'?"


def test_several_types_need_a_type_column():
    untyped = build_table_schema(FIELDS, time="t")
    check_query(parse("SEQ(A a, A b)"), untyped)
    error = error_of("SEQ(A a, B b)", untyped)
    assert "several event types (A, B)" in error.problem
    assert (error.span.over(error.text), "type=" in error.hint) == ("B b", True)


def test_an_equivalence_needs_the_field_in_every_type():
    schema = two_tables({"t": ValueKind.TIMESTAMP, "id": ValueKind.STRING}, {"t": ValueKind.TIMESTAMP})
    error = error_of("SEQ(A a, !B b, A c) WHERE [id]", schema)
    assert error.problem == "unknown field 'id' of event b (B)"
    assert error.span.over(error.text) == "id"


def test_an_equivalence_needs_values_that_compare():
    schema = two_tables(
        {"t": ValueKind.TIMESTAMP, "id": ValueKind.STRING}, {"t": ValueKind.TIMESTAMP, "id": ValueKind.INTEGER}
    )
    assert "string in a but integer in b" in error_of("SEQ(A a, B b) WHERE [id]", schema).problem
    assert "nested or binary" in error_of("A a WHERE [nested]").problem


# -------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("window", "schema", "hint"),
    [("20", CLOCK, "did you mean WITHIN 20 seconds, or WITHIN 20 EVENTS?"), ("5 minutes", COUNTER, "WITHIN 300")],
)
def test_a_window_has_the_unit_of_the_time_column(window, schema, hint):
    error = error_of(f"A a WITHIN {window}", schema)
    assert error.span.over(error.text) == window
    assert hint in error.hint


def test_windows_that_fit():
    check_query(parse("A a WITHIN 5 minutes"), CLOCK, streaming=True)
    check_query(parse("A a WITHIN 20 EVENTS"), CLOCK, streaming=True)
    check_query(parse("A a WITHIN 20"), COUNTER, streaming=True)
    check_query(parse("A a"), CLOCK)
    check_query(parse("A a"), CLOCK, streaming=True)  # nothing is waited for


@pytest.mark.parametrize(("schema", "hint"), [(CLOCK, "WITHIN 5 minutes"), (COUNTER, "WITHIN 20")])
def test_a_streaming_query_needs_a_window(schema, hint):
    error = error_of("SEQ(A a, A b)", schema, streaming=True)
    assert "store every event" in error.problem
    assert error.span.over(error.text) == "SEQ(A a, A b)"
    assert hint in error.hint


def test_checking_twice_changes_nothing():
    once = check_query(parse("SEQ(A a, K+ k[]) WHERE a.end < k[i].end and k.LEN > 2"), CLOCK)
    assert check_query(once, CLOCK) == once
