"""Prices that climb above their own average while the volume is high, then a collapse in volume.

The query of the SASE+ papers, as they print it: a Kleene variable with a running aggregate. All
events are of one type, so the call names no type column.
"""

import ensue
from samples.stocks import stocks

COLLAPSE = """
    PATTERN SEQ(Stock+ a[ ], Stock b)
    WHERE skip_till_next_match(a[ ], b) {
        [symbol]
        and a[1]. volume > 1000
        and a[i]. price > avg(a[.. i-1]. price)
        and b. volume < 80% * a[a.LEN]. volume }
    WITHIN 1 hour
    RETURN b.symbol AS symbol, a.LEN AS rises, a[1].price AS low, max(a.price) AS high,
           a[a.LEN].volume AS volume, b.volume AS collapsed
"""


def main() -> None:
    trades = stocks(events=1_000, symbols=20).drop_columns(["type"])
    found = ensue.match(trades, COLLAPSE, time="ts")
    symbols = len(found["symbol"].unique())
    print(f"{found.num_rows} collapses of {symbols} symbols in {trades.num_rows:,} trades")
    print("the longest climbs:")
    order = [("rises", "descending"), ("high", "descending"), ("collapsed", "ascending")]
    for match in found.sort_by(order).slice(0, 3).to_pylist():
        print(
            f"  {match['symbol']}: {match['rises']} rises, {match['low']:.2f} to "
            f"{match['high']:.2f}, then volume {match['volume']} to {match['collapsed']}"
        )


if __name__ == "__main__":
    main()
