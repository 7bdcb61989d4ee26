"""What a service is asked about: trials, tracks, replays, why not, health. Nothing is changed."""

import time
from collections import Counter
from dataclasses import dataclass, field
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.subscription import Region
from ensue.api import explain
from ensue.columns.region_shapes import made, region_text
from ensue.columns.stream import in_order
from ensue.errors import LimitError, QueryError, ServiceError
from ensue.plan.limits import Limits as MatchLimits
from ensue.service.columns import Columns
from ensue.service.refusals import NotFoundError
from ensue.service.settings import Limits
from ensue.service.store import outbox
from ensue.service.store.batches import kept_bytes, last_position, recent_events
from ensue.service.store.counters import WHOLE, counted
from ensue.service.store.subscriptions import ACTIVE, PAUSED
from ensue.service.subscribed import Subscribed
from ensue.service.wanted import Wanted
from ensue.service.wording import bodies, plain
from ensue.workload.subscriptions.catalogue.change import Change
from ensue.workload.subscriptions.catalogue.memory import MemoryLog
from ensue.workload.subscriptions.fleet import fleet_of
from ensue.workload.subscriptions.matcher import matched_in
from ensue.workload.subscriptions.shapes.running import LEAST
from ensue.workload.subscriptions.subscribed import Subscribed as Set
from ensue.workload.subscriptions.why_not import why_not_of

if TYPE_CHECKING:
    from ensue.service.service import Service

SHOWN = 100  # matches of a trial that are shown
BARS = 60  # of its histogram
_TRIED = "0"  # the name of the subscription in a trial
_RECENTLY = 3_600.0  # seconds in which bad events are a problem
_AROUND = 0.25  # of a match's length, that is shown of its tracks before and behind it


@dataclass(frozen=True, slots=True)
class Trial:
    """How often a subscription would have fired."""

    count: int
    events: int  # that were looked at
    begin: float | None
    end: float | None
    seconds: float  # that it took
    cut: str | None = None  # why it is not all of them
    by_object: dict[str, int] = field(default_factory=dict)
    bars: tuple[int, ...] = ()  # matches over time, in equal steps from begin to end
    matches: tuple[bytes, ...] = ()  # bodies, newest first


class _OverTimeError(Exception):
    """A trial that takes too long."""


def trial(
    db: Connection,
    columns: Columns,
    limits: Limits,
    wanted: Wanted,
    change: Change,
    since: float | None,
) -> Trial:
    """Runs a subscription over the events that are kept."""
    events = recent_events(db, columns.arrow, limits.trial_events, since)
    if since is not None and events.num_rows:
        events = events.filter(pa.array(columns.seconds(events) >= since))
    log = MemoryLog()
    given = {"language": change.language, "regions": change.regions}
    log.append([Change.add(_TRIED, change.text or "", **given)])
    fleet = fleet_of(Set(log, 1), columns.source)
    began = time.monotonic()

    def progress(done: int, of: int) -> None:
        if done < of and time.monotonic() - began > limits.trial_seconds:
            raise _OverTimeError

    cut = None
    found: pa.Table | None = None
    bounds = MatchLimits.given(limits.trial_matches, None, max(LEAST, limits.memory_per_user))
    while found is None:
        try:
            ordered = in_order(events, columns.shape)
            found = matched_in(ordered, fleet, 1, bounds, progress=progress)
        except (LimitError, _OverTimeError) as error:
            rows = events.num_rows // 4
            over = isinstance(error, _OverTimeError)
            cut = "it takes too long" if over else "it fires too often"
            cut += f": only the newest {rows:,} events were looked at"
            events = events.slice(events.num_rows - rows)
            fleet = fleet_of(Set(log, 1), columns.source)
            began = time.monotonic()
    times = columns.seconds(events) if events.num_rows else None
    span = (None, None) if times is None else (float(times.min()), float(times.max()))
    newest = found.slice(max(0, found.num_rows - SHOWN))
    texts = bodies(newest, {0: wanted.name or ""}) if newest.num_rows else []
    return Trial(
        found.num_rows, events.num_rows, span[0], span[1], time.monotonic() - began, cut,
        _by_object(found, columns), _bars(found, columns, *span), tuple(reversed(texts)),
    )  # fmt: skip


def _by_object(found: pa.Table, columns: Columns) -> dict[str, int]:
    key = columns.stream.key
    if key is None or not found.num_rows:
        return {}
    lists = found.column("members").combine_chunks()
    rows = pc.list_parent_indices(lists).to_pylist()
    ids = plain(pc.list_flatten(lists).field(key))
    pairs = {(row, str(id)) for row, id in zip(rows, ids, strict=True)}
    return dict(Counter(id for _, id in pairs).most_common(SHOWN))


