"""Warns of queries whose estimated cost exceeds their limits."""

import os
import warnings
from dataclasses import replace

import pyarrow as pa

from ensue.analyzer.output_mode import is_summarized
from ensue.engine import memory_budget
from ensue.engine.memory_budget import get_machine_memory
from ensue.errors import LimitWarning
from ensue.ir.traversal import find_subset_variables
from ensue.options import Limits, format_size
from ensue.planner.join_order import Cardinalities
from ensue.planner.physical_plan import ReferencePlan
from ensue.planner.plan_cost import estimate_structure
from ensue.planner.statistics import PlanEstimate, Statistics, format_number
from ensue.runtime.compiled_query import CompiledQuery
from ensue.traceback_filter import find_stacklevel

SAMPLE = 1_000  # events for the selectivity of conditions
PARTIAL_MATCH_BYTES = 64  # at least
MATCH_BYTES = 128


def warn_if_expensive(prepared: CompiledQuery, events: pa.Table | None = None) -> None:
    """Warns of a query that will probably exceed its limits."""
    if (reason := predict_overflow(prepared, events)) is not None:
        warnings.warn(reason, LimitWarning, stacklevel=find_stacklevel())


def predict_overflow(prepared: CompiledQuery, events: pa.Table | None = None) -> str | None:
    """Why a query will probably exceed its limits; None if it will not.

    Uses the statistics of its plan; without statistics, a query whose matches can be any subset
    of some events is estimated from a sample of `events`.
    """
    plan, query = prepared.plan, prepared.plan.query
    if isinstance(plan.structure, ReferencePlan) or is_summarized(query) or query.limit is not None:
        return None
    statistics = plan.statistics
    if statistics.assumed:
        if events is None or not takes_subsets(prepared) or not events.num_rows:
            return None
        from ensue.engine.sampling import sample_statistics

        statistics = sample_statistics(prepared, events, sample=SAMPLE)
    expected = _estimate_plan(prepared, statistics, events)
    found = expected.matches * (1 if events is None else events.num_rows)
    exceeded = _find_exceeded_limit(prepared.planning.limits, expected.partial, found)
    if exceeded is None:
        return None
    what = "for each event of the stream" if events is None else "in all"
    return (
        "this query will probably be stopped: it is expected to hold about "
        f"{format_number(expected.partial)} partial matches at a time and to find {format_number(found)} "
        f"matches {what}, more than {exceeded}\n"
        f"{memory_budget.format_hint(query)}"
    )


def _find_exceeded_limit(limits: Limits, partial: float, found: float) -> str | None:
    """The limit that these numbers of partial matches and matches exceed; None: none."""
    size = limits.compute_memory_bound(get_machine_memory(), os.cpu_count() or 1)
    if partial * PARTIAL_MATCH_BYTES > size or found * MATCH_BYTES > size:
        return f"fit into {format_size(size)}"
    if limits.max_matches is not None and found > limits.max_matches:
        return f"max_matches={limits.max_matches:,} allows"
    if limits.max_partial_matches is not None and partial > limits.max_partial_matches:
        return f"max_partial_matches={limits.max_partial_matches:,} allows"
    return None


def takes_subsets(prepared: CompiledQuery) -> bool:
    query = prepared.plan.query
    return bool(find_subset_variables(query.pattern, query.strategy))


def _estimate_plan(prepared: CompiledQuery, statistics: Statistics, events: pa.Table | None) -> PlanEstimate:
    plan = prepared.plan
    load = Cardinalities.estimate(plan.query, plan.roles, statistics)
    if events is not None:
        most = max(1.0, events.num_rows / load.partitions)
        load = replace(load, window=most if plan.query.within is None else min(load.window, most))
    return estimate_structure(plan.structure, plan.query, load)
