"""The clause wherever a table may stand, and the rest of SQL around it."""

from row_patterns.conformance.case import Case, Table, series

TICKS: dict[str, Table] = {
    "ticks": {
        "sym": ["X", "X", "X", "X", "Y", "Y", "Y", "Y"],
        "day": [1, 2, 3, 4, 1, 2, 3, 4],
        "price": [10, 8, 9, 12, 5, 6, 4, 7],
    },
    "names": {"sym": ["X", "Y", "Z"], "name": ["Xen", "Yak", "Zoo"]},
}

# Falls that are followed by a rise: X falls on day 2 (10, 8, 9), Y on day 3 (6, 4, 7).
DIPS = """MATCH_RECOGNIZE (
    PARTITION BY sym ORDER BY day
    MEASURES A.day AS top, B.day AS bottom, C.price AS price
    PATTERN (A B C)
    DEFINE B AS B.price < A.price, C AS C.price > B.price
)"""
# All rows that are dearer than the day before: X on days 3 and 4, Y on days 2 and 4.
RISES = """MATCH_RECOGNIZE (
    PARTITION BY sym ORDER BY day
    MEASURES MATCH_NUMBER() AS number, R.price - PREV(R.price) AS gain
    ALL ROWS PER MATCH
    PATTERN (R+)
    DEFINE R AS R.price > PREV(R.price)
)"""


def over_ticks(name: str, sql: str, rows: list[tuple[object, ...]], *, ordered: bool = False) -> Case:
    return Case(name, sql, rows, tables=TICKS, ordered=ordered)


INPUTS = [
    over_ticks("a table", f"SELECT * FROM ticks {DIPS}", [("X", 1, 2, 9), ("Y", 2, 3, 7)]),
    over_ticks("a table with an alias", f"SELECT * FROM ticks AS t {DIPS}", [("X", 1, 2, 9), ("Y", 2, 3, 7)]),
    over_ticks(
        "a table with new names for its columns",
        """
        SELECT * FROM ticks AS t(s, d, p) MATCH_RECOGNIZE (
            PARTITION BY s ORDER BY d MEASURES A.p AS p PATTERN (A B) DEFINE B AS B.p < A.p
        )
        """,
        [("X", 10), ("Y", 6)],
    ),
    over_ticks(
        "a subquery with WHERE", f"SELECT * FROM (SELECT * FROM ticks WHERE sym = 'X') t {DIPS}", [("X", 1, 2, 9)]
    ),
    over_ticks(
        "a subquery without an alias", f"SELECT * FROM (SELECT * FROM ticks WHERE day > 1) {DIPS}", [("Y", 2, 3, 7)]
    ),
    over_ticks(
        "a subquery with GROUP BY",
        """
        SELECT * FROM (SELECT day, SUM(price) AS total FROM ticks GROUP BY day) t
        MATCH_RECOGNIZE (
            ORDER BY day MEASURES FIRST(total) AS f, LAST(total) AS l
            PATTERN (A B+) DEFINE B AS B.total < PREV(B.total)
        )
        """,
        [(15, 13)],
    ),
    over_ticks(
        "a subquery with computed columns",
        """
        SELECT * FROM (SELECT sym, day, price * 10 AS cents FROM ticks) t MATCH_RECOGNIZE (
            PARTITION BY sym ORDER BY day MEASURES MAX(cents) AS m PATTERN (^ A+ $)
            DEFINE A AS A.cents > 0
        )
        """,
        [("X", 120), ("Y", 70)],
    ),
    over_ticks(
        "a subquery that joins",
        """
        SELECT * FROM (SELECT n.name, t.day, t.price FROM ticks t JOIN names n ON t.sym = n.sym) j
        MATCH_RECOGNIZE (
            PARTITION BY name ORDER BY day MEASURES COUNT(*) AS n
            PATTERN (A B) DEFINE B AS B.price < A.price
        )
        """,
        [("Xen", 2), ("Yak", 2)],
    ),
    over_ticks(
        "a subquery with a window function",
        """
        SELECT * FROM (
            SELECT day, price, ROW_NUMBER() OVER (PARTITION BY sym ORDER BY price) AS rank
            FROM ticks WHERE sym = 'X'
        ) t MATCH_RECOGNIZE (
            ORDER BY day MEASURES A.rank AS a, B.rank AS b
            PATTERN (A B) DEFINE B AS B.rank < A.rank
        )
        """,
        [(3, 1)],
    ),
    over_ticks(
        "a union of tables",
        """
        SELECT * FROM (
            SELECT day, price FROM ticks WHERE sym = 'X' UNION ALL SELECT 5 AS day, 1 AS price
        ) t MATCH_RECOGNIZE (
            ORDER BY day MEASURES B.price AS p PATTERN (A B $) DEFINE B AS B.price < A.price
        )
        """,
        [(1,)],
    ),
    Case(
        "VALUES",
        f"SELECT * FROM {series(3, 1)} MATCH_RECOGNIZE (ORDER BY id MEASURES B.value AS b "
        "PATTERN (A B) DEFINE B AS B.value < A.value)",
        [(1,)],
    ),
]

