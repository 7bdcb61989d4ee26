"""A trading day in which some sectors collapse, and what only looks like it.

A volume collapses when it was above 1000 while the price climbed above its own average, and then
falls by more than a fifth within the hour. Symbols trade 900 to 1000 shares on ordinary days; busy
ones a few more, which is no collapse, and at lunch time few, which is none either without a surge
in the hour before. Three symbols of a sector in a quarter of an hour are a collapse of the sector,
two sectors within half an hour an alarm for the market.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

ALARM = """\
EVENT VolumeCollapse AS SEQ(Stock+ a[], Stock b)
WHERE skip_till_next_match(a[], b) {
    [symbol]
    and a[1].volume > 1000
    and a[i].price > avg(a[..i-1].price)
    and b.volume < 80% * a[a.LEN].volume }
WITHIN 1 hour
AFTER MATCH SKIP PAST LAST EVENT
RETURN b.symbol AS symbol, b.sector AS sector, a[a.LEN].volume AS volume, b.volume AS fallen;

EVENT SectorCollapse AS AND(VolumeCollapse x, VolumeCollapse y, VolumeCollapse z)
WHERE [sector] and x.symbol < y.symbol and y.symbol < z.symbol
WITHIN 15 minutes
AFTER MATCH SKIP PAST LAST EVENT
RETURN x.sector AS sector, x.fallen + y.fallen + z.fallen AS fallen;

