"""Archives that Ensue writes: Delta tables, created, written in tasks, and committed once."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs

from ensue.archives.archive import (
    BUCKET,
    CONFIGURATION,
    DAY,
    HIDDEN_COLUMNS,
    ORDER,
    ArchiveOptions,
    ArchiveProperties,
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
from ensue.archives.parquet_metadata import get_first_line, split_path
from ensue.archives.parquet_writer import AddedFile, Clustering, remove_files, write_parquet
from ensue.errors import EventError, StateError
from ensue.schema import ValueKind
from ensue.vector.event_table import drop_bad_times

WRITER = "ensue.writer"  # the entry of the table's configuration: the stream that writes it
BUCKETS = 16
_TRIES = 20  # of a commit that conflicts with others


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
    schema, stored = archive.shape.schema, archive.stored
    if stored.buckets is None:
        raise StateError(
            f"{archive.place} was not created by Ensue, which only reads such tables\n"
            "  hint: ensue.create_archive or ensue archive create makes one that it can write"
        )
    time = schema.start, schema.end
    return ArchiveProperties(time, schema.type_column, archive.key, schema.order, stored.buckets, stored.day)


def get_clustering(archive: FileArchive) -> Clustering:
    """How the events of an archive are divided into files."""
    own = get_properties(archive)
    return Clustering(own.key, own.time[0], own.time[1], own.buckets, own.day)


def write_files(archive: FileArchive, events: pa.Table, first_order: int, name: str = "0") -> list[AddedFile]:
    """Writes events as files of an archive without committing them: for tasks.

    The events are numbered from `first_order` on in their order, the last tie-break of events of
    the same time. `name` becomes part of the file names.
    """
    columns = pa.schema([f for f in archive.stored.schema if f.name not in HIDDEN_COLUMNS])
    stored = cast_to_stored(events, columns, f"the archive {archive.place}")
    stored, _ = drop_bad_times(stored, archive.shape, "raise")
    numbers = np.arange(first_order, first_order + stored.num_rows, dtype=np.int64)
    numbered = stored.append_column(ORDER, pa.array(numbers))
    return write_parquet(archive.place, get_clustering(archive), numbered, name)


def commit(archive: FileArchive, added: Sequence[AddedFile], writer: str, number: int) -> bool:
    """Adds files to the archive in one transaction of a writer: for the driver.

    A writer numbers its transactions in ascending order. Returns False, and changes nothing, if
    this one was committed before.
    """
    package = import_deltalake()
    for _ in range(_TRIES):
        table = open_to_write(archive)
        committed = table.transaction_version(writer)
        if committed is not None and committed >= number:
            return False
        if not try_claim(archive.place, table, writer):
            continue
        properties = package.CommitProperties(app_transactions=[package.Transaction(writer, number)])
        try:
            commit_transaction(table, [build_add_action(one) for one in added], properties)
        except package.exceptions.CommitFailedError:
            continue  # another commit was faster, maybe this very transaction
        return True
    raise StateError(
        f"the archive {archive.place} could not be committed to in {_TRIES} tries: others commit "
        "all the time\n  hint: let only one stream write it at a time"
    )


def commit_transaction(table: Any, actions: list[Any], properties: Any = None) -> None:
    """Commits all actions in one transaction."""
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


def try_claim(place: str, table: Any, writer: str) -> bool:
    """Makes a stream the writer of an archive; False: another commit was faster.

    Raises a StateError if the archive has another writer.
    """
    owner = table.metadata().configuration.get(WRITER)
    if owner == writer:
        return True
    if owner:
        raise StateError(
            f"two streams write one archive: {place} is written by {owner}, and now by {writer}\n"
            "  hint: give each stream its own archive; if the first one is gone for good, "
            f"ensue archive release {place}"
        )
    package = import_deltalake()
    try:
        table.alter.set_table_properties({WRITER: writer}, raise_if_not_exists=False)
    except package.exceptions.CommitFailedError:
        return False
    return True


def claim(archive: FileArchive, writer: str) -> None:
    """Makes a stream the writer of an archive, when it starts."""
    for _ in range(_TRIES):
        table = open_to_write(archive)
        if try_claim(archive.place, table, writer):
            return
    raise StateError(f"the archive {archive.place} could not be claimed: others keep committing")


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
    for _ in range(_TRIES):
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
        except BaseException as error:
            remove_files(archive.place, added)
            if isinstance(error, package.exceptions.CommitFailedError):
                continue
            raise
        return len(events)
    raise StateError(f"could not append to {archive.place}: others keep committing")


def _get_next_order(table: Any) -> int:
    """The arrival number of the next event."""
    actions = pa.table(table.get_add_actions(flatten=True))
    name = f"max.{ORDER}"
    if name not in actions.column_names:
        return 0
    return int(actions.column(name).fill_null(-1).to_numpy().max(initial=-1)) + 1
