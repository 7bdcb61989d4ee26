"""What a compact structure keeps between events: its tables, and what of them is alive."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ensue.columns.distinct import distinct
from ensue.kernels import arena
from ensue.source.kernel_inputs import INSTANCE_TOP
from ensue.structures.compact.nodes import TIME_STATE
from ensue.structures.compact.writer import CompactSource

if TYPE_CHECKING:
    from ensue.engine.arenas import Arenas

Table = npt.NDArray[Any]


def tables(source: CompactSource, room: int) -> dict[str, Table]:
    """The tables that only a compact structure has."""
    wholes, reals = source.by_key
    found: dict[str, Table] = {
        "K": np.zeros((1, max(1, wholes)), np.int64),
        "KF": np.zeros((1, max(1, reals)), np.float64),
    }
    if "N" in source.state:
        found["N"] = np.zeros((room, 2), np.int64)
    return found


def _source(arenas: "Arenas") -> CompactSource:
    source = arenas.program.source
    assert isinstance(source, CompactSource)
    return source


def expire(arenas: "Arenas", now: float | None) -> None:
    """Drops what no event from `now` on can reach."""
    frame, tables, meta = arenas.program.frame, arenas.tables, arenas.meta
    if frame.window is None or (now is None and not frame.by_events):
        return
    time = float(now or 0) if frame.real_time else int(now or 0)
    arenas.program.settle_all(time, *(tables[name] for name in TIME_STATE))
    top = int(meta[INSTANCE_TOP])
    if top == 0:
        return
    source = _source(arenas)
    columns, kept = source.instances.columns, tables["A"][:top]
    if frame.by_events:
        age = tables["counts"][kept[:, arena.KEY]] - kept[:, columns.wholes["index"]]
    elif frame.real_time:
        age = time - tables["AF"][:top, columns.reals["end"]]
    else:
        age = time - kept[:, columns.wholes["end"]]
    meta[INSTANCE_TOP] = arena.keep_linked(
        tables["A"],
        tables["AF"],
        top,
        tables["tops"],
        age <= frame.window,
        np.empty(top, np.int64),
        np.array(source.links, np.int64),
    )


def live_keys(arenas: "Arenas") -> npt.NDArray[np.bool_]:
    """The partitions that have anything alive; what is out of time has been dropped."""
    source, tables = _source(arenas), arenas.tables
    if source.lives_in_nodes:
        return np.asarray(np.any(tables["tops"] >= 0, axis=1))
    low, high, _ = source.rows_by_key or (0, 0, 0)
    return np.asarray(np.any(tables["K"][:, low:high] != 0, axis=1))


def held_rows(arenas: "Arenas") -> npt.NDArray[np.int64]:
    """The rows of the stream that a later answer may still need, ascending."""
    source, tables = _source(arenas), arenas.tables
    if source.rows_by_key:
        low, high, shift = source.rows_by_key
        rows = tables["K"][:, low:high].ravel()
        return distinct(rows[rows != 0] + shift)
    nodes = tables["A"][: int(arenas.meta[INSTANCE_TOP])]
    if source.beginnings:
        mask = nodes[:, source.instances.columns.wholes["mask"]]
        nodes = nodes[(mask & source.beginnings) != 0]
    return distinct(nodes[:, arena.ROW])


def size(arenas: "Arenas") -> int:
    """How many events are kept."""
    source = _source(arenas)
    if source.lives_in_nodes:
        return int(arenas.meta[INSTANCE_TOP])
    low, high, _ = source.rows_by_key or (0, 0, 0)
    return int(np.count_nonzero(arenas.tables["K"][:, low:high]))
