"""What a matcher has counted, and the statistics that follow from it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ensue.plan.estimates.statistics import ASSUMED, Statistics


@dataclass(frozen=True, slots=True)
class Tried:
    """How often something was tried, and how often it held."""

    tried: int = 0
    passed: int = 0

    @property
    def share(self) -> float | None:
        return self.passed / self.tried if self.tried else None

    def without(self, earlier: "Tried") -> "Tried":
        return Tried(self.tried - earlier.tried, self.passed - earlier.passed)


Label = tuple[str, str]  # a place of the plan, and what is tried there


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of a matcher since it began, or since an earlier look at it.

    `roles`: by variable, the events of its type and those that can play it. `conditions`: by
    variable and text, of one event alone. `checks`: by place and text, between events.
    `absences`: by place and negated variable. `places`: by place, how many partial matches were
    looked at and how many were made.
    """

    events: int = 0
    seconds: float = 0.0  # from the first event to the last, or units of a numeric time
    types: Mapping[str, str] | None = None  # variable -> event type, where it is one
    roles: Mapping[str, Tried] | None = None
    conditions: Mapping[Label, Tried] | None = None
    checks: Mapping[Label, Tried] | None = None
    absences: Mapping[Label, Tried] | None = None
    places: Mapping[str, Tried] | None = None
    matches: int = 0
    partial: int = 0  # partial matches that are alive
    partitions: int = 1
    crowding: float = 0.0  # sum of squared shares of the partitions, times events

    @property
    def effective(self) -> float:
        """So many equal partitions would be as crowded."""
        return self.events / self.crowding if self.crowding else 1.0

    def since(self, earlier: "Counters") -> "Counters":
        """What was counted after an earlier look at the same matcher."""
        return replace(
            self,
            events=self.events - earlier.events,
            seconds=self.seconds - earlier.seconds,
            roles=_less(self.roles, earlier.roles),
            conditions=_less(self.conditions, earlier.conditions),
            checks=_less(self.checks, earlier.checks),
            absences=_less(self.absences, earlier.absences),
            places=_less(self.places, earlier.places),
            matches=self.matches - earlier.matches,
            crowding=self.crowding - earlier.crowding,
        )

    def by_text(self) -> dict[str, Tried]:
        """Every condition with its counts, wherever it was tried."""
        found: dict[str, Tried] = {}
        for labels in (self.conditions or {}, self.checks or {}):
            for (_, text), count in labels.items():
                before = found.get(text, Tried())
                found[text] = Tried(before.tried + count.tried, before.passed + count.passed)
        return found


def _less(now: Mapping | None, then: Mapping | None) -> Mapping:  # type: ignore[type-arg]
    then = then or {}
    return {k: count.without(then.get(k, Tried())) for k, count in (now or {}).items()}


def measured(
    counters: Counters, before: Statistics = ASSUMED, *, source: str = "the running stream"
) -> Statistics:
    """Statistics from counts; what was never tried is as it was known before.

    The chance of a condition is that among the events for which it was tried: those that passed
    the conditions in front of it.
    """
    if not counters.events:
        return before
    passes = dict(before.passes)
    passes |= {
        text: share
        for text, count in counters.by_text().items()
        if (share := count.share) is not None
    }
    return Statistics(
        source,
        counters.events / counters.seconds if counters.seconds > 0 else before.rate,
        _shares(counters, before.shares),
        tuple(sorted(passes.items())),
        float(counters.partitions),
        counters.effective,
    )


def _shares(
    counters: Counters, before: Iterable[tuple[str, float]]
) -> tuple[tuple[str, float], ...]:
    shares, types = dict(before), counters.types or {}
    for variable, count in (counters.roles or {}).items():
        if variable in types:
            shares[types[variable]] = count.tried / counters.events
    return tuple(sorted(shares.items()))
