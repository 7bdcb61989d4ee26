"""The lock that lets one service at a time use a file; it ends with its process."""

import contextlib
import json
import os
import socket
import sys
import weakref
from datetime import UTC, datetime
from pathlib import Path

from ensue.errors import StateError

if sys.platform != "win32":  # which has no such locks
    import fcntl


class FileLock:
    """Holds the file of a service. A second one, in this process or another, is refused.

    The operating system releases it when the process ends, however that happens. The lock is on
    a file beside the database, because SQLite loses its own locks if others close the database.
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
        with contextlib.suppress(OSError):  # on a full disk nobody is told who holds it
            own = {
                "process": os.getpid(),
                "host": socket.gethostname(),
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(own).encode(), 0)

    def release(self) -> None:
        """Lets another service use the file."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


_held: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


def _release_in_child() -> None:
    """A forked process shares the lock and would keep it after its parent has ended."""
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
