"""Compiles queries with JOIN ARCHIVE: the lookups, their keys and their ranges."""

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ensue.analyzer.join_checks import JoinKey, add_join_keys, check_archive_join, find_join_keys, is_single_event
from ensue.analyzer.time_bounds import ReadDistance, ReadRange, UnboundedRead
from ensue.engine.memory_budget import get_machine_memory
from ensue.errors import ArchiveWarning, EventError, QueryError
from ensue.ir.archive_join import ArchiveJoin, ArchiveJoinQuery, JoinKind, RangeAnchor, RowPatternSide
from ensue.ir.canonical_form import compute_fingerprint
from ensue.ir.selection import Strategy
from ensue.ir.traversal import iterate_atoms
from ensue.ir.values import parse_duration
from ensue.operators.archive_join.archive_access import ArchiveLookup
from ensue.operators.archive_join.join_estimates import estimate_sides
from ensue.operators.archive_join.join_sides import CompiledSide, PatternSide, compile_archived_side, compile_side
from ensue.operators.archive_join.joining import CompiledArchiveJoin, CompiledJoin, KeyEquality, MatchJoiner
from ensue.planner.access_paths import choose_access_path, describe_unclustered
from ensue.planner.planner_options import PlannerOptions
from ensue.projection.join_output import LOCATION, MATCH_COLUMNS
from ensue.runtime.query_spec import STREAM_INPUT, ArchiveSet, InputEvents
from ensue.schema import ValueKind
from ensue.traceback_filter import find_stacklevel
from ensue.vector.arrow_types import Unit, kind_of_arrow, window_to_ticks
from ensue.vector.event_table import StreamSchema
from ensue.vector.query_check import check_regions


def compile_archive_join(
    query: ArchiveJoinQuery,
    shape: StreamSchema,
    archive_set: ArchiveSet,
    planning: PlannerOptions,
    *,
    streaming: bool = False,
    coming: InputEvents = STREAM_INPUT,
    explain: bool = False,
) -> CompiledArchiveJoin:
    """Checks an archive join against the stream and its archives, and plans both sides.

    `coming` describes the input events; `explain` estimates all costs, for EXPLAIN.
    """
    schemas = {name: archive.shape.schema for name, archive in archive_set.archives.items()}
    checked = check_archive_join(query, shape.schema, schemas, streaming=streaming)
    returned = [r.expr for r in checked.returns]
    on = [condition for join in checked.joins for condition in join.on]
    check_regions([*returned, *on, checked.having], shape.schema.space, checked.text)
    _refuse_names(checked)
    archives = [archive_set.archives[join.archive] for join in checked.joins]
    unit: Unit = "ns" if "ns" in (shape.unit, *(a.shape.unit for a in archives)) else "us"
    live = compile_side(checked.live, shape, planning, streaming=streaming)
    keys = [find_join_keys(join, checked.live) for join in checked.joins]
    joins, equal, sides = [], [], []
    for join, archive, usable in zip(checked.joins, archives, keys, strict=True):
        by_key = add_join_keys(join, usable).query
        archived = compile_archived_side(by_key, join.query, archive.shape, planning)
        sides.append(archived.side)
        equal.append(tuple(map(_equal, usable)))
        # by which the archive is read: preferably its clustering key
        chosen = next((key for key in usable if key.field in archive.key[:1]), next(iter(usable), None))
        own = join.archive == archive_set.own
        lookup = _lookup(join, archived, chosen, unit)
        if own and streaming and lookup.behind == math.inf:
            why = "has a negation at its end"
            if isinstance(join.query, RowPatternSide):
                why = "may find a longer match in later rows"
            raise QueryError(
                "archived matches of a running stream are decided only when it ends: the pattern "
                f"{why} and no WITHIN by time",
                hint="add WITHIN to the pattern of JOIN ARCHIVE",
                span=join.span,
                text=checked.text,
            )
        far = window_to_ticks(join.range.far, unit)
        assert far is not None
        key = None if chosen is None else _equal(chosen)
        joins.append(CompiledJoin(lookup, key, far, lookup.behind if own else 0))
    identity = compute_fingerprint(checked)
    joining = MatchJoiner(checked, live.side, tuple(sides), tuple(equal), unit, identity)
    partition_key = choose_partition_key(checked, live, keys, archive_set)
    impossible = dict(_list_impossible_accesses(checked, live, joins, keys, archive_set, streaming=streaming))
    if archive_set.access in impossible:
        reason = impossible[archive_set.access]
        raise EventError(f"access={archive_set.access!r} is impossible here: {reason}")
    latency = convert_latency(archive_set.latency, shape, unit)
    window = window_to_ticks(live.longest, unit)
    estimates = estimate_sides(
        live, list(zip(checked.joins, joins, archives, strict=True)), coming, unit, archive_set.own,
        latency=latency, window=window, explain=explain, look=explain or archive_set.access is None,
    )  # fmt: skip
    memory = planning.limits.compute_memory_bound(get_machine_memory(), os.cpu_count() or 1)
    decision = choose_access_path(*estimates, requested=archive_set.access, impossible=impossible, memory=memory)
    for past in decision.archives if not explain else ():
        if (warning := describe_unclustered(past, decision)) is not None:
            warnings.warn(warning, ArchiveWarning, stacklevel=find_stacklevel())
    first = decision.access == "archive_first"
    nulls = live.keys_may_be_null or not set(partition_key) <= live.keys
    return CompiledArchiveJoin(
        checked, live, tuple(joins), joining, unit, decision, latency, window,
        filter_field=_find_filter_field(checked, live, keys) if first else None,
        partition_key=partition_key,
        has_null_partition_keys=bool(partition_key) and nulls,
        why_unpartitioned=None if partition_key else _why_unpartitioned(checked, live, keys, archive_set),
    )  # fmt: skip


