"""Pins the version of the subscription set that each micro-batch of a stream uses.

The first task of a micro-batch pins the newest version; all other tasks, and retries after a
crash, read the pin. The first micro-batch with a version is the moment from which its
subscriptions see events; its pin stays for users.

    pins/<query>/000000000007   the version of micro-batch 7, the first micro-batch that used it, and when

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
from dataclasses import asdict, dataclass
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


def pin_version(log: CatalogLog, query: str, batch: int) -> VersionStart:
    """Returns the version for a micro-batch of a query; the first call pins the newest."""
    folder = _folder(log, query)
    path = _path(folder, batch)
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        newest = max(_list_pins(folder), default=None)
        if newest is not None and newest > batch:
            raise StateError(
                f"micro-batch {batch} of the stream {query} is repeated, though {newest} has "
                f"begun, and its set of subscriptions is no longer known ({path} is missing)\n"
                "  hint: start the stream with a new checkpoint"
            )
        start = VersionStart(log.latest(), batch, time.time_ns() // 1_000)
        # a network file system may show the newest changes late
        if newest is not None and (before := _read_pin(folder, newest)).version >= start.version:
            start = before
        created = create_exclusively(path, json.dumps(asdict(start)).encode())
        if created and batch % _SWEPT_EVERY == 0:
            _sweep(folder, batch)
    return _read_pin(folder, batch)


def list_version_starts(log: CatalogLog, query: str) -> Iterator[VersionStart]:
    """Yields the first micro-batch of each version that a query used, oldest first.

    Other versions became visible together with the next one that was used.
    """
    folder = _folder(log, query)
    for batch in sorted(_list_pins(folder)):
        start = _read_pin(folder, batch)
        if start.batch == batch:
            yield start


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
    folders = [_folder(log, query) for query in list_streams(log)]
    return {_read_pin(folder, max(pins)).version for folder in folders if (pins := _list_pins(folder))}


def _folder(log: CatalogLog, query: str) -> Path:
    if not query or not all(c.isalnum() or c in "-_" for c in query):
        raise ValueError(f"{query!r} is not the id of a query")
    return log.folder / "pins" / query


def _path(folder: Path, batch: int) -> Path:
    return folder / f"{batch:0{_DIGITS}}"


def _list_pins(folder: Path) -> list[int]:
    """Lists the micro-batches with a pin."""
    try:
        return [int(entry.name) for entry in os.scandir(folder) if entry.name.isdigit()]
    except FileNotFoundError:
        return []


def _read_pin(folder: Path, batch: int) -> VersionStart:
    path = _path(folder, batch)
    try:
        return VersionStart(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        raise damage_error(path, "it is missing") from None
    except (ValueError, TypeError):
        raise damage_error(path, "it is not what was written") from None


def _sweep(folder: Path, batch: int) -> None:
    """Removes pins that no stream needs, but for the first one of each version."""
    last = batch - KEPT_PINS
    for old in _list_pins(folder):
        if last - 2 * _SWEPT_EVERY <= old < last and _read_pin(folder, old).batch < old:
            _path(folder, old).unlink(missing_ok=True)
    for path in list_abandoned_files(folder):
        path.unlink(missing_ok=True)
