"""Limits on the memory and the matches of a running query."""

import math
import re
from dataclasses import dataclass
from typing import Any

from ensue.errors import EventError
from ensue.ir.values import parse_duration

EVICTION_POLICIES = ("need", "tpm", "stpm")  # eviction policies of keys; the first is the default
DEFAULT_SHARE = 1 / 4  # default share of the machine's memory
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?b|%)\s*", re.IGNORECASE)
_POWERS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class MatcherLimits:
    """Bounds on the state of one matcher: a query in a process, or in a Spark task.

    They never change the matches of a query that stays inside them.
    """

    max_matches: int | None = None  # emitted and not yet collected; None: bounded by memory
    max_partial_matches: int | None = None  # None: bounded by memory
    memory: float | None = None  # bytes; None: a share of the machine's; infinity: no bound
    share: float = DEFAULT_SHARE  # of the machine's memory, where `memory` is not given
    per_core: bool = False  # one of several tasks on its machine, one for each core
    evict: str | None = None  # one of EVICT; None: the default policy, if keys can be evicted
    shed_ms: int | None = None  # lag of a stream at which keys are dropped

    @classmethod
    def from_arguments(
        cls,
        max_matches: Any = None,
        max_partial_matches: Any = None,
        memory: Any = None,
        *,
        per_core: bool = False,
        evict: Any = None,
        shed: Any = None,
    ) -> "MatcherLimits":
        """Validates the limits of a call."""
        counts = {"max_matches": max_matches, "max_partial_matches": max_partial_matches}
        for name, count in counts.items():
            positive = isinstance(count, int) and not isinstance(count, bool) and count > 0
            if count is not None and not positive:
                raise EventError(f"{name}={count!r} must be a positive whole number")
        size, share = _memory(memory)
        if evict is not None and evict not in EVICTION_POLICIES:
            raise EventError(f"evict={evict!r} is not an eviction policy\n  hint: {', '.join(EVICTION_POLICIES)}")
        return cls(max_matches, max_partial_matches, size, share, per_core, evict, _shed_ms(shed))

    @property
    def can_evict(self) -> bool:
        """Whether keys of a stream are spilled when memory is short.

        Keys are spilled if a call limits the memory or allows eviction or shedding; otherwise
        exceeding the memory is an error.
        """
        limited = self.share != DEFAULT_SHARE if self.memory is None else not math.isinf(self.memory)
        return limited or self.evict is not None or self.shed_ms is not None

    def compute_memory_bound(self, machine: float, cores: int) -> float:
        """The memory bound on a machine with the given bytes and cores."""
        if self.memory is not None:
            return self.memory
        return machine * self.share / (cores if self.per_core else 1)


UNLIMITED = MatcherLimits(memory=math.inf)


def _shed_ms(shed: Any) -> int | None:
    if shed is None:
        return None
    if not isinstance(shed, str):
        raise EventError(f"shed={shed!r} is not a length of time\n  hint: write it like shed='30 seconds'")
    length = parse_duration(shed) // 1_000_000
    if length <= 0:
        raise EventError(f"shed={shed!r} is too short\n  hint: at least a millisecond")
    return length


def _memory(memory: Any) -> tuple[float | None, float]:
    if memory is None:
        return None, DEFAULT_SHARE
    if isinstance(memory, int | float) and not isinstance(memory, bool) and memory > 0:
        return memory, DEFAULT_SHARE
    if isinstance(memory, str):
        if memory.strip().lower() == "unlimited":
            return math.inf, DEFAULT_SHARE
        size = _SIZE.fullmatch(memory)
        if size and float(size[1]) > 0:
            amount, unit = float(size[1]), size[2].lower()
            if unit != "%":
                base = 1_024 if "i" in unit else 1_000
                return int(amount * base ** _POWERS[unit[0]]), DEFAULT_SHARE
            if amount <= 100:
                return None, amount / 100
    raise EventError(
        f"memory={memory!r} is not a size\n"
        '  hint: a text such as "4 GB", "500 MB" or "50%", a number of bytes, or "unlimited"'
    )


def format_size(size: float) -> str:
    """Formats a size with its unit.

    >>> format_size(6.4e9), format_size(512), format_size(25_165_824)
    ('6.4 GB', '512 bytes', '25 MB')
    """
    for unit, power in (("TB", 4), ("GB", 3), ("MB", 2), ("KB", 1)):
        if size >= 1_000**power:
            amount = size / 1_000**power
            return f"{amount:,.0f} {unit}" if amount >= 10 else f"{amount:.2g} {unit}"
    return f"{size:,.0f} bytes"
