"""Limits over HTTP, each with its own problem; and events and regions as they come in."""

import asyncio
import gzip
import io
import json
import zlib

import numpy as np
import pyarrow as pa
import pytest

from ensue.service.sources.source import Message, build_batch
from ensue.service.web.guard import MAX_PER_USER, MAX_RUNNING
from ensue.service.web.problem_details import PROBLEM_MEDIA
from support.http_service import Web, web
from support.services import HERE, point, run

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
LINES = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}


def over(answer, status: int, limit: str) -> None:
    """The answer is the problem of this limit."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM_MEDIA
    found = answer.json()
    assert (found["type"], found["limit"]) == ("urn:ensue:over-limit", limit)
    assert found["detail"]
    assert ("retry-after" in answer.headers) == (status == 429)


async def give(w: Web, who: str, **quotas: float) -> None:
    path = f"/users/{w.people[who].id}"
    answer = await w.ask("root", "PATCH", path, json={"quotas": quotas})
    assert answer.status_code == 200, answer.text


# -------------------------------------------------------------------------------- bodies


async def pieces(total: int, size: int = 1_000):
    for first in range(0, total, size):
        yield b" " * min(size, total - first)


@pytest.mark.parametrize("path", ["/events", "/check", "/subscriptions", "/regions/import"])
def test_a_body_that_is_too_large_is_refused(tmp_path, path: str):
    async def story():
        async with web(tmp_path, limits={"body_bytes": 5_000}) as w:
            whole = await w.ask("ann", "POST", path, content=b" " * 5_001)
            over(whole, 413, "body_bytes")
            assert whole.headers["connection"] == "close"
            chunked = await w.ask("ann", "POST", path, content=pieces(5_001))
            over(chunked, 413, "body_bytes")
            fits = await w.ask("ann", "POST", path, content=pieces(5_000))
            assert fits.status_code in (200, 400, 422)

    run(story)


def test_a_body_is_not_read_beyond_the_limit(tmp_path):
    async def story():
        async with web(tmp_path, limits={"body_bytes": 5_000}) as w:
            sent = 0

            async def endless():
                nonlocal sent
                while True:
                    sent += 1_000
                    yield b" " * 1_000

            over(await w.ask("ann", "POST", "/events", content=endless()), 413, "body_bytes")
            assert sent <= 7_000

    run(story)


def test_who_is_not_known_cannot_send_much(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            for path in ("/sign-in#", "/elsewhere#"):
                answer = await w.ask(None, "POST", path, content=b"x" * (65 << 10))
                over(answer, 413, "body_bytes")

    run(story)


def test_a_user_may_have_another_limit(tmp_path):
    async def story():
        async with web(tmp_path, limits={"body_bytes": 5_000}) as w:
            await give(w, "ann", body_bytes=100)
            await give(w, "bob", body_bytes=10_000)
            body = b"\n" * 6_000
            over(await w.ask("ann", "POST", "/events", content=b"\n" * 101), 413, "body_bytes")
            taken = await w.ask("bob", "POST", "/events", content=body, headers=LINES)
            assert taken.status_code == 200

    run(story)


# -------------------------------------------------------------------------------- quotas


def test_there_are_so_many_events_in_a_request(tmp_path):
    async def story():
        async with web(tmp_path, limits={"events_per_request": 5}) as w:
            six = [point(n, 1, 0.0) for n in range(6)]
            over(await w.ask("ann", "POST", "/events", json=six), 413, "events_per_request")
            assert (await w.ask("ann", "POST", "/events", json=six[:5])).status_code == 200
            await give(w, "ann", events_per_request=2)
            over(await w.ask("ann", "POST", "/events", json=six[:3]), 413, "events_per_request")
            lines = "\n".join(map(json.dumps, six[:3]))
            refused = await w.ask("ann", "POST", "/events", content=lines, headers=LINES)
            over(refused, 413, "events_per_request")
            assert (await w.ask("bob", "POST", "/events", json=six[:3])).status_code == 200

    run(story)


def test_there_are_so_many_subscriptions_of_a_user(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            await give(w, "ann", subscriptions_per_user=2)
            body = {"text": HERE.format(id=1)}
            made = [await w.ask("ann", "POST", "/subscriptions", json=body) for _ in range(3)]
            assert [one.status_code for one in made] == [201, 201, 403]
            over(made[-1], 403, "subscriptions_per_user")
            assert (await w.ask("bob", "POST", "/subscriptions", json=body)).status_code == 201
            await w.ask("ann", "DELETE", f"/subscriptions/{made[0].json()['id']}")
            assert (await w.ask("ann", "POST", "/subscriptions", json=body)).status_code == 201
            me = (await w.ask("ann", "GET", "/me")).json()
            assert (me["used"]["subscriptions"], me["quotas"]["subscriptions_per_user"]) == (2, 2)

    run(story)


def test_there_are_so_many_corners_of_a_user(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            await give(w, "ann", corners_per_user=9)
            square = "POLYGON (({0} 0, {1} 0, {1} 1, {0} 1, {0} 0))"
            for name, status in (("A", 201), ("B", 201), ("C", 403)):
                body = {"name": name, "text": square.format(0, 1)}
                answer = await w.ask("ann", "POST", "/regions", json=body)
                assert answer.status_code == status
            over(answer, 403, "corners_per_user")
            kept = [one["name"] for one in (await w.ask("ann", "GET", "/regions")).json()["items"]]
            assert kept == ["A", "B", "Depot"]
            body = {
                "text": "@(X)(ARITH:id = 1) || @(Y)(ARITH:id = 2)",
                "regions": {"X": square.format(0, 1), "Y": square.format(2, 3)},
            }
            over(await w.ask("ann", "POST", "/subscriptions", json=body), 403, "corners_per_user")

    run(story)


def test_there_are_so_many_targets_of_a_subscription(tmp_path):
    async def story():
        limits = {"targets_per_subscription": 1, "allow": ["127.0.0.0/8"]}
        async with web(tmp_path, limits=limits) as w:
            made = await w.ask("ann", "POST", "/subscriptions", json={"text": HERE.format(id=1)})
            path = f"/subscriptions/{made.json()['id']}/targets"
            hook = {"kind": "webhook", "config": {"url": "http://127.0.0.1:9/x"}}
            assert (await w.ask("ann", "POST", path, json=hook)).status_code == 201
            refused = await w.ask("ann", "POST", path, json=hook)
            over(refused, 403, "targets_per_subscription")

    run(story)


def test_a_token_has_an_age(tmp_path):
    async def story():
        async with web(tmp_path, limits={"token_age": 1_000.0}) as w:
            path = f"/users/{w.people['ann'].id}/tokens"
            late = await w.ask("root", "POST", path, json={"scopes": ["read"], "expires": 1_001})
            assert late.status_code == 422
            assert "token_age" in late.json()["hint"]
            past = {"scopes": ["read"], "expires": "2020-01-01T00:00:00Z"}
            assert (await w.ask("root", "POST", path, json=past)).status_code == 422
            made = await w.ask("root", "POST", path, json={"scopes": ["read"], "expires": 999})
            assert made.status_code == 201

    run(story)


def test_requests_with_events_that_wait_are_counted(tmp_path):
    async def story():
        async with web(tmp_path, limits={"waiting": 2}) as w:
            go_on = asyncio.Event()

            async def slow():
                yield json.dumps(point(1, 1, 0.0)).encode()
                await go_on.wait()

            held = [
                asyncio.create_task(w.ask("ann", "POST", "/events", content=slow(), headers=LINES)) for _ in range(2)
            ]
            await asyncio.sleep(0.1)
            over(await w.ask("bob", "POST", "/events", json=[point(2, 1, 0.0)]), 429, "waiting")
            go_on.set()
            assert [one.status_code for one in await asyncio.gather(*held)] == [200, 200]
            assert (await w.ask("bob", "POST", "/events", json=[])).status_code == 200

    run(story)


def test_questions_about_stored_events_wait_their_turn(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            go_on, running = asyncio.Event(), 0

            async def slow(*_: object, **__: object) -> list[object]:
                nonlocal running
                running += 1
                await go_on.wait()
                return []

            w.service.track = slow  # type: ignore[method-assign,assignment]
            asked = [asyncio.create_task(w.ask("ann", "GET", "/objects/1/track")) for _ in range(MAX_PER_USER)]
            await asyncio.sleep(0.1)
            assert running == MAX_RUNNING
            over(await w.ask("ann", "GET", "/objects/1/track"), 429, "turns")
            theirs = asyncio.create_task(w.ask("bob", "GET", "/objects/1/track"))
            assert (await w.ask("ann", "GET", "/me")).status_code == 200
            go_on.set()
            assert {one.status_code for one in await asyncio.gather(*asked, theirs)} == {200}

    run(story)


# -------------------------------------------------------------------------------- decoded bodies


def zeros(count: int, **options) -> bytes:
    """A stream of as many points, all alike: a few kilobytes once it is compressed."""
    columns = {"t": "int64", "id": "int64", "x": "double", "y": "double"}
    batch = {name: pa.array(np.zeros(count), kind) for name, kind in columns.items()}
    return stream(pa.record_batch(batch), **options)


def stream(*batches: pa.RecordBatch, compression: str | None = "zstd") -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def test_arrow_is_refused_by_what_it_declares_before_it_is_decoded(tmp_path, monkeypatch):
    decoded = []
    monkeypatch.setattr(pa.ipc, "open_stream", lambda data: decoded.append(data))
    limits = {"body_bytes": 50_000, "events_per_request": 1_000_000}

    async def story():
        async with web(tmp_path, limits=limits) as w:
            large = [
                zeros(100_000, compression="zstd"),
                zeros(100_000, compression="lz4"),
                stream(*[pa.record_batch({"t": [0] * 1_000})] * 10),  # large together
                stream(pa.record_batch({"type": pa.array(["x" * 60_000]).dictionary_encode()})),
                stream(pa.record_batch({"t": pa.array([[{"a": [0] * 10_000}]])})),  # nested
            ]
            for body in large:
                assert len(body) < 20_000
                answer = await w.ask("ann", "POST", "/events", content=body, headers=ARROW)
                over(answer, 413, "body_bytes")
                assert "the decoded events" in answer.json()["detail"]
            assert not decoded

    run(story)


def test_arrow_is_refused_by_its_rows_though_they_take_no_bytes(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            nothing = pa.Array.from_buffers(pa.null(), 1 << 30, [None])
            body = stream(pa.record_batch({"t": nothing}))
            assert len(build_batch([Message(body, 1)]).sequences) == 1  # nor by a broker's message
            answer = await w.ask("ann", "POST", "/events", content=body, headers=ARROW)
            over(answer, 413, "events_per_request")

    run(story)


def encoded(kind: str, count: int) -> pa.Array:
    """One long string as often as asked for, written once."""
    text = pa.array(["x" * 20_000])
    if kind == "dictionary":
        return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int8()), text)
    if kind == "view":
        view = text.cast(pa.string_view())
        buffers = view.buffers()
        repeated = pa.py_buffer(buffers[1].to_pybytes() * count)
        return pa.Array.from_buffers(view.type, count, [None, repeated, *buffers[2:]])
    return pa.RunEndEncodedArray.from_arrays(pa.array([count], pa.int32()), text)


@pytest.mark.parametrize("kind", ["dictionary", "view", "run ends"])
def test_a_string_that_arrow_writes_once_counts_as_often_as_it_occurs(tmp_path, kind: str):
    columns = {"t": "int64", "name": "string"}

    def events(count: int) -> bytes:
        named = encoded(kind, count)
        return stream(pa.record_batch({"t": pa.array(range(count)), "name": named}))

    async def story():
        more = {"schema": columns, "location": None, "key": None, "regions": None}
        async with web(tmp_path, **more, limits={"body_bytes": 100_000}) as w:
            few = await w.ask("ann", "POST", "/events", content=events(3), headers=ARROW)
            many = await w.ask("ann", "POST", "/events", content=events(30), headers=ARROW)
            if kind == "run ends":
                assert "run-end encoded" in few.json()["detail"]
                assert many.status_code == 422
            else:
                assert few.json()["accepted"] == 3, few.text
                over(many, 413, "body_bytes")

    run(story)


def test_a_damaged_arrow_stream_is_no_failure_of_the_service(tmp_path):
    body = zeros(100, compression="lz4")
    assert len(body) < 3_000

    async def story():
        async with web(tmp_path) as w:
            taken = await w.ask("ann", "POST", "/events", content=body, headers=ARROW)
            assert taken.json()["accepted"] == 100
            for place in range(0, len(body), 7):
                broken = body[:place] + bytes([body[place] ^ 0xFF]) + body[place + 1 :]
                answer = await w.ask("ann", "POST", "/events", content=broken, headers=ARROW)
                assert answer.status_code in (200, 413, 422), answer.text

    run(story)


GZIP = {"content-encoding": "gzip"}


def test_bodies_may_be_compressed(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            lines = f"{json.dumps(point(1, 1, 0.0))}\n{json.dumps(point(2, 1, 0.0))}\n".encode()
            several = gzip.compress(lines[:20]) + gzip.compress(lines[20:])
            for body, kind in (
                (gzip.compress(lines), LINES),
                (several, LINES),
                (gzip.compress(json.dumps([point(n, 1, 0.0) for n in (3, 4)]).encode()), JSON),
                (gzip.compress(arrow(point(5, 1, 0.0), point(6, 1, 0.0))), ARROW),
            ):
                headers = {**kind, **GZIP}
                answer = await w.ask("ann", "POST", "/events", content=body, headers=headers)
                found = answer.json()
                assert found.get("accepted", 0) + found.get("late", 0) == 2, answer.text
            form = gzip.compress(json.dumps({"text": HERE.format(id=1)}).encode())
            headers = {**JSON, **GZIP}
            made = await w.ask("ann", "POST", "/subscriptions", content=form, headers=headers)
            assert made.status_code == 201, made.text

            async def by_byte():
                for place in range(len(several)):
                    yield several[place : place + 1]

            headers = {**LINES, **GZIP}
            cut = await w.ask("ann", "POST", "/events", content=by_byte(), headers=headers)
            assert cut.json()["late"] == 2

    run(story)


def test_a_compressed_body_is_decompressed_as_far_as_may_be(tmp_path, monkeypatch):
    handed: list[int] = []
    real = zlib.decompressobj

    class Counting:
        def __init__(self, *given):
            self._real = real(*given)

        def decompress(self, data, most):
            found = self._real.decompress(data, most)
            handed.append(len(found))
            return found

        def __getattr__(self, name):
            return getattr(self._real, name)

    async def story():
        async with web(tmp_path, limits={"body_bytes": 1_000_000}) as w:
            monkeypatch.setattr(zlib, "decompressobj", Counting)
            body = gzip.compress(b"\n" * 100_000_000)
            assert len(body) < 200_000
            answer = await w.ask("ann", "POST", "/events", content=body, headers={**LINES, **GZIP})
            over(answer, 413, "body_bytes")
            assert sum(handed) < 1_500_000
            fits = gzip.compress(b"\n" * 1_000_000)
            answer = await w.ask("ann", "POST", "/events", content=fits, headers={**LINES, **GZIP})
            assert answer.status_code == 200

    run(story)


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("br", b"x", 415),
        ("gzip, gzip", gzip.compress(gzip.compress(b"{}")), 415),
        ("gzip", b"{}", 400),
        ("gzip", gzip.compress(b"{}")[:-9], 400),
        ("gzip", gzip.compress(b"{}") + b"rest", 400),
        ("gzip", b"", 400),
        ("identity", b"{}", 200),
    ],
)
def test_bodies_in_other_encodings_are_refused(tmp_path, encoding, body, status):
    async def story():
        async with web(tmp_path) as w:
            headers = {**LINES, "content-encoding": encoding}
            answer = await w.ask("ann", "POST", "/events", content=body, headers=headers)
            assert answer.status_code == status, answer.text
            if status != 200:
                assert answer.headers["content-type"] == PROBLEM_MEDIA
            if status == 415:
                assert answer.headers["accept-encoding"] == "gzip, identity"
                assert "hint" in answer.json()

    run(story)


# -------------------------------------------------------------------------------- events


def arrow(*points: dict) -> bytes:
    table = pa.Table.from_pylist(list(points))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_events_come_as_lines_as_json_and_as_arrow(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            await w.ask("ann", "POST", "/subscriptions", json={"text": HERE.format(id=1)})
            lines = f"{json.dumps(point(1, 1, 0.0))}\n\n{json.dumps(point(2, 1, 0.0))}\n"
            asked = [
                await w.ask("ann", "POST", "/events", content=lines, headers=LINES),
                await w.ask("ann", "POST", "/events", json=point(3, 1, 0.0)),
                await w.ask("ann", "POST", "/events", json=[point(4, 1, 0.0)]),
                await w.ask("ann", "POST", "/events", content=arrow(point(5, 1, 0.0)), headers=ARROW),
            ]
            assert [one.json()["accepted"] for one in asked] == [2, 1, 1, 1]
            notes = (await w.ask("ann", "GET", "/notifications")).json()["items"]
            assert [one["end"] for one in notes if one["kind"] == "match"] == [1, 2, 3, 4, 5]

    run(story)


def test_what_cannot_be_read_as_events_is_refused(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            for content, headers in (
                (b"x", {"content-type": "text/csv"}),
                (b"x", {"content-type": "text/plain"}),
                (b"[1", {"content-type": "application/json"}),
                (b"nonsense", ARROW),
                (b"", ARROW),
                (arrow(point(1, 1, 0.0))[:-20], ARROW),
            ):
                answer = await w.ask("ann", "POST", "/events", content=content, headers=headers)
                assert answer.status_code == 422, (content, answer.text)
                assert answer.json()["type"] == "urn:ensue:events"
            for headers in (
                {"producer": "a"},
                {"sequence": "1"},
                {"producer": "a", "sequence": "-1"},
                {"producer": "a", "sequence": "x"},
            ):
                answer = await w.ask("ann", "POST", "/events", json=[point(1, 1, 0.0)], headers=headers)
                assert answer.status_code == 422, headers

    run(story)


def test_bad_events_are_put_aside_and_shown(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            lines = "\n".join(["{nonsense", "7", '{"t": "x", "id": 1}', json.dumps(point(1, 1, 0))])
            sent = {**LINES, "producer": "gps", "sequence": "10"}
            done = (await w.ask("ann", "POST", "/events", content=lines, headers=sent)).json()
            assert (done["accepted"], done["bad"]) == (1, 3)
            page = (await w.ask("ann", "GET", "/events/bad?limit=2")).json()
            rest = (await w.ask("ann", "GET", f"/events/bad?before={page['next']}")).json()
            bad = page["items"] + rest["items"]
            assert [one["producer"] for one in bad] == ["gps"] * 3
            assert all(one["reason"] and one["event"] for one in bad)
            again = (await w.ask("ann", "POST", "/events", content=lines, headers=sent)).json()
            assert (again["repeated"], again["bad"]) == (4, 0)

    run(story)


# -------------------------------------------------------------------------------- regions


def test_regions_come_as_texts_and_as_geojson(tmp_path):
    ring = [[0, 0], [4, 0], [4, 4], [0, 0]]
    polygon = {"type": "Polygon", "coordinates": [ring]}

    async def story():
        async with web(tmp_path) as w:
            first = await w.ask("ann", "POST", "/regions", json={"name": "A", "geojson": polygon})
            assert first.status_code == 201
            found = first.json()
            assert found["text"] == "POLYGON ((0 0, 4 0, 4 4, 0 0))"
            assert (found["corners"], found["radius"], found["shared"]) == (3, None, False)
            assert found["geometry"] == {"type": "Polygon", "coordinates": [ring]}
            feature = {"type": "Feature", "properties": {}, "geometry": polygon}
            body = {"name": "B", "geojson": feature}
            assert (await w.ask("ann", "POST", "/regions", json=body)).json()["corners"] == 3
            circle = {"name": "C", "text": "circle(1 2,3)"}
            made = (await w.ask("ann", "POST", "/regions", json=circle)).json()
            assert (made["text"], made["radius"]) == ("CIRCLE (1 2, 3)", 3.0)
            two = {"type": "MultiPolygon", "coordinates": [[ring], [[[9, 9], [9, 8], [8, 8], [9, 9]]]]}
            body = {"name": "D", "geojson": two}
            assert (await w.ask("ann", "POST", "/regions", json=body)).json()["corners"] == 6
            text = "@(A)(ARITH:id = 1) || @(Own)(ARITH:id = 2)"
            body = {"text": text, "regions": {"Own": feature}}
            made = (await w.ask("ann", "POST", "/subscriptions", json=body)).json()
            assert sorted(made["regions"]) == ["A", "Own"]

    run(story)


def test_a_changed_region_reaches_subscriptions_if_asked_to(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            await w.ask("ann", "POST", "/regions", json={"name": "A", "text": "CIRCLE (0 0, 1)"})
            body = {"text": "@(A)(ARITH:id = 1)"}
            made = (await w.ask("ann", "POST", "/subscriptions", json=body)).json()
            own = f"/subscriptions/{made['id']}"
            wider = {"text": "CIRCLE (0 0, 2)"}
            kept = (await w.ask("ann", "PUT", "/regions/A", json=wider)).json()
            assert kept["subscriptions"] == []
            assert (await w.ask("ann", "GET", own)).json()["regions"] == {"A": "CIRCLE (0 0, 1)"}
            await w.ask("ann", "PUT", "/regions/A", json={"text": "CIRCLE (0 0, 1)"})
            moved = (await w.ask("ann", "PUT", "/regions/A", json={**wider, "apply": True})).json()
            assert moved["subscriptions"] == [made["id"]]
            assert (await w.ask("ann", "GET", own)).json()["regions"] == {"A": "CIRCLE (0 0, 2)"}

    run(story)


def test_a_file_of_regions_is_imported_and_says_which_are_none(tmp_path):
    def feature(name, geometry):
        return {"type": "Feature", "properties": {"name": name}, "geometry": geometry}

    good = {"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 4], [0, 0]]]}
    bow = {"type": "Polygon", "coordinates": [[[0, 0], [4, 4], [4, 0], [0, 4], [0, 0]]]}
    features = [
        feature("Depot north", good),
        feature("1st", good),
        feature(None, good),
        feature("Bow", bow),
        feature("Point", {"type": "Point", "coordinates": [0, 0]}),
        feature("Depot north", good),
        feature("Nothing", None),
        feature("Odd", {"type": "Polygon", "coordinates": "x"}),
        {"type": "Feature", "properties": 7, "geometry": good},
    ]

    async def story():
        async with web(tmp_path) as w:
            body = {"type": "FeatureCollection", "features": features}
            found = (await w.ask("ann", "POST", "/regions/import", json=body)).json()
            assert found["added"] == ["Depot_north", "region_1st", "region_3", "region_9"]
            assert [one["feature"] for one in found["refused"]] == [3, 4, 5, 6, 7]
            assert all(one["detail"] for one in found["refused"])

    run(story)


# -------------------------------------------------------------------------------- objects


def test_objects_are_where_they_were_seen_last(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            events = [point(n, n % 3, float(n)) for n in range(9)]
            await w.ask("ann", "POST", "/events", json=events)
            page = (await w.ask("bob", "GET", "/objects")).json()
            seen = {one["id"]: (one["t"], one["x"], one["y"]) for one in page["items"]}
            assert seen == {0: (6, 6.0, 5.0), 1: (7, 7.0, 5.0), 2: (8, 8.0, 5.0)}
            same = (await w.ask("bob", "GET", f"/objects?after={page['at']}")).json()
            assert same["items"] == []
            await w.ask("ann", "POST", "/events", json=[point(20, 1, 0.5)])
            moved = (await w.ask("bob", "GET", f"/objects?after={page['at']}")).json()["items"]
            assert [(one["id"], one["x"]) for one in moved] == [(1, 0.5)]
            track = (await w.ask("bob", "GET", "/objects/1/track?since=4&until=19")).json()
            assert track == {"points": [[4, 4.0, 5.0], [7, 7.0, 5.0]]}
            assert (await w.ask("bob", "GET", "/objects/x/track")).json() == {"points": []}
            nowhere = arrow(point(30, 1, float("nan")))
            await w.ask("ann", "POST", "/events", content=nowhere, headers=ARROW)
            last = (await w.ask("bob", "GET", "/objects")).json()["items"][0]
            assert (last["id"], last["x"]) == (1, None)
            track = (await w.ask("bob", "GET", "/objects/1/track?since=30")).json()["points"]
            assert track in ([], [[30, None, 5.0]])

    run(story)


# -------------------------------------------------------------------------------- metrics


def test_metrics_are_what_prometheus_reads(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            made = await w.ask("ann", "POST", "/subscriptions", json={"text": HERE.format(id=1)})
            await w.ask("ann", "POST", "/events", json=[point(1, 1, 0.0), {"id": 1}])
            answer = await w.ask("root", "GET", "/metrics#")
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            kinds, values = {}, {}
            for line in answer.text.splitlines():
                if line.startswith("# TYPE "):
                    _, _, name, kind = line.split(" ")
                    assert name not in kinds, "a family is there once"
                    kinds[name] = kind
                elif not line.startswith("#"):
                    sample, _, value = line.rpartition(" ")
                    assert sample not in values
                    values[sample] = float(value)
                    assert sample.partition("{")[0] in kinds
            assert values["ensue_events_total"] == 1
            assert values["ensue_events_bad_total"] == 1
            assert values["ensue_subscriptions"] == 1
            assert values["ensue_taking_events"] == 1
            assert values['ensue_listeners_cut_total{why="slow"}'] == 0
            assert values["ensue_resident_bytes"] > 0
            assert all(kinds[name] == "counter" for name in kinds if name.endswith("_total"))
            own = f'subscription="{made.json()["id"]}",user="{w.people["ann"].id}"'
            assert any(own in sample for sample in values)

    run(story)


def test_metrics_of_very_many_subscriptions_are_cut(tmp_path, monkeypatch):
    from ensue.service.store.journal import increment_all
    from ensue.service.web import health_routes as metrics

    monkeypatch.setattr(metrics, "MAX_SUBSCRIPTIONS", 3)

    async def story():
        async with web(tmp_path) as w:
            ids = []
            for n in range(5):
                body = {"text": HERE.format(id=n)}
                ids.append((await w.ask("ann", "POST", "/subscriptions", json=body)).json()["id"])
            await w.service.do(lambda db: increment_all(db, [(id, "late", 100 + n) for n, id in enumerate(ids)]))
            text = (await w.ask("root", "GET", "/metrics#")).text
            assert "# 2 subscriptions with lower values are omitted" in text
            shown = [id for id in ids if f'_late_total{{subscription="{id}"' in text]
            assert shown == ids[2:]

    run(story)
