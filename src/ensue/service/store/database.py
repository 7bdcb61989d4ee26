"""The SQLite database of a service: its tables, one writer thread with group commit, several readers."""

import asyncio
import contextlib
import json
import os
import queue
import socket
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar

from ensue.errors import EnsueError, ServiceError, StateError
from ensue.service.errors import IntakeStoppedError, NoRoomError
from ensue.service.secrets import SecretCipher, restrict_permissions

T = TypeVar("T")
MAX_GROUP_SIZE = 1_000  # jobs in one transaction
READERS = 4
_BUSY = 30.0  # seconds to wait for a lock of another process
SYNCHRONOUS = ("FULL", "NORMAL")
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_WRITE)
# This VFS holds the index of the write-ahead log in memory instead of a file.
_IN_MEMORY_INDEX = "unix-excl"


# a job for the writer thread, and the future of its result
WriteJob = tuple[Callable[[sqlite3.Connection], Any], "Future[Any]"]


class Database:
    """One SQLite file with group commit.

    The jobs of a group share one transaction, each in a savepoint, so a failing job rolls back
    its own changes only. Results are returned once the transaction is on disk.
    """

    def __init__(self, path: str | Path, *, synchronous: str = "FULL") -> None:
        if synchronous not in SYNCHRONOUS:
            raise ServiceError(
                f"synchronous={synchronous!r}\n  hint: FULL survives a power cut, NORMAL only a crash of the process"
            )
        self.path = str(path)
        self._synchronous = synchronous
        self._work: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._local = threading.local()
        self._reading: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="ensue-read")
        self.closed = False
        self._vfs: str | None = None  # None: SQLite's default
        self.seal: SecretCipher | None = None  # of the SQL functions seal(text), unseal(text)
        self.committed: list[Callable[[], None]] = []  # called by the writer after each commit
        self.rolled_back: list[Callable[[BaseException], None]] = []
        self._restrict_access()
        writer = self._open()
        try:
            create_tables(writer, self.path)
        except BaseException:
            writer.close()
            raise
        self._writer = threading.Thread(target=self._write_all, args=(writer,), name="ensue-core", daemon=True)
        self._writer.start()

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` in the writer thread; returns its result once it is committed."""
        return await asyncio.wrap_future(self.submit(work))

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        """The same from any thread, as a future."""
        answer: Future[T] = Future()
        if self.closed:
            answer.set_exception(IntakeStoppedError("the service is closed"))
        else:
            self._work.put((work, answer))
        return answer

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` on the committed state, in a reader thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self.look, work)

    def look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The same in this thread."""
        db = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._open(read_only=True)
            with self._lock:
                self._reading.append(db)
        return work(db)

    @property
    def waiting(self) -> int:
        """Number of jobs waiting for the writer."""
        return self._work.qsize()

    def close(self) -> None:
        """Finishes the waiting jobs and closes the file."""
        if self.closed:
            return
        self.closed = True
        self._work.put(None)
        self._writer.join()
        self._pool.shutdown()
        for db in self._reading:
            db.close()

    def _open(self, *, read_only: bool = False) -> sqlite3.Connection:
        try:
            try:
                return self._connect(read_only=read_only)
            except sqlite3.Error as error:
                if self._vfs is not None or not is_disk_full(error):
                    raise
                self._vfs = _IN_MEMORY_INDEX  # a full disk has no space for the index file
                return self._connect(read_only=read_only)
        except sqlite3.Error as error:
            raise StateError(
                f"{self.path} cannot be opened as the database of a service: {error}\n"
                "  hint: name a file in a folder that you can write to"
            ) from None

    def _connect(self, *, read_only: bool) -> sqlite3.Connection:
        file = self.path
        if self._vfs is not None:
            file = f"{Path(self.path).absolute().as_uri()}?vfs={self._vfs}"
        db = sqlite3.connect(
            file, timeout=_BUSY, isolation_level=None, check_same_thread=False,
            uri=self._vfs is not None,
        )  # fmt: skip
        try:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {self._synchronous}")
            db.execute("PRAGMA cache_size = -65536")
            db.execute("PRAGMA wal_autocheckpoint = 16384")
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            db.create_function("seal", 1, lambda text: self._require_seal().seal(text))
            db.create_function("unseal", 1, lambda text: self._require_seal().unseal(text))
            if read_only:
                db.execute("PRAGMA query_only = ON")
        except BaseException:
            db.close()
            raise
        return db

    def _require_seal(self) -> SecretCipher:
        if self.seal is None:
            raise StateError(f"the secrets in {self.path} are encrypted, and there is no key")
        return self.seal

    def _restrict_access(self) -> None:
        """Restricts the file to its owner; SQLite copies the mode to its other files."""
        with contextlib.suppress(OSError):  # opening it reports the error
            Path(self.path).touch(mode=0o600)
        for end in ("", "-wal", "-shm"):
            file = Path(f"{self.path}{end}")
            if file.exists():
                restrict_permissions(file)

    def _write_all(self, db: sqlite3.Connection) -> None:
        over = False
        while not over:
            first = self._work.get()
            group = [] if first is None else [first]
            over = first is None
            while not over and len(group) < MAX_GROUP_SIZE:
                try:
                    work = self._work.get_nowait()
                except queue.Empty:
                    break
                if work is None:
                    over = True
                else:
                    group.append(work)
            # Drops cancelled jobs; the others can no longer be cancelled.
            group = [job for job in group if job[1].set_running_or_notify_cancel()]
            if group:
                self._write(db, group)
        db.close()

    def _write(self, db: sqlite3.Connection, group: list[WriteJob]) -> None:
        results: list[Any] = []
        try:
            db.execute("BEGIN IMMEDIATE")
            for work, _ in group:
                try:
                    with savepoint(db, "work"):
                        results.append((work(db), None))
                except Exception as error:
                    if not db.in_transaction:
                        raise
                    results.append((None, error))
            db.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - the callers get it, the thread continues
            if db.in_transaction:
                db.execute("ROLLBACK")
            for callback in self.rolled_back:
                callback(error)
            for _, answer in group:
                answer.set_exception(_write_error(error))
            return
        for notify in self.committed:
            notify()
        for (_, answer), (result, failure) in zip(group, results, strict=True):
            if failure is None:
                answer.set_result(result)
            else:
                answer.set_exception(failure)


@contextlib.contextmanager
def savepoint(db: sqlite3.Connection, name: str) -> Iterator[None]:
    """Undoes the changes of the block if it fails, and nothing else of the transaction."""
    db.execute(f"SAVEPOINT {name}")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute(f"ROLLBACK TO {name}")
            db.execute(f"RELEASE {name}")
        raise
    db.execute(f"RELEASE {name}")


def _write_error(error: BaseException) -> EnsueError:
    if isinstance(error, EnsueError):
        return error
    message = f"the file cannot be written: {error}"
    if isinstance(error, sqlite3.Error) and is_disk_full(error):
        return NoRoomError(f"{message}\n  hint: free some space; stored data can still be read")
    return IntakeStoppedError(message)


def is_disk_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) in _NO_ROOM


# ----------------------------------------------------------------------
# Lock file

if sys.platform != "win32":  # Windows has no flock
    import fcntl


class FileLock:
    """Locks the database of a service against a second service, in this or another process.

    The operating system releases it when the process ends in any way. The lock is on a file
    beside the database, because SQLite loses its own locks if others close the database.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(f"{Path(path).resolve()}-lock")
        try:
            self._file: int | None = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StateError(
                f"{self._path} cannot be created: {error.strerror}\n"
                "  hint: name a file in a folder that you can write to"
            ) from None
        _held.add(self)
        if sys.platform == "win32":
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(self._file)
            self.release()
            raise StateError(
                f"{path} is in use by {holder}: a second service would lose matches of the first\n"
                "  hint: stop that one first, the lock ends with its process; or name another file"
            ) from None
        with contextlib.suppress(OSError):  # on a full disk the holder stays unknown
            own = {
                "process": os.getpid(),
                "host": socket.gethostname(),
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(own).encode(), 0)

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


