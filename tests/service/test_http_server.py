"""The server: where it listens, and how it stops."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ensue.errors import ServiceError
from ensue.service import access
from ensue.service.database import Database
from ensue.service.web import server
from ensue.service.web.server import Server
from support.http_service import API, served
from support.services import HERE, point, run, service

TESTS = Path(__file__).resolve().parents[1]
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from support.services import service
from ensue.service.web.server import Server
Server(service(sys.argv[2]), port=0).run(lambda address: print(address, flush=True))
print("closed", flush=True)
"""


# -------------------------------------------------------------------------------- where


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_without_a_token_it_listens_on_this_machine_only(tmp_path, host: str):
    async def story():
        async with service(tmp_path / "a.db") as s:
            with pytest.raises(ServiceError, match=r"hint: make a token first: ensue token"):
                await Server(s, host=host, port=0).serve()

    run(story)


def test_a_port_that_is_taken_is_told(tmp_path):
    async def story():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            async with service(tmp_path / "a.db") as s:
                with pytest.raises(ServiceError, match=f"{port} cannot be listened on(.|\n)*hint"):
                    await Server(s, port=port).serve()

    run(story)


def test_a_name_that_leads_nowhere_is_told(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            with pytest.raises(ServiceError, match="cannot be listened on"):
                await Server(s, host="nowhere.invalid", port=0).serve()

    run(story)


def test_it_says_where_it_listens(tmp_path):
    with served(tmp_path, people=False) as s:
        assert s.address.startswith("http://127.0.0.1:")
        assert httpx.get(f"{s.address}/health").json() == {"state": "running"}


def test_it_answers_while_it_starts(tmp_path, monkeypatch):
    """Whatever takes long to load: who asks is told that it starts, and then gets answers."""
    monkeypatch.setattr(server, "_SOON", 0.0)
    told: list[str] = []

    async def story():
        may_go_on, s = asyncio.Event(), service(tmp_path / "a.db")

        async def prepared(_: object) -> None:
            await may_go_on.wait()

        one = Server(s, port=0)
        running = asyncio.create_task(one._run(told.append, prepared))
        async with httpx.AsyncClient() as client:
            while one._uvicorn is None or not one._uvicorn.started:
                await asyncio.sleep(0.01)
            early = await client.get(f"{one.address}/health")
            assert (early.status_code, early.json()) == (200, {"state": "starting"})
            other = await client.get(f"{one.address}{API}/subscriptions")
            assert (other.status_code, other.headers["Retry-After"]) == (503, "1")
            assert not told
            may_go_on.set()
            while not told:
                await asyncio.sleep(0.01)
            assert told == [one.address]
            assert (await client.get(f"{one.address}/health")).json() == {"state": "running"}
        one.stop()
        await running

    asyncio.run(story())


@pytest.mark.parametrize("soon", [0.0, 60.0])
def test_a_service_that_cannot_start_says_why(tmp_path, monkeypatch, soon: float):
    monkeypatch.setattr(server, "_SOON", soon)

    async def prepared(_: object) -> None:
        raise ServiceError("no way")

    with pytest.raises(ServiceError, match="no way"):
        Server(service(tmp_path / "a.db"), port=0).run(prepared=prepared)


def test_what_is_sent_in_pieces_is_bounded_by_a_real_server_too(tmp_path):
    with served(tmp_path, limits={"body_bytes": 100_000}) as s:
        sent = 0

        def endless() -> Iterator[bytes]:
            nonlocal sent
            for _ in range(10_000):
                sent += 10_000
                yield b" " * 10_000

        headers = s.people["ann"].headers
        try:
            answer = httpx.post(f"{s.address}{API}/events", content=endless(), headers=headers)
        except httpx.WriteError:  # it has hung up while we were still sending
            pass
        else:
            assert (answer.status_code, answer.json()["limit"]) == (413, "body_bytes")
        assert sent < 50_000_000
        assert httpx.get(f"{s.address}/health").status_code == 200


# -------------------------------------------------------------------------------- stopping


@contextmanager
def process(path: Path) -> Iterator[tuple[subprocess.Popen[str], str, dict[str, str]]]:
    """A server in a process of its own, where it is, and a token."""
    database = Database(path, synchronous="NORMAL")
    token = access.first_steps(database, "ann").token
    database.close()
    running = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(TESTS), str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    try:
        assert running.stdout is not None
        address = running.stdout.readline().strip()
        assert address, "the server does not start"
        yield running, address, {"authorization": f"Bearer {token}"}
    finally:
        running.kill()
        running.communicate()


def begun(address: str, headers: dict[str, str], body: bytes) -> socket.socket:
    """A request of which one byte is still missing."""
    host, port = address.removeprefix("http://").split(":")
    found = socket.create_connection((host, int(port)), timeout=30)
    head = (
        f"POST {API}/events HTTP/1.1\r\nhost: {host}:{port}\r\n"
        f"authorization: {headers['authorization']}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    found.sendall(head.encode() + body[:-1])
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_streams_finishes_requests_and_closes_the_service(tmp_path, number):
    path = tmp_path / "a.db"
    body = json.dumps([point(1, 1, 0.0)]).encode()
    with process(path) as (running, address, headers):
        httpx.post(
            f"{address}{API}/subscriptions", json={"text": HERE.format(id=1)}, headers=headers
        )
        with (
            begun(address, headers, body) as request,
            httpx.Client(base_url=address, timeout=30) as client,
            client.stream("GET", f"{API}/notifications/stream", headers=headers) as stream,
        ):
            lines = stream.iter_lines()
            assert next(lines).startswith("retry:")
            running.send_signal(number)
            assert list(lines)[-2:] == [": the service stops", ""]
            with pytest.raises(httpx.HTTPError):
                httpx.get(f"{address}/health")  # it takes no more
            request.sendall(body[-1:])
            answer = b"".join(iter(lambda: request.recv(1 << 16), b""))
            assert answer.startswith(b"HTTP/1.1 200")
            assert b'"accepted":1' in answer
        assert running.wait(30) == 0
        assert running.stdout.read() == "closed\n"
    with sqlite3.connect(path) as db:
        kinds = [row[0] for row in db.execute("SELECT kind FROM outbox ORDER BY number")]
    assert kinds == ["started", "match"]


def test_the_second_signal_leaves_at_once_and_loses_nothing(tmp_path):
    path = tmp_path / "a.db"
    with process(path) as (running, address, headers):
        done = httpx.post(
            f"{address}{API}/events", json=[point(1, 1, 0.0)], headers=headers
        ).json()
        assert done["accepted"] == 1
        with begun(address, headers, b"[]"):
            running.send_signal(signal.SIGINT)
            while True:  # until the first has arrived
                try:
                    httpx.get(f"{address}/health")
                except httpx.HTTPError:
                    break
            running.send_signal(signal.SIGINT)
            assert running.wait(30) == 128 + signal.SIGINT

    async def story():
        async with service(path) as s:
            assert (await s.health())["events"] == 1

    run(story)


def test_it_can_be_stopped_from_a_program_and_started_again(tmp_path):
    for turn in range(2):
        with served(tmp_path) as s:
            made = s.do(s.service.subscribe(HERE.format(id=turn), user=s.people["ann"].id))
            assert made.id == turn + 1
