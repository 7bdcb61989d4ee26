"""Stocks that fall this morning, some of which have come back from a fall before.

Every symbol trades about every two minutes in the first hour of a trading day, up and down by a
little. This morning some fall four times and more in a row. In the 45 days before there are ticks:
a short fall, and a rise above where it began. Some symbols had theirs too long ago; others had
what only looks like one: a rise with setbacks, or one that ends below where the fall began. And
some fall this morning, but twice only.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

COMEBACK = """\
EVENT Comeback AS SEQ(Trade s, Trade{3,} d[])
    WHERE partition_contiguity(s, d[]) {
        [symbol] and d[1].price < s.price and d[i].price < d[i-1].price }
    WITHIN 10 minutes
    AFTER MATCH SKIP PAST LAST EVENT
JOIN ARCHIVE trades SEQ(Trade a, Trade+ b[], Trade+ c[])
    WHERE partition_contiguity(a, b[], c[]) {
        [symbol] and b[1].price < a.price and b[i].price < b[i-1].price
        and c[1].price > b[b.LEN].price and c[i].price > c[i-1].price
        and c[c.LEN].price > a.price and c[c.LEN].price > b[b.LEN].price * 1.1 }
    WITHIN 1 hour
    RANGE 30 days BEFORE START LAST 1 ON [symbol]
