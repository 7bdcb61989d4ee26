"""Makes queries over a stream and its past ready: what is looked up, by which key, and how far."""

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from ensue.algebra.check.correlation import check_correlation
from ensue.algebra.correlation import Anchor, ArchiveJoin, ClauseSide, Correlation, JoinKind
from ensue.algebra.durations import parse_duration
from ensue.algebra.join_keys import JoinKey, join_keys, keyed, one_event
from ensue.algebra.policy import Strategy
from ensue.algebra.reach import Edge, Far, Reach
from ensue.algebra.walk import atoms
from ensue.archives.contract import Archive
from ensue.columns.arrow_kinds import Unit, kind_of_arrow, length_of
from ensue.columns.checking import check_regions
from ensue.columns.stream import Shape
from ensue.engine.allowance import machine_memory
from ensue.errors import ArchiveWarning, EventError, QueryError
from ensue.languages.printing import show
from ensue.own_frames import outside
from ensue.plan.access import ACCESSES, Decision, decide, unclustered
from ensue.plan.planning import Planning
from ensue.results.joined import LOCATION, STANDARD
from ensue.schema import Kind
from ensue.workload.correlations.access import Lookup
from ensue.workload.correlations.expected import STREAM, Coming, both_sides
from ensue.workload.correlations.joining import Equal, Joining
from ensue.workload.correlations.prepared import Pasts, PreparedCorrelation, PreparedJoin
from ensue.workload.correlations.sides import (
    PatternSide,
    PreparedSide,
    archived_side,
    prepared_side,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a call wants archives to be accessed."""

    access: str | None = None  # None: the cheapest way
    latency: str | int | float | None = None  # how long a live match may wait for others

    def __post_init__(self) -> None:
        if self.access is not None and self.access not in ACCESSES:
            raise EventError(
                f"access={self.access!r} is none of {', '.join(map(repr, ACCESSES))}\n"
                "  hint: leave it out, and the cheapest is taken"
            )


def prepare_correlation(
    correlation: Correlation,
    shape: Shape,
    pasts: Pasts,
    planning: Planning,
    wanted: Wanted,
    *,
    streaming: bool = False,
    coming: Coming = STREAM,
    told: bool = False,
) -> PreparedCorrelation:
    """Checks a correlation against the stream and its archives, and plans both sides.

    `coming` is what is known of the events; `told`: every figure is wanted, to be shown.
    """
    schemas = {name: archive.shape.schema for name, archive in pasts.archives.items()}
    checked = check_correlation(correlation, shape.schema, schemas, streaming=streaming)
    between = [*(r.expr for r in checked.returns), *(e for join in checked.joins for e in join.on)]
    check_regions([*between, checked.having], shape.schema.space, checked.text)
    _refuse_names(checked)
    archives = [pasts.archives[join.archive] for join in checked.joins]
    unit: Unit = "ns" if any(s.unit == "ns" for s in (shape, *_shapes(archives))) else "us"
    live = prepared_side(checked.live, shape, planning, streaming=streaming)
    keys = [join_keys(join, checked.live) for join in checked.joins]
    joins, equal, sides = [], [], []
    for join, archive, usable in zip(checked.joins, archives, keys, strict=True):
        by_key = keyed(join, usable).query
        archived = archived_side(by_key, join.query, archive.shape, planning)
        sides.append(archived.side)
        equal.append(tuple(map(_equal, usable)))
        chosen = _chosen(usable, archive)
        own = join.archive == pasts.own
        lookup = _lookup(join, archived, chosen, unit)
        if own and streaming and lookup.behind == math.inf:
            raise QueryError(
                "what is archived while the stream runs is decided only when it ends: the pattern "
                f"{_undecided(join)} and no WITHIN by time",
                hint="add WITHIN to the pattern of JOIN ARCHIVE",
                span=join.span,
                text=checked.text,
            )
        far = length_of(join.range.far, unit)
        assert far is not None
        key = None if chosen is None else _equal(chosen)
        joins.append(PreparedJoin(lookup, key, far, lookup.behind if own else 0))
    joining = Joining(checked, live.side, tuple(sides), tuple(equal), unit, identity_of(checked))
    lanes = lane_key(checked, live, keys, pasts)
    impossible = dict(_impossible(checked, live, joins, keys, pasts, streaming=streaming))
    if wanted.access in impossible:
        reason = impossible[wanted.access]
        raise EventError(f"access={wanted.access!r} is impossible here: {reason}")
    latency = latency_of(wanted.latency, shape, unit)
    window = longest(live, unit)
    of_both = both_sides(
        live, list(zip(checked.joins, joins, archives, strict=True)), coming, unit, pasts.own,
        latency=latency, window=window, told=told, look=told or wanted.access is None,
    )  # fmt: skip
    memory = planning.limits.bytes_of(machine_memory(), os.cpu_count() or 1)
    decision = decide(*of_both, wanted=wanted.access, impossible=impossible, memory=memory)
    if not told:
        _warn(decision)
    access = decision.access
    return PreparedCorrelation(
        checked,
        live,
        tuple(joins),
        joining,
        unit,
        decision,
        latency,
        window,
        _admitting(checked, live, keys) if access == "archive_first" else None,
        lanes,
        bool(lanes) and (live.keys_may_be_null or not _partitioned_by(live, lanes)),
        None if lanes else _why_whole(checked, live, keys, pasts),
    )


def _warn(decision: Decision) -> None:
    """Of archives that are dear to read as they are stored."""
    for past in decision.pasts:
        if (warning := unclustered(past, decision)) is not None:
            warnings.warn(warning, ArchiveWarning, stacklevel=outside())


def _shapes(archives: Sequence[Archive]) -> Iterator[Shape]:
    return (archive.shape for archive in archives)


def identity_of(correlation: Correlation) -> bytes:
    """What sets the ids of its rows apart."""
    return blake2b(show(correlation).encode(), digest_size=16).digest()


def _refuse_names(correlation: Correlation) -> None:
    """Sides are known by columns that variables must leave free."""
    for query in (correlation.live, *(join.query for join in correlation.joins)):
        for atom in atoms(query.pattern):
            if atom.variable in (*STANDARD, LOCATION):
                raise QueryError(
                    f"beside JOIN ARCHIVE a variable cannot be called '{atom.variable}': a match "
                    "has a column of that name",
                    hint=f"call it {atom.variable}_event",
                    span=atom.span,
                    text=correlation.text,
                )


def require_columns(pasts: Pasts, shape: Shape) -> None:
    """Events that belong to an archive have its columns."""
    if pasts.own is None:
        return
    archive = pasts.archives[pasts.own].shape
    missing = [name for name in archive.arrow.names if name not in shape.arrow.names]
    if missing:
        raise EventError(
            f"archive={pasts.own!r}: the events belong to it, and have no column "
            f"'{missing[0]}' as it has\n"
            "  hint: add the column to the events, or leave archive= out"
        )
    for name in archive.arrow.names:
        ours, theirs = (kind_of_arrow(s.arrow.field(name).type) for s in (shape, archive))
        if ours is not theirs and ours is not Kind.NULL:
            raise EventError(
                f"archive={pasts.own!r}: '{name}' is {ours.value} in the events and "
                f"{theirs.value} in the archive\n  hint: cast one of them first"
            )
    times = [(s.schema.start, s.schema.end) for s in (shape, archive)]
    if times[0] != times[1]:
        raise EventError(
            f"archive={pasts.own!r}: the time of the events is in {' and '.join(times[0])}, that "
            f"of the archive in {' and '.join(times[1])}\n"
            "  hint: name the same columns in time= of both"
        )


def _equal(key: JoinKey) -> Equal:
    return Equal(key.shown, key.live, key.field, key.same_field)


def _undecided(join: ArchiveJoin) -> str:
    """What of an archived pattern looks beyond its matches."""
    if isinstance(join.query, ClauseSide):
        return "may find a longer match in rows to come"
    return "has a negation at its end"


def _chosen(keys: Sequence[JoinKey], archive: Archive) -> JoinKey | None:
    """The key that the archive is read by: the one that its events lie together by."""
    first = next((key for key in keys if key.field in archive.key[:1]), None)
    return first or next(iter(keys), None)


def _lookup(join: ArchiveJoin, archived: PreparedSide, key: JoinKey | None, unit: Unit) -> Lookup:
    reached = archived.reach
    return Lookup(
        join.archive,
        archived,
        None if key is None else key.field,
        archived.types,
        _length(reached.before, unit),
        _length(reached.after, unit),
        longest(archived, unit),
    )


def longest(side: PreparedSide, unit: Unit) -> float | None:
    """How long a match is at most, if that is known."""
    return length_of(side.longest, unit)


def _length(far: Far, unit: Unit) -> float:
    match far:
        case None:
            return 0
        case Edge.OBJECT:
            return math.inf
        case _:
            found = length_of(far, unit)
            assert found is not None
            return found + 1


# ------------------------------------------------------------------------------ keys and ways


def _partitioned_by(live: PreparedSide, fields: Sequence[str]) -> bool:
    return set(fields) <= live.keys


def lane_key(
    correlation: Correlation,
    live: PreparedSide,
    keys: Sequence[Sequence[JoinKey]],
    pasts: Pasts,
) -> tuple[str, ...]:
    """The fields by which lanes split the stream, so that each finds all it needs.

    The past of a stream is split as the stream is: then a join with it must be by the same fields.
    """
    own = [
        {key.field for key in usable if key.same_field}
        for join, usable in zip(correlation.joins, keys, strict=True)
        if join.archive == pasts.own
    ]
    shared = set() if live.whole_stream else set(live.keys)
    if live.single and not live.whole_stream:
        common = [{key.field for key in usable if key.same_field} for usable in keys]
        shared |= set.intersection(*common) if common else set()
    for fields in own:
        shared &= fields
    return tuple(sorted(shared))


def _why_whole(
    correlation: Correlation,
    live: PreparedSide,
    keys: Sequence[Sequence[JoinKey]],
    pasts: Pasts,
) -> str | None:
    """Why lanes cannot split the stream, where its own archive is the reason."""
    others = lane_key(correlation, live, keys, replace(pasts, own=None))
    if pasts.own is None or not others:
        return None
    return (
        f"the events belong to the archive '{pasts.own}', which ON does not join by "
        f"[{', '.join(others)}]: one task, on one core, will match all events"
    )


def _admitting(
    correlation: Correlation, live: PreparedSide, keys: Sequence[Sequence[JoinKey]]
) -> str | None:
    """The live field by which an object's past admits its events."""
    for join, usable in zip(correlation.joins, keys, strict=True):
        for key in usable:
            name = key.column
            if join.kind is not JoinKind.INNER or name is None:
                continue
            if live.single or _partitioned_by(live, [name]):
                return name
    return None


def _impossible(
    correlation: Correlation,
    live: PreparedSide,
    joins: Sequence[PreparedJoin],
    keys: Sequence[Sequence[JoinKey]],
    pasts: Pasts,
    *,
    streaming: bool,
) -> Iterator[tuple[str, str]]:
    """The accesses that cannot be, each with the reason."""
    own = [join for join in correlation.joins if join.archive == pasts.own]
    endless = [j for j in own if _endless(j)]
    if endless and streaming:
        unbounded = "the archived pattern has no WITHIN: its partial matches would stay for ever"
        yield "eager", unbounded
        yield "archive_first", unbounded
        return
    name = "archive_first"
    if len(correlation.joins) != 1 or correlation.joins[0].kind is not JoinKind.INNER:
        yield name, "only one JOIN without LEFT and ANTI says that a live match needs a past"
    elif _admitting(correlation, live, keys) is None:
        yield name, "no field that all live events have alike says which objects have a past"
    elif live.reach != Reach():
        yield name, "live matches depend on events before them, which would be left out"
    elif isinstance(live, PatternSide) and _is_strict(live):
        yield name, "strict contiguity looks at the events of all objects"
    elif own and correlation.joins[0].range.anchor is Anchor.END:
        yield name, "with BEFORE END a past may be complete only after the live match began"
    elif own and joins[0].waits:
        yield name, "a negation at the end of the archived pattern is decided too late"


def _endless(join: ArchiveJoin) -> bool:
    """Whether partial matches of an archived pattern stay for ever."""
    query = join.query
    within = query.recognition.within if isinstance(query, ClauseSide) else query.within
    return within is None and not one_event(query)


def _is_strict(live: PatternSide) -> bool:
    return Strategy.STRICT in live.prepared.plan.query.strategies


def latency_of(latency: str | int | float | None, shape: Shape, unit: Unit) -> float:
    """How long a live match may wait for others, in the unit of times."""
    if latency is None:
        return 0
    numeric = shape.schema.time_kind.numeric
    if isinstance(latency, str) and not numeric:
        length = parse_duration(latency)
        return length if unit == "ns" else length // 1_000
    if numeric and isinstance(latency, int | float) and latency >= 0:
        return latency
    wanted = "a number, as the time column holds numbers" if numeric else 'a text as "2 seconds"'
    raise EventError(f"latency={latency!r} is not a length of time\n  hint: {wanted}")
