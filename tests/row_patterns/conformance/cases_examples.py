"""Whole queries as people write them."""

from row_patterns.conformance.case import Case, Table

STOCKS: dict[str, Table] = {
    "stocks": {
        "sym": ["ACME"] * 7 + ["GLOBEX"] * 5,
        "day": [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5],
        "price": [12, 10, 8, 9, 13, 11, 12, 10, 8, 9, 7, 11],
    }
}
EVENTS: dict[str, Table] = {
    "events": {"user": ["u", "u", "v", "u", "u", "v", "u", "u"], "minute": [0, 5, 7, 9, 40, 41, 45, 100]}
}

CASES: list[Case] = [
    Case(
        "falls and recoveries of a price",
        """
        SELECT * FROM stocks MATCH_RECOGNIZE (
            PARTITION BY sym
            ORDER BY day
            MEASURES
                MATCH_NUMBER() AS number,
                strt.day AS start_day,
                LAST(down.day) AS bottom_day,
                LAST(up.day) AS end_day,
                MIN(down.price) AS bottom,
                LAST(up.price) - strt.price AS gain
            ONE ROW PER MATCH
            AFTER MATCH SKIP TO LAST up
            PATTERN (strt down+ up+)
            DEFINE
                down AS down.price < PREV(down.price),
                up AS up.price > PREV(up.price)
        ) AS m
        """,
        # ACME: 12 10 8 | 9 13, then from day 5: 13 11 | 12. GLOBEX: 10 8 | 9, then 9 7 | 11.
        [
            ("ACME", 1, 1, 3, 5, 8, 1),
            ("ACME", 2, 5, 6, 7, 11, -1),
            ("GLOBEX", 1, 1, 2, 3, 8, -1),
            ("GLOBEX", 2, 3, 4, 5, 7, 2),
        ],
        columns=["sym", "number", "start_day", "bottom_day", "end_day", "bottom", "gain"],
        tables=STOCKS,
    ),
    Case(
        "a W of a price, all its rows",
        """
        SELECT day, label, low FROM stocks MATCH_RECOGNIZE (
            PARTITION BY sym
            ORDER BY day
            MEASURES CLASSIFIER() AS label, FINAL MIN(downs.price) AS low
            ALL ROWS PER MATCH
            PATTERN (s d1+ u1+ d2+ u2+)
            SUBSET downs = (d1, d2)
            DEFINE
                d1 AS d1.price < PREV(d1.price),
                u1 AS u1.price > PREV(u1.price),
                d2 AS d2.price < PREV(d2.price),
                u2 AS u2.price > PREV(u2.price)
        )
        WHERE sym = 'GLOBEX'
        ORDER BY day
        """,
        [(1, "S", 7), (2, "D1", 7), (3, "U1", 7), (4, "D2", 7), (5, "U2", 7)],
        tables=STOCKS,
        ordered=True,
    ),
    Case(
        "sessions without a gap of more than a quarter of an hour",
        """
        SELECT * FROM events MATCH_RECOGNIZE (
            PARTITION BY "user"
            ORDER BY minute
            MEASURES FIRST(minute) AS f, LAST(minute) AS l, COUNT(*) AS clicks
            PATTERN (a b*)
            DEFINE b AS b.minute - PREV(b.minute) <= 15
        )
        """,
        [("u", 0, 9, 3), ("u", 40, 45, 2), ("u", 100, 100, 1), ("v", 7, 7, 1), ("v", 41, 41, 1)],
        tables=EVENTS,
    ),
    Case(
        "three failed logins or more, then one that works",
        """
        SELECT * FROM logins MATCH_RECOGNIZE (
            ORDER BY id
            MEASURES COUNT(fail.*) AS failures, win.id AS at
            PATTERN (fail{3,} win)
            DEFINE fail AS NOT fail.ok, win AS win.ok
        )
        """,
        [(3, 4), (4, 11)],
        tables={"logins": {"id": list(range(1, 12)), "ok": [letter == "S" for letter in "FFFSFSFFFFS"]}},
    ),
    Case(
        "runs of days in a row, the longest first",
        """
        SELECT f, n FROM (VALUES
            (DATE '2024-02-27'), (DATE '2024-02-28'), (DATE '2024-02-29'), (DATE '2024-03-02'),
            (DATE '2024-03-05'), (DATE '2024-03-06')
        ) t(d) MATCH_RECOGNIZE (
            ORDER BY d
            MEASURES CAST(FIRST(d) AS VARCHAR) AS f, COUNT(*) AS n
            PATTERN (a b*)
            DEFINE b AS b.d = PREV(b.d) + INTERVAL '1' DAY
        )
        ORDER BY n DESC
        """,
        [("2024-02-27", 3), ("2024-03-05", 2), ("2024-03-02", 1)],
        ordered=True,
    ),
    Case(
        "boxes that hold a hundred at most",
        """
        SELECT * FROM (VALUES (1, 60), (2, 30), (3, 20), (4, 80), (5, 120), (6, 10)) t(id, weight)
        MATCH_RECOGNIZE (
            ORDER BY id
            MEASURES MATCH_NUMBER() AS box, SUM(weight) AS load
            ALL ROWS PER MATCH WITH UNMATCHED ROWS
            PATTERN (fits+)
            DEFINE fits AS SUM(fits.weight) <= 100
        )
        """,
        [(1, 1, 60, 60), (2, 1, 90, 30), (3, 2, 20, 20), (4, 2, 100, 80), (5, None, None, 120), (6, 3, 10, 10)],
        columns=["id", "box", "load", "weight"],
    ),
]
