"""Streams of which only a few keys may be in memory."""

from collections.abc import Callable

import pytest

from ensue.source import cache
from ensue.workload.spill import bound
from ensue.workload.spill.bound import Bound


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels are not compiled."""
    monkeypatch.setattr(cache, "interpreted", True)


@pytest.fixture
def few_keys(monkeypatch) -> Callable[[int], None]:
    """Lets only a few keys be in memory, whatever `memory=` says."""

    def allow(keys: int) -> None:
        monkeypatch.setattr(bound, "bound_of", lambda _: Bound(float("inf"), keys))

    return allow