def _bars(
    found: pa.Table, columns: Columns, begin: float | None, end: float | None
) -> tuple[int, ...]:
    if begin is None or end is None or not found.num_rows:
        return ()
    column = found.column("end")
    if columns.calendar:
        zone = getattr(column.type, "tz", None)
        micros = column.cast(pa.timestamp("us", zone)).cast(pa.int64())
        times = [value / 1e6 for value in micros.to_pylist()]
    else:
        times = [float(value) for value in column.to_pylist()]
    step = max((end - begin) / BARS, 1e-9)
    found_in = Counter(min(BARS - 1, max(0, int((t - begin) / step))) for t in times)
    return tuple(found_in.get(bar, 0) for bar in range(BARS))


# -------------------------------------------------------------------------------- one subscription


def why_not(
    db: Connection, columns: Columns, limits: Limits, asked: Subscribed, now: float | None
) -> dict[str, Any]:
    """How far recent events got in a subscription, and what stopped them."""
    events = in_order(recent_events(db, columns.arrow, limits.why_not_events), columns.shape)
    found = why_not_of(
        events, columns.shape, asked.text, asked.regions, language=asked.language,
        now=None if now is None else columns.moment(now),
    )  # fmt: skip
    return {"text": asked.text, "events": events.num_rows, **found.as_dict()}


def explained(columns: Columns, asked: Subscribed) -> str:
    """How one subscription is run, in words."""
    fleet = columns.alone(
        asked.name, asked.text, regions=dict(asked.regions), language=asked.language
    )
    return explain(fleet, columns.arrow.empty_table())


# -------------------------------------------------------------------------------- places


def checked_region(name: str, region: Any, space: str) -> str:
    """A region in one spelling. QueryError if it is none."""
    if not name or not name.replace("_", "a").replace("-", "a").isalnum() or name[0].isdigit():
        raise QueryError(
            f"'{name}' is not a valid region name",
            hint="letters, digits, _ and -, starting with a letter, because subscriptions use it",
        )
    text = region_text(region)
    made(Region(text, name), space)
    return text


def track(
    db: Connection,
    columns: Columns,
    object: Any,
    since: float | None,
    until: float | None,
    limit: int,
) -> list[list[Any]]:
    """Where an object was: time, x, y, by time; the newest if there are too many."""
    key = columns.stream.key
    if key is None:
        raise ServiceError(
            "the stream has no key, so events cannot be assigned to objects\n"
            "  hint: ensue.Service(..., key=...) says which column it is"
        )
    events = recent_events(db, columns.arrow, 1_000_000, since, until)
    try:
        wanted = pa.scalar(object).cast(columns.arrow.field(key).type)
    except (pa.ArrowException, ValueError):
        return []
    own = events.filter(pc.equal(events.column(key), wanted))
    own = in_order(own, columns.shape)
    times = columns.seconds(own).tolist() if own.num_rows else []
    xs, ys = columns.places(own)
    points = [
        [columns.shown(t), x, y]
        for t, x, y in zip(times, xs, ys, strict=True)
        if x is not None
        and y is not None
        and (since is None or t >= since)
        and (until is None or t <= until)
    ]
    return points[-limit:]


def replay(db: Connection, columns: Columns, number: int, user: int) -> dict[str, Any]:
    """A note, and where its objects were around it."""
    note = outbox.note_of(db, number)
    if note is None or note.user != user:
        raise NotFoundError(f"there is no note {number}")
    content = note.content
    tracks: dict[str, list[list[Any]]] = {}
    if content["kind"] == "match" and columns.stream.key is not None:
        begin = columns.read_moment(content["start"], "start") or 0.0
        end = columns.read_moment(content["end"], "end") or 0.0
        around = (end - begin) * _AROUND
        for id in {member[columns.stream.key] for member in content["members"]}:
            tracks[str(id)] = track(db, columns, id, begin - around, end + around, 5_000)
    return {"number": note.number, "at": note.at, **content, "tracks": tracks}


# -------------------------------------------------------------------------------- health


