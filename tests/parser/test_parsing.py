"""Each piece of the language, and the algebra it stands for."""

from datetime import UTC, datetime, timedelta

import pytest

import ensue
from ensue.ir.expression import (
    Aggregate,
    Between,
    Binary,
    EventPosition,
    FieldRef,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.ir.pattern import And, Atom, Kleene, Maybe, Not, Or, Seq
from ensue.ir.selection import AfterMatch, ByEvents, ByTime, ByUnits, SkipTarget, Strategy
from ensue.ir.values import _LENGTH
from ensue.parser.pattern_parser import parse
from ensue.printing.pattern_printer import format_pattern

A, B, C = Atom("A", "a"), Atom("B", "b"), Atom("C", "c")


def where(condition, pattern="SEQ(A a, B+ b[])"):
    (conjunct,) = parse(f"{pattern} WHERE {condition}").where
    return conjunct


def value(text):
    return where(f"a.x = {text}").right


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("A a", A),
        ("A", Atom("A", "A")),
        ("SEQ(A a)", A),
        ("((A a))", A),
        ("SEQ(A a, B b)", Seq((A, B))),
        ("A a -> B b → C c", Seq((A, B, C))),
        ("SEQ(A a, SEQ(B b, C c))", Seq((A, B, C))),
        ("A a -> (B b -> C c)", Seq((A, B, C))),
        ("AND(A a, AND(B b, C c))", And((A, B, C))),
        ("or(A a, or(B b, C c))", Or((A, B, C))),
        ("SEQ(A a, OR(B b, C c))", Seq((A, Or((B, C))))),
        ("SEQ(A a, !B b, C c)", Seq((A, Not(B), C))),
        ("SEQ(A a, NOT (B b), C c)", Seq((A, Not(B), C))),
        ("A a -> ¬B b -> C c", Seq((A, Not(B), C))),
        ("A+ a[]", Kleene(A, 1, None)),
        ("A + a[ ]", Kleene(A, 1, None)),
        ("A+ a", Kleene(A, 1, None)),
        ("(A a)+", Kleene(A, 1, None)),
        ("SEQ(A* a[], B b)", Seq((Kleene(A, 0, None), B))),
        ("SEQ(A? a, B b)", Seq((Maybe(A), B))),
        ("SEQ((A a)?, B b)", Seq((Maybe(A), B))),
        ("A{2,5} a[]", Kleene(A, 2, 5)),
        ("A{3} a[]", Kleene(A, 3, 3)),
        ("A{2,} a[]", Kleene(A, 2, None)),
        ("SEQ(A{,2} a[], B b)", Seq((Kleene(A, 0, 2), B))),
        ("SEQ((SEQ(A a, B b))?, C c)", Seq((Maybe(Seq((A, B))), C))),
        ("SEQ(SEQ(A a, B b)?, C c)", Seq((Maybe(Seq((A, B))), C))),
        ("SEQ(A, B, A)", Seq((Atom("A", "A"), Atom("B", "B"), Atom("A", "A2")))),
        ("SEQ(A, B A2, A)", Seq((Atom("A", "A"), Atom("B", "A2"), Atom("A", "A3")))),
        ('"my type" `my var`', Atom("my type", "my var")),
        ('"a ""b""" c', Atom('a "b"', "c")),
    ],
)
def test_patterns(text, pattern):
    assert parse(text).pattern == pattern


@pytest.mark.parametrize("lead", ["", "PATTERN ", "EVENT ", "pattern ", "/* x */ Event -- y\n"])
def test_the_word_before_the_pattern_is_free(lead):
    assert parse(f"{lead}SEQ(A a, B b);").pattern == Seq((A, B))


