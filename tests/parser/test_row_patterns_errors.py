"""What MATCH_RECOGNIZE refuses: errors name the place, the reason and a way out."""

import subprocess
import sys

import pytest

from ensue.errors import QueryError
from ensue.parser.sql.clause_parser import parse_clause
from ensue.parser.sql.sql_parser import parse_sql


def refused(text):
    """The problem, the words that it is about, and the hint."""
    with pytest.raises(QueryError) as caught:
        parse_clause(text)
    error = caught.value
    assert error.text == text
    assert error.span is not None
    return error.problem, error.span.over(text), error.hint


def refused_measure(expression):
    clause = "(ORDER BY t MEASURES %s AS m PATTERN (A B+ C?) SUBSET U = (A, B) DEFINE A AS TRUE)"
    return refused(clause % expression)


def refused_definition(condition):
    return refused(f"(PATTERN (A B+) SUBSET U = (A, B) DEFINE B AS {condition})")


def refused_pattern(pattern):
    return refused(f"(PATTERN ({pattern}) DEFINE A AS TRUE)")


def test_an_error_shows_the_line_of_the_whole_text():
    text = "SELECT *\nFROM t MATCH_RECOGNIZE (\n  PATTERN (A B+)\n  DEFINE B AS C.price > 3\n)"
    with pytest.raises(QueryError) as caught:
        _ = parse_sql(text).clauses[0].row_pattern
    assert str(caught.value) == (
        "there is no variable 'C' in the pattern\n"
        "  line 4, column 15\n"
        "      DEFINE B AS C.price > 3\n"
        "                  ^\n"
        "  hint: known here: A, B"
    )


# ------------------------------------------------------------------------------ parts of a clause


@pytest.mark.parametrize(
    ("text", "problem", "place", "hint"),
    [
        ("", "expected '(' after MATCH_RECOGNIZE", "", "PATTERN"),
        ("MATCH_RECOGNIZE x", "expected '(' after MATCH_RECOGNIZE", "x", "PATTERN"),
        ("()", "MATCH_RECOGNIZE is empty", "", "PATTERN"),
        ("(PATTERN (A) DEFINE A AS TRUE) AS x", "'AS' follows the clause", "AS", "nothing"),
        ("(PATTERN (A))", "DEFINE is missing", "", "DEFINE B AS"),
        ("(DEFINE A AS TRUE)", "PATTERN is missing", "", "PATTERN (A B+)"),
        ("(PATTERN (A) DEFINE)", "'DEFINE' cannot follow", "DEFINE", "conditions follow"),
        ("(PATTERN (A) DEFINE A TRUE)", "'DEFINE' cannot follow", "DEFINE", "DEFINE B AS"),
        ("(PATTERN A DEFINE A AS TRUE)", "'PATTERN' does not start a part", "PATTERN", "parentheses"),
        ("(PATTERN (A)+ DEFINE A AS TRUE)", "'+' cannot follow", "+", "go inside"),
        ("(PARTITON BY a PATTERN (A) DEFINE A AS TRUE)", "'PARTITON'", "PARTITON", "PARTITION?"),
        ("(MEASURES a AS b PATERN (A) DEFINE A AS TRUE)", "PATTERN is missing", "PATERN", "did you mean PATTERN?"),
        ("(DEFINE A AS TRUE PATTERN (A))", "PATTERN belongs before DEFINE", "PATTERN", "the order is PARTITION BY"),
        (
            "(ORDER BY t PARTITION BY s PATTERN (A) DEFINE A AS TRUE)",
            "PARTITION BY belongs before ORDER BY",
            "PARTITION BY",
            "the order is",
        ),
        ("(PATTERN (A) PATTERN (A) DEFINE A AS TRUE)", "PATTERN is given twice", "PATTERN", "leave one out"),
        ("(MEASURES PATTERN (A) DEFINE A AS TRUE)", "MEASURES is empty", "MEASURES", "leave it out"),
        (
            "(MEASURES a AS b, PATTERN (A) DEFINE A AS TRUE)",
            "something is missing in MEASURES",
            "MEASURES a AS b,",
            "one comma",
        ),
        ("(SEEK PATTERN (A) DEFINE A AS TRUE)", "SEEK belongs to", "SEEK", "finds all matches"),
        (
            "(AFTER MATCH SKIP TO NEXT ROW INITIAL PATTERN (A) DEFINE A AS TRUE)",
            "INITIAL belongs to row patterns in windows",
            "INITIAL",
            "leave it out",
        ),
        ("(ONE ROW PATTERN (A) DEFINE A AS TRUE)", "'ONE ROW' is not valid here", "ONE ROW", "ONE ROW PER MATCH or"),
        (
            "(AFTER MATCH SKIP PAST FIRST ROW PATTERN (A) DEFINE A AS TRUE)",
            "'AFTER MATCH SKIP PAST FIRST ROW' is not valid here",
            "AFTER MATCH SKIP PAST FIRST ROW",
            "TO NEXT ROW",
        ),
        (
            "(AFTER MATCH SKIP TO X PATTERN (A) DEFINE A AS TRUE)",
            "there is no variable 'X' in the pattern",
            "X",
            "known here: A",
        ),
        (
            "(PATTERN (A) WITHIN INTERVAL '0' DAY DEFINE A AS TRUE)",
            "WITHIN needs a positive length of time",
            "WITHIN INTERVAL '0' DAY",
            "INTERVAL '5' MINUTE",
        ),
        ("(PATTERN (A] DEFINE A AS TRUE)", "this ']' does not close the '('", "]", "close that"),
        ("(PATTERN (A DEFINE A AS TRUE)", "this '(' is not closed", "(", "close it with ')'"),
        ("(PATTERN (A) /* DEFINE A AS TRUE)", "this comment has no end", "/*", "close it"),
        ("(PATTERN (A) DEFINE A AS x = 'b)", "this string has no end", "'", "close it"),
    ],
)
def test_parts_that_are_missing_or_out_of_order(text, problem, place, hint):
    found = refused(text)
    assert found[0].startswith(problem)
    assert found[1] == place
    assert hint in found[2]


