"""The queries, each in Flink's SQL and in Ensue's language, and the columns that name a match.

Every query is partitioned by symbol and returns the times of its members; times are unique, so
they are the members' keys. A Kleene variable returns its first time, its last time and its length:
under contiguity these name all of its events. Some queries are asked of both in the same words,
those of Flink's SQL.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """One question, asked of both."""

    name: str
    meaning: str
    flink: str  # what stands behind ORDER BY in MATCH_RECOGNIZE
    columns: tuple[str, ...]
    ensue: str | None = None  # None: Ensue is asked in the same words
    typed: bool = False  # whether the pattern's types are those of the `type` column

    def insert(self) -> str:
        """The statement that Flink runs, from table `stock` to table `found`."""
        return (
            f"INSERT INTO found SELECT {', '.join(self.columns)} FROM stock "
            f"MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY rowtime {self.flink})"
        )

    def sql(self) -> str:
        """The same in Ensue's SQL, whose table needs no column of its own for event time."""
        return f"SELECT * FROM stock MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts {self.flink})"


CONTIGUOUS = Pair(
    name="contiguous",
    meaning="A B C, successive, conditions on each",
    flink="""
        MEASURES A.ts AS a, B.ts AS b, C.ts AS c
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A B C)
        DEFINE A AS A.type = 'A' AND A.price > 99,
               B AS B.type = 'B' AND B.volume > 500,
               C AS C.type = 'C' AND C.price > 99""",
    ensue="""
        PATTERN SEQ(A a, B b, C c)
        WHERE partition_contiguity(a, b, c) {
            [symbol] and a.price > 99 and b.volume > 500 and c.price > 99 }
        RETURN a.ts AS a, b.ts AS b, c.ts AS c""",
    columns=("a", "b", "c"),
    typed=True,
)

RISING = Pair(
    name="contiguous, rising",
    meaning="A B C, successive, each dearer than the one before",
    flink="""
        MEASURES A.ts AS a, B.ts AS b, C.ts AS c
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A B C)
        DEFINE A AS A.type = 'A',
               B AS B.type = 'B' AND B.price > A.price,
               C AS C.type = 'C' AND C.price > B.price""",
    ensue="""
        PATTERN SEQ(A a, B b, C c)
        WHERE partition_contiguity(a, b, c) {
            [symbol] and b.price > a.price and c.price > b.price }
        RETURN a.ts AS a, b.ts AS b, c.ts AS c""",
    columns=("a", "b", "c"),
    typed=True,
)

# Flink's window excludes its end, Ensue's includes it: on whole milliseconds these are the same.
NEXT = Pair(
    name="next",
    meaning="A, the next B, the next C, in 2 minutes",
    flink="""
        MEASURES A.ts AS a, B.ts AS b, C.ts AS c
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A X* B Y* C) WITHIN INTERVAL '2' MINUTE
        DEFINE A AS A.type = 'A',
               X AS X.type <> 'B',
               B AS B.type = 'B',
               Y AS Y.type <> 'C',
               C AS C.type = 'C'""",
    ensue="""
        PATTERN SEQ(A a, B b, C c)
        WHERE skip_till_next_match(a, b, c) { [symbol] }
        WITHIN 119999 ms
        RETURN a.ts AS a, b.ts AS b, c.ts AS c""",
    columns=("a", "b", "c"),
    typed=True,
)

NEXT_RISING = Pair(
    name="next, rising",
    meaning="A, the next dearer B, the next C dearer than that, in 2 minutes",
    flink="""
        MEASURES A.ts AS a, B.ts AS b, C.ts AS c
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A X* B Y* C) WITHIN INTERVAL '2' MINUTE
        DEFINE A AS A.type = 'A',
               X AS NOT (X.type = 'B' AND X.price > A.price),
               B AS B.type = 'B' AND B.price > A.price,
               Y AS NOT (Y.type = 'C' AND Y.price > B.price),
               C AS C.type = 'C' AND C.price > B.price""",
    ensue="""
        PATTERN SEQ(A a, B b, C c)
        WHERE skip_till_next_match(a, b, c) {
            [symbol] and b.price > a.price and c.price > b.price }
        WITHIN 119999 ms
        RETURN a.ts AS a, b.ts AS b, c.ts AS c""",
    columns=("a", "b", "c"),
    typed=True,
)

