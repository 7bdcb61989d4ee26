"""Server-sent events through a real server: nothing missing, nothing twice."""

import asyncio
import json
import socket
import time

import httpx2
import pytest

from ensue.service.store import outbox
from support.http_service import API, Listening, Served, listening, served
from support.services import HERE, point, run


def subscribed(s: Served, who: str = "ann", id: int = 1) -> int:
    made = s.do(s.service.subscribe(HERE.format(id=id), user=s.people[who].id))
    return made.id


def publish(s: Served, first: int, last: int, id: int = 1) -> None:
    """Events of these times, each of which completes a match."""
    s.do(s.service.publish([point(t, id, 0.0) for t in range(first, last + 1)]))


async def times(stream: Listening, count: int) -> list[int]:
    """The times of the next matches."""
    found: list[int] = []
    while len(found) < count:
        event = await stream.next()
        if event.event == "match":
            found.append(json.loads(event.data)["end"])
    return found


def test_notes_come_as_they_are_made(tmp_path):
    with served(tmp_path) as s:
        id = subscribed(s)

        async def story():
            async with listening(s.address, s.people["ann"], after=0) as stream:
                started = await stream.next()
                assert (started.event, json.loads(started.data)["subscription"]) == ("started", id)
                await asyncio.to_thread(publish, s, 1, 3)
                assert await times(stream, 3) == [1, 2, 3]
                assert stream.last_id == 4
                assert 1_000 <= stream.retry <= 5_000

        run(story)


def test_without_a_token_there_is_one_before_the_first_note(tmp_path):
    with served(tmp_path) as s:
        subscribed(s)
        publish(s, 1, 5)

        async def story():
            async with listening(s.address, s.people["ann"]) as stream:
                taking = asyncio.create_task(times(stream, 1))
                while stream.last_id is None:
                    await asyncio.sleep(0.01)
                assert stream.comments == []  # it was there before any sign of life
                token = stream.last_id
                taking.cancel()
            await asyncio.to_thread(publish, s, 6, 8)  # nobody listens
            async with listening(s.address, s.people["ann"], after=token) as stream:
                assert await times(stream, 3) == [6, 7, 8]

        run(story)


def test_a_client_that_comes_and_goes_misses_nothing_and_gets_nothing_twice(tmp_path):
    total = 400

    with served(tmp_path) as s:
        subscribed(s)

        async def publishing():
            for t in range(1, total + 1, 4):
                work = s.service.publish([point(t + k, 1, 0.0) for k in range(4)])
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, s._loop))

        async def story():
            writing = asyncio.create_task(publishing())
            seen: list[int] = []
            token, visits = 0, 0
            while len(seen) < total:
                visits += 1
                stay = 7 + (visits * 13) % 40
                async with listening(s.address, s.people["ann"], after=token) as stream:
                    seen += await times(stream, min(stay, total - len(seen)))
                    token = stream.last_id
            await writing
            assert seen == list(range(1, total + 1))
            assert visits > 5

        run(story, 120)


def test_many_clients_get_the_same(tmp_path):
    with served(tmp_path, limits={"connections_per_user": 50}) as s:
        subscribed(s)

        async def one(place: int) -> list[int]:
            async with listening(s.address, s.people["ann"], after=0) as stream:
                return await times(stream, 100)

        async def story():
            readers = [asyncio.create_task(one(n)) for n in range(20)]
            for t in range(1, 101, 10):
                await asyncio.to_thread(publish, s, t, t + 9)
            assert await asyncio.gather(*readers) == [list(range(1, 101))] * 20

        run(story, 120)


def test_a_stream_is_of_ones_own_notes_or_of_one_subscription(tmp_path):
    with served(tmp_path) as s:
        first, second = subscribed(s, id=1), subscribed(s, id=2)
        theirs = subscribed(s, "bob", id=1)

        async def story():
            ann, bob = s.people["ann"], s.people["bob"]
            await asyncio.to_thread(publish, s, 1, 1, 1)
            await asyncio.to_thread(publish, s, 2, 2, 2)
            await asyncio.to_thread(publish, s, 3, 3, 1)
            for person, params, wanted in (
                (ann, {}, {first, second}),
                (ann, {"subscription": second}, {second}),
                (bob, {}, {theirs}),
            ):
                async with listening(s.address, person, after=0, **params) as stream:
                    count = {2: 5, 1: 2}[len(wanted)] if person is ann else 3
                    events = [await stream.next() for _ in range(count)]
                    assert {json.loads(one.data)["subscription"] for one in events} == wanted
            async with httpx2.AsyncClient(base_url=s.address) as client:
                path = f"{API}/notifications/stream"
                foreign = await client.get(path, headers=bob.headers, params={"subscription": first})
                assert foreign.status_code == 404
                for params in ({"after": "x"}, {"subscription": "1.5"}, {"after": "-1"}):
                    odd = await client.get(path, headers=bob.headers, params=params)
                    assert odd.status_code == 422, odd.text
                assert (await client.get(path)).status_code == 401

        run(story)


