"""Kinds of fields, as far as a query alone shows them."""

import pytest

from ensue.errors import QueryError
from ensue.languages.patterns import parse
from ensue.plan.assume import NOTE, assumed_schema, plan_without_events
from ensue.plan.show.explain import explain
from ensue.schema import Kind


def kinds(text, type_="A"):
    schema = assumed_schema(parse(text))
    return {n: k for n, k in schema.types[type_].fields.items() if n not in ("time", "type")}


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("a.f = 'p'", Kind.STRING),
        ("a.f in ('p', 'q')", Kind.STRING),
        ("a.f like 'p%'", Kind.STRING),
        ("lower(a.f) = b.g", Kind.STRING),
        ("a.f || 'x' = b.g", Kind.STRING),
        ("a.f > 3", Kind.FLOAT),
        ("a.f between 1 and 2.5", Kind.FLOAT),
        ("a.f * 2 < b.g", Kind.FLOAT),
        ("abs(a.f) < b.g", Kind.FLOAT),
        ("a.f", Kind.BOOLEAN),
        ("not a.f", Kind.BOOLEAN),
        ("a.f or b.g > 3", Kind.BOOLEAN),
        ("a.f = true", Kind.BOOLEAN),
        ("a.f > TIMESTAMP '2026-01-01 10:00:00'", Kind.TIMESTAMP),
        ("b.g - a.f < 5 minutes", Kind.TIMESTAMP),
        ("5 minutes > b.g - a.f", Kind.TIMESTAMP),
        ("a.f + 5 minutes > b.g", Kind.TIMESTAMP),
        ("hour(a.f) = 3", Kind.TIMESTAMP),
        ("a.f < 5 minutes", Kind.DURATION),
        ("substring('xyz', a.f, 1) = 'x'", Kind.INTEGER),
        ("substring('xyz', a.f + 1, 1) = 'x'", Kind.INTEGER),
        ("a.f = b.g", Kind.INTEGER),
        ("a.f != b.g", Kind.INTEGER),
        ("a.f < b.g", Kind.FLOAT),
        ("a.f = b.g and b.g = 'p'", Kind.STRING),
        ("a.f < b.g and b.g < c.h and c.h = 'p'", Kind.STRING),
        ("coalesce(a.f, 'p') = b.g", Kind.STRING),
        ("a.f is null", Kind.FLOAT),
        ("b.f = 'p' and a.f = c.f", Kind.STRING),
        ("[f] and b.f = 'p'", Kind.STRING),
        ("[f]", Kind.INTEGER),
    ],
)
def test_a_field_has_the_kind_of_what_it_is_used_with(condition, kind):
    text = f"SEQ(A a, B b, C c) WHERE {condition}"
    assert kinds(text)["f"] is kind
    assert NOTE in plan_without_events(parse(text)).notes


@pytest.mark.parametrize(
    ("aggregate", "kind"),
    [("avg(a.f) > 3", Kind.FLOAT), ("max(a.f) = 'p'", Kind.STRING), ("a.LEN > 3", None)],
)
def test_fields_inside_aggregates(aggregate, kind):
    assert kinds(f"SEQ(A+ a[], B b) WHERE {aggregate}").get("f") is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SEQ(A a, B b) WITHIN 5 minutes", Kind.TIMESTAMP),
        ("SEQ(A a, B b) WITHIN 5", Kind.INTEGER),
        ("SEQ(A a, B b) WITHIN 5 EVENTS", Kind.INTEGER),
        ("SEQ(A a, B b) WHERE b.start - a.end < 5 minutes", Kind.TIMESTAMP),
        ("SEQ(A a, B b) WHERE b.time - a.time < 5 minutes WITHIN 5 EVENTS", Kind.TIMESTAMP),
    ],
)
def test_time_is_what_the_window_counts(text, kind):
    schema = assumed_schema(parse(text))
    assert schema.time_kind is kind
    assert schema.end == "time"


def test_a_field_called_time_that_is_no_time():
    schema = assumed_schema(parse("SEQ(A a, B b) WHERE a.time = 'noon' WITHIN 5 minutes"))
    assert schema.types["A"].fields["time"] is Kind.STRING
    assert schema.end != "time"


def test_what_is_returned_is_there():
    assert set(kinds("SEQ(A a, B b) RETURN a.f, b")) == {"f"}


def test_a_contradiction_is_still_an_error():
    with pytest.raises(QueryError, match="cannot be compared"):
        plan_without_events(parse("SEQ(A a, B b) WHERE a.f = 'p' and a.f > 3"))


def test_explain_says_that_kinds_are_assumed():
    text = explain(plan_without_events(parse("SEQ(A a, B b) WITHIN 5")))
    assert text.splitlines()[-1] == f"note: {NOTE}"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("A a WITHIN 5 minutes", Kind.TIMESTAMP),
        ("A a WITHIN 5", Kind.INTEGER),
        ("(A a THEN WITHIN 30 minutes)++", Kind.TIMESTAMP),
        ("A a THEN NEXT WITHIN 5 minutes B b", Kind.TIMESTAMP),
        ("A a THEN NEXT WITHIN 5 B b", Kind.INTEGER),
    ],
)
def test_windows_show_what_time_is(text, kind):
    assert assumed_schema(parse(text)).time_kind is kind
