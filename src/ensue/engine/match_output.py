"""Reading matches from the output table of a kernel, and concatenating them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.codegen.kernel_inputs import OUT_TOP
from ensue.kernels import arena
from ensue.physical.structure import StructureState, Table
from ensue.vector.match_rows import Matches


def read_output(state: StructureState[Any]) -> Matches:
    """Read the matches that a kernel has written."""
    count = int(state.meta[OUT_TOP])
    output = state.tables["O"][:count]
    rows: dict[str, Table] = {}
    lists: dict[str, tuple[Table, Table]] = {}
    tally: Table | None = None
    place = {name: number for number, name in enumerate(state.source.output)}
    for name, number in place.items():
        kind, variable = name.split("_", 1)
        if kind == "row":
            rows[variable] = output[:, number].copy()
        elif kind == "tally":
            tally = output[:, number].copy()
        elif kind == "node":
            counts = output[:, place[f"count_{variable}"]].copy()
            offsets = np.zeros(count + 1, np.int64)
            np.cumsum(counts, out=offsets[1:])
            values = np.empty(offsets[-1], np.int64)
            heads = output[:, number].copy()
            nodes, link, row = state.kleene_events
            arena.write_lists(nodes, link, row, heads, counts, offsets, values)
            lists[variable] = (offsets, values)
    return Matches(rows, lists, count, tally)


def compute_list_bytes(state: StructureState[Any]) -> float:
    """The size in bytes of the Kleene lists that `read_output` will build."""
    output = state.tables["O"][: int(state.meta[OUT_TOP])]
    counts = [k for k, name in enumerate(state.source.output) if name.startswith("count_")]
    return 8.0 * sum(float(output[:, k].sum(dtype=np.float64)) for k in counts)


@lru_cache(maxsize=1_024)
def _no_matches(names: tuple[str, ...]) -> Matches:
    """Cached because most batches complete no match."""
    kinds = [name.split("_", 1) for name in names]
    none = np.zeros(0, np.int64)
    return Matches(
        {variable: none for kind, variable in kinds if kind == "row"},
        {variable: (np.zeros(1, np.int64), none) for kind, variable in kinds if kind == "node"},
        0,
        none if any(kind == "tally" for kind, _ in kinds) else None,
    )


def concat_matches(pieces: list[Matches], names: Sequence[str]) -> Matches:
    """Concatenate matches; `names` are the columns of the output table."""
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return _no_matches(tuple(names))
    rows: dict[str, Table] = {}
    lists: dict[str, tuple[Table, Table]] = {}
    tally: Table | None = None
    for name in names:
        kind, variable = name.split("_", 1)
        if kind == "row":
            parts = [p.rows[variable] for p in pieces]
            rows[variable] = np.concatenate(parts)
        elif kind == "node":
            values = [p.lists[variable][1] for p in pieces]
            offsets = [np.zeros(1, np.int64)]
            shift = 0
            for piece in pieces:
                offsets.append(piece.lists[variable][0][1:] + shift)
                shift += len(piece.lists[variable][1])
            lists[variable] = np.concatenate(offsets), np.concatenate(values)
        elif kind == "tally":
            counts = [p.tally for p in pieces if p.tally is not None]
            tally = np.concatenate(counts)
    return Matches(rows, lists, sum(p.count for p in pieces), tally)


def list_rows_newest_first(matches: Matches) -> npt.NDArray[np.int64]:
    """One line per match: its rows, newest first, padded with -1."""
    number = [np.arange(matches.count) for _ in matches.rows]
    rows = list(matches.rows.values())
    for offsets, values in matches.lists.values():
        counts = np.diff(offsets)
        number.append(np.repeat(np.arange(matches.count), counts))
        rows.append(values[offsets[0] : offsets[-1]])
    match_numbers, row = np.concatenate(number), np.concatenate(rows)
    match_numbers, row = match_numbers[row >= 0], row[row >= 0]
    order = np.lexsort([-row, match_numbers])
    match_numbers, row = match_numbers[order], row[order]
    counts = np.bincount(match_numbers, minlength=matches.count)
    place = np.arange(len(match_numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    lines = np.full((matches.count, int(counts.max(initial=1))), -1, np.int64)
    lines[match_numbers, place] = row
    return lines
