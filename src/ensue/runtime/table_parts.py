"""The parts of a table that threads match: groups of events by the hash of their key, that fit into a cache."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.interrupts import run_in_threads
from ensue.kernels import sorting
from ensue.projection.match_ids import hash_column
from ensue.vector.arrow_numpy import Ints

BLOCK = 1 << 17  # events scanned at a time
PART = 1 << 17  # events matched at a time, about
LEAST = 1 << 15  # the same, if there are more threads
MOST_PARTS = 64


def count_parts(rows: int, threads: int) -> int:
    """Returns the number of parts of a table, a power of two."""
    return _round_down(max(rows // PART, min(4 * threads, rows // LEAST)), MOST_PARTS)


def group_rows_by_key(events: pa.Table, names: Sequence[str], threads: int) -> list[Ints]:
    """Returns the rows of a table in groups of about `PART`, by the hash of a key, ascending in each group."""
    parts = count_parts(events.num_rows, threads)

    def assign(block: pa.Table) -> Ints:
        return hash_keys(block, names, parts).astype(np.int64)

    return group_rows(events, parts, threads, assign)


def group_rows(events: pa.Table, parts: int, threads: int, assign: Callable[[pa.Table], Ints]) -> list[Ints]:
    """Returns the rows of each part, ascending; `assign` has the parts of the rows of a block, -1 for none."""

    def group(begin: int) -> list[Ints]:
        numbers = assign(events.slice(begin, BLOCK))
        order = sorting.stable_order(numbers)
        ends = np.cumsum(np.bincount(numbers + 1, minlength=parts + 1))
        return np.split(order + begin, ends[:-1])[1:]

    blocks = run_in_threads([partial(group, at) for at in range(0, events.num_rows, BLOCK)], threads)
    none = [np.zeros(0, np.int64)] * parts
    return [np.concatenate(pieces) for pieces in zip(none, *blocks, strict=True)]


def hash_keys(events: pa.Table, names: Sequence[str], parts: int) -> npt.NDArray[np.uint8]:
    """Returns the part of each event, by the hash of its key."""
    hashes = np.zeros(events.num_rows, np.uint64)
    for name in names:
        hashes = hashes * np.uint64(31) + hash_column(events.column(name))
    return (hashes & np.uint64(parts - 1)).astype(np.uint8)


def _round_down(count: int, most: int) -> int:
    """The largest power of two up to a count, at least 1 and at most `most`.

    >>> [_round_down(count, 64) for count in (0, 1, 7, 8, 1_000)]
    [1, 1, 4, 8, 64]
    """
    return min(most, 1 << max(0, count.bit_length() - 1))
