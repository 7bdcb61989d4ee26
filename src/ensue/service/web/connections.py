"""Connections that cost the server little: deadlines for requests, and a bound on their number.

Uvicorn waits for ever for the rest of a request that has begun, and takes connections until the
process has no more file descriptors.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ensue.service.listening import STALLED
from ensue.service.settings import Limits
from ensue.service.web.problems import Problem

_LOG = logging.getLogger(__name__)
_HEAD = 64 << 10  # bytes of a request beside its body, at the most
_PER_BODY_BYTE = 8  # bytes beside the body for each byte of it: of chunks of a few bytes
_LEAST_RATE = 500  # bytes of a body in a second, at the least
_SPARE = 256  # file descriptors for files, webhooks and brokers
_FEWEST = 16


def raise_file_limit() -> None:
    """Lets this process open as many files and sockets as its user may."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
        if soft != resource.RLIM_INFINITY and soft < wanted:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            except (OSError, ValueError) as error:
                _LOG.warning("the limit of open files stays at %d: %s", soft, error)


def most_connections(limits: Limits) -> int:
    """How many connections the limits and the operating system allow."""
    if sys.platform != "win32":
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return max(_FEWEST, min(limits.http_connections, soft - _SPARE))
    return limits.http_connections


class Connections:
    """The connections of a server, and which of them wait for a request, by client."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.most = most_connections(limits)
        self.closed = 0  # connections that were closed because there were too many
        self._count = 0
        self._waiting: dict[str, dict[BoundedProtocol, None]] = {}  # the oldest first

    def open(self, protocol: "BoundedProtocol") -> bool:
        """One more connection; False: there is no room for it.

        Of too many, the oldest without a request is closed, of the client that has most of them.
        So a client that opens connections and says nothing takes room from itself.
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
        """A connection waits for a request, or for the rest of it."""
        self._waiting.setdefault(protocol.address, {})[protocol] = None

    def work(self, protocol: "BoundedProtocol") -> None:
        """A connection has its request."""
        of_client = self._waiting.get(protocol.address, {})
        of_client.pop(protocol, None)
        if not of_client:
            self._waiting.pop(protocol.address, None)

    def close(self, protocol: "BoundedProtocol") -> None:
        """A connection is closed."""
        self._count -= 1
        self.work(protocol)


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 of Uvicorn, with deadlines for the head and the body of a request."""

    pool: Connections  # of the server

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.address = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._asked = False  # there was a request: `cycle` is the last one
        self._in_body = False  # the head of the request is there
        self._body_bytes = 0  # that have come since the deadline was set
        self._head_bytes = 0  # of this request that are not of its body

    # ---------------------------------------------------------------------------- connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if self.pool.open(self):
            self._expect(self.pool.limits.header_seconds, self._head_late)
        else:
            said = "there are too many connections\n  hint: send it again later"
            headers = {"retry-after": "5"}
            self._refuse(Problem(503, "connections", "Too many connections", said, {}, headers))

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self.resume_writing()
        self.pool.close(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Closes a connection without a word: nothing whole was asked."""
        self._expect_nothing()
        self.pool.work(self)
        self.transport.abort()

    # ---------------------------------------------------------------------------- requests

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _HEAD and not self.transport.is_closing():
            said = f"the head of a request has at most {_HEAD:,} bytes"
            self._refuse(Problem(431, "head", "The head is too large", said))

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
        self._asked = True

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._head_bytes -= (1 + _PER_BODY_BYTE) * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._expect_nothing()
        self._head_bytes = 0
        self.pool.work(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.pool.wait(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALLED, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    # ---------------------------------------------------------------------------- deadlines

    def _expect(self, seconds: float, late: Callable[[], None]) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(seconds, late)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_late(self) -> None:
        seconds = self.pool.limits.header_seconds
        if self._at_work:  # the request before is still being answered
            self._expect(seconds, self._head_late)
        elif not self._head_bytes:
            self.drop()
        else:
            said = f"the head of a request did not come within {seconds:g} seconds"
            self._refuse(Problem(408, "late", "The request came too slowly", said))

    def _body_late(self) -> None:
        seconds = self.pool.limits.body_seconds
        if self.flow.read_paused or self._body_bytes >= _LEAST_RATE * seconds:
            self._body_bytes = 0  # it comes, or it is us who do not read it
            self._expect(seconds, self._body_late)
            return
        said = (
            f"less than {_LEAST_RATE} bytes a second came of the body, for {seconds:g} seconds\n"
            "  hint: send it again"
        )
        self._refuse(Problem(408, "late", "The request came too slowly", said))

    @property
    def _at_work(self) -> bool:
        return self._asked and not self.cycle.response_complete

    def _refuse(self, problem: Problem) -> None:
        """Answers in place of the application, unless it has begun to, and hangs up."""
        self._expect_nothing()
        answering = self._in_body or self._at_work
        if not (answering and self.cycle.response_started):
            response = problem.response()
            head = f"HTTP/1.1 {problem.status} {problem.title}\r\nconnection: close\r\n"
            lines = b"".join(b"%b: %b\r\n" % pair for pair in response.raw_headers)
            self.transport.write(head.encode() + lines + b"\r\n" + bytes(response.body))
        if self._asked:
            self.cycle.disconnected = True
        self.transport.close()


def protocol_of(connections: Connections) -> type[BoundedProtocol]:
    """The protocol of a server's connections: Uvicorn makes one object for each."""

    class Protocol(BoundedProtocol):
        pool = connections

    return Protocol
