"""Archives that Ensue writes: events go in once, and come out as they went in."""

import errno
import os
import pickle
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ensue
from ensue.archives import delta_writer as writing
from ensue.archives import parquet_writer as written_files
from ensue.archives.archive import ArchiveRead, CompactionResult
from ensue.archives.delta_writer import (
    claim,
    commit,
    create,
    get_writer,
    release,
    require_same_archive,
    vacuum,
    write_files,
)
from ensue.archives.file_archive import FileArchive
from ensue.archives.parquet_writer import AddedFile
from support.archives import asked, pieces

INSTANT = pa.timestamp("us", "UTC")
T0 = datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)
SCHEMA = pa.schema({"t": INSTANT, "k": pa.string(), "n": pa.int64(), "x": pa.int64()})
EVERY = ArchiveRead(pieces((None, None, None), key=pa.null(), time=INSTANT))


def rows_of(numbers: list[tuple[int, str | None, int | None]], first: int = 0) -> pa.Table:
    rows = [
        {"t": T0 + timedelta(microseconds=t), "k": k, "n": n, "x": first + x} for x, (t, k, n) in enumerate(numbers)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


numbers = st.lists(
    st.tuples(
        st.integers(0, 3_000_000),
        st.sampled_from(["a", "b", "c", "a long name, longer than what statistics keep of it", None]),
        st.sampled_from([1, 2, None]),
    ),
    max_size=25,
)


def wishes(names: list[Any], kind: pa.DataType, field: str) -> st.SearchStrategy[ArchiveRead]:
    times = st.one_of(st.none(), st.integers(0, 3_000_000))
    at = lambda t: None if t is None else T0 + timedelta(microseconds=t)
    stretches = st.lists(st.tuples(st.sampled_from(names), times, times), max_size=25)
    return stretches.map(
        lambda some: ArchiveRead(pieces(*((k, at(s), at(u)) for k, s, u in some), key=kind, time=INSTANT), field)
    )


wanted = st.one_of(
    wishes(["a", "c", "zz", "a long name, longer than what statistics keep of it"], pa.string(), "k"),
    wishes([1, 2, 3], pa.int32(), "n"),
)


@pytest.mark.parametrize("key", [pytest.param(("k",), marks=pytest.mark.slow), ("n",), ("k", "n")], ids="+".join)
@settings(max_examples=10, deadline=None)
@given(parts=st.lists(numbers, min_size=1, max_size=4), asked_for=wanted, compacted=st.booleans())
def test_what_was_written_is_read(
    key: tuple[str, ...], parts: list[list[tuple[int, str | None, int | None]]], asked_for: ArchiveRead, compacted: bool
) -> None:
    with tempfile.TemporaryDirectory() as place:
        archive = create(place, SCHEMA, time="t", key=key, buckets=4)
        rows: list[dict[str, Any]] = []
        for part in parts:
            table = rows_of(part, len(rows))
            ensue.archive(place).append(table)
            rows += table.to_pylist()
        if compacted:
            ensue.archive(place).compact(fewest=2)
        for request in (asked_for, EVERY):
            assert ensue.archive(place).read(request).events.to_pylist() == asked(rows, request)
        assert archive.layout().rows == len(rows)


@pytest.fixture
def archive(tmp_path: Path) -> FileArchive:
    return create(tmp_path / "a", SCHEMA, time="t", key=["k"])


def _many(count: int = 300, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, 3 * 86_400_000_000, count))
    return rows_of([(int(t), f"k{random.integers(0, 40)}", 1) for t in times])


def test_a_commit_comes_once_however_often_it_is_tried(archive: FileArchive) -> None:
    added = write_files(archive, _many(), 0, "key group-0")
    again = [AddedFile.read(one.text()) for one in added]
    assert archive.read(EVERY).events.num_rows == 0, "files that no commit has named are read"
    assert commit(pickle.loads(pickle.dumps(archive)), again, "query", 7)
    assert not commit(archive, added, "query", 7)
    assert not commit(archive, added, "query", 3)
    assert archive.read(EVERY).events.equals(_many())
    assert commit(archive, [], "query", 8)
    assert not commit(archive, added, "query", 8)
    assert archive.read(EVERY).events.num_rows == 300


def test_files_of_a_killed_batch_are_ignored_and_vacuumed(archive: FileArchive) -> None:
    commit(archive, write_files(archive, _many(), 0), "query", 1)
    orphans = write_files(archive, _many(seed=1), 300)
    assert archive.read(EVERY).events.num_rows == 300
    assert vacuum(archive.place) == 0, "they are too young"
    with pytest.raises(ensue.StateError, match=r"may not be committed yet(?s:.*)hint: "):
        vacuum(archive.place, hours=0)
    release(archive.place)
    assert vacuum(archive.place, hours=0) == len(orphans)
    assert archive.read(EVERY).events.equals(_many())