def test_a_token_from_before_retention_gets_one_resync(tmp_path):
    with served(tmp_path) as s:
        subscribed(s)
        publish(s, 1, 5)
        s.do(s.service.do(lambda db: outbox.prune_notifications(db, time.time() + 1)))
        publish(s, 6, 7)

        async def story():
            for token in (1, 3, 10_000):
                async with listening(s.address, s.people["ann"], after=token) as stream:
                    told = await stream.next()
                    assert (told.event, told.id) == ("resync", 6)
                    assert await times(stream, 2) == [6, 7]
            async with listening(s.address, s.people["ann"], after=6) as stream:
                assert (await stream.next()).event == "match"

        run(story)


def test_a_user_has_so_many_connections(tmp_path):
    with served(tmp_path, limits={"connections_per_user": 1}) as s:

        async def story():
            ann = s.people["ann"]
            async with listening(s.address, ann), httpx2.AsyncClient(base_url=s.address) as client:
                refused = await client.get(f"{API}/notifications/stream", headers=ann.headers)
                assert refused.status_code == 429
                assert refused.json()["limit"] == "connections_per_user"
                assert int(refused.headers["retry-after"]) > 0
                me = await client.get(f"{API}/me", headers=ann.headers)
                assert me.json()["used"]["connections"] == 1
            for _ in range(200):
                if s.service.listeners.connections(ann.id) == 0:
                    break
                await asyncio.sleep(0.02)
            async with listening(s.address, ann):
                pass

        run(story)


def test_a_stream_ends_when_its_token_is_revoked(tmp_path):
    with served(tmp_path) as s:
        s.service.listeners.standing = None  # nobody looks now and then: it is cut at once

        async def story():
            ann, root = s.people["ann"], s.people["root"]
            async with listening(s.address, ann) as stream, httpx2.AsyncClient(base_url=s.address) as client:
                path = f"{API}/tokens/{ann.token_id}"
                assert (await client.delete(path, headers=root.headers)).status_code == 204
                assert await stream.to_the_end() == []
                assert "revoked" in stream.comments[-1]

        run(story)


# -------------------------------------------------------------------------------- slow clients


def connected(s: Served, after: int = 0) -> socket.socket:
    """A client with a small buffer that has asked for the stream and reads nothing."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    host, port = s.address.removeprefix("http://").split(":")
    found.connect((host, int(port)))
    head = (
        f"GET {API}/notifications/stream?after={after} HTTP/1.1\r\nhost: {host}:{port}\r\n"
        f"authorization: Bearer {s.people['ann'].token}\r\n\r\n"
    )
    found.sendall(head.encode())
    return found


def until(true, what: str) -> None:
    """Waits for something that has to come."""
    for _ in range(3_000):
        if true():
            return
        time.sleep(0.01)
    pytest.fail(f"it did not come about: {what}")


def test_a_client_that_does_not_read_is_cut_and_comes_back(tmp_path):
    with served(tmp_path, limits={"buffer": 20}) as s:
        id = subscribed(s)
        listeners = s.service.listeners
        client = connected(s)
        until(lambda: any(one.live for one in listeners), "the client listens")
        wide = "x" * 20_000  # frames that fill buffers of the system quickly

        async def fill(count: int) -> int:
            def add(db):
                body = b'{"kind":"match","subscription":%d,"wide":"%b"}' % (id, wide.encode())
                rows = [
                    (id, s.people["ann"].id, "match", f"m{outbox.get_newest_number(db)}-{n}", 1.0, body)
                    for n in range(count)
                ]
                return outbox.add_notifications(db, rows)

            notes = await s.service.do(add)
            listeners.dispatch(notes)
            return notes[-1].number

        last = 0
        while listeners.count:
            last = s.do(fill(5))
            assert last < 50_000, "it is never cut"
        assert listeners.slow == 1
        # The connection is gone, not only forgotten: what the client still reads ends.
        received = b""
        client.settimeout(30)
        try:
            while piece := client.recv(1 << 20):
                received += piece
        except ConnectionResetError:
            pass
        client.close()
        whole = received.rpartition(b"\n\n")[0]
        token = max(int(line[4:]) for line in whole.split(b"\n") if line.startswith(b"id: "))
        assert 0 < token < last

        async def story():
            async with listening(s.address, s.people["ann"], after=token) as stream:
                found = []
                while not found or found[-1] < last:
                    found.append((await stream.next()).id)
                assert found == list(range(token + 1, last + 1))

        run(story, 120)


# -------------------------------------------------------------------------------- the end


def test_streams_end_cleanly_when_the_service_stops(tmp_path):
    with served(tmp_path) as s:
        subscribed(s)

        async def story():
            async with listening(s.address, s.people["ann"], after=0) as stream:
                assert (await stream.next()).event == "started"
                stopping = asyncio.create_task(asyncio.to_thread(s.stop))
                assert await stream.to_the_end() == []
                assert stream.comments[-1] == "the service is shutting down"
                await stopping

        run(story)
