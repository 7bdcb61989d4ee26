"""Paths of outputs and checkpoints, in the form that Spark expects.

Spark reads the path of a table as a glob: `a[1]` means `a1`. Its state reader converts a path to
a URI and uses that as the path: a blank becomes `%20`. Writers use paths unchanged.
"""

import atexit
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa

from ensue.backends.spark.checkpoint_files import local_path
from ensue.errors import EventError, StateError
from ensue.runtime.query_spec import Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GLOB_CHARACTERS = re.compile(r"([\[\]{}*?\\])")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_SERVER = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?=/)(//[^/]*)?")
_URI_ESCAPED = re.compile(r"""[\s\x00-\x1f\x7f\[\]{}\\^`|"<>%?#]""")  # by Spark's state reader
_links: dict[str, str] = {}  # to checkpoints whose paths it cannot read


def normalize_path(path: str | Path) -> str:
    """Return a path to write to, as Spark expects it.

    >>> normalize_path("a:b"), normalize_path("s3a://bucket/a"), normalize_path("/out/a:b")
    ('./a:b', 's3a://bucket/a', '/out/a:b')
    """
    text = str(path)
    if not text.strip() or "\0" in text:
        raise EventError(f"{text!r} is not the path of a folder")
    head, colon, _ = text.partition(":")  # `head` is part of a name, not a scheme
    named = colon and "/" not in head and not _SCHEME.match(text)
    return f"./{text}" if named else text


def escape_path(path: str | Path) -> str:
    r"""Escape a path to read from, so that nothing in it is a glob.

    >>> print(escape_path("/out/a[1]"))
    /out/a\[1\]
    """
    text = normalize_path(path)
    odd = _GLOB_CHARACTERS.search(text)
    if odd and ":" in _SERVER.sub("", text):
        raise EventError(
            f"Spark cannot read from a path with {odd[0]!r} and ':' in it: {path}\n  hint: leave out one of them"
        )
    return _GLOB_CHARACTERS.sub(r"\\\1", text)


@dataclass(frozen=True, slots=True)
class ReadableCheckpoint:
    """A checkpoint with a path that Spark's state reader accepts."""

    named: str
    place: str  # for Spark's state reader


def make_readable(session: "SparkSession", checkpoint: str | Path) -> ReadableCheckpoint:
    """Return a checkpoint for Spark's state reader, through a symbolic link if necessary."""
    require_readable(session, checkpoint)
    path = normalize_path(checkpoint)
    folder = local_path(path)
    if not _URI_ESCAPED.search(path) or folder is None or not folder.is_dir():
        return ReadableCheckpoint(str(checkpoint), path)
    target = str(folder.resolve())
    if target not in _links:
        link_folder = tempfile.mkdtemp(prefix="ensue-checkpoint-")
        atexit.register(shutil.rmtree, link_folder, ignore_errors=True)
        link = Path(link_folder) / "checkpoint"
        link.symlink_to(target, target_is_directory=True)
        _links[target] = str(link)
    return ReadableCheckpoint(str(checkpoint), _links[target])


def require_readable(session: "SparkSession", checkpoint: str | Path) -> None:
    """Raise StateError if the state of a checkpoint at that path could not be read."""
    path = normalize_path(checkpoint)
    odd = _URI_ESCAPED.search(path)
    if odd is None:
        return
    master = session.conf.get("spark.master", "") or ""
    is_local = local_path(path) is not None and master.startswith("local")
    if is_local and not _URI_ESCAPED.search(tempfile.gettempdir()):
        return
    raise StateError(
        f"Spark cannot read the state in a checkpoint with {odd[0]!r} in its path: {checkpoint}\n"
        "  hint: name the checkpoint with letters, digits, - and _; you can rename an "
        "existing one while its stream is stopped"
    )


def get_local_folder(session: "SparkSession", place: str) -> Path | None:
    """Return the local path of a folder; None if it is on another file system, or perhaps on
    another machine, with Spark Connect."""
    remote = type(session).__module__.startswith("pyspark.sql.connect")
    return None if remote else local_path(place)


# ------------------------------------------------------------------------- folders by query name

MAX_NAME_BYTES = 200  # of a name: file systems allow 255, and suffixes are added


def name_folders(names: Iterable[Name], top: str) -> dict[Name, str]:
    """Return the folder name of each query or level; `top` stands for an unnamed one.

    The names are unique, also on file systems that ignore case.

    >>> name_folders(["theft", 3, ""], top="matches")
    {'theft': 'theft', 3: '3', '': 'matches'}
    >>> name_folders([".."], top="matches")
    Traceback (most recent call last):
    ensue.errors.EventError: query '..': its name cannot be used for a folder: it is outside
    ...
    """
    folder_names: dict[Name, str] = {}
    taken: dict[str, Name] = {}
    for name in names:
        folder = str(name) or top
        if reason := _find_name_problem(folder):
            raise EventError(f"{_format_name(name)}: its name cannot be used for a folder: {reason}{_HINT}")
        normalized = unicodedata.normalize("NFC", folder).casefold()
        if normalized in taken:
            other = taken[normalized]
            raise EventError(f"{_format_name(other)} and {_format_name(name)} would share the folder '{folder}'{_HINT}")
        taken[normalized] = name
        folder_names[name] = folder
    return folder_names


_HINT = "\n  hint: give it another name, or use a separate output for each"


def _format_name(name: Name) -> str:
    if name == "":
        return "the query without a name"
    shown = repr(name) if isinstance(name, str) else str(name)
    return f"query {shown if len(shown) < 80 else shown[:76] + '...' + shown[-1]}"


def _find_name_problem(name: str) -> str:
    """Return why a text cannot be the name of an output folder; empty if it can."""
    if name in (".", ".."):
        return "it is outside the output folder"
    if name != name.strip():
        return "it begins or ends with a blank"
    for character in name:
        if character in "/\\":
            return f"it has a {character}"
        if not character.isprintable():
            return f"it has the character {character!r}"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"it has more than {MAX_NAME_BYTES} bytes"
    return ""


# ------------------------------------------------------------------------- small text files


def read_text_file(session: "SparkSession", place: str) -> str | None:
    """Read a text file of `put_text`; None if there is none."""
    from pyspark.errors import AnalysisException

    try:
        text = session.read.text(escape_path(place), wholetext=True).collect()[0][0]
        return str(text).removesuffix("\n")  # which Spark's text writer adds
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    except IndexError:  # the writer was killed before it wrote the file
        return None


def write_text_file(session: "SparkSession", place: str, text: str) -> None:
    """Write a text file, replacing an existing one."""
    table = session.createDataFrame(pa.table({"value": [text]})).coalesce(1)
    table.write.mode("overwrite").text(place)


# ------------------------------------------------------------------------- separate folders


@dataclass(frozen=True, slots=True)
class StreamFolder:
    """A folder that a stream writes to."""

    role: str  # as errors name it
    place: str
    table: bool = False  # readers take all files in it as one table
    stays: bool = False  # it is in use and cannot be moved

    @property
    def path(self) -> PurePath:
        """The path on this machine or on another file system.

        >>> StreamFolder("output", "s3://bucket/found/").path
        PurePosixPath('s3:/bucket/found')
        """
        local = local_path(self.place)
        if local is None:
            return PurePosixPath(self.place.replace("://", ":/", 1))
        return local.absolute()


def require_separate(folders: Sequence[StreamFolder]) -> None:
    """Raise EventError if two folders are the same, or one is inside a table."""
    for inner, outer in permutations(folders, 2):
        if inner.path == outer.path:
            raise EventError(
                f"the {inner.role} and the {outer.role} are the same folder, {inner.place}\n"
                "  hint: use separate folders"
            )
        inside = outer.path in inner.path.parents and not _is_hidden(inner, outer)
        if outer.table and inside and not inner.stays:
            raise EventError(
                f"the {inner.role} {inner.place} is inside the {outer.role} {outer.place}, "
                "which is read as a table with everything in it\n"
                "  hint: use separate folders, one next to the other"
            )


def _is_hidden(inner: StreamFolder, outer: StreamFolder) -> bool:
    """Whether Spark skips a folder when it reads the table: `found/_state`."""
    parts = inner.path.relative_to(outer.path).parts
    return parts[0].startswith(("_", "."))