_held: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


def _release_in_child() -> None:
    """Closes inherited locks, which a forked process would hold after its parent has ended."""
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


def _read_holder(file: int) -> str:
    try:
        holder = json.loads(os.pread(file, 1_000, 0))
        return f"process {holder['process']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another service"


FORMAT = 2

_TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE users (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created REAL NOT NULL,
    quotas TEXT NOT NULL DEFAULT '{}', off INTEGER NOT NULL DEFAULT 0);
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY, user INTEGER NOT NULL REFERENCES users, label TEXT NOT NULL,
    hash BLOB NOT NULL UNIQUE, scopes TEXT NOT NULL, created REAL NOT NULL, expires REAL,
    revoked REAL, used REAL);
CREATE INDEX tokens_of_user ON tokens (user);
CREATE TABLE sessions (
    hash BLOB PRIMARY KEY, token INTEGER NOT NULL REFERENCES tokens, csrf TEXT NOT NULL,
    created REAL NOT NULL, expires REAL NOT NULL) WITHOUT ROWID;

CREATE TABLE regions (
    id INTEGER PRIMARY KEY, user INTEGER NOT NULL REFERENCES users, name TEXT NOT NULL,
    text TEXT NOT NULL, created REAL NOT NULL, UNIQUE (user, name));

-- An active subscription is part of the set that is matched.
CREATE TABLE subscriptions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, user INTEGER NOT NULL REFERENCES users,
    name TEXT NOT NULL, text TEXT NOT NULL, language TEXT, regions TEXT NOT NULL DEFAULT '{}',
    template TEXT, quiet REAL, corners INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'active', reason TEXT, created REAL NOT NULL,
    changed REAL NOT NULL, started TEXT, expires REAL);
CREATE UNIQUE INDEX subscription_names ON subscriptions (user, name) WHERE state <> 'ended';
CREATE INDEX subscriptions_by_state ON subscriptions (state);
CREATE INDEX subscriptions_expire ON subscriptions (expires)
    WHERE expires IS NOT NULL AND state <> 'ended';

