"""RUNNING and FINAL in measures."""

from row_patterns.conformance.case import ONE_ROW, Case, Row, measured

VALUES = [90, 80, 70, 100, 200]
PATTERN = "A B+ C+"
DEFINE = "B AS B.value < PREV(B.value), C AS C.value > PREV(C.value)"


def by_row(name: str, measures: str, *answers: object, select: str = "id, m") -> Case:
    """One measure m of each of the five rows of the match."""
    rows: list[Row] = [(number, answer) for number, answer in enumerate(answers, start=1)]
    return measured(name, VALUES, measures, rows, pattern=PATTERN, define=DEFINE, select=select)


ALL_ROWS_PER_MATCH = [
    by_row("LAST is running", "LAST(value) AS m", 90, 80, 70, 100, 200),
    by_row("RUNNING LAST", "RUNNING LAST(value) AS m", 90, 80, 70, 100, 200),
    by_row("FINAL LAST", "FINAL LAST(value) AS m", 200, 200, 200, 200, 200),
    by_row("a column alone is running", "value + 0 AS m", 90, 80, 70, 100, 200),
    by_row("FIRST is running", "FIRST(value) AS m", 90, 90, 90, 90, 90),
    by_row("FINAL FIRST", "FINAL FIRST(value) AS m", 90, 90, 90, 90, 90),
    by_row("LAST of a variable is running", "LAST(B.value) AS m", None, 80, 70, 70, 70),
    by_row("a column of a variable is running", "B.value AS m", None, 80, 70, 70, 70),
    by_row("FINAL LAST of a variable", "FINAL LAST(B.value) AS m", 70, 70, 70, 70, 70),
    by_row("FIRST of a later variable is running", "FIRST(C.value) AS m", None, None, None, 100, 100),
    by_row("FINAL FIRST of a later variable", "FINAL FIRST(C.value) AS m", 100, 100, 100, 100, 100),
    by_row("RUNNING LAST with an offset", "LAST(value, 1) AS m", None, 90, 80, 70, 100),
    by_row("FINAL LAST with an offset", "FINAL LAST(value, 1) AS m", 100, 100, 100, 100, 100),
    by_row("FINAL FIRST with an offset", "FINAL FIRST(value, 2) AS m", 70, 70, 70, 70, 70),
    by_row("CLASSIFIER is running", "CLASSIFIER() AS m", "A", "B", "B", "C", "C"),
    by_row("FINAL LAST of the label", "FINAL LAST(CLASSIFIER()) AS m", "C", "C", "C", "C", "C"),
    by_row("FINAL FIRST of the label", "FINAL FIRST(CLASSIFIER()) AS m", "A", "A", "A", "A", "A"),
    by_row("the label of a variable is running", "CLASSIFIER(B) AS m", None, "B", "B", "B", "B"),
    by_row("the match number is the same for all rows", "MATCH_NUMBER() AS m", 1, 1, 1, 1, 1),
    by_row("COUNT is running", "COUNT(*) AS m", 1, 2, 3, 4, 5),
    by_row("RUNNING COUNT", "RUNNING COUNT(*) AS m", 1, 2, 3, 4, 5),
    by_row("FINAL COUNT", "FINAL COUNT(*) AS m", 5, 5, 5, 5, 5),
    by_row("COUNT of a variable is running", "COUNT(B.*) AS m", 0, 1, 2, 2, 2),
    by_row("FINAL COUNT of a variable", "FINAL COUNT(B.*) AS m", 2, 2, 2, 2, 2),
    by_row("SUM is running", "SUM(value) AS m", 90, 170, 240, 340, 540),
    by_row("FINAL SUM", "FINAL SUM(value) AS m", 540, 540, 540, 540, 540),
    by_row("SUM of a variable is running", "SUM(B.value) AS m", None, 80, 150, 150, 150),
    by_row("FINAL SUM of a variable", "FINAL SUM(B.value) AS m", 150, 150, 150, 150, 150),
    by_row("MIN is running", "MIN(value) AS m", 90, 80, 70, 70, 70),
    by_row("MAX is running", "MAX(value) AS m", 90, 90, 90, 100, 200),
    by_row("FINAL MAX", "FINAL MAX(value) AS m", 200, 200, 200, 200, 200),
    by_row("AVG is running", "AVG(value) AS m", 90, 85, 80, 85, 108),
    by_row("a share of the whole", "RUNNING COUNT(*) * 100 + FINAL COUNT(*) AS m", 105, 205, 305, 405, 505),
    by_row("how far from the last", "FINAL LAST(value) - RUNNING LAST(value) AS m", 110, 120, 130, 100, 0),
    by_row("PREV of a FINAL row", "PREV(FINAL LAST(value)) AS m", 100, 100, 100, 100, 100),
    by_row("PREV of a RUNNING row", "PREV(RUNNING LAST(value)) AS m", None, 90, 80, 70, 100),
    by_row("NEXT of a RUNNING row of B", "NEXT(RUNNING LAST(B.value)) AS m", None, 70, 100, 100, 100),
    by_row("NEXT of a FINAL row of B", "NEXT(FINAL LAST(B.value)) AS m", 100, 100, 100, 100, 100),
    by_row("RUNNING in small letters", "running last(value) AS m", 90, 80, 70, 100, 200),
    by_row("FINAL in small letters", "final count(*) AS m", 5, 5, 5, 5, 5),
    by_row("FINAL labels as a list", "FINAL STRING_AGG(CLASSIFIER(), '') AS m", *["ABBCC"] * 5),
    by_row("RUNNING labels as text", "STRING_AGG(CLASSIFIER(), '') AS m", "A", "AB", "ABB", "ABBC", "ABBCC"),
]


def one(name: str, measures: str, *answers: object) -> Case:
    return measured(name, VALUES, measures, [answers], pattern=PATTERN, define=DEFINE, mode=ONE_ROW)


ONE_ROW_PER_MATCH = [
    one("one row: RUNNING is FINAL for LAST", "RUNNING LAST(value) AS r, FINAL LAST(value) AS f", 200, 200),
    one("one row: RUNNING is FINAL for a variable", "RUNNING LAST(B.value) AS r, LAST(B.value) AS d", 70, 70),
    one("one row: RUNNING is FINAL for sums", "RUNNING SUM(value) AS r, FINAL SUM(value) AS f", 540, 540),
    one("one row: RUNNING is FINAL for counts", "RUNNING COUNT(B.*) AS r, FINAL COUNT(B.*) AS f", 2, 2),
    one("one row: the label is that of the last row", "CLASSIFIER() AS c", "C"),
]

CASES: list[Case] = ALL_ROWS_PER_MATCH + ONE_ROW_PER_MATCH
