"""The file of a service: groups, failures, and askers that go away."""

import asyncio
import sqlite3
import threading

import pytest

from ensue.errors import ServiceError
from ensue.service.store.database import Database
from support.services import run


def put(name):
    def work(db):
        db.execute("INSERT INTO settings VALUES (?, 'x')", (name,))
        return name

    return work


def names(db):
    return [row[0] for row in db.execute("SELECT name FROM settings ORDER BY name")]


def test_work_that_waits_together_is_committed_together(tmp_path):
    async def story():
        database = Database(tmp_path / "a.db")
        commits = []
        database.committed.append(lambda: commits.append(1))
        gate = threading.Event()
        first = database.submit(lambda db: gate.wait(10))
        rest = [database.submit(put(f"{k}")) for k in range(20)]
        gate.set()
        await asyncio.gather(*(asyncio.wrap_future(f) for f in (first, *rest)))
        assert len(commits) <= 2  # the first alone, or with the others
        assert len(await database.read(names)) == 20
        database.close()

    run(story)


def test_work_that_fails_takes_back_its_own_changes_only(tmp_path):
    def fails(db):
        put("b")(db)
        raise ServiceError("no")

    async def story():
        database = Database(tmp_path / "a.db")
        gate = threading.Event()
        database.submit(lambda db: gate.wait(10))
        some = [database.submit(work) for work in (put("a"), fails, put("c"))]
        gate.set()
        found = await asyncio.gather(*(asyncio.wrap_future(f) for f in some), return_exceptions=True)
        assert [type(one) for one in found] == [str, ServiceError, str]
        assert await database.read(names) == ["a", "c"]
        database.close()

    run(story)


def test_an_asker_that_goes_away_stops_nothing(tmp_path):
    async def story():
        database = Database(tmp_path / "a.db")
        for round in range(50):
            gate = threading.Event()
            slow = asyncio.create_task(database.write(lambda db, gate=gate: gate.wait(10)))
            waiting = asyncio.create_task(database.write(put(f"w{round}")))
            await asyncio.sleep(0)
            slow.cancel()
            waiting.cancel()
            gate.set()
            await asyncio.gather(slow, waiting, return_exceptions=True)
        assert await database.write(put("last")) == "last"
        database.close()

    run(story)


def test_a_transaction_that_cannot_be_committed_is_an_error_for_all_of_it(tmp_path):
    def breaks(db):
        db.execute("COMMIT")  # whoever does this has broken the group
        raise sqlite3.OperationalError("disk I/O error")

    async def story():
        database = Database(tmp_path / "a.db")
        told = []
        database.rolled_back.append(told.append)
        with pytest.raises(ServiceError, match="disk I/O error"):
            await database.write(breaks)
        assert len(told) == 1
        assert await database.write(put("next")) == "next"
        database.close()

    run(story)


def test_readers_do_not_write(tmp_path):
    async def story():
        database = Database(tmp_path / "a.db")
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            await database.read(put("a"))
        database.close()
        with pytest.raises(ServiceError, match="is closed"):
            await database.write(put("a"))

    run(story)


def test_synchronous_is_full_or_normal(tmp_path):
    with pytest.raises(ServiceError, match="FULL survives a power cut"):
        Database(tmp_path / "a.db", synchronous="OFF")
