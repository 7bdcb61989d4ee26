"""What was decided by estimates, as text."""

from collections.abc import Iterator

from ensue.algebra.text import show_name
from ensue.algebra.window import ByEvents
from ensue.plan.estimates.decisions import Decision, Estimate, figure
from ensue.plan.estimates.load import Load
from ensue.plan.physical import Plan


def decided(plan: Plan) -> Iterator[str]:
    """The decisions of a plan with the figures that they were made by."""
    if not plan.decisions:
        return
    load = Load.of(plan.query, plan.roles, plan.statistics)
    yield f"decisions, {statistics_name(plan)}"
    yield f"  {_expected(plan, load)}"
    for decision in plan.decisions:
        yield from _decision(decision)


def statistics_name(plan: Plan) -> str:
    """Where the figures come from."""
    statistics = plan.statistics
    return "by assumed statistics" if statistics.assumed else f"by statistics: {statistics.source}"


def _expected(plan: Plan, load: Load) -> str:
    where = "in a window" if plan.query.within is not None else "at a time"
    if isinstance(plan.query.within, ByEvents):
        where = "in a window, by the query"
    split = ""
    if plan.query.equivalence:
        split = f" of a partition, of {figure(load.partitions)}"
    each = ", ".join(
        f"{show_name(role.variable)} {figure(load.inside(role.variable))}" for role in plan.roles
    )
    return f"{figure(load.window)} events {where}{split}: {each}"


def _decision(decision: Decision) -> Iterator[str]:
    why = f", {decision.why}" if decision.why else ""
    yield f"  {decision.name}: {decision.chosen}{why}"
    width = max((len(c.name) for c in decision.candidates), default=0)
    for candidate in decision.candidates:
        yield f"    {candidate.name:{width}}  {estimated(candidate.estimate)}"


def estimated(estimate: Estimate) -> str:
    """The figures of an estimate."""
    return (
        f"cost {figure(estimate.cost)} an event, "
        f"{figure(estimate.partial)} partial matches, "
        f"{figure(estimate.matches)} matches an event"
    )
