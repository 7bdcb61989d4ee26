"""The HTTP server of a service: Uvicorn with a graceful shutdown and limits for connections.

Uvicorn waits forever for the rest of a request, and accepts connections until the process has no
more file descriptors. So requests have deadlines here, and connections a maximum number.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ensue.errors import ServiceError
from ensue.service.service import Service
from ensue.service.settings import ServiceLimits
from ensue.service.sse_hub import STALL_SECONDS
from ensue.service.web.app import Console, make_app
from ensue.service.web.event_routes import TRANSPORT
from ensue.service.web.guard import is_loopback
from ensue.service.web.problem_details import Problem

_LOG = logging.getLogger(__name__)
_HEAD = 64 << 10  # maximum bytes of a request without its body
_PER_BODY_BYTE = 8  # overhead bytes allowed per body byte, for small chunks
_LEAST_RATE = 500  # minimum bytes of a body per second
_SPARE = 256  # file descriptors for files, webhooks and brokers
_FEWEST = 16


def raise_file_limit() -> None:
    """Raises the limit of open files to the maximum for the user."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = 65_536 if hard == resource.RLIM_INFINITY else hard
        if soft != resource.RLIM_INFINITY and soft < limit:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            except (OSError, ValueError) as error:
                _LOG.warning("the limit of open files stays at %d: %s", soft, error)


def compute_max_connections(limits: ServiceLimits) -> int:
    """The number of connections that the limits and the operating system allow."""
    if sys.platform != "win32":
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return max(_FEWEST, min(limits.http_connections, soft - _SPARE))
    return limits.http_connections


class HttpConnections:
    """The connections of a server, and those that wait for a request, by client."""

    def __init__(self, limits: ServiceLimits) -> None:
        self.limits = limits
        self.most = compute_max_connections(limits)
        self.closed = 0  # connections closed because there were too many
        self._count = 0
        self._waiting: dict[str, dict[BoundedProtocol, None]] = {}  # oldest first

    def open(self, protocol: "BoundedProtocol") -> bool:
        """Registers a connection; returns False if there is no capacity.

        Above the limit, the oldest idle connection of the client with most of them is closed. So a
        client that opens idle connections displaces its own.
        """
        self._count += 1
        if self._count > self.most:
            self.closed += 1
            greediest = max(self._waiting.values(), key=len, default=None)
            if greediest is None:
                return False
            next(iter(greediest)).drop()
        self.wait(protocol)
        return True

    def wait(self, protocol: "BoundedProtocol") -> None:
        """Marks a connection as waiting for a request, or for the rest of it."""
        self._waiting.setdefault(protocol.address, {})[protocol] = None

    def mark_active(self, protocol: "BoundedProtocol") -> None:
        """Marks a connection as processing its request."""
        of_client = self._waiting.get(protocol.address, {})
        of_client.pop(protocol, None)
        if not of_client:
            self._waiting.pop(protocol.address, None)

    def close(self, protocol: "BoundedProtocol") -> None:
        self._count -= 1
        self.mark_active(protocol)


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1 protocol with deadlines for the head and the body of a request."""

    pool: HttpConnections  # of the server

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.address = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._requested = False  # there was a request: `cycle` is the last one
        self._in_body = False  # the head is complete
        self._body_bytes = 0  # received since the deadline was set
        self._head_bytes = 0  # of this request, without its body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if self.pool.open(self):
            self._expect(self.pool.limits.header_seconds, self._head_late)
        else:
            detail = "there are too many connections\n  hint: try again later"
            headers = {"retry-after": "5"}
            self._refuse(Problem(503, "connections", "Too many connections", detail, {}, headers))

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self.resume_writing()
        self.pool.close(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Closes a connection that has no complete request."""
        self._expect_nothing()
        self.pool.mark_active(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _HEAD and not self.transport.is_closing():
            detail = f"the head of a request has at most {_HEAD:,} bytes"
            self._refuse(Problem(431, "head", "The head is too large", detail))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast(dict[str, Any], self.scope)[TRANSPORT] = self.transport  # by which streams disconnect
        self._in_body = False
        self.pool.wait(self)
        if self._deadline is None:
            self._expect(self.pool.limits.header_seconds, self._head_late)

    def on_headers_complete(self) -> None:
        self._in_body, self._body_bytes = True, 0
        self._expect(self.pool.limits.body_seconds, self._body_late)
        super().on_headers_complete()
        self._requested = True

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._head_bytes -= (1 + _PER_BODY_BYTE) * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._expect_nothing()
        self._head_bytes = 0
        self.pool.mark_active(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.pool.wait(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _expect(self, seconds: float, late: Callable[[], None]) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(seconds, late)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_late(self) -> None:
        seconds = self.pool.limits.header_seconds
        if self._is_answering:  # the previous request is still being answered
            self._expect(seconds, self._head_late)
        elif not self._head_bytes:
            self.drop()
        else:
            detail = f"the head of a request was not complete after {seconds:g} seconds"
            self._refuse(Problem(408, "late", "The request is too slow", detail))

    def _body_late(self) -> None:
        seconds = self.pool.limits.body_seconds
        if self.flow.read_paused or self._body_bytes >= _LEAST_RATE * seconds:
            self._body_bytes = 0  # it arrives, or we do not read
            self._expect(seconds, self._body_late)
            return
        detail = f"the body arrived with less than {_LEAST_RATE} bytes/s for {seconds:g} seconds\n  hint: send it again"
        self._refuse(Problem(408, "late", "The request is too slow", detail))

    @property
    def _is_answering(self) -> bool:
        return self._requested and not self.cycle.response_complete

    def _refuse(self, problem: Problem) -> None:
        """Answers in place of the application, if it has not started to, and disconnects."""
        self._expect_nothing()
        answering = self._in_body or self._is_answering
        if not (answering and self.cycle.response_started):
            response = problem.response()
            head = f"HTTP/1.1 {problem.status} {problem.title}\r\nconnection: close\r\n"
            lines = b"".join(b"%b: %b\r\n" % pair for pair in response.raw_headers)
            self.transport.write(head.encode() + lines + b"\r\n" + bytes(response.body))
        if self._requested:
            self.cycle.disconnected = True
        self.transport.close()


PORT = 8765
SHUTDOWN_SECONDS = 15  # seconds for requests to finish at shutdown
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
            await self._serve(starting, started)
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
        await self._serve(asyncio.create_task(asyncio.sleep(0)), started)

    async def _serve(self, starting: "asyncio.Task[None]", started: Callable[[str], None] | None) -> None:
        """Accepts connections from now on, while the service is still starting."""
        family, address = _resolve(self._host, self._port)
        entry = _Entry(self._app(address) if self._service.runs else None)
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self._socket.bind(address)
                self._socket.listen(_BACKLOG)
            except OSError as error:
                raise _bind_error(address[0], address[1], error) from None
            self.connections = HttpConnections(self._service.limits)
            server = self._uvicorn = _Uvicorn(self._config(entry, self.connections), self._service)
            serving = asyncio.create_task(server.serve([self._socket]))
            try:
                await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():  # otherwise it was stopped before
                    starting.result()
                    entry.app = entry.app or self._app(address)
                    if started is not None:
                        started(self.address)
                    await serving
            finally:
                server.should_exit = True
                await serving
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
            app,
            http=type("Protocol", (BoundedProtocol,), {"pool": connections}),  # one object per connection
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

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

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

    def __init__(self, app: ASGIApp | None) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.app is not None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            status, headers = (200, None) if scope["path"] == "/health" else (503, {"Retry-After": "1"})
            await JSONResponse({"state": "starting"}, status, headers)(scope, receive, send)


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
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
