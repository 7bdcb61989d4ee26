"""The HTTP server of a service: Uvicorn with a graceful shutdown."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ensue.errors import ServiceError
from ensue.service.service import Service
from ensue.service.web.app import Console, make_app
from ensue.service.web.connections import HttpConnections, create_protocol, raise_file_limit
from ensue.service.web.guard import is_loopback
from ensue.service.web.sse import TRANSPORT

_LOG = logging.getLogger(__name__)
PORT = 8765
SHUTDOWN_SECONDS = 15  # seconds for requests to finish at shutdown
_SOON = 0.5  # seconds after which a slow start is reported over HTTP
_BACKLOG = 4_096  # pending connections
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class HttpServer:
    """Runs a service until `stop` or a signal.

    Without tokens it listens on this machine only. The first Ctrl-C or SIGTERM stops accepting
    connections, ends streams with a last frame, lets requests finish and closes the service; the
    second exits immediately, which the database survives like a crash.
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
        proxies: Sequence[str] = (),  # trusted for X-Forwarded headers
        access_log: bool = False,
    ) -> None:
        self._service = service
        self._host, self._port = host, port
        self._console = console
        self._tls: dict[str, Any] = {"ssl_certfile": certificate, "ssl_keyfile": key} if certificate else {}
        self._proxies = list(proxies)
        self._access_log = access_log
        self._uvicorn: _Uvicorn | None = None
        self.connections: HttpConnections | None = None  # while it serves
        self._socket: socket.socket | None = None

    @property
    def address(self) -> str:
        """The URL it listens on."""
        host, port = self._host, self._port
        if self._socket is not None:
            host, port = self._socket.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{name}:{port}"

    def run(
        self, started: Callable[[str], None] | None = None, prepared: Callable[[Service], Awaitable[None]] | None = None
    ) -> None:
        """Starts the service and serves it; returns when both have stopped.

        `prepared` is called with the started service, before requests are accepted. During a slow
        start /health reports it, and all other requests are answered with 503.
        """
        raise_file_limit()
        with asyncio.Runner(loop_factory=get_loop_factory()) as runner:
            runner.run(self._run(started, prepared))

    async def _run(
        self, started: Callable[[str], None] | None, prepared: Callable[[Service], Awaitable[None]] | None
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
            with _handle_signals(_leave):
                await self._service.close()

    async def _start(self, prepared: Callable[[Service], Awaitable[None]] | None) -> None:
        await self._service.start()
        if prepared is not None:
            await prepared(self._service)

    async def serve(self, started: Callable[[str], None] | None = None) -> None:
        """Serves a running service; `started` is called with the address."""
        family, address = _resolve(self._host, self._port)
        with self._listening(family, address, self._app(address)) as server:
            server.on_started = lambda: started(self.address) if started is not None else None
            await server.serve([server.socket])

    async def _serve_from_now(self, starting: "asyncio.Task[None]", started: Callable[[str], None] | None) -> None:
        """Serves a service that is still starting."""
        family, address = _resolve(self._host, self._port)
        entry = _Entry()
        with self._listening(family, address, entry) as server:
            serving = asyncio.create_task(server.serve([server.socket]))
            try:
                await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():  # otherwise it was stopped before
                    starting.result()
                    entry.app = self._app(address)
                    if started is not None:
                        started(self.address)
                    await serving
            finally:
                server.should_exit = True
                await serving

    @contextlib.contextmanager
    def _listening(self, family: int, address: tuple[Any, ...], app: ASGIApp) -> "Iterator[_Uvicorn]":
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self._socket.bind(address)
            except OSError as error:
                raise _bind_error(address[0], address[1], error) from None
            self.connections = HttpConnections(self._service.limits)
            config = self._config(app, self.connections)
            self._uvicorn = _Uvicorn(config, self._service, self._socket)
            yield self._uvicorn
        finally:
            self._socket.close()

    def _app(self, address: tuple[Any, ...]) -> ASGIApp:
        app = make_app(self._service, console=self._console)
        if app.state.accounts.is_open and not is_loopback(address[0]):
            raise ServiceError(
                f"without a token, everybody who reaches {address[0]} has full access\n"
                f"  hint: create a token first: ensue token {self._service.path} --user NAME; "
                "or listen on 127.0.0.1"
            )
        return app

    def stop(self) -> None:
        """Stops the server, from any thread."""
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True

    def _config(self, app: ASGIApp, connections: HttpConnections) -> uvicorn.Config:
        return uvicorn.Config(
            _with_transports(app),
            http=create_protocol(connections),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=self._access_log,
            server_header=False,
            proxy_headers=bool(self._proxies),
            forwarded_allow_ips=self._proxies or None,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            **self._tls,
        )


class _Uvicorn(uvicorn.Server):
    """Uvicorn that closes streams first, and does not re-raise signals."""

    def __init__(self, config: uvicorn.Config, service: Service, listening: socket.socket) -> None:
        super().__init__(config)
        self._service = service
        self.socket = listening
        self.on_started: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._service.runs:
            self._service.listeners.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals without raising them again: the caller closes the service."""
        with _handle_signals(self.handle_exit):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            _leave(sig, frame)
        _LOG.info("stopping; repeat the signal to exit immediately")
        self.should_exit = True


@contextlib.contextmanager
def _handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Installs signal handlers temporarily, in the main thread only."""
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
    """Exits immediately; answered requests are committed."""
    os._exit(128 + sig)


class _Entry:
    """Answers requests until the service has started."""

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
    """Gives streams access to their transport, by which unresponsive clients are disconnected."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        scope[TRANSPORT] = getattr(cycle, "transport", None)
        await app(scope, receive, send)

    return run


def _resolve(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    """Returns the family and the address to listen on."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _bind_error(host, port, error) from None
    return infos[0][0], infos[0][4]


def _bind_error(host: str, port: int, error: OSError) -> ServiceError:
    return ServiceError(
        f"cannot listen on {host}:{port}: {error.strerror or error}\n  hint: use another port, as in --port 8766"
    )


def get_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns uvloop's factory if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
