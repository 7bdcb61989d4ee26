"""Archives that Ensue writes: Delta tables, created, written in tasks, committed once, and compacted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from ensue.archives.archive import (
    BUCKET,
    CONFIGURATION,
    DAY,
    HIDDEN_COLUMNS,
    ORDER,
    ArchiveOptions,
    ArchiveProperties,
    CompactionResult,
    TimeColumns,
)
from ensue.archives.delta import (
    cast_to_stored,
    get_stored_schema,
    import_deltalake,
    open_delta_archive,
    open_delta_table,
)
from ensue.archives.file_archive import FileArchive
from ensue.archives.parquet_reader import build_file_error, get_first_line, split_path
from ensue.archives.parquet_writer import AddedFile, remove_files, write_parquet
from ensue.errors import EventError, StateError
from ensue.schema import ValueKind
from ensue.vector.event_table import drop_bad_times

WRITER = "ensue.writer"  # the entry of the table's configuration: the stream that writes it
BUCKETS = 16
_TRIES = 20  # of a commit that conflicts with others
T = TypeVar("T")


def create(
    place: str | Path,
    schema: pa.Schema,
    *,
    time: TimeColumns,
    key: Sequence[str],
    type: str | None = None,
    order: Sequence[str] = (),
    buckets: int = BUCKETS,
    day: float | None = None,
) -> FileArchive:
    """Creates an empty archive. `day` is the length of a day partition of numeric times."""
    place = str(place)
    if not key:
        raise EventError(
            "an archive is clustered by object, but no key column is given\n"
            "  hint: pass key=, the columns that identify the object of an event"
        )
    if buckets < 1 or buckets & (buckets - 1):
        raise EventError(
            f"buckets={buckets}: the number of buckets must be a power of two\n"
            "  hint: 16 suits most archives; the number of key groups of a stream should divide it"
        )
    if day is not None and day <= 0:
        raise EventError(f"day={day}: this is too short for a part of the archive")
    _require_empty_place(place)
    columns = get_stored_schema(schema)
    shape = ArchiveOptions(time, type, tuple(key), tuple(order)).shape(columns)
    numbers = shape.schema.time_kind not in (ValueKind.TIMESTAMP, ValueKind.DATE)
    if day is not None and not numbers:
        raise EventError("day= is only for numeric times\n  hint: leave it out: timestamps know their day")
    pair = (time, time) if isinstance(time, str) else time
    own = ArchiveProperties(pair, type, tuple(key), tuple(order), buckets, (day or 0) if numbers else None)
    hidden = {DAY: pa.int64() if numbers else pa.date32(), BUCKET: pa.int32(), ORDER: pa.int64()}
    whole = pa.schema([*columns, *(pa.field(name, kind) for name, kind in hidden.items())])
    package = import_deltalake()
    try:
        package.DeltaTable.create(
            place,
            whole,
            partition_by=[DAY, BUCKET],
            configuration={CONFIGURATION: own.text()},
            raise_if_key_not_exists=False,
        )
    except (OSError, package.exceptions.DeltaError) as error:
        hint = "check the permissions of the folder"
        if "already exists" in str(error):
            hint = "append to it, or name another place"
        raise EventError(f"cannot create the archive {place}: {get_first_line(error)}\n  hint: {hint}") from error
    return open_delta_archive(place, ArchiveOptions(None))


def _require_empty_place(place: str) -> None:
    """Raises an EventError if a place has other files: vacuuming would remove them."""
    try:
        system, inside = split_path(place)
        info = system.get_file_info(inside)
        if info.type == pa.fs.FileType.NotFound:
            return
        entries = [] if info.is_file else system.get_file_info(pa.fs.FileSelector(inside))
    except (OSError, pa.ArrowException) as error:
        raise EventError(f"cannot list {place}: {get_first_line(error)}") from error
    if any(entry.base_name == "_delta_log" for entry in entries):
        return  # Delta raises its own error
    if info.is_file or entries:
        raise EventError(
            f"cannot create the archive {place}: something else is already there\n"
            "  hint: name a folder that is empty or does not exist"
        )


def get_properties(archive: FileArchive) -> ArchiveProperties:
    """The layout of an archive that Ensue created. Raises a StateError for other archives."""
    if archive.own is None:
        raise StateError(
            f"{archive.place} was not created by Ensue, which only reads such tables\n"
            "  hint: ensue.create_archive or ensue archive create makes one that it can write"
        )
    return archive.own


def write_files(archive: FileArchive, events: pa.Table, first_order: int, name: str = "0") -> list[AddedFile]:
    """Writes events as files of an archive without committing them: for tasks.

    The events are numbered from `first_order` on in their order, the last tie-break of events of
    the same time. `name` becomes part of the file names.
    """
    columns = pa.schema([f for f in archive.stored if f.name not in HIDDEN_COLUMNS])
    stored = cast_to_stored(events, columns, f"the archive {archive.place}")
    stored, _ = drop_bad_times(stored, archive.shape, "raise")
    numbers = np.arange(first_order, first_order + stored.num_rows, dtype=np.int64)
    numbered = stored.append_column(ORDER, pa.array(numbers))
    return write_parquet(archive.place, get_properties(archive), numbered, name)


def commit(archive: FileArchive, added: Sequence[AddedFile], writer: str, number: int) -> bool:
    """Adds files to the archive in one transaction of a writer: for the driver.

    A writer numbers its transactions in ascending order. Returns False, and changes nothing, if
    this one was committed before.
    """
    package = import_deltalake()

    def attempt() -> bool:
        table = open_to_write(archive)
        committed = table.transaction_version(writer)
        if committed is not None and committed >= number:
            return False
        _claim_table(archive.place, table, writer)
        properties = package.CommitProperties(app_transactions=[package.Transaction(writer, number)])
        commit_transaction(table, [build_add_action(one) for one in added], properties)
        return True

    return _retry(
        attempt,
        f"the archive {archive.place} could not be committed to in {_TRIES} tries: others commit "
        "all the time\n  hint: let only one stream write it at a time",
    )


def _retry(attempt: Callable[[], T], problem: str) -> T:
    """Tries again while other commits are faster, perhaps one of the same transaction."""
    conflict = import_deltalake().exceptions.CommitFailedError
    for _ in range(_TRIES):
        with suppress(conflict):
            return attempt()
    raise StateError(problem)


def commit_transaction(table: Any, actions: list[Any], properties: Any = None) -> None:
    package = import_deltalake()
    try:
        table.create_write_transaction(actions, "append", table.schema(), [DAY, BUCKET], commit_properties=properties)
    except (OSError, package.exceptions.DeltaError) as error:
        if isinstance(error, package.exceptions.CommitFailedError):
            raise
        raise EventError(
            f"cannot commit to the archive {table.table_uri}: {get_first_line(error)}\n"
            "  hint: nothing was committed: free some space, or check the permissions of the "
            "folder, and try again"
        ) from error


def build_add_action(added: AddedFile, *, new: bool = True) -> Any:
    """The log entry of a file; `new` is False if its events were in the table before."""
    from deltalake.transaction import AddAction

    return AddAction(added.path, added.size, added.partition, added.written, new, added.stats)


def _claim_table(place: str, table: Any, writer: str) -> None:
    """Makes a stream the writer of an archive; raises a StateError if it has another one."""
    owner = table.metadata().configuration.get(WRITER)
    if owner == writer:
        return
    if owner:
        raise StateError(
            f"two streams write one archive: {place} is written by {owner}, and now by {writer}\n"
            "  hint: give each stream its own archive; if the first one is gone for good, "
            f"ensue archive release {place}"
        )
    table.alter.set_table_properties({WRITER: writer}, raise_if_not_exists=False)


def claim(archive: FileArchive, writer: str) -> None:
    """Makes a stream the writer of an archive, when it starts."""
    _retry(
        lambda: _claim_table(archive.place, open_to_write(archive), writer),
        f"the archive {archive.place} could not be claimed: others keep committing",
    )


def release(place: str | Path) -> str | None:
    """Removes the writer of an archive, so that another stream can claim it, and returns it."""
    owner = get_writer(place)
    if owner is not None:
        table = open_delta_table(str(place))
        table.alter.set_table_properties({WRITER: ""}, raise_if_not_exists=False)
    return owner


def get_writer(place: str | Path) -> str | None:
    """The stream that writes an archive; None: no stream does."""
    owner: str | None = open_delta_table(str(place)).metadata().configuration.get(WRITER)
    return owner or None


def open_to_write(archive: FileArchive) -> Any:
    """Opens the newest version of an archive's table; raises a StateError if it cannot be written."""
    own = get_properties(archive)
    if archive.source.version is not None:
        raise StateError(
            f"the archive {archive.place} is fixed to version {archive.source.version}, which does not change\n"
            "  hint: leave version= out, to write and read the newest one"
        )
    table = open_delta_table(archive.place)
    if ArchiveProperties.read(table.metadata().configuration) != own:
        raise StateError(
            f"the archive {archive.place} has a different layout than when it was opened\n"
            "  hint: it was recreated: open it again; a stream needs a new checkpoint"
        )
    return table


