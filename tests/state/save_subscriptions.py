"""Saves the state of a lane of subscriptions: `python tests/state/save_subscriptions.py 1`.

The argument is the format, the folder's number. Once released, a sample is never written again.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from ensue.engine.state import from_bytes, to_bytes
from ensue.plan.limits import Limits
from ensue.results.notified import notified_schema
from ensue.workload.source import Source
from ensue.workload.stage import Fed, Output, Version
from ensue.workload.subscriptions.catalogue.change import Change
from ensue.workload.subscriptions.catalogue.log import Log
from ensue.workload.subscriptions.laned import VERSION, LanedStage, LaneMatcher
from ensue.workload.subscriptions.subscribed import Subscribed

EVENTS = pa.schema({"t": pa.int64(), "id": pa.int64(), "x": pa.float64(), "y": pa.float64()})
CHANGES = (
    {
        "left": "=|(@(R)(A); 9)(DIST(R; >; 3)(A)), A = (ARITH:id = 1)",
        "quiet": "!(A; 2)B, A = (ARITH:id = 2), B = (ARITH:id = 3)",
        "nobody": "!(20; 5)A, A = (ARITH:id = 9)",
        "gone": "=|(A; 9)A, A = (ARITH:id = 1)",
        "same": "=|($a;; 9)(ARITH:id = $a;.id, ARITH:x > 5), $a; = (ARITH:x < 5) "
        "WITH select = once",
    },
    {"later": "=|(A; 9)A, A = (ARITH:id = 2) WITH select = all"},
)
REGION = {"R": "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))"}


def matcher(folder: Path) -> LaneMatcher:
    """The lane of a new stream over a set with these changes; the last one cancels."""
    log = Log(folder)
    for texts in CHANGES:
        log.append(
            Change.add(name, text, regions=REGION if "(R" in text else {})
            for name, text in texts.items()
        )
    log.append([Change.cancel("gone")])
    source = Source(EVENTS, "t", location=("x", "y"))
    output = Output(0, "", notified_schema(source.shape), 0, None)
    stage = LanedStage(Subscribed(log, log.latest()), source, output, Limits(), streaming=True)
    return stage.lane_matcher(0, 1)


def events(begin: int, end: int) -> pa.Table:
    """Three objects that go to and fro."""
    rows = [{"t": t, "id": t * 7 % 4, "x": float(t * 5 % 11), "y": 2.0} for t in range(begin, end)]
    return pa.Table.from_pylist(rows, schema=EVENTS)


def given(table: pa.Table, version: int) -> Fed:
    return Fed(table.append_column(VERSION, pa.array([version] * len(table), pa.int64())), {}, ())


def went_on(lane: LaneMatcher, rest: pa.Table) -> list[str]:
    """What a lane finds in the rest of its stream, after the last change of its set."""
    lane.renew(Version(3, 7, "stream"))
    found = [*lane.feed(given(rest, 3)), *lane.advance(60), *lane.finish()]
    return sorted(
        f"{row['subscription']} {row['match_id']}" for t in found for row in t.to_pylist()
    )


def sample(folder: Path) -> dict[str, Any]:
    """The state in the middle of a stream, the rest of the stream, and what it gives."""
    lane = matcher(folder)
    lane.renew(Version(1, 0, "stream"))
    lane.feed(given(events(0, 8), 1))
    lane.renew(Version(2, 3, "stream"))
    lane.feed(given(events(8, 13), 2))
    lane.advance(12)
    state, rest = lane.save(), events(13, 30)
    return {
        "state": state.hex(),
        "rest": to_bytes(rest).hex(),
        "matches": went_on(lane, rest),
    }


def again(folder: Path, saved: dict[str, Any]) -> list[str]:
    """What a lane with a saved state finds."""
    lane = matcher(folder)
    lane.restore(bytes.fromhex(saved["state"]))
    return went_on(lane, from_bytes(bytes.fromhex(saved["rest"])))


if __name__ == "__main__":
    place = Path(__file__).parent / f"subscriptions{sys.argv[1]}"
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(sample(Path(folder)), indent=1)
    (place / "lane.json").write_text(text + "\n", encoding="utf-8")
