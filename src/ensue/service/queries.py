"""Read-only queries of a service: trials, tracks, replays, why-not reports, health."""

import time
from collections import Counter
from dataclasses import dataclass, field
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.api import Subscriptions, explain
from ensue.errors import LimitError, QueryError, ServiceError
from ensue.ir.subscription import Region
from ensue.operators.subscriptions.catalog.catalog_log import MemoryLog
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.subscription_matcher import SubscriptionMatcher
from ensue.operators.subscriptions.subscription_set import compile_subscription_set
from ensue.operators.subscriptions.subscription_why_not import explain_missing_match
from ensue.operators.subscriptions.template_engine import LEAST
from ensue.options import Limits
from ensue.runtime.pipeline import run_to_end
from ensue.runtime.query_spec import SubscriptionsSpec
from ensue.runtime.stage import StageInput
from ensue.service.errors import NotFoundError
from ensue.service.event_columns import EventColumns, to_json_values
from ensue.service.notification_rules import encode_matches
from ensue.service.store import journal, outbox, subscription_store, target_store
from ensue.service.store.event_batches import get_last_position, get_stored_bytes, read_recent_events
from ensue.service.store.journal import SERVICE_COUNTERS, read_counters
from ensue.service.store.subscription_store import ACTIVE, PAUSED
from ensue.service.store.user_store import get_user_limits
from ensue.service.subscription_catalog import SubscriptionRequest, UserSubscription
from ensue.vector.event_table import sort_events
from ensue.vector.geo_regions import build_region, normalize_region

if TYPE_CHECKING:
    from ensue.service.service import Service

SHOWN_MATCHES = 100  # matches included in a trial
HISTOGRAM_BARS = 60  # of the histogram
_TRIED = "0"  # name of the subscription in a trial
_RECENTLY = 3_600.0  # seconds for which bad events are reported as a problem
_AROUND = 0.25  # share of a match's duration that its tracks extend before and after it


@dataclass(frozen=True, slots=True)
class TrialResult:
    """How often a subscription would have matched stored events."""

    count: int
    events: int  # read
    begin: float | None
    end: float | None
    seconds: float  # run time
    cut: str | None = None  # why only a part of the events was used
    by_object: dict[str, int] = field(default_factory=dict)
    bars: tuple[int, ...] = ()  # matches over time, in equal steps from begin to end
    matches: tuple[bytes, ...] = ()  # bodies, newest first


class _OverTimeError(Exception):
    """A trial exceeded its time limit."""


def run_trial(
    db: Connection, service: "Service", request: SubscriptionRequest, change: SubscriptionChange, since: float | None
) -> TrialResult:
    columns, limits = service.columns, get_user_limits(db, request.user, service.limits)
    events = read_recent_events(db, columns.arrow, limits.trial_events, since)
    if since is not None and events.num_rows:
        events = events.filter(pa.array(columns.seconds(events) >= since))
    log = MemoryLog()
    options = {"language": change.language, "regions": change.regions}
    log.append([SubscriptionChange.add(_TRIED, change.text or "", **options)])

    def progress(done: int, total: int) -> None:
        if done < total and time.monotonic() - began > limits.trial_seconds:
            raise _OverTimeError

    cut = None
    matches: pa.Table | None = None
    bounds = Limits(max_matches=limits.trial_matches, memory=max(LEAST, limits.memory_per_user))
    while matches is None:
        subscription_set = compile_subscription_set(SubscriptionsSpec(log, 1), columns.source)
        began = time.monotonic()
        try:
            ordered = sort_events(events, columns.shape)
            matcher = SubscriptionMatcher(subscription_set, bounds, version=1)
            (matches,) = run_to_end(matcher, StageInput.from_events(ordered, progress))
        except (LimitError, _OverTimeError) as error:
            rows = events.num_rows // 4
            cut = "too slow" if isinstance(error, _OverTimeError) else "too many matches"
            cut += f": only the newest {rows:,} events were used"
            events = events.slice(events.num_rows - rows)
    times = columns.seconds(events) if events.num_rows else None
    span = (None, None) if times is None else (float(times.min()), float(times.max()))
    newest = matches.slice(max(0, matches.num_rows - SHOWN_MATCHES))
    texts = encode_matches(newest, {0: request.name or ""}) if newest.num_rows else []
    return TrialResult(
        matches.num_rows, events.num_rows, span[0], span[1], time.monotonic() - began, cut,
        _by_object(matches, columns), _bars(matches, columns, *span), tuple(reversed(texts)),
    )  # fmt: skip


