"""Saves the state of streams as this release writes it: `python tests/state/save_stream.py 1`.

The argument is the format, the folder's number. Once released, a sample is never written again.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ensue.columns.stream import ends
from ensue.engine.state import to_bytes
from ensue.plan.limits import Limits
from ensue.plan.planning import Planning
from ensue.samples.stocks import stocks
from ensue.workload.lanes import state as lane_state
from ensue.workload.lanes.lane import Lane
from ensue.workload.lanes.micro_batch import run_lane
from ensue.workload.lanes.shelf import forget_live
from ensue.workload.spill import bound
from support.lanes import DictStore, tables_of, workload_of

PAIRS = "SEQ(A a, B b) WHERE [symbol] and b.price > a.price WITHIN 2 seconds"
QUERIES = {  # with the size from which on a log gives way to a snapshot
    "log": (
        "SEQ(A a, B b, !C c) WHERE [symbol] and b.price > a.price WITHIN 2 seconds",
        1 << 20,
    ),
    "snapshot": (
        "SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) {[symbol]} WITHIN 1 second",
        0,
    ),
}
LIMITED = {  # and with limits: two keys stay in memory, or the stream is behind
    "spilled": (PAIRS, 0, {"memory": "1 GB"}),
    "shed_log": (PAIRS, 1 << 20, {"shed": "1 second"}),
    "shed_snapshot": (PAIRS, 0, {"shed": "1 second"}),
}


def sample(query: str, limits: dict[str, Any] | None = None) -> dict[str, object]:
    """The state in the middle of a stream, the rest of the stream, and what it gives."""
    events = stocks(300, symbols=5)
    planning = Planning(limits=Limits.given(lanes=True, **limits)) if limits else Planning()
    job = workload_of(query, events.schema, "ts", "type", planning=planning)
    chain = job.chains[0]
    times = ends(events, job.source.shape) // 1_000
    store = DictStore()
    run_lane(store, chain, 0, 0, [to_bytes(events.slice(0, 100))])
    newest = int(times[199])
    run_lane(
        store, chain, 0, int(times[90]), [to_bytes(events.slice(100, 100))],
        newest + 1 if not limits or "memory" in limits else int(times[150]),
        newest_ms=newest, wall_ms=newest + 2_000,
    )  # fmt: skip
    forget_live()
    head = store.head()
    assert head is not None
    pieces = [k[1] for k in store.values if isinstance(k, tuple) and k[0] == "part"]
    segments = {n: store.part(n) for n in pieces if n >= lane_state.SEGMENTS}
    saved: dict[str, object] = {
        "job": store.job(),
        "head": {
            n: f"hex:{v.hex()}" if isinstance(v, bytes) else v for n, v in asdict(head).items()
        },
        "part": [part.hex() for part in store.parts(head.parts)],
        "entry": [entry.hex() for entry in store.entries(head.entries)],
        "segment": {n: part.hex() for n, part in segments.items()},
        "limits": limits or {},
        "rest": to_bytes(events.slice(200)).hex(),
        "watermark_ms": int(times[180]),
        "next_ms": int(times[-1]) + 10,
    }
    found = run_lane(
        store, chain, 0, int(times[180]), [to_bytes(events.slice(200))], int(times[-1]) + 10
    )
    matches = tables_of(found.sent, 0, job.outputs[0].schema)
    return saved | {"matches": sorted(matches["match_id"].to_pylist())}


def _written(value: object) -> object:
    return f"hex:{value.hex()}" if isinstance(value, bytes) else value


if __name__ == "__main__":
    folder = Path(__file__).parent / f"stream{sys.argv[1]}"
    folder.mkdir(exist_ok=True)
    for name, (query, small) in QUERIES.items():
        lane_state.SMALL = small
        text = json.dumps(sample(query), indent=1)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    for name, (query, small, limits) in LIMITED.items():
        lane_state.SMALL = small
        if "memory" in limits:
            bound.bound_of = lambda _: bound.Bound(float("inf"), 2)
            Lane.state_bytes = property(lambda _: 0)  # always worth a snapshot
        text = json.dumps(sample(query, limits), indent=1)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
