"""One event from the future does not make all others late."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from ensue.cli.serve import build_source
from ensue.service.service import Service
from support.services import all_notes, matches, run

SCHEMA = {"ts": pa.timestamp("us", "UTC"), "id": "int64"}
NOW = datetime.now(UTC)
FAR = datetime(2199, 1, 1, tzinfo=UTC)
NO_BOUND = {"max_ahead": 1e12}


def timed(path, **more):
    return Service(path, schema=SCHEMA, time="ts", key="id", synchronous="NORMAL", **more)


def event(ts, id=1):
    return {"ts": ts, "id": id}


async def ends(s):
    return [datetime.fromisoformat(m["end"]) for m in await matches(s)]


def as_table(*events):
    return pa.Table.from_pylist(list(events), schema=pa.schema(SCHEMA))


def as_lines(*events):
    return "\n".join(json.dumps({**e, "ts": e["ts"].isoformat()}) for e in events)


@pytest.mark.parametrize("form", [list, as_table, as_lines], ids=["rows", "table", "lines"])
def test_an_event_far_ahead_of_the_clock_is_put_aside(tmp_path, form):
    async def story():
        given = (event(NOW), event(FAR, 7), event(NOW + timedelta(seconds=1)))
        async with timed(tmp_path / "a.db") as s:
            await s.subscribe("(ARITH:id = 1)")
            done = await s.publish(list(given) if form is list else form(*given))
            assert (done.accepted, done.bad, done.late) == (2, 1, 0)
            await s.publish(event(NOW + timedelta(seconds=2)))
            assert await ends(s) == [NOW + timedelta(seconds=k) for k in range(3)]
            found = await s.look(lambda db: db.execute("SELECT * FROM bad_events").fetchall())
            assert "ahead of the service's clock" in found[0]["reason"]
            assert json.loads(found[0]["event"])["id"] == 7

    run(story)


def test_years_that_python_does_not_know_are_put_aside_too(tmp_path):
    async def story():
        far = pa.array([320_000_000_000_000_000], pa.timestamp("us", "UTC"))
        async with timed(tmp_path / "a.db") as s:
            done = await s.publish(pa.table({"ts": far, "id": [1]}))
            assert (done.accepted, done.bad) == (0, 1)
        async with timed(tmp_path / "b.db", limits=NO_BOUND) as s:
            assert (await s.publish(pa.table({"ts": far, "id": [1]}))).accepted == 1
            assert (await s.health())["newest"].startswith("12110-")

    run(story)


def test_numbers_and_the_past_have_no_such_bound(tmp_path):
    async def story():
        async with timed(tmp_path / "a.db") as s:
            assert (await s.publish(event(datetime(1970, 1, 2, tzinfo=UTC)))).accepted == 1
        numbered = Service(tmp_path / "b.db", schema={"t": "int64"}, time="t")
        async with numbered as s:
            assert (await s.publish({"t": 1 << 50})).accepted == 1

    run(story)


def test_repeats_are_known_though_one_was_put_aside(tmp_path):
    async def story():
        async with timed(tmp_path / "a.db") as s:
            given = [event(NOW), event(FAR), event(NOW)]
            first = await s.publish(given, producer="p", sequence=1)
            again = await s.publish(given, producer="p", sequence=1)
            assert (first.accepted, first.bad) == (2, 1)
            assert (again.accepted, again.bad, again.repeated) == (0, 0, 3)

    run(story)


def test_a_source_goes_on_behind_an_event_from_the_future(tmp_path):
    async def story():
        folder = tmp_path / "events"
        folder.mkdir()
        (folder / "1.jsonl").write_text(as_lines(event(FAR), event(NOW)))
        async with timed(tmp_path / "a.db", sources=[build_source(f"folder:{folder}")]) as s:
            await s.subscribe("(ARITH:id = 1)")
            (folder / "2.jsonl").write_text(as_lines(event(NOW + timedelta(seconds=1))))
            while len(await ends(s)) < 2:
                await asyncio.sleep(0.05)
            assert await ends(s) == [NOW, NOW + timedelta(seconds=1)]

    run(story)


# -------------------------------------------------------------------------------- how to go on


def test_a_file_that_has_such_an_event_already_can_be_continued(tmp_path):
    async def story():
        path = tmp_path / "a.db"
        async with timed(path, limits=NO_BOUND) as s:
            await s.subscribe("(ARITH:id = 1)", name="one")
            await s.publish([event(NOW), event(FAR, 7)])
        async with timed(path) as s:
            assert (await s.publish(event(NOW))).late == 1
            problem = next(p for p in (await s.health())["problems"] if p["kind"] == "watermark")
            assert "--reset-watermark" in problem["hint"]
        async with timed(path, reset_watermark=True) as s:
            assert not [p for p in (await s.health())["problems"] if p["kind"] == "watermark"]
            later = NOW + timedelta(seconds=1)
            assert (await s.publish(event(later))).accepted == 1
            assert await ends(s) == [NOW, later]
            assert [n.kind for n in await all_notes(s)].count("started") == 1
        async with timed(path) as s:  # for good
            assert (await s.publish(event(later))).accepted == 1
            assert await ends(s) == [NOW, later, later]

    run(story)
