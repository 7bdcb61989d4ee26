"""Engines whose plan changes all the time, whatever the stream is like."""

from dataclasses import replace

import pyarrow as pa
import pytest

from ensue.algebra.query import Query
from ensue.engine.adaptive import Advice
from ensue.engine.engine import Engine
from ensue.errors import QueryError
from ensue.plan.choose import choose
from ensue.plan.physical import Plan, Reference
from ensue.plan.planning import Planning
from ensue.schema import Schema

STRUCTURES = ("stacks", "runs", "tree", "compact")


class Restless:
    """In the place of the adviser that looks at costs: takes one plan after the other."""

    changes = 0  # of all engines

    def __init__(self, prepared: object, query: Query, schema: Schema, planning: Planning) -> None:
        first = choose(query, schema, planning)
        self.plans = [first]
        for structure in STRUCTURES:
            try:
                plan = choose(query, schema, replace(planning, structure=structure))
            except QueryError:
                continue
            same = plan.residual == first.residual and plan.query == first.query
            if same and plan not in self.plans and not isinstance(plan.structure, Reference):
                self.plans.append(plan)
        self.number = 0

    def advise(self, engine: Engine, recent: pa.Table) -> Advice | None:
        assert recent is not None
        self.number = (self.number + 1) % len(self.plans)
        plan = self.plans[self.number]
        if plan == engine.program.plan:
            return None
        Restless.changes += 1
        return Advice(plan, str(self.number), "restless")

    def recall(self, memo: str) -> Plan:
        self.number = int(memo)
        return self.plans[self.number]


def restless(monkeypatch: pytest.MonkeyPatch, piece: int = 3) -> Planning:
    """Lets all adaptive engines be so."""
    monkeypatch.setattr("ensue.workload.prepared.Watchful", Restless)
    monkeypatch.setattr("ensue.engine.adaptive.PIECE", piece)
    monkeypatch.setattr("ensue.engine.recent_events.FEW", 0)
    monkeypatch.setattr(Restless, "changes", 0)
    return Planning(adaptive=True)
