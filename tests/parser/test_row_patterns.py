"""MATCH_RECOGNIZE: what is read into the algebra of row patterns."""

from datetime import timedelta

import pytest

from ensue.errors import Span
from ensue.ir.expression import Binary, FieldRef, FunctionCall, Literal
from ensue.ir.row_pattern import (
    CLASSIFIER,
    OPERAND,
    ROW,
    Alternation,
    Concatenation,
    EmptyRowPattern,
    Exclusion,
    MatchNumber,
    Navigation,
    PartitionAnchor,
    Permutation,
    Repetition,
    RowAggregate,
    RowSkipTarget,
    RowSortKey,
    RowsPerMatch,
    RowVariable,
)
from ensue.parser.parameters import NO_PARAMETERS
from ensue.parser.registry import detect_language, parse, show
from ensue.parser.sql.clause_parser import parse_clause
from ensue.parser.sql.row_pattern_parser import parse_row_pattern
from ensue.parser.sql.sql_parser import parse_sql
from ensue.parser.sql.sqlglot_dialect import tokenize
from support.row_patterns import iterate_row_columns

PRICE = FieldRef(ROW, "price")
KIND = FieldRef(ROW, CLASSIFIER)
A, B, C = RowVariable("A"), RowVariable("B"), RowVariable("C")

STOCKS = """
SELECT * FROM ticker MATCH_RECOGNIZE (  -- the V of every guide
  PARTITION BY symbol
  ORDER BY tstamp
  MEASURES STRT.tstamp AS start_tstamp,
           LAST(DOWN.tstamp) AS bottom_tstamp,
           LAST(UP.tstamp) AS end_tstamp
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO LAST UP
  PATTERN (STRT DOWN+ UP+)
  DEFINE DOWN AS DOWN.price < PREV(DOWN.price),
         UP AS UP.price > PREV(UP.price)
) AS v
"""


def pattern(text):
    end = Span(len(text), len(text))
    return parse_row_pattern(tokenize(text, None), end, text, NO_PARAMETERS)


def measured(expression):
    """The value of one measure over a pattern with the variables A, B, C and the SUBSET U."""
    text = f"(MEASURES {expression} AS m PATTERN (A B+ C?) SUBSET U = (C, A) DEFINE A AS TRUE)"
    return parse_clause(text).measures[0].value


def reached(expression):
    """The one reach that a measure is."""
    value = measured(expression)
    assert value.expr == FieldRef(OPERAND, "0")
    assert len(value.operands) == 1
    return value.operands[0]


# ------------------------------------------------------------------------------------- clauses


def test_a_clause_is_read_inside_of_a_longer_text():
    found = parse_sql(STOCKS).clauses[0].row_pattern
    assert found.text == STOCKS
    assert found.pattern == Concatenation(
        (RowVariable("STRT"), Repetition(RowVariable("DOWN"), 1, None), Repetition(RowVariable("UP"), 1, None))
    )
    assert [key.name for key in found.partition] == ["symbol"]
    assert found.order == (RowSortKey(FieldRef(ROW, "tstamp")),)
    assert [measure.name for measure in found.measures] == ["start_tstamp", "bottom_tstamp", "end_tstamp"]
    assert found.skip.to is RowSkipTarget.LAST
    assert found.skip.variables == ("UP",)
    assert list(found.conditions) == ["DOWN", "UP"]


def test_places_are_those_in_the_whole_text():
    found = parse_sql(STOCKS).clauses[0].row_pattern
    assert found.measures[1].span.over(STOCKS) == "LAST(DOWN.tstamp) AS bottom_tstamp"
    assert found.defines[0].value.span.over(STOCKS) == "DOWN.price < PREV(DOWN.price)"
    assert found.defines[0].value.operands[1].span.over(STOCKS) == "PREV(DOWN.price)"
    assert found.pattern.parts[1].span.over(STOCKS) == "DOWN+"
    (column, _) = iterate_row_columns(found.defines[0].value)
    assert column.span.over(STOCKS) == "price"


