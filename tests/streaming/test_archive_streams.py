"""JOIN ARCHIVE on streams of Spark, and streams that write their own archive."""

import os
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.archives.delta_writer import create, release
from support.past import whole

pytestmark = pytest.mark.spark

SCHEMA = pa.schema({"t": pa.int64(), "type": pa.string(), "k": pa.int64(), "row": pa.int64()})
NAMED = {"time": "t", "type": "type"}
TRAVEL = "SEQ(B b) WITHIN 9 JOIN ARCHIVE old SEQ(A p) RANGE 40 BEFORE START LAST 1 ON [k]"
FIRST = "SEQ(B b) WITHIN 9 ANTI JOIN ARCHIVE old SEQ(B p) RANGE 12 BEFORE START ON [k]"


def events(rows: int, first: int = 0, seed: int = 3) -> pa.Table:
    random = Random(seed)
    return pa.table(
        {
            "t": [first + n // 3 for n in range(rows)],
            "type": [random.choice("ABX") for _ in range(rows)],
            "k": [random.randint(1, 6) for _ in range(rows)],
            "row": range(first * 100, first * 100 + rows),
        },
        schema=SCHEMA,
    )


class Source:
    """A folder of files that a stream reads one by one."""

    def __init__(self, spark, folder) -> None:
        self.spark, self.folder, self.files = spark, folder, 0
        folder.mkdir()

    def add(self, *tables: pa.Table) -> None:
        for table in tables:
            path = self.folder / f"{self.files}.parquet"
            pq.write_table(table, path)
            os.utime(path, (self.files + 1, self.files + 1))
            self.files += 1

    def frame(self):
        schema = self.spark.createDataFrame(events(1)).schema
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))


@pytest.fixture
def source(spark, tmp_path):
    return Source(spark, tmp_path / "events")


@pytest.fixture
def own(tmp_path):
    """An archive of Ensue's with some events."""
    made = create(
        tmp_path / "old", SCHEMA, time="t", key=["k"], type="type", order=["row"], buckets=4,
        day=10,
    )  # fmt: skip
    ensue.archive(tmp_path / "old").append(events(60, 0, 7))
    return made


