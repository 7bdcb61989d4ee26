"""Which version of the set each micro-batch of a stream uses, decided once and for good.

The first task of a micro-batch that asks pins the newest version; all other tasks, and all that
repeat it after a crash, find the pin. The first micro-batch that uses a version is the moment from
which its subscriptions see events; it is written down for users to read.

    pins/<query>/batches/000000000007   the version of micro-batch 7
    pins/<query>/moments/000000000003   the first micro-batch that used version 3, and when

A task learns its micro-batch from the local properties `streaming.sql.batchId` and
`sql.streaming.queryId` of its `TaskContext`. Spark does not document them. Tried with PySpark 4.3
in `mapInArrow` of a streaming query, before and behind an exchange, in a classic session and with
Spark Connect: both are there, the second is the id of the query, which its checkpoint keeps. In
a batch job they are None.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ensue.errors import StateError
from ensue.workload.subscriptions.catalogue.change_file import damaged
from ensue.workload.subscriptions.catalogue.exclusive import abandoned, created
from ensue.workload.subscriptions.catalogue.log import Log

KEPT = 10_000  # micro-batches whose pins stay; Spark itself repeats the last one only
_SWEPT_EVERY = 1_000
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Moment:
    """From when on the subscriptions of some versions see events of a stream."""

    version: int  # the newest of them
    batch: int  # the first micro-batch that used it
    at: int  # microseconds since 1970 on the clock of the task


def pin(log: Log, query: str, batch: int) -> int:
    """The version for a micro-batch of a query: the newest one for whoever asks first."""
    folder = _folder(log, query)
    path = folder / "batches" / f"{batch:0{_DIGITS}}"
    if not path.exists():
        (folder / "batches").mkdir(parents=True, exist_ok=True)
        (folder / "moments").mkdir(parents=True, exist_ok=True)
        newest = _newest(folder)
        if newest is not None and newest > batch:
            raise StateError(
                f"micro-batch {batch} of the stream {query} is repeated, though {newest} has "
                f"begun, and it is no longer known which subscriptions it had ({path} is gone)\n"
                "  hint: start the stream with a new checkpoint"
            )
        version = log.latest()
        if newest is not None:  # a network's file system may show the newest files late
            version = max(version, _pinned(folder / "batches" / f"{newest:0{_DIGITS}}"))
        if created(path, json.dumps({"version": version}).encode()) and batch % _SWEPT_EVERY == 0:
            _sweep(folder, batch)
    version = _pinned(path)
    moment = folder / "moments" / f"{version:0{_DIGITS}}"
    if not moment.exists():  # also where whoever pinned it has died since
        created(moment, json.dumps({"batch": batch, "at": time.time_ns() // 1_000}).encode())
    return version


def moments(log: Log, query: str) -> Iterator[Moment]:
    """From which micro-batch on versions were seen by a query, the oldest first.

    A version that is not among them was seen together with the next one that is.
    """
    folder = _folder(log, query) / "moments"
    for name in sorted(_numbered(folder)):
        read = _read(folder / name)
        yield Moment(int(name), read["batch"], read["at"])


def moment_of(log: Log, query: str, version: int) -> Moment | None:
    """From which micro-batch on a query sees the subscriptions of a version; None: not yet."""
    return next((found for found in moments(log, query) if found.version >= version), None)


def queries(log: Log) -> list[str]:
    """The streams that use the set, or have used it."""
    try:
        return sorted(entry.name for entry in os.scandir(log.folder / "pins") if entry.is_dir())
    except FileNotFoundError:
        return []


def in_use(log: Log) -> set[int]:
    """The versions that streams may ask for when they go on."""
    found = set()
    for query in queries(log):
        newest = _newest(_folder(log, query))
        if newest is not None:
            found.add(_pinned(_folder(log, query) / "batches" / f"{newest:0{_DIGITS}}"))
    return found


def _folder(log: Log, query: str) -> Path:
    if not query or not all(c.isalnum() or c in "-_" for c in query):
        raise ValueError(f"{query!r} is not the id of a query")
    return log.folder / "pins" / query


def _newest(folder: Path) -> int | None:
    return max(map(int, _numbered(folder / "batches")), default=None)


def _numbered(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder) if entry.name.isdigit()]
    except FileNotFoundError:
        return []


def _pinned(path: Path) -> int:
    return int(_read(path)["version"])


def _read(path: Path) -> dict[str, int]:
    try:
        read = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    except ValueError:
        raise damaged(path, "it is not what was written") from None
    if not isinstance(read, dict):
        raise damaged(path, "it is not what was written")
    return read


def _sweep(folder: Path, batch: int) -> None:
    """Removes pins that no stream asks for any more."""
    for name in _numbered(folder / "batches"):
        if int(name) < batch - KEPT:
            (folder / "batches" / name).unlink(missing_ok=True)
    for left in (*abandoned(folder / "batches"), *abandoned(folder / "moments")):
        left.unlink(missing_ok=True)
