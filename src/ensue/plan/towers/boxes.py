"""How the complex events in a layer are found: with it, from the top down, or before it.

From the top down the box's pattern is a part of the plan of the layer above: it is only followed
where something stands before it, and nothing is written down in between. From the bottom up the
layer below has a plan of its own: its events are found once for all that use them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp

from ensue.plan.estimates.decisions import Estimate
from ensue.plan.estimates.statistics import Statistics
from ensue.plan.physical import Plan, Reference

TOP_DOWN, BOTTOM_UP = "top_down", "bottom_up"  # the names to switch them off by

# In comparisons, as compiled kernels and columns of matches show them.
WRITE = 400.0  # a complex event made a row that layers above read
READ_AGAIN = 25.0  # an event that came in read by one more layer
ROLE = 4.0  # an event looked at for one more role


@dataclass(frozen=True, slots=True)
class BoxChoice:
    """How one box is found, and why."""

    layer: str
    variable: str
    type: str
    top_down: bool
    why: str
    costs: tuple[float, float] | None = None  # from the top down and from the bottom up


@dataclass(frozen=True, slots=True)
class Below:
    """What is expected of a layer that a box stands for, an event that comes in."""

    apart: float  # cost of a plan of its own, with what is below it
    inside: float  # cost of its part in the plan above, with what is below it
    matches: float
    users: int  # boxes that stand for it, and subscribers
    before: float  # partial matches that wait for it in a window; 0: nothing stands before it
    roles: int = 0  # events of it that come in

    @property
    def followed(self) -> float:
        """The chance that something waits for it."""
        return 1.0 if self.before == 0 else 1 - exp(-self.before)


def costs(boxes: Iterable[Below], read_again: float) -> tuple[float, float]:
    """What boxes cost from the top down and from the bottom up.

    `read_again` is the share of the events that come in which the layer above reads as well.

    >>> few = Below(apart=10, inside=12, matches=0.001, users=1, before=0)
    >>> [round(c, 1) for c in costs([few], 0)]
    [12.0, 10.4]
    >>> many = Below(apart=10, inside=12, matches=0.5, users=1, before=0.1)
    >>> [round(c, 1) for c in costs([many], 0.3)]
    [1.1, 217.5]
    """
    boxes = tuple(boxes)
    down = sum(box.inside * box.followed + box.roles * ROLE for box in boxes)
    up = sum((box.apart + box.matches * WRITE + box.roles * ROLE) / box.users for box in boxes)
    return down, up + read_again * READ_AGAIN


def expected(plan: Plan, name: str | None = None) -> Estimate | None:
    """What a plan is expected to cost, or would with another structure; None: not weighed."""
    if isinstance(plan.structure, Reference):
        return None
    for decision in plan.decisions:
        if decision.name == "structure":
            wanted = name or decision.chosen
            return next((c.estimate for c in decision.candidates if c.name == wanted), None)
    return None


def in_layer(
    statistics: Statistics, raw: Iterable[str], found: Mapping[str, float]
) -> tuple[Statistics, float]:
    """What a layer's stream looks like, and how many events it has for each that comes in.

    `raw` are the types that come in, `found` how many complex events there are for each event.
    """
    if statistics.assumed:
        return statistics, 1.0
    shares = {t: s for t in raw if (s := statistics.share(t)) is not None}
    many = {**shares, **found}
    total = sum(many.values())
    if total <= 0 or not found:
        return statistics, 1.0
    rate = None if statistics.rate is None else statistics.rate * total
    parts = tuple(sorted((name, share / total) for name, share in many.items()))
    return replace(statistics, rate=rate, shares=parts), total
