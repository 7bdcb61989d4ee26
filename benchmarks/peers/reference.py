"""The same questions answered by plain loops, one function a query: the judge of both sides."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

WINDOW = 120_000  # milliseconds, its end excluded

Match = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trade:
    """One event."""

    ts: int
    type: str
    price: float
    volume: int


def expected(name: str, events: pa.Table) -> list[Match]:
    """The matches of a query, each as the columns that the query returns, sorted.

    >>> rows = {"ts": [1, 2, 3], "type": ["A", "B", "C"], "symbol": ["s"] * 3}
    >>> prices = {"price": [100.0, 101.0, 102.0], "volume": [900, 900, 900]}
    >>> expected("contiguous, rising", pa.table(rows | prices))
    [(1, 2, 3)]
    """
    by_symbol: dict[str, list[Trade]] = {}
    for row in events.to_pylist():
        trade = Trade(row["ts"], row["type"], row["price"], row["volume"])
        by_symbol.setdefault(row["symbol"], []).append(trade)
    return sorted(
        found
        for trades in by_symbol.values()
        for first in range(len(trades))
        for found in MEANING[name](trades[first:])
    )


def _contiguous(trades: Sequence[Trade]) -> Iterator[Match]:
    if "".join(t.type for t in trades[:3]) == "ABC":
        a, b, c = trades[:3]
        if a.price > 99 and b.volume > 500 and c.price > 99:
            yield a.ts, b.ts, c.ts


def _rising(trades: Sequence[Trade]) -> Iterator[Match]:
    if "".join(t.type for t in trades[:3]) == "ABC":
        a, b, c = trades[:3]
        if a.price < b.price < c.price:
            yield a.ts, b.ts, c.ts


def _next(trades: Sequence[Trade]) -> Iterator[Match]:
    yield from _first_after(trades, lambda _before, _event: True)


def _next_rising(trades: Sequence[Trade]) -> Iterator[Match]:
    yield from _first_after(trades, lambda before, event: event.price > before.price)


def _first_after(
    trades: Sequence[Trade], follows: Callable[[Trade, Trade], bool]
) -> Iterator[Match]:
    if trades[0].type != "A":
        return
    run = [trades[0]]
    for event in trades[1:]:
        if event.ts - run[0].ts >= WINDOW:
            return
        if event.type == "ABC"[len(run)] and follows(run[-1], event):
            run.append(event)
        if len(run) == 3:
            yield tuple(e.ts for e in run)
            return


def _falling(trades: Sequence[Trade]) -> Iterator[Match]:
    fallen = 1
    while fallen < len(trades) and trades[fallen].price < trades[fallen - 1].price:
        fallen += 1
    b = trades[1:fallen]
    if b and fallen < len(trades) and trades[fallen].price > b[-1].price:
        yield trades[0].ts, b[0].ts, b[-1].ts, len(b), trades[fallen].ts


def _surge(trades: Sequence[Trade]) -> Iterator[Match]:
    if trades[0].volume <= 1000:
        return
    total, count = trades[0].volume, 1
    for event in trades[1:]:
        if event.ts - trades[0].ts >= WINDOW:
            return
        if event.volume * count < total:
            yield trades[0].ts, trades[count - 1].ts, count, event.ts
            return
        total, count = total + event.volume, count + 1


MEANING: dict[str, Callable[[Sequence[Trade]], Iterator[Match]]] = {
    "contiguous": _contiguous,
    "contiguous, rising": _rising,
    "next": _next,
    "next, rising": _next_rising,
    "falling": _falling,
    "surge": _surge,
}