def _by_object(matches: pa.Table, columns: EventColumns) -> dict[str, int]:
    key = columns.stream.key
    if key is None or not matches.num_rows:
        return {}
    lists = matches.column("members").combine_chunks()
    rows = pc.list_parent_indices(lists).to_pylist()
    ids = to_json_values(pc.list_flatten(lists).field(key))
    pairs = {(row, str(id)) for row, id in zip(rows, ids, strict=True)}
    return dict(Counter(id for _, id in pairs).most_common(SHOWN_MATCHES))


def _bars(matches: pa.Table, columns: EventColumns, begin: float | None, end: float | None) -> tuple[int, ...]:
    if begin is None or end is None or not matches.num_rows:
        return ()
    step = max((end - begin) / HISTOGRAM_BARS, 1e-9)
    bars = ((np.array(columns.match_ends(matches)) - begin) / step).astype(np.int64)
    return tuple(np.bincount(bars.clip(0, HISTOGRAM_BARS - 1), minlength=HISTOGRAM_BARS).tolist())


def report_why_not(db: Connection, service: "Service", subscription: UserSubscription) -> dict[str, Any]:
    """Reports how far recent events got in a subscription, and which part rejected them."""
    columns, now = service.columns, service.core.matching.now
    limits = get_user_limits(db, subscription.user, service.limits)
    events = sort_events(read_recent_events(db, columns.arrow, limits.why_not_events), columns.shape)
    report = explain_missing_match(
        events, columns.shape, subscription.text, subscription.regions,
        language=subscription.language,
        now=None if now is None else columns.moment(now),
    )  # fmt: skip
    return {"text": subscription.text, "events": events.num_rows, **report.as_dict()}


def explain_subscription(columns: EventColumns, subscription: UserSubscription) -> str:
    alone = Subscriptions(**columns.subscriptions())
    regions, language = dict(subscription.regions), subscription.language
    alone.add(subscription.name, subscription.text, regions=regions, language=language)
    return explain(alone, columns.arrow.empty_table())


def validate_region(name: str, region: Any, space: str) -> str:
    """Returns the canonical text of a region; raises QueryError for an invalid one."""
    if not name or not name.replace("_", "a").replace("-", "a").isalnum() or name[0].isdigit():
        raise QueryError(
            f"'{name}' is not a valid region name",
            hint="letters, digits, _ and -, starting with a letter, because subscriptions use it",
        )
    text = normalize_region(region)
    build_region(Region(text, name), space)
    return text


def read_track(
    db: Connection, columns: EventColumns, object: Any, since: float | None, until: float | None, limit: int
) -> list[list[Any]]:
    """Returns [time, x, y] of an object, ordered by time; only the newest `limit` points."""
    key = columns.stream.key
    if key is None:
        raise ServiceError(
            "the stream has no key, so events cannot be assigned to objects\n"
            "  hint: name the column with ensue.Service(..., key=...)"
        )
    events = read_recent_events(db, columns.arrow, 1_000_000, since, until)
    try:
        request = pa.scalar(object).cast(columns.arrow.field(key).type)
    except (pa.ArrowException, ValueError):
        return []
    own = events.filter(pc.equal(events.column(key), request))
    own = sort_events(own, columns.shape)
    times = columns.seconds(own).tolist() if own.num_rows else []
    xs, ys = columns.places(own)
    points = [
        [columns.to_json(t), x, y]
        for t, x, y in zip(times, xs, ys, strict=True)
        if x is not None and y is not None and (since is None or t >= since) and (until is None or t <= until)
    ]
    return points[-limit:]


def read_replay(db: Connection, columns: EventColumns, number: int, user: int) -> dict[str, Any]:
    notification = outbox.get_notification(db, number)
    if notification is None or notification.user != user:
        raise NotFoundError(f"there is no notification {number}")
    content = notification.content
    tracks: dict[str, list[list[Any]]] = {}
    if content["kind"] == "match" and columns.stream.key is not None:
        begin = columns.parse_time(content["start"], "start") or 0.0
        end = columns.parse_time(content["end"], "end") or 0.0
        around = (end - begin) * _AROUND
        for id in {member[columns.stream.key] for member in content["members"]}:
            tracks[str(id)] = read_track(db, columns, id, begin - around, end + around, 5_000)
    return {"number": notification.number, "at": notification.at, **content, "tracks": tracks}


