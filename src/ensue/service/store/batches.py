"""Events as they were accepted, and how far the matcher had come: what a crash is mended from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any

import pyarrow as pa

from ensue.service.store.counters import WHOLE, count

_WRITING = pa.ipc.IpcWriteOptions(compression="lz4")
LARGE = 16  # rows from which on compressing pays
MOST_FORGOTTEN = 10_000  # batches that go at a time


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that were matched together, or time that passed without any."""

    position: int
    version: int  # of the set that they were matched by
    at: float
    advance: float | None  # in seconds; None: there are events
    data: bytes | None

    def events(self, schema: pa.Schema) -> pa.Table:
        """The events, in the order in which they were accepted."""
        if self.data is None:
            return schema.empty_table()
        with pa.ipc.open_stream(self.data) as reader:
            return reader.read_all()


def keep_batch(
    db: Connection, version: int, at: float, events: pa.Table, span: tuple[float, float]
) -> int:
    """Keeps events; gives their position."""
    data = _written(events)
    made = db.execute(
        "INSERT INTO batches (version, at, rows, bytes, least, greatest, data) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (version, at, events.num_rows, len(data), *span, data),
    )
    _count_bytes(db, len(data))
    return int(made.lastrowid or 0)


def _written(events: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = _WRITING if events.num_rows >= LARGE else None
    with pa.ipc.new_stream(sink, events.schema, options=options) as writer:
        writer.write_table(events.combine_chunks())
    found: bytes = sink.getvalue().to_pybytes()
    return found


def keep_advance(db: Connection, version: int, at: float, to: float) -> int:
    """Keeps that time has passed."""
    made = db.execute(
        "INSERT INTO batches (version, at, rows, bytes, advance) VALUES (?, ?, 0, 0, ?)",
        (version, at, repr(to)),
    )
    return int(made.lastrowid or 0)


def batches_behind(db: Connection, position: int) -> Iterator[Batch]:
    """What came behind a position, in order."""
    rows = db.execute(
        "SELECT position, version, at, advance, data FROM batches WHERE position > ? "
        "ORDER BY position",
        (position,),
    )
    return map(_batch, rows)


def recent_events(
    db: Connection,
    schema: pa.Schema,
    most: int,
    since: float | None = None,
    until: float | None = None,
) -> pa.Table:
    """The newest events that are kept, at most so many of them, in the order of acceptance."""
    rows = db.execute(
        "SELECT position, version, at, advance, data FROM batches WHERE rows > 0 "
        "AND greatest >= ? AND least <= ? ORDER BY position DESC",
        (-1e308 if since is None else since, 1e308 if until is None else until),
    )
    found: list[pa.Table] = []
    left = most
    for row in rows:
        events = _batch(row).events(schema)
        if events.num_rows > left:
            events = events.slice(events.num_rows - left)
        found.append(events)
        left -= events.num_rows
        if left <= 0:
            break
    return pa.concat_tables([schema.empty_table(), *reversed(found)])


def drop_events_after(
    db: Connection, schema: pa.Schema, latest: float, seconds: Callable[[pa.Table], Any]
) -> int:
    """Drops events whose time is later than `latest`; gives how many."""
    rows = db.execute(
        "SELECT position, version, at, advance, data FROM batches WHERE rows > 0 AND greatest > ?",
        (latest,),
    ).fetchall()
    dropped = 0
    for batch in map(_batch, rows):
        events = batch.events(schema)
        kept = events.filter(pa.array(seconds(events) <= latest))
        times = seconds(kept) if kept.num_rows else None
        data = _written(kept)
        db.execute(
            "UPDATE batches SET rows = ?, bytes = ?, least = ?, greatest = ?, data = ? "
            "WHERE position = ?",
            (
                kept.num_rows,
                len(data),
                None if times is None else float(times.min()),
                None if times is None else float(times.max()),
                data,
                batch.position,
            ),
        )
        _count_bytes(db, len(data) - len(batch.data or b""))
        dropped += events.num_rows - kept.num_rows
    return dropped


def last_position(db: Connection) -> int:
    """The position of the newest batch; 0: there is none."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'batches'").fetchone()
    return 0 if row is None else int(row[0])


def forget_batches(db: Connection, before: float, most_bytes: int) -> int:
    """Lets go of some old events that no recovery needs; gives how many."""
    snapshot = db.execute("SELECT max(position) FROM snapshots").fetchone()[0] or 0
    kept = kept_bytes(db)
    last = rows = bytes = 0
    for row in db.execute(
        "SELECT position, at, rows, bytes FROM batches WHERE position <= ? "
        "ORDER BY position LIMIT ?",
        (snapshot, MOST_FORGOTTEN),
    ):
        if row["at"] >= before and kept - bytes <= most_bytes:
            break
        last, rows, bytes = row["position"], rows + row["rows"], bytes + row["bytes"]
    if last:
        db.execute("DELETE FROM batches WHERE position <= ?", (last,))
        _count_bytes(db, -bytes)
        count(db, WHOLE, "events_forgotten", rows)
    return rows


def kept_bytes(db: Connection) -> int:
    """How many bytes of events are kept."""
    row = db.execute("SELECT value FROM settings WHERE name = 'batch_bytes'").fetchone()
    return 0 if row is None else int(row[0])


def _count_bytes(db: Connection, by: int) -> None:
    db.execute(
        "INSERT INTO settings VALUES ('batch_bytes', ?1) ON CONFLICT (name) "
        "DO UPDATE SET value = CAST(value AS INTEGER) + ?1",
        (by,),
    )


# -------------------------------------------------------------------------------- snapshots


def keep_snapshot(db: Connection, version: int, at: float, data: bytes) -> None:
    """Keeps the state of the matcher as it is behind the newest batch, in place of older ones."""
    position = last_position(db)
    db.execute("DELETE FROM snapshots")
    db.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?)", (position, version, at, data))


def snapshot(db: Connection) -> tuple[int, int, bytes | None]:
    """The newest state: its position, the version of the set, the bytes."""
    row: Any = db.execute(
        "SELECT position, version, data FROM snapshots ORDER BY position DESC"
    ).fetchone()
    return (0, 0, None) if row is None else (row["position"], row["version"], row["data"])


def _batch(row: Any) -> Batch:
    advance = None if row["advance"] is None else float(row["advance"])
    return Batch(row["position"], row["version"], row["at"], advance, row["data"])