def test_exclusion_does_not_go_with_unmatched_rows():
    problem, place, _ = refused("(ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A {- B -}) DEFINE A AS TRUE)")
    assert problem.startswith("{- -} cannot be combined with WITH UNMATCHED ROWS")
    assert place == "{- B -}"


@pytest.mark.parametrize(
    ("subsets", "problem", "place"),
    [
        ("A = (B)", "'A' is a variable of the pattern", "A"),
        ("U = (A), U = (B)", "there are two SUBSETs 'U'", "U"),
        ("U = (A), V = (U)", "'U' is a SUBSET itself", "U"),
        ("U = (X)", "there is no variable 'X' in the pattern", "X"),
        ("U = ()", "a SUBSET lists variables", "()"),
        ("U = (A B)", "a SUBSET lists variables", "(A B)"),
        ("U = A", "a SUBSET is a name and its variables", "U = A"),
    ],
)
def test_subsets(subsets, problem, place):
    found = refused(f"(PATTERN (A B) SUBSET {subsets} DEFINE A AS TRUE)")
    assert found[:2] == (problem, place)


@pytest.mark.parametrize(
    ("measures", "problem", "place"),
    [
        ("price", "a measure needs a name", "price"),
        ("t + INTERVAL '5' MINUTE", "a measure needs a name", "t + INTERVAL '5' MINUTE"),
        ("CASE WHEN n > 1 THEN (2) END", "a measure needs a name", "CASE WHEN n > 1 THEN (2) END"),
        ("sum(price) x, n AS X", "there are two measures called 'X'", "X"),
        ("price AS x, n AS X", "there are two measures called 'X'", "X"),
        ('price AS "x", n AS x', "there are two measures called 'x'", "x"),
    ],
)
def test_names_of_measures(measures, problem, place):
    found = refused(f"(MEASURES {measures} PATTERN (A) DEFINE A AS TRUE)")
    assert found[:2] == (problem, place)


def test_keys_are_columns_of_the_table():
    clause = "(%s PATTERN (A) DEFINE A AS TRUE)"
    assert refused(clause % "PARTITION BY A.s")[2] == "write s"
    assert refused(clause % "ORDER BY sum(s)")[1] == "sum(s)"
    assert refused(clause % "ORDER BY PREV(s)")[0].startswith("ORDER BY works on single rows")


# --------------------------------------------------------------------------------------- pattern


