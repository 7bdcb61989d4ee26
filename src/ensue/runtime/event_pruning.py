"""Prunes events that cannot be in a match, by type or by their conditions."""

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

MANY = 50_000  # events from which on pruning pays
SOME, PIECES = 4_096, 8  # sampled events, and the number of slices they are taken from
BLOCK = 1 << 17  # events scanned at once, so that they fit into the cache
FEW, MOST = 0.25, 0.95  # maximum share of relevant events in a sorted or unsorted table


def get_relevant_types(queries: Iterable[CompiledQuery]) -> frozenset[str] | None:
    """The types in queries, negated ones too. None: all types, since positions count."""
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
    """Whether irrelevant events cannot change the result by their position or time."""
    plan, query = prepared.plan, prepared.plan.query
    return not (
        isinstance(plan.structure, ReferencePlan)
        or prepared.planning.adaptive
        or query.strategies & CONTIGUOUS
        or isinstance(query.within, ByEvents)
        or query.unfinished  # timeouts depend on the last event
        or takes_subsets(prepared)  # its cost is estimated from all events
        or any(role.inner is not None or role.lapse for role in plan.roles)
    )


def find_relevant_rows(
    prepared: CompiledQuery, events: pa.Table, in_order: bool, *, sorted_too: bool = True
) -> npt.NDArray[np.int64] | None:
    """The rows of relevant events; None: too many for pruning to pay."""
    count = events.num_rows
    if count < MANY or (in_order and not sorted_too):
        return None
    scan, piece = Scan(prepared.program), SOME // PIECES
    pieces = [events.slice(k * (count - piece) // (PIECES - 1), piece) for k in range(PIECES)]
    sample = scan.get_roles(pa.concat_tables(pieces).combine_chunks())
    if np.count_nonzero(sample) > (FEW if in_order else MOST) * len(sample):
        return None
    rows = [np.flatnonzero(scan.get_roles(events.slice(begin, BLOCK)) != 0) + begin for begin in range(0, count, BLOCK)]
    return np.concatenate(rows)
