"""The files of an archive, and what is known of each without opening it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest value of a column in each file (or group); NULL: not known.

    `slack` is how far off both may be, in nanoseconds: Delta cuts timestamps to milliseconds.
    """

    least: pa.Array
    greatest: pa.Array
    slack: int = 0


@dataclass(frozen=True, eq=False)
class Files:
    """The files of one version of a table, in the order in which their events arrived."""

    paths: tuple[str, ...]  # of the local file system, or URIs
    rows: Ints  # -1: not known
    sizes: Ints  # in bytes; -1: not known
    bounds: Callable[[str], Bounds | None]  # of a column; None: nothing is known
    # Columns whose values are not in the files, but known for each of them.
    partitions: Mapping[str, pa.Array] = field(default_factory=dict)
    buckets: Ints | None = None  # of each file, where keys are hashed
    even: bool = True  # whether a column is of the same type in all of them
    # By path: which rows of a file are left, where some were deleted.
    left: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def total_rows(self) -> int | None:
        """How many events there are; None if a file does not say."""
        if bool((self.rows < 0).any()):
            return None
        deleted = sum(int((~kept).sum()) for kept in self.left.values())
        return int(self.rows.sum()) - deleted

    @property
    def total_bytes(self) -> int | None:
        return None if bool((self.sizes < 0).any()) else int(self.sizes.sum())


def local(path: str) -> str | None:
    """The path in the local file system, or None if it lies elsewhere.

    >>> local("file:///data/a%20b.parquet"), local("s3://bucket/x"), local("/data/x")
    ('/data/a b.parquet', None, '/data/x')
    """
    from urllib.parse import unquote, urlsplit

    if "://" not in path:
        return path
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else None


def constant_columns(
    files: Files, numbers: npt.NDArray[Any], names: tuple[str, ...], schema: pa.Schema
) -> dict[str, pa.Array]:
    """The columns that stand in the names of files, for rows of the files with these numbers."""
    found = {}
    for name in names:
        if name in files.partitions:
            values = files.partitions[name].take(pa.array(numbers))
            found[name] = values.cast(schema.field(name).type)
    return found
