"""The folders of a stream, outputs and checkpoint: their paths in the form that Spark expects, and their files.

Spark reads the path of a table as a glob: `a[1]` means `a1`. Its state reader converts a path to
a URI and uses that as the path: a blank becomes `%20`. Writers use paths unchanged.
"""

import atexit
import json
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow as pa

from ensue.errors import EventError, StateError
from ensue.runtime.query_spec import Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GLOB_CHARACTERS = re.compile(r"([\[\]{}*?\\])")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_SERVER = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?=/)(//[^/]*)?")
_URI_ESCAPED = re.compile(r"""[\s\x00-\x1f\x7f\[\]{}\\^`|"<>%?#]""")  # by Spark's state reader
_links: dict[str, str] = {}  # to checkpoints whose paths it cannot read


def local_path(place: str) -> Path | None:
    """Return the local path of a folder; None if it is on another file system.

    Spark does not unescape a path after `file:`, not even `%20`.

    >>> local_path("s3://bucket/state") is None
    True
    >>> local_path("file:///tmp/state") == local_path("/tmp/state") == Path("/tmp/state")
    True
    """
    if place.startswith("file:/"):
        return Path("/" + place.removeprefix("file:").lstrip("/"))
    scheme = urlparse(place).scheme
    if len(scheme) > 1 and place.startswith(f"{scheme}:/"):  # one letter is a Windows drive
        return None
    return Path(place)


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


# ------------------------------------------------------------------------- the files of a checkpoint
#
# They are checked before a stream continues from it. Spark reads them one by one while it runs. For
# most kinds of damage it only reports a parser error; it does not notice a missing log of input files
# at all, and takes new files for known ones.

HEAD_VARIABLE = "ensue_head"  # a state variable of every key group
_SCHEMA = re.compile(r'("file:[^"]+/state/\d+/_stateSchema/[^"]+")')
_TABLE = ("_delta_log", "_spark_metadata")
NEW_FOLDER_HINT = "name a new folder; the stream then starts over, and a table gets no match twice"
_REPAIR = f"restore the folder from a copy, or {NEW_FOLDER_HINT}"


def check_checkpoint(place: str) -> None:
    """Raise StateError unless a stream can start with this folder or continue from it."""
    folder = local_path(place)
    if folder is None or not folder.exists():
        return
    if not folder.is_dir():
        raise StateError(
            f"the checkpoint {place} is a file, and a checkpoint must be a folder\n"
            "  hint: name a new folder, or the one this stream began with"
        )
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise StateError(
            f"the checkpoint {place} cannot be written: no permission\n"
            "  hint: give this user access to the folder, or name another one"
        )
    begun, done = (max(_numbers(folder / log), default=-1) for log in ("offsets", "commits"))
    if max(begun, done) < 0:
        _require_no_table(place, folder)
        return
    if _json(_text(folder / "metadata")) is None:
        raise _build_damage_error(place, "metadata", folder)
    if begun < done:
        raise _build_damage_error(place, f"offsets/{done}", folder)
    offsets = _log(folder, f"offsets/{begun}", place)
    if done >= 0:
        _log(folder, f"commits/{done}", place)
    _require_sources(folder, place, offsets[1:])
    read = _log(folder, f"offsets/{done}", place)[1:] if done >= 0 else []
    _require_unread_files(folder, read)
    if done >= 0:
        _require_state(folder, place)


def has_commits(folder: Path) -> bool:
    """Whether a stream has finished a micro-batch with this checkpoint."""
    return next(_numbers(folder / "commits"), None) is not None


def _numbers(folder: Path) -> Iterator[int]:
    """Yield the numbers of files such as `7` or `9.compact`, without hidden checksum files."""
    if folder.is_dir():
        for path in folder.iterdir():
            number = path.name.removesuffix(".compact")
            if number.isdecimal():
                yield int(number)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""  # which is not JSON either


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _log(folder: Path, name: str, place: str) -> list[Any]:
    """Read a log file: a version, then one value a line, `-` for none."""
    version, *lines = _text(folder / name).splitlines() or [""]
    values = [None if line == "-" else _json(line) for line in lines]
    broken = any(v is None and line != "-" for v, line in zip(values, lines, strict=True))
    if broken or not values or not version.startswith("v"):
        raise _build_damage_error(place, name, folder)
    return values


def _require_sources(folder: Path, place: str, offsets: list[Any]) -> None:
    """Raise StateError if the file log of a source ends before its offset.

    A stream that is read twice has two offsets and one log. Then it is unknown which log belongs
    to which offset, but the longest one must reach the offset.
    """
    logs = {int(p.name): max(_numbers(p), default=-1) for p in (folder / "sources").glob("[0-9]*")}
    furthest = max(logs.values(), default=-1)
    for number, offset in enumerate(offsets):
        read = offset.get("logOffset") if isinstance(offset, dict) else None
        if not isinstance(read, int):
            continue  # not a source of files
        newest = logs.get(number, -1) if len(logs) == len(offsets) else furthest
        if newest < read:
            raise _build_damage_error(place, f"sources/{number}/{read}", folder)
        name = f"sources/{number}/{newest}"
        if (folder / name).exists():
            _log(folder, name, place)


def _require_unread_files(folder: Path, read: list[Any]) -> None:
    """Raise StateError if a file of a planned, unfinished micro-batch is missing.

    Spark checks files when it plans a micro-batch but not when it repeats one, and would skip a
    missing file. `read` are the offsets of the last finished micro-batch.
    """
    offsets = [offset.get("logOffset", -1) if isinstance(offset, dict) else -1 for offset in read]
    logs = list((folder / "sources").glob("[0-9]*"))
    least = min((offset for offset in offsets if offset >= 0), default=-1)
    for log in logs:
        own = offsets[int(log.name)] if len(logs) == len(offsets) else least
        for path in log.iterdir():
            number = path.name.removesuffix(".compact")
            if not number.isdecimal() or int(number) <= own:
                continue
            for line in _text(path).splitlines()[1:]:
                entry = _json(line)
                if not isinstance(entry, dict) or entry.get("batchId", -1) <= own:
                    continue
                file = local_path(unquote(str(entry.get("path"))))
                if file is not None and not file.exists():
                    raise StateError(
                        f"a file that the stream still has to read is missing: {file}\n"
                        "  hint: restore it; Spark would skip it, and its matches would be "
                        "missing. To continue without it, name a new folder for the checkpoint"
                    )


def _require_state(folder: Path, place: str) -> None:
    """Raise StateError unless the state belongs to an Ensue query and its metadata is intact."""
    metadata_files = [path for path in (folder / "state").glob("[0-9]*/_metadata/*/*") if not path.name.startswith(".")]
    texts = [_text(path) for path in metadata_files]
    for path, text in zip(metadata_files, texts, strict=True):
        if not text or _json(text.splitlines()[-1]) is None:
            raise _build_damage_error(place, str(path.relative_to(folder)), folder)
    if any(HEAD_VARIABLE in text for text in texts):
        for name in _SCHEMA.findall("".join(texts)):
            schema = local_path(str(_json(name)))
            if schema is not None:
                _require_schema(place, schema)
        return
    raise StateError(
        f"the checkpoint {place} has no state of an Ensue query: it belongs to another stream, "
        "or its state folder is missing\n"
        f"  hint: every stream needs its own checkpoint; {NEW_FOLDER_HINT}"
    )


def _require_schema(place: str, path: Path) -> None:
    """Check the schema file of the state variables, whose damage Spark does not report.

    It is missing if the checkpoint was moved: Spark stores its first path.
    """
    checkpoint = path.parents[4]
    name = str(path.relative_to(checkpoint))
    if not path.exists():
        raise StateError(
            f"the checkpoint {place} was begun as {checkpoint}, and Spark looks for a part "
            f"of it there: {name} is missing\n"
            "  hint: a checkpoint cannot be moved; move it back, or name a new one"
        )
    text = path.read_bytes().decode("utf-8", "replace")
    end = 0
    while (start := text.find("{", end)) >= 0:
        try:
            _, end = json.JSONDecoder().raw_decode(text, start)
        except ValueError:
            end = 0
            break
    if not end or HEAD_VARIABLE not in text:
        raise _build_damage_error(place, name, checkpoint)


def _require_no_table(place: str, folder: Path) -> None:
    inside = next((p.name for p in folder.iterdir() if p.name in _TABLE or p.suffix == ".parquet"), None)
    if inside is not None:
        raise StateError(
            f"the checkpoint {place} is a folder of data: it contains {inside}\n"
            "  hint: use a separate folder for the checkpoint, a new one or the one this stream "
            "began with"
        )


def _build_damage_error(place: str, name: str, folder: Path) -> StateError:
    how = "is empty, truncated or overwritten" if (folder / name).exists() else "is missing"
    return StateError(f"the checkpoint {place} is damaged: {name} {how}\n  hint: {_REPAIR}")
