"""What is wrong with a query, where, and the way out."""

import pickle

import pytest

from ensue.errors import QueryError
from ensue.parser.pattern_parser import parse


def error_of(text):
    with pytest.raises(QueryError) as caught:
        parse(text)
    return caught.value


SYNTAX = [
    # text, what is underlined, problem, hint
    ("A a THEN NEXT WITHIN 5 D d", "WITHIN 5 D d", "can be read in two ways", "WITHIN 5 (D d)"),
    ("SEQ(A a, B b) WHER a.x = 1", "WHER", "found 'WHER'", "did you mean WHERE?"),
    ("SEQ(A a, B b) WHERE a.x = 5 WITHN 5 s", "WITHN", "found", "did you mean WITHIN?"),
    ("SEQ(A a, B b) RETRUN a.x", "RETRUN", "the next clause", "did you mean RETURN?"),
    ("SQE(A a, B b)", "SQE", "unknown operator 'SQE'", "did you mean 'SEQ'?"),
    ("PATERN SEQ(A a, B b)", "(", "found '('", "did you mean PATTERN?"),
    ("EVENT X SEQ(A a, B b)", "(", "found '('", "EVENT Name AS SEQ(...)"),
    ("SEQ(A a B b)", "B", "expected ',', '[', ')' or '->'", "a comma missing before B"),
    ("A a B b", "B", "found 'B'", "A a -> B b"),
    ("SEQ(A a, B b WHERE a.x = 1", "WHERE", "',' or ')'", "'(' of line 1, column 4 is not closed"),
    ("A a WHERE (a.x = 1", "", "expected ')', found the end", "column 11 is not closed"),
    ("SEQ(A a, B b)) WITHIN 5 s", ")", "found ')'", "this ')' has no matching opening bracket"),
    ("A{2 a", "a", "',' or '}'", "the '{' of line 1, column 2 is not closed"),
    ("SEQ(A a,)", ")", "an event type", "after the comma"),
    ("SEQ(A a, B b) WITHIN", "", "a number", "say how long"),
    ("SEQ(A a, B b) WITHIN 5 minuts", "minuts", "a unit of time", "did you mean 'minutes'?"),
    ("SEQ(A a, B b) WITHIN 5 months", "months", "a unit of time", "differ in length"),
    ("SEQ(A a, B b) WITHIN 5 foo", "foo", "a unit of time", "units are weeks, days"),
    ("A a WITHIN 5 RETURN a.x WITHIN 6", "WITHIN 6", "a second WITHIN", "leave one of them out"),
    ("A a WHERE a.x = 1 WITHIN 5 WHERE a.y = 2", "WHERE a.y = 2", "a second WHERE", "with 'and'"),
    ("A a WHERE a.x = 1 && a.y = 2", "&&", "AND or OR", "write 'and'"),
    ("A a WHERE 1 < a.x < 2", "<", "found '<'", "use BETWEEN"),
    ("A a WHERE a.x => 3", ">", "a value", "write >="),
    ("A a WHERE a.x = 3 a.y = 4", "a", "an operator", "join conditions with 'and'"),
    ("A a WHERE count(*) > 3", "count(*)", "a column of RETURN", "count(a)"),
    ("A a WHERE a.x = \u2018x\u2019", "\u2018", "a value", "straight single quotes"),
    ("A a WHERE { a.x = 1 }", "{", "a value", "braces follow a strategy"),
    ("A a WHERE a.x IN (1 2)", "2", "found '2'", "a comma missing before 2"),
    ("A a AFTER MATCH SKIP TO a", "a", "FIRST, LAST or NEXT", "TO FIRST a"),
    ("A+ a[] WHERE a[i+1].x = 3", "+", "found '+'", "positions are a[1], a[i]"),
    ("A+ a[3]", "3", "expected ']'", "the brackets stay empty"),
    ("A a; B b", "B", "expected the end", "one query at a time"),
    ("price > 3", ">", "found '>'", "conditions follow WHERE"),
    ("A a WHERE a.x = 'abc", "'", "this string has no end", "close it"),
    ('A a WHERE a."x = 1', '"', "this quoted name has no end", "close it"),
    ("A a WHERE a.x = 1 /* b", "*", "this comment has no end", "close it"),
]

