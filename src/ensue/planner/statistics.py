"""Statistics of a stream, the counters they are measured by, and decisions based on them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ensue.errors import EventError
from ensue.ir import expression
from ensue.ir.expression import Expr
from ensue.ir.hierarchy import LAST_POSITION
from ensue.printing.expression_printer import format_condition

# Selectivities and sizes assumed without statistics.
EQUAL, RANGE, BETWEEN, LIKE, TRUE = 0.1, 1 / 3, 1 / 4, 0.1, 0.5
IN_WINDOW = 100.0  # events of a partition inside a window
IN_STREAM = 10_000.0  # events of a partition, where no window ends
PARTITIONS = 100.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a stream; missing ones are assumed.

    >>> known = Statistics.given(rates={"A": 3, "B": 1}, passes={"a.x < b.x": 0.02})
    >>> known.rate, known.share("A"), known.share("C")
    (4.0, 0.75, None)
    >>> Statistics.read(known.text()) == known
    True
    """

    source: str = "assumed"
    rate: float | None = None  # events per second, or per unit of a numeric time
    shares: tuple[tuple[str, float], ...] = ()  # of the event types among all events
    passes: tuple[tuple[str, float], ...] = ()  # selectivities of conditions, by their text
    partitions: float | None = None  # their number
    effective: float | None = None  # equal partitions of the same density: 1 / sum of squares

    def __post_init__(self) -> None:
        for name in ("rate", "partitions", "effective"):
            number = getattr(self, name)
            if number is not None and not (math.isfinite(number) and number > 0):
                raise EventError(f"statistics: {name}={number!r} is not a positive number")
        for what, chances in (("share", self.shares), ("chance", self.passes)):
            for name, chance in chances:
                if not 0 <= chance <= 1:
                    raise EventError(f"statistics: the {what} {chance!r} of {name} is not 0 to 1")

    @classmethod
    def given(
        cls,
        *,
        rates: Mapping[str, float] | None = None,
        passes: Mapping[str, float] | None = None,
        partitions: float | None = None,
        effective: float | None = None,
        source: str = "given",
    ) -> "Statistics":
        """Statistics that a user provides.

        `rates`: events per second (or per unit of a numeric time) of each type; `passes`: the
        selectivity of conditions, by their text in `explain`; `partitions`: their number, and
        `effective`: the number of equal partitions of the same density, if a few hold most events.
        """
        rates = dict(rates or {})
        bad = {name: rate for name, rate in rates.items() if not (0 <= rate < math.inf)}
        total = float(sum(rates.values()))
        if bad or (rates and total <= 0):
            raise EventError(f"statistics: rates={bad or rates!r}: a rate is a positive number")
        return cls(
            source,
            total or None,
            tuple(sorted((name, rate / total) for name, rate in rates.items())),
            tuple(sorted((text, float(chance)) for text, chance in (passes or {}).items())),
            partitions,
            effective if effective is not None else partitions,
        )

    @classmethod
    def together(cls, parts: Sequence["Statistics"]) -> "Statistics":
        """Merges the statistics of several queries over one stream; the first has precedence.

        >>> a = Statistics.given(rates={"A": 3, "B": 1}, passes={"a.x > 1": 0.5})
        >>> both = Statistics.together([a, Statistics.given(passes={"b.x > 1": 0.2})])
        >>> both.rate, both.passes
        (4.0, (('a.x > 1', 0.5), ('b.x > 1', 0.2)))
        """
        first = parts[0]
        shares, passes = dict(first.shares), dict(first.passes)
        for other in parts[1:]:
            shares = {**dict(other.shares), **shares}
            passes = {**dict(other.passes), **passes}
        return replace(first, shares=tuple(sorted(shares.items())), passes=tuple(sorted(passes.items())))

    @property
    def assumed(self) -> bool:
        """Whether no statistic is known."""
        return self == Statistics(self.source)

    def share(self, type_: str) -> float | None:
        """The share of a type among all events, if known."""
        return dict(self.shares).get(type_)

    def get_selectivity(self, condition: Expr) -> float:
        """The selectivity of a condition, known or assumed."""
        known = dict(self.passes).get(format_condition(condition))
        return assume_selectivity(condition) if known is None else known

    def text(self) -> str:
        """JSON that `read` parses."""
        return json.dumps(self.described(), sort_keys=True)

    def described(self) -> dict[str, Any]:
        """Plain values that `of` reads."""
        return asdict(self) | {"shares": dict(self.shares), "passes": dict(self.passes)}

    @classmethod
    def read(cls, text: str) -> "Statistics":
        try:
            described = json.loads(text)
        except json.JSONDecodeError as error:
            raise EventError(f"statistics that are not JSON: {error}") from None
        return cls.of(described)

    @classmethod
    def of(cls, described: Any) -> "Statistics":
        """Statistics from plain values; missing ones are assumed."""
        if not isinstance(described, Mapping):
            raise EventError("statistics must be an object with rate, shares, passes, ...")
        unknown = sorted(set(described) - set(cls().described()))
        if unknown:
            raise EventError(f"statistics have no '{unknown[0]}'\n  hint: {', '.join(cls().described())}")
        return cls(
            described.get("source", "given"),
            described.get("rate"),
            tuple(sorted(described.get("shares", {}).items())),
            tuple(sorted(described.get("passes", {}).items())),
            described.get("partitions"),
            described.get("effective", described.get("partitions")),
        )


ASSUMED = Statistics()


