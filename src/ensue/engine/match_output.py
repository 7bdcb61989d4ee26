"""Reading matches from the output table of a kernel, and concatenating them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.codegen.kernel_inputs import OUT_TOP
from ensue.kernels import arena
from ensue.kernels.match_selection import merge_members
from ensue.physical.structure import StructureState, Table
from ensue.vector.arrow_numpy import as_read_only
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


def list_members(matches: Matches, variables: Sequence[str]) -> tuple[Table, Table]:
    """The members of each match in order, as offsets and numbers.

    A number sorts by row, then by the place of the variable among `variables`, those of the pattern.

    >>> one = Matches({"b": np.array([6])}, {"a": (np.array([0, 2]), np.array([5, 7]))}, 1)
    >>> list_members(one, "ab")
    (array([0, 3]), array([10, 13, 14]))
    """
    segments = [matches.segments(variable) for variable in variables]
    places = np.zeros(matches.count + 1, np.int64)
    for offsets, _ in segments:
        places[1:] += offsets[1:] - offsets[0]
    begins, ends, steps = as_read_only(places[:-1]), places[:-1].copy(), np.empty(places[-1], np.int64)
    for number, (offsets, rows) in enumerate(segments):
        merge_members(as_read_only(offsets), as_read_only(rows), number, len(segments), begins, ends, steps)
    return places, steps


def list_rows_newest_first(matches: Matches) -> npt.NDArray[np.int64]:
    """One line per match: its rows, newest first, padded with -1."""
    offsets, steps = list_members(matches, matches.variables)
    counts = np.diff(offsets)
    lines = np.full((matches.count, int(counts.max(initial=1))), -1, np.int64)
    number = np.repeat(np.arange(matches.count), counts)
    lines[number, offsets[1:][number] - 1 - np.arange(len(steps))] = steps // max(1, len(matches.variables))
    return lines
