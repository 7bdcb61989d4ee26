"""Where MATCH_RECOGNIZE clauses are in a SQL text, and the SQL around them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.errors import QueryError
from ensue.parser.sql.sql_parser import parse_sql
from ensue.parser.sql.sql_query import Dialect, build_clause_input, claims_sql, replace_clauses
from support.seeds import scaled


def named(clause):
    return f"#{clause.number}"


def inputs(text, dialect=Dialect.DUCKDB):
    query = parse_sql(text, dialect)
    return [clause.input.over(text) for clause in query.clauses]


def bodies(text, dialect=Dialect.DUCKDB):
    query = parse_sql(text, dialect)
    return [clause.body.over(text) for clause in query.clauses]


def rest(text, dialect=Dialect.DUCKDB):
    return replace_clauses(parse_sql(text, dialect), named).text


def refused(text, dialect=Dialect.DUCKDB):
    with pytest.raises(QueryError) as error:
        parse_sql(text, dialect)
    return error.value


# ---------------------------------------------------------------------------- tables


@pytest.mark.parametrize(
    "table",
    [
        "t",
        "t x",
        "t AS x",
        '"my table" AS "x y"',
        "db.schema.t",
        "t x(a, b)",
        "t AS x (a, b)",
        "range(10)",
        "range(10) r(i)",
        "db.f(1, (2)) AS r",
        "(SELECT * FROM a, b WHERE a.x = b.x ORDER BY 1)",
        "(SELECT 1) x",
        "(VALUES (1, 'a'), (2, 'b')) t(id, value)",
        "VALUES (1, 'a'), (2, 'b') AS t(id, value)",
        "(a JOIN b USING (id))",
        "t x TABLESAMPLE (10 PERCENT)",
        "t /* not ) this */ x",
        "unnest([1, 2]) u(x)",
        "tête",
    ],
)
@pytest.mark.parametrize("before", ["FROM ", "FROM a, ", "FROM a JOIN ", "from a x left join "])
def test_the_table_before_a_clause_is_its_input(before, table):
    text = f"SELECT * {before}{table} MATCH_RECOGNIZE (PATTERN (A)) AS m WHERE 1 = 1"
    assert inputs(text) == [table]
    assert rest(text) == f"SELECT * {before}#1 AS m WHERE 1 = 1"


def test_a_table_behind_the_condition_of_a_join_is_one_of_the_list():
    assert inputs("SELECT * FROM a JOIN b ON a.x = b.x, c MATCH_RECOGNIZE (1)") == ["c"]


def test_a_clause_in_a_join_in_parentheses():
    assert inputs("SELECT * FROM (t MATCH_RECOGNIZE (1) m JOIN u USING (id))") == ["t"]
    assert inputs("SELECT * FROM ((u CROSS JOIN t MATCH_RECOGNIZE (1)))") == ["t"]


@pytest.mark.parametrize(
    ("table", "plain", "alias"),
    [
        ("t", "t", None),
        ('"T t" x', "T t", "x"),
        ("t AS x", "t", "x"),
        ("t x(a)", None, "x"),
        ("s.t x", None, "x"),
        ("f(1) x", None, "x"),
        ("(SELECT 1) x", None, "x"),
    ],
)
def test_a_table_that_is_just_a_name_is_known_as_such(table, plain, alias):
    (clause,) = parse_sql(f"SELECT * FROM {table} MATCH_RECOGNIZE (1)").clauses
    assert (clause.table, clause.input_alias) == (plain, alias)


@pytest.mark.parametrize(
    ("behind", "alias"),
    [
        ("", None),
        (" m", "m"),
        (" AS m", "m"),
        (' AS "M m" (a, b)', "M m"),
        (" WHERE x", None),
        (" JOIN u ON true", None),
        (" LEFT JOIN u ON true", None),
        (" UNION SELECT 1", None),
        (", u", None),
    ],
)
def test_the_name_behind_a_clause(behind, alias):
    (clause,) = parse_sql(f"SELECT * FROM t MATCH_RECOGNIZE (1){behind}").clauses
    assert clause.alias == alias


# ---------------------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    "body",
    [
        "PATTERN ((A | B)+? C{2,3} {- D -} ^ E $)",
        "PATTERN (^ A $$ B $$)",
        "DEFINE A AS a.x = ')' AND b = 'it''s ('",
        'DEFINE A AS a.")" > 1',
        "-- )\n PATTERN (A)",
        "/* ( /* ) */ ( */ PATTERN (A)",
        "PATTERN (PERMUTE(A, B)) DEFINE A AS a.x = '\\'",
        "",
    ],
)
@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_clause_ends_with_its_own_parenthesis(body, dialect):
    text = f"SELECT ')', 'x' FROM t match_recognize({body}) AS m"
    assert bodies(text, dialect) == [body]
    assert rest(text, dialect) == "SELECT ')', 'x' FROM #1 AS m"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'FROM t MATCH_RECOGNIZE ('",
        'SELECT "MATCH_RECOGNIZE (" FROM t',
        "SELECT 1 -- FROM t MATCH_RECOGNIZE (",
        "SELECT 1 /* /* */ FROM t MATCH_RECOGNIZE ( */",
        "SELECT $$ MATCH_RECOGNIZE ( $$, $a$ $$ ' $a$",
        r"SELECT E'\' MATCH_RECOGNIZE ('",
    ],
)
def test_strings_names_and_comments_hold_no_clauses(text):
    assert parse_sql(text).clauses == ()


@pytest.mark.parametrize(
    "text",
    [
        r"SELECT '\' MATCH_RECOGNIZE ('",
        r"""SELECT "\" MATCH_RECOGNIZE (", r'\'""",
        "SELECT `MATCH_RECOGNIZE (`",
        "SELECT 1 -- it goes on \\\n MATCH_RECOGNIZE (\n",
    ],
)
def test_strings_and_comments_of_spark(text):
    assert parse_sql(text, Dialect.SPARK).clauses == ()


