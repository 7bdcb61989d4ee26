"""Matchers that continue from a saved state."""

from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.live_matcher import LiveMatcher


def restored(prepared: CompiledQuery, data: bytes) -> LiveMatcher:
    """A matcher that continues from a saved state."""
    matcher = LiveMatcher(prepared)
    matcher.restore(data)
    return matcher
