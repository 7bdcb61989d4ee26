"""WITHIN INTERVAL, the extension of Flink: `PATTERN (...) WITHIN INTERVAL '1' HOUR`.

The last row of a match minus its first, by the first ordering column, is less than the interval.
A candidate that takes longer is no match, so a less preferred one may be found instead. Flink
writes WITHIN between PATTERN and SUBSET.
"""

import re

from row_patterns.conformance.case import Case, refused

ROWS = """(VALUES
    (1, 'A', TIMESTAMP '2024-01-01 10:00:00'), (2, 'B', TIMESTAMP '2024-01-01 10:20:00'),
    (3, 'B', TIMESTAMP '2024-01-01 10:40:00'), (4, 'B', TIMESTAMP '2024-01-01 11:00:00'),
    (5, 'C', TIMESTAMP '2024-01-01 11:10:00'), (6, 'A', TIMESTAMP '2024-01-01 12:00:00'),
    (7, 'C', TIMESTAMP '2024-01-01 12:59:59')
) t(id, x, ts)"""


def within(name: str, pattern: str, ids: list[list[int]], *, more: str = "") -> Case:
    """The ids of the rows of each match."""
    define = ", ".join(f"{v} AS {v}.x = '{v}'" for v in "ABC" if re.search(rf"\b{v}\b", pattern))
    return Case(
        name,
        f"""
        SELECT * FROM {ROWS} MATCH_RECOGNIZE (
            ORDER BY ts MEASURES ARRAY_AGG(id) AS ids {more}
            PATTERN {pattern}
            DEFINE {define}
        )
        """,
        [(match,) for match in ids],
    )


CASES: list[Case] = [
    within("no limit", "(A B* C)", [[1, 2, 3, 4, 5], [6, 7]]),
    within("an hour", "(A B* C) WITHIN INTERVAL '1' HOUR", [[6, 7]]),
    within("two hours", "(A B* C) WITHIN INTERVAL '2' HOUR", [[1, 2, 3, 4, 5], [6, 7]]),
    within("minutes", "(A B* C) WITHIN INTERVAL '71' MINUTE", [[1, 2, 3, 4, 5], [6, 7]]),
    within("exactly the interval is too long", "(A B* C) WITHIN INTERVAL '70' MINUTE", [[6, 7]]),
    within("seconds", "(A B* C) WITHIN INTERVAL '3600' SECOND", [[6, 7]]),
    within("a second too little", "(A B* C) WITHIN INTERVAL '3599' SECOND", []),
    within("days", "(A B* C) WITHIN INTERVAL '1' DAY", [[1, 2, 3, 4, 5], [6, 7]]),
    within("a greedy end stops in time", "(A B*) WITHIN INTERVAL '1' HOUR", [[1, 2, 3], [6]]),
    within("a greedy end stops in time, sooner", "(A B*) WITHIN INTERVAL '30' MINUTE", [[1, 2], [6]]),
    within("a shorter branch in time", "(A B{3} | A B) WITHIN INTERVAL '1' HOUR", [[1, 2]]),
    within("a later start is in time", "((A | B) B* C) WITHIN INTERVAL '1' HOUR", [[2, 3, 4, 5], [6, 7]]),
    within(
        "from each row", "(B+) WITHIN INTERVAL '30' MINUTE", [[2, 3], [3, 4], [4]], more="AFTER MATCH SKIP TO NEXT ROW"
    ),
    within("a match of one row is in time", "(A) WITHIN INTERVAL '1' SECOND", [[1], [6]]),
    within("with a union", "(A B) WITHIN INTERVAL '1' HOUR SUBSET U = (A, B)", [[1, 2]]),
    within("in small letters", "(A B) within interval '1' hour", [[1, 2]]),
    Case(
        "all rows in time",
        f"""
        SELECT id, label FROM {ROWS} MATCH_RECOGNIZE (
            ORDER BY ts MEASURES CLASSIFIER() AS label ALL ROWS PER MATCH WITH UNMATCHED ROWS
            PATTERN (A B+) WITHIN INTERVAL '1' HOUR
            DEFINE A AS A.x = 'A', B AS B.x = 'B'
        )
        """,
        [(1, "A"), (2, "B"), (3, "B"), (4, None), (5, None), (6, None), (7, None)],
    ),
    Case(
        "each partition by itself",
        """
        SELECT * FROM (VALUES
            (1, 'p', TIMESTAMP '2024-01-01 10:00:00'), (2, 'q', TIMESTAMP '2024-01-01 10:00:00'),
            (3, 'p', TIMESTAMP '2024-01-01 10:10:00'), (4, 'q', TIMESTAMP '2024-01-01 11:00:00')
        ) t(id, k, ts) MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY ts MEASURES A.id AS a, B.id AS b
            PATTERN (A B) WITHIN INTERVAL '30' MINUTE DEFINE B AS TRUE
        )
        """,
        [("p", 1, 3)],
    ),
    refused("WITHIN without ORDER BY", order="", pattern="PATTERN (A B+) WITHIN INTERVAL '1' HOUR"),
    refused("WITHIN without INTERVAL", pattern="PATTERN (A B+) WITHIN '1' HOUR"),
    refused("WITHIN before PATTERN", pattern="WITHIN INTERVAL '1' HOUR PATTERN (A B+)"),
    refused("WITHIN in an order by numbers", pattern="PATTERN (A B+) WITHIN INTERVAL '1' HOUR"),
]
