"""Very many clients that listen for server-sent events: the other end of `benchmarks.service.sse`.

`python -m benchmarks.service.sse_load URL` reads tokens from its standard input, one a line, and
opens a connection for each. When its input ends it prints, as JSON, how many notifications came
by each connection, how many ids did not grow, and how many connections ended by themselves. It
needs nothing of Ensue, so it measures the bytes that any client would see.
"""

import argparse
import asyncio
import json
import re
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_EVENT = re.compile(rb"id: (\d+)\nevent: match\n")
_AT_ONCE = 200  # connections that are opened at a time


@dataclass(slots=True, eq=False)
class Client(asyncio.Protocol):
    """One connection. Frames may be cut anywhere, so the end of each piece is looked at again."""

    request: bytes
    heard: asyncio.Future[None]  # the answer has begun
    received: int = 0
    last: int = 0
    disorder: int = 0
    status: bytes = b""
    ended: bool = False
    rest: bytes = b""
    transport: Any = None  # uvloop's are no asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if not self.status:
            self.status = data[9:12]
            if not self.heard.done():
                self.heard.set_result(None)
        data = self.rest + data
        end = 0
        for found in _EVENT.finditer(data):
            number = int(found[1])
            self.received += 1
            self.disorder += number <= self.last
            self.last, end = number, found.end()
        self.rest = data[max(end, len(data) - 64) :]

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        if not self.heard.done():
            self.heard.set_result(None)


async def opened(host: str, port: int, path: str, token: str) -> Client:
    """Connects and waits for the first bytes."""
    loop = asyncio.get_running_loop()
    head = f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {token}\r\n\r\n"
    client = Client(head.encode(), loop.create_future())
    await loop.create_connection(lambda: client, host, port)
    await client.heard
    return client


async def listened(url: str, tokens: list[str], until: asyncio.Future[None]) -> dict[str, object]:
    """Opens all connections, waits, and says what came."""
    found = urlsplit(url)
    host, port = found.hostname or "127.0.0.1", found.port or 80
    clients: list[Client] = []
    for first in range(0, len(tokens), _AT_ONCE):
        some = tokens[first : first + _AT_ONCE]
        clients += await asyncio.gather(*(opened(host, port, found.path, t) for t in some))
    await until
    report = {
        "refused": sum(client.status != b"200" for client in clients),
        "received": [client.received for client in clients],
        "disorder": sum(client.disorder for client in clients),
        "ended": sum(client.ended for client in clients),
    }
    for client in clients:
        if client.transport is not None:
            client.transport.abort()
    return report


async def main() -> None:
    """Reads tokens up to an empty line, listens up to the end of the input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    url = parser.parse_args().url
    tokens = [line.strip() for line in iter(sys.stdin.readline, "\n")]
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    loop.run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: over.set_result(None))
    print(json.dumps(await listened(url, tokens, over)), flush=True)


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())
