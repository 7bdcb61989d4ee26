"""Archives of Ensue's own: Delta tables that are created, written in tasks, and committed once."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs

from ensue.archives.delta import archive_at, deltalake, opened, reason_of
from ensue.archives.delta_types import as_stored, stored_schema
from ensue.archives.footers import place_of
from ensue.archives.given import Given, Time
from ensue.archives.own import BUCKET, CONFIGURATION, DAY, HIDDEN, ORDER, Own
from ensue.archives.stored import FileArchive
from ensue.archives.written_files import Added, Clustering, discard, write
from ensue.columns.stream import with_time
from ensue.errors import EventError, StateError
from ensue.schema import Kind

WRITER = "ensue.writer"  # the entry of the table's configuration: which stream writes it
BUCKETS = 16
_TRIES = 20  # commits of others that may come between


def create(
    place: str | Path,
    schema: pa.Schema,
    *,
    time: Time,
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
            "  hint: 16 suits most archives; the number of lanes of a stream should divide it"
        )
    if day is not None and day <= 0:
        raise EventError(f"day={day}: this is too short for a part of the archive")
    _require_room(place)
    columns = stored_schema(schema)
    shape = Given(time, type, tuple(key), tuple(order)).shape(columns)
    numbers = shape.schema.time_kind not in (Kind.TIMESTAMP, Kind.DATE)
    if day is not None and not numbers:
        raise EventError(
            "day= is only for numeric times\n  hint: leave it out: timestamps know their day"
        )
    pair = (time, time) if isinstance(time, str) else time
    own = Own(pair, type, tuple(key), tuple(order), buckets, (day or 0) if numbers else None)
    hidden = {DAY: pa.int64() if numbers else pa.date32(), BUCKET: pa.int32(), ORDER: pa.int64()}
    whole = pa.schema([*columns, *(pa.field(name, kind) for name, kind in hidden.items())])
    package = deltalake()
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
            f"cannot create the archive {place}: {reason_of(error)}\n  hint: {hint}"
        ) from error
    except OSError as error:
        raise EventError(
            f"cannot create the archive {place}: {error}\n  hint: check the permissions of the "
            "folder"
        ) from error
    return archive_at(place, Given(None))


def _require_room(place: str) -> None:
    """Raises an EventError if something else lies at a place: vacuuming would take it away."""
    try:
        system, inside = place_of(place)
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


def own_of(archive: FileArchive) -> Own:
    """What an archive of Ensue's says of itself. Raises a StateError if it is not one."""
    schema = archive.shape.schema
    if archive.stored.buckets is None:
        raise StateError(
            f"{archive.place} was not created by Ensue, which only reads such tables\n"
            "  hint: ensue archive create makes one that it can write"
        )
    return Own(
        (schema.start, schema.end),
        schema.type_column,
        archive.key,
        schema.order,
        archive.stored.buckets,
        archive.stored.day,
    )


def clustering_of(archive: FileArchive) -> Clustering:
    """How events are put into files of an archive."""
    own = own_of(archive)
    return Clustering(own.key, own.time[0], own.time[1], own.buckets, own.day)


def written(
    archive: FileArchive, events: pa.Table, first_order: int, name: str = "0"
) -> list[Added]:
    """Writes events as files of an archive, and commits nothing: for tasks.

    The events are numbered from `first_order` on, as they come: the last tie-break of those of one
    time. `name` becomes part of the files' names.
    """
    columns = pa.schema([f for f in archive.stored.schema if f.name not in HIDDEN])
    stored = as_stored(events, columns, f"the archive {archive.place}")
    stored, _ = with_time(stored, archive.shape, "raise")
    numbers = np.arange(first_order, first_order + stored.num_rows, dtype=np.int64)
    numbered = stored.append_column(ORDER, pa.array(numbers))
    return write(archive.place, clustering_of(archive), numbered, name)


