"""Counters in the text format of Prometheus."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from ensue.service.listening import Why
from ensue.service.service import Service
from ensue.service.store.counters import totals

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
MOST = 1_000  # subscriptions with counters of their own; those that counted most

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

# Numbers of `health` that go up and down.
_GAUGES = {
    "events_per_second": "Events taken, by the last ten seconds",
    "lag_seconds": "How far the newest event is behind the clock",
    "waiting": "Pieces of work that wait for the writer",
    "outbox": "Notes that are kept",
    "failing_targets": "Targets that fail",
    "switched_off_targets": "Targets that are switched off",
    "retries": "Notes that failed and are tried again",
    "dead_letters": "Notes that were given up",
    "subscriptions": "Subscriptions that are matched",
    "paused": "Subscriptions that are paused",
    "objects": "Objects that are known",
    "listeners": "Who listens now",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One number, and what tells it from others of its name."""

    value: float
    labels: Mapping[str, str]


async def metrics_text(service: Service, user: int | None) -> str:
    """All numbers of the service, and those of a user's subscriptions or of everybody's."""
    health = await service.health()
    whole, rows, known = await service.look(lambda db: _read(db, user))
    listeners = service.listeners
    lines: list[str] = []
    for name, says in _GAUGES.items():
        if health.get(name) is not None:
            lines += _family(name, "gauge", says, [Sample(health[name], {})])
    up = [Sample(float(health["state"] == "running"), {})]
    lines += _family("taking_events", "gauge", "1 while events are taken", up)
    if user is None:
        kinds = Counter(problem["kind"] for problem in health["problems"])
        some = [Sample(number, {"kind": kind}) for kind, number in kinds.items()]
        lines += _family("problems", "gauge", "What /api/v1/health says is wrong", some)
    for name, value in sorted(whole.items()):
        lines += _family(f"{name}_total", "counter", "Over all", [Sample(value, {})])
    cut = [
        Sample(listeners.cut_by[why], {"why": why.name})
        for why in Why
        if why not in (Why.gone, Why.stopped)
    ]
    lines += _family("listeners_cut_total", "counter", "Listeners that were cut", cut)
    resyncs = [Sample(listeners.resyncs, {})]
    lines += _family("resyncs_total", "counter", "Listeners whose token was too old", resyncs)
    for name, says, kind, number in _process(service):
        lines += _family(name, kind, says, [Sample(number, {})])
    lines += _by_subscription(rows, known)
    return "\n".join(lines) + "\n"


def _read(
    db: Connection, user: int | None
) -> tuple[dict[str, int], list[tuple[str, int, int, int]], int]:
    rows = [
        (row["name"], row["subscription"], row["user"], row["value"])
        for row in db.execute(_COUNTED, (user, MOST))
    ]
    return totals(db), rows, db.execute(_LEFT_OUT, (user,)).fetchone()[0]


def _by_subscription(rows: Iterable[tuple[str, int, int, int]], known: int) -> Iterator[str]:
    families: dict[str, list[Sample]] = {}
    for name, subscription, user, value in rows:
        labels = {"subscription": str(subscription), "user": str(user)}
        families.setdefault(name, []).append(Sample(value, labels))
    if known > MOST:
        yield f"# {known - MOST} subscriptions that counted less than these are left out"
    for name, samples in families.items():
        yield from _family(f"subscription_{name}_total", "counter", "By subscription", samples)


def _family(name: str, kind: str, says: str, samples: Iterable[Sample]) -> Iterator[str]:
    """A metric as Prometheus reads it.

    >>> for line in _family("late_total", "counter", "Too late", [Sample(3, {"why": "slow"})]):
    ...     print(line)
    # HELP ensue_late_total Too late
    # TYPE ensue_late_total counter
    ensue_late_total{why="slow"} 3
    """
    full = f"ensue_{name}"
    yield f"# HELP {full} {says}"
    yield f"# TYPE {full} {kind}"
    for sample in samples:
        labels = ",".join(f'{key}="{_escaped(text)}"' for key, text in sample.labels.items())
        told_apart = f"{{{labels}}}" if labels else ""
        yield f"{full}{told_apart} {sample.value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _process(service: Service) -> Iterator[tuple[str, str, str, float]]:
    used = os.times()
    yield "cpu_seconds_total", "Processor time", "counter", used.user + used.system
    yield "up_seconds", "Since it was started", "gauge", time.time() - service.began
    resident = _resident()
    if resident is not None:
        yield "resident_bytes", "Memory in use", "gauge", resident
    size = _size(service.path)
    yield "file_bytes", "Of the database", "gauge", size


def _resident() -> float | None:
    """Memory of this process, where the system tells it."""
    described = Path("/proc/self/statm")
    if not described.exists():
        return None
    return float(described.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _size(path: str) -> float:
    files: Any = (Path(path), Path(f"{path}-wal"))
    return float(sum(file.stat().st_size for file in files if file.exists()))
