"""What a plan is made by, beside the query: statistics, and what is left out or prescribed."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from ensue.errors import QueryError, did_you_mean
from ensue.plan.estimates.statistics import ASSUMED, Statistics
from ensue.plan.limits import Limits
from ensue.plan.physical_rules.pushing import ON_THE_WAY, PUSH
from ensue.plan.query_rules import BY_SCHEMA, RULES
from ensue.plan.towers import modules
from ensue.plan.towers.modules import PRECURSORS, Module

Shape = modules.Shape

# Decisions that can be switched off by name, beside the rules.
CHOICES = (
    "stacks",
    "tree",
    "compact",
    "join_order",
    "window",
    "predicate_order",
    "predicate_placement",
    PUSH,
    ON_THE_WAY,
    PRECURSORS,
    "top_down",
    "bottom_up",
)
STRUCTURES = ("stacks", "runs", "tree", "compact", "reference")


def switches() -> tuple[str, ...]:
    """All that `off` may name."""
    return (*(rule.__name__ for rule in (*RULES, *BY_SCHEMA)), *CHOICES)


@dataclass(frozen=True, slots=True)
class Planning:
    """How to plan: the same query, schema and planning give the same plan.

    >>> Planning(off=frozenset({"stakcs"}))
    Traceback (most recent call last):
    ...
    ensue.errors.QueryError: there is no rule 'stakcs' to switch off
      hint: did you mean 'stacks'? Rules: flatten, ...
    """

    statistics: Statistics = ASSUMED
    off: frozenset[str] = frozenset()  # rules and choices to leave out, to measure their effect
    structure: str | None = None  # one of STRUCTURES, instead of the cheapest
    shape: Shape | None = None  # of a join tree, instead of the cheapest
    adaptive: bool = False  # the plan may change while the stream runs
    modules: tuple[Module, ...] = ()  # of a tower in a flat query: a join tree takes its shape
    limits: Limits = field(default=Limits(), compare=False)  # no plan depends on them

    def __post_init__(self) -> None:
        _known(self.off, switches(), "there is no rule '{}' to switch off", "Rules")
        if self.structure is not None:
            _known([self.structure], STRUCTURES, "there is no structure '{}'", "Structures")

    def without(self, off: Collection[str]) -> "Planning":
        """The same with more left out."""
        return replace(self, off=self.off | frozenset(off)) if off else self

    # ------------------------------------------------------------------------ as plain values

    def described(self) -> dict[str, Any]:
        """As plain values; `of` gives it back, but for the limits, which a restart may change."""
        return {
            "statistics": self.statistics.described(),
            "off": sorted(self.off),
            "structure": self.structure,
            "shape": self.shape,
            "adaptive": self.adaptive,
        } | self._towering()

    def _towering(self) -> dict[str, Any]:
        modules = [module.described() for module in self.modules]
        return {"modules": modules} if modules else {}

    @classmethod
    def of(cls, described: dict[str, Any] | None) -> "Planning":
        """From plain values, of a lane; None is what nobody has changed."""
        lanes = Limits(lanes=True)
        if described is None:
            return cls(limits=lanes)
        return cls(
            Statistics.of(described["statistics"]),
            frozenset(described["off"]),
            described["structure"],
            _shape(described["shape"]),
            described["adaptive"],
            tuple(map(Module.of, described.get("modules", ()))),
            lanes,
        )

    def text(self) -> str:
        return json.dumps(self.described(), sort_keys=True)


def _known(names: Collection[str], known: Collection[str], problem: str, what: str) -> None:
    for name in sorted(names):
        if name not in known:
            near = did_you_mean(name, known) or ""
            listed = f"{what}: {', '.join(known)}"
            hint = f"{near} {listed}" if near.startswith("did you mean") else listed
            raise QueryError(problem.format(name), hint=hint)


def _shape(described: Any) -> Shape | None:
    if described is None or isinstance(described, str):
        return described
    left, right = (_shape(part) for part in described)
    assert left is not None
    assert right is not None
    return (left, right)


DEFAULT = Planning()
