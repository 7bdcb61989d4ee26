"""Rows per match and the columns of the output, their names and their order."""

from row_patterns.conformance.case import ALL_ROWS, ONE_ROW, Case, measured

# B falls: rows 2 and 3 of 90, 80, 70, 70.
PRICES = [90, 80, 70, 70]
FALLS = "B AS B.value < PREV(B.value)"
LABELS = "MATCH_NUMBER() AS number, LAST(value) AS v, CLASSIFIER() AS label"


def falls(name: str, mode: str, pattern: str, rows: list[tuple[object, ...]]) -> Case:
    return measured(
        name,
        PRICES,
        LABELS,
        rows,
        mode=mode,
        pattern=pattern,
        define=FALLS,
        select="number, v, label" if mode in {"", ONE_ROW} else "id, number, v, label",
    )


MODES = [
    falls("one row per match", ONE_ROW, "B+", [(1, 70, "B")]),
    falls("one row per match is the default", "", "B+", [(1, 70, "B")]),
    falls("one row of each empty match", ONE_ROW, "B*", [(1, None, None), (2, 70, "B"), (3, None, None)]),
    falls("all rows per match", ALL_ROWS, "B+", [(2, 1, 80, "B"), (3, 1, 70, "B")]),
    falls(
        "all rows show empty matches",
        ALL_ROWS,
        "B*",
        [(1, 1, None, None), (2, 2, 80, "B"), (3, 2, 70, "B"), (4, 3, None, None)],
    ),
    falls(
        "show empty matches",
        "ALL ROWS PER MATCH SHOW EMPTY MATCHES",
        "B*",
        [(1, 1, None, None), (2, 2, 80, "B"), (3, 2, 70, "B"), (4, 3, None, None)],
    ),
    falls(
        "show empty matches leaves out unmatched rows",
        "ALL ROWS PER MATCH SHOW EMPTY MATCHES",
        "B+",
        [(2, 1, 80, "B"), (3, 1, 70, "B")],
    ),
    falls(
        "omitted empty matches keep their numbers",
        "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
        "B*",
        [(2, 2, 80, "B"), (3, 2, 70, "B")],
    ),
    falls(
        "omit empty matches leaves out unmatched rows",
        "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
        "B+",
        [(2, 1, 80, "B"), (3, 1, 70, "B")],
    ),
    falls("omit empty matches where all are empty", "ALL ROWS PER MATCH OMIT EMPTY MATCHES", "B*?", []),
    falls(
        "with unmatched rows",
        "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
        "B+",
        [(1, None, None, None), (2, 1, 80, "B"), (3, 1, 70, "B"), (4, None, None, None)],
    ),
    falls(
        "with unmatched rows shows empty matches",
        "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
        "B*",
        [(1, 1, None, None), (2, 2, 80, "B"), (3, 2, 70, "B"), (4, 3, None, None)],
    ),
    falls(
        "with unmatched rows where nothing matches",
        "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
        "B{3}",
        [(n, None, None, None) for n in (1, 2, 3, 4)],
    ),
    falls("no match and one row per match", ONE_ROW, "B{3}", []),
    falls("no match and all rows per match", ALL_ROWS, "B{3}", []),
]

MEASURES_OF_NO_ROWS = [
    measured(
        "measures of an empty match",
        [1],
        "COUNT(*) AS n, COUNT(A.*) AS na, COUNT(A.value) AS nv, SUM(A.value) AS s, "
        "MAX(value) AS m, FIRST(A.value) AS f, PREV(value) AS p, value AS v, "
        "CLASSIFIER() AS c, MATCH_NUMBER() AS number, COALESCE(A.value, -1) AS z",
        [(0, 0, 0, None, None, None, None, None, None, 1, -1)],
        mode=ONE_ROW,
        pattern="A*",
        define="A AS FALSE",
    ),
    measured(
        "measures of an unmatched row",
        [1, 2],
        "COUNT(*) AS n, SUM(A.value) AS s, CLASSIFIER() AS c, MATCH_NUMBER() AS number",
        [(1, None, None, None, None, 1), (2, 1, 2, "A", 1, 2)],
        mode="ALL ROWS PER MATCH WITH UNMATCHED ROWS",
        pattern="A",
        define="A AS A.value = 2",
    ),
    measured(
        "input columns of an empty match are those of its row",
        [7, 8],
        "COUNT(*) AS n",
        [(1, 0, 7), (2, 0, 8)],
        pattern="A*",
        define="A AS FALSE",
    ),
    Case(
        "partition columns of an empty match",
        """
        SELECT * FROM (VALUES (1, 'p'), (2, 'q')) t(id, part) MATCH_RECOGNIZE (
            PARTITION BY part ORDER BY id MEASURES COUNT(*) AS n
            PATTERN (A*) DEFINE A AS FALSE
        )
        """,
        [("p", 0), ("q", 0)],
    ),
]