FALLING = Pair(
    name="falling",
    meaning="prices fall, one or more times, then rise",
    flink="""
        MEASURES A.ts AS a, FIRST(B.ts) AS b_first, LAST(B.ts) AS b_last,
                 COUNT(B.ts) AS b_count, C.ts AS c
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A B+ C)
        DEFINE B AS (LAST(B.price, 1) IS NULL AND B.price < A.price)
                    OR B.price < LAST(B.price, 1),
               C AS C.price > LAST(B.price)""",
    ensue="""
        PATTERN SEQ(Stock a, Stock+ b[], Stock c)
        WHERE partition_contiguity(a, b[], c) {
            [symbol]
            and b[1].price < a.price
            and b[i].price < b[i-1].price
            and c.price > b[b.LEN].price }
        RETURN a.ts AS a, b[1].ts AS b_first, b[b.LEN].ts AS b_last,
               count(b) AS b_count, c.ts AS c""",
    columns=("a", "b_first", "b_last", "b_count", "c"),
    typed=False,
)

# Flink holds a match back while a run that began before it is open, and loses it if the input ends
# first (FLINK-15873); the window closes such runs.
SURGE = Pair(
    name="surge",
    meaning="volumes at or above their running average, then one below it, in 2 minutes",
    flink="""
        MEASURES FIRST(A.ts) AS a_first, LAST(A.ts) AS a_last, COUNT(A.ts) AS a_count,
                 B.ts AS b
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A+ B) WITHIN INTERVAL '2' MINUTE
        DEFINE A AS FIRST(A.volume) > 1000
                    AND A.volume >= AVG(CAST(A.volume AS DOUBLE)),
               B AS B.volume < AVG(CAST(A.volume AS DOUBLE))""",
    ensue="""
        PATTERN SEQ(Stock+ a[], Stock b)
        WHERE partition_contiguity(a[], b) {
            [symbol]
            and a[1].volume > 1000
            and a[i].volume >= avg(a[..i].volume)
            and b.volume < avg(a.volume) }
        WITHIN 119999 ms
        RETURN a[1].ts AS a_first, a[a.LEN].ts AS a_last, count(a) AS a_count, b.ts AS b""",
    columns=("a_first", "a_last", "a_count", "b"),
    typed=False,
)

STRICT_SQL = Pair(
    name="SQL: strict",
    meaning="A B C, successive, conditions on each; matches do not overlap",
    flink="""
        MEASURES A.ts AS a, B.ts AS b, C.ts AS c
        ONE ROW PER MATCH
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (A B C)
        DEFINE A AS A.type = 'A' AND A.price > 99,
               B AS B.type = 'B' AND B.volume > 500,
               C AS C.type = 'C' AND C.price > 99""",
    columns=("a", "b", "c"),
)

# Flink has no PREV, and its last variable must not be greedy: so LAST, and a row that ends UP.
V_SHAPE_SQL = Pair(
    name="SQL: V shape",
    meaning="prices fall, then rise, up to the row where they no longer do",
    flink="""
        MEASURES STRT.ts AS strt, LAST(DOWN.ts) AS bottom, COUNT(DOWN.ts) AS falls,
                 LAST(UP.ts) AS top, COUNT(UP.ts) AS rises, TURN.ts AS turn
        ONE ROW PER MATCH
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (STRT DOWN+ UP+ TURN)
        DEFINE DOWN AS (LAST(DOWN.price, 1) IS NULL AND DOWN.price < STRT.price)
                       OR DOWN.price < LAST(DOWN.price, 1),
               UP AS (LAST(UP.price, 1) IS NULL AND UP.price > LAST(DOWN.price))
                     OR UP.price > LAST(UP.price, 1),
               TURN AS TURN.price <= LAST(UP.price)""",
    columns=("strt", "bottom", "falls", "top", "rises", "turn"),
)

AVERAGE_SQL = Pair(
    name="SQL: running average",
    meaning="volumes at or above their running average, then one below it, in 2 minutes",
    flink="""
        MEASURES FIRST(A.ts) AS a_first, LAST(A.ts) AS a_last, COUNT(A.ts) AS a_count,
                 B.ts AS b
        ONE ROW PER MATCH
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (A+ B) WITHIN INTERVAL '2' MINUTE
        DEFINE A AS FIRST(A.volume) > 1000
                    AND A.volume >= AVG(CAST(A.volume AS DOUBLE)),
               B AS B.volume < AVG(CAST(A.volume AS DOUBLE))""",
    columns=("a_first", "a_last", "a_count", "b"),
)

PAIRS = (
    CONTIGUOUS, RISING, NEXT, NEXT_RISING, FALLING, SURGE, STRICT_SQL, V_SHAPE_SQL, AVERAGE_SQL,
)  # fmt: skip
