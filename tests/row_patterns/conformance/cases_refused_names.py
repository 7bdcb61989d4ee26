"""Names that are unknown, doubled or out of sight."""

from row_patterns.conformance.case import Case, refused, series

VARIABLES = [
    refused("a definition of an unknown variable", "X", define="DEFINE B AS TRUE, X AS TRUE"),
    refused("a union with an unknown variable", "X", subset="SUBSET U = (A, X)"),
    refused("skipping to an unknown variable", "X", skip="AFTER MATCH SKIP TO X"),
    refused("skipping to the first of an unknown variable", "X", skip="AFTER MATCH SKIP TO FIRST X"),
    refused("skipping to the last of an unknown variable", "X", skip="AFTER MATCH SKIP TO LAST X"),
    refused("an unknown variable in a measure", "X", measures="MEASURES X.value AS x1"),
    refused("an unknown variable in LAST", "X", measures="MEASURES LAST(X.value) AS x1"),
    refused("an unknown variable in an aggregate", "X", measures="MEASURES SUM(X.value) AS x1"),
    refused("an unknown variable in COUNT", "X", measures="MEASURES COUNT(X.*) AS x1"),
    refused("an unknown variable in CLASSIFIER", "X", measures="MEASURES CLASSIFIER(X) AS x1"),
    refused("an unknown variable in a condition", "X", define="DEFINE B AS B.value > X.value"),
    refused("an unknown variable in PREV", "X", define="DEFINE B AS B.value > PREV(X.value)"),
    refused("a variable defined twice", "B", define="DEFINE B AS TRUE, B AS B.value > 1"),
    refused("a variable defined twice in another case", "B", define="DEFINE B AS TRUE, b AS TRUE"),
    refused("a quoted small letter is not defined", define='DEFINE "b" AS TRUE'),
    refused("a quoted small letter in a union", subset='SUBSET U = (A, "b")'),
    refused("a quoted small letter in a measure", measures='MEASURES "a".value AS v'),
    refused("a union named twice", "U", subset="SUBSET U = (A), U = (B)"),
    refused("a union named twice in another case", "U", subset="SUBSET U = (A), u = (B)"),
    refused("a union named like a variable", "A", subset="SUBSET A = (B)"),
    refused("a union of a union", "U", subset="SUBSET U = (A, B), V = (U, A)"),
    refused("a union of itself", "U", subset="SUBSET U = (A, U)"),
    refused("a definition of a union", "U", subset="SUBSET U = (A, B)", define="DEFINE U AS TRUE"),
    refused("a union in the pattern", subset="SUBSET U = (A, B)", pattern="PATTERN (A B+ U)"),
    refused("a union without SUBSET", "U", measures="MEASURES LAST(U.value) AS v"),
]

COLUMNS = [
    refused("an unknown column in a measure", "nosuch", measures="MEASURES nosuch AS v"),
    refused("an unknown column of a variable", "nosuch", measures="MEASURES A.nosuch AS v"),
    refused("an unknown column in an aggregate", "nosuch", measures="MEASURES SUM(A.nosuch) AS v"),
    refused("an unknown column in a condition", "nosuch", define="DEFINE B AS nosuch > 1"),
    refused("an unknown column in PREV", "nosuch", define="DEFINE B AS PREV(B.nosuch) > 1"),
    refused("an unknown partition column", "nosuch", partition="PARTITION BY nosuch"),
    refused("an unknown ordering column", "nosuch", order="ORDER BY nosuch"),
    refused("a variable without a column in a measure", measures="MEASURES A AS v"),
    refused("a variable without a column in a condition", define="DEFINE B AS A > 1"),
    refused("the table's name in a measure", measures="MEASURES t.value AS v"),
    refused("the table's name in a condition", define="DEFINE B AS t.value > 1"),
    refused("the output's name in a measure", measures="MEASURES m.value AS v"),
    refused("a measure in a condition", define="DEFINE B AS B.value > top", measures="MEASURES A.value AS top"),
    refused("a measure in a measure", measures="MEASURES A.value AS top, top + 1 AS next_to_top"),
    refused("a partition column of another table", partition="PARTITION BY s.value"),
    refused("a variable with a partition column", partition="PARTITION BY A.value"),
    refused("a variable with an ordering column", order="ORDER BY A.id"),
    refused("two measures of one name", "v", measures="MEASURES A.value AS v, B.value AS v"),
    refused("two measures of one name in another case", "v", measures="MEASURES A.value AS v, B.value AS V"),
    refused("a partition by a number of a column", partition="PARTITION BY 1"),
    refused("no output columns", measures=""),
    refused("all columns of a variable", measures="MEASURES A.* AS v"),
    refused("all columns", measures="MEASURES * AS v"),
    refused("an unknown function", "nosuch", measures="MEASURES nosuch(A.value) AS v"),
    refused("an unknown function in a condition", "nosuch", define="DEFINE B AS nosuch(B.value) > 1"),
]

OUTSIDE = [
    refused("an input column that is not in the output", select="value"),
    refused("the input's name outside", select="t.a"),
    refused("a variable outside", select="A.value"),
    Case(
        "an unknown table",
        "SELECT * FROM nosuch MATCH_RECOGNIZE (ORDER BY id MEASURES A.id AS i PATTERN (A) DEFINE A AS TRUE)",
        None,
        error="",
    ),
    Case("CLASSIFIER outside", f"SELECT CLASSIFIER() FROM {series(1)}", None, error=""),
    Case("MATCH_NUMBER outside", f"SELECT * FROM {series(1)} WHERE MATCH_NUMBER() = 1", None, error=""),
    Case("PREV outside", f"SELECT PREV(value) FROM {series(1)}", None, error=""),
    Case("FINAL outside", f"SELECT FINAL SUM(value) FROM {series(1)}", None, error=""),
    refused("CLASSIFIER next to the clause", select="CLASSIFIER()"),
    Case(
        "too many names for the output",
        f"SELECT * FROM {series(1)} MATCH_RECOGNIZE (ORDER BY id MEASURES A.id AS i "
        "PATTERN (A) DEFINE A AS TRUE) AS m(x, y, z)",
        None,
        error="",
    ),
    Case(
        "a column of an outer query in a condition",
        f"SELECT (SELECT MAX(i) FROM {series(1)} MATCH_RECOGNIZE (ORDER BY id MEASURES A.id AS i "
        "PATTERN (A) DEFINE A AS A.value < o.k)) FROM (VALUES (5)) o(k)",
        None,
        error="",
    ),
    Case(
        "a column of an outer query in a measure",
        f"SELECT (SELECT MAX(i) FROM {series(1)} MATCH_RECOGNIZE (ORDER BY id "
        "MEASURES A.id + o.k AS i PATTERN (A) DEFINE A AS TRUE)) FROM (VALUES (5)) o(k)",
        None,
        error="",
    ),
]

CASES: list[Case] = VARIABLES + COLUMNS + OUTSIDE