def report_health(db: Connection, service: "Service") -> dict[str, Any]:
    core = service.core
    now = time.time()
    totals = read_counters(db, SERVICE_COUNTERS)
    subscriptions = subscription_store.count_by_state(db)
    targets, deliveries = target_store.count_by_state(db)
    stored, oldest = outbox.count_stored(db)
    newest = core.newest_event
    lag = now - newest if service.columns.calendar and newest is not None else None
    return {
        "state": "running" if core.stopped is None else "intake stopped",
        "reason": core.stopped,
        "problems": list_problems(db, service),
        "matching_trouble": core.matching.trouble,
        "began": service.began,
        "events": totals.get("events", 0),
        "events_per_second": core.pace.per_second(),
        "lag_seconds": lag,
        "watermark": service.columns.to_json(core.matching.now),
        "newest": service.columns.to_json(newest),
        "late": totals.get("events_late", 0),
        "bad": totals.get("events_bad", 0),
        "repeated": totals.get("events_repeated", 0),
        "waiting": service.database.waiting,
        "position": get_last_position(db),
        "kept_bytes": get_stored_bytes(db),
        "outbox": stored,
        "outbox_oldest": oldest,
        "newest_note": outbox.get_newest_number(db),
        "failing_targets": targets.get("failing", 0),
        "switched_off_targets": targets.get("off", 0),
        "retries": deliveries.get("waiting", 0),
        "dead_letters": deliveries.get("dead", 0),
        "subscriptions": subscriptions.get(ACTIVE, 0),
        "paused": subscriptions.get(PAUSED, 0),
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


def list_problems(db: Connection, service: "Service", user: int | None = None) -> list[dict[str, str]]:
    core = service.core
    problems = _stream_problems(service, user)
    paused = subscription_store.count_paused_by_service(db, user)  # not by their users
    if paused:
        detail = f"{paused:,} subscriptions were paused because they exceeded a limit"
        problems.append(_problem("paused", detail, "see its reason; change it, then resume it"))
    if user is not None:
        return problems
    for source in service.sources:
        trouble = service.stopped_sources.get(source.name, source.progress.trouble)
        if trouble is not None:
            problems.append(_problem("source", f"the source {source.name} cannot be read: {trouble}"))
    since = core.clock() - _RECENTLY
    bad = journal.count_bad_events(db, since=since)
    if bad:
        detail = f"{bad:,} events were rejected in the last hour"
        problems.append(_problem("bad events", detail, "see GET /api/v1/events/bad"))
    targets, _ = target_store.count_by_state(db)
    failing = sum(targets.values()) - targets.get(target_store.ON, 0)
    if failing:
        detail = f"{failing:,} targets fail or are switched off"
        problems.append(_problem("targets", detail, "users see theirs in /api/v1/health/targets"))
    return problems


def _stream_problems(service: "Service", user: int | None) -> list[dict[str, str]]:
    """Problems of the whole stream; error texts may quote queries, so users get none."""
    core, problems = service.core, []
    if core.stopped is not None:
        problems.append(_problem("intake", f"no events are accepted: {core.stopped}"))
    if core.matching.trouble is not None:
        why = f": {core.matching.trouble}" if user is None else " at the moment"
        problems.append(_problem("matching", f"events are not matched{why}"))
    watermark, now = core.matching.now, core.clock()
    if service.columns.calendar and watermark is not None:
        ahead = watermark - now
        if ahead > service.limits.max_ahead:
            detail = f"the watermark is {ahead:,.0f} seconds ahead of the clock: events are late"
            hint = "stop the service, and start it once with --reset-watermark"
            problems.append(_problem("watermark", detail, hint))
    return problems


def _problem(kind: str, detail: str, hint: str | None = None) -> dict[str, str]:
    first, _, own_hint = detail.partition("\n  hint: ")
    hint = hint or own_hint
    return {"kind": kind, "detail": first, **({"hint": hint} if hint else {})}
