"""A warning before a query runs that is expected to hold or find more than it may."""

import os
import warnings
from dataclasses import replace

import pyarrow as pa

from ensue.algebra.answers import summarised
from ensue.algebra.walk import of_subsets
from ensue.engine import asking_less
from ensue.engine.allowance import machine_memory
from ensue.engine.sampling import sampled
from ensue.errors import LimitWarning
from ensue.own_frames import outside
from ensue.plan.estimates.decisions import Estimate, figure
from ensue.plan.estimates.estimates import estimate
from ensue.plan.estimates.load import Load
from ensue.plan.estimates.statistics import Statistics
from ensue.plan.limits import Limits, size_text
from ensue.plan.physical import Reference
from ensue.workload.prepared import Prepared

SAMPLE = 1_000  # events on which conditions are tried
OF_A_PARTIAL_MATCH = 64  # bytes, at the least
OF_A_MATCH = 128


def warn_of_explosion(prepared: Prepared, events: pa.Table | None = None) -> None:
    """Warns of a query that will probably not get through."""
    if (reason := foreseen(prepared, events)) is not None:
        warnings.warn(reason, LimitWarning, stacklevel=outside())


def foreseen(prepared: Prepared, events: pa.Table | None = None) -> str | None:
    """Why a query will probably not get through, if it will not.

    By the statistics that its plan was made by; where there are none, and every subset of some
    events may be a match, by what `events` look like.
    """
    plan, query = prepared.plan, prepared.plan.query
    if isinstance(plan.structure, Reference) or summarised(query) or query.limit is not None:
        return None
    statistics = plan.statistics
    if statistics.assumed:
        if events is None or not takes_subsets(prepared) or not events.num_rows:
            return None
        statistics = sampled(prepared, events, sample=SAMPLE)
    expected = _expected(prepared, statistics, events)
    found = expected.matches * (1 if events is None else events.num_rows)
    exceeded = _exceeded(prepared.planning.limits, expected.partial, found)
    if exceeded is None:
        return None
    what = "for each event of the stream" if events is None else "in all"
    return (
        "this query will probably be stopped: it is expected to hold about "
        f"{figure(expected.partial)} partial matches at a time and to find {figure(found)} "
        f"matches {what}, more than {exceeded}\n"
        f"{asking_less.hint(query)}"
    )


def _exceeded(limits: Limits, partial: float, found: float) -> str | None:
    """What would be too little for so many partial matches and matches, if anything is."""
    size = limits.bytes_of(machine_memory(), os.cpu_count() or 1)
    if partial * OF_A_PARTIAL_MATCH > size or found * OF_A_MATCH > size:
        return f"fit into {size_text(size)}"
    if limits.max_matches is not None and found > limits.max_matches:
        return f"max_matches={limits.max_matches:,} allows"
    if limits.max_partial_matches is not None and partial > limits.max_partial_matches:
        return f"max_partial_matches={limits.max_partial_matches:,} allows"
    return None


def takes_subsets(prepared: Prepared) -> bool:
    query = prepared.plan.query
    return bool(of_subsets(query.pattern, query.strategy))


def _expected(prepared: Prepared, statistics: Statistics, events: pa.Table | None) -> Estimate:
    plan = prepared.plan
    load = Load.of(plan.query, plan.roles, statistics)
    if events is not None:
        most = max(1.0, events.num_rows / load.partitions)
        load = replace(load, window=most if plan.query.within is None else min(load.window, most))
    return estimate(plan.structure, plan.query, load)