def assume_selectivity(condition: Expr) -> float:
    """The selectivity of a condition by its form, with the constants that databases assume.

    >>> a, b = expression.FieldRef("a", "x"), expression.FieldRef("b", "x")
    >>> assume_selectivity(expression.Binary("=", a, b)), round(assume_selectivity(expression.Binary("<", a, b)), 3)
    (0.1, 0.333)
    """
    match condition:
        case expression.Literal(value=value):
            return 1.0 if value is True else 0.0
        case expression.Binary(left=expression.FieldRef(name=name)) if name == LAST_POSITION:
            return 0.99  # it only matters if two events end and start at the same time
        case expression.Binary(operator="and", left=left, right=right):
            return assume_selectivity(left) * assume_selectivity(right)
        case expression.Binary(operator="or", left=left, right=right):
            return 1 - (1 - assume_selectivity(left)) * (1 - assume_selectivity(right))
        case expression.Binary(operator="="):
            return EQUAL
        case expression.Binary(operator="!="):
            return 1 - EQUAL
        case expression.Binary(operator=operator) if operator in expression.COMPARISONS:
            return RANGE
        case expression.Unary(operator="not", operand=operand):
            return 1 - assume_selectivity(operand)
        case expression.IsNull(negated=negated):
            return 1 - EQUAL if negated else EQUAL
        case expression.In(options=options, negated=negated):
            share = min(0.5, EQUAL * len(options))
            return 1 - share if negated else share
        case expression.Between(negated=negated):
            return 1 - BETWEEN if negated else BETWEEN
        case expression.Like(negated=negated):
            return 1 - LIKE if negated else LIKE
        case (
            expression.FieldRef()
            | expression.Aggregate()
            | expression.Unary()
            | expression.Binary()
            | expression.FunctionCall()
        ):
            return TRUE


@dataclass(frozen=True, slots=True)
class PassCount:
    """How often a condition was evaluated, and how often it held."""

    tried: int = 0
    passed: int = 0

    @property
    def share(self) -> float | None:
        return self.passed / self.tried if self.tried else None


CounterLabel = tuple[str, str]  # a place of the plan, and the condition evaluated there


@dataclass(frozen=True, slots=True)
class MatcherCounters:
    """Counts of a matcher since its start.

    `roles`: by variable, the events of its type and those that match it. `conditions`: by variable
    and text, on a single event. `checks`: by place and text, between events. `absences`: by place
    and negated variable. `places`: by place, the partial matches that were visited and created.
    """

    events: int = 0
    seconds: float = 0.0  # from the first event to the last, or units of a numeric time
    types: Mapping[str, str] | None = None  # variable -> event type, if it has a single one
    roles: Mapping[str, PassCount] | None = None
    conditions: Mapping[CounterLabel, PassCount] | None = None
    checks: Mapping[CounterLabel, PassCount] | None = None
    absences: Mapping[CounterLabel, PassCount] | None = None
    places: Mapping[str, PassCount] | None = None
    matches: int = 0
    partial: int = 0  # live partial matches
    partitions: int = 1
    crowding: float = 0.0  # sum of squared shares of the partitions, times events

    @property
    def effective(self) -> float:
        """The number of equal partitions of the same density."""
        return self.events / self.crowding if self.crowding else 1.0

    def by_text(self) -> dict[str, PassCount]:
        """The counts of each condition over all places."""
        counts: dict[str, PassCount] = {}
        for labels in (self.conditions or {}, self.checks or {}):
            for (_, text), count in labels.items():
                before = counts.get(text, PassCount())
                counts[text] = PassCount(before.tried + count.tried, before.passed + count.passed)
        return counts


def compute_statistics(
    counters: MatcherCounters, before: Statistics = ASSUMED, *, source: str = "the running stream"
) -> Statistics:
    """Computes statistics from counts; conditions without counts keep their earlier statistics.

    The selectivity of a condition refers to the events it was evaluated on, which passed the
    conditions before it.
    """
    if not counters.events:
        return before
    passes = dict(before.passes)
    passes |= {text: share for text, count in counters.by_text().items() if (share := count.share) is not None}
    shares, types = dict(before.shares), counters.types or {}
    shares |= {types[v]: count.tried / counters.events for v, count in (counters.roles or {}).items() if v in types}
    return Statistics(
        source,
        counters.events / counters.seconds if counters.seconds > 0 else before.rate,
        tuple(sorted(shares.items())),
        tuple(sorted(passes.items())),
        float(counters.partitions),
        counters.effective,
    )


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """Estimated cost of a plan alternative."""

    cost: float  # per event of the stream, in comparisons
    partial: float  # partial matches, instances or nodes stored at a time
    matches: float  # per event of the stream


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A plan alternative."""

    name: str
    estimate: PlanEstimate


@dataclass(frozen=True, slots=True)
class PlanDecision:
    """The plan alternatives, the chosen one, and the reason if it is not the cost."""

    name: str
    chosen: str
    candidates: tuple[PlanCandidate, ...] = ()
    why: str = ""


def format_number(number: float) -> str:
    """Formats a number with three significant digits, the same on every machine.

    >>> format_number(0.33333), format_number(1234.5), format_number(12), format_number(2.5e12)
    ('0.333', '1,230', '12', '2.5e+12')
    """
    short = float(f"{number:.3g}")
    if short >= 1e9 or 0 < short < 1e-4:
        return f"{short:.3g}"
    return f"{short:,.0f}" if short >= 100 else f"{short:.3g}"
