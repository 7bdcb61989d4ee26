"""The MATCH_RECOGNIZE clauses that are measured."""

from dataclasses import dataclass

_ROWS = "PARTITION BY symbol ORDER BY ts"


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause over stock-like events; `body` is what stands behind ORDER BY."""

    name: str
    meaning: str
    body: str
    on_spark: bool = False

    @property
    def text(self) -> str:
        """The clause as `ensue.match` takes it."""
        return f"MATCH_RECOGNIZE ({_ROWS}\n{self.body})"

    @property
    def sql(self) -> str:
        """The query over a table `ticks`.

        >>> print(CLAUSES["failing"].sql.splitlines()[0])
        SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
        """
        return f"SELECT * FROM ticks {self.text}"


_V_MEASURES = """\
MEASURES STRT.ts AS begun, LAST(DOWN.ts) AS bottom, LAST(UP.ts) AS ended,
         LAST(DOWN.price) AS least"""
_V_PATTERN = """\
PATTERN (STRT DOWN+ UP+)
DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)"""

_ALL = (
    Clause("V shape", "STRT DOWN+ UP+: prices fall, then rise", f"{_V_MEASURES}\n{_V_PATTERN}", on_spark=True),
    Clause(
        "V shape, all rows",
        "the same, ALL ROWS PER MATCH",
        f"{_V_MEASURES}, CLASSIFIER() AS role\nALL ROWS PER MATCH\n{_V_PATTERN}",
        on_spark=True,
    ),
    Clause(
        "strict",
        "A B C, successive rows, each tested alone",
        """\
MEASURES A.ts AS a, B.ts AS b, C.ts AS c
PATTERN (A B C)
DEFINE A AS type = 'A' AND price > 99, B AS type = 'B' AND volume > 500,
       C AS type = 'C' AND price > 99""",
        on_spark=True,
    ),
    Clause(
        "running average",
        "A+ B: prices at or above their running average, then one below it",
        """\
MEASURES FIRST(A.ts) AS begun, B.ts AS ended, COUNT(A.*) AS several, AVG(A.price) AS mean
PATTERN (A+ B)
DEFINE A AS A.price >= AVG(A.price), B AS B.price < AVG(A.price)""",
        on_spark=True,
    ),
    Clause(
        "alternation",
        "(A | B | C | D)+ E, several ways for most rows",
        """\
MEASURES FIRST(ts) AS begun, LAST(ts) AS ended, COUNT(*) AS several
PATTERN ((A | B | C | D)+ E)
DEFINE A AS type <> 'E' AND volume > 500, B AS type <> 'E' AND price > 99,
       C AS type = 'C' OR type = 'B', D AS type = 'D', E AS type = 'E' AND volume > 300""",
    ),
    Clause(
        "failing",
        "A+ B+ where A is often true and B never",
        """\
MEASURES FIRST(ts) AS begun
PATTERN (A+ B+)
DEFINE A AS volume > 200, B AS volume < 0""",
    ),
    Clause(
        "failing, any row",
        "A+ B+ where A is always true and B never",
        """\
MEASURES FIRST(ts) AS begun
PATTERN (A+ B+)
DEFINE B AS volume < 0""",
    ),
)
CLAUSES = {clause.name: clause for clause in _ALL}

# A stream has to know how long it waits.
_IN_TIME = _V_PATTERN.replace("UP+)", "UP+) WITHIN INTERVAL '10' MINUTE")
STREAMED = Clause("V shape", "the V shape in ten minutes", f"{_V_MEASURES}\n{_IN_TIME}")