def health(db: Connection, service: "Service") -> dict[str, Any]:
    """How a service is: what it takes, holds and has not delivered yet."""
    core = service.core
    now = time.time()
    totals = counted(db, WHOLE)
    states = dict(
        map(tuple, db.execute("SELECT state, count(*) FROM subscriptions GROUP BY state"))
    )
    failing = db.execute("SELECT count(*) FROM targets WHERE state = 'failing'").fetchone()[0]
    off = db.execute("SELECT count(*) FROM targets WHERE state = 'off'").fetchone()[0]
    waiting = db.execute("SELECT count(*) FROM deliveries WHERE state = 'waiting'").fetchone()[0]
    dead = db.execute("SELECT count(*) FROM deliveries WHERE state = 'dead'").fetchone()[0]
    kept, oldest = outbox.kept(db)
    lag = None
    if columns_have_clock(service.columns) and core.newest_event is not None:
        lag = now - core.newest_event
    return {
        "state": "running" if core.stopped is None else "intake stopped",
        "reason": core.stopped,
        "problems": problems(db, service),
        "matching_trouble": core.matching.trouble,
        "began": service.began,
        "events": totals.get("events", 0),
        "events_per_second": core.pace.a_second(),
        "lag_seconds": lag,
        "watermark": service.columns.shown(core.matching.now),
        "newest": service.columns.shown(core.newest_event),
        "late": totals.get("events_late", 0),
        "bad": totals.get("events_bad", 0),
        "repeated": totals.get("events_repeated", 0),
        "waiting": service.database.waiting,
        "position": last_position(db),
        "kept_bytes": kept_bytes(db),
        "outbox": kept,
        "outbox_oldest": oldest,
        "newest_note": outbox.newest(db),
        "failing_targets": failing,
        "switched_off_targets": off,
        "retries": waiting,
        "dead_letters": dead,
        "subscriptions": states.get(ACTIVE, 0),
        "paused": states.get(PAUSED, 0),
        "objects": len(core.objects),
        "listeners": service.listeners.count,
        "sources": [
            {
                "name": source.name,
                "trouble": service.stopped_sources.get(source.name, source.progress.trouble),
                **source.progress.counts,
            }
            for source in service.sources
        ],
        **core.matching.counters(),
    }


def problems(db: Connection, service: "Service", user: int | None = None) -> list[dict[str, str]]:
    """What is wrong with a service: all of it, or what concerns one user."""
    core = service.core
    found = [*_stream_problems(service, user), *_paused(db, user)]
    if user is not None:
        return found
    for source in service.sources:
        trouble = service.stopped_sources.get(source.name, source.progress.trouble)
        if trouble is not None:
            found.append(_problem("source", f"the source {source.name} does not read: {trouble}"))
    since = core.clock() - _RECENTLY
    bad = db.execute("SELECT count(*) FROM bad_events WHERE at >= ?", (since,)).fetchone()[0]
    if bad:
        said = f"events that were set aside in the last hour: {bad:,}"
        found.append(_problem("bad events", said, "GET /api/v1/events/bad says why, and whose"))
    troubled = db.execute("SELECT count(*) FROM targets WHERE state <> 'on'").fetchone()[0]
    if troubled:
        said = f"targets that fail or are switched off: {troubled:,}"
        found.append(_problem("targets", said, "each user sees them in /api/v1/health/targets"))
    return found


def _stream_problems(service: "Service", user: int | None) -> list[dict[str, str]]:
    """What is wrong for everybody; errors may quote queries, so users are told less."""
    core, found = service.core, []
    if core.stopped is not None:
        found.append(_problem("intake", f"no events are accepted: {core.stopped}"))
    if core.matching.trouble is not None:
        why = f": {core.matching.trouble}" if user is None else " at the moment"
        found.append(_problem("matching", f"nothing is matched{why}"))
    watermark, now = core.matching.now, core.clock()
    if columns_have_clock(service.columns) and watermark is not None:
        ahead = watermark - now
        if ahead > service.limits.max_ahead:
            said = f"the watermark is {ahead:,.0f} seconds ahead of the clock: events are late"
            hint = "stop the service, and start it once with --reset-watermark"
            found.append(_problem("watermark", said, hint))
    return found


def _paused(db: Connection, user: int | None) -> list[dict[str, str]]:
    """Subscriptions that the service has paused, not their users."""
    count = db.execute(
        "SELECT count(*) FROM subscriptions WHERE state = ? AND reason IS NOT NULL "
        "AND (?2 IS NULL OR user = ?2)",
        (PAUSED, user),
    ).fetchone()[0]
    if not count:
        return []
    said = f"subscriptions that were paused because they exceeded a limit: {count:,}"
    return [_problem("paused", said, "each says why; change it, then resume it")]


def _problem(kind: str, detail: str, hint: str | None = None) -> dict[str, str]:
    first, _, own = detail.partition("\n  hint: ")
    said = hint or own
    return {"kind": kind, "detail": first, **({"hint": said} if said else {})}


def columns_have_clock(columns: Columns) -> bool:
    """Whether times of the stream can be compared with the clock."""
    return columns.calendar
