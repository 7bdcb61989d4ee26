"""Engines whose plan changes all the time, whatever the stream is like."""

from dataclasses import replace
from itertools import product

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
from ensue.source.operator_functions import run_as_python

STRUCTURES = ("stacks", "runs", "tree", "compact")
RULES = ((), ("join_order",), ("window", "push_negation"), ("predicate_placement",))  # left out


class Restless:
    """In the place of the adviser that looks at costs: takes one plan after the other."""

    changes = 0  # of all engines

    def __init__(self, _: object, query: Query, schema: Schema, planning: Planning) -> None:
        python = run_as_python(query)
        first = choose(query, schema, planning, python=python)
        self.plans = [first]
        for structure, off in product(STRUCTURES, RULES):
            wanted = replace(planning, structure=structure).without(off)
            try:
                plan = choose(query, schema, wanted, python=python)
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