EVENT MarketAlarm AS AND(SectorCollapse s, SectorCollapse t)
WHERE s.sector < t.sector
WITHIN 30 minutes
AFTER MATCH SKIP PAST LAST EVENT
RETURN s.sector AS first, t.sector AS second"""

SECTORS = ("banks", "chips", "energy", "food", "health", "media", "metals", "retail")
_OPENING = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)  # a Monday
_EVENING = 390 * 60.0  # seconds after the opening
_SURGE = 60.0  # how long before the fall it begins, at most
_QUIET = 75 * 60.0  # between two stories of a sector: no window reaches over it


class Market(NamedTuple):
    """The trades of a day, and what there is to be found in them."""

    trades: pa.Table  # ts, symbol, sector, price, volume; in the order of ts
    collapses: frozenset[tuple[str, datetime]]  # symbol, when its volume fell
    sectors: frozenset[tuple[str, datetime]]  # sector, when the third of its symbols fell
    alarms: frozenset[datetime]  # when the second sector fell


def market(symbols: int = 48, seed: int = 7, pace: float = 45.0) -> Market:
    """A day on which each symbol trades about every `pace` seconds.

    >>> day = market(symbols=24)
    >>> day.trades.column_names
    ['ts', 'symbol', 'sector', 'price', 'volume']
    >>> len(day.sectors) > len(day.alarms) > 0
    True
    """
    day = _Day(Random(seed), symbols, pace)
    day.live()
    rows = sorted(day.rows, key=lambda row: row["ts"])
    return Market(pa.Table.from_pylist(rows), frozenset(day.collapses), frozenset(day.sectors), frozenset(day.alarms))


class _Day:
    """The day, told story by story; ordinary trades fill the time between."""

    def __init__(self, random: Random, symbols: int, pace: float) -> None:
        self.random, self.pace = random, pace
        self.of = {f"{SECTORS[n % 8][:3].upper()}{n // 8 + 1}": SECTORS[n % 8] for n in range(symbols)}
        self.price = {symbol: random.uniform(20, 200) for symbol in self.of}
        self.taken: dict[str, list[tuple[float, float]]] = {symbol: [] for symbol in self.of}
        self.rows: list[dict[str, Any]] = []
        self.collapses: set[tuple[str, datetime]] = set()
        self.sectors: set[tuple[str, datetime]] = set()
        self.alarms: set[datetime] = set()

    def live(self) -> None:
        # Each story has an hour and a quarter of its own; what happens in it is over well before.
        stories = [self.market_falls, self.sector_falls, self.sectors_fall_apart, self.bad_luck]
        for number, at in enumerate(_range(600.0, _EVENING - _QUIET, _QUIET)):
            stories[number % len(stories)](at)
        self.trade_on()

    # ---- stories

    def market_falls(self, at: float) -> None:
        """Two sectors, three symbols each or more, within half an hour."""
        first, second = self.random.sample(SECTORS, 2)
        self.fall(first, at, symbols=3)
        again = self.fall(second, at + self.random.uniform(300, 900), symbols=3)
        self.alarms.add(again)

    def sector_falls(self, at: float) -> None:
        """One sector alone, and two symbols of another one."""
        first, second = self.random.sample(SECTORS, 2)
        self.fall(first, at, symbols=3)
        for symbol, later in zip(self.some(second, 2), (100.0, 400.0), strict=True):
            self.collapse(symbol, at + later)

    def sectors_fall_apart(self, at: float) -> None:
        """Two sectors, but the second one more than half an hour after the first."""
        first, second = self.random.sample(SECTORS, 2)
        self.fall(first, at, symbols=3)
        self.fall(second, at + 2400, symbols=3)

    def bad_luck(self, at: float) -> None:
        """Symbols that fall without company: too slowly one after the other, or of all sectors;
        busy symbols without a fall, and little trade without a surge before it."""
        lone, *others = self.random.sample(SECTORS, 4)
        for number, symbol in enumerate(self.some(lone, 3)):
            self.collapse(symbol, at + number * 1200)
        for number, sector in enumerate(others):
            fallen, busy, idle = self.some(sector, 3)
            self.collapse(fallen, at + number * 60)
            self.be_busy(busy, at)
            self.be_idle(idle, at)

    def fall(self, sector: str, at: float, symbols: int) -> datetime:
        """Some symbols within some minutes; returns when the last of them fell."""
        ends = [
            self.collapse(symbol, at + number * self.random.uniform(90, 180))
            for number, symbol in enumerate(self.some(sector, symbols))
        ]
        self.sectors.add((sector, max(ends)))
        return max(ends)

    # ---- what a symbol does

    def collapse(self, symbol: str, at: float) -> datetime:
        """Climbs with much volume, then hardly any."""
        surge = self.random.randint(2, 5)
        price = self.price[symbol]
        for number in range(surge):
            price *= self.random.uniform(1.002, 1.01)
            self.trade(symbol, at + number * 10, price, self.random.randint(2600, 3000))
        fallen = self.trade(symbol, at + surge * 10, price, self.random.randint(100, 700))
        self.taken[symbol].append((at, at + _SURGE))
        self.collapses.add((symbol, fallen))
        return fallen

    def be_busy(self, symbol: str, at: float) -> None:
        """More than usual, at climbing prices; 80 % of it is still less than what is usual."""
        price = self.price[symbol]
        for number in range(6):
            price *= 1.003
            self.trade(symbol, at + number * 8, price, self.random.randint(1010, 1100))

    def be_idle(self, symbol: str, at: float) -> None:
        for number in range(4):
            self.trade(symbol, at + number * 12, self.price[symbol], self.random.randint(50, 300))

    def trade_on(self) -> None:
        """Every symbol's ordinary trades, a walk of its price; none within a surge."""
        for symbol, price in self.price.items():
            at = self.random.uniform(0, self.pace)
            while at < _EVENING:
                price *= 1 + self.random.gauss(0, 0.0005)
                if not any(begin - 2 < at < end + 2 for begin, end in self.taken[symbol]):
                    self.trade(symbol, at, price, self.random.randint(900, 1000))
                at += self.random.uniform(0.2, 1.8) * self.pace

    def trade(self, symbol: str, at: float, price: float, volume: int) -> datetime:
        ts = _OPENING + timedelta(seconds=round(at))
        self.rows.append(
            {"ts": ts, "symbol": symbol, "sector": self.of[symbol], "price": round(price, 2), "volume": volume}
        )
        return ts

    def some(self, sector: str, symbols: int) -> list[str]:
        return self.random.sample([s for s, of in self.of.items() if of == sector], symbols)


def _range(start: float, end: float, step: float) -> Iterable[float]:
    while start < end:
        yield start
        start += step