def test_two_streams_do_not_write_one_archive(archive: FileArchive) -> None:
    claim(archive, "first")
    claim(archive, "first")
    with pytest.raises(ensue.StateError, match=r"two streams write one archive(?s:.*)hint: "):
        claim(archive, "second")
    with pytest.raises(ensue.StateError, match="two streams write one archive"):
        commit(archive, write_files(archive, _many(), 0), "second", 0)
    with pytest.raises(ensue.StateError, match=r"written by the stream first(?s:.*)hint: "):
        archive.append(_many())
    assert archive.read(EVERY).events.num_rows == 0
    assert release(archive.place) == "first"
    assert get_writer(archive.place) is None
    claim(archive, "second")


def test_another_layout_than_the_checkpoints_is_refused(tmp_path: Path) -> None:
    sixteen = create(tmp_path / "a", SCHEMA, time="t", key=["k"])
    eight = create(tmp_path / "b", SCHEMA, time="t", key=["k"], buckets=8)
    twin = create(tmp_path / "c", SCHEMA, time="t", key=["k"])
    require_same_archive(sixteen, sixteen.describe())
    with pytest.raises(ensue.StateError, match=r"has buckets 8, and the checkpoint(?s:.*) 16"):
        require_same_archive(eight, sixteen.describe())
    with pytest.raises(ensue.StateError, match=r"is not the table that the checkpoint(?s:.*)hint: "):
        require_same_archive(twin, sixteen.describe())


def test_compaction_keeps_events_and_their_order(archive: FileArchive) -> None:
    for number in range(5):
        commit(archive, write_files(archive, _many(seed=number), number * 300), "query", number)
    before, pinned, files = archive.read(EVERY).events, archive.pinned(), archive.layout().files
    done = archive.compact()
    assert done.before + archive.layout().files - done.after == files
    assert done.after == done.parts > 0
    assert archive.read(EVERY).events.equals(before)
    assert pinned.read(EVERY).events.equals(before)
    assert archive.compact() == CompactionResult()
    assert commit(archive, [], "query", 5), "the stream goes on"


@pytest.mark.slow
def test_archives_are_compacted_while_they_are_written(archive: FileArchive) -> None:
    batches = 12

    def write() -> None:
        for number in range(batches):
            added = write_files(archive, _many(100, number), number * 100)
            assert commit(archive, added, "query", number)

    with ThreadPoolExecutor(3) as pool:
        writer = pool.submit(write)
        others = [pool.submit(_compacting, archive.place, writer) for _ in range(2)]
        writer.result()
        done = [other.result() for other in others]
    assert sum(one.parts for one in done) > 0, "nothing was compacted: no test"
    expected = pa.concat_tables([_many(100, number) for number in range(batches)])
    found = archive.read(EVERY).events
    ordered = found.num_rows == expected.num_rows and found.sort_by(
        [("t", "ascending"), ("x", "ascending"), ("k", "ascending")]
    )
    assert ordered
    assert ordered.equals(expected.sort_by([("t", "ascending"), ("x", "ascending"), ("k", "ascending")]))


def _compacting(place: str, writer: Any) -> CompactionResult:
    done = CompactionResult()
    while not writer.done():
        done += ensue.archive(place).compact(fewest=2)
    return done + ensue.archive(place).compact(fewest=2)


def test_those_who_append_at_once_number_their_events_apart(archive: FileArchive) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda seed: archive.append(_many(50, seed)), range(6)))
    table = deltalake.DeltaTable(archive.place).to_pyarrow_table(columns=["__order"])
    assert sorted(table.column("__order").to_pylist()) == list(range(300))


