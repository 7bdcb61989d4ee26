"""The server: where it listens, and how it stops."""

import asyncio
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from ensue.errors import ServiceError
from ensue.service.settings import ServiceLimits
from ensue.service.store import user_store
from ensue.service.store.database import Database
from ensue.service.web import server
from ensue.service.web.server import HttpServer
from support.http_service import API, served
from support.services import HERE, point, run, service

TESTS = Path(__file__).resolve().parents[1]
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from support.services import service
from ensue.service.web.server import HttpServer
HttpServer(service(sys.argv[2]), port=0).run(lambda address: print(address, flush=True))
print("closed", flush=True)
"""


# -------------------------------------------------------------------------------- where


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_without_a_token_it_listens_on_this_machine_only(tmp_path, host: str):
    async def story():
        async with service(tmp_path / "a.db") as s:
            with pytest.raises(ServiceError, match=r"hint: create a token first: ensue token"):
                await HttpServer(s, host=host, port=0).serve()

    run(story)


def test_a_port_that_is_taken_is_told(tmp_path):
    async def story():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            async with service(tmp_path / "a.db") as s:
                with pytest.raises(ServiceError, match=f"cannot listen on .*{port}(.|\n)*hint"):
                    await HttpServer(s, port=port).serve()

    run(story)


def test_a_name_that_leads_nowhere_is_told(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            with pytest.raises(ServiceError, match="cannot listen on"):
                await HttpServer(s, host="nowhere.invalid", port=0).serve()

    run(story)


def test_it_says_where_it_listens(tmp_path):
    with served(tmp_path, people=False) as s:
        assert s.address.startswith("http://127.0.0.1:")
        assert httpx2.get(f"{s.address}/health").json() == {"state": "running"}


def test_it_answers_while_it_starts(tmp_path):
    """Whatever takes long to load: who asks is told that it starts, and then gets answers."""
    told: list[str] = []

    async def story():
        may_go_on, s = asyncio.Event(), service(tmp_path / "a.db")

        async def prepared(_: object) -> None:
            await may_go_on.wait()

        one = HttpServer(s, port=0)
        running = asyncio.create_task(one._run(told.append, prepared))
        async with httpx2.AsyncClient() as client:
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


def test_a_service_that_cannot_start_says_why(tmp_path):
    async def prepared(_: object) -> None:
        raise ServiceError("no way")

    with pytest.raises(ServiceError, match="no way"):
        HttpServer(service(tmp_path / "a.db"), port=0).run(prepared=prepared)


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
            answer = httpx2.post(f"{s.address}{API}/events", content=endless(), headers=headers)
        except httpx2.WriteError:  # it has hung up while we were still sending
            pass
        else:
            assert (answer.status_code, answer.json()["limit"]) == (413, "body_bytes")
        assert sent < 50_000_000
        assert httpx2.get(f"{s.address}/health").status_code == 200


# -------------------------------------------------------------------------------- slow clients


HALF = b"POST /api/v1/events HTTP/1.1\r\nhost: localhost\r\n"


def opened(s, said: bytes = b"") -> socket.socket:
    """A connection on which something was said."""
    host, _, port = s.address.removeprefix("http://").partition(":")
    found = socket.create_connection((host, int(port)), timeout=30)
    found.sendall(said)
    return found


def heard(connection: socket.socket) -> bytes:
    """All that is answered, until the server hangs up."""
    said = b""
    with connection:
        try:
            while piece := connection.recv(65_536):
                said += piece
        except ConnectionResetError:
            pass
    return said


def test_half_open_connections_make_room_for_others(tmp_path):
    with served(tmp_path, limits={"http_connections": 40}) as s:
        held = [opened(s, HALF if n % 2 else b"") for n in range(300)]
        assert httpx2.get(f"{s.address}/health").json() == {"state": "running"}
        assert s.server.connections.closed >= 260
        assert heard(held[0]) == b""  # the oldest went first
        held[-1].sendall(b"content-length: 0\r\nconnection: close\r\n\r\n")
        assert heard(held[-1]).startswith(b"HTTP/1.1 401 ")
        for one in held:
            one.close()


def test_connections_with_a_request_are_not_closed_for_others(tmp_path):
    with served(tmp_path, limits={"http_connections": 16}) as s:
        bearer = f"authorization: {s.people['ann'].headers['authorization']}\r\n\r\n".encode()
        stream = b"GET /api/v1/notifications/stream HTTP/1.1\r\nhost: localhost\r\n" + bearer
        streams = [opened(s, stream) for _ in range(16)]
        assert all(one.recv(12) == b"HTTP/1.1 200" for one in streams)
        refused = heard(opened(s))
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"application/problem+json" in refused
        streams.pop().close()
        for _ in range(100):
            if (answer := heard(opened(s, b"GET /health HTTP/1.0\r\n\r\n")))[9:12] == b"200":
                break
            time.sleep(0.02)  # until it knows that one has gone
        assert b"running" in answer
        for one in streams:
            one.close()


UNFINISHED = [
    (b"", b""),
    (HALF, b"408"),
    (HALF + b"content-length: 10\r\n\r\n{", b"408"),
    (HALF + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n", b"408"),
    (HALF + b"x: " + b"y" * 70_000, b"431"),
    (HALF + b"transfer-encoding: chunked\r\n\r\n0\r\nx: " + b"y" * 70_000, b"431"),
]


def test_a_request_that_does_not_arrive_ends(tmp_path):
    with served(tmp_path, limits={"header_seconds": 0.3, "body_seconds": 0.3}) as s:
        bearer = f"authorization: {s.people['ann'].headers['authorization']}\r\n".encode()
        for said, status in UNFINISHED:
            answer = heard(opened(s, said.replace(b"host:", bearer + b"host:")))
            assert answer[9:12] == status, said[:100]
            assert answer.count(b"HTTP/1.1") == bool(status)
            body = answer.partition(b"\r\n\r\n")[2]
            assert not status or json.loads(body)["status"] == int(status)
        assert httpx2.get(f"{s.address}/health").status_code == 200


def test_a_body_that_arrives_steadily_has_time(tmp_path):
    with served(tmp_path, limits={"body_seconds": 1.0}) as s:

        def slow() -> Iterator[bytes]:
            for n in range(12):
                yield json.dumps(point(n, 1, 0.0)).encode() + b"\n" + b" " * 500
                time.sleep(0.15)

        headers = {**s.people["ann"].headers, "content-type": "application/x-ndjson"}
        answer = httpx2.post(f"{s.address}{API}/events", content=slow(), headers=headers)
        assert answer.json()["accepted"] == 12


def test_a_kept_connection_waits_for_its_next_request(tmp_path):
    with served(tmp_path, limits={"header_seconds": 0.2}) as s:
        host, _, port = s.address.removeprefix("http://").partition(":")
        kept = http.client.HTTPConnection(host, int(port), timeout=30)
        for _ in range(2):
            kept.request("GET", "/health")
            assert kept.getresponse().read() == b'{"state":"running"}'
            time.sleep(0.4)
        assert kept.sock is not None
        kept.sock.sendall(b"GET /health HTTP/1.1\r\n")
        assert heard(kept.sock).startswith(b"HTTP/1.1 408")


def test_a_client_that_leaves_amid_its_request_is_no_failure(tmp_path, caplog):
    with served(tmp_path) as s:
        bearer = f"authorization: {s.people['ann'].headers['authorization']}\r\n".encode()
        one = opened(s, HALF + bearer + b"content-length: 10\r\n\r\n{")
        assert httpx2.get(f"{s.address}/health").status_code == 200
        one.close()
        assert httpx2.get(f"{s.address}/health").status_code == 200
    assert "request failed" not in caplog.text


def test_a_server_raises_its_limit_of_open_files(monkeypatch):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = [(512, before[1])]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, to: limits.append(to))
    assert server.compute_max_connections(ServiceLimits()) == 256
    server.raise_file_limit()
    assert limits[-1][0] == min(before[1], limits[-1][0]) > 512
    assert server.compute_max_connections(ServiceLimits(http_connections=300)) == 300


# -------------------------------------------------------------------------------- stopping


@contextmanager
def process(path: Path) -> Iterator[tuple[subprocess.Popen[str], str, dict[str, str]]]:
    """A server in a process of its own, where it is, and a token."""
    database = Database(path, synchronous="NORMAL")
    database.submit(lambda db: user_store.add_user(db, "ann")).result()
    token = database.submit(lambda db: user_store.add_token(db, "ann", label="first")).result().token
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


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_streams_finishes_requests_and_closes_the_service(tmp_path, number):
    path = tmp_path / "a.db"
    body = json.dumps([point(1, 1, 0.0)]).encode()
    with process(path) as (running, address, headers):
        httpx2.post(f"{address}{API}/subscriptions", json={"text": HERE.format(id=1)}, headers=headers)
        with (
            begun(address, headers, body) as request,
            httpx2.Client(base_url=address, timeout=30) as client,
            client.stream("GET", f"{API}/notifications/stream", headers=headers) as stream,
        ):
            lines = stream.iter_lines()
            assert next(lines).startswith("retry:")
            running.send_signal(number)
            assert list(lines)[-2:] == [": the service is shutting down", ""]
            with pytest.raises(httpx2.HTTPError):
                httpx2.get(f"{address}/health")  # it takes no more
            request.sendall(body[-1:])
            answer = b"".join(iter(lambda: request.recv(1 << 16), b""))
            assert answer.startswith(b"HTTP/1.1 200")
            assert b'"accepted":1' in answer
        assert running.wait(30) == 0
        assert running.stdout.read() == "closed\n"
    with sqlite3.connect(path) as db:
        kinds = [row[0] for row in db.execute("SELECT kind FROM outbox ORDER BY number")]
    assert kinds == ["started", "match"]


@pytest.mark.slow
def test_the_second_signal_leaves_at_once_and_loses_nothing(tmp_path):
    path = tmp_path / "a.db"
    with process(path) as (running, address, headers):
        done = httpx2.post(f"{address}{API}/events", json=[point(1, 1, 0.0)], headers=headers).json()
        assert done["accepted"] == 1
        with begun(address, headers, b"[]"):
            running.send_signal(signal.SIGINT)
            while True:  # until the first has arrived
                try:
                    httpx2.get(f"{address}/health")
                except httpx2.HTTPError:
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
