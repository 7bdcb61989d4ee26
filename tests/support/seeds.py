"""Seeds of random tests: a few for every run, more for the slow ones."""

from typing import Any

import pytest


def some(few: int, all_: int) -> list[Any]:
    """The first few seeds, and the others for `make test-slow`."""
    return [*range(few), *(pytest.param(n, marks=pytest.mark.slow) for n in range(few, all_))]


def in_blocks(few: int, size: int, all_: int) -> list[Any]:
    """The first few seeds as one range, and the others as ranges for `make test-slow`."""
    others = [range(begin, min(begin + size, all_)) for begin in range(few, all_, size)]
    slow = [pytest.param(block, marks=pytest.mark.slow, id=str(block.start)) for block in others]
    return [pytest.param(range(few), id="first"), *slow]


def of_round(round: int, size: int) -> range:
    """The seeds of a round; the first one is for every day and has half of them."""
    return range(round * size, round * size + (size if round else size // 2))
