"""What a stream's archives were when it began, written down beside its checkpoint.

A stream goes on with the versions that it began with, so that a micro-batch that is repeated finds
what it found before; and with the moment at which its own archive ended. All of it is written
before the first micro-batch, which may be repeated, too.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from ensue.archives.contract import Archive
from ensue.archives.opening import again
from ensue.archives.stored import FileArchive
from ensue.archives.writing import claim, require_described
from ensue.errors import EventError, StateError
from ensue.runners.spark.kept_texts import put_text, text_at
from ensue.runners.spark.recipes import Recipe
from ensue.workload.lanes.clock import length_in
from ensue.workload.stage import Archiving
from ensue.workload.workload import Workload

FOLDER = "ensue-archives"  # in a checkpoint
FORMAT = 1
ROWS = 50_000  # recent events of a lane that are archived together


@dataclass(frozen=True)
class Wanted:
    """The archive that a stream is to write, and when."""

    archive: str | Archive | None = None  # None: the one that `match` was told of
    rows: int | None = None
    age: Any = None

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 1:
            raise EventError(f"archive_rows={self.rows}: it must be at least 1")


@dataclass(frozen=True)
class Pinned:
    """A stream whose archives are those that it began with."""

    recipe: Recipe
    writer: str | None  # under which it commits to its own archive

    @property
    def archive(self) -> FileArchive:
        """The one that it writes."""
        return _own(self.recipe.workload)


def pinned(recipe: Recipe, checkpoint: str, wanted: Wanted) -> Pinned:
    """The stream with the archives of its checkpoint; those of a new one are written down."""
    recipe = replace(recipe, workload=_owning(recipe.workload, wanted))
    workload, session = recipe.workload, recipe.frame.sparkSession
    if not workload.pasts.archives:
        return Pinned(recipe, None)
    place = f"{checkpoint.rstrip('/')}/{FOLDER}"
    writer = None if workload.pasts.own is None else _writer(session, place, checkpoint)
    if writer is not None:
        claim(_own(workload), writer)
    text = text_at(session, f"{place}/pins")
    if text is None:
        workload, settings = _fresh(workload, wanted)
        put_text(session, f"{place}/pins", json.dumps(_described(workload, settings)))
    else:
        workload, settings = _as_before(workload, wanted, json.loads(text), checkpoint)
    if workload.pasts.own is not None:
        age = settings["age"]
        if age is not None:
            age = length_in(age, workload.source.shape, "archive_age")
        archiving = Archiving(_own(workload), settings["rows"], age)
        pasts = replace(workload.pasts, archiving=archiving)
        workload = replace(workload, pasts=pasts)
    return Pinned(replace(recipe, workload=workload), writer)


def _owning(workload: Workload, wanted: Wanted) -> Workload:
    """The workload whose events belong to the archive that is asked for."""
    pasts, archive = workload.pasts, wanted.archive
    if archive is None:
        if (wanted.rows is not None or wanted.age is not None) and pasts.own is None:
            raise EventError("archive_rows= and archive_age= need archive=, the archive to write")
        return workload
    name = archive if isinstance(archive, str) else _name_of(archive, pasts.archives)
    if pasts.own is not None and pasts.own != name:
        raise EventError(
            f"the events belong to the archive '{pasts.own}', and are to be written to '{name}'\n"
            "  hint: leave out archive= in one of the calls"
        )
    if isinstance(archive, str) and name not in pasts.archives:
        raise EventError(
            f"archive={name!r} is not one of the archives of ensue.match\n"
            "  hint: pass the result of ensue.archive"
        )
    given = pasts.given[name] if isinstance(archive, str) else archive
    return workload if pasts.own == name else workload.owning(name, given)


def _name_of(archive: Archive, archives: Mapping[str, Archive]) -> str:
    if not hasattr(type(archive), "described"):  # of Connect's DataFrames any name is a column
        raise EventError(
            "archive= must be the name of an archive, or the result of ensue.archive, not "
            f"{archive!r}"
        )
    where = archive.described()["place"]
    for name, known in archives.items():
        if known is archive or known.described()["place"] == where:
            return name
    return "archive"


def _own(workload: Workload) -> FileArchive:
    assert workload.pasts.own is not None
    archive = workload.pasts.archives[workload.pasts.own]
    if not isinstance(archive, FileArchive):
        raise StateError(
            f"the archive '{workload.pasts.own}' is not a table that Ensue writes\n"
            "  hint: ensue archive create makes one"
        )
    if archive.source.version is not None:
        raise StateError(
            f"the archive '{workload.pasts.own}' is fixed to version {archive.source.version}, "
            "but a stream adds to the one it writes\n  hint: leave out version="
        )
    return archive


def _writer(session: SparkSession, place: str, checkpoint: str) -> str:
    """Under which name the stream of a checkpoint writes, for as long as it is used."""
    known = text_at(session, f"{place}/writer")
    if known is None:
        known = f"{checkpoint} {uuid.uuid4().hex[:12]}"
        put_text(session, f"{place}/writer", known)
    return known


def _fresh(workload: Workload, wanted: Wanted) -> tuple[Workload, dict[str, Any]]:
    settings = {"rows": ROWS if wanted.rows is None else wanted.rows, "age": wanted.age}
    # nobody else writes the own archive any more: now it is known where it ends
    return workload.renewed(), settings


def _described(workload: Workload, settings: Mapping[str, Any]) -> dict[str, Any]:
    pasts = workload.pasts
    return {
        "format": FORMAT,
        "archives": {name: archive.described() for name, archive in pasts.archives.items()},
        "own": pasts.own,
        "cut": pasts.cut,
        "settings": dict(settings),
    }


def _as_before(
    workload: Workload, wanted: Wanted, pins: Mapping[str, Any], checkpoint: str
) -> tuple[Workload, dict[str, Any]]:
    if pins["format"] != FORMAT:
        raise StateError(
            f"the archives of the checkpoint {checkpoint} were written down in format "
            f"{pins['format']}, this release reads {FORMAT}\n  hint: start with a new checkpoint"
        )
    pasts, settings = workload.pasts, dict(pins["settings"])
    if pins["own"] != pasts.own:
        raise StateError(
            f"the stream of the checkpoint {checkpoint} began with archive={pins['own']!r}, not "
            f"{pasts.own!r}\n  hint: pass the same archive=, or name a new checkpoint"
        )
    for name, given in (("rows", wanted.rows), ("age", wanted.age)):
        if given is not None and given != settings[name]:
            raise StateError(
                f"the stream of the checkpoint {checkpoint} began with "
                f"archive_{name}={settings[name]!r}, not {given!r}: a repeated "
                "micro-batch has to archive the same events\n"
                f"  hint: pass the same archive_{name}=, or name a new checkpoint"
            )
    archives = dict(pasts.archives)
    for name, described in pins["archives"].items():
        if name not in archives:
            raise StateError(
                f"the stream of the checkpoint {checkpoint} began with an archive '{name}'\n"
                "  hint: pass the same archives=, or name a new checkpoint"
            )
        archives[name] = _again(archives[name], described)
    pasts = replace(pasts, archives=archives, cut=pins["cut"])
    return replace(workload, pasts=pasts), settings


def _again(archive: Archive, described: Mapping[str, Any]) -> Archive:
    """An archive as it was when the stream began."""
    if not isinstance(archive, FileArchive):
        if archive.described() != described:
            raise StateError(
                "an archive of the stream is a table in memory, and holds different events than "
                "when "
                "the stream began\n  hint: name a new checkpoint, or pass the path of a table"
            )
        return archive
    require_described(archive, described)
    return again(described)
