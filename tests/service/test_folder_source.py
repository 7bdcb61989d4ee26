"""Events from files that appear in a folder."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from ensue.errors import EventError, ServiceError
from ensue.service.endpoints import parse_endpoint
from ensue.service.errors import IntakeStoppedError, OverLimitError
from ensue.service.sources import folder_source as folder
from ensue.service.sources.folder_source import Chunk, read_chunks
from support.brokers import Recorder, event, reading, until
from support.services import HERE, matches, point, run, service

LOOK = 0.03  # seconds


def made(path: Path, **more: Any) -> Any:
    return folder.FolderSource({"path": str(path), "look": LOOK, **more})


def lines(*numbers: int) -> bytes:
    return b"".join(event(n) + b"\n" for n in numbers)


def table(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers), "type": ["truck"] * len(numbers)})


def arrow_file(path: Path, rows: pa.Table, *, stream: bool = False) -> None:
    open_writer = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, open_writer(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=2)


WRITERS = {
    "a.jsonl": lambda p: p.write_bytes(lines(1, 2, 3, 4, 5)),
    "a.ndjson": lambda p: p.write_bytes(b"\n" + lines(1, 2, 3) + b"\r\n \n" + lines(4, 5).rstrip()),
    "a.jsonl.gz": lambda p: p.write_bytes(gzip.compress(lines(1, 2, 3, 4, 5))),
    "a.json": lambda p: p.write_text(json.dumps([{"id": n} for n in range(1, 6)], indent=2)),
    "a.csv": lambda p: pa.csv.write_csv(table(1, 2, 3, 4, 5), p),
    "a.csv.gz": lambda p: p.write_bytes(gzip.compress(b"id,type\n1,a\n2,a\n3,b\n4,a\n5,a\n")),
    "a.parquet": lambda p: pq.write_table(table(1, 2, 3, 4, 5), p, row_group_size=2),
    "a.arrow": lambda p: arrow_file(p, table(1, 2, 3, 4, 5)),
    "a.ARROWS": lambda p: arrow_file(p, table(1, 2, 3, 4, 5), stream=True),
    "a.feather": lambda p: arrow_file(p, table(1, 2, 3, 4, 5)),
}
every_kind = pytest.mark.parametrize("name", list(WRITERS))


@every_kind
def test_rows_of_every_kind_of_file_are_taken(tmp_path, name):
    async def story():
        taken = Recorder()
        WRITERS[name](tmp_path / name)
        async with reading(made(tmp_path), taken) as source:
            await until(lambda: len(taken.ids) >= 5, "five events")
            await asyncio.sleep(5 * LOOK)
        assert taken.ids == [1, 2, 3, 4, 5]
        assert taken.positions == {f"folder:{tmp_path}:{name}": 5}
        assert source.progress.counts["messages"] == 5
        assert not source.progress.counts["bad"]

    run(story)


@every_kind
@pytest.mark.parametrize("position", range(6))
@pytest.mark.parametrize("most", [1, 2, 100])
def test_a_file_is_read_on_from_any_row(tmp_path, name, position, most):
    path = tmp_path / name
    WRITERS[name](path)
    chunks = list(read_chunks(path, position, most))
    assert [row for c in chunks for row in range(c.first, c.first + c.count)] == list(range(position, 5))
    assert all(0 < chunk.count <= most for chunk in chunks)


def test_halves_of_a_chunk_are_the_chunk():
    for rows in ((b"a", b"b", b"c"), table(1, 2, 3)):
        front, back = Chunk(7, rows).halves()
        assert (front.first, front.count, back.first, back.count) == (7, 1, 8, 2)


def test_files_are_taken_by_name_and_later_ones_too(tmp_path):
    async def story():
        taken = Recorder()
        for name, number in (("b", 3), ("a", 1), ("c", 5)):
            (tmp_path / f"{name}.jsonl").write_bytes(lines(number, number + 1))
        async with reading(made(tmp_path), taken):
            await until(lambda: len(taken.ids) == 6, "six events")
            (tmp_path / "d.jsonl").write_bytes(lines(7))
            await until(lambda: len(taken.ids) == 7, "the last event")
        assert taken.ids == [1, 2, 3, 4, 5, 6, 7]

    run(story)


def test_after_a_crash_each_row_is_taken_once(tmp_path):
    async def story():
        taken = Recorder()
        for part in range(4):
            first = 1 + part * 50
            rows = lines(*range(first, first + 50))
            (tmp_path / f"{part}.jsonl").write_bytes(rows)
        while len(taken.ids) < 200:
            before = len(taken.ids)
            async with reading(made(tmp_path, most=7), taken):
                await until(lambda last=before: len(taken.ids) > last, "more events")
        assert taken.ids == list(range(1, 201))

    run(story)


def test_a_crash_within_a_publish_repeats_nothing(tmp_path):
    async def story():
        taken = Recorder()
        (tmp_path / "a.jsonl").write_bytes(lines(*range(1, 101)))
        taken.open.clear()
        async with reading(made(tmp_path, most=10), taken):
            await until(lambda: taken.calls == 1, "a publish")
        taken.open.set()
        async with reading(made(tmp_path, most=10), taken):
            await until(lambda: len(taken.ids) == 100, "all events")
        assert taken.ids == list(range(1, 101))
        assert taken.at_once == 1

    run(story)


# -------------------------------------------------------------------------- half-written files


def test_a_file_that_is_still_written_waits_and_those_behind_it_too(tmp_path):
    growing = tmp_path / "b.jsonl"
    for name in ("a", "c"):
        (tmp_path / f"{name}.jsonl").write_bytes(lines(1))
    source = made(tmp_path)

    def ready() -> list[str]:
        looks = source._read_file_states()
        found = source._ready(looks)
        source._seen = looks
        return found

    assert ready() == []  # nobody knows yet whether they change
    for part in (lines(2)[:9], lines(2)[9:], lines(3)):
        with growing.open("ab") as file:
            file.write(part)
        assert ready() == ["a.jsonl"]
    assert ready() == ["a.jsonl", "b.jsonl", "c.jsonl"]


def test_names_of_unfinished_files_and_other_kinds_are_left_out(tmp_path):
    async def story():
        taken = Recorder()
        for name in (".a.jsonl", "_a.jsonl", "notes.txt"):
            (tmp_path / name).write_bytes(lines(1))
        (tmp_path / "sub.jsonl").mkdir()
        async with reading(made(tmp_path), taken) as source:
            await asyncio.sleep(3 * LOOK)
            (tmp_path / ".a.jsonl").rename(tmp_path / "a.jsonl")
            await until(lambda: taken.ids, "the renamed file")
            await asyncio.sleep(3 * LOOK)
        assert taken.ids == [1]
        assert source.progress.counts["left_out"] == 1
        assert not source.progress.counts["bad"]

    run(story)


def test_a_line_that_is_cut_off_is_taken_once_it_is_whole(tmp_path):
    async def story():
        taken = Recorder()
        path = tmp_path / "a.jsonl"
        path.write_bytes(lines(1, 2) + event(3)[:8])
        async with reading(made(tmp_path), taken) as source:
            await until(lambda: source.progress.counts["bad"] == 1, "a line cut off")
            assert taken.ids == [1, 2]
            with path.open("ab") as file:
                file.write(event(3)[8:] + b"\n" + event(4))
            await until(lambda: len(taken.ids) == 4, "the rest")
        assert taken.ids == [1, 2, 3, 4]
        assert not taken.bad

    run(story)


def test_rows_that_are_added_are_taken(tmp_path):
    async def story():
        taken = Recorder()
        path = tmp_path / "a.jsonl"
        path.write_bytes(lines(1))
        async with reading(made(tmp_path), taken):
            await until(lambda: taken.ids == [1], "the first")
            with path.open("ab") as file:
                file.write(lines(2, 3))
            await until(lambda: len(taken.ids) == 3, "the rest")
        assert taken.ids == [1, 2, 3]

    run(story)


def test_a_file_that_was_replaced_is_put_aside_and_told(tmp_path):
    async def story():
        taken = Recorder()
        (tmp_path / "a.jsonl").write_bytes(lines(1, 2))
        async with reading(made(tmp_path), taken) as source:
            await until(lambda: len(taken.ids) == 2, "the first")
            (tmp_path / ".new").write_bytes(lines(3, 4, 5))
            (tmp_path / ".new").rename(tmp_path / "a.jsonl")
            await until(lambda: source.progress.counts["bad"], "a replaced file")
            await asyncio.sleep(3 * LOOK)
        assert taken.ids == [1, 2]
        assert source.progress.counts["bad"] == 1

    run(story)


# ------------------------------------------------------------------------------- unreadable


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.jsonl.gz", "a.csv"])
def test_an_unreadable_file_is_put_aside_once_and_mended_ones_are_taken(tmp_path, name, caplog):
    async def story():
        taken = Recorder()
        (tmp_path / name).write_bytes(b"PAR1 this is nothing\n\x00,\x00,\n\n1,2,3,4,5\n")
        (tmp_path / "b.jsonl").write_bytes(lines(7))
        async with reading(made(tmp_path), taken) as source:
            await until(lambda: taken.ids == [7], "the file behind it")
            await asyncio.sleep(5 * LOOK)
            assert source.progress.counts["bad"] == 1
            (tmp_path / name).unlink()
            await asyncio.sleep(3 * LOOK)
            WRITERS[name](tmp_path / name)
            await until(lambda: len(taken.ids) == 6, "the mended file")
        assert sorted(taken.ids) == [1, 2, 3, 4, 5, 7]

    run(story)
    assert f"rejected: {name}: " in caplog.text


def test_a_file_whose_columns_do_not_fit_is_put_aside(tmp_path):
    async def story():
        taken = Recorder()
        taken.refusals = [EventError("there is no column 'id'")]
        pq.write_table(table(1, 2), tmp_path / "a.parquet")
        (tmp_path / "b.jsonl").write_bytes(lines(3))
        async with reading(made(tmp_path), taken) as source:
            await until(lambda: taken.ids == [3], "the file behind it")
        assert source.progress.counts["bad"] == 1

    run(story)


def test_rows_wait_while_the_service_takes_none(tmp_path):
    async def story():
        taken = Recorder()
        taken.refusals = [IntakeStoppedError("the disk is full")] * 2
        (tmp_path / "a.jsonl").write_bytes(lines(1, 2))
        async with reading(made(tmp_path), taken) as source:
            await until(lambda: source.progress.trouble == "the disk is full", "trouble")
            await until(lambda: taken.ids == [1, 2], "the events")
            assert source.progress.trouble is None

    run(story)


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_limit_on_events_at_once_makes_pieces_smaller(tmp_path, name):
    class Small(Recorder):
        async def publish(self, events: bytes, **more: Any) -> object:
            if len(more["sequences"]) > 2:
                raise OverLimitError("events_per_request", "too many")
            return await super().publish(events, **more)

    async def story():
        taken = Small()
        WRITERS[name](tmp_path / name)
        async with reading(made(tmp_path), taken) as source:
            await until(lambda: len(taken.ids) == 5, "all events")
        assert taken.ids == [1, 2, 3, 4, 5]
        assert not source.progress.counts["bad"]

    run(story)


def test_a_folder_that_is_missing_is_waited_for(tmp_path):
    async def story():
        taken = Recorder()
        later = tmp_path / "later"
        async with reading(made(later), taken) as source:
            await until(lambda: source.progress.trouble, "trouble")
            assert "No such file" in source.progress.trouble
            later.mkdir()
            (later / "a.jsonl").write_bytes(lines(1))
            await until(lambda: taken.ids == [1], "the event")
            assert source.progress.trouble is None

    run(story)


# ----------------------------------------------------------------------------- configuration


def test_a_folder_is_named_by_a_url(tmp_path):
    kind, config = parse_endpoint(f"folder:{tmp_path}?look=0.5&most=10")
    assert kind == "folder"
    assert folder.FolderSource(config).name == f"folder:{tmp_path}"


@pytest.mark.parametrize("config", [{}, {"path": "a", "lok": 1}, {"path": "a", "most": "many"}])
def test_a_configuration_that_cannot_be_used_is_refused(config):
    with pytest.raises(ServiceError, match="hint: "):
        folder.FolderSource(config)


# ------------------------------------------------------------------------------ real service


def test_a_real_service_finds_matches_in_files_of_every_kind_once(tmp_path):
    points = [point(t, 1, float(t)) for t in range(1, 61)]
    events = tmp_path / "events"
    events.mkdir()
    text = "\n".join(json.dumps(p) for p in points[:20])
    (events / "1.jsonl").write_text(text.replace(json.dumps(points[5]), '{"t": "never"}'))
    pq.write_table(pa.Table.from_pylist(points[20:40]), events / "2.parquet")
    pa.csv.write_csv(pa.Table.from_pylist(points[40:60]), events / "3.csv")

    async def story():
        for again in range(2):
            async with service(tmp_path / "a.db") as s:
                if not again:
                    await s.subscribe(HERE.format(id=1))
                s.add_source(made(events))
                while len(found := await matches(s)) < 59:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(5 * LOOK)
                found = await matches(s)
                assert await s.position(f"folder:{events}:1.jsonl") == 20
        assert [m["end"] for m in found] == [t for t in range(1, 61) if t != 6]

    run(story)
