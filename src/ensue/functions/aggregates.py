"""Algorithms of aggregates, over the events of a variable or the rows of a match."""

import math
from collections import Counter
from collections.abc import Sequence

from ensue.ir.values import to_number

# Names of aggregates in other systems, and ours.
AGGREGATE_ALIASES = {
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


def compute_variance(values: Sequence[float], *, whole: bool, root: bool) -> float | None:
    """Computes the variance or its root, of a population (`whole`) or a sample (Welford).

    >>> compute_variance([1.0, 3.0], whole=True, root=False)
    1.0
    """
    if len(values) < (1 if whole else 2):
        return None
    mean = squares = 0.0
    for count, value in enumerate(values, 1):
        delta = value - mean
        mean += delta / count
        squares += delta * (value - mean)
    variance = squares / (len(values) - (0 if whole else 1))
    return math.sqrt(variance) if root else variance


def drop_duplicates(values: Sequence[object]) -> list[object]:
    """Returns each value once, in the order of first occurrence.

    >>> drop_duplicates([2, 1, 2.0, float("nan"), float("nan")])
    [2, 1, nan]
    """
    first: dict[object, object] = {}
    for value in values:
        first.setdefault(_key(value), value)
    return list(first.values())


def find_mode(values: Sequence[object]) -> int:
    """Returns the position of the most frequent value, the first one in case of a tie.

    >>> find_mode(["b", "a", "c", "a", "c"])
    1
    """
    keys = list(map(_key, values))
    return keys.index(Counter(keys).most_common(1)[0][0])


def _key(value: object) -> object:
    """Returns the value, or one key for all NaNs."""
    return "nan" if value != value else value


def multiply(values: Sequence[object]) -> float:
    """Multiplies the values from left to right as doubles."""
    return math.prod((float(to_number(value)) for value in values), start=1.0)
