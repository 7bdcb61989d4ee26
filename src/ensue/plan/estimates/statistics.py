"""What a stream looks like: how often events come, what conditions let through, how it splits."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ensue.algebra.predicate import (
    COMPARISONS,
    Aggregate,
    Between,
    Binary,
    Call,
    Expr,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.algebra.text import show_condition
from ensue.algebra.towers.behind import AT
from ensue.errors import EventError

# What is assumed where nothing is known.
EQUAL, RANGE, BETWEEN, LIKE, TRUE = 0.1, 1 / 3, 1 / 4, 0.1, 0.5
IN_WINDOW = 100.0  # events of a partition inside a window
IN_STREAM = 10_000.0  # events of a partition, where no window ends
PARTITIONS = 100.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of a stream; what is missing is assumed.

    >>> known = Statistics.given(rates={"A": 3, "B": 1}, passes={"a.x < b.x": 0.02})
    >>> known.rate, known.share("A"), known.share("C")
    (4.0, 0.75, None)
    >>> Statistics.read(known.text()) == known
    True
    """

    source: str = "assumed"
    rate: float | None = None  # events a second, or a unit of a numeric time, of the whole stream
    shares: tuple[tuple[str, float], ...] = ()  # of the event types among all events
    passes: tuple[tuple[str, float], ...] = ()  # chances of conditions, by their text
    partitions: float | None = None  # how many there are
    effective: float | None = None  # so many equal ones would be as crowded: 1 / sum of squares

    def __post_init__(self) -> None:
        for name, number in (
            ("rate", self.rate),
            ("partitions", self.partitions),
            ("effective", self.effective),
        ):
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
        """Statistics from what a user knows.

        `rates`: events a second (or a unit of a numeric time) of each type; `passes`: the chance
        of conditions, by their text as `explain` shows it; `partitions`: how many there are, and
        `effective`: how many equal ones would be as crowded, where a few hold most events.
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
        """What several queries over one stream know of it; of what all know, what the first says.

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
        return replace(
            first, shares=tuple(sorted(shares.items())), passes=tuple(sorted(passes.items()))
        )

    # ------------------------------------------------------------------------ lookups

    @property
    def assumed(self) -> bool:
        """Whether nothing is known."""
        return self == Statistics(self.source)

    def share(self, type_: str) -> float | None:
        """The share of a type among all events, if it is known."""
        return dict(self.shares).get(type_)

    def known_pass(self, condition: Expr) -> float | None:
        """The chance of a condition, if it is known."""
        return dict(self.passes).get(show_condition(condition))

    def pass_of(self, condition: Expr) -> float:
        """The chance that a condition holds, known or assumed."""
        known = self.known_pass(condition)
        return assumed_pass(condition) if known is None else known

    # ------------------------------------------------------------------------ as text

    def text(self) -> str:
        """As JSON; `read` gives it back."""
        return json.dumps(self.described(), sort_keys=True)

    def described(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "source": self.source,
            "rate": self.rate,
            "shares": dict(self.shares),
            "passes": dict(self.passes),
            "partitions": self.partitions,
            "effective": self.effective,
        }

    @classmethod
    def read(cls, text: str) -> "Statistics":
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            raise EventError(f"statistics that are not JSON: {error}") from None
        return cls.of(found)

    @classmethod
    def of(cls, described: Any) -> "Statistics":
        """From plain values, as `described` gives them; what is left out is assumed."""
        if not isinstance(described, Mapping):
            raise EventError("statistics must be an object with rate, shares, passes, ...")
        unknown = sorted(set(described) - set(cls().described()))
        if unknown:
            raise EventError(
                f"statistics have no '{unknown[0]}'\n  hint: {', '.join(cls().described())}"
            )
        return cls(
            described.get("source", "given"),
            described.get("rate"),
            tuple(sorted(described.get("shares", {}).items())),
            tuple(sorted(described.get("passes", {}).items())),
            described.get("partitions"),
            described.get("effective", described.get("partitions")),
        )


ASSUMED = Statistics()


def assumed_pass(condition: Expr) -> float:
    """The chance of a condition of which only its form is known, as databases assume it.

    >>> a, b = Field("a", "x"), Field("b", "x")
    >>> assumed_pass(Binary("=", a, b)), round(assumed_pass(Binary("<", a, b)), 3)
    (0.1, 0.333)
    """
    match condition:
        case Literal(value=value):
            return 1.0 if value is True else 0.0
        case Binary(left=Field(name=name)) if name == AT:
            return 0.99  # it only matters where two events end and start at one time
        case Binary(operator="and", left=left, right=right):
            return assumed_pass(left) * assumed_pass(right)
        case Binary(operator="or", left=left, right=right):
            return 1 - (1 - assumed_pass(left)) * (1 - assumed_pass(right))
        case Binary(operator="="):
            return EQUAL
        case Binary(operator="!="):
            return 1 - EQUAL
        case Binary(operator=operator) if operator in COMPARISONS:
            return RANGE
        case Unary(operator="not", operand=operand):
            return 1 - assumed_pass(operand)
        case IsNull(negated=negated):
            return 1 - EQUAL if negated else EQUAL
        case In(options=options, negated=negated):
            among = min(0.5, EQUAL * len(options))
            return 1 - among if negated else among
        case Between(negated=negated):
            return 1 - BETWEEN if negated else BETWEEN
        case Like(negated=negated):
            return 1 - LIKE if negated else LIKE
        case Field() | Aggregate() | Unary() | Binary() | Call():
            return TRUE