def require_same_archive(archive: FileArchive, described: Mapping[str, object]) -> None:
    """Raises a StateError unless an archive is the one of a checkpoint.

    `described` is the result of `archive.describe()` when the checkpoint was written.
    """
    now = archive.describe()
    for what in ("buckets", "key", "time", "type", "order", "identity"):
        values = [now.get(what), described.get(what)]
        if values[0] == values[1]:
            continue
        new, old = (", ".join(map(str, v)) if isinstance(v, list) else str(v) for v in values)
        problem = f"has {what} {new}, and the checkpoint was written with {old}"
        if what == "identity":
            problem = "is not the table that the checkpoint was written with"
        raise StateError(
            f"the archive {archive.place} {problem}\n  hint: use the archive the stream began with, or a new checkpoint"
        )


def append(archive: FileArchive, events: pa.Table) -> int:
    """Appends events to an archive, after others of the same time; returns how many."""
    package = import_deltalake()

    def attempt() -> int:
        table = open_to_write(archive)
        owner = table.metadata().configuration.get(WRITER)
        if owner:
            raise StateError(
                f"two write one archive: {archive.place} is written by the stream {owner}\n"
                "  hint: append before the stream starts, or "
                f"ensue archive release {archive.place} when it is gone for good"
            )
        added = write_files(archive, events, _get_next_order(table), "append")
        try:
            # concurrent appends would use the same numbers, so the version must not have changed
            properties = package.CommitProperties(
                app_transactions=[package.Transaction("ensue.append", table.version())], max_commit_retries=0
            )
            commit_transaction(table, [build_add_action(one) for one in added], properties)
        except BaseException:
            remove_files(archive.place, added)
            raise
        return len(events)

    return _retry(attempt, f"could not append to {archive.place}: others keep committing")


