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
        for found in (_apart if name.startswith("SQL") else _all)(MEANING[name], trades)
    )


def _all(meaning: "Meaning", trades: Sequence[Trade]) -> Iterator[Match]:
    """From every event on."""
    for first in range(len(trades)):
        yield from meaning(trades[first:])


def _apart(meaning: "Meaning", trades: Sequence[Trade]) -> Iterator[Match]:
    """From every event that is not in a match; the last column of a match is its last event."""
    ended = -1
    for first, trade in enumerate(trades):
        if trade.ts > ended:
            for found in meaning(trades[first:]):
                ended = found[-1]
                yield found


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


def _first_after(trades: Sequence[Trade], follows: Callable[[Trade, Trade], bool]) -> Iterator[Match]:
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


def _v_shape(trades: Sequence[Trade]) -> Iterator[Match]:
    low = 0
    while low + 1 < len(trades) and trades[low + 1].price < trades[low].price:
        low += 1
    top = low
    while top + 1 < len(trades) and trades[top + 1].price > trades[top].price:
        top += 1
    if 0 < low < top < len(trades) - 1:
        yield trades[0].ts, trades[low].ts, low, trades[top].ts, top - low, trades[top + 1].ts


Meaning = Callable[[Sequence[Trade]], Iterator[Match]]
MEANING: dict[str, Meaning] = {
    "contiguous": _contiguous,
    "contiguous, rising": _rising,
    "next": _next,
    "next, rising": _next_rising,
    "falling": _falling,
    "surge": _surge,
    "SQL: strict": _contiguous,
    "SQL: V shape": _v_shape,
    "SQL: running average": _surge,
}
