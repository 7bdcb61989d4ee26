"""Files that hold code: kept where only we may write, each with its digest, and read only so.

What cannot be trusted or read is never an error: it is made anew, or done without, and a warning
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
_ABANDONED = 3_600.0  # seconds after which a half written file has lost its writer
_A_MOMENT = 50_000_000  # nanoseconds within which two changes of a folder may look like one
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_CLOSED = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # no link, no waiting pipe
_OWN_FOLDER = "or set ENSUE_CACHE to a folder you own"


class CacheWarning(UserWarning):
    """Compiled code could not be kept or loaded as usual; the matches are the same without."""


_said: set[str] = set()


def warn_once(what: str, message: str) -> None:
    """Warns of one kind of trouble, the first time it is met in this process."""
    if what not in _said:
        _said.add(what)
        warnings.warn(message, CacheWarning, stacklevel=find_stacklevel())


@lru_cache(maxsize=1)
def get_cache_folder() -> Path | None:
    """Where compiled code is kept: below `ENSUE_CACHE` or the user's cache folder.

    If that cannot be, a folder of ours among the temporary ones; None where there is none either.
    """
    try:
        wanted = _wanted()
        trouble = _made_private(wanted)
    except RuntimeError:
        wanted, trouble = None, "there is no home folder: set ENSUE_CACHE to a folder you own"
    if wanted is not None and trouble is None:
        return wanted
    instead = _temporary()
    done = f"compiled kernels are kept in {instead}" if instead else "kernels are compiled again"
    warn_once("folder", f"{trouble}; until then {done}{'' if instead else ' in every process'}")
    return instead


def _wanted() -> Path:
    given = os.environ.get("ENSUE_CACHE")
    if given:
        return Path(given).absolute() / "compiled"
    home = Path.home()
    if not home.is_absolute():  # HOME is empty: this folder is not meant
        raise RuntimeError("no home folder")
    return home / ".cache" / "ensue" / "compiled"


def _temporary() -> Path | None:
    owner = os.geteuid() if hasattr(os, "geteuid") else "user"
    try:
        place = Path(tempfile.gettempdir()) / f"ensue-{owner}" / "compiled"
    except FileNotFoundError:
        return None
    return place if _made_private(place.parent) is None and _made_private(place) is None else None


def _made_private(place: Path) -> str | None:
    """Makes a folder that we alone write to; if that cannot be, why and what helps."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return _trouble(place, error)
    found = place.lstat()
    if stat.S_ISLNK(found.st_mode):
        return f"the cache folder {place} is a link: remove it, {_OWN_FOLDER}"
    strange = find_trust_problem(found)
    if strange is not None:
        mended = "" if "belongs" in strange else f"run: chmod go-w '{place}', "
        mended = mended or "remove it, "
        return f"the cache folder {place} {strange}: {mended}{_OWN_FOLDER}"
    try:
        with tempfile.TemporaryFile(dir=place):
            return None
    except OSError as error:
        return _trouble(place, error)


def _trouble(place: Path, error: OSError) -> str:
    why = (error.strerror or str(error)).lower()
    return f"the cache folder {place} cannot be used ({why}): fix that, {_OWN_FOLDER}"


def find_trust_problem(found: os.stat_result) -> str | None:
    """Why what is in a file or folder might be the work of others, if it might."""
    if not hasattr(os, "geteuid"):  # Windows: the user's folders are closed to others
        return None
    if found.st_uid != os.geteuid():
        return f"belongs to another user ({found.st_uid})"
    if found.st_mode & _OTHERS_WRITE:
        return "can be written by others"
    return None


def read_cached(name: str, place: Path | None = None) -> bytes | None:
    """The content of a kept file, or None if there is none that is whole and ours."""
    place = place or get_cache_folder()
    if place is None:
        return None
    path = place / name
    try:
        handle = os.open(path, os.O_RDONLY | _CLOSED | _PLAIN)
    except FileNotFoundError:
        return None
    except OSError as error:
        warn_of_rebuild(path, f"cannot be read ({(error.strerror or str(error)).lower()})")
        return None
    try:
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                warn_of_rebuild(path, "is no plain file")
                return None
            strange = find_trust_problem(found)
            if strange is not None:
                warn_of_rebuild(path, strange)
                return None
            head = file.read(len(_HEAD) + _DIGEST + 1)
            content = file.read() if head.startswith(_HEAD) else b""
    except OSError as error:
        warn_of_rebuild(path, f"cannot be read ({(error.strerror or str(error)).lower()})")
        return None
    if head != _head(name, content):
        warn_of_rebuild(path, "is damaged")
        return None
    return content


def list_cached() -> tuple[int, frozenset[str]]:
    """What tells one state of the folder from another, and the names of its files, each up to
    its first hyphen, behind which is a digest."""
    place = get_cache_folder()
    if place is None:
        return 0, frozenset()
    try:
        changed = place.stat().st_mtime_ns
        now = time.time_ns()
        if now - changed < _A_MOMENT:  # more files may come in this moment of the clock
            changed = now
        return changed, _names(place, changed)
    except OSError:  # it was removed
        return 0, frozenset()


@lru_cache(maxsize=1)
def _names(place: Path, changed: int) -> frozenset[str]:  # noqa: ARG001
    return frozenset(name.partition("-")[0] for name in os.listdir(place))  # noqa: PTH208


def write_cached(name: str, content: bytes, place: Path | None = None) -> None:
    """Keeps a file, as a whole or not at all; others may be reading or writing it."""
    place = place or get_cache_folder()
    if place is None:
        return
    path = place / name
    try:
        if not place.exists():  # removed since this process began
            place.mkdir(mode=0o700, parents=True)
        remove_leftovers(place)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        handle, temporary = tempfile.mkstemp(dir=place, suffix=_HALF_WRITTEN)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_head(name, content))
                file.write(content)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        warn_once(
            "writing",
            f"compiled kernels cannot be kept in {place} ({why}): other processes compile them "
            f"again; make room there, {_OWN_FOLDER}",
        )


@lru_cache(maxsize=8)
def remove_leftovers(place: Path) -> None:
    """Removes what writers have left that were killed, once in a process."""
    for left in place.glob(f"*{_HALF_WRITTEN}"):
        try:
            if time.time() - left.lstat().st_mtime > _ABANDONED:
                left.unlink()
        except OSError:  # another process was quicker
            continue


def warn_of_rebuild(path: Path, why: str) -> None:
    """That a file is left aside; it is written again when its content is made anew."""
    warn_once(
        "file", f"{path} {why}: its kernel, and any other that is so, is compiled and kept anew"
    )


def _head(name: str, content: bytes) -> bytes:
    """The name is part of the digest: a file does not pass for another one."""
    digest = hashlib.sha256(name.encode() + b"\0" + content).hexdigest()
    return _HEAD + digest.encode() + b"\n"
