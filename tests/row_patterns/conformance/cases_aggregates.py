"""Aggregates over the rows of a variable, of a union, of the whole match."""

from row_patterns.conformance.case import ONE_ROW, Case, measured

# A is row 1, B are rows 2 to 4 (one of them NULL), C has no row, D is row 5.
VALUES = [10, 20, None, 40, 5]
PATTERN = "A B+ C? D"
DEFINE = "A AS A.value = 10, B AS B.id < 5, C AS FALSE, D AS D.value = 5"


def total(name: str, measure: str, answer: object) -> Case:
    return measured(name, VALUES, f"{measure} AS m", [(answer,)], pattern=PATTERN, define=DEFINE, mode=ONE_ROW)


COUNTS = [
    total("count of all rows", "COUNT(*)", 5),
    total("count of the rows of a variable", "COUNT(B.*)", 3),
    total("count of values of a variable", "COUNT(B.value)", 2),
    total("count of values of the match", "COUNT(value)", 4),
    total("count of a constant", "COUNT(1)", 5),
    total("count of the rows of an absent variable", "COUNT(C.*)", 0),
    total("count of values of an absent variable", "COUNT(C.value)", 0),
    total("count of labels", "COUNT(CLASSIFIER())", 5),
    total("count of an expression that is partly NULL", "COUNT(B.value + 1)", 2),
    total("count in an expression", "COUNT(B.*) * 10 + COUNT(A.*)", 31),
]

SUMS = [
    total("sum of a variable", "SUM(B.value)", 60),
    total("sum of the match", "SUM(value)", 75),
    total("sum of an absent variable", "SUM(C.value)", None),
    total("sum of an expression", "SUM(B.value * 2 + B.id)", 126),
    total("sum of a constant over the match", "SUM(1)", 5),
    total("average of a variable", "AVG(B.value)", 30),
    total("average of an absent variable", "AVG(C.value)", None),
    total("smallest of a variable", "MIN(B.value)", 20),
    total("largest of a variable", "MAX(B.value)", 40),
    total("smallest of the match", "MIN(value)", 5),
    total("largest of the match", "MAX(value)", 40),
    total("smallest of an absent variable", "MIN(C.value)", None),
    total("largest label", "MAX(CLASSIFIER())", "D"),
    total("sum of a CASE", "SUM(CASE WHEN B.value > 30 THEN 1 ELSE 0 END)", 1),
    total("sum with the match number", "SUM(B.id + MATCH_NUMBER())", 12),
    total("two sums in one measure", "SUM(B.value) - SUM(A.value)", 50),
    total("a sum and a row of another variable", "SUM(B.value) + D.value", 65),
    total("a sum in COALESCE", "COALESCE(SUM(C.value), 0)", 0),
    total("all of a variable", "BOOL_AND(B.id > 1)", True),
    total("any of a variable", "BOOL_OR(B.id > 4)", False),
]

LISTS = [
    total("a list of a variable", "ARRAY_AGG(B.id)", [2, 3, 4]),
    total("a list with NULL", "ARRAY_AGG(B.value)", [20, None, 40]),
    total("a list of the match", "ARRAY_AGG(id)", [1, 2, 3, 4, 5]),
    total("a list of labels", "ARRAY_AGG(CLASSIFIER())", ["A", "B", "B", "B", "D"]),
    total("a list of labels of one variable", "ARRAY_AGG(CLASSIFIER(B))", ["B", "B", "B"]),
    total("text of labels", "STRING_AGG(CLASSIFIER(), '-')", "A-B-B-B-D"),
    total("text of an absent variable", "STRING_AGG(CLASSIFIER(C), '-')", None),
    total("the row of the largest value", "MAX_BY(id, value)", 4),
    total("the row of the smallest value", "MIN_BY(id, value)", 5),
    total("the row of the largest value of a variable", "MAX_BY(B.id, B.value)", 4),
    total("the label of the largest value", "MAX_BY(CLASSIFIER(), value)", "B"),
    total("the label of the smallest value of a variable", "MIN_BY(CLASSIFIER(B), B.value)", "B"),
    total("the row of the largest value of an absent variable", "MAX_BY(C.id, C.value)", None),
]

