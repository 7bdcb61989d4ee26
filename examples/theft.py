"""Items that leave a shop without passing a counter.

The readers on the shelves, at the counters and at the exit report every tag they see. A theft is a
reading at a shelf, none at a counter after it, and one at the exit, all of one item and within
12 hours. The day is generated, with the thefts planted in it, so the answer can be checked.
"""

import ensue
from samples.shop import shop

THEFT = """
    EVENT Theft AS SEQ(SHELF x, !COUNTER y, EXIT z)
    WHERE [tag]
    WITHIN 12 hours
    AFTER MATCH SKIP PAST LAST EVENT      -- one report an item, however often the shelf saw it
    RETURN z.tag AS tag, x.reader_id AS shelf, z.ts AS gone
"""


def main() -> None:
    day = shop(events=50_000)
    thefts = ensue.match(day.readings, THEFT, time="ts", type="reader")
    print(f"{thefts.num_rows} thefts in {day.readings.num_rows:,} readings")
    for theft in thefts.sort_by("gone").slice(0, 5).to_pylist():
        print(f"  {theft['gone']:%H:%M:%S}  {theft['tag']}  from {theft['shelf']}")
    found, planted = (set(t["tag"].to_pylist()) for t in (thefts, day.thefts))
    print(f"{len(planted - found)} missed, {len(found - planted)} false")


if __name__ == "__main__":
    main()
