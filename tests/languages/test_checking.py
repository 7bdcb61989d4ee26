"""Queries against the events they are for: names, kinds, windows."""

import pytest

from ensue.algebra.check.kinds import kind_of
from ensue.algebra.check.query import check
from ensue.algebra.predicate import At, Field
from ensue.errors import QueryError
from ensue.languages.patterns import parse
from ensue.schema import EventType, Kind, Schema, one_table

FIELDS = {
    "n": Kind.INTEGER,
    "f": Kind.FLOAT,
    "d": Kind.DECIMAL,
    "b": Kind.BOOLEAN,
    "s": Kind.STRING,
    "t": Kind.TIMESTAMP,
    "day": Kind.DATE,
    "span": Kind.DURATION,
    "nested": Kind.OTHER,
    "void": Kind.NULL,
    "kind": Kind.STRING,
}
CLOCK = one_table(FIELDS, time="t", type_column="kind")
COUNTER = one_table(FIELDS, time="n", type_column="kind")


def two_tables(a, b, **more):
    types = {"A": EventType("A", a), "B": EventType("B", b)}
    return Schema(types, start="t", end="t", time_kind=Kind.TIMESTAMP, **more)


def kind(text):
    """The kind of an expression over the plain event a and the Kleene events k."""
    query = check(parse(f"SEQ(A a, K+ k[]) RETURN {text} AS x"), CLOCK)
    return kind_of(query.returns[0].expr, lambda field: FIELDS[field.name])


def error_of(text, schema=CLOCK, **more):
    query = parse(text)
    with pytest.raises(QueryError) as caught:
        check(query, schema, **more)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.n + a.n", Kind.INTEGER),
        ("a.n + a.f", Kind.FLOAT),
        ("a.d + a.d", Kind.FLOAT),
        ("a.n / a.n", Kind.FLOAT),
        ("a.n % 2", Kind.INTEGER),
        ("-a.d", Kind.FLOAT),
        ("9223372036854775808", Kind.FLOAT),
        ("a.t - a.t", Kind.DURATION),
        ("a.t - a.day", Kind.DURATION),
        ("a.t + 5 minutes", Kind.TIMESTAMP),
        ("5 minutes + a.t", Kind.TIMESTAMP),
        ("a.day - 1 day", Kind.TIMESTAMP),
        ("a.span * 2", Kind.DURATION),
        ("2.5 * a.span", Kind.DURATION),
        ("a.span / 2", Kind.DURATION),
        ("a.span / a.span", Kind.FLOAT),
        ("a.span % a.span", Kind.DURATION),
        ("-a.span", Kind.DURATION),
        ("a.n + null", Kind.NULL),
        ("a.void + a.t", Kind.NULL),
        ("a.s || 'x'", Kind.STRING),
        ("a.day < a.t", Kind.BOOLEAN),
        ("a.n = a.d", Kind.BOOLEAN),
        ("a.s = null", Kind.BOOLEAN),
        ("a.n IN (1, 2.5, null)", Kind.BOOLEAN),
        ("a.nested IS NULL", Kind.BOOLEAN),
        ("a.b and null", Kind.BOOLEAN),
        ("avg(k.n)", Kind.FLOAT),
        ("sum(k.n)", Kind.INTEGER),
        ("sum(k.d)", Kind.FLOAT),
        ("avg(k.span)", Kind.DURATION),
        ("sum(k.span)", Kind.DURATION),
        ("max(k.s)", Kind.STRING),
        ("min(k.d)", Kind.DECIMAL),
        ("first(k.nested)", Kind.OTHER),
        ("count(k.nested)", Kind.INTEGER),
        ("k.LEN", Kind.INTEGER),
        ("percentile(k.n, 50)", Kind.FLOAT),
        ("k[].s", Kind.STRING),
        ("k", Kind.OTHER),
        ("abs(a.n)", Kind.INTEGER),
        ("floor(a.d)", Kind.FLOAT),
        ("sqrt(a.n)", Kind.FLOAT),
        ("round(a.f, 2)", Kind.FLOAT),
        ("coalesce(a.void, a.n, a.f)", Kind.FLOAT),
        ("greatest(a.day, a.t)", Kind.TIMESTAMP),
        ("least(a.d, a.d)", Kind.DECIMAL),
        ("nullif(a.s, '')", Kind.STRING),
        ("length(a.s)", Kind.INTEGER),
        ("substring(a.s, 1, 2)", Kind.STRING),
        ("starts_with(a.s, 'x')", Kind.BOOLEAN),
        ("hour(a.t)", Kind.INTEGER),
        ("year(a.day)", Kind.INTEGER),
    ],
)
def test_kinds(text, expected):
    assert kind(text) is expected