def _refuse_names(query: ArchiveJoinQuery) -> None:
    """Raises a QueryError for variables with the name of a standard column."""
    for side in query.sides:
        for atom in iterate_atoms(side.pattern):
            if atom.variable in (*MATCH_COLUMNS, LOCATION):
                raise QueryError(
                    f"beside JOIN ARCHIVE a variable cannot be called '{atom.variable}': a match "
                    "has a column of that name",
                    hint=f"call it {atom.variable}_event",
                    span=atom.span,
                    text=query.text,
                )


def require_columns(archive_set: ArchiveSet, shape: StreamSchema) -> None:
    """Raises an EventError unless the events have the columns of their archive."""
    if archive_set.own is None:
        return
    archive = archive_set.archives[archive_set.own].shape
    missing = [name for name in archive.arrow.names if name not in shape.arrow.names]
    if missing:
        raise EventError(
            f"own={archive_set.own!r}: the events belong to it, and have no column "
            f"'{missing[0]}' as it has\n"
            "  hint: add the column to the events, or leave own= out"
        )
    for name in archive.arrow.names:
        ours, theirs = (kind_of_arrow(s.arrow.field(name).type) for s in (shape, archive))
        if ours is not theirs and ours is not ValueKind.NULL:
            raise EventError(
                f"own={archive_set.own!r}: '{name}' is {ours.value} in the events and "
                f"{theirs.value} in the archive\n  hint: cast one of them first"
            )
    times = [(s.schema.start, s.schema.end) for s in (shape, archive)]
    if times[0] != times[1]:
        raise EventError(
            f"own={archive_set.own!r}: the time of the events is in {' and '.join(times[0])}, that "
            f"of the archive in {' and '.join(times[1])}\n"
            "  hint: name the same columns in time= of both"
        )


def _equal(key: JoinKey) -> KeyEquality:
    return KeyEquality(key.shown, key.live, key.field, key.same_field)


def _lookup(join: ArchiveJoin, archived: CompiledSide, key: JoinKey | None, unit: Unit) -> ArchiveLookup:
    before, behind = _length(archived.reach.before, unit), _length(archived.reach.after, unit)
    field, window = None if key is None else key.field, window_to_ticks(archived.longest, unit)
    return ArchiveLookup(join.archive, archived, field, archived.types, before, behind, window)


def _length(far: ReadDistance, unit: Unit) -> float:
    match far:
        case None:
            return 0
        case UnboundedRead.OBJECT:
            return math.inf
        case _:
            length = window_to_ticks(far, unit)
            assert length is not None
            return length + 1