@pytest.mark.parametrize("lead", ["EVENT Theft AS ", "event Theft as PATTERN ", "EVENT Theft AS EVENT "])
def test_a_query_may_name_the_event_it_defines(lead):
    query = parse(f"{lead}SEQ(A a, B b)")
    assert (query.name, query.pattern) == ("Theft", Seq((A, B)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.x", FieldRef("a", "x")),
        ("a. x", FieldRef("a", "x")),
        ('a."order id"', FieldRef("a", "order id")),
        ("a.order", FieldRef("a", "order")),
        ("a.in", FieldRef("a", "in")),
        ("b[1].x", FieldRef("b", "x", EventPosition.NTH, 1)),
        ("b[ 3 ] . x", FieldRef("b", "x", EventPosition.NTH, 3)),
        ("b[i].x", FieldRef("b", "x", EventPosition.CURRENT)),
        ("b[i-1].x", FieldRef("b", "x", EventPosition.PREVIOUS)),
        ("b[b.LEN].x", FieldRef("b", "x", EventPosition.LAST)),
        ("b[ b . len ].x", FieldRef("b", "x", EventPosition.LAST)),
        ("b.LEN", Aggregate("count", "b", None)),
        ("count(b)", Aggregate("count", "b", None)),
        ("COUNT(b[])", Aggregate("count", "b", None)),
        ("count(b[..i-1])", Aggregate("count", "b", None, EventPosition.BEFORE)),
        ("avg(b.x)", Aggregate("avg", "b", FieldRef("b", "x", EventPosition.ALL))),
        ("avg(b[].x)", Aggregate("avg", "b", FieldRef("b", "x", EventPosition.ALL))),
        ("avg(b[.. i-1]. x)", Aggregate("avg", "b", FieldRef("b", "x", EventPosition.BEFORE), EventPosition.BEFORE)),
        ("max(b[..i].x)", Aggregate("max", "b", FieldRef("b", "x", EventPosition.THROUGH), EventPosition.THROUGH)),
        ("avg(a.x)", Aggregate("avg", "a", FieldRef("a", "x"))),
        ("avg(a[].x)", Aggregate("avg", "a", FieldRef("a", "x"))),
        (
            "percentile(b.x, 90)",
            Aggregate("percentile", "b", FieldRef("b", "x", EventPosition.ALL), EventPosition.ALL, 90.0),
        ),
        (
            "sum(b.x * b.y)",
            Aggregate(
                "sum", "b", Binary("*", FieldRef("b", "x", EventPosition.ALL), FieldRef("b", "y", EventPosition.ALL))
            ),
        ),
        ("abs(a.x)", FunctionCall("abs", (FieldRef("a", "x"),))),
        ("CEILING(a.x)", FunctionCall("ceil", (FieldRef("a", "x"),))),
        ("pow(a.x, 2)", FunctionCall("power", (FieldRef("a", "x"), Literal(2)))),
        ("len(a.x)", FunctionCall("length", (FieldRef("a", "x"),))),
        ("1", Literal(1)),
        ("-5", Literal(-5)),
        ("-(-5)", Literal(5)),
        ("1.5e3", Literal(1500.0)),
        (".5", Literal(0.5)),
        ("-9223372036854775808", Literal(-(2**63))),
        ("80%", Literal(0.8)),
        ("7%", Literal(0.07)),
        ("80 % 3", Binary("%", Literal(80), Literal(3))),
        ("80%3", Binary("%", Literal(80), Literal(3))),
        ("80%a.y", Binary("%", Literal(80), FieldRef("a", "y"))),
        ("80% * a.y", Binary("*", Literal(0.8), FieldRef("a", "y"))),
        ("'it''s'", Literal("it's")),
        ("''", Literal("")),
        ("TRUE", Literal(True)),
        ("false", Literal(False)),
        ("Null", Literal(None)),
        ("TIMESTAMP '2026-01-01 10:00:00'", Literal(datetime(2026, 1, 1, 10))),
        ("timestamp '2026-01-01T10:00:00Z'", Literal(datetime(2026, 1, 1, 10, tzinfo=UTC))),
        ("DATE '2026-01-01'", Literal(datetime(2026, 1, 1))),
        ("5 minutes", Literal(timedelta(minutes=5))),
        ("1.5 hours", Literal(timedelta(minutes=90))),
        ("-5 min", Literal(timedelta(minutes=-5))),
        ("INTERVAL '5' MINUTE", Literal(timedelta(minutes=5))),
        ("INTERVAL '5 minutes'", Literal(timedelta(minutes=5))),
        ("1 + 2 * 3", Binary("+", Literal(1), Binary("*", Literal(2), Literal(3)))),
        ("(1 + 2) * 3", Binary("*", Binary("+", Literal(1), Literal(2)), Literal(3))),
        ("1 - 2 - 3", Binary("-", Binary("-", Literal(1), Literal(2)), Literal(3))),
        ("a.x || 'b'", Binary("||", FieldRef("a", "x"), Literal("b"))),
        ("-a.x", Unary("-", FieldRef("a", "x"))),
        ("2 - -3", Binary("-", Literal(2), Literal(-3))),
    ],
)
def test_values(text, expected):
    assert repr(value(text)) == repr(expected)


@pytest.mark.parametrize("spelling", _LENGTH)
def test_every_unit_is_understood(spelling):
    assert parse(f"A a WITHIN 2 {spelling}").within == ByTime(2 * _LENGTH[spelling])
    assert parse(f"A a WITHIN 2{spelling.upper()}").within == ByTime(2 * _LENGTH[spelling])


X, Y, ONE = FieldRef("a", "x"), FieldRef("a", "y"), Literal(1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.x == 1", Binary("=", X, ONE)),
        ("a.x <> 1", Binary("!=", X, ONE)),
        ("a.x != 1", Binary("!=", X, ONE)),
        ("a.x ≤ 1", Binary("<=", X, ONE)),
        ("a.x ≥ 1", Binary(">=", X, ONE)),
        ("a.x ≠ 1", Binary("!=", X, ONE)),
        ("not a.x = 1", Unary("not", Binary("=", X, ONE))),
        ("!(a.x = 1)", Unary("not", Binary("=", X, ONE))),
        ("a.x IS NULL", IsNull(X)),
        ("a.x is not null", IsNull(X, True)),
        ("a.x IN (1, 'b')", In(X, (ONE, Literal("b")))),
        ("a.x NOT IN (1)", In(X, (ONE,), True)),
        ("a.x BETWEEN 1 AND 1 + 1", Between(X, ONE, Binary("+", ONE, ONE))),
        ("a.x not between 1 and 1", Between(X, ONE, ONE, True)),
        ("a.x LIKE 'ab%'", Like(X, "ab%")),
        ("a.x NOT LIKE 'ab%'", Like(X, "ab%", True)),
        ("a.x or a.y and not a.x", Binary("or", X, Binary("and", Y, Unary("not", X)))),
        ("(a.x or a.y) \u2228 a.x", Binary("or", Binary("or", X, Y), X)),
    ],
)
def test_conditions(text, expected):
    assert where(text) == expected


