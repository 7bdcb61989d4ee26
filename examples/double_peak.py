"""A double peak in prices: two neighbouring peaks of one height, then a fall.

In the models of finance an event is a point in time. A sequence of two peaks would last from the
first to the second; `double_peak` is a sequence whose result is an instant, that of the second
peak. The turning points of the prices are generated, with the double peaks planted in them, so the
answer can be checked.
"""

from random import Random

import pyarrow as pa

import ensue

DOUBLE_PEAK = ensue.operator(
    "double_peak",
    q=lambda a, b, share: b.turn == a.turn + 2 and abs(b.price - a.price) <= share * a.price,
    f=lambda a, b: (b.end, b.end, (a.price + b.price) / 2, b.start - a.start),
    z={"height": "float", "width": "integer"},
    passes=0.02,
)

DOUBLE_TOP = """
    EVENT DoubleTop AS SEQ(double_peak(Peak a, Peak b, 1%) p, Trough t)
    WHERE [symbol] AND t.turn = b.turn + 1 AND t.price < 90% * p.height
    WITHIN 120
    RETURN b.symbol AS symbol, p.start AS at, p.height AS height, p.width AS width, t.price AS low
"""


def prices(symbols: int = 20, turns: int = 80, seed: int = 11) -> tuple[pa.Table, set]:
    """Turning points of some prices, and the (symbol, second) of every double peak that falls."""
    random, rows, planted = Random(seed), [], set()
    for number in range(symbols):
        symbol, level = f"S{number:02}", random.uniform(50, 150)
        second, turn = random.randint(0, 9), 0

        def turned(kind: str, price: float) -> None:
            nonlocal second, turn
            second, turn = second + random.randint(10, 30), turn + 1
            row = {"second": second, "type": kind, "turn": turn, "price": round(price, 2)}
            rows.append(row | {"symbol": symbol})  # noqa: B023

        for _ in range(turns // 4):
            if random.random() < 0.2:
                turned("Peak", level)
                turned("Trough", level * random.uniform(0.93, 0.97))
                turned("Peak", level * random.uniform(0.996, 1.004))
                planted.add((symbol, second))
                turned("Trough", level * random.uniform(0.8, 0.88))
            else:
                turned("Peak", level)
                turned("Trough", level * random.uniform(0.93, 0.97))
                turned("Peak", level * random.choice([0.96, 1.04]))
                turned("Trough", level * random.uniform(0.91, 0.94))
            level *= random.choice([0.95, 1.06])
    return pa.Table.from_pylist(rows), planted


def main() -> None:
    events, planted = prices()
    tops = ensue.match(events, DOUBLE_TOP, time="second", type="type", definitions=DOUBLE_PEAK)
    print(f"{tops.num_rows} double peaks in {events.num_rows:,} turning points")
    for top in tops.slice(0, 3).to_pylist():
        low, height = top["low"], top["height"]
        print(f"  {top['symbol']} at {top['at']}: {height:.2f} twice in {top['width']} s, {low}")
    found = {(top["symbol"], top["at"]) for top in tops.to_pylist()}
    print(f"{len(planted - found)} missed, {len(found - planted)} false")


if __name__ == "__main__":
    main()
