"""Estimate against actual: what a plan was expected to meet, and what it met."""

from collections.abc import Iterator
from dataclasses import dataclass

from ensue.algebra.predicate import Expr
from ensue.algebra.text import show_condition
from ensue.plan.estimates.counters import Counters, Tried
from ensue.plan.estimates.decisions import figure
from ensue.plan.estimates.load import Load
from ensue.plan.physical import Plan
from ensue.plan.show.explain import role_name


@dataclass(frozen=True, slots=True)
class Met:
    """What happened when a query was run."""

    events: int
    matches: int  # in the result
    counters: Counters | None  # None: the reference semantics counts nothing
    most_partial: int
    seconds: tuple[tuple[str, float], ...]  # by phase


def analysed(plan: Plan, met: Met) -> str:
    """A section behind the plan's text; only its last line depends on the machine."""
    lines = [f"analysis of {met.events:,} events: estimate, actual"]
    if met.counters is not None:
        counters = met.counters
        rows = [*_scan(plan, counters), *_checks(plan, counters), *_whole(plan, met, counters)]
        lines += _table(rows)
    lines.append(f"  matches in the result: {met.matches:,}")
    phases = ", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in met.seconds)
    return "\n".join([*lines, f"  time: {phases}"])


Row = tuple[str, str, str, str]  # what, estimate, actual, more


def _table(rows: list[Row]) -> list[str]:
    widths = [max((len(row[k]) for row in rows), default=0) for k in range(3)]
    return [
        f"  {what:{widths[0]}}  {estimate:>{widths[1]}}  {actual:>{widths[2]}}  {more}".rstrip()
        for what, estimate, actual, more in rows
    ]


def _scan(plan: Plan, met: Counters) -> Iterator[Row]:
    """What the scan was expected to see of each role."""
    load = Load.of(plan.query, plan.roles, plan.statistics)
    known = dict(_chances(plan))
    for role in plan.roles:
        count = (met.roles or {}).get(role.variable, Tried())
        yield (
            role_name(role),
            figure(load.chances[role.variable] * met.events),
            f"{count.passed:,}",
            f"events, of {count.tried:,} of its type",
        )
        for condition in (*role.conditions, *role.first):
            tried = (met.conditions or {}).get((role.variable, show_condition(condition)))
            if tried is not None:
                yield _chance(f"  {show_condition(condition)}", known, condition, tried)


def _chances(plan: Plan) -> Iterator[tuple[str, float]]:
    tested = [c for role in plan.roles for c in (*role.conditions, *role.first)]
    for condition in (*plan.query.where, *tested):
        yield show_condition(condition), plan.statistics.pass_of(condition)


def _chance(what: str, known: dict[str, float], condition: Expr, count: Tried) -> Row:
    share = "-" if count.share is None else figure(count.share)
    return what, figure(known[show_condition(condition)]), share, f"of {count.tried:,} tried"


def _checks(plan: Plan, met: Counters) -> Iterator[Row]:
    """How often conditions between events held, and negations."""
    known = dict(_chances(plan))
    for (place, text), count in (met.checks or {}).items():
        share = "-" if count.share is None else figure(count.share)
        estimate = figure(known[text]) if text in known else ""
        yield f"{text} at {place}", estimate, share, f"of {count.tried:,} tried"
    for (place, variable), count in (met.absences or {}).items():
        share = "-" if count.share is None else figure(count.share)
        yield f"no {variable} at {place}", "", share, f"of {count.tried:,} tried"


def _whole(plan: Plan, met: Met, counters: Counters) -> Iterator[Row]:
    """What the structure made, looked at, kept and found."""
    chosen = [
        candidate.estimate
        for decision in plan.decisions
        if decision.name == "structure"
        for candidate in decision.candidates
        if candidate.name == decision.chosen
    ]
    for place, count in (counters.places or {}).items():
        yield f"made at {place}", "", f"{count.passed:,}", f"looked at {count.tried:,} times"
    for estimate in chosen:
        yield (
            "partial matches",
            figure(estimate.partial),
            f"{met.most_partial:,}",
            f"at most; {counters.partial:,} at the end",
        )
        yield "matches", figure(estimate.matches * met.events), f"{counters.matches:,}", ""
    if plan.query.equivalence:
        load = Load.of(plan.query, plan.roles, plan.statistics)
        effective = f"as crowded as {figure(counters.effective)} equal ones"
        yield "partitions", figure(load.partitions), f"{counters.partitions:,}", effective
