"""Real streams that cannot start or go on say why in a line or two, and offer a way out."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.streaming.test_sinks import EVENTS, PAIRS, events, ids, run, session, sink_of, source, table_of

import ensue
from ensue.errors import EventError, QueryError, RunnerError, StateError

__all__ = ["run", "session", "source"]  # fixtures

pytestmark = pytest.mark.spark

HIERARCHY = """
    EVENT Pair AS SEQ(A a, B b) WHERE [k] WITHIN 10 seconds RETURN a.type AS type;
    SEQ(Pair x, Pair y) WHERE [type] WITHIN 20 seconds"""
ONE_KEY = """
    EVENT Pair AS SEQ(A a, B b) WHERE [k] WITHIN 10 seconds RETURN a.k AS k;
    SEQ(Pair x, Pair y) WHERE [k] WITHIN 20 seconds"""
ROWS = PAIRS + " RETURN a.row AS first"


def test_names_that_sinks_go_by_are_refused_where_they_are_written(source):
    source.add("A0p")
    for returned, named in (
        ("a.row AS match_id", "match_id"),
        ("a.row AS late_event", "late_event"),
        ("a.row AS Start", "'start' and 'Start' differ only in case"),
        ("a.row AS x, b.row AS X", "'x' and 'X' differ only in case"),
    ):
        for query in (f"{PAIRS} RETURN {returned}", {"one": f"{PAIRS} RETURN {returned}"}):
            with pytest.raises(QueryError, match=named) as raised:
                source.match(query)
            assert f"{' ' * (4 + len(PAIRS) + 8)}^" in str(raised.value)
    for variable in ("match_id", "late_event", "End"):
        with pytest.raises(QueryError, match=f"'{variable}'"):
            source.match(f"SEQ(A {variable}, B b) WHERE [k] WITHIN 10 seconds")
    with pytest.raises(QueryError, match="match_id"):
        source.match(HIERARCHY + " RETURN x.start AS match_id")
    assert source.match(f"{PAIRS} RETURN a.row AS end").isStreaming


@pytest.mark.parametrize("kind", ["delta", pytest.param("parquet", marks=pytest.mark.slow)])
@pytest.mark.parametrize("returned", ["a AS end, b.row AS row", "max(b.row), a.row AS `x.y`", "a.type = 'A' AS end"])
def test_a_table_takes_any_column_twice(session, tmp_path, kind, returned):
    """What is in the place of `end` may have no order, and names may have dots."""
    query = f"SEQ(A a, B+ b[]) WHERE [k] WITHIN 10 seconds RETURN {returned}"
    query = query.replace("b.row AS row", "b[1].row AS row")
    table = events("A0p A1q B2p A3q B4q B5p")
    matches = session.createDataFrame(ensue.match(table, query, **EVENTS))
    for _ in range(2):
        sink_of(kind, tmp_path / "table")(matches, 0)
    assert ids(table_of(kind, tmp_path / "table")) == ids(matches)
    sink_of(kind, tmp_path / "table").fit(session, matches.schema)


def test_before_a_stream_starts_its_folders_are_looked_at(session, source, tmp_path):
    source.add("A0p B1p")
    matches = source.match(ROWS)

    def start(output: Any, checkpoint: Any = tmp_path / "checkpoint", **options: Any) -> None:
        ensue.start(matches, output, checkpoint=checkpoint, once=True, **options)

    table = tmp_path / "table"
    found = ensue.match(events("A0p B1p"), ROWS, **EVENTS)
    pq.write_table(found.rename_columns([*found.column_names[:3], "other"]), table_at(table))
    with pytest.raises(RunnerError, match="has other columns than these matches") as raised:
        start(table)
    assert "  other: there bigint, here missing\n" in str(raised.value)
    assert "  first: there missing, here bigint\n" in str(raised.value)
    texts = found.set_column(3, "first", found["first"].cast(pa.string()))
    ensue.delta_table(tmp_path / "delta")(session.createDataFrame(texts), 0)
    with pytest.raises(RunnerError, match="first: there string, here bigint"):
        start(ensue.delta_table(tmp_path / "delta"))
    with pytest.raises(RunnerError, match="is a Delta table"):
        start(tmp_path / "delta")
    table_at(table).write_bytes(b"not parquet")
    with pytest.raises(RunnerError, match=r"cannot be read as a table.*1\.parquet"):
        start(table)
    with pytest.raises(RunnerError, match="is a file"):
        start(table_at(table))
    (table / "_spark_metadata").mkdir()
    with pytest.raises(RunnerError, match="_spark_metadata"):
        start(table)
    with pytest.raises(EventError, match="the checkpoint and the output are the same folder"):
        start(table, table)
    with pytest.raises(EventError, match="is inside the output"):
        start(tmp_path, tmp_path / "checkpoint")
    with pytest.raises(StateError, match="is a file"):
        start(tmp_path / "new", table_at(table))
    with pytest.raises(EventError, match="an output must be a folder, a table, a topic or a function"):
        start(5)
    assert not (tmp_path / "checkpoint").exists()


def table_at(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder / "1.parquet"


def test_streams_and_tables_do_not_go_together(source):
    stream = source.add("A0p").stream()
    for other in (events("B1p"), events("B1p").to_pylist()):
        with pytest.raises(EventError, match=r"streaming DataFrames and tables .*: A of these"):
            ensue.match({"A": stream, "B": other}, PAIRS, time="at", watermark="2 seconds")


def test_what_remains_of_nothing(session, tmp_path):
    with pytest.raises(StateError, match="there is no checkpoint"):
        ensue.remaining(session, tmp_path / "nowhere")
    (tmp_path / "commits").mkdir()
    with pytest.raises(StateError, match="no micro-batch has finished yet"):
        ensue.remaining(session, tmp_path)


def test_matches_that_are_none_are_not_started(source, tmp_path):
    source.add("A0p")
    place = {"checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(EventError, match="not a NoneType"):
        ensue.start(None, tmp_path / "table", **place)
    with pytest.raises(EventError, match="has no column match_id"):
        ensue.start(source.stream(), tmp_path / "table", **place)
    with pytest.raises(RunnerError, match="every='soon' is not a length of time"):
        ensue.start(source.match(), tmp_path / "table", every="soon", **place)


@pytest.mark.slow
def test_a_checkpoint_is_not_for_another_kind_of_query(source, run, tmp_path):
    source.add("A0p A1q B2p")
    run(source.match())
    source.add("A3p")
    for query in (HIERARCHY, {"one": PAIRS, "other": PAIRS.replace("[k]", "[type]")}):
        with pytest.raises(StateError, match="the checkpoint belongs to another") as raised:
            run(source.match(query), tmp_path / "other")
        assert "hint: use the checkpoint this stream began with" in str(raised.value)


def test_a_stream_that_fails_says_why(source, tmp_path):
    source.add("A0p A1q B2p")
    empty = pa.nulls(1, pa.timestamp("us", "UTC"))
    source.put(events("A3p").set_column(0, "at", empty))
    options = {"checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(EventError, match="1 of 1 events have no usable time") as raised:
        ensue.start(source.match(), tmp_path / "table", once=True, **options)
    assert raised.value.__suppress_context__
    query = ensue.start(source.match(), tmp_path / "table", **options)
    with pytest.raises(EventError, match="no usable time"):
        query.wait()
    with pytest.raises(EventError, match="1 of 1 events have no usable time"):
        query.finish()
    assert isinstance(query.exception, EventError)
    assert repr(query).endswith(": failed>")
    with pytest.raises(EventError, match="no usable time"):
        query.wait(0)


@pytest.mark.slow
def test_checkpoints_of_every_kind_are_told_apart(source, run, tmp_path):
    source.add("A0p A1q B2p", "B3q")
    kinds: dict[str, Any] = {
        "one query": PAIRS,
        "a query with definitions": ONE_KEY,
        "several queries": {"one": PAIRS, "other": PAIRS.replace("SEQ(A a, B b)", "SEQ(B a, A b)")},
    }
    for name, query in kinds.items():
        run(source.match(query), tmp_path / f"of {name}", checkpoint=tmp_path / name)
    source.add("A5p")
    for written in kinds:
        for name, query in kinds.items():
            if name != written:
                said = f"the checkpoint is that of {written}, and this is {name}"
                with pytest.raises(StateError, match=said):
                    run(source.match(query), tmp_path / "other", checkpoint=tmp_path / written)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "how"),
    [
        ("state/0/*/*.zip", "half"),
        ("state/0/*/*.changelog", "half"),
        ("state/0/*/*.changelog", "gone"),
        ("state/0/1", "gone"),
    ],
)
def test_state_that_is_damaged(source, session, run, tmp_path, files, how):
    source.add("A0p A1q B2p", "B3q")
    run(source.match())
    source.add("A5p")
    for path in list((tmp_path / "checkpoint").glob(files)):
        damaged(path, how)
    with pytest.raises(StateError, match="the checkpoint is damaged") as raised:
        run(source.match())
    assert len(str(raised.value).splitlines()) == 2
    with pytest.raises(StateError, match="the checkpoint is damaged"):
        ensue.remaining(session, tmp_path / "checkpoint")


def damaged(path: Path, how: str) -> None:
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    elif how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.slow
@pytest.mark.parametrize("full", ["checkpoint", "table"])
def test_a_full_disk(source, run, tmp_path, full):
    source.add(" ".join(f"A{n}p B{n}p" for n in range(60)))
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k" if full == "checkpoint" else "size=4k"]
    done = subprocess.run([*mount, "tmpfs", str(place)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no file system can be mounted here")
    folders = {name: tmp_path / name for name in ("checkpoint", "table")} | {full: place / full}
    try:
        with pytest.raises(RunnerError, match="the disk is full: Spark cannot write") as raised:
            run(source.match(), folders["table"], checkpoint=folders["checkpoint"])
        assert len(str(raised.value).splitlines()) == 2
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.slow
def test_two_streams_on_one_checkpoint(source, session, tmp_path):
    """By default Spark stops the first one; with this setting, or in two processes, it fails."""
    source.add("A0p A1q B2p")
    options = {"checkpoint": tmp_path / "checkpoint"}
    setting = "spark.sql.streaming.stopActiveRunOnRestart"
    session.conf.set(setting, "false")
    first = ensue.start(source.match(), tmp_path / "table", every="1 second", **options)
    try:
        with pytest.raises(RunnerError, match="another stream is using this checkpoint"):
            ensue.start(source.match(), tmp_path / "table", once=True, **options)
    finally:
        first.stop()
        session.conf.unset(setting)


@pytest.mark.slow
def test_events_that_cannot_be_read(source, session, tmp_path):
    source.add("A0p A1q B2p")
    source.put(events("A3p").set_column(3, "row", pa.array(["three"])))
    (source.folder / "010.parquet").write_bytes(b"not parquet")
    schema = "at timestamp, type string, k string, row long"
    reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)

    def start(checkpoint: str) -> None:
        stream = reader.parquet(str(source.folder))
        matches = ensue.match(stream, PAIRS, **EVENTS, watermark="2 seconds")
        place = tmp_path / checkpoint
        ensue.start(matches, tmp_path / "table", checkpoint=place, once=True)

    with pytest.raises(EventError, match=r"the column row of the file .*002\.parquet"):
        start("one")
    (source.folder / "002.parquet").unlink()
    with pytest.raises(EventError, match=r"cannot read the file .*010\.parquet"):
        start("two")


@pytest.mark.slow
def test_a_function_and_an_operator_that_fail(source, run, tmp_path):
    source.add("A0p A1q B2p", "B20q")

    def write(matches: Any, batch: int) -> None:
        raise ValueError(f"no room for batch {batch}")

    with pytest.raises(RunnerError, match=r"ValueError: no room for batch 0\n  in .*\.py, line"):
        run(source.match(), write)
    bad = ensue.operator("bad_here", q=lambda a, b: 1 // (a.row - a.row) > b.row)
    query = "bad_here(A a, B b) r WHERE [k] WITHIN 10 seconds"
    with pytest.raises(ensue.EnsueError) as raised:
        run(source.match(query, definitions=[bad]), checkpoint=tmp_path / "another")
    assert len(str(raised.value).splitlines()) < 4