# ------------------------------------------------------------------------------ keys and access


def choose_partition_key(
    query: ArchiveJoinQuery, live: CompiledSide, keys: Sequence[Sequence[JoinKey]], archive_set: ArchiveSet
) -> tuple[str, ...]:
    """Returns the fields that split the stream so that each key group has all events it needs.

    The stream's own archive is split in the same way, so a join with it must use these fields.
    """
    own = [
        {key.field for key in usable if key.same_field}
        for join, usable in zip(query.joins, keys, strict=True)
        if join.archive == archive_set.own
    ]
    shared = set() if live.whole_stream else set(live.keys)
    if live.single and not live.whole_stream:
        common = [{key.field for key in usable if key.same_field} for usable in keys]
        shared |= set.intersection(*common) if common else set()
    for fields in own:
        shared &= fields
    return tuple(sorted(shared))


def _why_unpartitioned(
    query: ArchiveJoinQuery, live: CompiledSide, keys: Sequence[Sequence[JoinKey]], archive_set: ArchiveSet
) -> str | None:
    """Says why no key splits the stream if its own archive is the reason."""
    others = choose_partition_key(query, live, keys, replace(archive_set, own=None))
    if archive_set.own is None or not others:
        return None
    return (
        f"the events belong to the archive '{archive_set.own}', which ON does not join by "
        f"[{', '.join(others)}]: one task, on one core, will match all events"
    )


def _find_filter_field(query: ArchiveJoinQuery, live: CompiledSide, keys: Sequence[Sequence[JoinKey]]) -> str | None:
    """Returns the live field by which events of keys without archived matches are dropped."""
    for join, usable in zip(query.joins, keys, strict=True):
        for key in usable:
            name = key.column
            if join.kind is not JoinKind.INNER or name is None:
                continue
            if live.single or name in live.keys:
                return name
    return None


def _list_impossible_accesses(
    query: ArchiveJoinQuery,
    live: CompiledSide,
    joins: Sequence[CompiledJoin],
    keys: Sequence[Sequence[JoinKey]],
    archive_set: ArchiveSet,
    *,
    streaming: bool,
) -> Iterator[tuple[str, str]]:
    """Yields the impossible access methods, each with the reason."""
    own = [join for join in query.joins if join.archive == archive_set.own]
    if streaming and any(map(_has_no_window, own)):
        unbounded = "the archived pattern has no WITHIN: its partial matches would stay forever"
        yield "eager", unbounded
        yield "archive_first", unbounded
        return
    name = "archive_first"
    if len(query.joins) != 1 or query.joins[0].kind is not JoinKind.INNER:
        yield name, "only a single inner JOIN requires an archived match for each live match"
    elif _find_filter_field(query, live, keys) is None:
        yield name, "no field that is equal in all live events is a key of the archive"
    elif live.reach != ReadRange():
        yield name, "live matches depend on events before them, which would be left out"
    elif isinstance(live, PatternSide) and Strategy.STRICT in live.prepared.plan.query.strategies:
        yield name, "strict contiguity looks at the events of all objects"
    elif own and query.joins[0].range.anchor is RangeAnchor.END:
        yield name, "with BEFORE END an archived match may end after the live match began"
    elif own and joins[0].waits:
        yield name, "a negation at the end of the archived pattern is decided too late"


def _has_no_window(join: ArchiveJoin) -> bool:
    """Whether partial matches of an archived pattern stay forever."""
    query = join.query
    within = query.row_pattern.within if isinstance(query, RowPatternSide) else query.within
    return within is None and not is_single_event(query)


def convert_latency(latency: str | int | float | None, shape: StreamSchema, unit: Unit) -> float:
    if latency is None:
        return 0
    numeric = shape.schema.time_kind.numeric
    if isinstance(latency, str) and not numeric:
        length = parse_duration(latency)
        return length if unit == "ns" else length // 1_000
    if numeric and isinstance(latency, int | float) and latency >= 0:
        return latency
    hint = "a number, as the time column holds numbers" if numeric else 'a text as "2 seconds"'
    raise EventError(f"latency={latency!r} is not a length of time\n  hint: {hint}")
