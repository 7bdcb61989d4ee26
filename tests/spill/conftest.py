"""Streams of which only a few keys may be in memory."""

from collections.abc import Callable

import pytest

from ensue.codegen import kernel_cache as cache
from ensue.runtime.spill import resident_keys as bound
from ensue.runtime.spill.resident_keys import MemoryBound


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels are not compiled."""
    monkeypatch.setattr(cache, "interpreted", True)


@pytest.fixture
def few_keys(monkeypatch) -> Callable[[int], None]:
    """Lets only a few keys be in memory, whatever `memory=` says."""

    def allow(keys: int) -> None:
        monkeypatch.setattr(bound, "get_memory_bound", lambda _: MemoryBound(float("inf"), keys))

    return allow
