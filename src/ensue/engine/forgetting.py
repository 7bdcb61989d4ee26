"""Forgetting: keys without anything alive, and strings that nothing alive holds.

Both have codes, which are indices of tables; forgetting numbers those that stay anew.
"""

from typing import Any

import numpy as np

from ensue.columns.keys import KeyCodes
from ensue.engine.lapsing import Lapsing
from ensue.engine.skipping import Skipping
from ensue.engine.turns import InTurn
from ensue.structures.contract import State


def forget_keys(
    state: State[Any], keys: KeyCodes, skipping: Skipping | None, lapsing: Lapsing | None = None
) -> None:
    """Forgets the partitions that have no runs and no instances.

    One that comes back starts anew, which changes nothing: the count of its events only places
    runs and instances relative to each other, and what AFTER MATCH SKIP keeps of it forbids
    only events of the past.
    """
    count = len(keys)
    if keys.known == 0:
        return
    alive = state.live_keys()[:count]
    if lapsing is not None:
        alive = alive | lapsing.live_keys(count)
    if isinstance(skipping, InTurn):
        alive = alive | skipping.live_keys(count)
    kept = np.flatnonzero(alive)
    if len(kept) == count == keys.known:
        return
    state.keep_keys(kept, keys.keep(alive))
    if skipping is not None:
        skipping.keep(kept)
    if lapsing is not None:
        lapsing.keep_keys(kept)


def forget_strings(state: State[Any], strings: KeyCodes) -> None:
    """Forgets the strings whose codes nothing holds. The tables are packed.

    A row may have places that were never written, as another variable's events use them: what
    stands there is no code in use, or keeps a string that nobody needs.
    """
    count = len(strings)
    if count == 0:
        return
    places = [
        (state.used(columns.whole), columns.wholes[name])
        for columns in state.source.columns
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
