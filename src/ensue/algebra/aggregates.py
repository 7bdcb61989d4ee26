"""Aggregates by what they say of some values: of events of a variable, and of rows of a match."""

import math
from collections.abc import Sequence

from ensue.algebra.values import number

# What other systems call them, by our names.
OTHER_NAMES = {
    "mean": "avg",
    "first_value": "first",
    "last_value": "last",
    "arbitrary": "any_value",
    "stddev_samp": "stddev",
    "std": "stddev",
    "var_samp": "variance",
    "approx_count_distinct": "count_distinct",
    "listagg": "string_agg",
    "group_concat": "string_agg",
    "every": "bool_and",
    "logical_and": "bool_and",
    "some": "bool_or",
    "logical_or": "bool_or",
}


def spread(values: Sequence[float], *, whole: bool, root: bool) -> float | None:
    """A variance, or its root, of all there is (`whole`) or of a sample, by Welford's method.

    >>> spread([1.0, 3.0], whole=True, root=False), spread([1.0], whole=False, root=False)
    (1.0, None)
    """
    if len(values) < (1 if whole else 2):
        return None
    mean = squares = 0.0
    for count, value in enumerate(values, 1):
        delta = value - mean
        mean += delta / count
        squares += delta * (value - mean)
    found = squares / (len(values) - (0 if whole else 1))
    return math.sqrt(found) if root else found


def distinct(values: Sequence[object]) -> list[object]:
    """Each value once, in the order in which they come.

    >>> distinct([2, 1, 2.0, float("nan"), float("nan")])
    [2, 1, nan]
    """
    found: dict[object, object] = {}
    for value in values:
        found.setdefault(_key(value), value)
    return list(found.values())


def most_frequent(values: Sequence[object]) -> int:
    """The place of the value that is there most often; of several, the one that came first.

    >>> most_frequent(["b", "a", "c", "a", "c"])
    1
    """
    first: dict[object, int] = {}
    times: dict[object, int] = {}
    for place, value in enumerate(values):
        key = _key(value)
        first.setdefault(key, place)
        times[key] = times.get(key, 0) + 1
    return first[max(times, key=lambda key: times[key])]


def _key(value: object) -> object:
    """The same for values that are alike."""
    return "nan" if value != value else value


def product(values: Sequence[object]) -> float:
    """All of them multiplied from the left, as doubles."""
    found = 1.0
    for value in values:
        found *= float(number(value))
    return found


def joined(values: Sequence[object], separator: str) -> str:
    """Texts with a separator between them."""
    return separator.join(map(str, values))
