"""Stock-like events: seeded, and quick to make by the million."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

TYPES = ("A", "B", "C", "D", "E")
_OPENING = np.datetime64("2026-01-05T14:30:00", "us")
_GAP = 10_000  # microseconds between events, on average
_TIES = 0.05  # the share of events with the time of the one before


def stocks(events: int = 5_000_000, symbols: int = 1_000, seed: int = 7) -> pa.Table:
    """A table of `events` trades in time order: ts, type, symbol, price, volume.

    The five types are equally frequent, each symbol's price is a random walk from 100, and about
    every twentieth event has the same time as the one before it.

    >>> stocks(3, symbols=10).column_names
    ['ts', 'type', 'symbol', 'price', 'volume']
    """
    random = np.random.default_rng(seed)
    symbol = random.integers(0, symbols, events, dtype=np.int32)
    return pa.table(
        {
            "ts": pa.array(_times(random, events), pa.timestamp("us", "UTC")),
            "type": _names(TYPES, random.integers(0, len(TYPES), events, dtype=np.int32)),
            "symbol": _names([f"SYM{n:05d}" for n in range(symbols)], symbol),
            "price": _walks(random, symbol, symbols),
            "volume": random.integers(100, 2_001, events, dtype=np.int64),
        }
    )


def _names(names: Sequence[str], codes: NDArray[np.int32]) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(codes))


def _times(random: np.random.Generator, events: int) -> NDArray[np.datetime64]:
    widest = round(2 * _GAP / (1 - _TIES))
    gaps = random.integers(1, widest, events)
    gaps[random.random(events, dtype=np.float32) < _TIES] = 0
    return _OPENING + np.cumsum(gaps).astype("m8[us]")


def _walks(random: np.random.Generator, symbol: NDArray[np.int32], symbols: int) -> NDArray[np.float64]:
    """A geometric walk per symbol, in cents."""
    steps = random.standard_normal(len(symbol), dtype=np.float32) * 0.001
    total = np.concatenate(([0.0], np.cumsum(steps, dtype=np.float64)))
    # One sum over all steps, laid out symbol after symbol; each walk starts where it is zero.
    lengths = np.bincount(symbol, minlength=symbols)
    starts = np.cumsum(lengths) - lengths
    walk = total[1:] - np.repeat(total[starts], lengths)
    # 16-bit keys sort by radix, four times as fast.
    keys = symbol.astype(np.uint16) if symbols <= 1 << 16 else symbol
    prices = np.empty(len(symbol))
    prices[np.argsort(keys, kind="stable")] = np.round(100 * np.exp(walk), 2)
    return prices
