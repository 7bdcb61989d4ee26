"""The parts of a table that threads match: groups of events by the hash of their key, that fit into a cache."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.engine.interrupts import run_in_threads
from ensue.engine.program import Program
from ensue.engine.scan import Scan
from ensue.kernels.row_search import group_rows
from ensue.projection.match_ids import hash_column
from ensue.vector.arrow_numpy import Bools, Ints, booleans, to_single_array
from ensue.vector.key_codes import TypeNames
from ensue.vector.take import take_rows

BLOCK = 1 << 17  # events scanned at a time
PART = 1 << 17  # events matched at a time, about
LEAST = 1 << 15  # the same, if there are more threads
MOST_PARTS = 64
SAMPLE = 4_096  # texts that show whether few are different


class ScanPool:
    """Scans of a program that threads take in turns."""

    def __init__(self, program: Program, threads: int) -> None:
        self._scans: SimpleQueue[Scan] = SimpleQueue()
        for _ in range(threads):
            self._scans.put(Scan(program))

    @contextmanager
    def lend(self) -> Iterator[Scan]:
        """Lends a scan to this thread."""
        scan = self._scans.get()
        try:
            yield scan
        finally:  # others wait for it, even if this thread failed
            self._scans.put(scan)


def get_block_size(rows: int, threads: int) -> int:
    """Returns how many events of a table are scanned at a time: each step costs several threads some waiting."""
    return BLOCK if threads == 1 else max(BLOCK, -(-rows // (4 * threads)))


def count_parts(rows: int, threads: int) -> int:
    """Returns the number of parts of a table, a power of two."""
    return round_down(max(rows // PART, min(4 * threads, rows // LEAST)), MOST_PARTS)


def count_large_parts(rows: int, threads: int) -> int:
    """Returns as few parts as threads need, where each costs much: a power of two."""
    return round_down(min(2 * threads - 1, rows // LEAST), MOST_PARTS)


def group_rows_by_key(
    events: pa.Table, key: Sequence[str], parts: int, threads: int, relevant: Callable[[pa.Table], Bools] | None = None
) -> list[Ints]:
    """Returns the rows of a table in parts by the hash of a key, ascending in each part, without those of no key.

    `relevant` says which events of a block are read; None: all.
    """
    size = get_block_size(events.num_rows, threads)

    def group(begin: int) -> list[Ints]:
        block = events.slice(begin, size)
        rows = np.arange(block.num_rows) if relevant is None else np.flatnonzero(relevant(block))
        if not key:
            return [rows + begin]
        keys, every = block.select(key), 2 * len(rows) > block.num_rows  # hashing some more is cheaper than taking
        keys = keys if every else take_rows(keys, rows)
        numbers = hash_keys(keys, key, parts).astype(np.int32) + np.int32(1)
        for values in keys.columns:
            if values.null_count:
                numbers[booleans(to_single_array(values.is_null()))] = 0
        order, bounds = group_rows(numbers[rows] if every else numbers, parts + 1)
        return np.split(rows[order] + begin, bounds[1:-1])[1:]

    blocks = run_in_threads([partial(group, at) for at in range(0, events.num_rows, size)], threads)
    none = [np.zeros(0, np.int64)] * parts
    return [np.concatenate(pieces) for pieces in zip(none, *blocks, strict=True)]


def find_types(column: str, names: Collection[str]) -> Callable[[pa.Table], Bools]:
    """Returns what finds the events of some types."""
    types = TypeNames(sorted(names))
    return lambda events: types.find(events.column(column)) >= 0


def encode_texts(events: pa.Table, names: Sequence[str], threads: int) -> pa.Table:
    """Returns a table whose texts in some columns are dictionaries, if few are different: parts of it are copied."""

    def encode(column: pa.ChunkedArray, begin: int) -> pa.Array:
        return to_single_array(column.slice(begin, BLOCK)).dictionary_encode()

    for name in names:
        column = events.column(name)
        is_text = types.is_string(column.type) or types.is_large_string(column.type)
        if not is_text or 4 * pc.count_distinct(column.slice(0, SAMPLE)).as_py() > SAMPLE:
            continue
        tasks = [partial(encode, column, begin) for begin in range(0, len(column), BLOCK)]
        encoded = pa.chunked_array(run_in_threads(tasks, threads)).unify_dictionaries()
        events = events.set_column(events.column_names.index(name), name, encoded)
    return events


def hash_keys(events: pa.Table, names: Sequence[str], parts: int) -> npt.NDArray[np.uint8]:
    """Returns the part of each event, by the lowest bits of the hash of its key."""
    return (hash_rows_by_key(events, names) & np.uint64(parts - 1)).astype(np.uint8)


def hash_rows_by_key(events: pa.Table, names: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Returns the hash of the key of each event."""
    hashes = np.zeros(events.num_rows, np.uint64)
    for name in names:
        hashes = hashes * np.uint64(31) + hash_column(events.column(name))
    return hashes


def round_down(count: int, most: int) -> int:
    """The largest power of two up to a count, at least 1 and at most `most`.

    >>> [round_down(count, 64) for count in (0, 1, 7, 8, 1_000)]
    [1, 1, 4, 8, 64]
    """
    return min(most, 1 << max(0, count.bit_length() - 1))
