"""Scalar expressions in measures and conditions."""

import datetime

from row_patterns.conformance.case import Case

ROWS = """(VALUES
    (1, 7, 'Alpha', DATE '2024-02-28', TIMESTAMP '2024-02-28 10:00:00'),
    (2, -4, 'beta', DATE '2024-02-29', TIMESTAMP '2024-02-28 10:30:00'),
    (3, 12, 'Gamma ray', DATE '2024-03-01', TIMESTAMP '2024-02-29 09:00:00'),
    (4, NULL, NULL, NULL, NULL)
) t(id, value, name, day, ts)"""


def measure(name: str, expression: str, answer: object) -> Case:
    """The expression over the match A = row 1, B = row 2, C = row 3."""
    return Case(
        name,
        f"""
        SELECT * FROM {ROWS} MATCH_RECOGNIZE (
            ORDER BY id MEASURES {expression} AS m PATTERN (^ A B C) DEFINE B AS TRUE
        )
        """,
        [(answer,)],
    )


def condition(name: str, expression: str, *ids: int) -> Case:
    """The rows for which the condition holds."""
    return Case(
        name,
        f"""
        SELECT * FROM {ROWS} MATCH_RECOGNIZE (
            ORDER BY id MEASURES A.id AS m PATTERN (A) DEFINE A AS {expression}
        )
        """,
        [(i,) for i in ids],
    )


NUMBERS = [
    measure("a number", "42", 42),
    measure("a text", "'x'", "x"),
    measure("a text with a quote", "'it''s'", "it's"),
    measure("sum and difference", "A.value + B.value - C.value", -9),
    measure("product before sum", "A.value + B.value * 2", -1),
    measure("parentheses first", "(A.value + B.value) * 2", 6),
    measure("a negated column", "-B.value", 4),
    measure("remainder", "C.value % 5", 2),
    measure("a decimal number", "A.value * 1.5", 10.5),
    measure("a comparison as a measure", "A.value > B.value", True),
    measure("AND, OR and NOT as a measure", "A.value > 0 AND NOT (B.value > 0 OR C.value < 0)", True),
    measure("ABS", "ABS(B.value)", 4),
    measure("GREATEST and LEAST", "GREATEST(A.value, C.value) - LEAST(A.value, C.value)", 5),
    measure("a function of a navigation", "ABS(FIRST(value) - LAST(value))", 5),
    measure("a navigation of a function", "FIRST(ABS(value), 1)", 4),
    measure("ROUND", "ROUND(A.value / 2.0)", 4),
    measure("a column plus nothing", "A.value + NULL", None),
]

CHOICES = [
    measure("CASE with conditions", "CASE WHEN A.value > 10 THEN 'a' WHEN C.value > 10 THEN 'c' END", "c"),
    measure("CASE of a value", "CASE CLASSIFIER() WHEN 'A' THEN 1 WHEN 'C' THEN 3 ELSE 0 END", 3),
    measure("CASE with ELSE", "CASE WHEN A.value < 0 THEN 'a' ELSE 'none' END", "none"),
    measure("CASE without a branch", "CASE WHEN A.value < 0 THEN 'a' END", None),
    measure("COALESCE", "COALESCE(PREV(A.value), LAST(C.value))", 12),
    measure("NULLIF", "NULLIF(A.value, 7)", None),
    measure("CAST to text", "CAST(A.value AS VARCHAR) || '!'", "7!"),
    measure("CAST to a number", "CAST('12' AS INTEGER) + A.value", 19),
    measure("CAST to a float", "CAST(A.value AS DOUBLE) + 0.5", 7.5),
    measure("CASE within an aggregate", "SUM(CASE WHEN value > 0 THEN value ELSE 0 END)", 19),
    measure("a navigation within CASE", "CASE WHEN LAST(value) > FIRST(value) THEN 'up' ELSE 'down' END", "up"),
]

