"""FIRST and LAST within the match, PREV and NEXT within the partition, one inside the other."""

from row_patterns.conformance.case import ONE_ROW, Case, measured

# The match is rows 2 to 6: A is row 2, B are rows 3 to 5, C is row 6; rows 1 and 7 are outside.
VALUES = [50, 40, 30, 20, 10, 60, 70]
PATTERN = "A B+ C"
DEFINE = "A AS A.value = 40, B AS B.value < PREV(B.value), C AS C.value > PREV(C.value)"


def navigate(name: str, expression: str, answer: object) -> Case:
    return measured(name, VALUES, f"{expression} AS m", [(answer,)], pattern=PATTERN, define=DEFINE, mode=ONE_ROW)


LOGICAL = [
    navigate("a column of a variable is that of its last row", "B.value", 10),
    navigate("a column alone is that of the last row", "value", 60),
    navigate("FIRST of a variable", "FIRST(B.value)", 30),
    navigate("LAST of a variable", "LAST(B.value)", 10),
    navigate("FIRST of the match", "FIRST(value)", 40),
    navigate("LAST of the match", "LAST(value)", 60),
    navigate("FIRST with an offset", "FIRST(B.value, 1)", 20),
    navigate("FIRST with the last offset", "FIRST(B.value, 2)", 10),
    navigate("FIRST beyond the rows of the variable", "FIRST(B.value, 3)", None),
    navigate("LAST with an offset", "LAST(B.value, 1)", 20),
    navigate("LAST with the last offset", "LAST(B.value, 2)", 30),
    navigate("LAST beyond the rows of the variable", "LAST(B.value, 3)", None),
    navigate("FIRST with offset 0", "FIRST(B.value, 0)", 30),
    navigate("LAST with offset 0", "LAST(B.value, 0)", 10),
    navigate("FIRST of the match with an offset", "FIRST(value, 4)", 60),
    navigate("FIRST does not leave the match", "FIRST(value, 5)", None),
    navigate("LAST of the match with an offset", "LAST(value, 4)", 40),
    navigate("LAST does not leave the match", "LAST(value, 5)", None),
    navigate("FIRST of a variable of one row", "FIRST(A.value)", 40),
    navigate("LAST of a variable of one row, with an offset", "LAST(A.value, 1)", None),
    navigate("an expression in FIRST", "FIRST(B.value + B.id)", 33),
    navigate("an expression around FIRST and LAST", "FIRST(B.value) - LAST(B.value)", 20),
    navigate("the label of the first row", "FIRST(CLASSIFIER())", "A"),
    navigate("the label of the second row", "FIRST(CLASSIFIER(), 1)", "B"),
    navigate("the label of a variable is its name", "LAST(CLASSIFIER(B))", "B"),
    navigate("a condition in LAST", "LAST(value > 50)", True),
    navigate("the match number next to a column", "LAST(value + MATCH_NUMBER())", 61),
]

PHYSICAL = [
    navigate("PREV of a variable", "PREV(B.value)", 20),
    navigate("NEXT of a variable", "NEXT(B.value)", 60),
    navigate("PREV of the match", "PREV(value)", 10),
    navigate("NEXT leaves the match", "NEXT(value)", 70),
    navigate("PREV leaves the match", "PREV(A.value)", 50),
    navigate("PREV with an offset", "PREV(B.value, 2)", 30),
    navigate("PREV with an offset out of the match", "PREV(B.value, 4)", 50),
    navigate("PREV beyond the partition", "PREV(B.value, 5)", None),
    navigate("NEXT with an offset", "NEXT(B.value, 2)", 70),
    navigate("NEXT beyond the partition", "NEXT(B.value, 3)", None),
    navigate("PREV with offset 0", "PREV(B.value, 0)", 10),
    navigate("NEXT with offset 0", "NEXT(B.value, 0)", 10),
    navigate("PREV far beyond the partition", "PREV(value, 1000000)", None),
    navigate("an expression in PREV", "PREV(B.value * 10 + B.id)", 204),
    navigate("an expression around PREV", "value - PREV(value)", 50),
    navigate("PREV and NEXT in one expression", "NEXT(A.value) + PREV(C.value)", 40),
    navigate("the label of the row before", "PREV(CLASSIFIER())", "B"),
    navigate("the label of the row before the first B", "PREV(FIRST(CLASSIFIER(B)))", "A"),
]

NESTED = [
    navigate("the row before the first B", "PREV(FIRST(B.value))", 40),
    navigate("two rows before the first B", "PREV(FIRST(B.value), 2)", 50),
    navigate("two rows before the second B", "PREV(FIRST(B.value, 1), 2)", 40),
    navigate("the row after the last B", "NEXT(LAST(B.value))", 60),
    navigate("the row after the last row", "NEXT(LAST(value))", 70),
    navigate("two rows after the first row", "NEXT(FIRST(value), 2)", 20),
    navigate("the row after the last B but two", "NEXT(LAST(B.value, 2))", 20),
    navigate("the row before the last B but one", "PREV(LAST(B.value, 1))", 30),
    navigate("offset 0 outside", "PREV(FIRST(B.value, 1), 0)", 20),
    navigate("there and beyond the partition", "PREV(FIRST(B.value), 3)", None),
    navigate("after it and beyond the partition", "NEXT(LAST(B.value), 3)", None),
    navigate("no such row inside, though there is one outside", "PREV(FIRST(B.value, 3), 2)", None),
    navigate("an expression inside", "PREV(FIRST(B.value + B.id), 1)", 42),
    navigate("an expression inside with two offsets", "PREV(FIRST(B.value * 10 + B.id, 1), 2)", 402),
    navigate("FINAL inside", "PREV(FINAL LAST(B.value))", 20),
    navigate("RUNNING inside", "NEXT(RUNNING FIRST(A.value))", 30),
]

ABSENT = [
    measured(
        "a variable without rows",
        [1, 2],
        "C.value AS v, FIRST(C.value) AS f, PREV(C.value) AS p, NEXT(C.value) AS n, "
        "PREV(FIRST(C.value)) AS pf, CLASSIFIER(C) AS c",
        [(None,) * 6],
        pattern="A B C?",
        define="B AS B.value > A.value, C AS FALSE",
        mode=ONE_ROW,
    ),
    measured(
        "a variable that comes later",
        [1, 2],
        "B.value AS b, FIRST(B.value) AS f, NEXT(B.value, 0) AS n",
        [(1, None, None, None, 1), (2, 2, 2, 2, 2)],
        pattern="A B",
        define="B AS B.value > A.value",
    ),
    measured(
        "PREV and NEXT row by row",
        [10, 20, 30],
        "PREV(value) AS p, NEXT(value) AS n, PREV(value, 2) AS pp",
        [(1, None, 20, None, 10), (2, 10, 30, None, 20), (3, 20, None, 10, 30)],
        pattern="A+",
        define="A AS TRUE",
    ),
    measured(
        "PREV of a variable stays at its last row",
        [10, 20, 30, 40],
        "PREV(B.value) AS p, NEXT(B.value) AS n",
        [(1, None, None, 10), (2, 10, 30, 20), (3, 20, 40, 30), (4, 20, 40, 40)],
        pattern="A B B C",
        define="B AS TRUE",
    ),
    measured(
        "values that are NULL in the row itself",
        [10, None, 30],
        "LAST(value, 1) AS l, PREV(value) AS p, FIRST(value, 1) AS f",
        [(None, None, None)],
        pattern="A B C",
        define="B AS TRUE",
        mode=ONE_ROW,
    ),
]

CASES: list[Case] = LOGICAL + PHYSICAL + NESTED + ABSENT
