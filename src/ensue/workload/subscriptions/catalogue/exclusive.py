"""Files that are created once, as a whole, by one of all who try: also on shared storage.

A file is written under a name of its own, made durable, and then linked to its final name. The
link is made by one writer only, and readers see all of the file or nothing.
"""

import contextlib
import os
import time
import uuid
from pathlib import Path

from ensue.errors import StateError

HALF_WRITTEN = ".tmp-"  # begins the names of files that are not there yet
_ABANDONED = 3_600.0  # seconds after which a half written file has lost its writer


def half_written(folder: Path) -> Path:
    """A name for a file, or a folder, that is not complete yet."""
    return folder / f"{HALF_WRITTEN}{uuid.uuid4().hex}"


def created(path: Path, content: bytes) -> bool:
    """Creates a file, unless there is one; whether it is ours."""
    written = half_written(path.parent)
    try:
        with written.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return linked(written, path)
    finally:
        written.unlink(missing_ok=True)


def linked(written: Path, path: Path) -> bool:
    """Gives a complete and durable file its final name, unless that is taken."""
    try:
        os.link(written, path)
    except FileExistsError:
        # over a network a link can be made though the answer is lost, and then asked for again
        return path.exists() and written.samefile(path)
    except OSError as error:
        if error.errno is None or isinstance(error, FileNotFoundError):
            raise
        raise StateError(
            f"cannot create {path}: {os.strerror(error.errno).lower()}\n"
            "  hint: the folder of a set of subscriptions is on a file system that has hard "
            "links and that all machines share (a local disk, NFS); name another folder"
        ) from error
    durable(path.parent)
    return True


def durable(folder: Path) -> None:
    """Makes the names in a folder survive a power failure, where the system can."""
    with contextlib.suppress(OSError):  # not every file system opens folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def abandoned(folder: Path) -> list[Path]:
    """What writers have left that were killed long ago."""
    found = []
    for path in folder.glob(f"{HALF_WRITTEN}*"):
        with contextlib.suppress(FileNotFoundError):  # its writer is done with it
            if time.time() - path.stat().st_mtime > _ABANDONED:
                found.append(path)
    return found
