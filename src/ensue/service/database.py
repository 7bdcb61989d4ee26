"""The file of a service: one thread writes, in groups that are committed together; others read."""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ensue.errors import EnsueError, ServiceError, StateError
from ensue.service.refusals import IntakeStoppedError, NoRoomError
from ensue.service.secrets import Seal, narrow
from ensue.service.tables import make_tables

T = TypeVar("T")
MOST_IN_GROUP = 1_000  # pieces of work in one transaction
READERS = 4
_BUSY = 30.0  # seconds to wait for another process that looks at the file
SYNCHRONOUS = ("FULL", "NORMAL")
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_WRITE)
# The index of the write-ahead log is in memory, not in a file: for this process only.
_IN_MEMORY_INDEX = "unix-excl"


@dataclass(slots=True)
class Work(Generic[T]):
    """A piece of work for the writer, and where its answer goes."""

    do: Callable[[sqlite3.Connection], T]
    answer: "Future[T]"


class Database:
    """One SQLite file. What is written together waits for the disk once.

    Work of the same group is one transaction, each piece in a savepoint: one that fails takes
    back its own changes only. Answers are given once the transaction is on disk.
    """

    def __init__(self, path: str | Path, *, synchronous: str = "FULL") -> None:
        if synchronous not in SYNCHRONOUS:
            raise ServiceError(
                f"synchronous={synchronous!r}\n  hint: FULL survives a power cut, NORMAL only a "
                "crash of the process"
            )
        self.path = str(path)
        self._synchronous = synchronous
        self._work: queue.SimpleQueue[Work[Any] | None] = queue.SimpleQueue()
        self._local = threading.local()
        self._reading: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="ensue-read")
        self._closed = False
        self._vfs: str | None = None  # of SQLite; None: the usual one
        self.seal: Seal | None = None  # for SQL that says seal(text) and unseal(text)
        self.committed: list[Callable[[], None]] = []  # called on the writer behind each commit
        self.rolled_back: list[Callable[[BaseException], None]] = []
        self._close_to_others()
        writer = self._opened()
        try:
            make_tables(writer, self.path)
        except BaseException:
            writer.close()
            raise
        self._writer = threading.Thread(
            target=self._write_all, args=(writer,), name="ensue-core", daemon=True
        )
        self._writer.start()

    # ---------------------------------------------------------------------------- for everybody

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Does work in the writer's thread; gives its answer once it is on disk."""
        return await asyncio.wrap_future(self.submit(work))

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        """The same from any thread, as a future."""
        answer: Future[T] = Future()
        if self._closed:
            answer.set_exception(IntakeStoppedError("the service is closed"))
        else:
            self._work.put(Work(work, answer))
        return answer

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Looks at what is committed, beside the writer."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self.look, work)

    def look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The same in this thread."""
        db = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._opened(read_only=True)
            with self._lock:
                self._reading.append(db)
        return work(db)

    @property
    def waiting(self) -> int:
        """How many pieces of work wait for the writer."""
        return self._work.qsize()

    def close(self) -> None:
        """Finishes the work that waits, and closes the file."""
        if self._closed:
            return
        self._closed = True
        self._work.put(None)
        self._writer.join()
        self._pool.shutdown()
        for db in self._reading:
            db.close()

    # ---------------------------------------------------------------------------- the writer

    def _opened(self, *, read_only: bool = False) -> sqlite3.Connection:
        try:
            try:
                return self._connected(read_only=read_only)
            except sqlite3.Error as error:
                if self._vfs is not None or not is_no_room(error):
                    raise
                self._vfs = _IN_MEMORY_INDEX  # a full disk has no room for the file of the index
                return self._connected(read_only=read_only)
        except sqlite3.Error as error:
            raise StateError(
                f"{self.path} cannot be opened as the file of a service: {error}\n"
                "  hint: name a file in a folder that you can write to"
            ) from None

    def _connected(self, *, read_only: bool) -> sqlite3.Connection:
        file = self.path
        if self._vfs is not None:
            file = f"{Path(self.path).absolute().as_uri()}?vfs={self._vfs}"
        db = sqlite3.connect(
            file,
            timeout=_BUSY,
            isolation_level=None,
            check_same_thread=False,
            uri=self._vfs is not None,
        )
        try:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {self._synchronous}")
            db.execute("PRAGMA cache_size = -65536")
            db.execute("PRAGMA wal_autocheckpoint = 16384")
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            db.create_function("seal", 1, lambda text: self._settled().seal(text))
            db.create_function("unseal", 1, lambda text: self._settled().unseal(text))
            if read_only:
                db.execute("PRAGMA query_only = ON")
        except BaseException:
            db.close()
            raise
        return db

    def _settled(self) -> Seal:
        if self.seal is None:
            raise StateError(f"the secrets in {self.path} are sealed, and no key was given")
        return self.seal

    def _close_to_others(self) -> None:
        """Lets nobody but the owner read the file. SQLite gives its other files the same mode."""
        with contextlib.suppress(OSError):  # opening it says what is wrong
            Path(self.path).touch(mode=0o600)
        for end in ("", "-wal", "-shm"):
            found = Path(f"{self.path}{end}")
            if found.exists():
                narrow(found)

    def _write_all(self, db: sqlite3.Connection) -> None:
        over = False
        while not over:
            first = self._work.get()
            group = [] if first is None else [first]
            over = first is None
            while not over and len(group) < MOST_IN_GROUP:
                try:
                    work = self._work.get_nowait()
                except queue.Empty:
                    break
                if work is None:
                    over = True
                else:
                    group.append(work)
            # Who was cancelled meanwhile is left out; from here on nobody can be.
            group = [work for work in group if work.answer.set_running_or_notify_cancel()]
            if group:
                self._write(db, group)
        db.close()

    def _write(self, db: sqlite3.Connection, group: list[Work[Any]]) -> None:
        answers: list[tuple[Work[Any], Any, BaseException | None]] = []
        try:
            db.execute("BEGIN IMMEDIATE")
            for work in group:
                db.execute("SAVEPOINT work")
                try:
                    answers.append((work, work.do(db), None))
                except Exception as error:
                    if not db.in_transaction:
                        raise
                    db.execute("ROLLBACK TO work")
                    answers.append((work, None, error))
                db.execute("RELEASE work")
            db.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - the thread goes on, askers get it
            if db.in_transaction:
                db.execute("ROLLBACK")
            for told in self.rolled_back:
                told(error)
            for work in group:
                work.answer.set_exception(_said(error))
            return
        for tell in self.committed:
            tell()
        for work, answer, failed in answers:
            if failed is None:
                work.answer.set_result(answer)
            else:
                work.answer.set_exception(failed)


def _said(error: BaseException) -> EnsueError:
    """Why nothing could be written, in words."""
    if isinstance(error, EnsueError):
        return error
    said = f"the file cannot be written: {error}"
    if isinstance(error, sqlite3.Error) and is_no_room(error):
        return NoRoomError(f"{said}\n  hint: free some space; what is kept can be read")
    return IntakeStoppedError(said)


def is_no_room(error: sqlite3.Error) -> bool:
    """Whether SQLite failed because the disk is full."""
    return getattr(error, "sqlite_errorcode", None) in _NO_ROOM