@pytest.mark.parametrize(
    ("pattern", "problem", "place"),
    [
        ("A*+", "a quantifier after a quantifier", "+"),
        ("A{2}{3}", "a quantifier after a quantifier", "{"),
        ("A+???", "a quantifier after a quantifier", "?"),
        ("A{3,2}", "this quantifier asks for at least 3 and at most 2", "{3,2}"),
        ("A{}", "this quantifier has no number", "{}"),
        ("A{x}", "this is not a quantifier", "x"),
        ("A{1.5}", "this is not a quantifier", "1.5"),
        ("A{99999999999}", "quantifiers go up to 1,000,000,000", "99999999999"),
        ("A B{20001}", "this pattern expands to 20,002 variables", "B{20001}"),
        ("(A{200}){200}", "this pattern expands to 40,000 variables", "(A{200}){200}"),
        ("PERMUTE(A,A,A,A,A,A,A)", "PERMUTE takes at most 6 parts", "PERMUTE(A,A,A,A,A,A,A)"),
        ("PERMUTE()", "expected a variable", ")"),
        ("A |", "a branch of this alternation is empty", ")"),
        ("| A", "a branch of this alternation is empty", "|"),
        ("A || B", "a branch of this alternation is empty", "||"),
        ("A (B | )", "a branch of this alternation is empty", ")"),
        ("", "the pattern is empty", ")"),
        ("A, B", "variables are not separated by ','", ","),
        ("+", "'+' has nothing before it to repeat", "+"),
        ("{- -}", "an exclusion needs a pattern inside", "-}"),
        ("A.price", "a pattern names variables, not columns", "."),
        ("A & B", "'&' is not allowed in a pattern", "&"),
        ("A 1", "'1' does not belong here", "1"),
        ('A ""', "a name cannot be empty", '""'),
    ],
)
def test_patterns(pattern, problem, place):
    found = refused_pattern(pattern)
    assert found[0].startswith(problem)
    assert found[1] == place


def test_patterns_are_not_nested_without_end():
    assert "more than 50 deep" in refused_pattern("(" * 60 + "A" + ")" * 60)[0]
    assert "more than 100 deep" in refused_pattern("(" * 5000 + "A" + ")" * 5000)[0]
    assert "more than 50 deep" in refused_pattern("((" * 30 + "A" + ")?)+" * 30)[0]


# ------------------------------------------------------------------------------- row patterns


@pytest.mark.parametrize(
    ("expression", "problem", "place"),
    [
        ("sum(avg(A.price))", "AVG cannot be used inside sum", "avg(A.price)"),
        ("sum(LAST(price))", "LAST cannot be used inside sum", "LAST(price)"),
        ("LAST(sum(price))", "SUM cannot be used inside LAST", "sum(price)"),
        ("LAST(LAST(A.price))", "LAST cannot be used inside LAST", "LAST(A.price)"),
        ("FIRST(PREV(A.price))", "PREV cannot be used inside FIRST", "PREV(A.price)"),
        ("PREV(PREV(price))", "PREV cannot be used inside PREV", "PREV(price)"),
        ("PREV(LAST(A.price) + 1)", "LAST in PREV must stand alone there", "LAST(A.price)"),
        ("LAST(A.price + B.price)", "LAST works over the rows of one variable", "B.price"),
        ("LAST(U.price + A.price)", "LAST works over the rows of one variable", "A.price"),
        ("sum(A.price + price)", "sum works over the rows of one variable", "price"),
        ("count(*) FILTER (WHERE A.x)", "count works over the rows of one variable", "A.x"),
        ("array_agg(A.x ORDER BY B.x)", "array_agg works over the rows of one", "B.x"),
        ("PREV(1)", "PREV needs a column or CLASSIFIER()", "PREV(1)"),
        ("LAST(3 + 4)", "LAST needs a column or CLASSIFIER()", "LAST(3 + 4)"),
        ("LAST(A.price, -1)", "the offset of LAST must be a constant whole number", "1"),
        ("LAST(A.price, n)", "the offset of LAST must be a constant whole number", "n"),
        ("PREV(price, 1.5)", "the offset of PREV must be a constant whole number", "1.5"),
        ("PREV(price, 1, 2)", "PREV takes an expression and", "PREV(price, 1, 2)"),
        ("RUNNING PREV(price)", "RUNNING cannot be combined with PREV", "RUNNING PREV(price)"),
        ("FINAL NEXT(price)", "FINAL cannot be combined with NEXT", "FINAL NEXT(price)"),
        ("FINAL upper(s)", "FINAL cannot be combined with UPPER", "FINAL upper(s)"),
        ("FINAL CLASSIFIER()", "FINAL cannot be combined with CLASSIFIER", "FINAL CLASSIFIER()"),
        ("FINAL price", "FINAL goes before FIRST, LAST or an aggregate", "FINAL price"),
        ("RUNNING A.price + 1", "RUNNING goes before FIRST, LAST or", "RUNNING A"),
        ("D.price", "there is no variable 'D' in the pattern", "D"),
        ("CLASSIFIER(D)", "there is no variable 'D' in the pattern", "D"),
        ("count(D.*)", "there is no variable 'D' in the pattern", "D"),
        ("CLASSIFIER(1)", "CLASSIFIER takes one variable, or nothing", "CLASSIFIER(1)"),
        ("MATCH_NUMBER(1)", "MATCH_NUMBER takes no argument", "MATCH_NUMBER(1)"),
        ("sum(MATCH_NUMBER(1))", "MATCH_NUMBER takes no argument", "MATCH_NUMBER(1)"),
        ("sum(*)", "sum needs a column, and only count takes whole rows", "*"),
        ("A.*", "a whole row has no value", "A.*"),
        ("max(price, n)", "max takes 1 argument, not 2", "max(price, n)"),
        ("string_agg(s, n)", "argument 2 of string_agg must be a constant", "n"),
        ("first_value(price)", "first_value is a window function", "first_value(price)"),
        ("A.b.price", "a column is written as variable.column", "A.b.price"),
        ("upper(s) FILTER (WHERE x)", "upper is not an aggregate", "upper(s) FILTER (WHERE x"),
    ],
)
def test_measures(expression, problem, place):
    found = refused_measure(expression)
    assert found[0].startswith(problem)
    assert found[1] == place


