"""An archive that consists of files, whatever lists them."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

import pyarrow.compute as pc

from ensue.archives.clustering import clustered
from ensue.archives.contract import Layout, Read, Wanted
from ensue.archives.files import Files
from ensue.archives.footers import MissingFileError
from ensue.archives.reading import Stored, read
from ensue.columns.stream import Shape
from ensue.errors import EventError


class Source(Protocol):
    """Who knows the files of a table: a log, a folder, a catalogue. It is frozen and picklable."""

    @property
    def kind(self) -> str:
        """delta, parquet or iceberg."""

    @property
    def place(self) -> str:
        """As the user wrote it."""

    @property
    def version(self) -> str | None:
        """The version that it is pinned to."""

    def pinned(self) -> "Source":
        """It as it is now."""

    def files(self) -> Files:
        """The files of its version, or those that are there now."""

    def described(self) -> dict[str, object]:
        """What it needs, beside kind, place and version, to be found again."""

    def partitioned_by(self) -> tuple[str, ...]:
        """The columns by which files lie apart."""


@dataclass(frozen=True, eq=False)
class FileArchive:
    """A table of past events in Parquet files."""

    source: Source
    shape: Shape
    key: tuple[str, ...]
    stored: Stored
    complete: object | None = None
    engine: str | None = None  # what decodes rows: "duckdb", "pyarrow", None: what is there

    @property
    def place(self) -> str:
        return self.source.place

    def pinned(self) -> "FileArchive":
        """It as it is now: whatever is written later is not seen."""
        return replace(self, source=self.source.pinned())

    def described(self) -> dict[str, object]:
        """As plain values, with the version it is pinned to."""
        schema = self.shape.schema
        return {
            "kind": self.source.kind,
            "place": self.source.place,
            "version": self.source.version,
            "time": [schema.start, schema.end],
            "type": schema.type_column,
            "key": list(self.key),
            "order": list(schema.order),
            "buckets": self.stored.buckets,
            **self.source.described(),
        }

    def layout(self) -> Layout:
        """What is known of it without reading its events."""
        pinned = self.source.pinned()
        files = pinned.files()
        schema = self.shape.schema
        own = self.stored.buckets is not None
        return Layout(
            kind=self.source.kind,
            place=self.source.place,
            version=pinned.version,
            rows=files.total_rows,
            files=len(files),
            bytes=files.total_bytes,
            since=_outermost(files, schema.start, first=True),
            until=_outermost(files, schema.end, first=False),
            partitioned_by=self.source.partitioned_by(),
            sorted_by=(*self.key, schema.end) if own else (),
            buckets=self.stored.buckets,
            clustered=own or clustered(files, self.key),
        )

    def read(self, wanted: Wanted) -> Read:
        """Events by object and time."""
        source = self.source
        if source.kind == "delta":
            source = source.pinned()  # so that an error can name the version
        try:
            return read(source.files(), wanted, self.shape, self.stored, self.engine)
        except MissingFileError as error:
            if source.version is None:
                raise
            raise EventError(
                f"version {source.version} of {self.place} cannot be read any more: its file "
                f"{error.path} is gone, so it was vacuumed\n"
                "  hint: take a newer version, and let vacuum keep files as long as they are read"
            ) from error


def _outermost(files: Files, column: str, *, first: bool) -> object | None:
    """A time that no event is before, or behind; None if a file does not say."""
    if not len(files):
        return None
    bounds = files.bounds(column)
    if bounds is None:
        return None
    values = bounds.least if first else bounds.greatest
    if values.null_count:
        return None
    found = (pc.min(values) if first else pc.max(values)).as_py()
    if bounds.slack and not first:
        found += timedelta(microseconds=bounds.slack // 1_000)
    outermost: object = found
    return outermost