def test_only_pattern_and_define_are_needed():
    found = parse_clause("match_recognize(pattern(a) define a as true);")
    assert found.rows is RowsPerMatch.ONE
    assert found.skip.to is RowSkipTarget.PAST_LAST
    assert (found.partition, found.order, found.measures, found.subsets) == ((), (), (), ())
    assert found.within is None


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("ONE ROW PER MATCH", RowsPerMatch.ONE),
        ("all rows per match", RowsPerMatch.ALL),
        ("ALL ROWS PER MATCH SHOW EMPTY MATCHES", RowsPerMatch.ALL),
        ("ALL ROWS PER MATCH OMIT EMPTY MATCHES", RowsPerMatch.ALL_BUT_EMPTY),
        ("ALL ROWS PER MATCH WITH UNMATCHED ROWS", RowsPerMatch.ALL_AND_UNMATCHED),
    ],
)
def test_what_a_match_gives(text, rows):
    assert parse_clause(f"({text} PATTERN (A) DEFINE A AS TRUE)").rows is rows


@pytest.mark.parametrize(
    ("text", "to", "name", "variables"),
    [
        ("PAST LAST ROW", RowSkipTarget.PAST_LAST, None, ()),
        ("TO NEXT ROW", RowSkipTarget.NEXT, None, ()),
        ("TO FIRST a", RowSkipTarget.FIRST, "A", ("A",)),
        ("TO LAST B", RowSkipTarget.LAST, "B", ("B",)),
        ("TO B", RowSkipTarget.LAST, "B", ("B",)),
        ("TO FIRST U", RowSkipTarget.FIRST, "U", ("A", "B")),
    ],
)
def test_where_the_search_goes_on(text, to, name, variables):
    clause = "(AFTER MATCH SKIP %s PATTERN (A B) SUBSET U = (B, A) DEFINE A AS TRUE)"
    skip = parse_clause(clause % text).skip
    assert (skip.to, skip.name, skip.variables) == (to, name, variables)


def test_the_order_of_rows():
    found = parse_clause(
        '(ORDER BY a, b DESC, c ASC NULLS FIRST, "D" DESC NULLS LAST, e + 1 PATTERN (A) DEFINE A AS TRUE)'
    )
    assert [(key.descending, key.nulls_first) for key in found.order] == [
        (False, False),
        (True, False),
        (False, True),
        (True, False),
        (False, False),
    ]
    assert found.order[3].expr == FieldRef(ROW, "D")
    assert found.order[4].expr == Binary("+", FieldRef(ROW, "e"), Literal(1))


def test_keys_may_be_computed_if_they_have_a_name():
    (plain, named, computed) = parse_clause(
        "(PARTITION BY a, b AS c, upper(d) AS e PATTERN (A) DEFINE A AS TRUE)"
    ).partition
    assert (plain.column, plain.name) == ("a", "a")
    assert (named.column, named.name) == ("b", "c")
    assert (computed.column, computed.name) == (None, "e")


@pytest.mark.parametrize(
    ("text", "within"),
    [
        ("INTERVAL '5' MINUTE", timedelta(minutes=5)),
        ("INTERVAL '90 seconds'", timedelta(seconds=90)),
        ("INTERVAL 2 HOUR", timedelta(hours=2)),
        ("10", 10),
        ("2.5", 2.5),
    ],
)
def test_how_long_a_match_may_be(text, within):
    found = parse_clause(f"(ORDER BY t PATTERN (A B) WITHIN {text} DEFINE A AS TRUE)")
    assert found.within == within


def test_the_variables_of_a_subset_are_in_the_order_of_the_pattern():
    found = parse_clause('(PATTERN (A B "c") SUBSET u = ("c", A), "v" = (B) DEFINE A AS TRUE)')
    assert found.subsets == (("U", ("A", "c")), ("v", ("B",)))


def test_words_of_the_clause_may_be_names():
    found = parse_clause(
        """(
        PARTITION BY measures ORDER BY partition, define
        MEASURES pattern AS pattern, first + A.last AS first, final AS define, A.subset AS one,
                 LAST(within) AS within, order AS "order", CASE_ AS case_, x AS initial
        ALL ROWS PER MATCH
        PATTERN (A DEFINE PATTERN)
        DEFINE DEFINE AS define > 3, PATTERN AS match = one
        )"""
    )
    names = ["pattern", "first", "define", "one", "within", "order", "case_", "initial"]
    assert [measure.name for measure in found.measures] == names
    assert found.variables == ("A", "DEFINE", "PATTERN")
    assert list(found.conditions) == ["DEFINE", "PATTERN"]
    assert [column.name for column in iterate_row_columns(found.measures[2].value)] == ["final"]