OVERLAPS = [
    measured(
        "a row is shown once for each match it is in",
        [1, 2, 3],
        "MATCH_NUMBER() AS number",
        [(1, 1, 1), (2, 1, 2), (2, 2, 2), (3, 2, 3)],
        skip="AFTER MATCH SKIP TO NEXT ROW",
        pattern="A B",
        define="B AS B.value > A.value",
    ),
    measured(
        "a row of an earlier match is not unmatched",
        [100, 100, 90, 80, 70, 100],
        "MATCH_NUMBER() AS number, CLASSIFIER() AS label",
        [
            (1, None, None, 100),
            (2, 1, "A", 100),
            (3, 1, "B", 90),
            (4, 1, "B", 80),
            (3, 2, "A", 90),
            (4, 2, "B", 80),
            (5, 2, "B", 70),
            (6, None, None, 100),
        ],
        mode="ALL ROWS PER MATCH WITH UNMATCHED ROWS",
        skip="AFTER MATCH SKIP TO NEXT ROW",
        pattern="A B{2}",
        define="B AS B.value < PREV(B.value)",
    ),
    measured(
        "an empty match at a row of an earlier match",
        [1, 2, 3],
        "MATCH_NUMBER() AS number, CLASSIFIER() AS label",
        [(1, 1, "A", 1), (2, 1, "B", 2), (2, 2, None, 2), (3, 3, None, 3)],
        skip="AFTER MATCH SKIP TO NEXT ROW",
        pattern="(A B)?",
        define="A AS A.value = 1, B AS B.value = 2",
    ),
]

# The table has its columns in the order value, id, part, other.
ROWS = "(VALUES (90, 1, 'p', 'x'), (80, 2, 'p', 'y')) t(value, id, part, other)"


def columns(name: str, clause: str, names: str, rows: list[tuple[object, ...]]) -> Case:
    sql = f"SELECT * FROM {ROWS} MATCH_RECOGNIZE ({clause} PATTERN (A B) DEFINE B AS B.id > A.id)"
    return Case(name, sql, rows, columns=names.split())


COLUMNS = [
    columns(
        "one row: the measures in their order", "ORDER BY id MEASURES B.value AS z, A.value AS y", "z y", [(80, 90)]
    ),
    columns(
        "one row: partition columns, then measures",
        "PARTITION BY part ORDER BY id MEASURES A.value AS a",
        "part a",
        [("p", 90)],
    ),
    columns("one row: no ordering columns", "PARTITION BY part ORDER BY id", "part", [("p",)]),
    columns(
        "all rows: partition, order, measures, the rest",
        "PARTITION BY part ORDER BY id MEASURES CLASSIFIER() AS label ALL ROWS PER MATCH",
        "part id label value other",
        [("p", 1, "A", 90, "x"), ("p", 2, "B", 80, "y")],
    ),
    columns(
        "all rows: several ordering columns in their order",
        "PARTITION BY part ORDER BY id, value MEASURES COUNT(*) AS n ALL ROWS PER MATCH",
        "part id value n other",
        [("p", 1, 90, 1, "x"), ("p", 2, 80, 2, "y")],
    ),
    columns(
        "all rows: no partition",
        "ORDER BY id MEASURES COUNT(*) AS n ALL ROWS PER MATCH",
        "id n value part other",
        [(1, 1, 90, "p", "x"), (2, 2, 80, "p", "y")],
    ),
    columns(
        "all rows: no measures",
        "PARTITION BY part ORDER BY id ALL ROWS PER MATCH",
        "part id value other",
        [("p", 1, 90, "x"), ("p", 2, 80, "y")],
    ),
    columns(
        "all rows: an ordering column in descending order",
        "ORDER BY value DESC MEASURES COUNT(*) AS n ALL ROWS PER MATCH",
        "value n id part other",
        [(90, 1, 1, "p", "x"), (80, 2, 2, "p", "y")],
    ),
    columns(
        "one row: a measure named like a column that is not in the output",
        "PARTITION BY part ORDER BY id MEASURES A.value AS value, B.id AS id",
        "part value id",
        [("p", 90, 2)],
    ),
    Case(
        "several partition columns in the order they are listed",
        """
        SELECT * FROM (VALUES (1, 'a', 'b', 'c')) t(id, k1, k2, k3) MATCH_RECOGNIZE (
            PARTITION BY k3, k1 ORDER BY id MEASURES CLASSIFIER() AS label
            ALL ROWS PER MATCH PATTERN (A) DEFINE A AS TRUE
        )
        """,
        [("c", "a", 1, "A", "b")],
        columns=["k3", "k1", "id", "label", "k2"],
    ),
    Case(
        "no ordering: measures, then the columns",
        """
        SELECT * FROM (VALUES (1, 'a')) t(id, k) MATCH_RECOGNIZE (
            MEASURES CLASSIFIER() AS label ALL ROWS PER MATCH PATTERN (A) DEFINE A AS TRUE
        )
        """,
        [("A", 1, "a")],
        columns=["label", "id", "k"],
    ),
    Case(
        "no rows come in",
        """
        SELECT * FROM (SELECT 1 AS id, 2 AS value WHERE FALSE) t MATCH_RECOGNIZE (
            ORDER BY id MEASURES COUNT(*) AS n ALL ROWS PER MATCH WITH UNMATCHED ROWS
            PATTERN (A*) DEFINE A AS A.value > 0
        )
        """,
        [],
        columns=["id", "n", "value"],
    ),
]

CASES: list[Case] = MODES + MEASURES_OF_NO_ROWS + OVERLAPS + COLUMNS
