"""Matchers, runners and kinds of work speak their contracts, whatever they are."""

import inspect
import re

import pytest

from ensue.engine.adaptive import AdaptiveEngine
from ensue.engine.contract import Matcher, RowMatcher
from ensue.engine.engine import Engine
from ensue.engine.reference import ReferenceEngine
from ensue.runners import local
from ensue.runners.contract import Runner
from ensue.runners.spark import batch, stream
from ensue.workload.live_matcher import LiveMatcher, LiveMatchers
from ensue.workload.queries.shared_matcher import SharedMatcher
from ensue.workload.queries.work import QueryStage, QueryWork
from ensue.workload.stage import Stage
from ensue.workload.towers.live_stage import LiveStage
from ensue.workload.towers.live_tower import LiveTower
from ensue.workload.towers.work import LayerStage, TowerWork
from ensue.workload.work import Work


def asked_for(contract: type) -> set[str]:
    found = set(contract.__dict__) - {"__subclasshook__", "__init__"}
    for base in contract.__bases__:
        found |= asked_for(base) if getattr(base, "_is_protocol", False) else set()
    return {name for name in found if not name.startswith("_")}


def positional(function) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = [p for p in inspect.signature(function).parameters.values() if p.kind in kinds]
    return sum(p.default is inspect.Parameter.empty for p in wanted)


@pytest.mark.parametrize(
    ("contract", "given"),
    [
        *((RowMatcher, one) for one in (Engine, AdaptiveEngine, ReferenceEngine)),
        *(
            (Matcher, one)
            for one in (LiveMatcher, LiveMatchers, SharedMatcher, LiveTower, LiveStage)
        ),
        *((Runner, one) for one in (local, batch, stream)),
        *((Work, one) for one in (QueryWork, TowerWork)),
        *((Stage, one) for one in (QueryStage, LayerStage)),
    ],
    ids=lambda one: one.__name__,
)
def test_it_speaks_its_contract(contract, given):
    for name in asked_for(contract):
        fields = getattr(given, "__dataclass_fields__", {})
        assigned = inspect.isclass(given) and re.search(
            rf"^ +self\.{name}\b[^=(]* = ", inspect.getsource(given), re.MULTILINE
        )
        assert hasattr(given, name) or name in fields or assigned, name
        wanted = contract.__dict__.get(name)
        has = getattr(given, name, None)
        if inspect.isfunction(wanted) and inspect.isfunction(has):
            own = positional(has) + (0 if inspect.isclass(given) else 1)
            assert own == positional(wanted), name
