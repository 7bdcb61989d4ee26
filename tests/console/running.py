"""A service with its console behind a port, run by a thread of its own, and stopped like one."""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ensue.console.pages import Background, add_pages
from ensue.service.service import Service
from ensue.service.web.server import HttpServer

T = TypeVar("T")
POINTS = {"t": "int64", "id": "int64", "x": "double", "y": "double"}
DEPOT = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"
_PATIENCE = 120  # seconds: the first start on a machine may compile


class Console:
    """What a browser looks at. It can be stopped, and started again on the same port and file."""

    def __init__(self, path: Path, *, background: Background | None = None, **given: Any) -> None:
        self._path = path
        self._given = given
        self._pages = partial(add_pages, background=background)
        self._port = _free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        """Starts the service, and listens."""
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)
        self._thread.start()
        assert self._ready.wait(_PATIENCE), "the service does not start"
        if self._failed is not None:
            raise self._failed

    def stop(self) -> None:
        """Stops both as Ctrl-C does."""
        self._server.stop()
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive(), "the service does not stop"
        if self._failed is not None:
            raise self._failed

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine beside the server, and gives what it gives."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    def publish(self, *events: Mapping[str, Any]) -> None:
        """Events that come now."""
        self.do(self.service.publish(list(events)))

    def drive(self, id: int, *places: tuple[int, float, float]) -> None:
        """Reports of one object: time, x, y."""
        self.publish(*({"t": t, "id": id, "x": x, "y": y} for t, x, y in places))

    def drive_together(self, *reports: tuple[int, int, float, float]) -> None:
        """Reports of several objects, in the order of time: time, object, x, y."""
        self.publish(*({"t": t, "id": id, "x": x, "y": y} for t, id, x, y in sorted(reports)))

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to the thread of the test
            self._failed = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.service = Service(self._path, synchronous="NORMAL", **self._given)
        self._server = HttpServer(self.service, port=self._port, console=self._pages)
        async with self.service:
            await self._server.serve(lambda _: self._ready.set())


def plane(path: Path, **more: Any) -> Console:
    """Objects on a plane, times that are numbers, one region."""
    given: dict[str, Any] = {
        "schema": POINTS, "time": "t", "location": ("x", "y"), "key": "id",
        "regions": {"Depot": DEPOT},
    }  # fmt: skip
    return Console(path / "plane.db", **{**given, **more})


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
