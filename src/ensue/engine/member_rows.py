"""The events of matches, a line each."""

import numpy as np
import numpy.typing as npt

from ensue.columns.matches import Matches

Rows = npt.NDArray[np.int64]


def newest_first(found: Matches) -> Rows:
    """The events of each match in a line, the newest first; -1 behind the last one."""
    number = [np.arange(found.count) for _ in found.rows]
    rows = list(found.rows.values())
    for offsets, values in found.lists.values():
        counts = np.diff(offsets)
        number.append(np.repeat(np.arange(found.count), counts))
        rows.append(values[offsets[0] : offsets[-1]])
    of, row = np.concatenate(number), np.concatenate(rows)
    of, row = of[row >= 0], row[row >= 0]
    order = np.lexsort([-row, of])
    of, row = of[order], row[order]
    counts = np.bincount(of, minlength=found.count)
    place = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    lines = np.full((found.count, int(counts.max(initial=1))), -1, np.int64)
    lines[of, place] = row
    return lines
