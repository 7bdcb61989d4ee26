"""Writes events as Parquet files, partitioned by day and bucket, sorted by key and time."""

import contextlib
import json
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from ensue.archives.archive import BUCKET, DAY, ORDER, ArchiveProperties
from ensue.archives.parquet_reader import split_path
from ensue.errors import EventError
from ensue.schema import ValueKind
from ensue.vector import evaluation
from ensue.vector.arrow_types import Unit, time_unit
from ensue.vector.key_groups import assign_key_groups

ROW_GROUP = 8_192
_LONGEST = 32  # letters of a text in statistics
_DAY = {"us": 86_400_000_000, "ns": 86_400_000_000_000}
_INSTANTS = (ValueKind.TIMESTAMP, ValueKind.DATE)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A written file that is not committed yet."""

    path: str  # in the table's folder
    size: int
    rows: int
    partition: dict[str, str]
    stats: str  # JSON for the log
    written: int  # milliseconds

    def text(self) -> str:
        """JSON, for the result of a task; `read` parses it."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def read(text: str) -> "AddedFile":
        return AddedFile(**json.loads(text))


def split_events(events: pa.Table, own: ArchiveProperties) -> Iterator[tuple[dict[str, str], pa.Table]]:
    """The events of each day and bucket, sorted by key, time and arrival."""
    unit = time_unit(events.schema)
    days = _compute_days(events, own, unit)
    buckets = assign_key_groups(events, own.key, own.buckets, unit)
    times = [evaluation.from_arrow(events.column(name), unit, name).values for name in own.time]
    keys = [_rank_values(events.column(name)) for name in reversed(own.key)]
    order = np.lexsort((events.column(ORDER).to_numpy(), *times, *keys, buckets, days))
    ordered = events.take(pa.array(order))
    days, buckets = days[order], buckets[order]
    change = np.flatnonzero((days[1:] != days[:-1]) | (buckets[1:] != buckets[:-1])) + 1
    for first, last in zip([0, *change], [*change, len(order)], strict=True):
        if first < last:
            day = int(days[first])
            text = str(np.datetime64(day, "D")) if own.day is None else str(day)
            yield {DAY: text, BUCKET: str(buckets[first])}, ordered.slice(first, last - first)


def _compute_days(events: pa.Table, own: ArchiveProperties, unit: Unit) -> Ints:
    end = own.time[1]
    vector = evaluation.from_arrow(events.column(end), unit, end)
    values = np.asarray(vector.values)
    if vector.kind in _INSTANTS:
        return np.asarray(values // _DAY[unit], np.int64)
    if not own.day:
        return np.zeros(len(values), np.int64)
    return np.floor(values / own.day).astype(np.int64)


def _rank_values(column: pa.ChunkedArray) -> Ints:
    """Numbers in the order of the values; NULL is the least."""
    array = column.combine_chunks()
    if types.is_integer(array.type) and not array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False)).astype(np.int64)
    coded = array.dictionary_encode()
    ranks = np.full(len(coded.dictionary) + 1, -1, np.int64)  # the last one is for NULL
    ranks[pc.sort_indices(coded.dictionary).to_numpy()] = np.arange(len(coded.dictionary))
    return np.asarray(ranks[coded.indices.cast(pa.int64()).fill_null(-1).to_numpy()])


def write_parquet(place: str, own: ArchiveProperties, events: pa.Table, name: str) -> list[AddedFile]:
    """Writes files under unique names. Removes all of them if one cannot be written."""
    system, base = split_path(place)
    written: list[AddedFile] = []
    try:
        for partition, part in split_events(events, own):
            folder = "/".join(f"{column}={value}" for column, value in partition.items())
            path = f"{folder}/part-{name}-{uuid.uuid4().hex}.parquet"
            system.create_dir(f"{base}/{folder}", recursive=True)
            try:
                size = _write_file(system, f"{base}/{path}", part, own)
            except BaseException:
                _remove(system, [f"{base}/{path}"])
                raise
            now, stats = int(time.time() * 1_000), build_statistics(part)
            written.append(AddedFile(path, size, part.num_rows, partition, stats, now))
    except OSError as error:
        remove_files(place, written)
        raise EventError(
            f"cannot write to the archive {place}: {error}\n"
            "  hint: free some space, or check the permissions of the folder; nothing was "
            "committed, so it can be tried again"
        ) from error
    return written


def remove_files(place: str, added: Sequence[AddedFile]) -> None:
    system, base = split_path(place)
    _remove(system, [f"{base}/{file.path}" for file in added])


def _remove(system: Any, paths: Sequence[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # no version of the table refers to it
            system.delete_file(path)


def _write_file(system: Any, path: str, part: pa.Table, own: ArchiveProperties) -> int:
    names = part.column_names
    by = (*own.key, own.time[1])
    sorting = [pq.SortingColumn(names.index(name)) for name in dict.fromkeys(by)]
    with system.open_output_stream(path) as sink:
        pq.write_table(
            part.combine_chunks(), sink, row_group_size=ROW_GROUP, sorting_columns=sorting,
            compression="snappy",
        )  # fmt: skip
        size: int = sink.tell()
    return size


def build_statistics(part: pa.Table) -> str:
    """The statistics of a file for the log of a Delta table.

    >>> build_statistics(pa.table({"k": ["b", "a", None], "x": [0.5, float("nan"), 1]}))
    '{"maxValues": {"k": "b"}, "minValues": {"k": "a"}, "nullCount": {"k": 1, "x": 0}, ...}'
    """
    least: dict[str, object] = {}
    greatest: dict[str, object] = {}
    for name in part.column_names:
        bounds = _bounds(part.column(name))
        if bounds is not None:
            least[name], greatest[name] = bounds
    nulls = {name: part.column(name).null_count for name in part.column_names}
    known = {"numRecords": part.num_rows, "minValues": least, "maxValues": greatest}
    return json.dumps({**known, "nullCount": nulls}, sort_keys=True)


def _bounds(column: pa.ChunkedArray) -> tuple[object, object] | None:
    type = column.type
    is_timestamp, is_floating = types.is_timestamp(type), types.is_floating(type)
    if not (is_timestamp or is_floating or types.is_date(type) or types.is_integer(type) or types.is_string(type)):
        return None
    if column.null_count == len(column):
        return None
    if is_floating and not pc.all(pc.is_finite(column)).as_py():
        return None
    bounds = pc.min_max(column.cast(pa.int64()) if is_timestamp else column).as_py()
    low, high = bounds["min"], bounds["max"]
    if is_timestamp:
        zone = "" if type.tz is None else "Z"
        low, high = (_format_instant(ticks, zone) for ticks in (low, high))
        return None if low is None or high is None else (low, high)
    if types.is_date(type):
        return str(low), str(high)
    if types.is_string(type):
        cut = high if len(high) <= _LONGEST else high[:_LONGEST] + "\U0010ffff"
        return low[:_LONGEST], cut
    return low, high


def _format_instant(microseconds: int, zone: str) -> str | None:
    """A time cut to milliseconds, as Delta's protocol requires; None: beyond year 9999."""
    text = str(np.datetime64(math.floor(microseconds / 1_000), "ms"))
    return f"{text}{zone}" if len(text) == len("2026-03-01T00:00:00.000") else None
