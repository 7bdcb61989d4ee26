"""A stream in a process of its own, which the tests kill and start again.

    python driver.py FOLDER MASTER SINK KIND

FOLDER has the events, one file a micro-batch, and gets the checkpoint and the table of matches; of
several queries, or levels of a hierarchy, each has a table of its own in it. With a folder `past` in
it the stream begins with that.
"""

import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import ensue

QUERY = """
    SEQ(A a, B+ b[], !C c)
    WHERE skip_till_next_match(a, b[]) { [k] and b[i].x > a.x }
    WITHIN 8 seconds"""
# Pairs are found by k, and what is made of them by the parity of their rows: a change of key.
HIERARCHY = """
    EVENT Pair AS SEQ(A a, B b)
    WHERE skip_till_next_match(a, b) { [k] and b.x > a.x } WITHIN 4 seconds
    RETURN a.side AS side, a.row AS first, b.row AS last;
    SEQ(Pair p, !C c, Pair q)
    WHERE skip_till_next_match(p, q) { [side] and q.first > p.last } WITHIN 8 seconds
    RETURN p.first AS first, q.last AS last"""
SEVERAL = {
    "rises": QUERY,
    "sides": """
        SEQ(A a, C c) WHERE skip_till_next_match(a, c) { [side] and c.x < a.x } WITHIN 5 seconds
        RETURN a.row AS first, c.row AS last""",
}
PAST = "past"  # the archive of a stream that writes its own, in its folder
ARCHIVED = f"""
    SEQ(A a) WITHIN 5 seconds
    LEFT JOIN ARCHIVE {PAST} SEQ(B b, C c) WHERE [k] and c.x > b.x WITHIN 6 seconds
        RANGE 20 seconds BEFORE START LAST 2 ON [k]
    RETURN a.row AS at, b.row AS first, c.row AS last"""
SET = "set"  # the folder of subscriptions that change while the stream runs
RISES = """=|(A; 4 seconds)(B), A = (STRING:type = 'A', ARITH:k = {k}),
    B = (STRING:type = 'B', ARITH:k = {k}, ARITH:x > {x})"""
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {  # what is asked, and how
    "flat": (QUERY, {}),
    "hierarchy": (HIERARCHY, {"options": ensue.OutputOptions(levels="all")}),
    "several": (SEVERAL, {}),
    "archive": (ARCHIVED, {}),
    "spilling": (QUERY, {}),
    "subscriptions": (None, {}),
}
LIMITS = {"spilling": {"options": ensue.Limits(memory="60 KB")}}  # some of its keys are always on disk
EVENTS = {"time": "ts", "type": "type", "order": "row"}
WATERMARK = "3 seconds"


def run(folder: Path, master: str, sink: str, kind: str) -> None:
    """From the checkpoint, if there is one, to the end of the stream."""
    from ensue.backends.spark.session import get_or_create_session

    log = folder / "log"
    log.mkdir(exist_ok=True)
    session = get_or_create_session(
        {
            "spark.master": master,
            # a JVM that lives for seconds does not earn back what it compiles well
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.eventLog.enabled": "true",  # says which tasks failed
            "spark.eventLog.dir": log.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.sql.shuffle.partitions": "2",
            # of subscriptions it is asked later which events each micro-batch had
            "spark.sql.streaming.minBatchesToRetain": "5" if kind != "subscriptions" else "1000",
        }
    )
    try:
        source = str(folder / "events")
        schema = session.read.parquet(source).schema
        stream = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)
        query, options = KINDS[kind]
        columns: dict[str, Any] = EVENTS
        if kind == "subscriptions":
            query, columns = subscriptions(folder), {}
            Thread(target=changing, args=(folder,), daemon=True).start()
        archiving = {}
        if kind == "archive":
            options = options | {"archives": {PAST: ensue.archive(folder / PAST)}}
            archiving = {"archive": ensue.ArchiveWriter(PAST, rows=1)}
            Thread(target=compacting, args=(folder / PAST,), daemon=True).start()
        options = options | LIMITS.get(kind, {})
        matches = ensue.match(stream, query, **columns, **options, watermark=WATERMARK)
        table = folder / "table"
        output = ensue.delta_table(table) if sink == "delta" else table
        past = folder / "history"
        history = ensue.archive(past, **EVENTS) if past.exists() else None
        query = ensue.start(
            matches, output, checkpoint=folder / "checkpoint", once=True, flush=True,
            history=history, **archiving,
        )  # fmt: skip
        print("keys missed:", sum(done.misses for done in query.progress()), flush=True)
    finally:
        session.stop()


def subscriptions(folder: Path) -> ensue.Subscriptions:
    """The set of a stream; whoever opens it first puts some into it."""
    found = ensue.Subscriptions(**EVENTS, folder=folder / SET)
    if not len(found):
        found.add_all({f"first {k}": RISES.format(k=k, x=0) for k in range(4)})
    return found


def changing(folder: Path) -> None:
    """One comes and one goes, again and again, while the stream runs."""
    mine = ensue.Subscriptions(**EVENTS, folder=folder / SET)
    while True:
        number = mine.version
        mine.add(f"later {number}", RISES.format(k=number % 8, x=number % 3))
        if number % 2:
            mine.cancel(next(name for name in mine if name.startswith("later")))
        time.sleep(0.3)


def compacting(place: Path) -> None:
    """Few files out of many, again and again, while the stream writes."""
    while True:
        ensue.archive(place).compact(fewest=3)
        time.sleep(0.2)


if __name__ == "__main__":
    run(Path(sys.argv[1]), *sys.argv[2:])
