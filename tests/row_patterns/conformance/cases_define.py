"""Conditions: what they see of the match so far, and what a NULL condition means."""

from row_patterns.conformance.case import ONE_ROW, Case, Row, measured


def labels(name: str, values: list[object], pattern: str, define: str, expected: str) -> Case:
    """The labels of all matched rows, as `A1 B2 / A4`."""
    rows: list[Row] = [
        (number, int(word[1:]), word[0])
        for number, match in enumerate(expected.split("/"), start=1)
        for word in match.split()
    ]
    return measured(
        name,
        values,
        "MATCH_NUMBER() AS number, CLASSIFIER() AS label",
        rows,
        pattern=pattern,
        define=define,
        select="number, id, label",
    )


ROWS_SO_FAR = [
    labels("another variable", [10, 5, 20], "A B", "B AS B.value > A.value", "A2 B3"),
    labels(
        "another variable of many rows: its last",
        [1, 5, 3, 4],
        "A+ B",
        "A AS A.id < 4, B AS B.value > A.value",
        "A1 A2 A3 B4",
    ),
    labels(
        "the first row of another variable",
        [1, 5, 3, 2],
        "A+ B",
        "A AS A.id < 4, B AS B.value > FIRST(A.value)",
        "A1 A2 A3 B4",
    ),
    labels(
        "a variable that has no row yet", [1, 2], "A B | C", "A AS A.value > B.value, B AS TRUE, C AS C.value = 2", "C2"
    ),
    labels(
        "its own name and no name are the same row",
        [1, 2],
        "A",
        "A AS A.value = 2 AND value = 2 AND LAST(A.value) = 2",
        "A2",
    ),
    labels(
        "the first row of the variable itself",
        [5, 7, 6, 3, 4],
        "A+",
        "A AS A.value >= FIRST(A.value)",
        "A1 A2 A3 / A4 A5",
    ),
    labels(
        "the row before of the variable itself",
        [1, 2, 2, 3],
        "A+",
        "A AS LAST(A.value, 1) IS NULL OR A.value > LAST(A.value, 1)",
        "A1 A2 / A3 A4",
    ),
    labels("the first row of the match", [5, 6, 4, 7], "A B+", "B AS B.value > FIRST(value)", "A1 B2 / A3 B4"),
    labels("the condition decides the label", [1, 2, 1], "(A | B)+", "A AS A.value = 1, B AS B.value = 2", "A1 B2 A3"),
    labels("a label for which a later row fits", [1, 1], "(A | B)+ X", "X AS X.value = B.value", "B1 X2"),
    labels(
        "labels for which a later row fits",
        [1, 2, 2],
        "(A | B)+ X",
        "X AS X.value = A.value AND X.value = B.value + 1",
        "B1 A2 X3",
    ),
    labels(
        "a row is left to the right variable",
        [1, 2, 3, 3],
        "A+ B+ C",
        "C AS C.value = B.value AND COUNT(B.*) = 2",
        "A1 B2 B3 C4",
    ),
    labels(
        "rows are given back until a count fits",
        [1, 1, 1, 1],
        "A+ B+",
        "A AS A.value = 1, B AS COUNT(A.*) = 2",
        "A1 A2 B3 B4",
    ),
    labels("a longer match is dropped for a shorter one", [1, 2, 3, 9], "A B+", "B AS SUM(B.value) <= 5", "A1 B2 B3"),
    labels(
        "the definitions in another order",
        [1, 2, 3],
        "A B C",
        "C AS C.value > B.value, A AS A.value = 1, B AS B.value > A.value",
        "A1 B2 C3",
    ),
    labels(
        "conditions of two variables on each other",
        [3, 1, 2],
        "A B C",
        "B AS B.value < A.value, C AS C.value < A.value AND C.value > B.value",
        "A1 B2 C3",
    ),
    labels(
        "a variable of another branch has no row",
        [1, 2],
        "(A | B) C",
        "A AS FALSE, C AS A.value IS NULL AND B.value = 1",
        "B1 C2",
    ),
]

NEIGHBOURS = [
    labels(
        "falls, then rises",
        [9, 8, 7, 8, 9, 5, 4, 6],
        "A B+ C+",
        "B AS B.value < PREV(B.value), C AS C.value > PREV(C.value)",
        "A1 B2 B3 C4 C5 / A6 B7 C8",
    ),
    labels("no row before the first", [1, 2], "A", "A AS PREV(A.value) IS NULL", "A1"),
    labels("a comparison with no row is not true", [1, 2], "A", "A AS A.value > PREV(A.value)", "A2"),
    labels("no row after the last", [1, 2], "A", "A AS NEXT(A.value) IS NULL", "A2"),
    labels("a row that is not matched yet", [1, 5, 2], "A", "A AS NEXT(A.value) > A.value + 2", "A1"),
    labels("two rows back", [1, 2, 1, 2, 5], "A", "A AS A.value = PREV(A.value, 2)", "A3 / A4"),
    labels("two rows on", [1, 2, 1, 2, 5], "A", "A AS A.value = NEXT(A.value, 2)", "A1 / A2"),
    labels("beyond the partition", [1, 2], "A", "A AS COALESCE(PREV(A.value, 5), 0) = 0 AND A.value = 2", "A2"),
    labels(
        "the row before another variable",
        [1, 2, 3, 1],
        "A B",
        "A AS A.id = 3, B AS B.value = PREV(A.value, 2)",
        "A3 B4",
    ),
    labels("the row before the match", [7, 1, 7], "A B", "B AS B.value = PREV(FIRST(value))", "A2 B3"),
    labels("the row after the last A", [1, 4, 4], "A B C", "C AS C.value = NEXT(A.value)", "A1 B2 C3"),
    labels("a peak", [1, 3, 2, 5, 4], "A", "A AS A.value > PREV(A.value) AND A.value > NEXT(A.value)", "A2 / A4"),
]

