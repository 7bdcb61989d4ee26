"""The folders of a stream, which have to be apart: each is read as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import PurePath, PurePosixPath

from ensue.errors import EventError
from ensue.runners.spark.checkpoint_files import local_path


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that a stream writes to."""

    role: str  # as the user names it
    place: str
    table: bool = False  # whatever is inside is taken for a part of a table
    stays: bool = False  # it is in use where it is, and cannot be moved

    @property
    def path(self) -> PurePath:
        """As Spark understands it: here, or on another file system.

        >>> Folder("output", "s3://bucket/found/").path
        PurePosixPath('s3:/bucket/found')
        """
        here = local_path(self.place)
        if here is None:
            return PurePosixPath(self.place.replace("://", ":/", 1))
        return here.absolute()


def require_apart(folders: Sequence[Folder]) -> None:
    """Raises an EventError if one folder is another one, or a part of a table.

    >>> require_apart([Folder("output", "found", table=True), Folder("checkpoint", "found/state")])
    Traceback (most recent call last):
    ensue.errors.EventError: the checkpoint found/state is inside the output found, which is ...
      hint: use separate folders, one next to the other
    """
    for inner, outer in permutations(folders, 2):
        if inner.path == outer.path:
            raise EventError(
                f"the {inner.role} and the {outer.role} are the same folder, {inner.place}\n"
                f"  hint: use separate folders"
            )
        inside = outer.path in inner.path.parents and not _hidden(inner, outer)
        if outer.table and inside and not inner.stays:
            raise EventError(
                f"the {inner.role} {inner.place} is inside the {outer.role} {outer.place}, "
                "which is read as a table with everything in it\n"
                "  hint: use separate folders, one next to the other"
            )


def _hidden(inner: Folder, outer: Folder) -> bool:
    """Whether Spark passes over it when it reads the table: `found/_state`."""
    parts = inner.path.relative_to(outer.path).parts
    return parts[0].startswith(("_", "."))
