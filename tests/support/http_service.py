"""A service over HTTP with some people in it: in this process, or behind a real port."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI

from ensue.service.service import Service
from ensue.service.store import user_store as users
from ensue.service.store.user_store import SCOPES
from ensue.service.web.app import make_app
from ensue.service.web.server import HttpServer
from support.services import service

API = "/api/v1"
HOST = "http://127.0.0.1:8765"


@dataclass(slots=True)
class Person:
    """A user with a token of all scopes but admin, and ways to ask."""

    id: int
    name: str
    token: str
    token_id: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Web:
    """A service, its application, and people."""

    service: Service
    app: FastAPI
    client: httpx2.AsyncClient
    people: dict[str, Person]

    async def ask(self, who: str | None, method: str, path: str, **more: Any) -> httpx2.Response:
        """Asks as one of the people, or as nobody."""
        headers = {**(self.people[who].headers if who else {}), **more.pop("headers", {})}
        return await self.client.request(method, where(path), headers=headers, **more)

    async def token(self, who: str, *scopes: str, **more: Any) -> users.IssuedToken:
        """One more token of somebody."""
        id = self.people[who].id
        return await self.service.do(lambda db: users.add_token(db, id, scopes=scopes, **more))


def where(path: str) -> str:
    """The whole path; # marks those that are outside of the API."""
    if path.endswith("#"):
        return path[:-1]
    return path if path.startswith("/api") else API + path


PEOPLE = {"ann": ("read", "subscribe", "publish"), "bob": ("read", "subscribe", "publish"), "root": SCOPES}


async def settle(s: Service) -> dict[str, Person]:
    """Makes the people."""

    def make(db: Any) -> dict[str, Person]:
        found = {}
        for name, scopes in PEOPLE.items():
            known = users.find_user(db, name)
            id = users.add_user(db, name) if known is None else known["id"]
            made = users.add_token(db, id, scopes=scopes)
            bearer = {"authorization": f"Bearer {made.token}"}
            found[name] = Person(id, name, made.token, made.id, bearer)
        return found

    return await s.do(make)


@asynccontextmanager
async def web(path: Path, *, people: bool = True, **more: Any) -> AsyncIterator[Web]:
    """A service in this process, asked without a network."""
    async with service(path / "service.db", **more) as s:
        found = await settle(s) if people else {}
        app = make_app(s)
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 50_000))
        async with httpx2.AsyncClient(transport=transport, base_url=HOST) as client:
            yield Web(s, app, client, found)


# -------------------------------------------------------------------------------- a real port


class Served:
    """A service behind a port of this machine, run by a thread of its own."""

    def __init__(self, s: Service, people: bool) -> None:
        self.service = s
        self.server = HttpServer(s, port=0)
        self.people: dict[str, Person] = {}
        self._people = people
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="served", daemon=True)

    def start(self) -> "Served":
        self._thread.start()
        assert self._ready.wait(60), "the server does not start"
        if self._failed is not None:
            raise self._failed
        return self

    def stop(self) -> None:
        """Has it stop, and waits for that; once more is no matter."""
        self.server.stop()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the server does not stop"
        if self._failed is not None:
            raise self._failed

    def do(self, work: Any) -> Any:
        """Runs a coroutine in the server's loop, and gives what it gives."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    @property
    def address(self) -> str:
        return self.server.address

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to the thread of the test
            self._failed = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self.service as s:
            if self._people:
                self.people = await settle(s)
            await self.server.serve(lambda _: self._ready.set())


@contextmanager
def served(path: Path, *, people: bool = True, **more: Any) -> Iterator[Served]:
    """A service behind a port, and its end."""
    found = Served(service(path / "service.db", **more), people).start()
    try:
        yield found
    finally:
        found.stop()


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event."""

    id: int | None
    event: str | None
    data: str | None


class Listening:
    """Reads server-sent events as a browser does."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.last_id: int | None = None
        self.comments: list[str] = []
        self.retry: int | None = None

    async def next(self) -> Event:
        """The next event that has data; StopAsyncIteration when the stream ends."""
        id: int | None = None
        event: str | None = None
        data: list[str] = []
        while True:
            line = await anext(self._lines)
            if line.startswith(":"):
                self.comments.append(line[1:].strip())
            elif line:
                name, _, value = line.partition(": ")
                if name == "id":
                    id = self.last_id = int(value)
                elif name == "event":
                    event = value
                elif name == "data":
                    data.append(value)
                elif name == "retry":
                    self.retry = int(value)
            elif data:
                return Event(id, event, "\n".join(data))

    async def to_the_end(self) -> list[Event]:
        """All events up to the end of the stream."""
        found = []
        while True:
            try:
                found.append(await self.next())
            except StopAsyncIteration:
                return found


@asynccontextmanager
async def listening(address: str, person: Person, after: int | None = None, **params: Any) -> AsyncIterator[Listening]:
    """Listens to a real server."""
    headers = dict(person.headers)
    if after is not None:
        headers["last-event-id"] = str(after)
    async with (
        httpx2.AsyncClient(base_url=address, timeout=30.0) as client,
        client.stream("GET", f"{API}/notifications/stream", headers=headers, params=params) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Listening(answer.aiter_lines())
