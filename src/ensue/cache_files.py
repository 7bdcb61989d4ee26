"""A cache of compiled code, in files that only the user can write, each with a digest.

A file that cannot be trusted or read is never an error: its content is built again, and a warning
says so once.
"""

import hashlib
import os
import stat
import tempfile
import time
import warnings
from functools import lru_cache
from pathlib import Path

from ensue.traceback_filter import find_stacklevel

_HEAD = b"ensue 1 "  # then the digest in hexadecimal, a line break, and the content
_DIGEST = 64
_HALF_WRITTEN = ".tmp"
_ABANDONED = 3_600.0  # seconds after which the writer of a partial file is assumed dead
_CLOCK_STEP = 50_000_000  # nanoseconds within which two changes may have the same mtime
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_CLOSED = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # no links or pipes
_OWN_FOLDER = "or set ENSUE_CACHE to a folder you own"


class CacheWarning(UserWarning):
    """Compiled code could not be cached or loaded; the matches are the same."""


_warned: set[str] = set()


def warn_once(topic: str, message: str) -> None:
    if topic not in _warned:
        _warned.add(topic)
        warnings.warn(message, CacheWarning, stacklevel=find_stacklevel())


@lru_cache(maxsize=1)
def get_cache_folder() -> Path | None:
    """The cache folder below `ENSUE_CACHE` or the user's cache folder.

    If it cannot be used, a private temporary folder; None if there is none either.
    """
    try:
        folder = _get_default_folder()
        problem = _create_private(folder)
    except RuntimeError:
        problem = "there is no home folder: set ENSUE_CACHE to a folder you own"
    if problem is None:
        return folder
    instead = _create_temporary()
    done = f"compiled kernels are kept in {instead}" if instead else "kernels are compiled again"
    warn_once("folder", f"{problem}; until then {done}{'' if instead else ' in every process'}")
    return instead


def _get_default_folder() -> Path:
    if named := os.environ.get("ENSUE_CACHE"):
        return Path(named).absolute() / "compiled"
    home = Path.home()
    if not home.is_absolute():  # HOME is empty
        raise RuntimeError("no home folder")
    return home / ".cache" / "ensue" / "compiled"


def _create_temporary() -> Path | None:
    owner = os.geteuid() if hasattr(os, "geteuid") else "user"
    try:
        folder = Path(tempfile.gettempdir()) / f"ensue-{owner}" / "compiled"
    except FileNotFoundError:
        return None
    problem = _create_private(folder.parent) or _create_private(folder)
    return folder if problem is None else None


def _create_private(folder: Path) -> str | None:
    """Creates a folder that only the user can write; returns the problem and its solution."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if stat.S_ISLNK(status.st_mode):
            return f"the cache folder {folder} is a link: remove it, {_OWN_FOLDER}"
        if (problem := find_trust_problem(status)) is not None:
            fix = "remove it" if "belongs" in problem else f"run: chmod go-w '{folder}'"
            return f"the cache folder {folder} {problem}: {fix}, {_OWN_FOLDER}"
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        why = _format_reason(error)
        return f"the cache folder {folder} cannot be used ({why}): fix that, {_OWN_FOLDER}"


def _format_reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def find_trust_problem(status: os.stat_result) -> str | None:
    """Why others may have written a file or folder, if they may have."""
    if not hasattr(os, "geteuid"):  # Windows: the user's folders are closed to others
        return None
    if status.st_uid != os.geteuid():
        return f"belongs to another user ({status.st_uid})"
    if status.st_mode & _OTHERS_WRITE:
        return "can be written by others"
    return None


def read_cached(name: str, folder: Path | None = None) -> bytes | None:
    """The content of a cached file, or None if it does not exist, is damaged or not trusted."""
    folder = folder or get_cache_folder()
    if folder is None:
        return None
    path = folder / name
    try:
        handle = os.open(path, os.O_RDONLY | _CLOSED | _PLAIN)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            problem = find_trust_problem(status)
            if not stat.S_ISREG(status.st_mode):
                problem = "is no plain file"
            elif problem is None:
                head = file.read(len(_HEAD) + _DIGEST + 1)
                content = file.read() if head.startswith(_HEAD) else b""
                if head == _build_head(name, content):
                    return content
                problem = "is damaged"
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = f"cannot be read ({_format_reason(error)})"
    warn_of_rebuild(path, problem)
    return None


def list_cached() -> tuple[int, frozenset[str]]:
    """A version of the folder, and the names of its files up to their first hyphen, after which
    there is a digest."""
    folder = get_cache_folder()
    if folder is None:
        return 0, frozenset()
    try:
        changed = folder.stat().st_mtime_ns
        now = time.time_ns()
        if now - changed < _CLOCK_STEP:  # more files may arrive with the same mtime
            changed = now
        return changed, _names(folder, changed)
    except OSError:  # it was removed
        return 0, frozenset()


@lru_cache(maxsize=1)
def _names(folder: Path, changed: int) -> frozenset[str]:  # noqa: ARG001
    return frozenset(name.partition("-")[0] for name in os.listdir(folder))  # noqa: PTH208


def write_cached(name: str, content: bytes, folder: Path | None = None) -> None:
    """Writes a file atomically, since other processes may read or write it."""
    folder = folder or get_cache_folder()
    if folder is None:
        return
    path = folder / name
    try:
        if not folder.exists():  # removed since this process started
            folder.mkdir(mode=0o700, parents=True)
        remove_leftovers(folder)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=_HALF_WRITTEN)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_build_head(name, content))
                file.write(content)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        why = _format_reason(error)
        warn_once(
            "writing",
            f"compiled kernels cannot be kept in {folder} ({why}): other processes compile them "
            f"again; make room there, {_OWN_FOLDER}",
        )


@lru_cache(maxsize=8)
def remove_leftovers(folder: Path) -> None:
    """Removes the partial files of killed writers, once per process."""
    for path in folder.glob(f"*{_HALF_WRITTEN}"):
        try:
            if time.time() - path.lstat().st_mtime > _ABANDONED:
                path.unlink()
        except OSError:  # another process was faster
            continue


def warn_of_rebuild(path: Path, why: str) -> None:
    """Warns that a file is ignored; it is overwritten when its content is built again."""
    warn_once("file", f"{path} {why}: such kernels are compiled and stored again")


def _build_head(name: str, content: bytes) -> bytes:
    """The name is part of the digest, so that a file cannot replace another one."""
    digest = hashlib.sha256(name.encode() + b"\0" + content).hexdigest()
    return _HEAD + digest.encode() + b"\n"
