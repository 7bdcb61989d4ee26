"""SUBSET: unions of variables in measures, conditions, CLASSIFIER and aggregates."""

from row_patterns.conformance.case import ALL_ROWS, ONE_ROW, Case, measured

# A is 10, then rows above 10 are H (high), rows below 10 are L (low), and 0 ends the match.
VALUES = [10, 20, 5, 30, 0]
PATTERN = "A (L | H)+ E"
DEFINE = "A AS A.value = 10, L AS L.value BETWEEN 1 AND 9, H AS H.value > 10, E AS E.value = 0"
UNION = "SUBSET U = (L, H)"


def union(name: str, measures: str, *answers: object, subset: str = UNION) -> Case:
    """Measures of the one match, as one row."""
    return measured(name, VALUES, measures, [answers], pattern=PATTERN, define=DEFINE, subset=subset, mode=ONE_ROW)


MEASURES = [
    union("the last row of a union", "LAST(U.value) AS v", 30),
    union("the first row of a union", "FIRST(U.value) AS v", 20),
    union("a column of a union is that of its last row", "U.value AS v", 30),
    union("the second row of a union", "FIRST(U.value, 1) AS v", 5),
    union("the last but two of a union", "LAST(U.value, 2) AS v", 20),
    union("beyond the rows of a union", "LAST(U.value, 3) AS v", None),
    union("the row before the last of a union", "PREV(U.value) AS v", 5),
    union("the row after the last of a union", "NEXT(U.value) AS v", 0),
    union("the row before the first of a union", "PREV(FIRST(U.value)) AS v", 10),
    union("rows of a union", "COUNT(U.*) AS n", 3),
    union("a sum over a union", "SUM(U.value) AS s", 55),
    union("extremes of a union", "MIN(U.value) AS lo, MAX(U.value) AS hi", 5, 30),
    union("all values of a union in order", "ARRAY_AGG(U.value) AS v", [20, 5, 30]),
    union("the label of the last row of a union", "CLASSIFIER(U) AS c", "H"),
    union("the label of the first row of a union", "FIRST(CLASSIFIER(U)) AS c", "H"),
    union("the second label of a union", "FIRST(CLASSIFIER(U), 1) AS c", "L"),
    union("labels of a union in order", "ARRAY_AGG(CLASSIFIER(U)) AS c", ["H", "L", "H"]),
    union(
        "two unions that overlap",
        "COUNT(U.*) AS u, COUNT(W.*) AS w, LAST(W.value) AS v",
        3,
        3,
        30,
        subset="SUBSET U = (L, H), W = (A, H)",
    ),
    union("a union of one variable", "SUM(U.value) AS s", 50, subset="SUBSET U = (H)"),
    union(
        "a union of all variables is the match",
        "COUNT(U.*) AS n, COUNT(*) AS all_rows, CLASSIFIER(U) AS c",
        5,
        5,
        "E",
        subset="SUBSET U = (A, L, H, E)",
    ),
    union("the order of the names does not matter", "LAST(U.value) AS v", 30, subset="SUBSET U = (H, L)"),
    union("a union and its variables in one measure", "U.value - L.value + A.value AS v", 35),
    union("several columns of a union in one call", "LAST(U.value * 100 + U.id) AS v", 3004),
    union("a label and a column of a union in one call", "LAST(CLASSIFIER(U) || U.id) AS v", "H4"),
]

RUNNING = [
    measured(
        "a union row by row",
        VALUES,
        "U.value AS v, CLASSIFIER(U) AS c, COUNT(U.*) AS n",
        [(1, None, None, 0, 10), (2, 20, "H", 1, 20), (3, 5, "L", 2, 5), (4, 30, "H", 3, 30), (5, 30, "H", 3, 0)],
        pattern=PATTERN,
        define=DEFINE,
        subset=UNION,
        mode=ALL_ROWS,
    ),
    measured(
        "a union of rows that are absent",
        [1, 2],
        "U.value AS v, COUNT(U.*) AS n, SUM(U.value) AS s, CLASSIFIER(U) AS c",
        [(None, 0, None, None)],
        pattern="A B? C? D",
        define="A AS A.value = 1, B AS FALSE, C AS FALSE, D AS D.value = 2",
        subset="SUBSET U = (B, C)",
        mode=ONE_ROW,
    ),
]

CONDITIONS = [
    measured(
        "a condition on the last row of a union",
        [10, 20, 15, 16],
        "CLASSIFIER() AS c",
        [(1, "A", 10), (2, "B", 20), (3, "C", 15)],
        pattern="A B? C",
        define="B AS B.value > 15, C AS C.value < LAST(U.value)",
        subset="SUBSET U = (A, B)",
    ),
    measured(
        "a condition on a sum over a union with the current row",
        [1, 2, 3, 4],
        "COUNT(*) AS n, SUM(U.value) AS s",
        [(3, 6), (1, 4)],
        pattern="A B*",
        define="B AS SUM(U.value) <= 6",
        subset="SUBSET U = (A, B)",
        mode=ONE_ROW,
    ),
    measured(
        "a condition on a union without the current variable",
        [1, 2, 3, 4],
        "COUNT(*) AS n",
        [(3,), (1,)],
        pattern="A B* C?",
        define="B AS SUM(U.value) < 2 AND B.value < 3, C AS SUM(U.value) = 1 AND C.value = 3",
        subset="SUBSET U = (A)",
        mode=ONE_ROW,
    ),
    measured(
        "a condition on the label within a union",
        [1, 2, 1, 1],
        "CLASSIFIER() AS c",
        [(1, "A", 1), (2, "B", 2), (3, "C", 1)],
        pattern="(A | B)+ C",
        define="A AS A.value = 1, B AS B.value = 2, C AS CLASSIFIER(U) = 'B'",
        subset="SUBSET U = (A, B)",
    ),
]

CASES: list[Case] = MEASURES + RUNNING + CONDITIONS
