"""Seeds of random tests: a few for every run, more for the slow ones."""

from typing import Any

import pytest


def some(few: int, all_: int) -> list[Any]:
    """The first few seeds, and the others for `make test-slow`."""
    return [*range(few), *(pytest.param(n, marks=pytest.mark.slow) for n in range(few, all_))]
