"""The kernels of a query or of a tower as text for a reader."""

from ensue.algebra.query import Query
from ensue.engine.shown_kernel import shown_kernel
from ensue.plan.assume import assumed_schema, plan_without_events
from ensue.plan.planning import Planning
from ensue.workload.prepared import Prepared
from ensue.workload.prepared_tower import PreparedTower


def kernel_of(prepared: Prepared) -> str:
    """The kernel of a query on events of a known shape."""
    _, schema = prepared.shape.physical(prepared.query)
    return shown_kernel(prepared.plan, schema, prepared.shape.unit)


def kernel_without_events(query: Query, planning: Planning) -> str:
    """The kernel of a query on events that fit it."""
    return shown_kernel(plan_without_events(query, planning), assumed_schema(query))


def kernels_of_tower(prepared: PreparedTower) -> str:
    """The kernel of each level."""
    return "\n\n\n".join(
        kernel_of(p.prepared if p.opened is None else p.opened.flat) for p in prepared.layers
    )