TYPES = [
    Case(
        "extremes of text and dates",
        """
        SELECT * FROM (VALUES
            (1, 'pear', DATE '2024-01-03'), (2, 'apple', DATE '2024-01-01'),
            (3, 'fig', DATE '2024-01-02')
        ) t(id, s, d) MATCH_RECOGNIZE (
            ORDER BY id
            MEASURES MIN(s) AS lo, MAX(s) AS hi, CAST(MAX(d) AS VARCHAR) AS day
            PATTERN (A+) DEFINE A AS TRUE
        )
        """,
        [("apple", "pear", "2024-01-03")],
    ),
    Case(
        "sums of decimals and floats",
        """
        SELECT * FROM (VALUES (1, 1.25, CAST(0.5 AS DOUBLE)), (2, 2.50, CAST(0.25 AS DOUBLE)))
        t(id, price, weight) MATCH_RECOGNIZE (
            ORDER BY id
            MEASURES SUM(price) AS p, SUM(weight) AS w, SUM(price * 2) AS pp
            PATTERN (A+) DEFINE A AS TRUE
        )
        """,
        [(3.75, 0.75, 7.5)],
    ),
    Case(
        "a sum beyond 32 bits",
        """
        SELECT * FROM (VALUES (1, 2000000000), (2, 2000000000)) t(id, v) MATCH_RECOGNIZE (
            ORDER BY id MEASURES SUM(v) AS s PATTERN (A+) DEFINE A AS TRUE
        )
        """,
        [(4000000000,)],
    ),
]

CONDITIONS = [
    measured(
        "a running sum with the current row",
        [5, 3, 4, 9, 2],
        "FIRST(id) AS f, LAST(id) AS l, SUM(value) AS s",
        [(1, 2, 8), (3, 3, 4), (4, 4, 9), (5, 5, 2)],
        pattern="A+",
        define="A AS SUM(A.value) < 10",
        mode=ONE_ROW,
    ),
    measured(
        "a running count with the current row",
        [1, 1, 1, 1, 1],
        "COUNT(*) AS n",
        [(2,), (2,), (1,)],
        pattern="A+",
        define="A AS COUNT(*) <= 2",
        mode=ONE_ROW,
    ),
    measured(
        "a count of the variable itself",
        [1, 1, 1, 1],
        "COUNT(A.*) AS a, COUNT(B.*) AS b",
        [(3, 1)],
        pattern="A+ B",
        define="A AS COUNT(A.*) <= 3",
        mode=ONE_ROW,
    ),
    measured(
        "an average of the rows before another variable",
        [10, 20, 16, 14],
        "CLASSIFIER() AS c",
        [(1, "A", 10), (2, "A", 20), (3, "B", 16)],
        pattern="A A B",
        define="B AS B.value > AVG(A.value)",
    ),
    measured(
        "the current row is in an aggregate over the match",
        [10, 20, 16, 14],
        "CLASSIFIER() AS c",
        [(1, "A", 10), (2, "B", 20)],
        pattern="A B",
        define="B AS B.value = MAX(value)",
    ),
    measured(
        "the current row is not in an aggregate over another variable",
        [10, 20, 30],
        "B.value AS b",
        [(20,)],
        pattern="A B",
        define="B AS SUM(A.value) = 10 AND SUM(B.value) = 20",
        mode=ONE_ROW,
    ),
    measured(
        "an aggregate over a variable without rows yet",
        [1, 2, 3],
        "ARRAY_AGG(CLASSIFIER()) AS c",
        [(["B", "B", "B"],)],
        pattern="(A | B)+",
        define="A AS SUM(B.value) > 100, B AS COUNT(A.*) = 0 AND SUM(A.value) IS NULL",
        mode=ONE_ROW,
    ),
    measured(
        "a condition on the length of the match",
        [1, 2, 3, 4, 5],
        "LAST(id) AS l",
        [(3,)],
        pattern="A+? B",
        define="B AS COUNT(*) = 3",
        mode=ONE_ROW,
    ),
    measured(
        "RUNNING may be said in a condition",
        [5, 3, 4],
        "COUNT(*) AS n",
        [(2,), (1,)],
        pattern="A+",
        define="A AS RUNNING SUM(A.value) < 10",
        mode=ONE_ROW,
    ),
]

CASES: list[Case] = COUNTS + SUMS + LISTS + TYPES + CONDITIONS
