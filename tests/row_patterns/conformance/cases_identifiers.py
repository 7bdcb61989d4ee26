"""Names: quoted or not, in any case; keywords in any case; blanks and comments."""

from row_patterns.conformance.case import Case, Row, series


def names(name: str, clause: str, rows: list[Row], columns: list[str] | None = None) -> Case:
    sql = f"SELECT * FROM {series(10, 20)} MATCH_RECOGNIZE ({clause})"
    return Case(name, sql, rows, columns=columns)


VARIABLES = [
    names(
        "an unquoted variable has a label in capitals",
        "ORDER BY id MEASURES CLASSIFIER() AS label ALL ROWS PER MATCH "
        "PATTERN (strt up) DEFINE up AS up.value > strt.value",
        [(1, "STRT", 10), (2, "UP", 20)],
    ),
    names(
        "a quoted variable keeps its case",
        "ORDER BY id MEASURES CLASSIFIER() AS label ALL ROWS PER MATCH "
        'PATTERN (a "b") DEFINE "b" AS "b".value > a.value',
        [(1, "A", 10), (2, "b", 20)],
    ),
    names(
        "unquoted variables are the same in any case",
        "ORDER BY id MEASURES LAST(UP.value) AS v AFTER MATCH SKIP TO NEXT ROW "
        "PATTERN (Strt Up) DEFINE uP AS up.VALUE > STRT.value",
        [(20,)],
    ),
    names(
        "a quoted name in capitals is the unquoted one",
        'ORDER BY id MEASURES "A".value AS v PATTERN (a "B") DEFINE b AS b.value > "A".value',
        [(10,)],
    ),
    names(
        "a quoted small letter is another variable",
        'ORDER BY id MEASURES a.value AS x, "a".value AS y '
        'PATTERN (a "a") DEFINE "a" AS "a".value > a.value, a AS a.value = 10',
        [(10, 20)],
    ),
    names(
        "a quoted variable with a blank",
        'ORDER BY id MEASURES "go up".value AS v, CLASSIFIER() AS label '
        'PATTERN (A "go up") DEFINE "go up" AS "go up".value > A.value',
        [(20, "go up")],
    ),
    names(
        "quoted anchors are variables",
        "ORDER BY id MEASURES CLASSIFIER() AS label ALL ROWS PER MATCH "
        'PATTERN ("^" "$") DEFINE "$" AS "$".value > "^".value',
        [(1, "^", 10), (2, "$", 20)],
    ),
    names(
        "digits and underscores",
        "ORDER BY id MEASURES CLASSIFIER() AS label ALL ROWS PER MATCH "
        "PATTERN (a_1 b2) DEFINE b2 AS b2.value > a_1.value",
        [(1, "A_1", 10), (2, "B2", 20)],
    ),
    names(
        "a variable named like a column",
        "ORDER BY id MEASURES value.value AS v, id.id AS i PATTERN (id value) DEFINE value AS value.value > id.value",
        [(20, 1)],
    ),
    names(
        "a variable named like the table",
        "ORDER BY t.id MEASURES t.value AS v PATTERN (a t) DEFINE t AS t.value > a.value",
        [(20,)],
    ),
    names(
        "a union in small letters",
        "ORDER BY id MEASURES COUNT(both_.*) AS n, CLASSIFIER(BOTH_) AS label "
        "PATTERN (a b) SUBSET Both_ = (A, b) DEFINE b AS b.value > a.value",
        [(2, "B")],
    ),
    names(
        "skipping to a variable in another case",
        "ORDER BY id MEASURES A.value AS v AFTER MATCH SKIP TO LAST b PATTERN (a B) DEFINE B AS b.value > A.value",
        [(10,)],
    ),
    names(
        "permute in small letters",
        "ORDER BY id MEASURES CLASSIFIER() AS label ALL ROWS PER MATCH "
        "PATTERN (permute(a, b)) DEFINE a AS a.value = 20, b AS b.value = 10",
        [(1, "B", 10), (2, "A", 20)],
    ),
]

COLUMNS = [
    names(
        "columns in any case",
        "ORDER BY ID MEASURES A.Value AS v, LAST(VALUE) AS l PATTERN (A B) DEFINE B AS B.VALUE > A.vALUE",
        [(10, 20)],
    ),
    names(
        "a quoted column",
        'ORDER BY "id" MEASURES A."value" AS v PATTERN (A B) DEFINE B AS B."value" > A."value"',
        [(10,)],
    ),
    names(
        "measures without AS",
        "ORDER BY id MEASURES MATCH_NUMBER() n, A.value v, CASE WHEN B.value > 1 THEN 1 END big, "
        'B.value IS NULL missing, 7 "Seven" PATTERN (A B) DEFINE B AS B.value > A.value',
        [(1, 10, 1, False, 7)],
        columns=["n", "v", "big", "missing", "Seven"],
    ),
    names(
        "a quoted measure name",
        'ORDER BY id MEASURES A.value AS "The Value" PATTERN (A) DEFINE A AS A.value = 10',
        [(10,)],
        columns=["The Value"],
    ),
    Case(
        "quoted columns that are keywords or have blanks",
        """
        SELECT "from", "a b" FROM (SELECT 1 AS "order", 5 AS "my value") t MATCH_RECOGNIZE (
            ORDER BY "order"
            MEASURES A."my value" AS "from", "order" + 1 AS "a b"
            PATTERN (A)
            DEFINE A AS A."my value" = 5
        )
        """,
        [(5, 2)],
    ),
    Case(
        "a measure read in another case",
        f"""
        SELECT M.Price FROM {series(10)} MATCH_RECOGNIZE (
            ORDER BY id MEASURES A.value AS PRICE PATTERN (A) DEFINE A AS TRUE
        ) AS m
        """,
        [(10,)],
    ),
]

TEXT = [
    Case(
        "keywords in small letters",
        f"""
        select * from {series(10, 20)} match_recognize (
            order by id
            measures match_number() as n, classifier() as label, final last(value) as v
            all rows per match omit empty matches
            after match skip past last row
            pattern (a b)
            subset u = (a, b)
            define b as b.value > prev(b.value)
        ) as m
        """,
        [(1, 1, "A", 20, 10), (2, 1, "B", 20, 20)],
    ),
    Case(
        "comments",
        f"""
        SELECT * -- all of it
        FROM {series(10, 20)} MATCH_RECOGNIZE ( /* the order: */ ORDER BY id
            MEASURES A.value AS a, -- a comma, a parenthesis ( and PATTERN
                     B.value /* DEFINE A AS FALSE */ AS b
            PATTERN (A /* nothing between */ B) -- the end
            DEFINE B AS B.value > A.value
        )
        """,
        [(10, 20)],
    ),
    Case(
        "all in one line and no needless blanks",
        f"SELECT*FROM {series(10, 20)}MATCH_RECOGNIZE(ORDER BY id MEASURES A.value AS a,"
        "B.value AS b PATTERN(A B)DEFINE B AS B.value>A.value)AS m",
        [(10, 20)],
    ),
    Case(
        "the words of the clause within a text",
        f"""
        SELECT ') MATCH_RECOGNIZE (' AS s, a FROM {series(10)} MATCH_RECOGNIZE (
            ORDER BY id MEASURES A.value || ') PATTERN (' AS a PATTERN (A) DEFINE A AS TRUE
        )
        """,
        [(") MATCH_RECOGNIZE (", "10) PATTERN (")],
    ),
]

CASES: list[Case] = VARIABLES + COLUMNS + TEXT
