"""Accepted events and snapshots of the matcher, from which a service recovers."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any

import pyarrow as pa

from ensue.service.store.journal import SERVICE_COUNTERS, increment

_WRITING = pa.ipc.IpcWriteOptions(compression="lz4")
COMPRESS_FROM_ROWS = 16  # rows from which compression pays off
PRUNE_CHUNK = 10_000  # batches deleted at a time
_SELECT = "SELECT position, version, at, advance, data FROM batches WHERE"


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Events that were matched together, or an advance of time without events."""

    position: int
    version: int  # of the set that matched them
    at: float
    advance: float | None  # in seconds; None: a batch of events
    data: bytes | None

    def events(self, schema: pa.Schema) -> pa.Table:
        """Decodes the events, in order of acceptance."""
        if self.data is None:
            return schema.empty_table()
        with pa.ipc.open_stream(self.data) as reader:
            return reader.read_all()


def store_batch(db: Connection, version: int, at: float, events: pa.Table, span: tuple[float, float]) -> int:
    data = _encode(events)
    cursor = db.execute(
        "INSERT INTO batches (version, at, rows, bytes, least, greatest, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (version, at, events.num_rows, len(data), *span, data),
    )
    _count_bytes(db, len(data))
    return int(cursor.lastrowid or 0)


def _encode(events: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = _WRITING if events.num_rows >= COMPRESS_FROM_ROWS else None
    with pa.ipc.new_stream(sink, events.schema, options=options) as writer:
        writer.write_table(events.combine_chunks())
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def store_advance(db: Connection, version: int, at: float, to: float) -> int:
    cursor = db.execute(
        "INSERT INTO batches (version, at, rows, bytes, advance) VALUES (?, ?, 0, 0, ?)", (version, at, repr(to))
    )
    return int(cursor.lastrowid or 0)


def read_batches_after(db: Connection, position: int) -> Iterator[StoredBatch]:
    return map(_batch, db.execute(f"{_SELECT} position > ? ORDER BY position", (position,)))


def read_recent_events(
    db: Connection, schema: pa.Schema, most: int, since: float | None = None, until: float | None = None
) -> pa.Table:
    """Reads the newest stored events, at most `most`, in order of acceptance."""
    rows = db.execute(
        f"{_SELECT} rows > 0 AND greatest >= ? AND least <= ? ORDER BY position DESC",
        (-1e308 if since is None else since, 1e308 if until is None else until),
    )
    tables: list[pa.Table] = []
    left = most
    for row in rows:
        events = _batch(row).events(schema)
        if events.num_rows > left:
            events = events.slice(events.num_rows - left)
        tables.append(events)
        left -= events.num_rows
        if left <= 0:
            break
    return pa.concat_tables([schema.empty_table(), *reversed(tables)])


def drop_events_after(db: Connection, schema: pa.Schema, latest: float, seconds: Callable[[pa.Table], Any]) -> int:
    """Drops events later than `latest`; returns how many."""
    rows = db.execute(f"{_SELECT} rows > 0 AND greatest > ?", (latest,)).fetchall()
    dropped = 0
    for batch in map(_batch, rows):
        events = batch.events(schema)
        remaining = events.filter(pa.array(seconds(events) <= latest))
        times = seconds(remaining) if remaining.num_rows else None
        span = (None, None) if times is None else (float(times.min()), float(times.max()))
        data = _encode(remaining)
        db.execute(
            "UPDATE batches SET rows = ?, bytes = ?, least = ?, greatest = ?, data = ? WHERE position = ?",
            (remaining.num_rows, len(data), *span, data, batch.position),
        )
        _count_bytes(db, len(data) - len(batch.data or b""))
        dropped += events.num_rows - remaining.num_rows
    return dropped


def get_last_position(db: Connection) -> int:
    """The position of the newest batch, or 0."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'batches'").fetchone()
    return 0 if row is None else int(row[0])


def prune_batches(db: Connection, before: float, most_bytes: int) -> int:
    """Deletes old events that recovery does not need; returns how many."""
    snapshot = db.execute("SELECT max(position) FROM snapshots").fetchone()[0] or 0
    stored = get_stored_bytes(db)
    last = rows = bytes = 0
    for row in db.execute(
        "SELECT position, at, rows, bytes FROM batches WHERE position <= ? ORDER BY position LIMIT ?",
        (snapshot, PRUNE_CHUNK),
    ):
        if row["at"] >= before and stored - bytes <= most_bytes:
            break
        last, rows, bytes = row["position"], rows + row["rows"], bytes + row["bytes"]
    if last:
        db.execute("DELETE FROM batches WHERE position <= ?", (last,))
        _count_bytes(db, -bytes)
        increment(db, SERVICE_COUNTERS, "events_forgotten", rows)
    return rows


def get_stored_bytes(db: Connection) -> int:
    row = db.execute("SELECT value FROM settings WHERE name = 'batch_bytes'").fetchone()
    return 0 if row is None else int(row[0])


def _count_bytes(db: Connection, by: int) -> None:
    db.execute(
        "INSERT INTO settings VALUES ('batch_bytes', ?1) ON CONFLICT (name) "
        "DO UPDATE SET value = CAST(value AS INTEGER) + ?1",
        (by,),
    )


# -------------------------------------------------------------------------------- snapshots


def store_snapshot(db: Connection, position: int, version: int, data: bytes) -> None:
    """Stores the state of the matcher after a batch, replacing older ones."""
    db.execute("DELETE FROM snapshots")
    row = (position, version, time.time(), data)
    db.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?)", row)


def read_snapshot(db: Connection) -> tuple[int, int, bytes | None]:
    """Reads the newest snapshot: its position, the version of the set, the bytes."""
    row: Any = db.execute("SELECT position, version, data FROM snapshots ORDER BY position DESC").fetchone()
    return (0, 0, None) if row is None else (row["position"], row["version"], row["data"])


def _batch(row: Any) -> StoredBatch:
    advance = None if row["advance"] is None else float(row["advance"])
    return StoredBatch(row["position"], row["version"], row["at"], advance, row["data"])