-- Usage of quotas by subscriptions that have not ended, maintained by triggers.
CREATE TABLE usage (
    user INTEGER PRIMARY KEY, subscriptions INTEGER NOT NULL, corners INTEGER NOT NULL);
CREATE TRIGGER usage_added AFTER INSERT ON subscriptions WHEN NEW.state <> 'ended' BEGIN
    INSERT INTO usage VALUES (NEW.user, 1, NEW.corners) ON CONFLICT (user) DO UPDATE
    SET subscriptions = subscriptions + 1, corners = corners + excluded.corners;
END;
CREATE TRIGGER usage_changed AFTER UPDATE OF state, corners ON subscriptions BEGIN
    UPDATE usage SET
        subscriptions = subscriptions + (NEW.state <> 'ended') - (OLD.state <> 'ended'),
        corners = corners + (NEW.state <> 'ended') * NEW.corners
            - (OLD.state <> 'ended') * OLD.corners
    WHERE user = NEW.user;
END;

-- Changes of the set that is matched; versions are consecutive.
CREATE TABLE changes (
    id INTEGER PRIMARY KEY, version INTEGER NOT NULL, kind INTEGER NOT NULL,
    subscription INTEGER NOT NULL, text TEXT, language TEXT, regions TEXT);
CREATE INDEX changes_by_version ON changes (version);
CREATE INDEX changes_of_subscription ON changes (subscription, id);

-- Accepted events, in order, with the version of the set that matched them.
CREATE TABLE batches (
    position INTEGER PRIMARY KEY AUTOINCREMENT, version INTEGER NOT NULL, at REAL NOT NULL,
    rows INTEGER NOT NULL, bytes INTEGER NOT NULL, least REAL, greatest REAL, advance TEXT,
    data BLOB);
CREATE INDEX batches_by_time ON batches (greatest, least) WHERE rows > 0;
CREATE TABLE snapshots (
    position INTEGER PRIMARY KEY, version INTEGER NOT NULL, at REAL NOT NULL, data BLOB NOT NULL);
-- The next expected sequence number of each producer.
CREATE TABLE positions (
    producer TEXT PRIMARY KEY, user INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL,
    at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE bad_events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, user INTEGER NOT NULL, producer TEXT,
    reason TEXT NOT NULL, event TEXT NOT NULL);

CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, subscription INTEGER NOT NULL,
    user INTEGER NOT NULL, kind TEXT NOT NULL, match_id TEXT, at REAL NOT NULL,
    body BLOB NOT NULL);
CREATE INDEX outbox_of_subscription ON outbox (subscription, number);
CREATE INDEX outbox_of_user ON outbox (user, number);
CREATE UNIQUE INDEX outbox_once ON outbox (match_id) WHERE match_id IS NOT NULL;
-- The number up to which notifications of a user were deleted.
CREATE TABLE forgotten (user INTEGER PRIMARY KEY, number INTEGER NOT NULL);
-- The end of the quiet time of a subscription for an object, in the stream's time.
CREATE TABLE quiet (
    subscription INTEGER NOT NULL, object TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY (subscription, object)) WITHOUT ROWID;

CREATE TABLE targets (
    id INTEGER PRIMARY KEY AUTOINCREMENT, subscription INTEGER NOT NULL,
    user INTEGER NOT NULL, kind TEXT NOT NULL, config TEXT NOT NULL,
    secrets TEXT NOT NULL, cursor INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'on',
    reason TEXT, failures INTEGER NOT NULL DEFAULT 0, next_at REAL, created REAL NOT NULL,
    delivered INTEGER NOT NULL DEFAULT 0, changed REAL NOT NULL);
CREATE INDEX targets_of_subscription ON targets (subscription);
CREATE TABLE deliveries (
    target INTEGER NOT NULL, number INTEGER NOT NULL, attempts INTEGER NOT NULL,
    next_at REAL, state TEXT NOT NULL, error TEXT, at REAL NOT NULL,
    PRIMARY KEY (target, number)) WITHOUT ROWID;

CREATE TABLE counters (
    subscription INTEGER NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL,
    PRIMARY KEY (subscription, name)) WITHOUT ROWID;
CREATE TABLE keys (
    user INTEGER NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, answer TEXT NOT NULL,
    at REAL NOT NULL, PRIMARY KEY (user, key)) WITHOUT ROWID;
CREATE INDEX keys_by_time ON keys (at);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, user INTEGER NOT NULL, action TEXT NOT NULL,
    subject TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX audit_of_user ON audit (user, id);
CREATE INDEX audit_by_time ON audit (at);
"""


def create_tables(db: Connection, path: str) -> None:
    """Creates the tables in an empty file; rejects files of another format."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version == FORMAT:
        return
    others = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version or others:
        what = f"has format {version}" if version else "is not a database of a service"
        raise StateError(
            f"{path} {what}; this release reads format {FORMAT}\n  hint: use another file, or the release that wrote it"
        )
    db.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {FORMAT};COMMIT;")
