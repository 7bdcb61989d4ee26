"""From trades to an alarm for the market: volumes collapse, then sectors, then the market.

The levels are defined in `market_alarm.ensue`, which imports the collapse of one symbol from
`volume_collapse.ensue`. Each level has another key: trades are followed by symbol, collapses by
sector, sectors all together. Every level is delivered, and one alarm is opened down to the trades
it comes from. The trades are generated, with the alarms planted in them, so the answer can be
checked.
"""

from pathlib import Path

import ensue
from samples.market import market

ALARM = Path(__file__).with_name("market_alarm.ensue")


def main() -> None:
    day = market()
    levels = ensue.match({"Stock": day.trades}, ALARM, time="ts", options=ensue.OutputOptions(levels="all", trace=True))
    print(f"{day.trades.num_rows:,} trades")
    for name, found in levels.items():
        print(f"  {found.num_rows:3} {name}")

    alarms = levels["MarketAlarm"].to_pylist()
    print("the first alarm, opened:")
    print(ensue.trace(alarms[0], ALARM))

    planted = day.collapses | day.sectors | {("market", at) for at in day.alarms}
    found = {(c["symbol"], c["end"]) for c in levels["VolumeCollapse"].to_pylist()}
    found |= {(c["sector"], c["end"]) for c in levels["SectorCollapse"].to_pylist()}
    found |= {("market", alarm["end"]) for alarm in alarms}
    print(f"{len(planted - found)} missed, {len(found - planted)} false")


if __name__ == "__main__":
    main()