# ---------------------------------------------------------------------------- several


def test_inputs_hold_only_clauses_of_lower_numbers():
    text = (
        "SELECT * FROM (SELECT * FROM a MATCH_RECOGNIZE (one) JOIN b MATCH_RECOGNIZE (two) x) y "
        "MATCH_RECOGNIZE (three) WHERE z IN (SELECT k FROM c MATCH_RECOGNIZE (four))"
    )
    query = parse_sql(text)
    assert bodies(text) == ["one", "two", "three", "four"]
    assert rest(text) == "SELECT * FROM #3 WHERE z IN (SELECT k FROM #4)"
    third = build_clause_input(query, query.clauses[2], named).text
    assert third == "SELECT * FROM (SELECT * FROM #1 JOIN #2 x) y"


def test_a_clause_may_stand_behind_another():
    text = "SELECT * FROM t MATCH_RECOGNIZE (one) AS a MATCH_RECOGNIZE (two) b"
    query = parse_sql(text)
    assert rest(text) == "SELECT * FROM #2 b"
    assert build_clause_input(query, query.clauses[1], named).text == "SELECT * FROM #1 AS a"
    assert query.clauses[1].table is None


def test_named_queries_that_are_known_go_with_an_input():
    text = (
        "WITH a AS (SELECT 1), b(x) AS MATERIALIZED (SELECT * FROM a MATCH_RECOGNIZE (one)), "
        "c AS (SELECT 3) SELECT * FROM (WITH a AS (SELECT 4), d AS (SELECT * FROM b) "
        "SELECT * FROM d MATCH_RECOGNIZE (two)), (WITH e AS (SELECT 1) FROM e)"
    )
    query = parse_sql(text)
    one, two = (build_clause_input(query, clause, named).text for clause in query.clauses)
    assert one == "WITH a AS (SELECT 1) SELECT * FROM a"
    assert two == (
        "WITH a AS (SELECT 1), b(x) AS MATERIALIZED (SELECT * FROM #1), c AS (SELECT 3) "
        "SELECT * FROM (WITH a AS (SELECT 4), d AS (SELECT * FROM b) SELECT * FROM d"
        "\n) AS __ensue_input_1"
    )


def test_a_named_query_hides_a_table():
    query = parse_sql("WITH T AS (FROM t) SELECT * FROM t MATCH_RECOGNIZE (1)")
    assert query.plain_table(query.clauses[0]) is None


