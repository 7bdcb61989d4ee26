"""How many random cases tests try: a few in `make test`, all of them in `make test-slow`, which sets ENSUE_TESTS."""

import os
from typing import Any

import pytest

THOROUGH = os.environ.get("ENSUE_TESTS") == "thorough"


def scaled(count: int) -> int:
    """A third of a number of random cases, or all of them if the run is thorough."""
    return count if THOROUGH else -(-count // 3)


def some(few: int, all_: int) -> list[Any]:
    """The first few seeds, and the others for `make test-slow`."""
    return [*range(few), *(pytest.param(n, marks=pytest.mark.slow) for n in range(few, all_))]


def in_blocks(few: int, size: int, all_: int) -> list[Any]:
    """The first few seeds as one range, and the others as ranges for `make test-slow`."""
    others = [range(begin, min(begin + size, all_)) for begin in range(few, all_, size)]
    slow = [pytest.param(block, marks=pytest.mark.slow, id=str(block.start)) for block in others]
    return [pytest.param(range(few), id="first"), *slow]


def of_round(round: int, size: int) -> range:
    """The seeds of a round; the first one is for every day and has a third of them."""
    return range(round * size, round * size + (size if round else scaled(size)))
