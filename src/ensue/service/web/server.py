"""The server of a service: Uvicorn, run from a program, stopped without losing anything."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ensue.errors import ServiceError
from ensue.service.service import Service
from ensue.service.web.app import Console, make_app
from ensue.service.web.connections import Connections, protocol_of, raise_file_limit
from ensue.service.web.guard import is_loopback
from ensue.service.web.sse import TRANSPORT

_LOG = logging.getLogger(__name__)
PORT = 8765
PATIENCE = 15  # seconds that requests may take to end
_SOON = 0.5  # seconds that a service may take to start before it is listened for
_BACKLOG = 4_096  # clients that may come at once
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server:
    """Runs a service until it is told to stop, by `stop` or a signal.

    Without tokens it listens on this machine only. The first Ctrl-C or SIGTERM takes no more
    connections, ends streams with a last frame, lets requests finish and closes the service; the
    second leaves at once, which the file survives as it survives a crash.
    """

    def __init__(
        self,
        service: Service,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        console: Console | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        proxies: Sequence[str] = (),  # whose word about the client and TLS is taken
        access_log: bool = False,
    ) -> None:
        self._service = service
        self._host, self._port = host, port
        self._console = console
        self._tls = {"ssl_certfile": certificate, "ssl_keyfile": key} if certificate else {}
        self._proxies = list(proxies)
        self._access_log = access_log
        self._uvicorn: _Uvicorn | None = None
        self.connections: Connections | None = None  # while it serves
        self._socket: socket.socket | None = None

    @property
    def address(self) -> str:
        """Where it listens, as a URL."""
        host, port = self._host, self._port
        if self._socket is not None:
            host, port = self._socket.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{name}:{port}"

    def run(
        self,
        started: Callable[[str], None] | None = None,
        prepared: Callable[[Service], Awaitable[None]] | None = None,
    ) -> None:
        """Starts the service and serves it; returns when both have stopped.

        `prepared` is called with the service once it runs, before it takes requests. What takes
        long to start is listened for meanwhile: /health says so, and everything else is told to
        come again.
        """
        raise_file_limit()
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._run(started, prepared))

    async def _run(
        self,
        started: Callable[[str], None] | None,
        prepared: Callable[[Service], Awaitable[None]] | None,
    ) -> None:
        starting = asyncio.create_task(self._start(prepared))
        try:
            await asyncio.wait({starting}, timeout=_SOON)
            if starting.done():
                starting.result()
                await self.serve(started)
            else:
                await self._serve_from_now(starting, started)
        finally:
            starting.cancel()
            await asyncio.wait({starting})
            with _handled(_leave):
                await self._service.close()

    async def _start(self, prepared: Callable[[Service], Awaitable[None]] | None) -> None:
        await self._service.start()
        if prepared is not None:
            await prepared(self._service)

    async def serve(self, started: Callable[[str], None] | None = None) -> None:
        """Serves a service that runs; `started` is told the address once it listens."""
        place = _place(self._host, self._port)
        with self._listening(place, self._app(place)) as server:
            server.told = lambda: started(self.address) if started is not None else None
            await server.serve([server.socket])

    async def _serve_from_now(
        self, starting: "asyncio.Task[None]", started: Callable[[str], None] | None
    ) -> None:
        """Serves a service that is being started."""
        place, entry = _place(self._host, self._port), _Entry()
        with self._listening(place, entry) as server:
            serving = asyncio.create_task(server.serve([server.socket]))
            try:
                await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():  # else it was stopped before that
                    starting.result()
                    entry.app = self._app(place)
                    if started is not None:
                        started(self.address)
                    await serving
            finally:
                server.should_exit = True
                await serving

    @contextlib.contextmanager
    def _listening(self, place: "_Place", app: ASGIApp) -> "Iterator[_Uvicorn]":
        self._socket = place.bound()
        try:
            self.connections = Connections(self._service.limits)
            config = self._config(app, self.connections)
            self._uvicorn = _Uvicorn(config, self._service, self._socket)
            yield self._uvicorn
        finally:
            self._socket.close()

    def _app(self, place: "_Place") -> ASGIApp:
        app = make_app(self._service, console=self._console)
        self._refuse_open(place.address[0], app.state.accounts.is_open)
        return app

    def stop(self) -> None:
        """Has it stop, from any thread."""
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True

    def _refuse_open(self, host: str, is_open: bool) -> None:
        if is_open and not is_loopback(host):
            raise ServiceError(
                f"without a token, everybody who reaches {host} could do anything\n"
                f"  hint: make a token first: ensue token {self._service.path} --user NAME; "
                "or listen on 127.0.0.1"
            )

    def _config(self, app: ASGIApp, connections: Connections) -> uvicorn.Config:
        more: dict[str, Any] = dict(self._tls)
        return uvicorn.Config(
            _with_transports(app),
            http=protocol_of(connections),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=self._access_log,
            server_header=False,
            proxy_headers=bool(self._proxies),
            forwarded_allow_ips=self._proxies or None,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=PATIENCE,
            **more,
        )


class _Uvicorn(uvicorn.Server):
    """Uvicorn that ends streams first, and leaves signals alone once it is over."""

    def __init__(self, config: uvicorn.Config, service: Service, place: socket.socket) -> None:
        super().__init__(config)
        self._service = service
        self.socket = place
        self.told: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.told()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._service.runs:
            self._service.listeners.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals while it runs. Not raised again: whoever runs it closes the service."""
        with _handled(self.handle_exit):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            _leave(sig, frame)
        _LOG.info("stopping; once more to leave at once")
        self.should_exit = True


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Has signals handled for a while, if this is the thread that gets them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _leave(sig: int, _: FrameType | None) -> None:
    """Leaves at once. What was answered is on disk."""
    os._exit(128 + sig)


class _Entry:
    """The app of a service, as soon as it has started."""

    app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.app is not None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            healthy = scope["path"] == "/health"
            answer = JSONResponse(
                {"state": "starting"},
                status_code=200 if healthy else 503,
                headers=None if healthy else {"Retry-After": "1"},
            )
            await answer(scope, receive, send)


def _with_transports(app: ASGIApp) -> ASGIApp:
    """Tells streams what they run on: a client that does not read can only be dropped there."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        scope[TRANSPORT] = getattr(cycle, "transport", None)
        await app(scope, receive, send)

    return run


@dataclass(frozen=True, slots=True)
class _Place:
    """An address to listen on."""

    family: int
    address: tuple[Any, ...]

    def bound(self) -> socket.socket:
        found = socket.socket(self.family, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(self.address)
        except OSError as error:
            found.close()
            raise _no_place(self.address[0], self.address[1], error) from None
        return found


def _place(host: str, port: int) -> _Place:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _no_place(host, port, error) from None
    return _Place(found[0][0], found[0][4])


def _no_place(host: str, port: int, error: OSError) -> ServiceError:
    return ServiceError(
        f"{host}:{port} cannot be listened on: {error.strerror or error}\n"
        "  hint: another port, as in --port 8766"
    )


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The quickest event loop that is there."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
