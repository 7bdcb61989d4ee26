"""Engines whose plan changes all the time, whatever the stream is like."""

from dataclasses import replace
from itertools import product

import pyarrow as pa
import pytest

from ensue.codegen.user_functions import find_uncompilable
from ensue.engine.adaptive import Advice
from ensue.engine.engine import Engine
from ensue.errors import QueryError
from ensue.ir.query import Query
from ensue.planner.physical_plan import PhysicalPlan, ReferencePlan
from ensue.planner.planner import choose_plan
from ensue.planner.planner_options import PlannerOptions
from ensue.schema import Schema

STRUCTURES = ("stacks", "runs", "tree", "compact")
RULES = ((), ("join_order",), ("window", "push_negation"), ("predicate_placement",))  # left out


class Restless:
    """In the place of the adviser that looks at costs: takes one plan after the other."""

    changes = 0  # of all engines

    def __init__(self, _: object, query: Query, schema: Schema, planning: PlannerOptions) -> None:
        python = find_uncompilable(query)
        first = choose_plan(query, schema, planning, python=python)
        self.plans = [first]
        for structure, off in product(STRUCTURES, RULES):
            wanted = replace(planning, structure=structure).disable(off)
            try:
                plan = choose_plan(query, schema, wanted, python=python)
            except QueryError:
                continue
            same = plan.residual == first.residual and plan.query == first.query
            if same and plan not in self.plans and not isinstance(plan.structure, ReferencePlan):
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

    def recall(self, memo: str) -> PhysicalPlan:
        self.number = int(memo)
        return self.plans[self.number]


def restless(monkeypatch: pytest.MonkeyPatch, piece: int = 3) -> PlannerOptions:
    """Lets all adaptive engines be so."""
    monkeypatch.setattr("ensue.engine.adaptive.CostBasedAdviser", Restless)
    monkeypatch.setattr("ensue.engine.adaptive.PIECE", piece)
    monkeypatch.setattr("ensue.engine.adaptive.FEW", 0)
    monkeypatch.setattr(Restless, "changes", 0)
    return PlannerOptions(adaptive=True)
