"""The archive versions that a stream is pinned to.

A stream keeps the archive versions, and the end of its own archive, that it started with, so that
a repeated micro-batch finds the same matches. They are stored beside the checkpoint before the
first micro-batch.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from ensue.archives.archive import Archive
from ensue.archives.delta_writer import claim, require_same_archive
from ensue.archives.factory import reopen_archive
from ensue.archives.file_archive import FileArchive
from ensue.backends.spark.stream_folders import read_text_file, write_text_file
from ensue.errors import EventError, StateError
from ensue.options import ArchiveWriter
from ensue.runtime.stage import ArchiveSink
from ensue.runtime.tasks.watermark import convert_length
from ensue.runtime.workload import Workload

FOLDER = "ensue-archives"  # in a checkpoint
FORMAT = 1
ARCHIVE_ROWS = 50_000  # recent events of a key group that are archived together


def pin_archives(
    session: SparkSession, workload: Workload, checkpoint: str, writing: ArchiveWriter | None
) -> tuple[Workload, str | None]:
    """Pin a stream to the archive versions of its checkpoint, or store them in a new one.

    Returns also the name under which it commits to its own archive.
    """
    workload = _with_own_archive(workload, writing)
    settings: dict[str, Any]
    if not workload.archive_set.archives:
        return workload, None
    place = f"{checkpoint.rstrip('/')}/{FOLDER}"
    writer = None if workload.archive_set.own is None else _writer(session, place, checkpoint)
    if writer is not None:
        claim(get_own_archive(workload), writer)
    text = read_text_file(session, f"{place}/pins")
    if text is None:
        rows, age = (None, None) if writing is None else (writing.rows, writing.age)
        # the archive is claimed, so its end is fixed now
        workload, settings = workload.renew(), {"rows": ARCHIVE_ROWS if rows is None else rows, "age": age}
        archive_set = workload.archive_set
        archives = {name: archive.describe() for name, archive in archive_set.archives.items()}
        pins = {"archives": archives, "own": archive_set.own, "cut": archive_set.cut, "settings": settings}
        write_text_file(session, f"{place}/pins", json.dumps({"format": FORMAT} | pins))
    else:
        workload, settings = _pin_as_stored(workload, writing, json.loads(text), checkpoint)
    if workload.archive_set.own is not None:
        age = settings["age"]
        if age is not None:
            age = convert_length(age, workload.source.shape, "age")
        archiving = ArchiveSink(get_own_archive(workload), settings["rows"], age)
        archive_set = replace(workload.archive_set, archiving=archiving)
        workload = replace(workload, archive_set=archive_set)
    return workload, writer


def _with_own_archive(workload: Workload, writing: ArchiveWriter | None) -> Workload:
    """Return the workload with the archive that its events are written to."""
    if writing is None:
        return workload
    archive_set, archive = workload.archive_set, writing.archive
    name = archive if isinstance(archive, str) else _find_name(archive, archive_set.archives)
    if archive_set.own is not None and archive_set.own != name:
        raise EventError(
            f"the events belong to the archive '{archive_set.own}', but archive= names '{name}'\n"
            "  hint: leave out archive= in one of the calls"
        )
    if isinstance(archive, str) and name not in archive_set.archives:
        raise EventError(
            f"archive={name!r} is not one of the archives of ensue.match\n  hint: pass the result of ensue.archive"
        )
    unpinned = archive_set.unpinned[name] if isinstance(archive, str) else archive
    return workload if archive_set.own == name else workload.with_own_archive(name, unpinned)


def _find_name(archive: Archive, archives: Mapping[str, Archive]) -> str:
    if not hasattr(type(archive), "layout"):  # DataFrames have a method describe, too
        raise EventError(f"archive= must be the name of an archive, or the result of ensue.archive, not {archive!r}")
    where = archive.describe()["place"]
    for name, known in archives.items():
        if known is archive or known.describe()["place"] == where:
            return name
    return "archive"


def get_own_archive(workload: Workload) -> FileArchive:
    assert workload.archive_set.own is not None
    archive = workload.archive_set.archives[workload.archive_set.own]
    if not isinstance(archive, FileArchive):
        raise StateError(
            f"the archive '{workload.archive_set.own}' is not a table that Ensue writes\n"
            "  hint: ensue archive create makes one"
        )
    return archive


def _writer(session: SparkSession, place: str, checkpoint: str) -> str:
    """Return the permanent writer name of the stream of a checkpoint."""
    known = read_text_file(session, f"{place}/writer")
    if known is None:
        known = f"{checkpoint} {uuid.uuid4().hex[:12]}"
        write_text_file(session, f"{place}/writer", known)
    return known


def _pin_as_stored(
    workload: Workload, writing: ArchiveWriter | None, pins: Mapping[str, Any], checkpoint: str
) -> tuple[Workload, dict[str, Any]]:
    if pins["format"] != FORMAT:
        raise StateError(
            f"the archives of the checkpoint {checkpoint} were stored in format "
            f"{pins['format']}, this release reads {FORMAT}\n  hint: start with a new checkpoint"
        )
    archive_set, settings = workload.archive_set, dict(pins["settings"])
    if pins["own"] != archive_set.own:
        raise StateError(
            f"the stream of the checkpoint {checkpoint} began with archive={pins['own']!r}, not "
            f"{archive_set.own!r}\n  hint: pass the same archive=, or name a new checkpoint"
        )
    for name, known in settings.items():
        value = getattr(writing, name, None)
        if value is not None and value != known:
            raise StateError(
                f"the stream of the checkpoint {checkpoint} began with "
                f"{name}={known!r} for its archive, not {value!r}: a repeated "
                "micro-batch has to archive the same events\n"
                f"  hint: ensue.ArchiveWriter(..., {name}={known!r}), or name a new checkpoint"
            )
    archives = dict(archive_set.archives)
    for name, described in pins["archives"].items():
        if name not in archives:
            raise StateError(
                f"the stream of the checkpoint {checkpoint} began with an archive '{name}'\n"
                "  hint: pass the same archives=, or name a new checkpoint"
            )
        archives[name] = _reopen(archives[name], described)
    archive_set = replace(archive_set, archives=archives, cut=pins["cut"])
    return replace(workload, archive_set=archive_set), settings


def _reopen(archive: Archive, described: Mapping[str, Any]) -> Archive:
    """Open an archive in the version that the stream started with."""
    if not isinstance(archive, FileArchive):
        if archive.describe() != described:
            raise StateError(
                "an archive of the stream is a table in memory, and its events have changed since "
                "the stream began\n  hint: name a new checkpoint, or pass the path of a table"
            )
        return archive
    require_same_archive(archive, described)
    return reopen_archive(described)
