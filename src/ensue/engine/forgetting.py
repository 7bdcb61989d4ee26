"""Forgetting: keys without anything alive, and strings that nothing alive holds.

Both have codes, which are indices of tables; forgetting numbers those that stay anew.
"""

import numpy as np

from ensue.columns.buffers import Bools
from ensue.columns.keys import KeyCodes
from ensue.engine.arenas import BY_KEY, TOPS, Arenas
from ensue.engine.skipping import Skipping
from ensue.kernels import arena
from ensue.source.kernel_inputs import INSTANCE_TOP
from ensue.structures.compact import state as compact_state
from ensue.structures.compact.writer import CompactSource


def forget_keys(arenas: Arenas, keys: KeyCodes, skipping: Skipping | None) -> None:
    """Forgets the partitions that have no runs and no instances.

    One that comes back starts anew, which changes nothing: the count of its events only places
    runs and instances relative to each other, and what AFTER MATCH SKIP keeps of it forbids
    only events of the past.
    """
    tables, count = arenas.tables, len(keys)
    if keys.known == 0:
        return
    alive: Bools = np.any(tables["tops"][:count] >= 0, axis=1)
    if isinstance(arenas.program.source, CompactSource):
        alive = compact_state.live_keys(arenas)[:count]
    if "live" in tables:
        alive |= tables["live"][:count] > 0
    if "L" in tables:  # a repeat remembers its latest result however long ago it was
        alive |= np.any(tables["L"][:count] != 0, axis=1)
    kept = np.flatnonzero(alive)
    if len(kept) == count == keys.known:
        return
    moved = keys.keep(alive)
    for name, value in BY_KEY.items():
        if name in tables:
            old = tables[name]
            new = np.full((max(1, len(kept)), *old.shape[1:]), value, old.dtype)
            new[: len(kept)] = old[kept]
            tables[name] = new
    instances = tables["A"][: int(arenas.meta[INSTANCE_TOP])]
    instances[:, arena.KEY] = moved[instances[:, arena.KEY]]
    if skipping is not None:
        skipping.keep(kept)


def forget_strings(arenas: Arenas, strings: KeyCodes) -> None:
    """Forgets the strings whose codes nothing holds. The arenas are packed.

    A row may have places that were never written, as another variable's events use them: what
    stands there is no code in use, or keeps a string that nobody needs.
    """
    count = len(strings)
    if count == 0:
        return
    places = [
        (arenas.tables[whole][: int(arenas.meta[TOPS[whole]])], columns.wholes[name])
        for whole, _, columns in arenas.columns
        for name in sorted(columns.texts)
    ]
    alive = np.zeros(count, np.bool_)
    for table, column in places:
        codes = table[:, column]
        alive[codes[(codes >= 0) & (codes < count)]] = True
    if alive.all():
        return
    moved = strings.keep(alive)
    for table, column in places:
        codes = table[:, column]
        inside = (codes >= 0) & (codes < count)
        table[:, column] = np.where(inside, moved[np.where(inside, codes, 0)], -1)
