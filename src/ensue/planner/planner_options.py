"""Options of the planner: statistics, disabled rules and prescribed structures."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from ensue.errors import QueryError, did_you_mean
from ensue.planner import hierarchy_modules
from ensue.planner.hierarchy_modules import PRECURSORS, HierarchyModule
from ensue.planner.limits import MatcherLimits
from ensue.planner.negation_pushdown import IN_CONSTRUCTION, PUSH
from ensue.planner.rewrites import BY_SCHEMA, RULES
from ensue.planner.statistics import ASSUMED, Statistics

Shape = hierarchy_modules.Shape

# Decisions that can be switched off by name, in addition to the rules.
CHOICES = (
    "stacks", "tree", "compact", "join_order", "window", "predicate_order", "predicate_placement",
    PUSH, IN_CONSTRUCTION, PRECURSORS, "top_down", "bottom_up",
)  # fmt: skip
STRUCTURES = ("stacks", "runs", "tree", "compact", "reference")


def list_switches() -> tuple[str, ...]:
    """All names that `off` accepts."""
    return (*(rule.__name__ for rule in (*RULES, *BY_SCHEMA)), *CHOICES)


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """Planner options; equal query, schema and options give equal plans.

    >>> PlannerOptions(off=frozenset({"stakcs"}))
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
    modules: tuple[HierarchyModule, ...] = ()  # of a hierarchy in a flat query
    limits: MatcherLimits = field(default=MatcherLimits(), compare=False)  # affect no plan

    def __post_init__(self) -> None:
        _require_known(self.off, list_switches(), "there is no rule '{}' to switch off", "Rules")
        if self.structure is not None:
            _require_known([self.structure], STRUCTURES, "there is no structure '{}'", "Structures")

    def disable(self, off: Collection[str]) -> "PlannerOptions":
        """The same options with more rules disabled."""
        return replace(self, off=self.off | frozenset(off)) if off else self

    def to_dict(self) -> dict[str, Any]:
        """Plain values that `from_dict` reads, without the limits, which a restart may change."""
        modules = [module.to_dict() for module in self.modules]
        return {
            "statistics": self.statistics.described(),
            "off": sorted(self.off),
            "structure": self.structure,
            "shape": self.shape,
            "adaptive": self.adaptive,
        } | ({"modules": modules} if modules else {})

    @classmethod
    def from_dict(cls, described: dict[str, Any] | None) -> "PlannerOptions":
        """Reads the options of a task from plain values; None gives the default options."""
        per_core = MatcherLimits(per_core=True)
        if described is None:
            return cls(limits=per_core)
        return cls(
            Statistics.of(described["statistics"]),
            frozenset(described["off"]),
            described["structure"],
            _shape(described["shape"]),
            described["adaptive"],
            tuple(map(HierarchyModule.from_dict, described.get("modules", ()))),
            per_core,
        )

    def text(self) -> str:
        return json.dumps(self.to_dict(), sort_keys=True)


def _require_known(names: Collection[str], known: Collection[str], problem: str, noun: str) -> None:
    for name in sorted(names):
        if name not in known:
            near = did_you_mean(name, known) or ""
            listed = f"{noun}: {', '.join(known)}"
            hint = f"{near} {listed}" if near.startswith("did you mean") else listed
            raise QueryError(problem.format(name), hint=hint)


def _shape(described: Any) -> Shape | None:
    if described is None or isinstance(described, str):
        return described
    return tuple(map(_shape, described))  # type: ignore[return-value]


DEFAULT_OPTIONS = PlannerOptions()
