"""When another plan would be better: from what a running matcher counts."""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from ensue.algebra.query import Query
from ensue.engine.adaptive import Advice
from ensue.engine.engine import Engine
from ensue.engine.sampling import Planned, sampled
from ensue.plan.choose import choose
from ensue.plan.estimates.counters import measured
from ensue.plan.estimates.decisions import figure
from ensue.plan.estimates.estimates import estimate
from ensue.plan.estimates.load import Load
from ensue.plan.estimates.statistics import Statistics
from ensue.plan.physical import Plan
from ensue.plan.planning import Planning
from ensue.schema import Schema
from ensue.source.operator_functions import run_as_python

LEAST = 20_000  # events that a look at the stream needs
SAMPLE = 10_000  # of the latest events, to try conditions on
GAIN = 0.25  # of the estimated cost: what a change must save


class Watchful:
    """Looks at the counters of a matcher, plans anew, and advises a change where it pays.

    A look covers the events since the look before, so that what a stream was like long ago does
    not hide what it is like now. A kernel tries a condition only where those before it hold; so
    the chances of conditions are taken from a sample of the latest events, if they are enough.
    """

    def __init__(
        self, prepared: Planned, query: Query, schema: Schema, planning: Planning
    ) -> None:
        self.prepared = prepared
        self.query = query
        self.schema = schema
        self.planning = planning
        self._known = planning.statistics

    def advise(self, engine: Engine, recent: pa.Table) -> Advice | None:
        if engine.scan.counts.events < LEAST:
            return None
        before, self._known = self._known, self._measured(engine, recent)
        engine.count_anew()
        plan = self._plan(self._known)
        if plan.structure == engine.program.plan.structure:
            return None
        now, then = (_cost(p, self._known) for p in (engine.program.plan, plan))
        if then > (1 - GAIN) * now:
            return None
        reason = f"estimated cost of an event {figure(now)} -> {figure(then)}"
        return Advice(plan, self._known.text(), f"{reason}; {_difference(before, self._known)}")

    def _measured(self, engine: Engine, recent: pa.Table) -> Statistics:
        counted = measured(engine.counters(), self._known)
        latest = recent.slice(max(0, recent.num_rows - SAMPLE))
        tried = sampled(self.prepared, latest, sample=SAMPLE).passes
        passes = dict(counted.passes) | dict(tried)
        return replace(counted, passes=tuple(sorted(passes.items())))

    def recall(self, memo: str) -> Plan:
        self._known = Statistics.read(memo)
        return self._plan(self._known)

    def _plan(self, statistics: Statistics) -> Plan:
        planning = replace(self.planning, statistics=statistics)
        return choose(self.query, self.schema, planning, python=run_as_python(self.query))


def _cost(plan: Plan, statistics: Statistics) -> float:
    load = Load.of(plan.query, plan.roles, statistics)
    return estimate(plan.structure, plan.query, load).cost


def _difference(before: Statistics, now: Statistics) -> str:
    """What has changed most."""
    changes = [
        *_changes("share of", dict(before.shares), dict(now.shares)),
        *_changes("passes", dict(before.passes), dict(now.passes)),
    ]
    if not changes:
        return "nothing was known about the stream before"
    return max(changes)[1]


def _changes(
    what: str, before: Mapping[str, float], now: Mapping[str, float]
) -> list[tuple[float, str]]:
    found = []
    for name, share in now.items():
        if name in before:
            low, high = sorted((before[name], share))
            factor = (high + 0.001) / (low + 0.001)
            label = f"{what} {name}" if what == "share of" else f"{name} {what}"
            found.append((factor, f"{label} {before[name]:.1%} -> {share:.1%}"))
    return found
