"""EXPLAIN ANALYZE: estimates of a plan next to the actual numbers of its run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ensue.planner.cost_model import Cardinalities
from ensue.planner.explain.plan_description import format_role
from ensue.planner.explain.plan_node import Metric, PlanNode
from ensue.planner.physical_plan import PhysicalPlan
from ensue.planner.statistics import MatcherCounters, PassCount, format_number
from ensue.printing.expression_printer import format_condition


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The counts and times of a run."""

    events: int
    matches: int  # in the result
    counters: MatcherCounters | None  # None: the reference semantics has no counters
    most_partial: int
    seconds: tuple[tuple[str, float], ...]  # by phase


def describe_run(plan: PhysicalPlan, met: RunCounts) -> PlanNode:
    """Describes a run: estimates beside the actual figures; only the last line depends on the machine."""
    figures: list[Metric] = []
    if (counters := met.counters) is not None:
        figures = [*_scan(plan, met, counters), *_checks(plan, counters), *_totals(plan, met, counters)]
    results = PlanNode(lines=(f"matches in the result: {met.matches:,}", format_phases(met.seconds)))
    title = f"analysis of {met.events:,} events: estimate, actual"
    return PlanNode(title, metrics=tuple(figures), children=(results,))


def format_phases(seconds: Sequence[tuple[str, float]]) -> str:
    """Formats how long the phases of a run took."""
    return f"time: {', '.join(f'{phase} {took:.3f} s' for phase, took in seconds)}"


def _scan(plan: PhysicalPlan, run: RunCounts, met: MatcherCounters) -> Iterator[Metric]:
    """Expected and actual events of each role."""
    load = Cardinalities.estimate(plan.query, plan.roles, plan.statistics)
    known = dict(_selectivities(plan))
    for role in plan.roles:
        count = (met.roles or {}).get(role.variable, PassCount())
        estimate = format_number(load.chances[role.variable] * run.events)
        note = f"events, of {count.tried:,} of its type"
        yield Metric(format_role(role), estimate, f"{count.passed:,}", note)
        for condition in (*role.conditions, *role.first):
            tried = (met.conditions or {}).get((role.variable, format_condition(condition)))
            if tried is not None:
                text = format_condition(condition)
                yield Metric(f"  {text}", format_number(known[text]), *_actual(tried))


def _selectivities(plan: PhysicalPlan) -> Iterator[tuple[str, float]]:
    tested = [c for role in plan.roles for c in (*role.conditions, *role.first)]
    for condition in (*plan.query.where, *tested):
        yield format_condition(condition), plan.statistics.get_selectivity(condition)


def _actual(count: PassCount) -> tuple[str, str]:
    share = "-" if count.share is None else format_number(count.share)
    return share, f"of {count.tried:,} tried"


def _checks(plan: PhysicalPlan, met: MatcherCounters) -> Iterator[Metric]:
    """Selectivities of the conditions between events, and of the negations."""
    known = dict(_selectivities(plan))
    for (place, text), count in (met.checks or {}).items():
        estimate = format_number(known[text]) if text in known else ""
        yield Metric(f"{text} at {place}", estimate, *_actual(count))
    for (place, variable), count in (met.absences or {}).items():
        yield Metric(f"no {variable} at {place}", "", *_actual(count))


def _totals(plan: PhysicalPlan, met: RunCounts, counters: MatcherCounters) -> Iterator[Metric]:
    """Partial matches, matches and partitions."""
    chosen = [
        candidate.estimate
        for decision in plan.decisions
        if decision.name == "structure"
        for candidate in decision.candidates
        if candidate.name == decision.chosen
    ]
    for place, count in (counters.places or {}).items():
        yield Metric(f"created at {place}", "", f"{count.passed:,}", f"visited {count.tried:,} times")
    for estimate in chosen:
        note = f"at most; {counters.partial:,} at the end"
        partial = format_number(estimate.partial)
        yield Metric("partial matches", partial, f"{met.most_partial:,}", note)
        yield Metric("matches", format_number(estimate.matches * met.events), f"{counters.matches:,}")
    if plan.query.equivalence:
        load = Cardinalities.estimate(plan.query, plan.roles, plan.statistics)
        effective = f"as dense as {format_number(counters.effective)} equal ones"
        yield Metric("partitions", format_number(load.partitions), f"{counters.partitions:,}", effective)
