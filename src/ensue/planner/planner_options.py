"""Options of the planner: statistics, disabled rules and prescribed structures."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from ensue.errors import EventError, QueryError, did_you_mean
from ensue.options import Limits, list_names
from ensue.planner import hierarchy_modules
from ensue.planner.hierarchy_modules import PRECURSORS, HierarchyModule
from ensue.planner.negations import IN_CONSTRUCTION, PUSH
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOptions:
    """How a query runs, which never changes its matches; equal options give equal plans.

    >>> PlannerOptions(off="stakcs")
    Traceback (most recent call last):
    ...
    ensue.errors.QueryError: there is no rule 'stakcs' to switch off
      hint: did you mean 'stacks'? Rules: flatten, ...

    Args:
        statistics: Statistics of the stream (see `statistics`), to find the cheapest plan.
        off: Rules of the planner to switch off, one or several.
        structure: The store of partial matches: "stacks", "runs", "tree", "compact" or
            "reference".
        adaptive: Measure the stream and switch to a plan that is clearly cheaper. Each change is
            logged with its reason (logger `ensue.plan`).
    """

    statistics: Statistics = ASSUMED
    off: Collection[str] = frozenset()  # a name, too; then a frozenset
    structure: str | None = None  # one of STRUCTURES, instead of the cheapest
    adaptive: bool = False  # the plan may change while the stream runs
    # set by Ensue
    shape: Shape | None = None  # of a join tree, instead of the cheapest
    modules: tuple[HierarchyModule, ...] = ()  # of a hierarchy in a flat query
    limits: Limits = field(default=Limits(), compare=False)  # affect no plan

    def __post_init__(self) -> None:
        if not isinstance(self.statistics, Statistics):
            raise EventError(
                f"statistics= is a {type(self.statistics).__name__}\n"
                "  hint: ensue.statistics(events, query, ...) measures them, "
                "ensue.Statistics.given(...) takes known figures"
            )
        object.__setattr__(self, "off", frozenset(list_names("off", self.off)))
        _require_known(self.off, list_switches(), "there is no rule '{}' to switch off", "Rules")
        if self.structure is not None:
            _require_known([self.structure], STRUCTURES, "there is no structure '{}'", "Structures")

    def disable(self, off: Collection[str]) -> "PlannerOptions":
        """The same options with more rules disabled."""
        return replace(self, off={*self.off, *off}) if off else self

    def to_dict(self) -> dict[str, Any]:
        """Plain values that `from_dict` reads, without what a restart finds out again: modules and limits."""
        return {
            "statistics": self.statistics.described(),
            "off": sorted(self.off),
            "structure": self.structure,
            "shape": self.shape,
            "adaptive": self.adaptive,
        }

    @classmethod
    def from_dict(cls, described: dict[str, Any] | None) -> "PlannerOptions":
        """Reads the options of a task from plain values; None gives the default options."""
        per_core = Limits(per_core=True)
        if described is None:
            return cls(limits=per_core)
        return cls(
            statistics=Statistics.of(described["statistics"]),
            off=described["off"],
            structure=described["structure"],
            shape=_shape(described["shape"]),
            adaptive=described["adaptive"],
            limits=per_core,
        )


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