def test_a_full_disk_leaves_nothing_behind(archive: FileArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = written_files._write_file, []

    def full(*arguments: Any) -> int:
        calls.append(1)
        if len(calls) == 3:
            Path(arguments[1]).write_bytes(b"half of a")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    monkeypatch.setattr(written_files, "_write_file", full)
    with pytest.raises(ensue.EventError, match=r"No space left(?s:.*)hint: free some space"):
        archive.append(_many())
    assert len(calls) == 3
    assert not list(Path(archive.place).rglob("*.parquet"))
    monkeypatch.undo()
    archive.append(_many())
    assert archive.read(EVERY).events.equals(_many())


def test_a_commit_that_fails_commits_nothing(archive: FileArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", broken)
    with pytest.raises(ensue.EventError, match=r"nothing was committed"):
        archive.append(_many())
    assert not list(Path(archive.place).rglob("*.parquet"))


def test_files_are_sorted_and_lie_apart(archive: FileArchive) -> None:
    archive.append(_many(2_000))
    layout = archive.layout()
    assert (layout.buckets, layout.sorted_by) == (16, ("k", "t"))
    assert layout.partitioned_by == ("__day", "__bucket")
    assert layout.clustered
    wanted = ArchiveRead(pieces(("k3", T0, T0 + timedelta(hours=1)), key=pa.string(), time=INSTANT), "k")
    found = archive.read(wanted)
    assert 0 < found.files <= 2, "an hour of one object is in a file for each day it touches"


def test_an_archive_knows_its_columns(archive: FileArchive) -> None:
    assert ensue.archive(archive.place).key == ("k",)
    assert ensue.archive(archive.place, time="t", key="k").shape.arrow == SCHEMA
    with pytest.raises(ensue.EventError, match=r"was created with key=\('k',\)(?s:.*)hint: "):
        ensue.archive(archive.place, key="n")


def test_times_that_are_numbers(tmp_path: Path) -> None:
    schema = pa.schema({"t": pa.float64(), "until": pa.float64(), "k": pa.int32()})
    archive = create(tmp_path, schema, time=("t", "until"), key=["k"], day=10)
    ensue.archive(tmp_path).append(pa.table({"t": [1.0, 9.5], "until": [2.0, 10.5], "k": [1, 1]}))
    assert archive.layout().files == 2
    wanted = ArchiveRead(pieces((1, 9.0, None), key=pa.int64(), time=pa.float64()), "k")
    assert archive.read(wanted).events.column("until").to_pylist() == [10.5]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no key": ({"key": []}, "no key column is given"),
    "three buckets": ({"buckets": 3}, "a power of two"),
    "no such key": ({"key": ["kk"]}, "no column 'kk' for key="),
    "a day of timestamps": ({"day": 3}, "only for numeric times"),
}


@pytest.mark.parametrize(("arguments", "problem"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_created(tmp_path: Path, arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ensue.EventError, match=problem):
        create(tmp_path, SCHEMA, **({"time": "t", "key": ["k"]} | arguments))


def test_an_archive_is_created_once(archive: FileArchive) -> None:
    with pytest.raises(ensue.EventError, match=r"cannot create the archive(?s:.*)hint: append"):
        create(archive.place, SCHEMA, time="t", key=["k"])


def test_an_archive_is_not_created_beside_other_files(tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").write_bytes(b"of use")
    with pytest.raises(ensue.EventError, match=r"something else is already there(?s:.*)hint: "):
        create(tmp_path, SCHEMA, time="t", key=["k"])
    with pytest.raises(ensue.EventError, match="something else is already there"):
        create(tmp_path / "mine.parquet", SCHEMA, time="t", key=["k"])


def test_columns_that_do_not_fit(archive: FileArchive) -> None:
    with pytest.raises(ensue.EventError, match=r"have no column 'n'(?s:.*)hint: "):
        archive.append(_many().drop_columns("n"))
    with pytest.raises(ensue.EventError, match=r"have a column 'y'(?s:.*)hint: "):
        archive.append(_many().append_column("y", pa.array([1] * 300)))
    fine = _many().set_column(0, "t", pa.array([1] * 300, pa.timestamp("ns", "UTC")))
    with pytest.raises(ensue.EventError, match=r"column 't'(?s:.*)store microseconds"):
        archive.append(fine)
    coarse = _many().set_column(0, "t", _many().column("t").cast(pa.timestamp("ns", "UTC")))
    archive.append(coarse)
    with pytest.raises(ensue.EventError, match="a name that archives use internally"):
        create(f"{archive.place}2", pa.schema([*SCHEMA, ("__day", pa.int64())]), time="t", key="k")


def _refuses_writes(archive: Any, why: str) -> None:
    for write in (lambda: archive.append(_many()), archive.compact, lambda: archive.compact(fewest=2, vacuum=168)):
        with pytest.raises(ensue.StateError, match=rf"{why}(?s:.*)hint: "):
            write()


def test_tables_of_others_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "parquet").mkdir()
    pq.write_table(_many(), tmp_path / "parquet" / "a.parquet")
    deltalake.write_deltalake(tmp_path / "delta", _many())
    for place in ("parquet", "delta"):
        others = ensue.archive(tmp_path / place, time="t", key="k")
        _refuses_writes(others, "was not created by Ensue")
        with pytest.raises(ensue.StateError, match="was not created by Ensue"):
            writing.write_files(others, _many(), 0)


def test_tables_in_memory_are_not_written() -> None:
    _refuses_writes(ensue.archive(_many(), time="t", key="k"), "a table in memory or a DataFrame is only read")


def test_an_archive_fixed_to_a_version_is_not_written(archive: FileArchive) -> None:
    assert archive.append(_many()) == 300
    fixed = ensue.archive(archive.place, version=archive.layout().version)
    _refuses_writes(fixed, r"is fixed to version \d+, which does not change")
    _refuses_writes(archive.pinned(), "is fixed to version")
    assert archive.append(_many(seed=1)) == 300
    assert (archive.layout().rows, fixed.layout().rows) == (600, 300)


def test_an_archive_that_was_recreated_is_not_written(archive: FileArchive) -> None:
    shutil.rmtree(archive.place)
    create(archive.place, SCHEMA, time="t", key=["n"])
    _refuses_writes(archive, "has a different layout than when it was opened")


def test_compaction_can_vacuum(archive: FileArchive) -> None:
    for seed in range(2):
        archive.append(_many(seed=seed))
    files = lambda: len(list(Path(archive.place).rglob("*.parquet")))
    done = archive.compact(fewest=2, vacuum=0)
    assert files() == archive.layout().files < done.before
    assert archive.read(EVERY).events.num_rows == 600