def commit(archive: FileArchive, added: Sequence[Added], writer: str, number: int) -> bool:
    """Makes files part of the archive, in one transaction of a writer: for the driver.

    A writer numbers its transactions, upwards. One that was committed before is not committed
    again: then nothing happens, and False is returned.
    """
    package = deltalake()
    for _ in range(_TRIES):
        table = opened(archive.place)
        _require_same(archive, table)
        done = table.transaction_version(writer)
        if done is not None and done >= number:
            return False
        if not claimed(archive.place, table, writer):
            continue
        properties = package.CommitProperties(
            app_transactions=[package.Transaction(writer, number)]
        )
        try:
            transact(table, [action_of(one) for one in added], properties)
        except package.exceptions.CommitFailedError:
            continue  # somebody else was quicker: it may have been this very transaction
        return True
    raise StateError(
        f"the archive {archive.place} could not be committed to in {_TRIES} tries: others commit "
        "all the time\n  hint: let only one stream write it at a time"
    )


def transact(table: Any, actions: list[Any], properties: Any = None) -> None:
    """One transaction: either all of it is in the table's next version, or nothing."""
    package = deltalake()
    try:
        table.create_write_transaction(
            actions, "append", table.schema(), [DAY, BUCKET], commit_properties=properties
        )
    except (OSError, package.exceptions.DeltaError) as error:
        if isinstance(error, package.exceptions.CommitFailedError):
            raise
        raise EventError(
            f"cannot commit to the archive {table.table_uri}: {reason_of(error)}\n"
            "  hint: nothing was committed: free some space, or check the permissions of the "
            "folder, and "
            "try again"
        ) from error


def action_of(added: Added, *, new: bool = True) -> Any:
    """What the log gets of a file; `new` is False if its events were in the table before."""
    from deltalake.transaction import AddAction

    return AddAction(added.path, added.size, added.partition, added.written, new, added.stats)


def claimed(place: str, table: Any, writer: str) -> bool:
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
    package = deltalake()
    try:
        table.alter.set_table_properties({WRITER: writer}, raise_if_not_exists=False)
    except package.exceptions.CommitFailedError:
        return False
    return True


def claim(archive: FileArchive, writer: str) -> None:
    """Makes a stream the one that writes an archive, when it starts."""
    own_of(archive)
    for _ in range(_TRIES):
        table = opened(archive.place)
        _require_same(archive, table)
        if claimed(archive.place, table, writer):
            return
    raise StateError(f"the archive {archive.place} could not be claimed: others keep committing")


def release(place: str | Path) -> str | None:
    """Lets another stream write an archive. Returns which one did."""
    table = opened(str(place))
    owner: str | None = table.metadata().configuration.get(WRITER) or None
    if owner is not None:
        table.alter.set_table_properties({WRITER: ""}, raise_if_not_exists=False)
    return owner


def writer_of(place: str | Path) -> str | None:
    """Which stream writes an archive; None: no one does."""
    owner: str | None = opened(str(place)).metadata().configuration.get(WRITER)
    return owner or None


def _require_same(archive: FileArchive, table: Any) -> None:
    """Raises a StateError if the table is not laid out as when the archive was opened."""
    known = Own.read(table.metadata().configuration)
    mine = own_of(archive)
    if known != mine:
        raise StateError(
            f"the archive {archive.place} has a different layout than when it was opened\n"
            "  hint: it was recreated: start with a new checkpoint"
        )


def require_described(archive: FileArchive, described: Mapping[str, object]) -> None:
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
    archive = archive_at(str(place), Given(None))
    package = deltalake()
    for _ in range(_TRIES):
        table = opened(archive.place)
        owner = table.metadata().configuration.get(WRITER)
        if owner:
            raise StateError(
                f"two write one archive: {archive.place} is written by the stream {owner}\n"
                "  hint: append before the stream starts, or "
                f"ensue archive release {archive.place} when it is gone for good"
            )
        added = written(archive, events, next_order(table), "append")
        try:
            # two that append at once would number their events alike: the version is asked for
            properties = package.CommitProperties(
                app_transactions=[package.Transaction("ensue.append", table.version())],
                max_commit_retries=0,
            )
            transact(table, [action_of(one) for one in added], properties)
        except package.exceptions.CommitFailedError:
            discard(archive.place, added)
            continue
        except BaseException:
            discard(archive.place, added)
            raise
        return len(events)
    raise StateError(f"could not append to {archive.place}: others keep committing")


def next_order(table: Any) -> int:
    """The number of the next event that arrives."""
    actions = pa.table(table.get_add_actions(flatten=True))
    name = f"max.{ORDER}"
    if name not in actions.column_names or not actions.num_rows:
        return 0
    numbers = actions.column(name).fill_null(-1).to_numpy()
    return int(numbers.max()) + 1
