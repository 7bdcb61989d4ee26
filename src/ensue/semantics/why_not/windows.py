"""When an event has to end to fill a part, given what is there."""

from dataclasses import dataclass

from ensue.algebra.alternatives import Condition, Later
from ensue.semantics.subscriptions import Time, length_of
from ensue.semantics.why_not.filled import Filled
from ensue.semantics.why_not.plan import Level

_SLACK = 1e-9  # floats: what is near a border is tried by itself


@dataclass
class Window:
    """From `low` to `high`, and the conditions that say so; all others are stopped by these."""

    low: Time | None = None
    low_by: int = -1
    high: Time | None = None
    high_by: int = -1

    def begins(self, at: Time, by: int) -> None:
        if self.low is None or at > self.low:
            self.low, self.low_by = at, by

    def ends(self, at: Time, by: int) -> None:
        if self.high is None or at < self.high:
            self.high, self.high_by = at, by

    def loose(self) -> tuple[Time | None, Time | None]:
        """From where to where events are tried one by one."""
        low, high = self.low, self.high
        return (
            low - _SLACK * max(1.0, abs(low)) if isinstance(low, float) else low,
            high + _SLACK * max(1.0, abs(high)) if isinstance(high, float) else high,
        )


def window_of(
    level: Level, conditions: tuple[Condition, ...], filled: Filled, longest: Time
) -> Window:
    """The window of the part of a level, which is open; `longest` is what an event lasts."""
    window, part, alone = Window(), level.part, frozenset((level.part,))
    for number in level.times:
        later = conditions[number]
        assert isinstance(later, Later)
        earlier_end, later_end, by = later.earlier.end, later.later.end, length_of(later.by)
        # where the part is on both sides, the other side may only become worse by it
        behind = part not in later.earlier.group or earlier_end is not later.most
        before = part not in later.later.group or later_end is later.most
        at = filled.at(later.earlier) if part in later.later.group and behind else None
        if at is not None:
            single = later.later.group == alone
            if later.most and later_end:
                window.ends(at + by, number)
            elif later.most and single:
                window.ends(at + by + longest, number)
            elif not later.most and (single or not later_end):
                window.begins(at + by, number)
        at = filled.at(later.later) if part in later.earlier.group and before else None
        if at is not None:
            single = later.earlier.group == alone
            if later.most and (single or not earlier_end):
                window.begins(at - by, number)
            elif not later.most and earlier_end:
                window.ends(at - by, number)
            elif not later.most and single:
                window.ends(at - by + longest, number)
    return window