def test_variables_are_upper_case_unless_they_are_quoted():
    found = parse_clause('(PATTERN (a "a" `b c` B) DEFINE "a" AS "a".x > A.x, b AS b.x > 1)')
    assert found.variables == ("A", "a", "b c", "B")
    assert list(found.conditions) == ["a", "B"]
    assert [reach.variables for reach in found.defines[0].value.operands] == [("a",), ("A",)]


# ------------------------------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("A*", 0, None),
        ("A+", 1, None),
        ("A?", 0, 1),
        ("A{3}", 3, 3),
        ("A{3,}", 3, None),
        ("A{,3}", 0, 3),
        ("A{2 , 3}", 2, 3),
        ("A{,}", 0, None),
        ("A{0,1}", 0, 1),
    ],
)
def test_quantifiers(text, least, most):
    assert pattern(text) == Repetition(A, least, most)
    assert pattern(f"{text}?") == Repetition(A, least, most, greedy=False)
    assert pattern(f"{text} ?") == Repetition(A, least, most, greedy=False)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("A", A),
        ("(A)", A),
        ("()", EmptyRowPattern()),
        ("A B C", Concatenation((A, B, C))),
        ("A (B C)", Concatenation((A, Concatenation((B, C))))),
        ("A | B C | ()", Alternation((A, Concatenation((B, C)), EmptyRowPattern()))),
        ("(A | B)+", Repetition(Alternation((A, B)), 1, None)),
        ("(A*)+?", Repetition(Repetition(A, 0, None), 1, None, greedy=False)),
        ("^A$", Concatenation((PartitionAnchor("start"), A, PartitionAnchor("end")))),
        ("^*", Repetition(PartitionAnchor("start"), 0, None)),
        ("A{-B+-}C", Concatenation((A, Exclusion(Repetition(B, 1, None)), C))),
        ("{- A | B -}{2}", Repetition(Exclusion(Alternation((A, B))), 2, 2)),
        ("PERMUTE(A, B | C, ())", Permutation((A, Alternation((B, C)), EmptyRowPattern()))),
        ("permute (A)+", Repetition(Permutation((A,)), 1, None)),
        ("A /* no */ B -- end", Concatenation((A, B))),
        ("permute", RowVariable("PERMUTE")),
    ],
)
def test_patterns(text, term):
    assert pattern(text) == term


# ------------------------------------------------------------------------------- row patterns


@pytest.mark.parametrize(
    ("text", "reach"),
    [
        ("price", Navigation(PRICE)),
        ("A.price", Navigation(PRICE, ("A",))),
        ("a.price", Navigation(PRICE, ("A",))),
        ("U.price", Navigation(PRICE, ("A", "C"))),
        ("LAST(A.price)", Navigation(PRICE, ("A",))),
        ("RUNNING LAST(A.price)", Navigation(PRICE, ("A",))),
        ("LAST(A.price, 2)", Navigation(PRICE, ("A",), offset=2)),
        ("FIRST(B.price)", Navigation(PRICE, ("B",), first=True)),
        ("FINAL LAST(U.price, 1)", Navigation(PRICE, ("A", "C"), offset=1, final=True)),
        ("final /* all */\n first(price)", Navigation(PRICE, first=True, final=True)),
        ("PREV(price)", Navigation(PRICE, shift=-1)),
        ("PREV(B.price, 3)", Navigation(PRICE, ("B",), shift=-3)),
        ("PREV(price, 0)", Navigation(PRICE)),
        ("NEXT(price, 2)", Navigation(PRICE, shift=2)),
        ("PREV(FIRST(A.price, 2), 3)", Navigation(PRICE, ("A",), first=True, offset=2, shift=-3)),
        ("NEXT(FINAL LAST(A.price))", Navigation(PRICE, ("A",), shift=1, final=True)),
        ("PREV(RUNNING LAST(price))", Navigation(PRICE, shift=-1)),
        ("LAST(A.price + 1)", Navigation(Binary("+", PRICE, Literal(1)), ("A",))),
        ("CLASSIFIER()", Navigation(KIND)),
        ("CLASSIFIER(U)", Navigation(KIND, ("A", "C"))),
        ("LAST(CLASSIFIER(), 1)", Navigation(KIND, offset=1)),
        ("PREV(CLASSIFIER(U))", Navigation(KIND, ("A", "C"), shift=-1)),
        ("MATCH_NUMBER()", MatchNumber()),
    ],
)
def test_what_is_reached_from_a_match(text, reach):
    assert reached(text) == reach


