"""Kinds of fields, as far as a query alone shows them."""

import pytest

import ensue
from ensue.errors import QueryError
from ensue.parser.pattern_parser import parse
from ensue.planner.schema_inference import NOTE, infer_schema
from ensue.schema import ValueKind


def kinds(text, type_="A"):
    schema = infer_schema(parse(text))
    return {n: k for n, k in schema.types[type_].fields.items() if n not in ("time", "type")}


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("a.f = 'p'", ValueKind.STRING),
        ("a.f in ('p', 'q')", ValueKind.STRING),
        ("a.f like 'p%'", ValueKind.STRING),
        ("lower(a.f) = b.g", ValueKind.STRING),
        ("a.f || 'x' = b.g", ValueKind.STRING),
        ("a.f > 3", ValueKind.FLOAT),
        ("a.f between 1 and 2.5", ValueKind.FLOAT),
        ("a.f * 2 < b.g", ValueKind.FLOAT),
        ("abs(a.f) < b.g", ValueKind.FLOAT),
        ("a.f", ValueKind.BOOLEAN),
        ("not a.f", ValueKind.BOOLEAN),
        ("a.f or b.g > 3", ValueKind.BOOLEAN),
        ("a.f = true", ValueKind.BOOLEAN),
        ("a.f > TIMESTAMP '2026-01-01 10:00:00'", ValueKind.TIMESTAMP),
        ("b.g - a.f < 5 minutes", ValueKind.TIMESTAMP),
        ("5 minutes > b.g - a.f", ValueKind.TIMESTAMP),
        ("a.f + 5 minutes > b.g", ValueKind.TIMESTAMP),
        ("hour(a.f) = 3", ValueKind.TIMESTAMP),
        ("a.f < 5 minutes", ValueKind.DURATION),
        ("substring('xyz', a.f, 1) = 'x'", ValueKind.INTEGER),
        ("substring('xyz', a.f + 1, 1) = 'x'", ValueKind.INTEGER),
        ("a.f = b.g", ValueKind.INTEGER),
        ("a.f != b.g", ValueKind.INTEGER),
        ("a.f < b.g", ValueKind.FLOAT),
        ("a.f = b.g and b.g = 'p'", ValueKind.STRING),
        ("a.f < b.g and b.g < c.h and c.h = 'p'", ValueKind.STRING),
        ("coalesce(a.f, 'p') = b.g", ValueKind.STRING),
        ("a.f is null", ValueKind.FLOAT),
        ("b.f = 'p' and a.f = c.f", ValueKind.STRING),
        ("[f] and b.f = 'p'", ValueKind.STRING),
        ("[f]", ValueKind.INTEGER),
    ],
)
def test_a_field_has_the_kind_of_what_it_is_used_with(condition, kind):
    text = f"SEQ(A a, B b, C c) WHERE {condition}"
    assert kinds(text)["f"] is kind
    assert NOTE in ensue.explain(text)


@pytest.mark.parametrize(
    ("aggregate", "kind"),
    [("avg(a.f) > 3", ValueKind.FLOAT), ("max(a.f) = 'p'", ValueKind.STRING), ("a.LEN > 3", None)],
)
def test_fields_inside_aggregates(aggregate, kind):
    assert kinds(f"SEQ(A+ a[], B b) WHERE {aggregate}").get("f") is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SEQ(A a, B b) WITHIN 5 minutes", ValueKind.TIMESTAMP),
        ("SEQ(A a, B b) WITHIN 5", ValueKind.INTEGER),
        ("SEQ(A a, B b) WITHIN 5 EVENTS", ValueKind.INTEGER),
        ("SEQ(A a, B b) WHERE b.start - a.end < 5 minutes", ValueKind.TIMESTAMP),
        ("SEQ(A a, B b) WHERE b.time - a.time < 5 minutes WITHIN 5 EVENTS", ValueKind.TIMESTAMP),
    ],
)
def test_time_is_what_the_window_counts(text, kind):
    schema = infer_schema(parse(text))
    assert schema.time_kind is kind
    assert schema.end == "time"


def test_a_field_called_time_that_is_no_time():
    schema = infer_schema(parse("SEQ(A a, B b) WHERE a.time = 'noon' WITHIN 5 minutes"))
    assert schema.types["A"].fields["time"] is ValueKind.STRING
    assert schema.end != "time"


def test_what_is_returned_is_there():
    assert set(kinds("SEQ(A a, B b) RETURN a.f, b")) == {"f"}


def test_a_contradiction_is_still_an_error():
    with pytest.raises(QueryError, match="cannot be compared"):
        ensue.explain("SEQ(A a, B b) WHERE a.f = 'p' and a.f > 3")


def test_explain_says_that_kinds_are_assumed():
    text = ensue.explain("SEQ(A a, B b) WITHIN 5")
    assert text.splitlines()[-1] == f"note: {NOTE}"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("A a WITHIN 5 minutes", ValueKind.TIMESTAMP),
        ("A a WITHIN 5", ValueKind.INTEGER),
        ("(A a THEN WITHIN 30 minutes)++", ValueKind.TIMESTAMP),
        ("A a THEN NEXT WITHIN 5 minutes B b", ValueKind.TIMESTAMP),
        ("A a THEN NEXT WITHIN 5 B b", ValueKind.INTEGER),
    ],
)
def test_windows_show_what_time_is(text, kind):
    assert infer_schema(parse(text)).time_kind is kind
