"""Which events can matter to queries: by their type, or by all that is asked of one event."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.scan import Scan
from ensue.ir.selection import CONTIGUOUS, ByEvents
from ensue.ir.traversal import iterate_atoms
from ensue.planner.physical_plan import ReferencePlan
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.cost_warning import takes_subsets
from ensue.schema import ANY, get_type_names

MANY = 50_000  # events from which on it pays to leave some out before they are sorted and matched
SOME, PIECES = 4_096, 8  # of these it is tried how many would be left, from so many places
BLOCK = 1 << 17  # events that are looked at together: what they take stays in the cache
# of all events, so many at most are taken out of a table that is in order, or that is not
FEW, MOST = 0.25, 0.95


def get_relevant_types(queries: Iterable[CompiledQuery]) -> frozenset[str] | None:
    """The types that queries name, negated ones too. None: events of every type matter, since
    their places count."""
    names: set[str] = set()
    for prepared in queries:
        query = prepared.plan.query
        contiguous = bool(query.strategies & CONTIGUOUS)
        untyped = prepared.shape.schema.type_column is None
        if untyped or contiguous or isinstance(query.within, ByEvents):
            return None
        for atom in iterate_atoms(query.pattern):
            if atom.type == ANY:
                return None
            names |= set(get_type_names(atom.type))
    return frozenset(names)


def can_prune_events(prepared: CompiledQuery) -> bool:
    """Whether events that can play no role change nothing, neither by their place nor time."""
    plan, query = prepared.plan, prepared.plan.query
    return not (
        isinstance(plan.structure, ReferencePlan)
        or prepared.planning.adaptive
        or query.strategies & CONTIGUOUS
        or isinstance(query.within, ByEvents)
        or query.unfinished  # what times out depends on the last event
        or takes_subsets(prepared)  # what is foreseen of it is measured on all events
        or any(role.inner is not None or role.lapse for role in plan.roles)
    )


def find_relevant_rows(
    prepared: CompiledQuery, events: pa.Table, in_order: bool
) -> npt.NDArray[np.int64] | None:
    """The rows of the events that can play a role; None: too many to leave the others out."""
    count = events.num_rows
    if count < MANY:
        return None
    scan, piece = Scan(prepared.program), SOME // PIECES
    pieces = [events.slice(k * (count - piece) // (PIECES - 1), piece) for k in range(PIECES)]
    tried = scan.roles_of(pa.concat_tables(pieces).combine_chunks())
    if np.count_nonzero(tried) > (FEW if in_order else MOST) * len(tried):
        return None
    found = [
        np.flatnonzero(scan.roles_of(events.slice(begin, BLOCK)) != 0) + begin
        for begin in range(0, count, BLOCK)
    ]
    return np.concatenate(found)
