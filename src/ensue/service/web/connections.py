"""Limits for HTTP connections: deadlines for requests, and a maximum number.

Uvicorn waits forever for the rest of a request, and accepts connections until the process has no
more file descriptors.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ensue.service.settings import ServiceLimits
from ensue.service.sse_hub import STALL_SECONDS
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
        """Unregisters a connection."""
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


def create_protocol(connections: HttpConnections) -> type[BoundedProtocol]:
    """Creates the protocol class of a server, of which Uvicorn makes an object per connection."""

    class Protocol(BoundedProtocol):
        pool = connections

    return Protocol
