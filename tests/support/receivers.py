"""A small HTTP server on loopback that behaves as badly as it is told to."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType

from standardwebhooks import Webhook


@dataclass(frozen=True)
class Request:
    """What came."""

    path: str
    headers: dict[str, str]
    body: bytes
    connection: int  # the how manyth of the server

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def is_signed_with(self, secret: str) -> bool:
        """Whether a signature is the secret's, however old it is."""
        signed_at = datetime.fromtimestamp(int(self.headers["webhook-timestamp"]), UTC)
        expected = Webhook(secret).sign(self.id, signed_at, self.body.decode())
        return expected in self.headers["webhook-signature"].split(" ")


@dataclass(frozen=True)
class Reply:
    """What is answered. `how`: whole, hang (never), cut (closes without an answer), half (closes
    within the answer), stuck (never ends the body)."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    how: str = "whole"


class Receiver:
    """Takes requests; `answer` says what becomes of each."""

    def __init__(
        self,
        answer: Callable[[Request], Reply] = lambda request: Reply(),
        *,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.taken: list[str] = []  # ids of requests that were answered 2xx
        self.at_once = 0  # the most requests that were open together
        self.gate: asyncio.Event | None = None  # answers wait for it
        self.arrived = asyncio.Condition()
        self._open = 0
        self._connections = 0
        self._tls, self._port = tls, port
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Receiver":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        return [request.id for request in self.requests]

    @property
    def connections(self) -> int:
        return self._connections

    async def hang_up(self) -> None:
        """Closes the connections that are open."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def until(self, number: int) -> None:
        """Returns once so many requests have come."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= number)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        connection = self._connections
        try:
            while await self._one(reader, writer, connection):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the sender has left, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(head[0].split(" ")[1], headers, body, connection)
        self._open += 1
        self.at_once = max(self.at_once, self._open)
        try:
            async with self.arrived:
                self.requests.append(request)
                self.arrived.notify_all()
            if self.gate is not None:
                await self.gate.wait()
            return await self._reply(self.answer(request), request, writer)
        finally:
            self._open -= 1

    async def _reply(self, reply: Reply, request: Request, writer: asyncio.StreamWriter) -> bool:
        if reply.how == "hang":
            await asyncio.Event().wait()
        if reply.how == "cut":
            return False
        if 200 <= reply.status < 300:
            self.taken.append(request.id)
        lines = [f"HTTP/1.1 {reply.status} Whatever"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        lines += [f"content-length: {len(reply.body)}", "", ""]
        head = "\r\n".join(lines).encode()
        if reply.how == "half":
            writer.write(head[: len(head) // 2])
            await writer.drain()
            return False
        if reply.how == "stuck":
            writer.write(head + reply.body[:-1])
            await writer.drain()
            await asyncio.Event().wait()
        writer.write(head + reply.body)
        await writer.drain()
        return True
