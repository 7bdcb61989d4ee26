"""Before the events are matched: pruning those that cannot be in a match, and warning of expensive queries."""

import os
import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from ensue.analyzer.output_mode import is_summarized
from ensue.engine import memory_budget
from ensue.engine.interrupts import run_in_threads
from ensue.engine.memory_budget import get_machine_memory
from ensue.engine.scan import Scan
from ensue.errors import LimitWarning
from ensue.ir.selection import CONTIGUOUS, ByEvents
from ensue.ir.traversal import find_subset_variables, iterate_atoms
from ensue.kernels import sorting
from ensue.options import Limits, format_size
from ensue.planner.cost_model import Cardinalities, estimate_structure
from ensue.planner.physical_plan import ReferencePlan
from ensue.planner.statistics import PlanEstimate, Statistics, format_number
from ensue.runtime.compiled_query import CompiledQuery
from ensue.schema import ANY, get_type_names
from ensue.traceback_filter import find_stacklevel
from ensue.vector.arrow_numpy import Ints
from ensue.vector.event_table import EventRoles

NO_ROWS = np.zeros(0, np.int64)
MANY = 50_000  # events from which on pruning pays
SOME, PIECES = 4_096, 8  # sampled events, and the number of slices they are taken from
FEW, MOST = 0.25, 0.95  # maximum share of relevant events in a sorted or unsorted table
ENOUGH_THREADS = 4  # from which on they are faster than one, if few events are relevant or they are not in order
BLOCK = 1 << 17  # events scanned at once, so that they fit into the cache


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


def can_select_events(prepared: CompiledQuery) -> bool:
    """Whether the engine can read the columns that it needs from rows of an unsorted table."""
    plan = prepared.plan
    return not (
        isinstance(plan.structure, ReferencePlan)
        or prepared.planning.adaptive
        or prepared.shape.schema.location is not None
        or takes_subsets(prepared)  # its cost is estimated from all events
        or any(role.inner is not None or role.lapse for role in plan.roles)
    )


def can_prune_events(prepared: CompiledQuery) -> bool:
    """Whether irrelevant events cannot change the result by their position or time."""
    query = prepared.plan.query
    return can_select_events(prepared) and not (
        query.strategies & CONTIGUOUS
        or isinstance(query.within, ByEvents)
        or query.unfinished  # timeouts depend on the last event
    )


def find_roles(prepared: CompiledQuery, events: pa.Table, in_order: bool, *, sorts: bool = False) -> EventRoles | None:
    """The roles of relevant events; None: too many are relevant for pruning to pay.

    `sorts`: the events are brought into order and matched in parts afterwards, so it needs only their rows.
    """
    count, every = events.num_rows, not can_prune_events(prepared)
    alone = 1 < prepared.planning.limits.thread_count < ENOUGH_THREADS
    sorts = sorts and not (alone and not in_order)
    if count < MANY or (every and (in_order or sorts)):
        return None
    scan, piece = Scan(prepared.program), SOME // PIECES
    pieces = [events.slice(k * (count - piece) // (PIECES - 1), piece) for k in range(PIECES)]
    sample = scan.get_roles(pa.concat_tables(pieces).combine_chunks())
    share = np.count_nonzero(sample) / len(sample)
    sorts = sorts and not (alone and share <= FEW)
    if (in_order or sorts) and share > (FEW if sorts and in_order else MOST):
        return None
    if sorts:
        return EventRoles(_find_rows(prepared, events), NO_ROWS, None, scan.keys, scan.seen)
    rows, mask, found = np.empty(count, np.int64), np.empty(count, np.int64), 0
    for begin in range(0, count, BLOCK):
        roles = scan.get_roles(events.slice(begin, BLOCK))
        if every:
            mask[begin : begin + BLOCK] = roles
            continue
        some = sorting.select_rows(roles, rows[found:], mask[found:])
        rows[found : found + some] += begin
        found += some
    rows, mask = (np.arange(count), mask) if every else (rows[:found], mask[:found])
    return EventRoles(rows, mask, scan.encode_keys(events, None if every else rows), scan.keys, scan.seen)


def _find_rows(prepared: CompiledQuery, events: pa.Table) -> Ints:
    """The rows of relevant events, in several threads."""
    from ensue.runtime.table_parts import ScanPool, get_block_size

    count, threads = events.num_rows, prepared.planning.limits.thread_count
    if prepared.plan.interpreted:  # functions of the user, which may not be made for threads
        threads = 1
    size, scans = get_block_size(count, threads), ScanPool(prepared.program, threads)

    def select(begin: int) -> Ints:
        with scans.lend() as scan:
            return np.flatnonzero(scan.get_roles(events.slice(begin, size))) + begin

    return np.concatenate(run_in_threads([partial(select, begin) for begin in range(0, count, size)], threads))


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
