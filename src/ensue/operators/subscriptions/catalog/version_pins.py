"""Pins the version of the subscription set that each micro-batch of a stream uses.

The first task of a micro-batch pins the newest version; all other tasks, and retries after a
crash, read the pin. The first micro-batch with a version is the moment from which its
subscriptions see events; it is recorded for users.

    pins/<query>/batches/000000000007   the version of micro-batch 7
    pins/<query>/moments/000000000003   the first micro-batch that used version 3, and when

A task reads its micro-batch from the local properties `streaming.sql.batchId` and
`sql.streaming.queryId` of its `TaskContext`. Spark does not document them. In PySpark 4.3 both
are set in `mapInArrow` of a streaming query, before and after an exchange, in a classic session
and with Spark Connect; the second is the query id, which the checkpoint contains. In a batch job
they are None.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ensue.errors import StateError
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import create_exclusively, damage_error, list_abandoned_files

KEPT_PINS = 10_000  # micro-batches whose pins stay; Spark itself retries only the last one
_SWEPT_EVERY = 1_000
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class VersionStart:
    """The first micro-batch of a stream in which the subscriptions of a version see events."""

    version: int  # the newest version that it used
    batch: int  # the first micro-batch that used it
    at: int  # microseconds since 1970 on the clock of the task


def pin_version(log: CatalogLog, query: str, batch: int) -> int:
    """Returns the version for a micro-batch of a query; the first call pins the newest."""
    folder = _folder(log, query)
    path = folder / "batches" / f"{batch:0{_DIGITS}}"
    if not path.exists():
        (folder / "batches").mkdir(parents=True, exist_ok=True)
        (folder / "moments").mkdir(parents=True, exist_ok=True)
        newest = _newest(folder)
        if newest is not None and newest > batch:
            raise StateError(
                f"micro-batch {batch} of the stream {query} is repeated, though {newest} has "
                f"begun, and its set of subscriptions is no longer known ({path} is missing)\n"
                "  hint: start the stream with a new checkpoint"
            )
        version = log.latest()
        if newest is not None:  # a network file system may show the newest files late
            version = max(version, _read_pin(folder / "batches" / f"{newest:0{_DIGITS}}"))
        created = create_exclusively(path, json.dumps({"version": version}).encode())
        if created and batch % _SWEPT_EVERY == 0:
            _sweep(folder, batch)
    version = _read_pin(path)
    moment = folder / "moments" / f"{version:0{_DIGITS}}"
    if not moment.exists():  # the task that pinned it may have failed
        start = {"batch": batch, "at": time.time_ns() // 1_000}
        create_exclusively(moment, json.dumps(start).encode())
    return version


def list_version_starts(log: CatalogLog, query: str) -> Iterator[VersionStart]:
    """Yields the first micro-batch of each version that a query used, oldest first.

    Other versions became visible together with the next one that was used.
    """
    folder = _folder(log, query) / "moments"
    for name in sorted(_list_pins(folder)):
        read = _read(folder / name)
        yield VersionStart(int(name), read["batch"], read["at"])


def find_version_start(log: CatalogLog, query: str, version: int) -> VersionStart | None:
    """Returns the first micro-batch in which a query sees the subscriptions of a version."""
    starts = list_version_starts(log, query)
    return next((start for start in starts if start.version >= version), None)


def list_streams(log: CatalogLog) -> list[str]:
    """Lists the streams that use or used the set."""
    try:
        return sorted(entry.name for entry in os.scandir(log.folder / "pins") if entry.is_dir())
    except FileNotFoundError:
        return []


def find_used_versions(log: CatalogLog) -> set[int]:
    """Returns the versions that streams need when they continue."""
    versions = set()
    for query in list_streams(log):
        newest = _newest(_folder(log, query))
        if newest is not None:
            versions.add(_read_pin(_folder(log, query) / "batches" / f"{newest:0{_DIGITS}}"))
    return versions


def _folder(log: CatalogLog, query: str) -> Path:
    if not query or not all(c.isalnum() or c in "-_" for c in query):
        raise ValueError(f"{query!r} is not the id of a query")
    return log.folder / "pins" / query


def _newest(folder: Path) -> int | None:
    return max(map(int, _list_pins(folder / "batches")), default=None)


def _list_pins(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder) if entry.name.isdigit()]
    except FileNotFoundError:
        return []


def _read_pin(path: Path) -> int:
    return int(_read(path)["version"])


def _read(path: Path) -> dict[str, int]:
    try:
        return dict(json.loads(path.read_bytes()))
    except FileNotFoundError:
        raise damage_error(path, "it is missing") from None
    except (ValueError, TypeError):
        raise damage_error(path, "it is not what was written") from None


def _sweep(folder: Path, batch: int) -> None:
    """Removes pins that no stream needs."""
    for name in _list_pins(folder / "batches"):
        if int(name) < batch - KEPT_PINS:
            (folder / "batches" / name).unlink(missing_ok=True)
    for name in ("batches", "moments"):
        for path in list_abandoned_files(folder / name):
            path.unlink(missing_ok=True)
