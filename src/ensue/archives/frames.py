"""Spark DataFrames as archives: the seam to the runner that knows Spark."""

from importlib import import_module
from typing import Any, Protocol

import pyarrow as pa

from ensue.archives.contract import Archive
from ensue.archives.given import Given
from ensue.columns.stream import Shape
from ensue.extras import needed

_RUNNER = "ensue.runners.spark.archives"  # by name: archives lie below runners


class FrameRunner(Protocol):
    """What the runner gives: the columns of a DataFrame, and an archive made of it."""

    def arrow_schema(self, frame: Any) -> pa.Schema:
        """The columns of a DataFrame as Arrow has them."""

    def frame_archive(
        self, frame: Any, shape: Shape, key: tuple[str, ...], complete: object | None
    ) -> Archive:
        """A DataFrame as an archive, in batch."""


def frame_archive(frame: Any, given: Given) -> Archive:
    """An archive of a DataFrame. Raises a RunnerError where Spark is not there."""
    with needed("a DataFrame as an archive", "spark"):
        runner: Any = import_module(_RUNNER)
    found: FrameRunner = runner
    shape = given.shape(found.arrow_schema(frame))
    return found.frame_archive(frame, shape, given.key, given.complete)
