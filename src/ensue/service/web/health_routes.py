"""Health and metrics over HTTP."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from fastapi import APIRouter, Response

from ensue.errors import ServiceError
from ensue.service.access import Principal
from ensue.service.queries import list_problems
from ensue.service.service import Service
from ensue.service.sse_hub import DisconnectReason
from ensue.service.store import journal, subscription_store, target_store
from ensue.service.store.subscription_store import ACTIVE, PAUSED
from ensue.service.store.user_store import ADMIN
from ensue.service.web.guard import AdminAccess, ReadAccess
from ensue.service.web.schemas import Items, format_epoch

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
MAX_SUBSCRIPTIONS = 1_000  # subscriptions with their own counters: those with the highest values

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
    "taking_events": "1 while events are accepted",
}


Samples = Iterable[tuple[float, Mapping[str, str]]]  # values with their labels


async def render_metrics(service: Service, user: int | None) -> str:
    """Renders the metrics of the service, and of the subscriptions of a user or of all."""
    health = await service.health()
    totals = await service.look(journal.sum_counters)
    rows, known = await service.look(lambda db: journal.read_counters_by_subscription(db, user, MAX_SUBSCRIPTIONS))
    listeners = service.listeners
    gauges = {**health, "taking_events": float(health["state"] == "running")}
    lines = [
        line
        for name, kind, description, number in (
            *((name, "gauge", description, gauges.get(name)) for name, description in _GAUGES.items()),
            *((f"{name}_total", "counter", "In total", totals[name]) for name in sorted(totals)),
            ("resyncs_total", "counter", "Listeners with an expired token", listeners.resyncs),
            *_process(service),
        )
        if number is not None
        for line in _family(name, kind, description, [(number, {})])
    ]
    if user is None:
        kinds = Counter(problem["kind"] for problem in health["problems"])
        problems = [(number, {"kind": kind}) for kind, number in kinds.items()]
        lines += _family("problems", "gauge", "Problems by kind, see /api/v1/health", problems)
    cut = [
        (listeners.disconnects[why], {"why": why.name})
        for why in DisconnectReason
        if why is not DisconnectReason.stopped
    ]
    lines += _family("listeners_cut_total", "counter", "Disconnected listeners", cut)
    lines += _by_subscription(rows, known)
    return "\n".join(lines) + "\n"


def _by_subscription(rows: Iterable[tuple[str, int, int, int]], known: int) -> Iterator[str]:
    families: dict[str, list[tuple[float, Mapping[str, str]]]] = {}
    for name, subscription, user, value in rows:
        labels = {"subscription": str(subscription), "user": str(user)}
        families.setdefault(name, []).append((value, labels))
    if known > MAX_SUBSCRIPTIONS:
        yield f"# {known - MAX_SUBSCRIPTIONS} subscriptions with lower values are omitted"
    for name, samples in families.items():
        yield from _family(f"subscription_{name}_total", "counter", "By subscription", samples)


def _family(name: str, kind: str, description: str, samples: Samples) -> Iterator[str]:
    """Renders a metric in the text format of Prometheus.

    >>> print(*_family("late_total", "counter", "Too late", [(3, {"why": "slow"})]), sep="\\n")
    # HELP ensue_late_total Too late
    # TYPE ensue_late_total counter
    ensue_late_total{why="slow"} 3
    """
    full = f"ensue_{name}"
    yield f"# HELP {full} {description}"
    yield f"# TYPE {full} {kind}"
    for value, labels in samples:
        text = ",".join(f'{key}="{_escape(label)}"' for key, label in labels.items())
        suffix = f"{{{text}}}" if text else ""
        yield f"{full}{suffix} {value!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _process(service: Service) -> Iterator[tuple[str, str, str, float]]:
    used = os.times()
    yield "cpu_seconds_total", "counter", "CPU time", used.user + used.system
    yield "up_seconds", "gauge", "Time since the start", time.time() - service.began
    memory = Path("/proc/self/statm")
    if memory.exists():
        pages = float(memory.read_text().split()[1])
        yield "resident_bytes", "gauge", "Memory in use", pages * os.sysconf("SC_PAGE_SIZE")
    files = (Path(service.path), Path(f"{service.path}-wal"))
    size = float(sum(file.stat().st_size for file in files if file.exists()))
    yield "file_bytes", "gauge", "Size of the database", size


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
        report = await report_health(service, access)
        times = {name for name in ("began", "outbox_oldest") if name in report}
        return {**report, **{name: format_epoch(report[name]) for name in times}}

    @routes.get("/health/targets", response_model=Items[target_store.TargetState])
    async def failing(access: ReadAccess) -> dict[str, Any]:
        """Lists one's targets that fail, are switched off, or have dead letters."""
        states = await service.look(lambda db: target_store.list_target_states(db, access.user))
        return {"items": [each for each in states if each.state != target_store.ON or each.dead]}

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


async def report_health(service: Service, access: Principal) -> dict[str, Any]:
    """Reports the health of a service; users see the stream and their own objects."""
    report = await service.health()
    if access.may(ADMIN):
        return {**report, "slow_listeners_cut": service.listeners.slow}
    own = await service.look(lambda db: _describe_own(db, service, access.user))
    return {**{name: report[name] for name in _OF_STREAM}, **own}


def _describe_own(db: Connection, service: Service, user: int) -> dict[str, Any]:
    states = subscription_store.count_by_state(db, user)
    own_targets = target_store.list_target_states(db, user)
    return {
        "problems": list_problems(db, service, user),
        "subscriptions": states.get(ACTIVE, 0),
        "paused": states.get(PAUSED, 0),
        "bad": journal.count_bad_events(db, user=user),
        "failing_targets": sum(target.state == target_store.FAILING for target in own_targets),
        "switched_off_targets": sum(target.state == target_store.OFF for target in own_targets),
        "retries": sum(target.waiting for target in own_targets),
        "dead_letters": sum(target.dead for target in own_targets),
        "listeners": service.listeners.connections(user),
    }