AROUND = [
    over_ticks("chosen columns", f"SELECT price, sym FROM ticks {DIPS}", [(9, "X"), (7, "Y")]),
    over_ticks("an alias of the output", f"SELECT m.sym, m.bottom FROM ticks {DIPS} AS m", [("X", 2), ("Y", 3)]),
    over_ticks("an alias without AS", f"SELECT m.* FROM ticks {DIPS} m", [("X", 1, 2, 9), ("Y", 2, 3, 7)]),
    over_ticks("new names for the output", f"SELECT w, z FROM ticks {DIPS} AS m(w, x, y, z)", [("X", 9), ("Y", 7)]),
    over_ticks("WHERE", f"SELECT sym FROM ticks {DIPS} WHERE price > 7", [("X",)]),
    over_ticks(
        "GROUP BY", f"SELECT sym, COUNT(*), SUM(gain) FROM ticks {RISES} GROUP BY sym", [("X", 2, 4), ("Y", 2, 4)]
    ),
    over_ticks("HAVING", f"SELECT sym FROM ticks {RISES} GROUP BY sym HAVING MAX(number) = 2", [("Y",)]),
    over_ticks(
        "ORDER BY",
        f"SELECT sym, day FROM ticks {RISES} ORDER BY gain DESC, sym, day",
        [("X", 4), ("Y", 4), ("X", 3), ("Y", 2)],
        ordered=True,
    ),
    over_ticks(
        "LIMIT",
        f"SELECT sym, day FROM ticks {RISES} ORDER BY day DESC, sym LIMIT 2",
        [("X", 4), ("Y", 4)],
        ordered=True,
    ),
    over_ticks("DISTINCT", f"SELECT DISTINCT sym FROM ticks {RISES}", [("X",), ("Y",)]),
    over_ticks("an aggregate of the output", f"SELECT COUNT(*) FROM ticks {RISES}", [(4,)]),
    over_ticks(
        "a window function over the output",
        f"SELECT sym, SUM(gain) OVER (PARTITION BY sym ORDER BY day) FROM ticks {RISES}",
        [("X", 1), ("X", 4), ("Y", 1), ("Y", 4)],
    ),
    over_ticks("expressions over the output", f"SELECT top * 100 + bottom FROM ticks {DIPS}", [(102,), (203,)]),
]

JOINS = [
    over_ticks(
        "joined with a table",
        f"SELECT n.name, m.price FROM ticks {DIPS} AS m JOIN names n ON n.sym = m.sym",
        [("Xen", 9), ("Yak", 7)],
    ),
    over_ticks(
        "a table joined with it",
        f"SELECT n.name, m.price FROM names n LEFT JOIN ticks {DIPS} AS m ON n.sym = m.sym",
        [("Xen", 9), ("Yak", 7), ("Zoo", None)],
    ),
    over_ticks(
        "two clauses joined",
        f"""
        SELECT d.sym, d.bottom, r.day, r.gain
        FROM ticks {DIPS} AS d JOIN ticks {RISES} AS r ON d.sym = r.sym AND r.day > d.bottom
        """,
        [("X", 2, 3, 1), ("X", 2, 4, 3), ("Y", 3, 4, 3)],
    ),
    over_ticks(
        "two clauses with a comma",
        f"SELECT d.sym, COUNT(*) FROM ticks {DIPS} AS d, ticks {RISES} AS r GROUP BY d.sym",
        [("X", 4), ("Y", 4)],
    ),
    over_ticks(
        "a comma and a table",
        f"SELECT m.sym FROM names n, ticks {DIPS} AS m WHERE n.sym = m.sym AND n.name = 'Yak'",
        [("Y",)],
    ),
]

