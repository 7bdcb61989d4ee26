"""What is wrong with a service is seen by those who run it, not only by those who caused it."""

import asyncio

import httpx2
import pytest

from ensue.cli.serve import build_source
from ensue.console.pages import add_pages
from ensue.service.web.app import make_app
from support.http_service import web
from support.services import HERE, point, run, service

BAD_LINE = '{"t": 1, "id": "no number", "x": 0, "y": 0}'


def kinds(health):
    return [problem["kind"] for problem in health["problems"]]


async def publish_as_a_gate(w, body, **headers):
    """A user who may publish and see nothing."""
    made = await w.token("bob", "publish")
    headers |= {"authorization": f"Bearer {made.token}", "content-type": "application/x-ndjson"}
    return await w.client.post("/api/v1/events", content=body, headers=headers)


@pytest.mark.parametrize(
    ("body", "status", "reason"), [(BAD_LINE, 200, "id"), ("[1", 200, "not JSON")], ids=["a value", "a line"]
)
def test_an_administrator_sees_bad_events_of_all_producers(tmp_path, body, status, reason):
    async def story():
        async with web(tmp_path) as w:
            answer = await publish_as_a_gate(w, body, producer="gate-3", sequence="1")
            assert answer.status_code == status
            found = (await w.ask("root", "GET", "/events/bad")).json()["items"]
            assert [(one["user"], one["producer"]) for one in found] == [("bob", "gate-3")]
            assert reason in found[0]["reason"]
            assert (await w.ask("ann", "GET", "/events/bad")).json()["items"] == []
            health = (await w.ask("root", "GET", "/health")).json()
            assert (health["bad"], kinds(health)) == (1, ["bad events"])
            assert kinds((await w.ask("ann", "GET", "/health")).json()) == []

    run(story)


def test_a_body_that_is_refused_as_a_whole_is_seen_too(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            made = await w.token("bob", "publish")
            headers = {"authorization": f"Bearer {made.token}"}
            for kind in ("application/json", "application/vnd.apache.arrow.stream"):
                answer = await w.client.post("/api/v1/events", content="{{", headers={**headers, "content-type": kind})
                assert answer.status_code == 422
            found = (await w.ask("root", "GET", "/events/bad")).json()["items"]
            assert [(one["user"], one["event"]) for one in found] == [("bob", "{{")] * 2
            assert "Arrow" in found[0]["reason"]
            assert (await w.ask("root", "GET", "/health")).json()["bad"] == 2

    run(story)


def test_files_that_a_source_cannot_read_are_seen(tmp_path):
    async def story():
        folder = tmp_path / "events"
        folder.mkdir()
        (folder / "1.parquet").write_bytes(b"not one")
        source = build_source(f"folder:{folder}?look=0.02")
        async with service(tmp_path / "a.db", sources=[source]) as s:
            while not source.progress.counts["bad"]:
                await asyncio.sleep(0.01)
            while not (health := await s.health())["bad"]:
                await asyncio.sleep(0.01)
            assert kinds(health) == ["bad events"]
            found = await s.look(lambda db: db.execute("SELECT * FROM bad_events").fetchone())
            assert found["producer"].endswith("1.parquet")

    run(story)


def test_health_says_which_source_does_not_read(tmp_path):
    async def story():
        source = build_source("folder:/nowhere/at/all?look=0.02")
        async with service(tmp_path / "a.db", sources=[source]) as s:
            while "source" not in kinds(health := await s.health()):
                await asyncio.sleep(0.01)
            problem = next(p for p in health["problems"] if p["kind"] == "source")
            assert source.name in problem["detail"]

    run(story)


def test_a_healthy_service_has_no_problems(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            await w.service.subscribe(HERE.format(id=1))
            await w.service.publish(point(1, 1, 0.0))
            health = (await w.ask("root", "GET", "/health")).json()
            assert (health["state"], health["problems"]) == ("running", [])
            assert "ensue_problems{" not in (await w.ask("root", "GET", "/metrics#")).text

    run(story)


def test_the_health_page_shows_what_is_wrong(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            await s.publish(BAD_LINE)
            app = make_app(s, console=add_pages)
            transport = httpx2.ASGITransport(app, client=("127.0.0.1", 50_000))
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
                page = (await client.get("/status")).text
                assert "1 events were rejected in the last hour" in page
                assert "local" in page.partition('id="bad-events"')[2]

    run(story)
