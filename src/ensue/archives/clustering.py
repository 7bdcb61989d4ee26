"""Whether the events of one object lie together, so that a read need not decode all the others."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.contract import Layout
from ensue.archives.files import Bounds, Files
from ensue.archives.footers import footer

_SAMPLE = 64  # keys that are looked up in the bounds
_LOOKED_INTO = 4  # files whose groups are looked at
_SHARE = 0.25  # of the groups may hold a key at most
_FEWEST = 4  # groups; where there are fewer, nothing is gained by picking


def clustered(files: Files, key: Sequence[str]) -> bool:
    """Whether statistics leave out most files, or most groups in a file, for an object."""
    if not key or not len(files):
        return False
    name = key[0]
    if name in files.partitions:
        return True
    if _share(files.bounds(name)) <= _SHARE:
        return True
    largest = np.argsort(files.sizes)[::-1][:_LOOKED_INTO]
    return any(_share(footer(files.paths[k]).bounds(name)) <= _SHARE for k in largest.tolist())


def _share(bounds: Bounds | None) -> float:
    """The part of the files or groups that can hold a key, on average; 1 if nothing is known."""
    if bounds is None or len(bounds.least) < _FEWEST or bounds.least.null_count:
        return 1.0
    step = max(1, len(bounds.least) // _SAMPLE)
    keys = bounds.least.take(pa.array(np.arange(0, len(bounds.least), step)))
    held = [
        pc.sum(
            pc.and_(pc.less_equal(bounds.least, key), pc.greater_equal(bounds.greatest, key))
        ).as_py()
        for key in keys
    ]
    return float(np.mean(held)) / len(bounds.least)


def cost_of(layout: Layout) -> str | None:
    """What a read costs more where an archive is not clustered; None if it is.

    >>> from dataclasses import replace
    >>> plain = Layout("parquet", "trades/", None, 20_000_000, 30, None, None, None)
    >>> print(cost_of(plain))
    trades/: the events of an object are not stored together, so a read by object decodes all
    20,000,000 events of 30 files whose time fits: about 10 to 30 times the cost over a month
      hint: ensue archive create and append write a table that is clustered by object
    >>> cost_of(replace(plain, clustered=True)) is None
    True
    """
    if layout.clustered:
        return None
    rows = "all" if layout.rows is None else f"all {layout.rows:,}"
    files = f"{layout.files:,} {'file' if layout.files == 1 else 'files'}"
    return (
        f"{layout.place}: the events of an object are not stored together, so a read by object "
        f"decodes {rows} events of {files} whose time fits: about 10 to 30 times the cost over a "
        "month\n  hint: ensue archive create and append write a table that is clustered by object"
    )
