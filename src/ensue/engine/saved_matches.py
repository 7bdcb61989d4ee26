"""Matches that wait, as arrays of a saved state."""

from collections.abc import Collection, Iterable

import numpy as np

from ensue.columns.matches import Matches
from ensue.engine.state import Arrays


def as_arrays(found: Matches, of: str) -> Arrays:
    """The rows of each variable and where those of each match begin; `of` names who saves them."""
    arrays: Arrays = {}
    for variable in found.variables:
        at, rows = found.segments(variable)
        arrays |= {f"{of} at {variable}": at, f"{of} of {variable}": rows}
    return arrays


def from_arrays(
    arrays: Arrays, of: str, variables: Iterable[str], several: Collection[str], count: int
) -> Matches:
    """The matches that were saved; `several` are the Kleene variables.

    >>> found = Matches({"a": np.array([4, -1])}, {}, 2)
    >>> from_arrays(as_arrays(found, "mine"), "mine", ["a"], (), 2).rows
    {'a': array([ 4, -1])}
    """
    rows, lists = {}, {}
    for variable in variables:
        at, bound = arrays[f"{of} at {variable}"], arrays[f"{of} of {variable}"]
        if variable in several:
            lists[variable] = (at, bound)
            continue
        rows[variable] = np.full(count, -1, np.int64)
        rows[variable][np.diff(at) > 0] = bound
    return Matches(rows, lists, count)
