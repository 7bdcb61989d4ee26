"""Health and metrics over HTTP."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from fastapi import APIRouter, Response

from ensue.errors import ServiceError
from ensue.service.access import ADMIN
from ensue.service.queries import list_problems
from ensue.service.service import Service
from ensue.service.sse_hub import DisconnectReason
from ensue.service.store import target_store as targets
from ensue.service.store.journal import sum_counters
from ensue.service.store.subscription_store import ACTIVE, PAUSED
from ensue.service.web.guard import AdminAccess, ReadAccess
from ensue.service.web.sse import format_epoch
from ensue.service.web.target_routes import list_target_views

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
MAX_SUBSCRIPTIONS = 1_000  # subscriptions with their own counters: those with the highest values

_COUNTED = """
    WITH own AS (
        SELECT c.subscription, c.name, c.value, s.user FROM counters c
        JOIN subscriptions s ON s.id = c.subscription
        WHERE c.subscription <> 0 AND (?1 IS NULL OR s.user = ?1)),
    most AS (
        SELECT subscription FROM own GROUP BY subscription
        ORDER BY sum(value) DESC, subscription LIMIT ?2)
    SELECT * FROM own WHERE subscription IN (SELECT subscription FROM most)
    ORDER BY name, subscription"""
_LEFT_OUT = """
    SELECT count(DISTINCT c.subscription) FROM counters c
    JOIN subscriptions s ON s.id = c.subscription
    WHERE c.subscription <> 0 AND (?1 IS NULL OR s.user = ?1)"""

# Gauges from the health report.
_GAUGES = {
    "events_per_second": "Accepted events per second, over the last ten seconds",
    "lag_seconds": "Delay of the newest event behind the clock",
    "waiting": "Jobs waiting for the writer",
    "outbox": "Stored notifications",
    "failing_targets": "Failing targets",
    "switched_off_targets": "Targets that are switched off",
    "retries": "Failed notifications that are retried",
    "dead_letters": "Dead letters",
    "subscriptions": "Active subscriptions",
    "paused": "Paused subscriptions",
    "objects": "Known objects",
    "listeners": "Connected listeners",
}


@dataclass(frozen=True, slots=True)
class MetricSample:
    """A value with its labels."""

    value: float
    labels: Mapping[str, str]


async def render_metrics(service: Service, user: int | None) -> str:
    """Renders the metrics of the service, and of the subscriptions of a user or of all."""
    health = await service.health()
    whole, rows, known = await service.look(lambda db: _read(db, user))
    listeners = service.listeners
    lines: list[str] = []
    for name, description in _GAUGES.items():
        if health.get(name) is not None:
            lines += _family(name, "gauge", description, [MetricSample(health[name], {})])
    up = [MetricSample(float(health["state"] == "running"), {})]
    lines += _family("taking_events", "gauge", "1 while events are accepted", up)
    if user is None:
        kinds = Counter(problem["kind"] for problem in health["problems"])
        samples = [MetricSample(number, {"kind": kind}) for kind, number in kinds.items()]
        lines += _family("problems", "gauge", "Problems by kind, see /api/v1/health", samples)
    for name, value in sorted(whole.items()):
        lines += _family(f"{name}_total", "counter", "In total", [MetricSample(value, {})])
    cut = [
        MetricSample(listeners.disconnects[why], {"why": why.name})
        for why in DisconnectReason
        if why not in (DisconnectReason.gone, DisconnectReason.stopped)
    ]
    lines += _family("listeners_cut_total", "counter", "Disconnected listeners", cut)
    resyncs = [MetricSample(listeners.resyncs, {})]
    lines += _family("resyncs_total", "counter", "Listeners with an expired token", resyncs)
    for name, description, kind, number in _process(service):
        lines += _family(name, kind, description, [MetricSample(number, {})])
    lines += _by_subscription(rows, known)
    return "\n".join(lines) + "\n"


def _read(
    db: Connection, user: int | None
) -> tuple[dict[str, int], list[tuple[str, int, int, int]], int]:
    rows = [
        (row["name"], row["subscription"], row["user"], row["value"])
        for row in db.execute(_COUNTED, (user, MAX_SUBSCRIPTIONS))
    ]
    return sum_counters(db), rows, db.execute(_LEFT_OUT, (user,)).fetchone()[0]


def _by_subscription(rows: Iterable[tuple[str, int, int, int]], known: int) -> Iterator[str]:
    families: dict[str, list[MetricSample]] = {}
    for name, subscription, user, value in rows:
        labels = {"subscription": str(subscription), "user": str(user)}
        families.setdefault(name, []).append(MetricSample(value, labels))
    if known > MAX_SUBSCRIPTIONS:
        yield f"# {known - MAX_SUBSCRIPTIONS} subscriptions with lower values are omitted"
    for name, samples in families.items():
        yield from _family(f"subscription_{name}_total", "counter", "By subscription", samples)


def _family(
    name: str, kind: str, description: str, samples: Iterable[MetricSample]
) -> Iterator[str]:
    """Renders a metric in the text format of Prometheus.

    >>> for line in _family(
    ...     "late_total", "counter", "Too late", [MetricSample(3, {"why": "slow"})]
    ... ):
    ...     print(line)
    # HELP ensue_late_total Too late
    # TYPE ensue_late_total counter
    ensue_late_total{why="slow"} 3
    """
    full = f"ensue_{name}"
    yield f"# HELP {full} {description}"
    yield f"# TYPE {full} {kind}"
    for sample in samples:
        labels = ",".join(f'{key}="{_escape(text)}"' for key, text in sample.labels.items())
        suffix = f"{{{labels}}}" if labels else ""
        yield f"{full}{suffix} {sample.value!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _process(service: Service) -> Iterator[tuple[str, str, str, float]]:
    used = os.times()
    yield "cpu_seconds_total", "CPU time", "counter", used.user + used.system
    yield "up_seconds", "Time since the start", "gauge", time.time() - service.began
    resident = _resident()
    if resident is not None:
        yield "resident_bytes", "Memory in use", "gauge", resident
    yield "file_bytes", "Size of the database", "gauge", _size(service.path)


def _resident() -> float | None:
    """Resident memory of this process, where the system reports it."""
    described = Path("/proc/self/statm")
    if not described.exists():
        return None
    return float(described.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _size(path: str) -> float:
    files: Any = (Path(path), Path(f"{path}-wal"))
    return float(sum(file.stat().st_size for file in files if file.exists()))


# Fields that every user may see, since all share the stream.
_OF_STREAM = (
    "state", "reason", "began", "events_per_second", "lag_seconds", "watermark", "newest",
    "objects", "newest_note",
)  # fmt: skip


def health_routes(service: Service) -> APIRouter:
    """Adds /health and /explain."""
    routes = APIRouter(tags=["health"])

    @routes.get("/health", response_model=dict[str, Any])
    async def health(access: ReadAccess) -> dict[str, Any]:
        """Reports the state of the stream and of one's subscriptions; all for an administrator."""
        report = await service.health()
        report |= {name: format_epoch(report[name]) for name in ("began", "outbox_oldest")}
        if access.may(ADMIN):
            return {**report, "slow_listeners_cut": service.listeners.slow}
        own = await service.look(lambda db: _own(db, service, access.user))
        listeners = service.listeners.connections(access.user)
        return {**{name: report[name] for name in _OF_STREAM}, **own, "listeners": listeners}

    @routes.get("/health/targets", response_model=dict[str, Any])
    async def failing(access: ReadAccess) -> dict[str, Any]:
        """Lists one's targets that fail, are switched off, or have dead letters."""
        return {"items": await service.look(lambda db: _troubled(db, access.user))}

    @routes.get("/explain", response_model=dict[str, str])
    async def explain(_: AdminAccess) -> dict[str, str]:
        """Explains how all subscriptions are executed together."""
        return {"text": await service.explain()}

    return routes