@pytest.mark.parametrize(
    ("condition", "problem", "place"),
    [
        ("FINAL LAST(price) > 3", "DEFINE cannot look at the final rows", "FINAL LAST(price)"),
        ("FINAL sum(price) > 3", "DEFINE cannot look at the final rows", "FINAL sum(price)"),
        ("Z.price > 3", "there is no variable 'Z' in the pattern", "Z"),
        ("TRUE, B AS FALSE", "'B' is defined twice", "B"),
        ("TRUE, X AS TRUE", "there is no variable 'X' in the pattern", "X"),
        ("TRUE, U AS TRUE", "'U' is a SUBSET, and cannot have a condition", "U"),
        ("TRUE, A = 3", "a definition is a variable and its condition", "A = 3"),
    ],
)
def test_definitions(condition, problem, place):
    found = refused_definition(condition)
    assert found[0].startswith(problem)
    assert found[1] == place


# --------------------------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    ("expression", "problem", "place"),
    [
        ("sum(x) OVER ()", "window functions are not supported", "sum(x)"),
        ("(SELECT 1)", "a subquery needs the tables of a whole query", "(SELECT 1)"),
        ("EXISTS (SELECT 1)", "a subquery needs the tables of a whole query", "EXISTS (SELECT 1)"),
        ("x IN (SELECT 1)", "a subquery needs the tables of a whole query", "x IN (SELECT 1"),
        ("?", "parameters need names", "?"),
        (":x", "no value is given for :x", ":x"),
        ("transform(x, y -> y + 1)", "higher-order functions are not", "y -> y + 1"),
        ("LAST(x) IGNORE NULLS", "IGNORE NULLS is not supported", "LAST(x)"),
        ("uper(x)", "there is no function 'uper'", "uper(x)"),
        ("upper(x, y)", "upper takes 1 argument, not 2", "upper(x, y)"),
        ("x LIKE y", "the pattern of LIKE must be a string", "x LIKE y"),
        ("x LIKE 'a!b' ESCAPE '!'", "'!' must be followed by '%', '_' or '!'", "x LIKE 'a!b' ESCAPE '!'"),
        ("INTERVAL n MINUTE", "the length of an interval must be a constant", "n"),
        ("INTERVAL '5' MONTH", "'MONTH' is not a unit of time", "'5'"),
        ("DATE '31.1.2026'", "'31.1.2026' is not a date", "'31.1.2026'"),
        ("CAST(x AS json)", "casts to JSON are not supported", "CAST(x AS json)"),
        ("x IS 3", "IS takes NULL, TRUE, FALSE", "x IS 3"),
        ("x +", "'+' does not belong here", "+"),
        ("x y", "'y' does not belong here", "y"),
        ("x[1]", "this expression is not supported here", "x[1"),
        ("x & 3", "this expression is not supported here", "x & 3"),
        ("x; y", "';' does not belong here", ";"),
        ("1e999", "this number is too large", "1e999"),
    ],
)
def test_expressions(expression, problem, place):
    found = refused_measure(expression)
    assert found[0].startswith(problem)
    assert found[1] == place


@pytest.mark.parametrize(
    "expression", ["NOT " * 3000 + "x", "- " * 3000 + "x", "(" * 99 + "x" + ")" * 99, "x" + " + 1" * 3000]
)
def test_expressions_are_not_nested_without_end(expression):
    assert "nested" in refused_measure(expression)[0]


def test_without_sqlglot_there_is_a_way_out():
    code = (
        "import sys\n"
        "sys.modules['sqlglot'] = None\n"
        "import ensue.parser.registry as table\n"
        "try:\n"
        "    table.parse('MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS TRUE)')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith(
        "RunnerError MATCH_RECOGNIZE needs the package sqlglot, which is not installed\n  hint: pip install "
    )


def test_languages_are_listed_without_sqlglot():
    code = "import sys, ensue.parser.registry\nprint('sqlglot' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
