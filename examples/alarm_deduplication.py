"""Alarms that repeat themselves: the first one is reported at once, the rest is absorbed.

A Kleene pattern would collect all repetitions and report when they are over. The operator `dedup`
is a repeat: it fires at the first alarm of a host, then absorbs its repetitions, each of which
comes within ten minutes of the one before. The alarms are generated, with the incidents planted in
them, so the answer can be checked.
"""

from datetime import datetime, timedelta
from random import Random

import pyarrow as pa

import ensue

DEDUP = ensue.operator(
    "dedup", over="repeat", q=lambda last, alarm, period: alarm.start - last.start >= period, passes=0.1
)

ALERT = """
    EVENT Alert AS dedup(Alarm a, 10 minutes) d
    WHERE [host]
    RETURN d.host AS host, d.start AS since, d.level AS level
"""
MORNING = datetime(2026, 3, 2, 8)


def alarms(hosts: int = 20, incidents: int = 15, seed: int = 7) -> tuple[pa.Table, set]:
    """Alarms of some hosts, and the (host, time) of the first one of every incident."""
    random, rows, planted = Random(seed), [], set()
    for number in range(hosts):
        host, now = f"host-{number:02}", MORNING + timedelta(seconds=random.randint(0, 600))
        for _ in range(incidents):
            planted.add((host, now))
            for _ in range(random.randint(1, 8)):  # each within ten minutes of the one before
                rows.append({"ts": now, "host": host, "level": random.randint(1, 5)})
                now += timedelta(seconds=random.randint(1, 590))
            now += timedelta(minutes=random.randint(10, 40))
    random.shuffle(rows)
    return pa.Table.from_pylist(rows), planted


def main() -> None:
    events, planted = alarms()
    alerts = ensue.match({"Alarm": events}, ALERT, time="ts", definitions=DEDUP)
    print(f"{alerts.num_rows} alerts for {events.num_rows:,} alarms")
    for alert in alerts.slice(0, 3).to_pylist():
        print(f"  {alert['since']:%H:%M:%S}  {alert['host']}  level {alert['level']}")
    found = {(alert["host"], alert["since"]) for alert in alerts.to_pylist()}
    print(f"{len(planted - found)} missed, {len(found - planted)} false")


if __name__ == "__main__":
    main()
