"""Services on files of their own, and what came out of them."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from ensue.service.service import Service
from ensue.service.store.outbox import Notification

T = TypeVar("T")
POINTS = {"t": "int64", "id": "int64", "x": "double", "y": "double"}
DEPOT = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"
# Truck 1, or another, was in the depot and is more than 20 away from it at most 60 later.
LEFT = "=|(@(Depot)(A); 60)(DIST(Depot; >; 20)(A)), A = (ARITH:id = {id})"
HERE = "(ARITH:id = {id})"


def service(path: Path | str, **more: Any) -> Service:
    """A service over points, each of some object, with one region."""
    given = {
        "schema": POINTS, "time": "t", "location": ("x", "y"), "key": "id",
        "regions": {"Depot": DEPOT}, "synchronous": "NORMAL",
    }  # fmt: skip
    return Service(path, **{**given, **more})


def run(work: Callable[[], Awaitable[T]], seconds: float = 60.0) -> T:
    """Runs a test on an event loop; one that hangs fails."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work()

    return asyncio.run(bounded())


def point(t: int, id: int, x: float, y: float = 5.0) -> dict[str, Any]:
    return {"t": t, "id": id, "x": x, "y": y}


async def all_notes(service: Service, **which: Any) -> list[Notification]:
    """Everything in the outbox."""
    return await service.list_notifications(0, 1_000_000, **which)


async def matches(service: Service, **which: Any) -> list[dict[str, Any]]:
    """What matches say, in the order of their notes."""
    return [note.content for note in await all_notes(service, **which) if note.kind == "match"]


def crashed(path: Path, to: Path) -> Path:
    """The file as a crash of the process would leave it, while the service still runs."""
    for end in ("", "-wal", ".key"):
        source = Path(f"{path}{end}")
        if source.exists():
            shutil.copyfile(source, f"{to}{end}")
    return to
