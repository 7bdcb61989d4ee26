"""A matcher of queries that stays within its limits by storing keys."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ensue.plan.limits import EVICT, SHARE, Limits
from ensue.workload.prepared import Prepared
from ensue.workload.spill import bound
from ensue.workload.spill.cohorts import Replayed
from ensue.workload.spill.evictable import unit_of
from ensue.workload.spill.matcher import SpillingMatcher
from ensue.workload.stage import Reads


def spilling(
    queries: Sequence[Prepared],
    reads: Reads,
    limits: Limits,
    plain: Callable[[Sequence[Prepared]], Replayed],
) -> SpillingMatcher:
    """A matcher of queries whose keys can be evicted; `plain` makes one without a limit."""
    inner = [_unbound(prepared) for prepared in queries]
    return SpillingMatcher(
        lambda: plain(inner),
        queries[0].shape,
        reads,
        unit_of(queries),
        bound.bound_of(limits),
        limits.evict or EVICT[0],
    )


def _unbound(prepared: Prepared) -> Prepared:
    """The same query, stopped only by what a machine can bear: a batch may need more for once."""
    limits = replace(prepared.planning.limits, memory=None, share=SHARE)
    return replace(prepared, planning=replace(prepared.planning, limits=limits))