def pieces(table: pa.Table, count: int) -> list[pa.Table]:
    size = -(-table.num_rows // count)
    return [table.slice(k * size, size) for k in range(count)]


def rows(folder) -> list[str]:
    return sorted(map(repr, pq.read_table(folder).to_pylist()))


def wanted(live: pa.Table, query: str, own: str | None = None) -> list[str]:
    past = ensue.archive(events(60, 0, 7), time="t", type="type", key="k", order="row")
    found = ensue.match(live, query, archives=ensue.Archives({"old": past}, own=own), order="row", **NAMED)
    assert found.num_rows > 3
    return sorted(map(repr, found.to_pylist()))


def matched(source, query=TRAVEL, archives=None):
    return ensue.match(
        source.frame(),
        query,
        archives=archives,
        order="row",
        watermark=2,
        options=ensue.StreamOptions(key_groups=2),
        **NAMED,
    )


@pytest.mark.slow  # the stream below that writes its archive looks things up in it, too
@pytest.mark.parametrize("access", ["grouped", "eager", "lazy", "archive_first"])
def test_a_stream_looks_things_up_in_a_table(source, own, tmp_path, access):
    live = events(60, 22)
    source.add(*pieces(live, 3))
    matches = matched(source, archives=ensue.Archives({"old": own}, access=access))
    query = ensue.start(matches, tmp_path / "out", checkpoint=tmp_path / "cp", once=True, flush=True)
    assert rows(tmp_path / "out") == wanted(live, TRAVEL)
    assert sum(p.probes for p in query.progress()) > 0
    assert sum(p.rows_read for p in query.progress()) > 0


@pytest.mark.slow
def test_a_stream_goes_on_with_the_version_it_began_with(source, own, tmp_path):
    live = events(60, 22)
    first, second = pieces(live, 2)

    def run(flush=False):
        archives = {"old": ensue.archive(tmp_path / "old")}
        matches = matched(source, archives=archives)
        ensue.start(matches, tmp_path / "out", checkpoint=tmp_path / "cp", once=True, flush=flush)

    source.add(first)
    run()
    ensue.archive(tmp_path / "old").append(events(60, 20, 9))  # later, and not seen
    source.add(second)
    run(flush=True)
    assert rows(tmp_path / "out") == wanted(live, TRAVEL)


@pytest.mark.slow
def test_a_table_in_memory_must_stay_the_same(source, tmp_path):
    source.add(events(30, 22))
    given = {"time": "t", "type": "type", "key": "k", "order": "row"}

    def run(table):
        matches = matched(source, archives={"old": ensue.archive(table, **given)})
        ensue.start(matches, tmp_path / "out", checkpoint=tmp_path / "cp", once=True, flush=True)

    run(events(60, 0, 7))
    assert rows(tmp_path / "out") == wanted(events(30, 22), TRAVEL)
    with pytest.raises(ensue.StateError, match="events have changed since the stream began"):
        run(events(61, 0, 7))


def test_a_dataframe_is_no_archive_of_a_stream(spark, source):
    frame = spark.createDataFrame(events(5))
    with pytest.raises(ensue.EventError, match="which a stream cannot use for lookups"):
        matched(source, archives={"old": ensue.archive(frame, **NAMED)})


# ------------------------------------------------------------------------------ its own archive


def archiving(source, tmp_path, query=TRAVEL, *, rows, flush=False):
    archives = {"old": ensue.archive(tmp_path / "old")}
    matches = matched(source, query, archives=ensue.Archives(archives, own="old"))
    writer = ensue.ArchiveWriter("old", rows=rows)
    return ensue.start(
        matches, tmp_path / "out", checkpoint=tmp_path / "cp", once=True, flush=flush, archive=writer
    )  # fmt: skip


@pytest.mark.parametrize(
    ("query", "starts"), [(TRAVEL, 1), *(pytest.param(q, 2, marks=pytest.mark.slow) for q in (TRAVEL, FIRST))]
)
def test_a_stream_writes_its_own_archive(source, own, tmp_path, query, starts):
    live, counted = events(90, 20), 0
    for number, piece in enumerate(pieces(live, starts), 1):
        source.add(*pieces(piece, 2))
        done = archiving(source, tmp_path, query, rows=10, flush=number == starts)
        counted += sum(p.archived for p in done.progress())
        ensue.archive(tmp_path / "old").compact(fewest=2)
    assert rows(tmp_path / "out") == wanted(live, query, own="old")
    there = whole(own).column("row").to_pylist()
    assert len(there) == len(set(there))
    fresh = set(there) - set(events(60, 0, 7).column("row").to_pylist())
    assert fresh <= {r["row"] for r in live.to_pylist() if r["type"] in "AB"}
    assert len(fresh) == counted > 10
    assert any(p.recent > 0 for p in done.progress())


@pytest.mark.slow
def test_a_query_without_a_past_writes_one(source, own, tmp_path):
    live = events(60, 20)
    source.add(*pieces(live, 3))
    text = "SEQ(A a, B b) WHERE [k] WITHIN 5"
    matches = matched(source, text)
    ensue.start(
        matches, tmp_path / "out", checkpoint=tmp_path / "cp", once=True, flush=True,
        archive=ensue.ArchiveWriter(own, rows=1),
    )  # fmt: skip
    expected = ensue.match(live, text, order="row", **NAMED)
    assert rows(tmp_path / "out") == sorted(map(repr, expected.to_pylist()))
    fresh = set(whole(own).column("row").to_pylist()) - set(events(60, 0, 7).column("row").to_pylist())
    assert len(fresh) > 20


@pytest.mark.slow
def test_a_failing_batch_comes_again_and_archives_nothing_twice(source, own, tmp_path, monkeypatch):
    from ensue.backends.spark import sinks as own_archive

    live = events(60, 20)
    source.add(*pieces(live, 3))
    commit, calls = own_archive.commit, []

    def failing(*given):
        done = commit(*given)
        calls.append(done)
        if len(calls) == 2:
            raise RuntimeError("killed behind the archive's commit")
        return done

    monkeypatch.setattr(own_archive, "commit", failing)
    with pytest.raises(ensue.EnsueError, match="killed behind"):
        archiving(source, tmp_path, rows=5)
    archiving(source, tmp_path, rows=5, flush=True)
    assert calls[:3] == [True, True, False]
    assert rows(tmp_path / "out") == wanted(live, TRAVEL, own="old")
    there = whole(own).column("row").to_pylist()
    assert len(there) == len(set(there))


@pytest.mark.slow
def test_two_streams_do_not_write_one_archive(source, own, tmp_path):
    source.add(events(30, 20))
    archiving(source, tmp_path, rows=5)
    matches = matched(source, archives=ensue.Archives({"old": own}, own="old"))
    with pytest.raises(ensue.StateError, match="two streams write one archive"):
        ensue.start(matches, tmp_path / "other", checkpoint=tmp_path / "cp2", once=True)
    assert release(tmp_path / "old") is not None


@pytest.mark.slow
def test_a_checkpoint_knows_its_archive(source, own, tmp_path):
    source.add(events(30, 20))
    archiving(source, tmp_path, rows=5)
    with pytest.raises(ensue.StateError, match="began with rows=5 for its archive, not 6"):
        archiving(source, tmp_path, rows=6)
    with pytest.raises(ensue.StateError, match="began with archive='old', not None"):
        ensue.start(
            matched(source, archives={"old": own}), tmp_path / "out", checkpoint=tmp_path / "cp",
            once=True,
        )  # fmt: skip


def test_a_table_of_others_is_not_written(source, tmp_path):
    (tmp_path / "old").mkdir()
    pq.write_table(events(60, 0, 7), tmp_path / "old" / "a.parquet")
    source.add(events(30, 20))
    archives = {"old": ensue.archive(tmp_path / "old", key="k", order="row", **NAMED)}
    matches = matched(source, archives=archives)
    with pytest.raises(ensue.StateError, match="not created by Ensue"):
        ensue.start(matches, tmp_path / "out", checkpoint=tmp_path / "cp", once=True, archive="old")
