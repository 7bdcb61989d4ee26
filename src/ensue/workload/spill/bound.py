"""How much of a stream's keys may be in memory, and what is not."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ensue.engine.allowance import machine_memory
from ensue.plan.limits import Limits


@dataclass(frozen=True, slots=True)
class Bound:
    """How much may be in memory."""

    bytes: float
    keys: int | None = None  # None: as many as there is room for


@dataclass(frozen=True, slots=True)
class Spilled:
    """What was stored so far."""

    misses: int = 0  # keys that an event came for while they were stored
    keys: int = 0  # stored now
    bytes: int = 0  # of these


@runtime_checkable
class Spilling(Protocol):
    """A matcher that stores keys."""

    @property
    def spilled(self) -> Spilled: ...
    @property
    def segments(self) -> Mapping[str, Path]:
        """Files that never change, by name: part of its state."""

    def save_apart(self) -> bytes:
        """Its state without them."""

    def restore(self, data: bytes, find: Callable[[str], Path | bytes] | None = None, /) -> None:
        """Goes on; `find` finds what was in these files."""


NOTHING = Spilled()


def spilled_by(matcher: object) -> Spilled:
    """What a matcher has stored, if it is one that does."""
    return matcher.spilled if isinstance(matcher, Spilling) else NOTHING


def bound_of(limits: Limits) -> Bound:
    """What limits allow."""
    return Bound(limits.bytes_of(machine_memory(), os.cpu_count() or 1))
