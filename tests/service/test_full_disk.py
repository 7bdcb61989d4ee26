"""A service starts on a full disk: notes can be read, events are refused until there is room."""

import contextlib
import shutil
import subprocess

import httpx2
import pytest

from ensue.service.errors import NoRoomError
from ensue.service.web.app import make_app
from support.http_service import settle
from support.services import HERE, crashed, matches, point, run, service

NO_GUARD = {"free_bytes": 0}  # SQLite itself finds out


@pytest.fixture
def small_disk(tmp_path):
    """A file system of a few megabytes."""
    made = tmp_path / "disk"
    made.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", made], capture_output=True, check=False
    ).returncode:
        pytest.skip("a file system can only be mounted by root")
    yield made
    subprocess.run(["umount", "-l", made], check=True)


def fill(disk):
    with (disk / "filling").open("wb", 0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(disk).free == 0


@pytest.mark.parametrize("stop", ["closed", "killed", "killed, with its index"])
def test_it_starts_on_a_full_disk_and_goes_on_when_there_is_room(small_disk, stop):
    async def story():
        path = small_disk / "a.db"
        async with service(path, limits=NO_GUARD) as s:
            await s.subscribe(HERE.format(id=1))
            await s.publish(point(1, 1, 0.0))
            if stop != "closed":
                path = crashed(path, small_disk / "b.db")
            if stop.endswith("index"):
                index = (small_disk / "a.db-shm").read_bytes()
        if stop.endswith("index"):
            (small_disk / "b.db-shm").write_bytes(index)
        fill(small_disk)
        async with service(path, limits=NO_GUARD) as s:
            assert [m["end"] for m in await matches(s)] == [1]
            with pytest.raises(NoRoomError, match="the disk has 0 MB left"):
                await s.publish(point(2, 1, 0.0))
            assert (await s.health())["state"] == "intake stopped"
            (small_disk / "filling").unlink()
            await s.publish(point(3, 1, 0.0))
            assert [m["end"] for m in await matches(s)] == [1, 3]
            assert (await s.health())["state"] == "running"

    run(story)


def test_it_stops_on_a_full_disk(small_disk):
    async def story():
        async with service(small_disk / "a.db", limits=NO_GUARD) as s:
            await s.subscribe(HERE.format(id=1))
            await s.publish(point(1, 1, 0.0))
            fill(small_disk)
        (small_disk / "filling").unlink()
        async with service(small_disk / "a.db", limits=NO_GUARD) as s:
            assert [m["end"] for m in await matches(s)] == [1]

    run(story)


def test_whoever_publishes_to_a_full_disk_is_told_507(tmp_path):
    async def story():
        path = tmp_path / "a.db"
        async with service(path) as s:
            people = await settle(s)
        async with service(path, limits={"free_bytes": 1 << 60}) as s:
            transport = httpx2.ASGITransport(make_app(s), client=("127.0.0.1", 50_000))
            async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
                headers = people["ann"].headers
                health = await client.get("/api/v1/health", headers=headers)
                assert health.json()["state"] == "intake stopped"  # before anybody published
                refused = await client.post("/api/v1/events", headers=headers, json=[point(1, 1, 0.0)])
                assert refused.status_code == 507
                assert "the disk has" in refused.json()["detail"]
                notes = await client.get("/api/v1/notifications?after=0", headers=headers)
                assert notes.status_code == 200

    run(story)
