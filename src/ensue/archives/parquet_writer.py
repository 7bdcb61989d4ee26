"""Events as Parquet files of an archive: apart by day and bucket, sorted by key and time."""

import json
import math
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from ensue.archives.archive import BUCKET, DAY, ORDER
from ensue.archives.parquet_metadata import split_path
from ensue.errors import EventError
from ensue.schema import ValueKind
from ensue.vector import evaluation as vectors
from ensue.vector.arrow_numpy import validity
from ensue.vector.arrow_types import Unit, time_unit
from ensue.vector.key_groups import assign_key_groups

ROW_GROUP = 8_192
_LONGEST = 32  # letters of a text that statistics keep
_DAY = {"us": 86_400_000_000, "ns": 86_400_000_000_000}
_INSTANTS = (ValueKind.TIMESTAMP, ValueKind.DATE)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that was written, and that no version of the table has yet."""

    path: str  # in the table's folder
    size: int
    rows: int
    partition: dict[str, str]
    stats: str  # JSON, as the log keeps it
    written: int  # milliseconds

    def text(self) -> str:
        """As a row that a task gives back."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def read(text: str) -> "AddedFile":
        """What `text` has written."""
        return AddedFile(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Clustering:
    """How events are put into files."""

    key: tuple[str, ...]
    start: str
    end: str
    buckets: int
    day: float | None  # how long a part is, where times are numbers; 0: all of it

    def parts(self, events: pa.Table) -> Iterator[tuple[dict[str, str], pa.Table]]:
        """The events of each day and bucket, sorted by key, time and arrival."""
        unit = time_unit(events.schema)
        days = self._days(events, unit)
        buckets = assign_key_groups(events, self.key, self.buckets, unit)
        places = np.lexsort((*_sort_keys(events, self, unit), buckets, days))
        ordered = events.take(pa.array(places))
        days, buckets = days[places], buckets[places]
        change = np.flatnonzero((days[1:] != days[:-1]) | (buckets[1:] != buckets[:-1])) + 1
        for first, last in zip([0, *change], [*change, len(places)], strict=True):
            if first < last:
                partition = {DAY: self._day_text(int(days[first])), BUCKET: str(buckets[first])}
                yield partition, ordered.slice(first, last - first)

    def _days(self, events: pa.Table, unit: Unit) -> Ints:
        vector = vectors.from_arrow(events.column(self.end), unit, self.end)
        values = np.asarray(vector.values)
        if vector.kind in _INSTANTS:
            return np.asarray(values // _DAY[unit], np.int64)
        if not self.day:
            return np.zeros(len(values), np.int64)
        return np.floor(values / self.day).astype(np.int64)

    def _day_text(self, day: int) -> str:
        return str(np.datetime64(day, "D")) if self.day is None else str(day)


def _sort_keys(events: pa.Table, clustering: Clustering, unit: Unit) -> list[Any]:
    """For lexsort: the last one weighs most."""
    names = (clustering.start, clustering.end)
    times = [vectors.from_arrow(events.column(n), unit, n).values for n in names]
    ranks = [_ranks(events.column(name)) for name in clustering.key]
    return [events.column(ORDER).to_numpy(), *times, *reversed(ranks)]


def _ranks(column: pa.ChunkedArray) -> Ints:
    """Numbers in the order of the values; NULL comes first."""
    array = column.combine_chunks()
    if types.is_integer(array.type) and not array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False)).astype(np.int64)
    coded = array.dictionary_encode()
    ranks = np.empty(len(coded.dictionary), np.int64)
    ranks[pc.sort_indices(coded.dictionary).to_numpy()] = np.arange(len(ranks))
    found = np.full(len(array), -1, np.int64)
    valid = validity(coded)
    indices = coded.indices.fill_null(0).to_numpy()
    if len(ranks):
        found = ranks[indices]
    if valid is not None:
        found[~valid] = -1
    return found


def write_parquet(
    place: str, clustering: Clustering, events: pa.Table, name: str
) -> list[AddedFile]:
    """Writes files under names of their own. What was written is removed if one cannot be."""
    system, base = split_path(place)
    done: list[AddedFile] = []
    try:
        for partition, part in clustering.parts(events):
            folder = "/".join(f"{column}={value}" for column, value in partition.items())
            path = f"{folder}/part-{name}-{uuid.uuid4().hex}.parquet"
            system.create_dir(f"{base}/{folder}", recursive=True)
            try:
                size = _write_file(system, f"{base}/{path}", part, clustering)
            except BaseException:
                _remove(system, [f"{base}/{path}"])
                raise
            done.append(
                AddedFile(
                    path, size, part.num_rows, partition, build_statistics(part), _milliseconds()
                )
            )
    except OSError as error:
        _remove(system, [f"{base}/{added.path}" for added in done])
        raise EventError(
            f"cannot write to the archive {place}: {error}\n"
            "  hint: free some space, or check the permissions of the folder; nothing was "
            "committed, so "
            "it can be tried again"
        ) from error
    return done


def remove_files(place: str, added: Sequence[AddedFile]) -> None:
    """Removes files that will not be committed."""
    system, base = split_path(place)
    _remove(system, [f"{base}/{one.path}" for one in added])


def _remove(system: Any, paths: Sequence[str]) -> None:
    for path in paths:
        try:
            system.delete_file(path)
        except OSError:  # not written at all, or left behind: no version of the table has it
            continue


def _write_file(system: Any, path: str, part: pa.Table, clustering: Clustering) -> int:
    names = part.column_names
    by = (*clustering.key, clustering.end)
    sorting = [pq.SortingColumn(names.index(name)) for name in dict.fromkeys(by)]
    with system.open_output_stream(path) as sink:
        pq.write_table(
            part.combine_chunks(), sink, row_group_size=ROW_GROUP, sorting_columns=sorting,
            compression="snappy",
        )  # fmt: skip
        size: int = sink.tell()
    return size


def _milliseconds() -> int:
    return int(datetime.now(UTC).timestamp() * 1_000)


def build_statistics(part: pa.Table) -> str:
    """The statistics of a file as the log of a Delta table keeps them.

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
    if column.null_count == len(column):
        return None
    if types.is_timestamp(type):
        found = pc.min_max(column.cast(pa.int64())).as_py()
        zone = "" if type.tz is None else "Z"
        texts = [_instant(found[end], zone) for end in ("min", "max")]
        return None if None in texts else (texts[0], texts[1])
    if types.is_date(type):
        found = pc.min_max(column).as_py()
        return str(found["min"]), str(found["max"])
    if types.is_integer(type):
        found = pc.min_max(column).as_py()
        return found["min"], found["max"]
    if types.is_floating(type):
        if not pc.all(pc.is_finite(column)).as_py():
            return None
        found = pc.min_max(column).as_py()
        return found["min"], found["max"]
    if types.is_string(type):
        found = pc.min_max(column).as_py()
        low, high = found["min"], found["max"]
        cut = high if len(high) <= _LONGEST else high[:_LONGEST] + "\U0010ffff"
        return low[:_LONGEST], cut
    return None


def _instant(microseconds: int, zone: str) -> str | None:
    """Cut to milliseconds, as the protocol of Delta asks for."""
    found = str(np.datetime64(math.floor(microseconds / 1_000), "ms"))
    return f"{found}{zone}" if len(found) == len("2026-03-01T00:00:00.000") else None
