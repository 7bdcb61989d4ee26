"""The events and the queries that are measured."""

from dataclasses import dataclass

import pyarrow as pa
from examples.samples.stocks import stocks

SEED = 7
FEW_KEYS, MANY_KEYS = 1_000, 100_000


@dataclass(frozen=True, slots=True)
class Workload:
    """A query on stock-like events.

    Of 1,000 symbols each has a trade every ten seconds; of more symbols each has fewer, so the
    window grows with their number and always spans as many trades of a symbol.
    """

    name: str
    meaning: str
    query: str  # with a place for the window
    seconds: int  # the window for 1,000 symbols
    returns: str = ""  # without it, whole events
    typed: bool = True  # False: all events are trades, as in the paper
    on_spark: bool = True

    def text(self, symbols: int) -> str:
        """The query for events of so many symbols.

        >>> print(WORKLOADS["any, sparse"].text(10_000).splitlines()[-1])
        WITHIN 3000 seconds
        """
        return f"{self.query}\nWITHIN {self.window(symbols)} seconds\n{self.returns}".strip()

    def window(self, symbols: int) -> int:
        """Its seconds for events of so many symbols."""
        return max(1, self.seconds * symbols // FEW_KEYS)

    @property
    def type(self) -> str | None:
        """The column that tells the types of events apart."""
        return "type" if self.typed else None


# SASE+, with the least volume of the first trade left open.
_SURGE = """\
PATTERN SEQ(Stock+ a[ ], Stock b)
WHERE skip_till_next_match(a[ ], b) {{
    [symbol]
    and a[1]. volume > {least}
    and a[i]. price > avg(a[.. i-1]. price)
    and b. volume < 80% * a[a.LEN]. volume }}"""

_ALL = (
    Workload(
        "next, unary",
        "SEQ(A, B, C), skip till next match, each event tested alone",
        """\
PATTERN SEQ(A a, B b, C c)
WHERE skip_till_next_match(a, b, c) {
    [symbol] and a.volume > 1500 and b.volume > 1500 and c.volume < 500 }""",
        300,
    ),
    Workload(
        "next, correlated",
        "SEQ(A, B, C), skip till next match, events compared with each other",
        """\
PATTERN SEQ(A a, B b, C c)
WHERE skip_till_next_match(a, b, c) {
    [symbol] and b.price > a.price and c.price < a.price and c.volume < b.volume }""",
        120,
    ),
    Workload(
        "Kleene",
        "SASE+: trades above their running average after a surge (volume > 1,900)",
        _SURGE.format(least=1900),
        60,
        typed=False,
    ),
    Workload(
        "Kleene, dense",
        "the same as printed in the paper (volume > 1,000): half of all trades begin a run",
        _SURGE.format(least=1000),
        30,
        typed=False,
        on_spark=False,
    ),
    Workload(
        "any, sparse",
        "SEQ(A, B, C), all combinations, few of them",
        """\
PATTERN SEQ(A a, B b, C c)
WHERE [symbol] and a.volume > 1800 and b.volume > 1800 and c.volume < 300""",
        300,
    ),
    Workload(
        "any, dense",
        "SEQ(A, B, C), all combinations: several matches per event, two prices returned",
        """\
PATTERN SEQ(A a, B b, C c)
WHERE [symbol]""",
        300,
        # whole events of so many matches would measure nothing but memory
        returns="RETURN a.price AS first, c.price AS last",
        on_spark=False,
    ),
)
WORKLOADS = {workload.name: workload for workload in _ALL}

# Brings what every query needs into memory; not one of the queries that are measured.
WARM_UP = "PATTERN SEQ(D d, E e) WHERE skip_till_next_match(d, e) { [symbol] } WITHIN 7 seconds"


def events(count: int, symbols: int) -> pa.Table:
    """Seeded trades in the order of time: ts, type, symbol, price, volume."""
    return stocks(count, symbols, SEED)