def _get_next_order(table: Any) -> int:
    """The arrival number of the next event."""
    actions = pa.table(table.get_add_actions(flatten=True))
    name = f"max.{ORDER}"
    if name not in actions.column_names:
        return 0
    return int(actions.column(name).fill_null(-1).to_numpy().max(initial=-1)) + 1


# -------------------------------------------------------------------------------- compaction

MIN_FILES = 4  # files of a partition that are worth merging
RETENTION_HOURS = 168  # until files that no version needs are removed
_MAX_ROWS = 2_000_000  # events that are rewritten in one commit


_Part = list[dict[str, Any]]  # the files of a day and a bucket, as the log has them


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
    by_part: dict[tuple[object, object], _Part] = {}
    for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        by_part.setdefault((file[f"partition.{DAY}"], file[f"partition.{BUCKET}"]), []).append(file)
    return [files for _, files in sorted(by_part.items(), key=str) if len(files) >= fewest]


def _count_rows(*parts: _Part) -> int:
    return sum(file["num_records"] or 0 for part in parts for file in part)


def _group_by_size(parts: list[_Part]) -> Iterator[list[_Part]]:
    """Partitions that are rewritten in one commit."""
    group: list[_Part] = []
    for part in parts:
        if group and _count_rows(*group, part) > _MAX_ROWS:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _rewrite(archive: FileArchive, group: list[_Part]) -> CompactionResult:
    columns = pa.schema([f for f in archive.stored if f.name not in (DAY, BUCKET)])
    own = get_properties(archive)
    rewritten: list[tuple[_Part, list[AddedFile]]] = []
    try:
        for part in group:
            events = pa.concat_tables(_read_part(archive.place, file["path"], columns) for file in part)
            rewritten.append((part, write_parquet(archive.place, own, events, "compact")))
        return _commit_parts(archive, rewritten)
    except BaseException:
        remove_files(archive.place, [file for _, added in rewritten for file in added])
        raise


def _read_part(place: str, path: str, columns: pa.Schema) -> pa.Table:
    system, base = split_path(place)
    name = f"{base}/{unquote(path)}"
    try:
        with system.open_input_file(name) as source:
            table = pq.ParquetFile(source).read()
    except (OSError, pa.ArrowException) as error:
        raise build_file_error(name, error) from error
    return cast_to_stored(table, columns, f"the archive {place}")


def _commit_parts(archive: FileArchive, rewritten: list[tuple[_Part, list[AddedFile]]]) -> CompactionResult:
    """Commits all partitions whose old files still exist in one transaction."""
    package = import_deltalake()
    from deltalake.transaction import RemoveAction

    def attempt() -> CompactionResult:
        table = open_delta_table(archive.place)
        paths = set(pa.table(table.get_add_actions()).column("path").to_pylist())
        exist = [paths.issuperset(file["path"] for file in part) for part, _ in rewritten]
        current = [both for both, exists in zip(rewritten, exist, strict=True) if exists]
        lost = [added for (_, added), exists in zip(rewritten, exist, strict=True) if not exists]
        now = int(datetime.now(UTC).timestamp() * 1_000)
        actions: list[Any] = []
        for part, added in current:
            actions += [build_add_action(file, new=False) for file in added]
            partition: dict[str, str | None] = {name: str(part[0][f"partition.{name}"]) for name in (DAY, BUCKET)}
            actions += [RemoveAction(file["path"], False, now, file["size_bytes"], partition) for file in part]
        if actions:
            # no retries: files that another compaction removed must not be added again
            commit_transaction(table, actions, package.CommitProperties(max_commit_retries=0))
        remove_files(archive.place, [file for added in lost for file in added])
        merged, files = [part for part, _ in current], sum(len(added) for _, added in current)
        return CompactionResult(len(merged), sum(map(len, merged)), files, _count_rows(*merged), len(lost))

    return _retry(
        attempt,
        f"the archive {archive.place} could not be compacted in {_TRIES} tries: others commit all "
        "the time\n  hint: try again later; nothing was changed",
    )
