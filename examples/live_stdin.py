"""Logins that look like a stolen password, printed as they happen.

Events come as lines of JSON on standard input, one a line, and a match is printed with the event
that completes it:

    python examples/live_stdin.py < events.jsonl
    tail -f events.jsonl | python examples/live_stdin.py

An event may come up to five seconds late. At the end of the input what is still open is decided.
Without input, on a terminal, a few events of its own are shown.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa

import ensue

SCHEMA = {"ts": pa.timestamp("us", "UTC"), "type": pa.string(), "user": pa.string(), "address": pa.string()}
QUERIES = {
    # three refusals and then a login, all of one user within a minute
    "guessed": """
        SEQ(Refused a, Refused b, Refused c, Login d)
        WHERE skip_till_next_match(a, b, c, d) { [user] }
        WITHIN 1 minute
        RETURN d.user AS user, d.address AS address
    """,
    # a login after which nobody logs out: known only when time has passed
    "left open": """
        SEQ(Login a, !Logout b) WHERE [user] WITHIN 10 minutes
        RETURN a.user AS user, a.address AS address
    """,
}
SHOWN = """\
{"ts": "2026-03-01T10:00:00+00:00", "type": "Refused", "user": "ann", "address": "203.0.113.9"}
{"ts": "2026-03-01T10:00:04+00:00", "type": "Login", "user": "bob", "address": "192.0.2.5"}
{"ts": "2026-03-01T10:00:02+00:00", "type": "Refused", "user": "ann", "address": "203.0.113.9"}
{"ts": "2026-03-01T10:00:05+00:00", "type": "Refused", "user": "ann", "address": "203.0.113.9"}
{"ts": "2026-03-01T10:00:09+00:00", "type": "Login", "user": "ann", "address": "203.0.113.9"}
this is no event
{"ts": "2026-03-01T10:05:00+00:00", "type": "Logout", "user": "ann", "address": "203.0.113.9"}
"""


def events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The events of some lines; what is none is told of and left out."""
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
            yield event | {"ts": datetime.fromisoformat(event["ts"])}
        except (ValueError, KeyError, TypeError) as error:
            print(f"line {number} is no event: {error}", file=sys.stderr)


def show(found: dict[str, pa.Table]) -> None:
    for name, matches in found.items():
        for match in matches.to_pylist():
            print(f"{match['end']:%H:%M:%S} {name}: {match['user']} from {match['address']}")


def main() -> None:
    lines = SHOWN.splitlines() if sys.stdin.isatty() else sys.stdin
    live = ensue.live(
        QUERIES, schema=SCHEMA, time="ts", type="type",
        watermark="5 seconds", options=ensue.StreamOptions(bad_events="drop"),
    )  # fmt: skip
    for event in events(lines):
        show(live.feed(event))
    show(live.finish())
    counts = live.progress
    print(f"{counts.events} events, {counts.late} late, {counts.dropped} left out")


if __name__ == "__main__":
    main()
