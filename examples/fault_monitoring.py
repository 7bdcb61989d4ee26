"""Services that go down because of an attack, out of the readings of their hosts.

Readings of resources and of the network come as two tables with columns of their own. Readings of
one host make a suspicion of an attack, or a failure. The first failure of a service is an outage,
its repetitions are not; and an outage behind suspicions is "down because of an attack". The levels
are defined in `fault_monitoring.ensue`. The readings are generated, with the attacks planted in
them, so the answer can be checked.
"""

from pathlib import Path

import ensue
from samples.faults import faults

DOWN = Path(__file__).with_name("fault_monitoring.ensue")


def main() -> None:
    evening = faults()
    levels = ensue.match(evening.tables, DOWN, time="ts", options=ensue.OutputOptions(levels="all", trace=True))
    readings = evening.resources.num_rows + evening.network.num_rows
    print(f"{readings:,} readings")
    for name, found in levels.items():
        print(f"  {found.num_rows:3} {name}")
    downs = levels["DownByAttack"].to_pylist()
    for down in downs:
        print(
            f"{down['end']:%H:%M:%S}  {down['service']} is down: {down['host']} failed after "
            f"{down['suspicions']} suspicions, {down['packets']:,} packets"
        )
    print("the first of them, opened:")
    print(ensue.trace(downs[0], DOWN))

    found = {(down["service"], down["end"]) for down in downs}
    print(f"{len(evening.downs - found)} missed, {len(found - evening.downs)} false")


if __name__ == "__main__":
    main()