@pytest.mark.parametrize(
    ("condition", "underlined", "problem", "hint"),
    [
        (
            "a.s + 1 = 2",
            "a.s + 1",
            "'+' cannot be combined with a string and an integer",
            "length",
        ),
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
        ("a.n LIKE 'x'", "a.n", "LIKE looks into strings", "BETWEEN"),
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
    check(parse("A a WHERE null and a.void HAVING null"), CLOCK)


# -------------------------------------------------------------------------------- time and types


def test_start_and_end_are_the_time_columns():
    schema = one_table({"from": Kind.TIMESTAMP, "to": Kind.TIMESTAMP}, time=("from", "to"))
    query = check(
        parse("SEQ(A a, A+ k[]) WHERE a.end < k[1].start RETURN max(k.end) - a.start AS x"), schema
    )
    assert query.where[0].left == Field("a", "to")
    assert query.where[0].right == Field("k", "from", At.NTH, 1)
    assert query.returns[0].expr.left.argument == Field("k", "to", At.ALL)


def test_a_field_called_end_is_that_field():
    schema = one_table({"t": Kind.TIMESTAMP, "end": Kind.STRING}, time="t")
    assert check(parse("A a WHERE a.end = 'x'"), schema).where[0].left == Field("a", "end")


def test_only_the_event_without_such_a_field_takes_the_time_column():
    schema = two_tables({"t": Kind.TIMESTAMP, "end": Kind.TIMESTAMP}, {"t": Kind.TIMESTAMP})
    condition = check(parse("SEQ(A a, B b) WHERE a.end = b.end"), schema).where[0]
    assert (condition.left, condition.right) == (Field("a", "end"), Field("b", "t"))


def test_unknown_event_types():
    schema = two_tables({"t": Kind.TIMESTAMP}, {"t": Kind.TIMESTAMP})
    error = error_of("SEQ(A a, Bb b)", schema)
    assert (error.problem, error.span.over(error.text)) == ("unknown event type 'Bb'", "Bb b")
    assert error.hint == "did you mean 'B'?"


def test_several_types_need_a_type_column():
    untyped = one_table(FIELDS, time="t")
    check(parse("SEQ(A a, A b)"), untyped)
    error = error_of("SEQ(A a, B b)", untyped)
    assert "several event types (A, B)" in error.problem
    assert (error.span.over(error.text), "type=" in error.hint) == ("B b", True)


def test_an_equivalence_needs_the_field_in_every_type():
    schema = two_tables({"t": Kind.TIMESTAMP, "id": Kind.STRING}, {"t": Kind.TIMESTAMP})
    error = error_of("SEQ(A a, !B b, A c) WHERE [id]", schema)
    assert error.problem == "unknown field 'id' of event b (B)"
    assert error.span.over(error.text) == "id"


def test_an_equivalence_needs_values_that_compare():
    schema = two_tables(
        {"t": Kind.TIMESTAMP, "id": Kind.STRING}, {"t": Kind.TIMESTAMP, "id": Kind.INTEGER}
    )
    assert "string in a but integer in b" in error_of("SEQ(A a, B b) WHERE [id]", schema).problem
    assert "nested or binary" in error_of("A a WHERE [nested]").problem


# -------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("window", "schema", "hint"),
    [
        ("20", CLOCK, "did you mean WITHIN 20 seconds, or WITHIN 20 EVENTS?"),
        ("5 minutes", COUNTER, "WITHIN 300"),
    ],
)
def test_a_window_has_the_unit_of_the_time_column(window, schema, hint):
    error = error_of(f"A a WITHIN {window}", schema)
    assert error.span.over(error.text) == window
    assert hint in error.hint


def test_windows_that_fit():
    check(parse("A a WITHIN 5 minutes"), CLOCK, streaming=True)
    check(parse("A a WITHIN 20 EVENTS"), CLOCK, streaming=True)
    check(parse("A a WITHIN 20"), COUNTER, streaming=True)
    check(parse("A a"), CLOCK)
    check(parse("A a"), CLOCK, streaming=True)  # nothing is waited for


@pytest.mark.parametrize(("schema", "hint"), [(CLOCK, "WITHIN 5 minutes"), (COUNTER, "WITHIN 20")])
def test_a_streaming_query_needs_a_window(schema, hint):
    error = error_of("SEQ(A a, A b)", schema, streaming=True)
    assert "remember every event" in error.problem
    assert error.span.over(error.text) == "SEQ(A a, A b)"
    assert hint in error.hint


def test_checking_twice_changes_nothing():
    once = check(parse("SEQ(A a, K+ k[]) WHERE a.end < k[i].end and k.LEN > 2"), CLOCK)
    assert check(once, CLOCK) == once