def test_where_is_split_into_its_conjuncts():
    query = parse("SEQ(A a, B b) WHERE [id] and a.x ∧ (a.y AND b.x) and [k, id]")
    assert query.where == (X, Y, FieldRef("b", "x"))
    assert [e.field_name for e in query.equivalence] == ["id", "k"]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_strategy_names_every_variable(strategy):
    query = parse(f"SEQ(A a, !C c, B+ b[]) WHERE {strategy.value.upper()}(a, b[ ]) {{ a.x }}")
    assert (query.strategy, query.where) == (strategy, (X,))


def test_a_strategy_needs_no_conditions():
    assert parse("A a WHERE strict_contiguity(a) { }").strategy is Strategy.STRICT


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("5 minutes", ByTime(300 * 10**9)),
        ("500 ns", ByTime(500)),
        ("1.5 hours", ByTime(5400 * 10**9)),
        ("INTERVAL '5' MINUTE", ByTime(300 * 10**9)),
        ("20", ByUnits(20)),
        ("2.5", ByUnits(2.5)),
        ("20 EVENTS", ByEvents(20)),
        ("1 event", ByEvents(1)),
    ],
)
def test_windows(text, window):
    assert parse(f"SEQ(A a, B b) WITHIN {text}").within == window


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("TO NEXT EVENT", AfterMatch(SkipTarget.NEXT_EVENT)),
        ("to next row", AfterMatch(SkipTarget.NEXT_EVENT)),
        ("PAST LAST ROW", AfterMatch(SkipTarget.PAST_LAST)),
        ("PAST LAST EVENT", AfterMatch(SkipTarget.PAST_LAST)),
        ("TO FIRST b", AfterMatch(SkipTarget.FIRST, "b")),
        ("TO LAST b", AfterMatch(SkipTarget.LAST, "b")),
    ],
)
def test_after_match(text, after):
    assert parse(f"SEQ(A a, B b) AFTER MATCH SKIP {text}").after == after


def test_returned_columns_have_names():
    query = parse("SEQ(A a, B+ b[]) RETURN a.x, b[1].y AS first, a, b, b[2] AS second, b[].z, avg( b.x ), b.LEN, a.x+1")
    assert [(r.expr, r.name) for r in query.returns] == [
        (X, "x"),
        (FieldRef("b", "y", EventPosition.NTH, 1), "first"),
        (FieldRef("a", None), "a"),
        (FieldRef("b", None, EventPosition.ALL), "b"),
        (FieldRef("b", None, EventPosition.NTH, 2), "second"),
        (FieldRef("b", "z", EventPosition.ALL), "z"),
        (Aggregate("avg", "b", FieldRef("b", "x", EventPosition.ALL)), "avg(b.x)"),
        (Aggregate("count", "b", None), "LEN"),
        (Binary("+", X, ONE), "a.x + 1"),
    ]


def test_having_follows_return():
    query = parse("A a RETURN a.x HAVING a.x = 1")
    assert query.having == Binary("=", X, ONE)


def test_spans_cover_what_was_written():
    text = "SEQ(A a, B+ b[]) WHERE (a.x + 1) * 2 > b[i].y"
    (condition,) = parse(text).where
    assert condition.span.over(text) == "(a.x + 1) * 2 > b[i].y"
    assert condition.left.span.over(text) == "(a.x + 1) * 2"
    assert condition.right.span.over(text) == "b[i].y"


def test_keywords_are_names_where_no_keyword_can_stand():
    query = parse("SEQ(Order match, Event skip) WHERE match.end = skip.date and match.in = 1")
    assert [atom.variable for atom in query.pattern.parts] == ["match", "skip"]


@pytest.mark.parametrize("text", ["SEQ(A from THEN B b)", "SEQ(B b, (A from THEN ANY)*)"])
def test_from_before_then_is_a_name(text):
    query = ensue.parse(text)
    assert ensue.parse(ensue.show(query)) == query


def test_an_event_of_any_type_ends_a_loop():
    text = "SEQ(A+ a[] UNTIL ANY u, B b)"
    assert format_pattern(parse(text).pattern) == text
    quoted = 'SEQ(A+ a[] UNTIL "any" u, B b)'
    assert format_pattern(parse(quoted).pattern) == quoted