@pytest.mark.parametrize(
    ("text", "aggregate"),
    [
        ("count(*)", RowAggregate("count")),
        ("COUNT(A.*)", RowAggregate("count", (), ("A",))),
        ("count(U.price)", RowAggregate("count", (PRICE,), ("A", "C"))),
        ("count(DISTINCT price)", RowAggregate("count", (PRICE,), distinct=True)),
        ("count(1)", RowAggregate("count", (Literal(1),))),
        ("sum(A.price)", RowAggregate("sum", (PRICE,), ("A",))),
        ("RUNNING sum(A.price)", RowAggregate("sum", (PRICE,), ("A",))),
        ("FINAL avg(price)", RowAggregate("avg", (PRICE,), final=True)),
        ("collect_list(price)", RowAggregate("array_agg", (PRICE,))),
        ("array_agg(CLASSIFIER(A))", RowAggregate("array_agg", (KIND,), ("A",))),
        ("max_by(A.price, A.n)", RowAggregate("max_by", (PRICE, FieldRef(ROW, "n")), ("A",))),
        ("arg_min(price, n)", RowAggregate("min_by", (PRICE, FieldRef(ROW, "n")))),
        ("percentile(price, 90)", RowAggregate("percentile", (PRICE, Literal(90)))),
        ("every(A.price > 3)", RowAggregate("bool_and", (Binary(">", PRICE, Literal(3)),), ("A",))),
        (
            "string_agg(A.name, ', ' ORDER BY A.price DESC)",
            RowAggregate(
                "string_agg",
                (FieldRef(ROW, "name"), Literal(", ")),
                ("A",),
                order=(RowSortKey(PRICE, descending=True),),
            ),
        ),
        (
            ("listagg(name, ',') WITHIN GROUP (ORDER BY price NULLS FIRST) FILTER (WHERE price > 0)"),
            RowAggregate(
                "string_agg",
                (FieldRef(ROW, "name"), Literal(",")),
                only=Binary(">", PRICE, Literal(0)),
                order=(RowSortKey(PRICE, nulls_first=True),),
            ),
        ),
        (
            "FINAL count(A.*) FILTER (WHERE A.price > 3)",
            RowAggregate("count", (), ("A",), True, only=Binary(">", PRICE, Literal(3))),
        ),
    ],
)
def test_aggregates(text, aggregate):
    assert reached(text) == aggregate


def test_equal_reaches_of_a_value_are_one():
    value = measured("A.price * LAST(A.price) + price + MATCH_NUMBER() - MATCH_NUMBER()")
    assert value.operands == (Navigation(PRICE, ("A",)), Navigation(PRICE), MatchNumber())


def test_functions_are_over_reaches():
    value = measured("Upper(A.name)")
    assert value.expr == FunctionCall("upper", (FieldRef(OPERAND, "0"),))
    assert value.operands == (Navigation(FieldRef(ROW, "name"), ("A",)),)


def test_functions_inside_of_a_navigation_are_over_the_row():
    assert reached("LAST(upper(A.name))") == Navigation(FunctionCall("upper", (FieldRef(ROW, "name"),)), ("A",))


# ------------------------------------------------------------------------------------ languages


def test_texts_that_begin_with_match_recognize_are_sql():
    text = "/* rising */ Match_Recognize (PATTERN (A) DEFINE A AS TRUE)"
    assert detect_language(text).name == "sql"
    found = parse(text)
    assert found == parse_clause(text)
    assert parse(show(found, "sql")) == found
    assert detect_language("match_recognizer a").name == "patterns"
