"""Streams of which only a few keys may be in memory."""

from collections.abc import Callable

import numpy as np
import pytest

from ensue.codegen import kernel_cache as cache
from ensue.runtime.spill import spilling_matcher
from ensue.runtime.spill.spilling_matcher import BATCH, SpillingMatcher


class FewKeysMatcher(SpillingMatcher):
    """Bounds the number of keys, not their bytes."""

    most: int
    incoming = np.zeros(0, np.int32)  # codes of the keys that are being fed

    def _split(self, events):
        return [events.slice(k, self.most) for k in range(0, events.num_rows, self.most)]

    def _exceeds_bound(self):
        return len(np.unique(self._resident.codes)) > self.most

    def _feed_piece(self, piece, codes):
        self.incoming = np.unique(codes)
        found = super()._feed_piece(piece, codes)
        self.incoming = self.incoming[:0]
        return found

    def _would_exceed(self, rows):  # noqa: ARG002
        known = self._resident.codes
        return self._unknown_before is None and len(known) > 0 and len(np.union1d(known, self.incoming)) > self.most

    def _count_surplus(self):
        left = max(0.0, min((1 - BATCH) * self.most, self.most - len(self.incoming)))
        return len(self._resident) * (1 - left / len(np.unique(self._resident.codes)))


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels are not compiled."""
    monkeypatch.setattr(cache, "interpreted", True)


@pytest.fixture
def few_keys(monkeypatch) -> Callable[[int], None]:
    """Lets only a few keys be in memory, whatever `memory=` says."""

    def allow(keys: int) -> None:
        limited = type("FewKeysMatcher", (FewKeysMatcher,), {"most": keys})
        monkeypatch.setattr(spilling_matcher, "SpillingMatcher", limited)

    return allow