NESTED = [
    over_ticks(
        "a clause over the output of a clause",
        f"""
        SELECT * FROM (SELECT * FROM ticks {RISES}) r MATCH_RECOGNIZE (
            PARTITION BY sym ORDER BY day
            MEASURES A.gain AS a, B.gain AS b
            PATTERN (A B) DEFINE B AS B.gain > A.gain
        )
        """,
        [("X", 1, 3), ("Y", 1, 3)],
    ),
    over_ticks(
        "a common table expression as input",
        """
        WITH x AS (SELECT day, price FROM ticks WHERE sym = 'X')
        SELECT * FROM x MATCH_RECOGNIZE (
            ORDER BY day MEASURES LAST(day) AS d PATTERN (A B+) DEFINE B AS B.price > PREV(B.price)
        )
        """,
        [(4,)],
    ),
    over_ticks(
        "the clause in a common table expression",
        f"WITH m AS (SELECT * FROM ticks {DIPS}) SELECT sym FROM m WHERE price = 7",
        [("Y",)],
    ),
    over_ticks(
        "a clause over a clause, step by step",
        f"""
        WITH r AS (SELECT * FROM ticks {RISES}),
        best(s, g) AS (SELECT sym, MAX(gain) FROM r GROUP BY sym)
        SELECT * FROM best MATCH_RECOGNIZE (
            ORDER BY s MEASURES COUNT(*) AS n, SUM(A.g) AS g PATTERN (A+) DEFINE A AS A.g = 3
        )
        """,
        [(2, 6)],
    ),
    over_ticks(
        "a common table expression used twice",
        f"""
        WITH m AS (SELECT * FROM ticks {DIPS})
        SELECT a.sym, b.sym FROM m a JOIN m b ON a.top < b.top
        """,
        [("X", "Y")],
    ),
    over_ticks(
        "the clause in a subquery of FROM",
        f"SELECT s.sym FROM (SELECT sym, price FROM ticks {DIPS}) s WHERE s.price = 9",
        [("X",)],
    ),
    over_ticks(
        "IN a subquery",
        f"SELECT name FROM names WHERE sym IN (SELECT sym FROM ticks {DIPS} WHERE price = 9)",
        [("Xen",)],
    ),
    over_ticks(
        "NOT IN a subquery", f"SELECT name FROM names WHERE sym NOT IN (SELECT sym FROM ticks {DIPS})", [("Zoo",)]
    ),
    over_ticks(
        "EXISTS a match",
        f"SELECT name FROM names WHERE EXISTS (SELECT 1 FROM ticks {DIPS} AS m WHERE m.price = 9)",
        [("Xen",), ("Yak",), ("Zoo",)],
    ),
    over_ticks("a value from the clause", f"SELECT (SELECT MAX(price) FROM ticks {DIPS}) AS p", [(9,)]),
    over_ticks(
        "UNION ALL of two clauses",
        f"SELECT sym, price FROM ticks {DIPS} UNION ALL SELECT sym, gain FROM ticks {RISES}",
        [("X", 9), ("Y", 7), ("X", 1), ("X", 3), ("Y", 1), ("Y", 3)],
    ),
    over_ticks("EXCEPT", f"SELECT sym FROM names EXCEPT SELECT sym FROM ticks {DIPS}", [("Z",)]),
    over_ticks(
        "INTERSECT",
        f"SELECT sym, bottom + 1 FROM ticks {DIPS} INTERSECT SELECT sym, day FROM ticks {RISES}",
        [("X", 3), ("Y", 4)],
    ),
    over_ticks("no clause at all", "SELECT COUNT(*) FROM ticks", [(8,)]),
]

CASES: list[Case] = INPUTS + AROUND + JOINS + NESTED
