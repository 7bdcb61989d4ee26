"""Many small files of an archive into few, while streams write it and others read it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ensue.archives.archive import BUCKET, DAY, ArchiveOptions
from ensue.archives.delta import (
    cast_to_stored,
    import_deltalake,
    open_delta_archive,
    open_delta_table,
)
from ensue.archives.delta_writer import (
    WRITER,
    build_add_action,
    commit_transaction,
    get_clustering,
)
from ensue.archives.file_archive import FileArchive
from ensue.archives.parquet_metadata import build_file_error, split_path
from ensue.archives.parquet_writer import AddedFile, remove_files, write_parquet
from ensue.errors import StateError

MIN_FILES = 4  # files of a day and bucket that are worth one
RETENTION_HOURS = 168  # hours that files stay which no version needs any more
_AT_ONCE = 2_000_000  # events that are rewritten in one commit
_TRIES = 20


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction did."""

    parts: int = 0  # days and buckets
    before: int = 0  # files that are not read any more
    after: int = 0
    rows: int = 0
    skipped: int = 0  # parts that somebody else rewrote meanwhile

    def __add__(self, other: "CompactionResult") -> "CompactionResult":
        return CompactionResult(
            self.parts + other.parts,
            self.before + other.before,
            self.after + other.after,
            self.rows + other.rows,
            self.skipped + other.skipped,
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """The files of a day and a bucket."""

    paths: tuple[str, ...]  # as the log has them
    sizes: tuple[int, ...]
    rows: int
    partition: dict[str, str | None]


def compact(place: str | Path, *, fewest: int = MIN_FILES) -> CompactionResult:
    """Rewrites days and buckets that have `fewest` files or more, each into one sorted file.

    Events stay as they are, with their order. Streams may go on writing: each commit is tried
    again if another one came between. Files are not removed: see `vacuum`.
    """
    archive = open_delta_archive(str(place), ArchiveOptions(None))
    get_clustering(archive)  # raises if it is a table of others
    done = CompactionResult()
    for group in _groups(_parts(open_delta_table(archive.place), max(2, fewest))):
        done += _rewritten(archive, group)
    return done


def vacuum(place: str | Path, *, hours: int = RETENTION_HOURS) -> int:
    """Removes files that no version of the last hours needs, also those never committed.

    Whoever reads an older version gets an error that says so. Returns how many files went.
    """
    table = open_delta_table(str(place))
    owner = table.metadata().configuration.get(WRITER)
    if owner and hours < 1:
        raise StateError(
            f"the archive {place} is written by the stream {owner}: some files of the last hour "
            "may not be committed yet\n  hint: vacuum with at least an hour, or "
            f"ensue archive release {place} when the stream is gone for good"
        )
    gone = table.vacuum(
        retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
    )
    return len(gone)


def _parts(table: Any, fewest: int) -> list[_Part]:
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    by_part: dict[tuple[object, object], list[dict[str, Any]]] = {}
    for action in actions:
        part = (action[f"partition.{DAY}"], action[f"partition.{BUCKET}"])
        by_part.setdefault(part, []).append(action)
    return [
        _Part(
            tuple(a["path"] for a in some),
            tuple(a["size_bytes"] for a in some),
            sum(a["num_records"] or 0 for a in some),
            {DAY: str(day), BUCKET: str(bucket)},
        )
        for (day, bucket), some in sorted(by_part.items(), key=str)
        if len(some) >= fewest
    ]


def _groups(parts: list[_Part]) -> Iterator[list[_Part]]:
    """Parts that are rewritten in one commit."""
    group: list[_Part] = []
    for part in parts:
        if group and sum(p.rows for p in group) + part.rows > _AT_ONCE:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _rewritten(archive: FileArchive, group: list[_Part]) -> CompactionResult:
    made: list[tuple[_Part, list[AddedFile]]] = []
    try:
        made = [(part, _one_file(archive, part)) for part in group]
        return _committed(archive, made)
    except BaseException:
        remove_files(archive.place, [one for _, added in made for one in added])
        raise


def _one_file(archive: FileArchive, part: _Part) -> list[AddedFile]:
    columns = pa.schema([f for f in archive.stored.schema if f.name not in (DAY, BUCKET)])
    tables = [_read(archive.place, path, columns) for path in part.paths]
    return write_parquet(
        archive.place, get_clustering(archive), pa.concat_tables(tables), "compact"
    )


def _read(place: str, path: str, columns: pa.Schema) -> pa.Table:
    system, base = split_path(place)
    name = f"{base}/{unquote(path)}"
    try:
        with system.open_input_file(name) as source:
            table = pq.ParquetFile(source).read()
    except (OSError, pa.ArrowException) as error:
        raise build_file_error(name, error) from error
    return cast_to_stored(table, columns, f"the archive {place}")


def _committed(
    archive: FileArchive, made: list[tuple[_Part, list[AddedFile]]]
) -> CompactionResult:
    """One transaction for all parts whose files are still there."""
    package = import_deltalake()
    for _ in range(_TRIES):
        table = open_delta_table(archive.place)
        there = set(pa.table(table.get_add_actions()).column("path").to_pylist())
        still = [(part, added) for part, added in made if there.issuperset(part.paths)]
        lost = [(part, added) for part, added in made if not there.issuperset(part.paths)]
        actions: list[Any] = []
        for part, added in still:
            actions += [build_add_action(one, new=False) for one in added]
            actions += _removals(part)
        if actions:
            # as it was read: what another compaction removed must not come back
            properties = package.CommitProperties(max_commit_retries=0)
            try:
                commit_transaction(table, actions, properties)
            except package.exceptions.CommitFailedError:
                continue
        remove_files(archive.place, [one for _, added in lost for one in added])
        return CompactionResult(
            len(still),
            sum(len(part.paths) for part, _ in still),
            sum(len(added) for _, added in still),
            sum(part.rows for part, _ in still),
            len(lost),
        )
    raise StateError(
        f"the archive {archive.place} could not be compacted in {_TRIES} tries: others commit all "
        "the time\n  hint: try again later; nothing was changed"
    )


def _removals(part: _Part) -> list[Any]:
    from deltalake.transaction import RemoveAction

    now = int(datetime.now(UTC).timestamp() * 1_000)
    return [
        RemoveAction(path, False, now, size, part.partition)
        for path, size in zip(part.paths, part.sizes, strict=True)
    ]
