"""Saves the state of streams as this release writes it: `python tests/state/save_stream.py 1`.

The argument is the format, the folder's number. Once released, a sample is never written again.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from ensue.columns.stream import ends
from ensue.engine.state import to_bytes
from ensue.samples.stocks import stocks
from ensue.workload.lanes import state as lane_state
from ensue.workload.lanes.micro_batch import run_lane
from ensue.workload.lanes.shelf import forget_live
from support.lanes import DictStore, tables_of, workload_of

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


def sample(query: str) -> dict[str, object]:
    """The state in the middle of a stream, the rest of the stream, and what it gives."""
    events = stocks(300, symbols=5)
    job = workload_of(query, events.schema, "ts", "type")
    chain = job.chains[0]
    times = ends(events, job.source.shape) // 1_000
    store = DictStore()
    run_lane(store, chain, 0, 0, [to_bytes(events.slice(0, 100))])
    run_lane(
        store, chain, 0, int(times[90]), [to_bytes(events.slice(100, 100))], int(times[199]) + 1
    )
    forget_live()
    head = store.head()
    assert head is not None
    saved: dict[str, object] = {
        "job": store.job(),
        "head": {
            n: f"hex:{v.hex()}" if isinstance(v, bytes) else v for n, v in asdict(head).items()
        },
        "part": [part.hex() for part in store.parts(head.parts)],
        "entry": [entry.hex() for entry in store.entries(head.entries)],
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