LABELS_AND_NUMBERS = [
    labels("only the first two matches", [1, 1, 1, 1], "A", "A AS MATCH_NUMBER() <= 2", "A1 / A2"),
    labels(
        "the number of the match as its length",
        [1, 1, 1, 1, 1, 1],
        "A+",
        "A AS COUNT(*) <= MATCH_NUMBER()",
        "A1 / A2 A3 / A4 A5 A6",
    ),
    labels(
        "the sum of the number of the match over its rows",
        [1, 1, 1, 1],
        "A+",
        "A AS SUM(MATCH_NUMBER()) < 3",
        "A1 A2 / A3",
    ),
    labels(
        "the number of the match as a text of each row",
        [1, 1, 1, 1],
        "A B",
        "B AS STRING_AGG(CAST(MATCH_NUMBER() AS VARCHAR), '') = '11'",
        "A1 B2",
    ),
    labels(
        "the number of the match beside a column in an aggregate",
        [1, 2, 3, 4],
        "A+",
        "A AS MEDIAN(A.value + MATCH_NUMBER()) < 3.5",
        "A1 A2 A3",
    ),
    measured(
        "empty matches are numbered too",
        [1, 1, 1],
        "MATCH_NUMBER() AS number, CLASSIFIER() AS label",
        [(1, 1, None, 1), (2, 2, "A", 1), (3, 3, None, 1)],
        pattern="A?",
        define="A AS MATCH_NUMBER() = 2",
    ),
    labels("the label under test", [1, 2], "A | B", "A AS CLASSIFIER() = 'B', B AS CLASSIFIER() = 'B'", "B1 / B2"),
    labels(
        "the label of the row before in the match",
        [1, 1, 1, 1],
        "(A | B)+",
        "A AS COALESCE(LAST(CLASSIFIER(), 1), 'B') = 'B', B AS LAST(CLASSIFIER(), 1) = 'A'",
        "A1 B2 A3 B4",
    ),
    labels(
        "the label of the first row",
        [1, 2, 3],
        "(A | B) C+",
        "A AS A.value = 2, C AS FIRST(CLASSIFIER()) = 'A'",
        "A2 C3",
    ),
    labels(
        "the label of a variable without rows",
        [1, 2],
        "A B",
        "B AS CLASSIFIER(A) = 'A' AND CLASSIFIER(B) = 'B'",
        "A1 B2",
    ),
]


def kept(name: str, condition: str, *ids: int) -> Case:
    """The rows of 1, NULL, 3 for which the condition is true."""
    return measured(
        name, [1, None, 3], "A.id AS i", [(i,) for i in ids], pattern="A", define=f"A AS {condition}", mode=ONE_ROW
    )


NULLS = [
    kept("TRUE", "TRUE", 1, 2, 3),
    kept("FALSE", "FALSE"),
    kept("NULL is not true", "CAST(NULL AS BOOLEAN)"),
    kept("a comparison with NULL is not true", "A.value > 0", 1, 3),
    kept("nor is its negation", "NOT (A.value > 2)", 1),
    kept("nothing equals NULL", "A.value = NULL"),
    kept("IS NULL", "A.value IS NULL", 2),
    kept("IS NOT NULL", "A.value IS NOT NULL", 1, 3),
    kept("NULL or true", "A.value > 0 OR A.id = 2", 1, 2, 3),
    kept("NULL and true", "A.value > 0 AND A.id > 1", 3),
    kept("NULL and false, negated", "NOT (A.value > 0 AND A.id = 1)", 2, 3),
    kept("NULL or false, negated", "NOT (A.value > 2 OR A.id = 1)"),
    kept("IN a list with NULL", "A.value IN (1, NULL)", 1),
    kept("NOT IN a list with NULL", "A.value NOT IN (1, NULL)"),
    kept("BETWEEN with NULL", "A.value BETWEEN 0 AND 2", 1),
    kept("COALESCE of NULL", "COALESCE(A.value, 0) < 2", 1, 2),
    kept("a sum with NULL is NULL", "A.value + A.id > 0", 1, 3),
    kept("CASE without a branch is NULL", "CASE WHEN A.value = 1 THEN TRUE END", 1),
    kept("an aggregate leaves out NULL", "SUM(A.value) IS NULL", 2),
    kept("a count of NULL", "COUNT(A.value) = 0", 2),
    kept("a comparison with a NULL of the row before", "A.value > PREV(A.value)"),
    Case(
        "a column that is a condition",
        """
        SELECT * FROM (VALUES (1, TRUE), (2, FALSE), (3, NULL), (4, TRUE)) t(id, ok)
        MATCH_RECOGNIZE (ORDER BY id MEASURES A.id AS i PATTERN (A) DEFINE A AS A.ok)
        """,
        [(1,), (4,)],
    ),
]

CASES: list[Case] = ROWS_SO_FAR + NEIGHBOURS + LABELS_AND_NUMBERS + NULLS
