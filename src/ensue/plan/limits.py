"""How much a query may hold and find before it is stopped."""

import math
import re
from dataclasses import dataclass
from typing import Any

from ensue.algebra.durations import parse_duration
from ensue.errors import EventError

EVICT = ("need", "tpm", "stpm")  # which keys of a stream go first; the first is the default
SHARE = 1 / 4  # of the machine's memory, where nothing is said
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?b|%)\s*", re.IGNORECASE)
_POWERS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what one matcher holds: a query in a process, or in a lane of Spark.

    They never change the matches of a query that stays inside them.
    """

    max_matches: int | None = None  # found and not handed over yet; None: as memory allows
    max_partial_matches: int | None = None  # None: as memory allows
    memory: float | None = None  # bytes; None: a share of the machine's; infinity: no bound
    share: float = SHARE  # of the machine's memory, where `memory` is not given
    lanes: bool = False  # one of several on its machine, as many at a time as it has cores
    evict: str | None = None  # one of EVICT: who goes first; None: as is usual, if anybody can
    shed_ms: int | None = None  # how far a stream may be behind before keys are given up

    @classmethod
    def given(
        cls,
        max_matches: Any = None,
        max_partial_matches: Any = None,
        memory: Any = None,
        *,
        lanes: bool = False,
        evict: Any = None,
        shed: Any = None,
    ) -> "Limits":
        """Limits from what a call says.

        >>> Limits.given(max_matches=1000, memory="2 GB")
        Limits(max_matches=1000, max_partial_matches=None, memory=2000000000, ...)
        >>> Limits.given(memory="lots")
        Traceback (most recent call last):
        ...
        ensue.errors.EventError: memory='lots' is not a size
          hint: a text such as "4 GB", "500 MB" or "50%", a number of bytes, or "unlimited"
        """
        counts = {"max_matches": max_matches, "max_partial_matches": max_partial_matches}
        for name, count in counts.items():
            whole = isinstance(count, int) and not isinstance(count, bool) and count > 0
            if count is not None and not whole:
                raise EventError(f"{name}={count!r} must be a positive whole number")
        size, share = _memory(memory)
        if evict is not None and evict not in EVICT:
            raise EventError(
                f"evict={evict!r} is not a way to choose keys\n  hint: {', '.join(EVICT)}"
            )
        return cls(max_matches, max_partial_matches, size, share, lanes, evict, _shed_ms(shed))

    @property
    def evicting(self) -> bool:
        """Whether keys of a stream are stored where memory is short.

        So it is where a call says how much there is, or keys may be given up; else, what is too
        much is an error.
        """
        said = self.share != SHARE if self.memory is None else not math.isinf(self.memory)
        return said or self.evict is not None or self.shed_ms is not None

    def bytes_of(self, machine: float, cores: int) -> float:
        """The bound on memory, on a machine that has so many bytes and cores."""
        if self.memory is not None:
            return self.memory
        return machine * self.share / (cores if self.lanes else 1)


UNLIMITED = Limits(memory=math.inf)


def _shed_ms(given: Any) -> int | None:
    if given is None:
        return None
    if not isinstance(given, str):
        raise EventError(
            f"shed={given!r} is not a length of time\n  hint: write it like shed='30 seconds'"
        )
    length = parse_duration(given) // 1_000_000
    if length <= 0:
        raise EventError(f"shed={given!r} is too short\n  hint: at least a millisecond")
    return length


def _memory(given: Any) -> tuple[float | None, float]:
    if given is None:
        return None, SHARE
    if isinstance(given, int | float) and not isinstance(given, bool) and given > 0:
        return given, SHARE
    if isinstance(given, str):
        if given.strip().lower() == "unlimited":
            return math.inf, SHARE
        found = _SIZE.fullmatch(given)
        if found and float(found[1]) > 0:
            amount, unit = float(found[1]), found[2].lower()
            if unit != "%":
                base = 1_024 if "i" in unit else 1_000
                return int(amount * base ** _POWERS[unit[0]]), SHARE
            if amount <= 100:
                return None, amount / 100
    raise EventError(
        f"memory={given!r} is not a size\n"
        '  hint: a text such as "4 GB", "500 MB" or "50%", a number of bytes, or "unlimited"'
    )


def size_text(size: float) -> str:
    """A size as people read it.

    >>> size_text(6.4e9), size_text(512), size_text(25_165_824)
    ('6.4 GB', '512 bytes', '25 MB')
    """
    for unit, power in (("TB", 4), ("GB", 3), ("MB", 2), ("KB", 1)):
        if size >= 1_000**power:
            amount = size / 1_000**power
            return f"{amount:,.0f} {unit}" if amount >= 10 else f"{amount:.2g} {unit}"
    return f"{size:,.0f} bytes"
