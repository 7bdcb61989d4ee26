"""100,000 fences on the earth: who enters, and who stays away.

Adding a subscription compiles nothing, and a report is compared only with the few fences around
it. Half of the fences tell which truck enters them, half of them that one vehicle has not been
seen there for half an hour: that is told when the time has passed, without a further report. The
reports are generated, and what happens at the fences is planted in them, some of which lie across
180 degrees, so the answer can be checked. `python geofences.py 10000` takes a tenth of the fences.
"""

import sys
import time

import pyarrow as pa

import ensue
from samples.fences import Fence, fences

# A truck outside, less than two kilometres away; then, within ten minutes, the same one inside. It
# is told once for each truck that enters, however often it reports from inside.
ENTERS = """
    =|($near;; 10 minutes)(@(Fence)(B)),
    $near; = DIST(Fence; <; 2000)(DIST(Fence; >; 0)(A)),
    A = (STRING:type = 'truck'), B = (STRING:type = 'truck', ARITH:id = $near;.id),
    Fence = {region}
    WITH select = once
"""
# A vehicle inside, and not once more in the 30 minutes after it.
STAYS_AWAY = """
    !(@(Fence)(A); 30 minutes)(@(Fence)(A)), A = (ARITH:id = {vehicle}),
    Fence = {region}
"""


def main() -> None:
    day = fences(int(sys.argv[1]) if sys.argv[1:] else 100_000)
    began = time.perf_counter()
    fleet = subscriptions(day.fences)
    added = time.perf_counter()
    found = ensue.match(day.reports, fleet)
    matched = time.perf_counter()
    print(f"{len(day.fences):,} fences added in {added - began:.0f} s, matched against", end=" ")
    print(f"{day.reports.num_rows:,} reports in {matched - added:.0f} s")
    for row in found.slice(0, 5).to_pylist():
        print(f"  {row['end']:%H:%M:%S}  {row['subscription']}: {row['location']}")
    across = sum(name in ("fence-0", "fence-1") for name in found["subscription"].to_pylist())
    print(f"{across} of them at the first two fences, which lie across 180 degrees")
    if not check("on a table", found, day.notes):
        sys.exit(1)


def subscriptions(fences: list[Fence]) -> ensue.Subscriptions:
    """One for every fence. Longitudes and latitudes are in degrees, distances in metres."""
    fleet = ensue.Subscriptions(time="ts", type="type", location=("lon", "lat"), space="earth")
    fleet.add_all(
        (fence.name, (ENTERS if fence.vehicle is None else STAYS_AWAY).format(**fence._asdict())) for fence in fences
    )
    return fleet


def check(how: str, found: pa.Table, planted: pa.Table) -> bool:
    ours, theirs = (
        [tuple(row.values()) for row in table.select(planted.column_names).to_pylist()] for table in (found, planted)
    )
    missed, false = len(set(theirs) - set(ours)), len(ours) - len(set(ours) & set(theirs))
    print(f"{how:12} {len(ours)} found, {len(theirs)} planted: {missed} missed, {false} false")
    return missed == false == 0


if __name__ == "__main__":
    main()