RETURN s.symbol AS symbol, d[d.LEN].ts AS fallen, d[d.LEN].price AS price,
    c[c.LEN].ts AS back, b[b.LEN].price AS low, c[c.LEN].price AS high"""

_TODAY = np.datetime64("2026-03-16T14:30:00", "us")  # a Monday
_PAST_DAYS, _RANGE_DAYS = 45, 30
_TRADES = 30  # of a symbol on a day
_GAP = 120.0  # seconds between them
_FALL = (1.01, 0.995, 0.985, 0.97)  # and one or two more
_DIP = (1.01, 0.995, 0.985)
_TICK = (1.005, 0.98, 0.96, 0.99, 1.02, 1.05, 1.09, 1.13)
_SETBACKS = (1.005, 0.98, 0.96, 0.99, 1.02, 1.0, 1.03, 1.05, 1.03, 1.07, 1.09)
_HALF = (1.005, 0.8, 0.83, 0.86, 0.89, 0.91)  # and it stays there for the day

Symbols = NDArray[np.int64]
Grid = NDArray[np.float64]  # by symbol, day and trade of the day


class Comebacks(NamedTuple):
    """The trades of weeks, those of this morning, and what there is to be found in these."""

    past: pa.Table  # ts, symbol, price, volume; in the order of ts
    live: pa.Table  # the same of this morning
    comebacks: pa.Table  # symbol, fallen: when it fell for the third time; in the order of fallen
    falls: pa.Table  # the same for every fall of the morning, those without a tick too


def comebacks(trades: int = 50_000, seed: int = 7) -> Comebacks:
    """About `trades` of them, past and live, and the falls of the morning with a tick before.

    >>> week = comebacks(2_000)
    >>> week.live.column_names
    ['ts', 'symbol', 'price', 'volume']
    >>> week.comebacks.num_rows < week.falls.num_rows
    True
    """
    days = _trading_days()
    symbols = max(10, round(trades / (len(days) * _TRADES)))
    market = _Market(np.random.default_rng(seed), symbols, days)
    fallen, ticked = market.live()
    table, morning = market.table()
    return Comebacks(
        table.slice(0, morning),
        table.slice(morning),
        market.falls(fallen[np.isin(fallen, ticked)]),
        market.falls(fallen),
    )


class _Market:
    """A price for each symbol, day and trade; a story overwrites some trades of a day."""

    def __init__(self, random: np.random.Generator, symbols: int, days: NDArray[np.int64]) -> None:
        self.random, self.days = random, days
        shape = (symbols, len(days), _TRADES)
        # Up, down, up, down: ordinary trades never fall twice in a row.
        sign = np.where(np.arange(_TRADES) % 2, -1, 1)
        self.factor: Grid = 1 + sign * random.uniform(0.0005, 0.002, shape)
        drift = np.cumsum(random.normal(0, 0.01, shape[:2]), axis=1)
        self.level = random.uniform(20, 200, (symbols, 1)) * np.exp(drift)
        at = (np.arange(_TRADES) + random.uniform(0.1, 0.9, shape)) * _GAP
        self.seconds: Grid = at + days[None, :, None] * 86_400.0
        self.third = np.zeros(symbols, np.int64)  # which trade of the morning is the third fall

    def live(self) -> tuple[Symbols, Symbols]:
        """Each symbol meets its fate; returns who falls this morning, and who had a tick."""
        symbols = self.random.permutation(len(self.level))
        falls, dips, _ = np.split(symbols, np.cumsum([len(symbols) // 2, len(symbols) // 5]))
        self.fall(falls, _FALL, more=2)
        self.fall(dips, _DIP, more=0)
        # Whether one falls now has nothing to do with what it did before.
        symbols = self.random.permutation(symbols)
        tenth = len(symbols) // 10
        ticked, setbacks, half, old, _ = np.split(symbols, np.array([4, 6, 8, 9]) * tenth)
        within = np.flatnonzero((self.days > -_RANGE_DAYS) & (self.days < 0))
        self.tell(ticked, within, _TICK)
        self.tell(ticked, within, _TICK)
        self.tell(setbacks, within, _SETBACKS)
        self.tell(half, within, _HALF, stays=True)
        self.tell(old, np.flatnonzero(self.days < -_RANGE_DAYS), _TICK)
        return np.sort(falls), ticked

    def fall(self, symbols: Symbols, story: tuple[float, ...], more: int) -> None:
        """This morning; up to `more` trades go on falling."""
        today, steps = len(self.days) - 1, np.arange(len(story) + more)
        whole = np.array([*story, *(story[-1] - 0.01 * (n + 1) for n in range(more))])
        at = self.random.integers(2, _TRADES - len(steps), len(symbols))
        self.third[symbols] = at + 3
        told = self.random.integers(len(story), len(steps) + 1, len(symbols))
        for step in steps:
            of = told > step
            self.factor[symbols[of], today, at[of] + step] = whole[step]

    def tell(self, symbols: Symbols, days: NDArray[np.int64], story: tuple[float, ...], *, stays: bool = False) -> None:
        """On one of the days."""
        day = self.random.choice(days, len(symbols))
        at = self.random.integers(2, _TRADES - len(story), len(symbols))
        for step, factor in enumerate(story):
            self.factor[symbols, day, at + step] = factor
        if stays:
            later = np.arange(_TRADES)[None, :] >= (at + len(story))[:, None]
            of, nth = np.nonzero(later)
            self.factor[symbols[of], day[of], nth] *= story[-1]

    # ---- the tables

    def table(self) -> tuple[pa.Table, int]:
        """All trades in the order of time, and how many of them are past."""
        time = self.seconds.ravel()
        order = np.argsort(time, kind="stable")
        price = np.round(self.level[:, :, None] * self.factor, 4).ravel()
        symbol = np.repeat(np.arange(len(self.level)), time.size // len(self.level))
        trades = pa.table(
            {
                "ts": _timestamps(time[order]),
                "symbol": _names(symbol[order]),
                "price": price[order],
                "volume": self.random.integers(100, 2_001, time.size),
            }
        )
        return trades, int((time < 0).sum())

    def falls(self, symbols: Symbols) -> pa.Table:
        fallen = self.seconds[symbols, -1, self.third[symbols]]
        order = np.argsort(fallen, kind="stable")
        return pa.table({"symbol": _names(symbols[order]), "fallen": _timestamps(fallen[order])})


def _trading_days() -> NDArray[np.int64]:
    """Days from today on which there is trading: no weekends."""
    days = np.arange(-_PAST_DAYS, 1)
    trading: NDArray[np.int64] = days[np.is_busday(_TODAY.astype("M8[D]") + days)]
    return trading


def _timestamps(time: Grid) -> pa.Array:
    return pa.array(_TODAY + np.floor(time * 1e6).astype("m8[us]"), pa.timestamp("us", "UTC"))


def _names(symbols: Symbols) -> pa.Array:
    every = int(symbols.max(initial=0)) + 1
    return pa.array([f"SYM{n:04d}" for n in range(every)], pa.string()).take(pa.array(symbols))
