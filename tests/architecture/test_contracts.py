"""Matchers, runners and kinds of work speak their contracts, whatever they are."""

import inspect
import re

import pytest

from ensue.backends import local
from ensue.backends.local import Backend
from ensue.backends.spark import batch, stream
from ensue.engine.adaptive import AdaptiveEngine
from ensue.engine.engine import Engine
from ensue.engine.reference_engine import ReferenceEngine
from ensue.operators.hierarchy.hierarchy_matcher import HierarchyMatcher
from ensue.operators.hierarchy.hierarchy_operator import HierarchyOperator, HierarchyStage
from ensue.operators.match.match_operator import MatchOperator, MatchStage
from ensue.operators.match.shared_matcher import SharedMatcher
from ensue.runtime.live_matcher import CompositeLiveMatcher, LiveMatcher
from ensue.runtime.stage import Matcher, PipelineStage, QueryOperator


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
        *((Matcher, one) for one in (Engine, AdaptiveEngine, ReferenceEngine)),
        *((Matcher, one) for one in (LiveMatcher, CompositeLiveMatcher, SharedMatcher, HierarchyMatcher)),
        *((Backend, one) for one in (local, batch, stream)),
        *((QueryOperator, one) for one in (MatchOperator, HierarchyOperator)),
        *((PipelineStage, one) for one in (MatchStage, HierarchyStage)),
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
