"""How many events meet each other: what statistics mean for the variables of a query."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from ensue.algebra.predicate import Expr
from ensue.algebra.query import Query
from ensue.algebra.window import ByEvents, ByTime, ByUnits
from ensue.plan.estimates.statistics import IN_STREAM, IN_WINDOW, PARTITIONS, Statistics
from ensue.plan.physical import Role
from ensue.schema import ANY, Types, names_of

MOST = 1e15  # no estimate goes further


@dataclass(frozen=True, slots=True)
class Load:
    """What a matcher has to expect of a stream."""

    statistics: Statistics
    window: float  # events inside a window, in the partition of a typical event
    partitions: float
    chances: dict[str, float]  # that an event of the stream can play a variable

    @classmethod
    def of(cls, query: Query, roles: Iterable[Role], statistics: Statistics) -> "Load":
        roles = tuple(roles)
        shares = _shares(statistics, {role.type for role in roles})
        partitions = 1.0
        if query.equivalence:
            partitions = statistics.effective or statistics.partitions or PARTITIONS
        chances = {
            role.variable: shares[role.type]
            * prod(statistics.pass_of(c) for c in (*role.conditions, *role.first))
            for role in roles
        }
        return cls(statistics, _window(query, statistics, partitions), partitions, chances)

    def inside(self, variable: str) -> float:
        """How many events of a variable there are inside a window, in one partition."""
        return self.window * self.chances[variable]

    def passes(self, conditions: Iterable[Expr]) -> float:
        return prod(self.statistics.pass_of(c) for c in conditions)


def _shares(statistics: Statistics, types: set[Types]) -> dict[Types, float]:
    """The share of events that are of each type, or of one of several."""
    alone = _shares_of_names(statistics, {name for type_ in types for name in names_of(type_)})
    return {
        type_: 1.0 if type_ == ANY else min(1.0, sum(alone[name] for name in names_of(type_)))
        for type_ in types
    }


def _shares_of_names(statistics: Statistics, types: set[str]) -> dict[str, float]:
    """The share of each type: of one that has not been seen, no more than what is left."""
    known = {t: s for t in types if (s := statistics.share(t)) is not None}
    if not statistics.shares:
        return dict.fromkeys(types, 1 / max(1, len(types)))
    left = max(0.0, 1 - sum(share for _, share in statistics.shares))
    rare = min([s for _, s in statistics.shares if s > 0] or [1.0])
    other = min(left / max(1, len(types) - len(known)), rare) or rare / 10
    return {t: known.get(t, other) for t in types}


def _window(query: Query, statistics: Statistics, partitions: float) -> float:
    match query.within:
        case ByEvents(count=count):
            return float(count)
        case _ if statistics.rate is None:
            return IN_STREAM if query.within is None else IN_WINDOW
        case ByTime(nanoseconds=length):
            events = statistics.rate * length / 1e9
        case ByUnits(amount=amount):
            events = statistics.rate * amount
        case None:
            return IN_STREAM
    return min(MOST, max(1.0, events / partitions))
