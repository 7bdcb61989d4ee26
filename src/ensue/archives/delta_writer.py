"""Archives of Ensue's own: Delta tables that are created, written in tasks, and committed once."""

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
    get_first_line,
    get_stored_schema,
    import_deltalake,
    open_delta_archive,
    open_delta_table,
)
from ensue.archives.file_archive import FileArchive
from ensue.archives.parquet_metadata import split_path
from ensue.archives.parquet_writer import AddedFile, Clustering, remove_files, write_parquet
from ensue.errors import EventError, StateError
from ensue.schema import ValueKind
from ensue.vector.event_table import drop_bad_times

WRITER = "ensue.writer"  # the entry of the table's configuration: which stream writes it
BUCKETS = 16
_TRIES = 20  # commits of others that may come between


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
    """A new archive without events. `day` is how long a part is, where times are numbers."""
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
    _require_room(place)
    columns = get_stored_schema(schema)
    shape = ArchiveOptions(time, type, tuple(key), tuple(order)).shape(columns)
    numbers = shape.schema.time_kind not in (ValueKind.TIMESTAMP, ValueKind.DATE)
    if day is not None and not numbers:
        raise EventError(
            "day= is only for numeric times\n  hint: leave it out: timestamps know their day"
        )
    pair = (time, time) if isinstance(time, str) else time
    own = ArchiveProperties(
        pair, type, tuple(key), tuple(order), buckets, (day or 0) if numbers else None
    )
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
    except package.exceptions.DeltaError as error:
        there = "already exists" in str(error)
        hint = (
            "append to it, or name another place"
            if there
            else "check the permissions of the folder"
        )
        raise EventError(
            f"cannot create the archive {place}: {get_first_line(error)}\n  hint: {hint}"
        ) from error
    except OSError as error:
        raise EventError(
            f"cannot create the archive {place}: {error}\n  hint: check the permissions of the "
            "folder"
        ) from error
    return open_delta_archive(place, ArchiveOptions(None))


def _require_room(place: str) -> None:
    """Raises an EventError if something else lies at a place: vacuuming would take it away."""
    try:
        system, inside = split_path(place)
        info = system.get_file_info(inside)
        if info.type == pa.fs.FileType.NotFound:
            return
        found = [] if info.is_file else system.get_file_info(pa.fs.FileSelector(inside))
    except (OSError, pa.ArrowException) as error:
        raise EventError(f"cannot list {place}: {str(error).splitlines()[0]}") from error
    if any(one.base_name == "_delta_log" for one in found):
        return  # Delta says so itself
    if info.is_file or found:
        raise EventError(
            f"cannot create the archive {place}: something else is already there\n"
            "  hint: name a folder that is empty or does not exist"
        )


def get_properties(archive: FileArchive) -> ArchiveProperties:
    """What an archive of Ensue's says of itself. Raises a StateError if it is not one."""
    schema = archive.shape.schema
    if archive.stored.buckets is None:
        raise StateError(
            f"{archive.place} was not created by Ensue, which only reads such tables\n"
            "  hint: ensue archive create makes one that it can write"
        )
    return ArchiveProperties(
        (schema.start, schema.end),
        schema.type_column,
        archive.key,
        schema.order,
        archive.stored.buckets,
        archive.stored.day,
    )


def get_clustering(archive: FileArchive) -> Clustering:
    """How events are put into files of an archive."""
    own = get_properties(archive)
    return Clustering(own.key, own.time[0], own.time[1], own.buckets, own.day)


def write_files(
    archive: FileArchive, events: pa.Table, first_order: int, name: str = "0"
) -> list[AddedFile]:
    """Writes events as files of an archive, and commits nothing: for tasks.

    The events are numbered from `first_order` on, as they come: the last tie-break of those of one
    time. `name` becomes part of the files' names.
    """
    columns = pa.schema([f for f in archive.stored.schema if f.name not in HIDDEN_COLUMNS])
    stored = cast_to_stored(events, columns, f"the archive {archive.place}")
    stored, _ = drop_bad_times(stored, archive.shape, "raise")
    numbers = np.arange(first_order, first_order + stored.num_rows, dtype=np.int64)
    numbered = stored.append_column(ORDER, pa.array(numbers))
    return write_parquet(archive.place, get_clustering(archive), numbered, name)


def commit(archive: FileArchive, added: Sequence[AddedFile], writer: str, number: int) -> bool:
    """Makes files part of the archive, in one transaction of a writer: for the driver.

    A writer numbers its transactions, upwards. One that was committed before is not committed
    again: then nothing happens, and False is returned.
    """
    package = import_deltalake()
    for _ in range(_TRIES):
        table = open_delta_table(archive.place)
        _require_same(archive, table)
        done = table.transaction_version(writer)
        if done is not None and done >= number:
            return False
        if not try_claim(archive.place, table, writer):
            continue
        properties = package.CommitProperties(
            app_transactions=[package.Transaction(writer, number)]
        )
        try:
            commit_transaction(table, [build_add_action(one) for one in added], properties)
        except package.exceptions.CommitFailedError:
            continue  # somebody else was quicker: it may have been this very transaction
        return True
    raise StateError(
        f"the archive {archive.place} could not be committed to in {_TRIES} tries: others commit "
        "all the time\n  hint: let only one stream write it at a time"
    )


