"""The functions that conditions may call, written into a kernel where they are used."""

import re
from collections.abc import Iterator, Mapping

from ensue.kernels.jit import digest_of
from ensue.source.names import words

# The bounds of 64 bits, and how many numbers they have.
BOUNDS = {"MOST": 2**63 - 1, "LEAST": -(2**63), "SPAN": 2.0**64}

_TEXTS = """\
@njit(inline="always")
def remainder(a, b):
    r = a % b
    if r != 0 and (a < 0) != (b < 0):
        r -= b
    return r


@njit
def sum_fits(a, b):
    return a <= MOST - b if b >= 0 else a >= LEAST - b


@njit
def difference_fits(a, b):
    return a >= LEAST + b if b >= 0 else a <= MOST + b


@njit
def product_fits(a, b):
    about = abs(float(a) * float(b))
    if about < 9.2e18:
        return True
    if about > 9.3e18:
        return False
    x, y = int(a), int(b)
    if x == LEAST or y == LEAST:
        return x == 1 or y == 1
    most = MOST // abs(y)
    if abs(x) <= most:
        return True
    return (x < 0) != (y < 0) and abs(x) == most + 1 and abs(y) & (abs(y) - 1) == 0


@njit
def carry_of(total, value):
    if value >= 0:
        return 1 if total > MOST - value else 0
    return -1 if total < LEAST - value else 0


@njit
def wrapping_sum(total, value):
    if value >= 0:
        return total + value if total <= MOST - value else (total + LEAST) + (value + LEAST)
    return total + value if total >= LEAST - value else (total - LEAST) + (value - LEAST)


@njit
def in_64_bits(x):
    return -9223372036854775808.0 <= x and x < 9223372036854775808.0


@njit
def rounded(x):
    return int(np.rint(x))


@njit
def gap_of(i, x):
    return -1 if x >= 9223372036854775808.0 else i - int(x)


@njit
def equal_exactly(i, x):
    return float(i) == x and gap_of(i, x) == 0


@njit
def less_exactly(i, x):
    f = float(i)
    return f < x or (f == x and gap_of(i, x) < 0)


@njit
def more_exactly(i, x):
    f = float(i)
    return f > x or (f == x and gap_of(i, x) > 0)
"""
_DEFINED = re.compile(r"^def (\w+)", re.MULTILINE)

# Kernels that are imported where a text calls them.
_IMPORTED = {
    "ensue.kernels.point_sets": (
        "earth_places", "earth_point_distance", "earth_points_meet", "plane_places",
        "plane_point_distance",
        "plane_points_meet", "points_apart", "points_distance", "points_inside",
        "points_overlap", "points_there",
    ),
}  # fmt: skip


def imported(used: set[str]) -> Iterator[str]:
    """The lines that import fixed kernels, with what tells one version of them from another."""
    for module, names in _IMPORTED.items():
        called = sorted(used.intersection(names))
        if called:
            yield f"from {module} import {', '.join(called)}  # {digest_of(module)[:16]}"


def by_name(texts: str) -> dict[str, str]:
    """Functions, two empty lines between them, by their names."""
    found = {}
    for text in texts.strip("\n").split("\n\n\n"):
        name = _DEFINED.search(text)
        assert name is not None
        found[name[1]] = text
    return found


FUNCTIONS = by_name(_TEXTS)


def called(used: set[str], own: Mapping[str, str]) -> Iterator[str]:
    """The functions of these names and those that they call, each before it is called.

    >>> [text.split("(")[0].split()[-1] for text in called({"less_exactly"}, {})]
    ['gap_of', 'less_exactly']
    """
    functions, wanted = {**FUNCTIONS, **own}, set(used)
    for name, text in reversed(functions.items()):
        if name in wanted:
            wanted |= words(text)
    yield from (text for name, text in functions.items() if name in wanted)
