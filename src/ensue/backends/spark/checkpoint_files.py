"""Checks the files of a checkpoint before a stream continues from it.

Spark reads them one by one while it runs. For most kinds of damage it only reports a parser error;
it does not notice a missing log of input files at all, and takes new files for known ones.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from ensue.errors import StateError

HEAD_VARIABLE = "ensue_head"  # a state variable of every key group
_SCHEMA = re.compile(r'("file:[^"]+/state/\d+/_stateSchema/[^"]+")')
_TABLE = ("_delta_log", "_spark_metadata")
NEW_FOLDER_HINT = "name a new folder; the stream then starts over, and a table gets no match twice"
_REPAIR = f"restore the folder from a copy, or {NEW_FOLDER_HINT}"


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
