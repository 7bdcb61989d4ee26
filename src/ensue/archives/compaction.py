"""Compaction of an archive's small files, while streams write it and queries read it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ensue.archives.archive import BUCKET, DAY, CompactionResult
from ensue.archives.delta import cast_to_stored, import_deltalake, open_delta_table
from ensue.archives.delta_writer import WRITER, build_add_action, commit_transaction, get_clustering, open_to_write
from ensue.archives.file_archive import FileArchive
from ensue.archives.parquet_metadata import build_file_error, split_path
from ensue.archives.parquet_writer import AddedFile, remove_files, write_parquet
from ensue.errors import StateError

MIN_FILES = 4  # files of a partition that are worth merging
RETENTION_HOURS = 168  # until files that no version needs are removed
_MAX_ROWS = 2_000_000  # events that are rewritten in one commit
_TRIES = 20


@dataclass(frozen=True, slots=True)
class _Part:
    """The files of a day and a bucket."""

    paths: tuple[str, ...]  # as the log has them
    sizes: tuple[int, ...]
    rows: int
    partition: dict[str, str | None]


def compact(archive: FileArchive, *, fewest: int = MIN_FILES) -> CompactionResult:
    """Rewrites partitions that have `fewest` files or more, each into one sorted file.

    Events and their order do not change. Streams may write meanwhile: a commit that conflicts is
    tried again. Files are not removed: see `vacuum`.
    """
    total = CompactionResult()
    for group in _group_by_size(_list_parts(open_to_write(archive), max(2, fewest))):
        total += _rewrite(archive, group)
    return total


def vacuum(place: str | Path, *, hours: int = RETENTION_HOURS) -> int:
    """Removes the files that no version of the last hours needs, and uncommitted ones; returns how many."""
    table = open_delta_table(str(place))
    owner = table.metadata().configuration.get(WRITER)
    if owner and hours < 1:
        raise StateError(
            f"the archive {place} is written by the stream {owner}: some files of the last hour "
            "may not be committed yet\n  hint: vacuum with at least an hour, or "
            f"ensue archive release {place} when the stream is gone for good"
        )
    removed = table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True)
    return len(removed)


def _list_parts(table: Any, fewest: int) -> list[_Part]:
    by_part: dict[tuple[object, object], list[dict[str, Any]]] = {}
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        part = (action[f"partition.{DAY}"], action[f"partition.{BUCKET}"])
        by_part.setdefault(part, []).append(action)
    return [
        _Part(
            tuple(a["path"] for a in actions),
            tuple(a["size_bytes"] for a in actions),
            sum(a["num_records"] or 0 for a in actions),
            {DAY: str(day), BUCKET: str(bucket)},
        )
        for (day, bucket), actions in sorted(by_part.items(), key=str)
        if len(actions) >= fewest
    ]


def _group_by_size(parts: list[_Part]) -> Iterator[list[_Part]]:
    """Partitions that are rewritten in one commit."""
    group: list[_Part] = []
    for part in parts:
        if group and sum(p.rows for p in group) + part.rows > _MAX_ROWS:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _rewrite(archive: FileArchive, group: list[_Part]) -> CompactionResult:
    columns = pa.schema([f for f in archive.stored.schema if f.name not in (DAY, BUCKET)])
    clustering = get_clustering(archive)
    rewritten: list[tuple[_Part, list[AddedFile]]] = []
    try:
        for part in group:
            events = pa.concat_tables(_read(archive.place, path, columns) for path in part.paths)
            rewritten.append((part, write_parquet(archive.place, clustering, events, "compact")))
        return _commit(archive, rewritten)
    except BaseException:
        remove_files(archive.place, [file for _, added in rewritten for file in added])
        raise


def _read(place: str, path: str, columns: pa.Schema) -> pa.Table:
    system, base = split_path(place)
    name = f"{base}/{unquote(path)}"
    try:
        with system.open_input_file(name) as source:
            table = pq.ParquetFile(source).read()
    except (OSError, pa.ArrowException) as error:
        raise build_file_error(name, error) from error
    return cast_to_stored(table, columns, f"the archive {place}")


def _commit(archive: FileArchive, rewritten: list[tuple[_Part, list[AddedFile]]]) -> CompactionResult:
    """Commits all partitions whose old files still exist in one transaction."""
    package = import_deltalake()
    from deltalake.transaction import RemoveAction

    for _ in range(_TRIES):
        table = open_delta_table(archive.place)
        paths = set(pa.table(table.get_add_actions()).column("path").to_pylist())
        current = [(part, added) for part, added in rewritten if paths.issuperset(part.paths)]
        lost = [added for part, added in rewritten if not paths.issuperset(part.paths)]
        now = int(datetime.now(UTC).timestamp() * 1_000)
        actions: list[Any] = []
        for part, added in current:
            actions += [build_add_action(file, new=False) for file in added]
            actions += [
                RemoveAction(path, False, now, size, part.partition)
                for path, size in zip(part.paths, part.sizes, strict=True)
            ]
        if actions:
            # no retries: files that another compaction removed must not be added again
            properties = package.CommitProperties(max_commit_retries=0)
            try:
                commit_transaction(table, actions, properties)
            except package.exceptions.CommitFailedError:
                continue
        remove_files(archive.place, [file for added in lost for file in added])
        return CompactionResult(
            len(current),
            sum(len(part.paths) for part, _ in current),
            sum(len(added) for _, added in current),
            sum(part.rows for part, _ in current),
            len(lost),
        )
    raise StateError(
        f"the archive {archive.place} could not be compacted in {_TRIES} tries: others commit all "
        "the time\n  hint: try again later; nothing was changed"
    )
