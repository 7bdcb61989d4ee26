"""PARTITION BY and ORDER BY."""

from row_patterns.conformance.case import Case, Row

MIXED = """(VALUES
    (1, 'p', 90), (2, 'q', 20), (2, 'p', 80), (1, 'q', 10), (3, 'p', 85), (3, 'q', 5)
) t(id, part, value)"""


def clause(name: str, rows: str, text: str, expected: list[Row], *, select: str = "*") -> Case:
    return Case(name, f"SELECT {select} FROM {rows} MATCH_RECOGNIZE ({text})", expected)


PARTITIONS = [
    clause(
        "one partition column",
        MIXED,
        """PARTITION BY part ORDER BY id
        MEASURES MATCH_NUMBER() AS n, A.id AS a, B.id AS b
        PATTERN (A B) DEFINE B AS B.value > A.value""",
        [("p", 1, 2, 3), ("q", 1, 1, 2)],
    ),
    clause(
        "match numbers begin anew in each partition",
        "(VALUES (1, 'p'), (2, 'p'), (3, 'q'), (4, 'p')) t(id, part)",
        "PARTITION BY part ORDER BY id MEASURES MATCH_NUMBER() AS n, A.id AS a PATTERN (A) DEFINE A AS TRUE",
        [("p", 1, 1), ("p", 2, 2), ("p", 3, 4), ("q", 1, 3)],
    ),
    clause(
        "no partition: all rows are one",
        "(VALUES (1, 'p'), (2, 'q'), (3, 'p')) t(id, part)",
        "ORDER BY id MEASURES COUNT(*) AS n, FIRST(part) AS f, LAST(part) AS l PATTERN (A+) DEFINE A AS TRUE",
        [(3, "p", "p")],
    ),
    clause(
        "rows without a key are one partition",
        "(VALUES (1, NULL), (2, 'p'), (3, NULL), (4, 'p')) t(id, part)",
        "PARTITION BY part ORDER BY id MEASURES FIRST(id) AS f, LAST(id) AS l PATTERN (A+) DEFINE A AS TRUE",
        [(None, 1, 3), ("p", 2, 4)],
    ),
    clause(
        "several partition columns",
        "(VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 1), (4, 'a', 1), (5, 'b', 1)) t(id, k, n)",
        "PARTITION BY k, n ORDER BY id MEASURES FIRST(id) AS f, LAST(id) AS l PATTERN (A+) DEFINE A AS TRUE",
        [("a", 1, 1, 4), ("a", 2, 2, 2), ("b", 1, 3, 5)],
    ),
    clause(
        "several partition columns, some without a value",
        "(VALUES (1, 'a', NULL), (2, 'a', 2), (3, NULL, NULL), (4, 'a', NULL), (5, NULL, NULL)) t(id, k, n)",
        "PARTITION BY k, n ORDER BY id MEASURES FIRST(id) AS f, LAST(id) AS l PATTERN (A+) DEFINE A AS TRUE",
        [("a", None, 1, 4), ("a", 2, 2, 2), (None, None, 3, 5)],
    ),
    clause(
        "PREV and NEXT stay within the partition",
        "(VALUES (1, 'p'), (2, 'q'), (3, 'p'), (4, 'q')) t(id, part)",
        "PARTITION BY part ORDER BY id MEASURES PREV(id) AS p, NEXT(id) AS n "
        "ALL ROWS PER MATCH PATTERN (A+) DEFINE A AS TRUE",
        [("p", 1, None, 3), ("p", 3, 1, None), ("q", 2, None, 4), ("q", 4, 2, None)],
    ),
    clause(
        "a match does not cross partitions",
        "(VALUES (1, 'p', 1), (2, 'q', 2)) t(id, part, value)",
        "PARTITION BY part ORDER BY id MEASURES A.id AS a PATTERN (A B) DEFINE B AS B.value > A.value",
        [],
    ),
    clause(
        "a partition column is seen in conditions and measures",
        "(VALUES (1, 'p'), (2, 'q')) t(id, part)",
        "PARTITION BY part ORDER BY id MEASURES A.part AS again, id AS last_id PATTERN (A) DEFINE A AS A.part = 'q'",
        [("q", "q", 2)],
    ),
    clause(
        "partition and ordering columns with the name of the table",
        "(VALUES (1, 'p'), (2, 'p')) t(id, part)",
        "PARTITION BY t.part ORDER BY t.id MEASURES LAST(id) AS l PATTERN (A+) DEFINE A AS TRUE",
        [("p", 2)],
    ),
    clause(
        "a partition by a number",
        "(VALUES (1, 10), (2, 20), (3, 10)) t(id, k)",
        "PARTITION BY k ORDER BY id MEASURES COUNT(*) AS n PATTERN (A+) DEFINE A AS TRUE",
        [(10, 2), (20, 1)],
    ),
]

# The answer is the ids in the order in which the rows were matched.
ROWS = "(VALUES (1, 'a', 3), (2, 'b', 1), (3, 'a', 1), (4, 'b', NULL)) t(id, k, v)"


def ordered(name: str, order: str, ids: list[int]) -> Case:
    return clause(name, ROWS, f"{order} MEASURES ARRAY_AGG(id) AS ids PATTERN (A+) DEFINE A AS TRUE", [(ids,)])


ORDERS = [
    ordered("ascending", "ORDER BY id ASC", [1, 2, 3, 4]),
    ordered("ascending by default", "ORDER BY id", [1, 2, 3, 4]),
    ordered("descending", "ORDER BY id DESC", [4, 3, 2, 1]),
    ordered("two columns", "ORDER BY k, id", [1, 3, 2, 4]),
    ordered("two columns, the second descending", "ORDER BY k, id DESC", [3, 1, 4, 2]),
    ordered("two columns, the first descending", "ORDER BY k DESC, id", [2, 4, 1, 3]),
    ordered("no value first", "ORDER BY v NULLS FIRST, id", [4, 2, 3, 1]),
    ordered("no value last", "ORDER BY v NULLS LAST, id", [2, 3, 1, 4]),
    ordered("descending, no value first", "ORDER BY v DESC NULLS FIRST, id", [4, 1, 2, 3]),
    ordered("descending, no value last", "ORDER BY v DESC NULLS LAST, id", [1, 2, 3, 4]),
    ordered("three columns", "ORDER BY k DESC, v ASC NULLS LAST, id", [2, 4, 3, 1]),
    clause(
        "the order decides the match",
        "(VALUES (3, 10), (1, 30), (2, 20)) t(id, value)",
        "ORDER BY id MEASURES FIRST(value) AS f, LAST(value) AS l PATTERN (A B+) DEFINE B AS B.value < PREV(B.value)",
        [(30, 10)],
    ),
    clause(
        "the order by dates",
        "(VALUES (DATE '2024-03-01', 3), (DATE '2024-01-01', 1), (DATE '2024-02-01', 2)) t(d, v)",
        "ORDER BY d MEASURES ARRAY_AGG(v) AS vs PATTERN (A+) DEFINE A AS TRUE",
        [([1, 2, 3],)],
    ),
    clause(
        "the order by text",
        "(VALUES ('b', 2), ('c', 3), ('a', 1)) t(s, v)",
        "ORDER BY s MEASURES ARRAY_AGG(v) AS vs PATTERN (A+) DEFINE A AS TRUE",
        [([1, 2, 3],)],
    ),
]

CASES: list[Case] = PARTITIONS + ORDERS