TEXTS = [
    measure("joining texts", "A.name || '-' || B.name", "Alpha-beta"),
    measure("UPPER", "UPPER(B.name)", "BETA"),
    measure("LOWER", "LOWER(A.name)", "alpha"),
    measure("LENGTH", "LENGTH(C.name)", 9),
    measure("SUBSTRING", "SUBSTRING(C.name, 1, 5)", "Gamma"),
    measure("REPLACE", "REPLACE(A.name, 'ph', 'f')", "Alfa"),
    measure("TRIM", "TRIM('  ' || B.name || ' ')", "beta"),
    measure("LOWER of a label", "LOWER(CLASSIFIER())", "c"),
    condition("LIKE with %", "A.name LIKE '%a'", 1, 2),
    condition("LIKE with _", "A.name LIKE '_eta'", 2),
    condition("LIKE without signs", "A.name LIKE 'beta'", 2),
    condition("NOT LIKE", "A.name NOT LIKE '%a'", 3),
    condition("texts in order", "A.name < 'Beta'", 1),
    condition("a function in a condition", "LENGTH(A.name) = 4", 2),
    condition("a text of the row before", "A.name > PREV(A.name)", 2),
]

LISTS = [
    condition("IN numbers", "A.value IN (7, 12, 13)", 1, 3),
    condition("NOT IN numbers", "A.value NOT IN (7, 12)", 2),
    condition("IN texts", "A.name IN ('beta', 'gamma')", 2),
    condition("IN columns", "7 IN (A.value, A.id)", 1),
    condition("IN with a navigation", "A.value IN (PREV(A.value) - 11, NEXT(A.value) - 16)", 2),
    condition("BETWEEN", "A.value BETWEEN -4 AND 7", 1, 2),
    condition("NOT BETWEEN", "A.value NOT BETWEEN -4 AND 7", 3),
    condition("BETWEEN columns", "A.value BETWEEN A.id AND 10", 1),
    condition("not equal", "A.value <> 7", 2, 3),
    condition("not equal, written !=", "A.value != 7", 2, 3),
    condition("at most and at least", "A.value <= 7 AND A.value >= 7", 1),
    condition("AND before OR", "A.id = 1 OR A.id = 2 AND A.value > 0", 1),
    condition("OR in parentheses", "(A.id = 1 OR A.id = 2) AND A.value < 0", 2),
    condition("NOT before AND", "NOT A.id = 1 AND A.value > 0", 3),
    condition("CASE as a condition", "CASE WHEN A.value > 0 THEN A.id > 2 ELSE A.id = 2 END", 2, 3),
]

TIMES = [
    measure("a date", "A.day", datetime.date(2024, 2, 28)),
    measure("a time", "B.ts", datetime.datetime(2024, 2, 28, 10, 30)),
    measure("a date literal", "DATE '2024-05-01'", datetime.date(2024, 5, 1)),
    measure("a time plus an interval", "A.ts + INTERVAL '90' MINUTE", datetime.datetime(2024, 2, 28, 11, 30)),
    measure("the year of a date", "EXTRACT(YEAR FROM C.day)", 2024),
    condition("a date literal in a condition", "A.day > DATE '2024-02-28'", 2, 3),
    condition("a timestamp literal", "A.ts < TIMESTAMP '2024-02-28 10:15:00'", 1),
    condition("within an hour of the row before", "A.ts < PREV(A.ts) + INTERVAL '1' HOUR", 2),
    condition("more than a day after", "A.ts > PREV(A.ts) + INTERVAL '1' DAY"),
    condition("an interval of days", "A.day = PREV(A.day) + INTERVAL '1' DAY", 2, 3),
    condition("a difference of times", "A.ts - PREV(A.ts) > INTERVAL '2' HOUR", 3),
    condition("BETWEEN dates", "A.day BETWEEN DATE '2024-02-29' AND DATE '2024-03-31'", 2, 3),
]

CASES: list[Case] = NUMBERS + CHOICES + TEXTS + LISTS + TIMES
