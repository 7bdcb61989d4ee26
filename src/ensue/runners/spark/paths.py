"""Paths as Spark takes them.

Spark reads the path of a table as a pattern: `a[1]` is `a1` to it, so that a table of that name is
not found, or another one is. Its reader of state writes a path as a URI and takes that for the
path: a blank becomes `%20`. Writers take paths as they are.
"""

import atexit
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.errors import EventError, StateError
from ensue.runners.spark.checkpoint_files import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_PATTERNS = re.compile(r"([\[\]{}*?\\])")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_SERVER = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?=/)(//[^/]*)?")
_CHANGED = re.compile(r"""[\s\x00-\x1f\x7f\[\]{}\\^`|"<>%?#]""")  # by Spark's reader of state
_links: dict[str, str] = {}  # to checkpoints that it cannot read by their own names


def place(path: str | Path) -> str:
    """A path to write to, as Spark takes it.

    >>> place("a:b"), place("s3a://bucket/a"), place("/out/a:b")
    ('./a:b', 's3a://bucket/a', '/out/a:b')
    """
    text = str(path)
    if not text.strip() or "\0" in text:
        raise EventError(f"{text!r} is not the path of a folder")
    head, colon, _ = text.partition(":")  # what stands before it is no scheme, but part of a name
    named = colon and "/" not in head and not _SCHEME.match(text)
    return f"./{text}" if named else text


def literal(path: str | Path) -> str:
    r"""A path to read from, and nothing in it is a pattern.

    >>> print(literal("/out/a[1]"))
    /out/a\[1\]
    """
    text = place(path)
    odd = _OF_PATTERNS.search(text)
    if odd and ":" in _SERVER.sub("", text):
        raise EventError(
            f"Spark cannot read from a path with {odd[0]!r} and ':' in it: {path}\n"
            "  hint: leave out one of them"
        )
    return _OF_PATTERNS.sub(r"\\\1", text)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose state can be read."""

    named: str
    place: str  # where Spark's reader of state finds it


def readable(session: "SparkSession", checkpoint: str | Path) -> Checkpoint:
    """A checkpoint as Spark's reader of state takes it: where it must be, by a link to it."""
    require_readable(session, checkpoint)
    named = place(checkpoint)
    folder = local_path(named)
    if not _CHANGED.search(named) or folder is None or not folder.is_dir():
        return Checkpoint(str(checkpoint), named)
    target = str(folder.resolve())
    if target not in _links:
        beside = tempfile.mkdtemp(prefix="ensue-checkpoint-")
        atexit.register(shutil.rmtree, beside, ignore_errors=True)
        link = Path(beside) / "checkpoint"
        link.symlink_to(target, target_is_directory=True)
        _links[target] = str(link)
    return Checkpoint(str(checkpoint), _links[target])


def require_readable(session: "SparkSession", checkpoint: str | Path) -> None:
    """Raises StateError if the state in a checkpoint of that name could not be read."""
    named = place(checkpoint)
    odd = _CHANGED.search(named)
    if odd is None:
        return
    master = session.conf.get("spark.master", "") or ""
    here = local_path(named) is not None and master.startswith("local")
    if here and not _CHANGED.search(tempfile.gettempdir()):
        return
    raise StateError(
        f"Spark cannot read the state in a checkpoint with {odd[0]!r} in its path: {checkpoint}\n"
        "  hint: name the checkpoint with letters, digits, - and _; you can rename an "
        "existing one while its stream is stopped"
    )