NAMES_AND_PLACES = [
    ("SEQ(A a, B b) WHERE c.x = 1", "c.x", "unknown variable 'c'", "known here: a, b"),
    ("SEQ(A first, B b) WHERE firts.x = 1", "firts.x", "unknown", "did you mean 'first'?"),
    ("A a WHERE price > 1", "price", "unknown variable 'price'", "a.price"),
    ('A a WHERE a.x = "IBM"', '"IBM"', "unknown variable 'IBM'", "single quotes: 'IBM'"),
    ("SEQ(A a, B a)", "B a", "two events are called 'a'", "B a2"),
    ("A a WHERE foo(a.x) = 1", "foo(a.x)", "unknown function 'foo'", ""),
    ("A a WHERE flor(a.x) = 1", "flor(a.x)", "unknown function", "did you mean 'floor'?"),
    ("A a WHERE abs(a.x, 1) = 1", "abs(a.x, 1)", "abs takes 1 argument, not 2", ""),
    ("A a WHERE avg(abs()) = 1", "avg(abs())", "needs the events of a variable", "avg(a.price)"),
    ("A a WHERE round() = 1", "round()", "round takes 1 or 2 arguments, not 0", ""),
    ("A a WHERE coalesce() = 1", "coalesce()", "takes at least 1 argument, not 0", ""),
    ("A a WHERE a = 1", "a", "a is a whole event", "a.price"),
    ("A a RETURN a.x, a.x", "a.x", "two columns are called 'x'", "AS"),
    ("EVENT X AS SEQ(A a, X x)", "X x", "X -> X", "different name"),
    ("A a WHERE a.x = 1 or [id]", "[id]", "[attr] must be", "a.id = b.id"),
    ("A a HAVING [id]", "[id]", "[attr] must be", ""),
    ('A a WHERE a."" = 1', '""', "a name cannot be empty", ""),
    ("A a WHERE a.x = 1e999", "1e999", "too large", ""),
    ("A a WHERE a.x = 5 ns", "5 ns", "whole microseconds", "1 us"),
    ("A a WHERE a.t = TIMESTAMP 'x'", "TIMESTAMP 'x'", "'x' is not a timestamp", "2026-01-31 10"),
    ("A a WHERE a.t = DATE '1.1.26'", "DATE '1.1.26'", "not a date", "DATE '2026-01-31'"),
    ("A a WHERE a.t = INTERVAL '5'", "INTERVAL '5'", "cannot be read", "INTERVAL '5' MINUTE"),
    ("A a WHERE a.t = INTERVAL '5 foo'", "INTERVAL '5 foo'", "not a unit", "weeks"),
]