def probe_routes(service: Service) -> APIRouter:
    """Adds the probes outside of the API: /health and /metrics."""
    routes = APIRouter(tags=["health"])

    @routes.get("/health", response_model=dict[str, str])
    async def alive(response: Response) -> dict[str, str]:
        """Whether the service runs and accepts events; needs no token."""
        try:
            stopped = service.core.stopped
        except ServiceError:
            stopped = "it is not running"
        if stopped is not None:
            response.status_code = 503
        return {"state": "running" if stopped is None else "intake stopped"}

    @routes.get("/metrics")
    async def metrics(access: ReadAccess) -> Response:
        """Metrics in the text format of Prometheus; those of all users for an administrator."""
        user = None if access.may(ADMIN) else access.user
        return Response(await render_metrics(service, user), media_type=MEDIA)

    return routes


def _own(db: Connection, service: Service, user: int) -> dict[str, Any]:
    states = dict(
        map(
            tuple,
            db.execute(
                "SELECT state, count(*) FROM subscriptions WHERE user = ? GROUP BY state", (user,)
            ),
        )
    )
    states_of_targets = targets.list_target_states(db, user)
    rejected = "SELECT count(*) FROM bad_events WHERE user = ?"
    return {
        "problems": list_problems(db, service, user),
        "subscriptions": states.get(ACTIVE, 0),
        "paused": states.get(PAUSED, 0),
        "bad": db.execute(rejected, (user,)).fetchone()[0],
        "failing_targets": sum(target.state == targets.FAILING for target in states_of_targets),
        "switched_off_targets": sum(target.state == targets.OFF for target in states_of_targets),
        "retries": sum(target.waiting for target in states_of_targets),
        "dead_letters": sum(target.dead for target in states_of_targets),
    }


def _troubled(db: Connection, user: int) -> list[dict[str, Any]]:
    states = targets.list_target_states(db, user)
    troubled = [target for target in states if target.state != targets.ON or target.dead]
    by_id = {
        shown["id"]: shown
        for subscription in sorted({target.subscription for target in troubled})
        for shown in list_target_views(db, user, subscription)
    }
    return [by_id[target.id] for target in troubled]
