"""Delta tables as archives: the log is kept open and followed, files are known from it."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.archives.files import Bounds, Files, local
from ensue.archives.given import Given
from ensue.archives.own import BUCKET, HIDDEN, ORDER, Own
from ensue.archives.reading import Stored
from ensue.archives.stored import FileArchive
from ensue.errors import EventError
from ensue.extras import needed

_TRUNCATED = 1_000_000  # nanoseconds: statistics of timestamps are cut to milliseconds
_KEPT_LOGS, _KEPT_VERSIONS = 32, 64


def deltalake() -> Any:
    """The package, or an EventError that says how to get it."""
    with needed("a Delta table", "archive", EventError):
        import deltalake
    return deltalake


@dataclass(frozen=True, slots=True)
class Log:
    """A Delta table, as of a version if one is given, else as it is when it is read."""

    place: str
    identity: str  # of the table: one that was made anew at the place is another
    number: int | None = None
    kind = "delta"

    @property
    def version(self) -> str | None:
        return None if self.number is None else str(self.number)

    def pinned(self) -> "Log":
        """As of the newest version."""
        if self.number is not None:
            return self
        with _lock:
            return replace(self, number=int(self._newest().version()))

    def described(self) -> dict[str, object]:
        """Which table it is."""
        return {"identity": self.identity}

    def partitioned_by(self) -> tuple[str, ...]:
        with _lock:
            return tuple(self._newest().metadata().partition_columns)

    def files(self) -> Files:
        """The files of the version."""
        pinned = self.pinned()
        name = (self.place, self.identity, pinned.number)
        with _lock:
            if name not in _versions:
                _versions[name] = _files(pinned._table())
                while len(_versions) > _KEPT_VERSIONS:
                    _versions.popitem(last=False)
            _versions.move_to_end(name)
            return _versions[name]

    def _table(self) -> Any:
        newest = self._newest()
        if newest.version() == self.number:
            return newest
        return opened(self.place, self.number)

    def _newest(self) -> Any:
        """The newest version, of the log that is kept open."""
        name = (self.place, self.identity)
        table = _logs.get(name)
        if table is None:
            table = opened(self.place)
            if table.metadata().id != self.identity:
                raise EventError(
                    f"the table at {self.place} is not the one that was opened\n"
                    "  hint: open the archive again"
                )
            _keep(name, table)
        else:
            _logs.move_to_end(name)
            try:
                table.update_incremental()
            except deltalake().exceptions.DeltaError as error:
                raise EventError(
                    f"cannot follow the log of {self.place}: {reason_of(error)}\n"
                    "  hint: if the table was removed or recreated, open the archive again"
                ) from error
        return table


_lock = RLock()
_logs: OrderedDict[tuple[str, str], Any] = OrderedDict()
_versions: OrderedDict[tuple[str, str, int | None], Files] = OrderedDict()


def _keep(name: tuple[str, str], table: Any) -> None:
    _logs[name] = table
    while len(_logs) > _KEPT_LOGS:
        _logs.popitem(last=False)


def opened(place: str, number: int | None = None) -> Any:
    """The table at a place. Raises an EventError if the version is not there."""
    package = deltalake()
    try:
        return package.DeltaTable(place, version=number)
    except package.exceptions.DeltaError as error:
        if number is None and not package.DeltaTable.is_deltatable(place):
            raise EventError(
                f"there is no Delta table at {place}\n  hint: ensue archive create makes one"
            ) from error
        if number is None:
            raise EventError(
                f"cannot read the Delta table {place}: {reason_of(error)}\n"
                "  hint: its log is damaged, or needs something that the deltalake package "
                "cannot do"
            ) from error
        newest = package.DeltaTable(place).version()
        gone = f"version {number} of {place} is not there"
        if number > newest:
            raise EventError(
                f"{gone}: the newest is {newest}\n  hint: version=None takes it"
            ) from None
        raise EventError(
            f"{gone} any more: its part of the log was cleaned up ({reason_of(error)})\n"
            f"  hint: take a newer version, up to {newest}, and keep the log for longer "
            "(delta.logRetentionDuration)"
        ) from error


def reason_of(error: Exception) -> str:
    """The first line of what another package says."""
    return str(error).splitlines()[0] if str(error) else error.__class__.__name__


def _files(table: Any) -> Files:
    actions = pa.table(table.get_add_actions(flatten=True))
    places = np.lexsort(
        (
            np.array(actions.column("path").to_pylist(), object),
            actions.column("modification_time").to_numpy(),
        )
    )
    actions = actions.take(pa.array(places)).combine_chunks()
    base = table.table_uri.rstrip("/")
    base = local(base) or base
    paths = [_path(base, path) for path in actions.column("path").to_pylist()]
    partitions = {
        name.removeprefix("partition."): actions.column(name).combine_chunks()
        for name in actions.column_names
        if name.startswith("partition.")
    }
    own = Own.read(table.metadata().configuration)
    features = table.protocol().reader_features or []
    return Files(
        paths=tuple(paths),
        rows=_numbers(actions.column("num_records")),
        sizes=_numbers(actions.column("size_bytes")),
        bounds=_Statistics(actions, partitions).of,
        partitions=partitions,
        buckets=None if own is None else _numbers(partitions[BUCKET]),
        even="typeWidening" not in features and "typeWidening-preview" not in features,
        left=_left(table) if "deletionVectors" in features else {},
    )


def _path(base: str, path: str) -> str:
    if "://" in path:
        return local(path) or path
    return f"{base}/{unquote(path)}"


def _numbers(column: Any) -> npt.NDArray[np.int64]:
    return np.asarray(column.cast(pa.int64()).fill_null(-1).to_numpy(), np.int64)


def _left(table: Any) -> dict[str, npt.NDArray[np.bool_]]:
    found = {}
    for batch in table.deletion_vectors():
        rows = pa.record_batch(batch).to_pylist()
        for row in rows:
            path = row["filepath"]
            found[local(path) or path] = np.array(row["selection_vector"], np.bool_)
    return found


class _Statistics:
    """The bounds of columns in each file, as the log has them."""

    def __init__(self, actions: pa.Table, partitions: dict[str, pa.Array]) -> None:
        self._actions, self._partitions = actions, partitions

    def of(self, name: str) -> Bounds | None:
        if name in self._partitions:
            return Bounds(self._partitions[name], self._partitions[name])
        if f"min.{name}" not in self._actions.column_names:
            return None
        least, greatest = (
            self._actions.column(f"{end}.{name}").combine_chunks() for end in ("min", "max")
        )
        truncated = pa.types.is_timestamp(least.type)
        return Bounds(least, greatest, _TRUNCATED if truncated else 0)


def archive_at(place: str, given: Given) -> FileArchive:
    """The archive of a Delta table."""
    number = _number(given.version)
    table = opened(place, number)
    _refuse_renamed(table, place)
    log = Log(place, table.metadata().id, number)
    if number is None:
        with _lock:
            _keep((place, log.identity), table)
    columns = pa.schema(table.schema().to_arrow())
    schema = pa.schema([pa.field(field.name, field.type) for field in columns])
    own = Own.read(table.metadata().configuration)
    if own is None:
        stored = Stored(schema, given.key)
        return FileArchive(log, given.shape(schema), given.key, stored, given.complete)
    given = agreeing(given, own, place)
    shown = pa.schema([field for field in schema if field.name not in HIDDEN])
    stored = Stored(schema, own.key, own.buckets, ORDER, own.day)
    return FileArchive(log, given.shape(shown), own.key, stored, given.complete)


def agreeing(given: Given, own: Own, place: str) -> Given:
    """What the archive knows of itself; what the call says besides must not differ."""
    known = {"time": own.named_time(), "type": own.type, "key": own.key, "order": own.order}
    for name, mine in known.items():
        said = getattr(given, name)
        if said not in (None, ()) and said != mine:
            raise EventError(
                f"the archive {place} was created with {name}={mine!r}, not {said!r}\n"
                f"  hint: leave {name}= out"
            )
    return replace(given, time=own.named_time(), type=own.type, key=own.key, order=own.order)


def _number(version: int | str | None) -> int | None:
    if version is None:
        return None
    try:
        return int(version)
    except ValueError:
        raise EventError(
            f"version={version!r}: versions of Delta tables are numbers\n"
            "  hint: DeltaTable(place).history() lists them"
        ) from None


def _refuse_renamed(table: Any, place: str) -> None:
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode not in (None, "none"):
        raise EventError(
            f"the Delta table {place} maps the names of its columns "
            f"(delta.columnMapping.mode = {mode}), which is not supported\n"
            "  hint: copy it into a table without, or pass it as a DataFrame or an Arrow table"
        )