KLEENE = [
    ("A+ a[] WHERE a.x = 1", "a.x", "several events", "a[a.LEN] the last, or an aggregate"),
    ("A+ a[] RETURN a.x", "a.x", "several events", "avg(a.x)"),
    ("A a WHERE a[i].x = 1", "a[i].x", "a is a single event", "write a.x"),
    ("A a WHERE a[1].x = 1", "a[1].x", "a is a single event", "write a.x"),
    ("A a WHERE avg(a[..i-1].x) = 1", "avg(a[..i-1].x)", "a is a single event", "without [...]"),
    ("A a RETURN a[]", "a[]", "a is a single event", "without [...]"),
    ("A+ a[] WHERE a[..i-1].x = 1", "a[..i-1].x", "one value is needed", "avg(a[..i-1].x)"),
    ("A+ a[] WHERE a[].x = 1", "a[].x", "one value is needed", "avg(a.x)"),
    ("A+ a[] RETURN a[].x + 1", "a[].x", "one value is needed", "avg(a.x)"),
    ("A+ a[] RETURN a[i].x", "a[i].x", "a running position in RETURN", "a[1]"),
    ("A+ a[] HAVING a[i-1].x = 1", "a[i-1].x", "a running position in HAVING", "a[a.LEN]"),
    ("A+ a[] RETURN avg(a[..i].x)", "avg(a[..i].x)", "a running position", "avg(a.price)"),
    ("A+ a[] WHERE avg(max(a.x)) = 1", "max(a.x)", "an aggregate inside an aggregate", "once"),
    ("SEQ(A+ a[], B b) WHERE sum(a.x + b.x) = 1", "sum(a.x + b.x)", "of a and b", "on its own"),
    ("A+ a[] WHERE sum(a.x + a[..i].x) = 1", "sum(a.x + a[..i].x)", "mixes positions", "same"),
    ("A+ a[] WHERE sum(a[1].x) = 1", "a[1].x", "this position names one", "a[..i-1]"),
    ("A+ a[] WHERE sum(1) = 1", "sum(1)", "needs the events of a variable", "sum(a.price)"),
    ("A+ a[] WHERE sum(a) = 1", "sum(a)", "sum needs a field of a", "sum(a.price)"),
    ("A+ a[] WHERE max(a.x, a.y) = 1", "max(a.x, a.y)", "one argument, not 2", "greatest(x, y)"),
    ("A+ a[] WHERE percentile(a.x) = 1", "percentile(a.x)", "a percentage", "percentile(a.price"),
    ("A+ a[] WHERE percentile(a.x, a.y) = 1", "a.y", "a number from 0 to 100", "90"),
    ("A+ a[] WHERE percentile(a.x, 101) = 1", "percentile(a.x, 101)", "not 101", "90"),
    ("SEQ(A+ a[], B+ b[]) WHERE a[i].x = b[i].x", "a[i].x = b[i].x", "both run", "avg(b.price)"),
    ("A+ a[] WHERE a[0].x = 1", "0", "positions count from 1", "a[1]"),
    ("A+ a[] WHERE a[1.5].x = 1", "1.5", "a whole number", "a[1]"),
    ("A+ a[] WHERE a[k].x = 1", "[k]", "not a position", "a[i]"),
    ("A+ a[] WHERE a[i-2].x = 1", "[i-2]", "not a position", "a[i-1]"),
    ("SEQ(A+ a[], B+ b[]) WHERE a[b.LEN].x = 1", "[b.LEN]", "of another variable", "a[a.LEN]"),
    ("A a[]", "A a[]", "A has no + or *", "A+ a[]"),
    ("SEQ(A? a[], B b)", "A? a[]", "A has no + or *", "A a for one"),
    ("A{3,2} a[]", "A{3,2} a[]", "at least 3 but at most 2", "{2,3}"),
    ("A{0,0} a[]", "A{0,0} a[]", "zero times", "!A a"),
    ("A{1.5} a[]", "1.5", "a whole number", ""),
    ("(A a, C c, !B b)+", "!B b", "a repeated group cannot end with a negation", "before an event"),
    (
        "(A a, !B b FROM a.end TO a.end + 5, C c)+",
        "!B b FROM a.end TO a.end + 5",
        "an absence with an explicit interval",
        "after the group",
    ),
    ("A a THEN NEXT !B b THEN C c", "THEN NEXT !B b", "a negated event does not", "THEN !B b"),
    ("A a THEN !SEQ(B b, C c) THEN D d", "THEN !SEQ(B b, C c)", "one event", "without THEN"),
    ("SEQ(A a UNTIL C c, B b)", "UNTIL C c", "UNTIL ends a loop", "B+ b[] UNTIL"),
    ("SEQ(A+ a[] UNTIL b.x > c.x, B b)", "UNTIL b.x > c.x", "not clear", "UNTIL C c"),
    ("SEQ((A a | B b) x, C c)", "x", "a variable after a bracket is one event", "(A|B) x"),
    ("SEQ((A|B) x[], C c)", "(A|B) x[]", "(A|B) has no + or *", "(A|B)+ x[]"),
    ("SEQ((A|B) x, ANY x)", "ANY x", "two events are called 'x'", "ANY x2"),
    ("SEQ(A+ a[] UNTIL C c, B b) WHERE c.x > b.x", "c.x > b.x", "'b' comes after 'c'", "before"),
    ("A a THEN !B b THEN C c WHERE b.x > c.x", "b.x > c.x", "'c' comes after 'b'", "before it"),
    ("SEQ(A a THEN WITHIN 0 B b)", "WITHIN 0", "longer than zero", "5 minutes"),
    ("(A a, AND(B b, C c))+", "AND(B b, C c)", "AND inside a repeated group", "in which orders"),
    ("SEQ(A* a[], B? b)", "SEQ(A* a[], B? b)", "can match nothing", "+ in place of *"),
    ("OR(A a, B? b)", "OR(A a, B? b)", "can match nothing", ""),
]