def commit_transaction(table: Any, actions: list[Any], properties: Any = None) -> None:
    """One transaction: either all of it is in the table's next version, or nothing."""
    package = import_deltalake()
    try:
        table.create_write_transaction(
            actions, "append", table.schema(), [DAY, BUCKET], commit_properties=properties
        )
    except (OSError, package.exceptions.DeltaError) as error:
        if isinstance(error, package.exceptions.CommitFailedError):
            raise
        raise EventError(
            f"cannot commit to the archive {table.table_uri}: {get_first_line(error)}\n"
            "  hint: nothing was committed: free some space, or check the permissions of the "
            "folder, and "
            "try again"
        ) from error


def build_add_action(added: AddedFile, *, new: bool = True) -> Any:
    """What the log gets of a file; `new` is False if its events were in the table before."""
    from deltalake.transaction import AddAction

    return AddAction(added.path, added.size, added.partition, added.written, new, added.stats)


def try_claim(place: str, table: Any, writer: str) -> bool:
    """Makes a writer the one that writes an archive; False: somebody came between.

    Raises a StateError if another one is.
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
    """Makes a stream the one that writes an archive, when it starts."""
    get_properties(archive)
    for _ in range(_TRIES):
        table = open_delta_table(archive.place)
        _require_same(archive, table)
        if try_claim(archive.place, table, writer):
            return
    raise StateError(f"the archive {archive.place} could not be claimed: others keep committing")


def release(place: str | Path) -> str | None:
    """Lets another stream write an archive. Returns which one did."""
    table = open_delta_table(str(place))
    owner: str | None = table.metadata().configuration.get(WRITER) or None
    if owner is not None:
        table.alter.set_table_properties({WRITER: ""}, raise_if_not_exists=False)
    return owner


def get_writer(place: str | Path) -> str | None:
    """Which stream writes an archive; None: no one does."""
    owner: str | None = open_delta_table(str(place)).metadata().configuration.get(WRITER)
    return owner or None


def _require_same(archive: FileArchive, table: Any) -> None:
    """Raises a StateError if the table is not laid out as when the archive was opened."""
    known = ArchiveProperties.read(table.metadata().configuration)
    mine = get_properties(archive)
    if known != mine:
        raise StateError(
            f"the archive {archive.place} has a different layout than when it was opened\n"
            "  hint: it was recreated: start with a new checkpoint"
        )


def require_same_archive(archive: FileArchive, described: Mapping[str, object]) -> None:
    """Raises a StateError unless an archive is the one that a checkpoint knows.

    `described` is what `archive.described()` gave when the checkpoint was made.
    """
    now = archive.described()
    for what in ("buckets", "key", "time", "type", "order", "identity"):
        if now.get(what) == described.get(what):
            continue
        if what == "identity":
            problem = "is not the table that the checkpoint was written with"
        else:
            problem = (
                f"has {what} {_shown(now.get(what))}, and the checkpoint was written with "
                f"{_shown(described.get(what))}"
            )
        raise StateError(
            f"the archive {archive.place} {problem}\n"
            "  hint: use the archive the stream began with, or a new checkpoint"
        )


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def append(place: str | Path, events: pa.Table) -> int:
    """Puts events into an archive; returns how many. They come behind those of the same time."""
    archive = open_delta_archive(str(place), ArchiveOptions(None))
    package = import_deltalake()
    for _ in range(_TRIES):
        table = open_delta_table(archive.place)
        owner = table.metadata().configuration.get(WRITER)
        if owner:
            raise StateError(
                f"two write one archive: {archive.place} is written by the stream {owner}\n"
                "  hint: append before the stream starts, or "
                f"ensue archive release {archive.place} when it is gone for good"
            )
        added = write_files(archive, events, get_next_order(table), "append")
        try:
            # two that append at once would number their events alike: the version is asked for
            properties = package.CommitProperties(
                app_transactions=[package.Transaction("ensue.append", table.version())],
                max_commit_retries=0,
            )
            commit_transaction(table, [build_add_action(one) for one in added], properties)
        except package.exceptions.CommitFailedError:
            remove_files(archive.place, added)
            continue
        except BaseException:
            remove_files(archive.place, added)
            raise
        return len(events)
    raise StateError(f"could not append to {archive.place}: others keep committing")


def get_next_order(table: Any) -> int:
    """The number of the next event that arrives."""
    actions = pa.table(table.get_add_actions(flatten=True))
    name = f"max.{ORDER}"
    if name not in actions.column_names or not actions.num_rows:
        return 0
    numbers = actions.column(name).fill_null(-1).to_numpy()
    return int(numbers.max()) + 1
