"""The floor: how fast the events can be read at all, and what a loop written for one question does.

All of it runs on one core over one table, in turns. The loop is given columns of numbers, and finds the same matches
as the query; `ensue.match` starts from a table with texts or dictionaries, and makes a table of its matches.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import ensue
from benchmarks.timing import Clock
from benchmarks.workloads import WORKLOADS, events

TEXTS = ("type", "symbol")
LOOPED = "next, unary"  # the question of the loop
QUERIES = (LOOPED, "next, correlated", "Kleene")
FLOOR, NUMBERS = "all columns", "numbers"  # what a step is given; the first finds nothing

Rows = NDArray[np.int64]


def measured(count: int, symbols: int, times: int) -> list[dict[str, Any]]:
    """Events a second of each step; the matches of the loop are compared with those of the query."""
    table = events(count, symbols).combine_chunks()
    coded = encode_texts(table)
    numbers = list_numbers(coded, symbols)
    window = WORKLOADS[LOOPED].window(symbols) * 1_000_000
    works: dict[tuple[str, str], Callable[[], int]] = {
        ("all bytes of the table, summed (NumPy)", FLOOR): lambda: add_up(table),
        ("texts to numbers (Arrow)", FLOOR): lambda: encode_texts(table).num_rows,
        (f"{LOOPED}: a loop for it (Numba)", NUMBERS): lambda: len(match_in_loop(*numbers, window)),
    }
    for form, given in (("texts", table), ("dictionaries", coded)):
        for name in QUERIES:
            works[name, form] = _call(given, name, symbols)
    found = {step: work() for step, work in works.items()}  # compiles, and finds memory
    clocks: dict[tuple[str, str], list[Clock]] = {step: [] for step in works}
    for _ in range(times):
        for step, work in works.items():
            clock = Clock()
            with clock:
                work()
            clocks[step].append(clock)
    same = np.array_equal(*find_both_ways(table, numbers, symbols))
    return [
        {
            "query": name,
            "form": form,
            "events": count,
            "symbols": symbols,
            "bytes": table.nbytes,
            "same": same,
            "matches": found[name, form] if form != FLOOR else None,
            "events_per_cpu_second": count / min(clock.cpu_seconds for clock in done),
            "events_per_second": count / min(clock.seconds for clock in done),
        }
        for (name, form), done in clocks.items()
    ]


def _call(table: pa.Table, name: str, symbols: int) -> Callable[[], int]:
    workload, limits = WORKLOADS[name], ensue.Limits(threads=1)
    query, type_ = workload.text(symbols), workload.type
    return lambda: int(ensue.match(table, query, time="ts", type=type_, options=limits).num_rows)


def add_up(table: pa.Table) -> int:
    """The sum of all buffers as numbers of eight bytes: each byte of the table is read once."""
    total = 0
    for column in table.columns:
        for buffer in column.chunk(0).buffers():
            if buffer is not None:
                total += int(np.frombuffer(buffer, np.int64, buffer.size // 8).sum())
    return total


def encode_texts(table: pa.Table) -> pa.Table:
    """The table with its texts as dictionaries."""
    for name in TEXTS:
        table = table.set_column(table.column_names.index(name), name, table[name].dictionary_encode())
    return table


def list_numbers(coded: pa.Table, symbols: int) -> tuple[NDArray[np.int8], NDArray[np.int32], Rows, Rows, int]:
    """What the loop reads: the types A, B and C as 0, 1 and 2, keys, times, volumes, and how many keys there are."""
    types = coded["type"].chunk(0)
    codes = np.array(["ABC".find(name) for name in types.dictionary.to_pylist()], np.int8)
    keys = coded["symbol"].chunk(0).indices.to_numpy()
    times = coded["ts"].cast(pa.int64()).to_numpy()
    return codes[types.indices.to_numpy()], keys, times, coded["volume"].to_numpy(), symbols


@numba.njit
def match_in_loop(
    types: NDArray[np.int8], keys: NDArray[np.int32], times: Rows, volumes: Rows, symbols: int, window: int
) -> Rows:
    """The rows of a, b and c in each match of `next, unary`, by lists of waiting rows for each key."""
    before = np.empty(len(types), np.int64)  # of each a, the one before it in its list
    bound = np.empty(len(types), np.int64)  # of each a, its b
    for_b, for_c = np.full(symbols, -1), np.full(symbols, -1)
    found = np.empty((1_024, 3), np.int64)
    top = 0
    for row in range(len(types)):
        kind, key = types[row], keys[row]
        if kind == 0 and volumes[row] > 1500:
            before[row] = for_b[key]
            for_b[key] = row
        elif kind == 1 and volumes[row] > 1500:
            start = for_b[key]
            if start >= 0:
                last = start
                while True:
                    bound[last] = row
                    if before[last] < 0:
                        break
                    last = before[last]
                before[last] = for_c[key]
                for_c[key] = start
                for_b[key] = -1
        elif kind == 2 and volumes[row] < 500:
            start = for_c[key]
            while start >= 0 and times[row] - times[start] <= window:  # older ones are behind
                if top == len(found):
                    more = np.empty((2 * top, 3), np.int64)
                    more[:top] = found
                    found = more
                found[top] = start, bound[start], row
                top += 1
                start = before[start]
            for_c[key] = -1
    return found[:top]


def find_both_ways(table: pa.Table, numbers: tuple[Any, ...], symbols: int) -> tuple[Rows, Rows]:
    """The times of a, b and c in each match in order, by the loop and by the query."""
    workload = WORKLOADS[LOOPED]
    rows = match_in_loop(*numbers, workload.window(symbols) * 1_000_000)
    query = f"{workload.text(symbols)} RETURN a.ts AS a, b.ts AS b, c.ts AS c"
    found = ensue.match(table, query, time="ts", type=workload.type)
    times = np.stack([found[name].cast(pa.int64()).to_numpy() for name in "abc"], axis=1)
    in_loop, in_query = (one[np.lexsort(one.T[::-1])] for one in (numbers[2][rows], times))
    return in_loop, in_query