NEGATION = [
    ("!A a", "!A a", "only says what must not happen", "SEQ(A a, !B b)"),
    ("SEQ(!A a, !B b) WITHIN 5", "SEQ(!A a, !B b)", "only says what must not happen", ""),
    ("SEQ(A a, !!B b, C c)", "!B b", "a negation inside a negation", "without the inner !"),
    ("SEQ(A a, !(B+ b[]), C c)", "B+ b[]", "cannot have a quantifier", "!B b means that there is none"),
    ("SEQ(A a, !(B? b), C c)", "B? b", "cannot have a quantifier", "!B b means"),
    ("SEQ(A a, (!B b)?, C c)", "(!B b)?", "cannot be optional", "leave out the ?"),
    ("OR(A a, !B b)", "!B b", "an alternative by itself", "OR(SEQ(A a, !B b, C c), D d)"),
    ("AND(A a, !B b)", "AND(A a, !B b)", "fewer than two", "SEQ(A a, !B b)"),
    ("OR(A a, SEQ(!B b, !C c)) WITHIN 5", "SEQ(!B b, !C c)", "only says", "between"),
    ("SEQ(A a, !B b)", "!B b", "needs a window", "WITHIN 5 minutes"),
    ("SEQ(A a, !B b, C? c)", "!B b", "needs a window", "WITHIN"),
    ("SEQ(A a, !B b, C c) RETURN b.x", "b.x", "b is negated", "WHERE"),
    ("SEQ(A a, !B b, C c) HAVING b.x = 1", "b.x", "b is negated", "WHERE"),
    ("SEQ(A a, !B b, C c) WHERE count(b) = 1", "count(b)", "which is negated", "without an aggregate"),
    ("SEQ(A a, !B b, C c, !D d, E e) WHERE b.x = d.x", "b.x = d.x", "both absent", "compare each"),
    ("SEQ(A a, !B b, C c) AFTER MATCH SKIP TO FIRST b", "b", "'b' is negated", "known here: a, c"),
    ("SEQ(A a, B b) AFTER MATCH SKIP TO LAST c", "c", "unknown variable 'c'", "known here: a, b"),
]

STRATEGIES_AND_WINDOWS = [
    ("SEQ(A a, B b) WHERE strict_contiguity(a) { }", "a", "leaves out b", "(a, b)"),
    ("SEQ(A a, B b) WHERE strict_contiguity(a, b, c) { }", "c", "unknown variable 'c'", ""),
    ("SEQ(A a, B b) WHERE strict_contiguity(a, b, a) { }", "a", "listed twice", "once"),
    ("SEQ(A a, !B b, C c) WHERE strict_contiguity(a, b, c) { }", "b", "negated", "leave it out"),
    ("A a WITHIN 0", "0", "longer than zero", "WITHIN 5 minutes"),
    ("A a WITHIN -5 minutes", "-5 minutes", "longer than zero", "EVENTS"),
    ("A a WITHIN 0 EVENTS", "0 EVENTS", "longer than zero", ""),
    ("A a WITHIN 2.5 EVENTS", "2.5", "a whole number", ""),
    ("A a WITHIN 1000 weeks".replace("1000", "99999"), "99999 weeks", "too long", "292 years"),
]


@pytest.mark.parametrize(
    ("text", "underlined", "problem", "hint"), SYNTAX + NAMES_AND_PLACES + KLEENE + NEGATION + STRATEGIES_AND_WINDOWS
)
def test_an_error_names_the_place_and_the_way_out(text, underlined, problem, hint):
    error = error_of(text)
    assert problem in error.problem
    assert error.text == text
    assert error.span.over(text) == underlined
    assert hint in (error.hint or "")


@pytest.mark.parametrize("text", ["", "  \n", ";", "-- nothing\n/* at all */"])
def test_an_empty_query(text):
    assert "the query is empty" in str(error_of(text))


def test_an_error_as_it_is_shown():
    text = "PATTERN SEQ(Stock+ a[], Stock b)\nWHERE a.price > 3\nWITHIN 1 hour"
    assert (
        str(error_of(text))
        == """\
a stands for several events: which one do you mean?
  line 2, column 7
    WHERE a.price > 3
          ^^^^^^^
  hint: a[i].price for each, a[1] the first, a[a.LEN] the last, or an aggregate: avg(a.price)"""
    )


@pytest.mark.parametrize(("text", "underlined", "problem", "hint"), SYNTAX)
def test_no_name_of_the_grammar_shows(text, underlined, problem, hint):
    message = str(error_of(text))
    for internal in ("__ANON", "LPAR", "_", "NUMBER", "QUOTED", "$END", "COMPARISON", "JOIN"):
        # a query may itself contain an underscore
        assert internal not in message.replace("skip_till_next_match", "")


def test_an_error_can_be_sent_elsewhere():
    error = error_of("A a WHERE b.x = 1")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_variables_of_a_negated_group_may_be_compared():
    query = parse("SEQ(A a, !SEQ(B b, C c), D d) WHERE b.x = c.x and b.y = a.y and c.z < d.z")
    assert len(query.where) == 3


def test_a_previous_element_may_stand_alone():
    assert len(parse("A+ a[] WHERE a[i-1].x < 3 and avg(a[..i-1].x) > 1").where) == 2


def test_a_condition_may_be_constant():
    assert len(parse("A a WHERE 1 = 1 and true").where) == 2
