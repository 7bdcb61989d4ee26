"""EXPLAIN ANALYZE: estimates of a plan next to the actual numbers of its run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ensue.planner.cost_model import Cardinalities
from ensue.planner.explain.plan_text import format_role
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


def format_analysis(plan: PhysicalPlan, met: RunCounts) -> str:
    """A section after the plan's text; only its last line depends on the machine."""
    lines = [f"analysis of {met.events:,} events: estimate, actual"]
    if met.counters is not None:
        counters = met.counters
        rows = [*_scan(plan, counters), *_checks(plan, counters), *_totals(plan, met, counters)]
        lines += format_rows(rows)
    lines.append(f"  matches in the result: {met.matches:,}")
    phases = ", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in met.seconds)
    return "\n".join([*lines, f"  time: {phases}"])


Row = tuple[str, str, str, str]  # label, estimate, actual, details


def format_rows(rows: Sequence[Row]) -> list[str]:
    """Aligns rows of label, estimate, actual and details."""
    widths = [max((len(row[k]) for row in rows), default=0) for k in range(3)]
    return [
        f"  {label:{widths[0]}}  {estimate:>{widths[1]}}  {actual:>{widths[2]}}  {more}".rstrip()
        for label, estimate, actual, more in rows
    ]


def _scan(plan: PhysicalPlan, met: MatcherCounters) -> Iterator[Row]:
    """Expected and actual events of each role."""
    load = Cardinalities.estimate(plan.query, plan.roles, plan.statistics)
    known = dict(_selectivities(plan))
    for role in plan.roles:
        count = (met.roles or {}).get(role.variable, PassCount())
        estimate = format_number(load.chances[role.variable] * met.events)
        note = f"events, of {count.tried:,} of its type"
        yield format_role(role), estimate, f"{count.passed:,}", note
        for condition in (*role.conditions, *role.first):
            tried = (met.conditions or {}).get((role.variable, format_condition(condition)))
            if tried is not None:
                text = format_condition(condition)
                yield f"  {text}", format_number(known[text]), *_actual(tried)


def _selectivities(plan: PhysicalPlan) -> Iterator[tuple[str, float]]:
    tested = [c for role in plan.roles for c in (*role.conditions, *role.first)]
    for condition in (*plan.query.where, *tested):
        yield format_condition(condition), plan.statistics.get_selectivity(condition)


def _actual(count: PassCount) -> tuple[str, str]:
    share = "-" if count.share is None else format_number(count.share)
    return share, f"of {count.tried:,} tried"


def _checks(plan: PhysicalPlan, met: MatcherCounters) -> Iterator[Row]:
    """Selectivities of the conditions between events, and of the negations."""
    known = dict(_selectivities(plan))
    for (place, text), count in (met.checks or {}).items():
        estimate = format_number(known[text]) if text in known else ""
        yield f"{text} at {place}", estimate, *_actual(count)
    for (place, variable), count in (met.absences or {}).items():
        yield f"no {variable} at {place}", "", *_actual(count)


def _totals(plan: PhysicalPlan, met: RunCounts, counters: MatcherCounters) -> Iterator[Row]:
    """Partial matches, matches and partitions."""
    chosen = [
        candidate.estimate
        for decision in plan.decisions
        if decision.name == "structure"
        for candidate in decision.candidates
        if candidate.name == decision.chosen
    ]
    for place, count in (counters.places or {}).items():
        yield f"created at {place}", "", f"{count.passed:,}", f"visited {count.tried:,} times"
    for estimate in chosen:
        note = f"at most; {counters.partial:,} at the end"
        partial = format_number(estimate.partial)
        yield "partial matches", partial, f"{met.most_partial:,}", note
        yield "matches", format_number(estimate.matches * met.events), f"{counters.matches:,}", ""
    if plan.query.equivalence:
        load = Cardinalities.estimate(plan.query, plan.roles, plan.statistics)
        effective = f"as dense as {format_number(counters.effective)} equal ones"
        yield "partitions", format_number(load.partitions), f"{counters.partitions:,}", effective