def test_a_named_query_of_spark_needs_no_as():
    query = parse_sql("WITH a (SELECT 1) SELECT * FROM a MATCH_RECOGNIZE (1)", Dialect.SPARK)
    assert [one.name for one in query.withs[0].queries] == ["a"]


def test_a_clause_over_what_a_recursive_query_has_made():
    text = (
        "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < 5), "
        "m AS (SELECT * FROM n MATCH_RECOGNIZE (1)) SELECT * FROM m"
    )
    query = parse_sql(text)
    assert build_clause_input(query, query.clauses[0], named).text.startswith("WITH RECURSIVE n AS (")


def test_positions_lead_back_into_the_text():
    text = "SELECT x FROM t MATCH_RECOGNIZE (PATTERN (A)) AS m WHERE yy > 1"
    rewritten = replace_clauses(parse_sql(text), named)
    start = rewritten.text.index("yy")
    assert rewritten.origin(start, start + 2).over(text) == "yy"
    assert rewritten.origin(rewritten.text.index("#1"), 16) is None


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("SELECT * FROM t MATCH_RECOGNIZE (1)", True),
        ("FROM t x MATCH_RECOGNIZE (1) AS m;", True),
        ("SELECT * FROM (SELECT * FROM t MATCH_RECOGNIZE (1)) MATCH_RECOGNIZE (2) m", True),
        ("SELECT * FROM t MATCH_RECOGNIZE (1) m (a)", False),
        ("SELECT x FROM t MATCH_RECOGNIZE (1)", False),
        ("SELECT * FROM t MATCH_RECOGNIZE (1) WHERE x", False),
        ("(SELECT * FROM t MATCH_RECOGNIZE (1))", False),
    ],
)
def test_a_query_that_is_one_clause(text, only):
    query = parse_sql(text)
    assert query.only == (query.clauses[-1] if only else None)


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        ("", "an empty text is not a query", None),
        (" ; -- nothing", "an empty text is not a query", None),
        ("SELECT (1", "this '(' is not closed", "("),
        ("SELECT 1)", "this ')' has no matching opening bracket", ")"),
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A)", "this '(' is not closed", "("),
        ("SELECT 'x", "this string has no end", "'"),
        ('SELECT "x', "this quoted name has no end", '"'),
        ("SELECT /* x", "this comment has no end", "/*"),
        ("SELECT $a$ x", "this string has no end", "$a$"),
        ("SELECT 1; SELECT 2", "more than one statement", "SELECT"),
        ("SELECT * FROM MATCH_RECOGNIZE (1)", "no table before", "MATCH_RECOGNIZE"),
        ("MATCH_RECOGNIZE (1)", "no table before", "MATCH_RECOGNIZE"),
        ("SELECT t MATCH_RECOGNIZE (1)", "no table before", "MATCH_RECOGNIZE"),
        ("SELECT a, t MATCH_RECOGNIZE (1)", "no table before", "MATCH_RECOGNIZE"),
        ("SELECT f(t MATCH_RECOGNIZE (1))", "no table before", "MATCH_RECOGNIZE"),
        ("SELECT f(a, t MATCH_RECOGNIZE (1))", "no table before", "MATCH_RECOGNIZE"),
        ("SELECT * FROM t WHERE x MATCH_RECOGNIZE (1)", "no table before", "MATCH_RECOGNIZE"),
        ("SELECT * FROM a JOIN b ON x MATCH_RECOGNIZE (1)", "no table before", "MATCH_RECOGNIZE"),
        ("SELECT * FROM a JOIN b USING (x) MATCH_RECOGNIZE (1)", "no table before", "MATCH_RECOGNIZE"),
        ("SELECT * FROM 1 MATCH_RECOGNIZE (1)", "does not belong here", "1"),
        ("SELECT * FROM a, LATERAL (SELECT 1) MATCH_RECOGNIZE (1)", "LATERAL", "LATERAL"),
        ("SELECT * FROM t MATCH_RECOGNIZE", "a parenthesis is missing", "MATCH_RECOGNIZE"),
        (
            "SELECT m OVER w FROM t WINDOW w AS (MEASURES A.x AS m PATTERN (A) DEFINE A AS x < 3)",
            "row patterns in windows are not supported",
            "PATTERN",
        ),
        (
            "SELECT sum(x) OVER (ORDER BY x PATTERN (A+) DEFINE A AS A.x < 3) FROM t",
            "row patterns in windows are not supported",
            "PATTERN",
        ),
        (
            "SELECT * FROM t MATCH_RECOGNIZE (DEFINE A AS EXISTS (FROM u match_recognize (1)))",
            "inside the parentheses of another",
            "match_recognize",
        ),
        (
            "WITH RECURSIVE n AS (SELECT 1 UNION SELECT * FROM n MATCH_RECOGNIZE (1)) FROM n",
            "is inside n, which refers to itself",
            "MATCH_RECOGNIZE",
        ),
    ],
)
def test_errors_point_at_the_place(text, problem, place):
    error = refused(text)
    assert problem in error.problem
    assert (None if error.span is None else error.span.over(text)) == place


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize(
    "text",
    [
        "COPY t TO 'x'",
        "ATTACH 'x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA version",
        "SET threads = 1",
        "CREATE TABLE x AS SELECT 1",
        "INSERT INTO t SELECT 1",
        "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
        "WITH a AS (SELECT 1) DELETE FROM t",
        "FROM t INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT *",
        "DROP TABLE t",
        "EXPLAIN SELECT 1",
        "CALL f()",
        "WITH",
        "WITH x",
        "((",
        "hello",
    ],
)
def test_what_is_no_query_is_refused(text, dialect):
    refused(text, dialect)


