"""Which events can matter to queries: by their type, or by all that is asked of one event."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.policy import CONTIGUOUS
from ensue.algebra.walk import atoms
from ensue.algebra.window import ByEvents
from ensue.engine.scan import Scan
from ensue.plan.physical import Reference
from ensue.schema import ANY, names_of
from ensue.workload.foresight import takes_subsets
from ensue.workload.prepared import Prepared

MANY = 50_000  # events from which on it pays to leave some out before they are sorted and matched
SOME, PIECES = 4_096, 8  # of these it is tried how many would be left, from so many places
BLOCK = 1 << 17  # events that are looked at together: what they take stays in the cache
# of all events, so many at most are taken out of a table that is in order, or that is not
FEW, MOST = 0.25, 0.95


def types_that_matter(queries: Iterable[Prepared]) -> frozenset[str] | None:
    """The types that queries name, negated ones too. None: events of every type matter, since
    their places count."""
    names: set[str] = set()
    for prepared in queries:
        query = prepared.plan.query
        contiguous = bool(query.strategies & CONTIGUOUS)
        untyped = prepared.shape.schema.type_column is None
        if untyped or contiguous or isinstance(query.within, ByEvents):
            return None
        for atom in atoms(query.pattern):
            if atom.type == ANY:
                return None
            names |= set(names_of(atom.type))
    return frozenset(names)


def only_roles_matter(prepared: Prepared) -> bool:
    """Whether events that can play no role change nothing, neither by their place nor time."""
    plan, query = prepared.plan, prepared.plan.query
    return not (
        isinstance(plan.structure, Reference)
        or prepared.planning.adaptive
        or query.strategies & CONTIGUOUS
        or isinstance(query.within, ByEvents)
        or query.unfinished  # what times out depends on the last event
        or takes_subsets(prepared)  # what is foreseen of it is measured on all events
        or any(role.inner is not None or role.lapse for role in plan.roles)
    )


def rows_with_a_role(
    prepared: Prepared, events: pa.Table, in_order: bool
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
