"""Services that go down because of an attack, out of the readings of their hosts.

Readings of resources and of the network come as two tables with columns of their own. Readings of
one host make a suspicion of an attack, or a failure; suspicions and a failure of one service make
"down because of an attack"; and while the attack goes on, that is reported once. The levels are
defined in `fault_monitoring.ensue`; `dedup`, the repeat on top, is an operator made here. The
readings are generated, with the attacks planted in them, so the answer can be checked.
"""

from pathlib import Path

import ensue
from ensue.testing.faults import faults

ensue.operator(
    "dedup",
    over="repeat",
    q=lambda last, alarm, period: alarm.end - last.end >= period,
    passes=0.1,
)

ALERT = Path(__file__).with_name("fault_monitoring.ensue")


def main() -> None:
    evening = faults()
    levels = ensue.match(evening.tables, ALERT, time="ts", levels="all", trace=True)
    readings = evening.resources.num_rows + evening.network.num_rows
    print(f"{readings:,} readings")
    for name, found in levels.items():
        print(f"  {found.num_rows:3} {name}")
    alerts = levels["Alert"].to_pylist()
    for alert in alerts:
        print(
            f"{alert['end']:%H:%M:%S}  {alert['service']} is down: {alert['host']} failed after "
            f"{alert['suspicions']} suspicions, {alert['packets']:,} packets"
        )
    print("the first of them, opened:")
    print(ensue.trace(alerts[0], ALERT))

    found = {(alert["service"], alert["end"]) for alert in alerts}
    print(f"{len(evening.outages - found)} missed, {len(found - evening.outages)} false")


if __name__ == "__main__":
    main()