@pytest.mark.parametrize("depth", [101, 100_000])
def test_deep_nesting_is_refused(depth):
    text = "SELECT * FROM " + "(SELECT * FROM " * depth + "t" + ") MATCH_RECOGNIZE (1)" * depth
    assert "brackets are nested more than 100 deep" in refused(text).problem


def test_many_clauses_inside_of_each_other():
    text = "SELECT * FROM " + "(SELECT * FROM " * 40 + "t" + ") MATCH_RECOGNIZE (1)" * 40
    query = parse_sql(text)
    assert len(query.clauses) == 40
    assert build_clause_input(query, query.clauses[39], named).text == "SELECT * FROM (SELECT * FROM #39)"


def test_a_long_list_of_clauses():
    text = "SELECT * FROM " + ", ".join(f"t MATCH_RECOGNIZE (x) AS m{k}" for k in range(500))
    assert len(parse_sql(text).clauses) == 500


PARTS = [
    "SELECT",
    "*",
    "FROM",
    "JOIN",
    "WITH",
    "AS",
    "(",
    ")",
    "(",
    ")",
    ",",
    "t",
    "x",
    ".",
    "1",
    "'a'",
    '"b"',
    "`",
    "'",
    "MATCH_RECOGNIZE",
    "MATCH_RECOGNIZE(",
    "VALUES",
    "LATERAL",
    "RECURSIVE",
    ";",
    "--",
    "/*",
    "*/",
    "$",
    "$$",
    "{-",
    "-}",
    "ON",
    "UNION",
    "TABLE",
    "AS",
    "\n",
]


@settings(max_examples=scaled(500), deadline=None)
@given(st.lists(st.sampled_from(PARTS)), st.sampled_from(Dialect))
def test_whatever_is_written_is_read_or_refused(parts, dialect):
    text = "SELECT * FROM t " + " ".join(parts)
    claims_sql(text)
    try:
        query = parse_sql(text, dialect)
    except QueryError as error:
        str(error)
        return
    replace_clauses(query, named)
    for clause in query.clauses:
        assert clause.whole.start == clause.input.start < clause.keyword.start < clause.body.start
        build_clause_input(query, clause, named)


# ---------------------------------------------------------------------------- whose text


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A))", True),
        ("-- a comment\n(with a as (select 1) select * from a match_recognize (1))", True),
        ("FROM t MATCH_RECOGNIZE (1)", True),
        ("SELECT * FROM t MATCH_RECOGNIZE (never closed", True),
        ("SELECT * FROM t", False),
        ("MATCH_RECOGNIZE (PATTERN (A))", False),
        ("SEQ(A a, B b) WHERE a.x = 'MATCH_RECOGNIZE'", False),
        ("SELECT 'MATCH_RECOGNIZE'", False),
        ("", False),
    ],
)
def test_sql_with_a_clause_is_claimed(text, sql):
    assert claims_sql(text) is sql
