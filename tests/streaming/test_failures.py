"""What users are told when a stream cannot start or go on: a line or two, and a way out."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.streaming.test_sinks import (
    EVENTS,
    PAIRS,
    events,
    ids,
    run,
    session,
    sink_of,
    source,
    table_of,
)

import ensue
from ensue.errors import EventError, OperatorError, QueryError, RunnerError, StateError
from ensue.runners.checkpoint_files import require_sound
from ensue.runners.folders import Folder, require_apart
from ensue.runners.spark_failure import failure

__all__ = ["run", "session", "source"]  # fixtures

TOWER = """
    EVENT Pair AS SEQ(A a, B b) WHERE [k] WITHIN 10 seconds RETURN a.type AS type;
    SEQ(Pair x, Pair y) WHERE [type] WITHIN 20 seconds"""
ONE_KEY = """
    EVENT Pair AS SEQ(A a, B b) WHERE [k] WITHIN 10 seconds RETURN a.k AS k;
    SEQ(Pair x, Pair y) WHERE [k] WITHIN 20 seconds"""
ROWS = PAIRS + " RETURN a.row AS first"


# ---------------------------------------------------------- what Spark says, and what it means


def failed_with(text: str) -> str:
    """As a StreamingQueryException says it."""
    return (
        "[STREAM_FAILED] Query [id = b68616c7, runId = 8f013ecf] terminated with exception: "
        f"{text} SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = b68616c7]\n"
        "\tat org.apache.spark.sql.execution.streaming.StreamExecution.run\n"
    )


def in_foreach_batch(*trace: str) -> str:
    head = "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function "
    head += "in foreach batch sink. Reason: An exception was raised by the Python Proxy. "
    head += "Return Message: Traceback (most recent call last):"
    inside = '  File "/x/site-packages/py4j/clientserver.py", line 644, in _call_proxy'
    return failed_with("\n".join([head, inside, "    return_value = f()", *trace, ""]))


OPERATORS = "[(OperatorId: 0 -> OperatorName: {0}){1}]"
TWICE = ", (OperatorId: 1 -> OperatorName: transformWithStateInPySparkExec)"
NOT_MATCH = (
    "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] Streaming stateful operator name "
    "does not match with the operator in state metadata.\nStateful operators in the metadata: {}; "
    "Stateful operators in current batch: {}. SQLSTATE: 42K03"
)
OURS = OPERATORS.format("transformWithStateInPySparkExec", "")


OTHER_SOURCES = (
    "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] "
    "sources requested by the query. Cannot continue."
)
NO_STATE_FILE = (
    "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] An error occurred during "
    "loading state. Error reading streaming state file of file:/data/state/0/0/2.changelog "
    "does not exist."
)
OTHER_TYPE = (
    "[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading file "
    "file:///in/2.parquet. Data type mismatches when reading Parquet column [row]. Expected "
    "Spark type bigint, actual Parquet type BINARY."
)
SAYINGS = [
    (
        NOT_MATCH.format(OURS, OURS.replace(")]", f"){TWICE}]")), StateError,
        "its state is in 1 part, and that of this query in 2 parts",
    ),
    (
        NOT_MATCH.format(OPERATORS.format("stateStoreSave", ""), OURS), StateError,
        "a stream that is not Ensue's",
    ),
    (
        OTHER_SOURCES, StateError,
        "it reads 1 source, and this one 2 sources",
    ),
    (
        "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart ...", StateError,
        "the checkpoint has no state",
    ),
    (
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple ...", RunnerError,
        "another stream is at work with this checkpoint",
    ),
    (
        "Failed to read log file file:/data/state/commits/2. Incomplete log file", StateError,
        "damaged: /data/state/commits/2 is gone, empty",
    ),
    ("Unexpected end-of-input in field name", StateError, "a file of its logs"),
    (
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.",
        StateError, "a file of its state is gone",
    ),
    (
        NO_STATE_FILE, StateError, "damaged: /data/state/0/0/2.changelog",
    ),
    (
        "File file:/data/old/state/0/_stateSchema/default/0_4b1e does not exist", StateError,
        "was begun as /data/old",
    ),
    (
        OTHER_TYPE, EventError,
        "the column row of the file /in/2.parquet is of another type: here bigint, there BINARY",
    ),
    (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/2.parquet. ",
        EventError, "cannot read the file /in/2.parquet",
    ),
    (
        "[CANNOT_READ_FILE_FOOTER] Could not read footer for file: file:/in/2.parquet. Please",
        EventError, "cannot read the file /in/2.parquet",
    ),
    (
        "[PATH_NOT_FOUND] Path does not exist: file:/in/gone. ", EventError,
        "there is no /in/gone",
    ),
    (
        "[STDS_COMMITTED_BATCH_UNAVAILABLE] No committed batch found, ...", StateError,
        "no micro-batch of its stream is done",
    ),
    ("", RunnerError, "Spark has failed and does not say why"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "said"), SAYINGS)
def test_what_spark_says_in_a_line_or_two(text, kind, said):
    error = failure(Exception(failed_with(text)))
    assert type(error) is kind
    problem, _, hint = str(error).partition("\n  hint: ")
    assert said in problem
    assert hint
    for noise in ("SQLSTATE", "STREAM_FAILED", "\tat ", "file:/", "["):
        assert noise not in str(error)


def test_what_nobody_has_met_is_said_as_spark_says_it():
    error = failure(Exception(failed_with("[NEW_CONDITION] Something new.")))
    assert (type(error), str(error)) == (RunnerError, "Something new.")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("EventError", EventError), ("OperatorError", OperatorError), ("StateError", StateError)],
)
def test_errors_of_ours_come_through(name, kind):
    text = in_foreach_batch(f"ensue.errors.{name}: no such thing", "  then: 2", "  hint: mend it")
    error = failure(Exception(text))
    assert (type(error), str(error)) == (kind, "no such thing\n  then: 2\n  hint: mend it")


def test_a_query_error_of_a_worker_keeps_its_place():
    said = str(QueryError("no field 'y'", hint="x?", span=None).at(None, None))
    error = failure(Exception(in_foreach_batch(*f"ensue.errors.QueryError: {said}".splitlines())))
    assert (type(error), str(error)) == (QueryError, said)


def test_an_error_in_a_function_of_the_user_names_its_place():
    text = in_foreach_batch('  File "/home/me/job.py", line 7, in write', "    1 / 0", "Oops: no")
    assert str(failure(Exception(text))) == "Oops: no\n  in /home/me/job.py, line 7"


def test_an_error_of_spark_in_a_sink_is_said_without_its_stack():
    text = in_foreach_batch(
        "pyspark.errors.exceptions.captured.AnalysisException: [COLUMN_ALREADY_EXISTS] The column "
        "`start` already exists. SQLSTATE: 42711"
    )
    assert str(failure(Exception(text))) == "The column `start` already exists."


# ------------------------------------------------------------------- the files of a checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint as Spark leaves it, without the state itself."""
    folder = tmp_path / "checkpoint"
    described = {"operatorInfo": {"operatorId": 0}, "properties": "ensue_head"}
    schema = folder / "state" / "0" / "_stateSchema" / "default" / "0_4b1e"
    described["stateSchemaFilePaths"] = [f"file:{schema}"]
    for name, text in {
        "metadata": '{"id":"4d40f3ce"}',
        "offsets/0": 'v1\n{"batchWatermarkMs":0}\n{"logOffset":0}',
        "offsets/1": 'v1\n{"batchWatermarkMs":7}\n{"logOffset":1}',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":7}',
        "commits/1": 'v1\n{"nextBatchWatermarkMs":7}',
        "sources/0/0": 'v1\n{"path":"file:///in/1.parquet","batchId":0}',
        "sources/0/1": 'v1\n{"path":"file:///in/2.parquet","batchId":1}',
        "state/0/_metadata/v2/0": f"v2\n{json.dumps(described)}",
        str(schema.relative_to(folder)): "schema",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    require_sound(str(folder))
    return folder


@pytest.mark.parametrize("how", ["empty", "half", "garbage", "gone"])
@pytest.mark.parametrize("name", ["metadata", "offsets/1", "commits/1", "sources/0/1"])
def test_a_damaged_file_of_a_checkpoint_is_named(checkpoint, name, how):
    file = checkpoint / name
    match how:
        case "gone":
            file.unlink()
        case "half":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        case _:
            file.write_bytes(b"" if how == "empty" else b"\x00\xff{")
    if (name, how) == ("commits/1", "gone"):
        require_sound(str(checkpoint))  # the micro-batch is done again
        return
    with pytest.raises(StateError) as raised:
        require_sound(str(checkpoint))
    assert f"is damaged: {name} is " in str(raised.value)
    assert ("is gone" in str(raised.value)) == (how == "gone")
    assert "hint: restore the folder" in str(raised.value)


def test_a_stream_that_is_read_twice_has_one_list_of_files(checkpoint):
    offsets = checkpoint / "offsets" / "1"
    offsets.write_text(offsets.read_text() + '\n{"logOffset":1}')
    require_sound(str(checkpoint))


def test_sources_that_are_not_files_have_no_list_of_them(checkpoint):
    shutil.rmtree(checkpoint / "sources")
    (checkpoint / "offsets" / "1").write_text('v1\n{"batchWatermarkMs":7}\n{"t":{"0":5}}\n-\n12')
    require_sound(str(checkpoint))


def test_a_list_of_files_may_be_compacted(checkpoint):
    shutil.move(checkpoint / "sources/0/1", checkpoint / "sources/0/1.compact")
    require_sound(str(checkpoint))


def test_a_checkpoint_of_something_else(checkpoint):
    (checkpoint / "state/0/_metadata/v2/0").write_text('v1\n{"operatorInfo":{"operatorId":0}}')
    with pytest.raises(StateError, match="no state of a query of Ensue"):
        require_sound(str(checkpoint))
    shutil.rmtree(checkpoint / "state")
    with pytest.raises(StateError, match="its folder state is gone"):
        require_sound(str(checkpoint))


def test_the_description_of_a_state_is_cut_short(checkpoint):
    (checkpoint / "state/0/_metadata/v2/0").write_text("v2\n{")
    with pytest.raises(StateError, match="state/0/_metadata/v2/0 is empty, cut short"):
        require_sound(str(checkpoint))


def test_a_checkpoint_that_was_moved(checkpoint, tmp_path):
    moved = tmp_path / "moved"
    shutil.move(checkpoint, moved)
    with pytest.raises(StateError, match=f"was begun as {checkpoint}"):
        require_sound(str(moved))


def test_folders_that_are_no_checkpoint(tmp_path):
    require_sound(str(tmp_path / "new"))
    require_sound("s3://somewhere/else")
    (tmp_path / "empty").mkdir()
    require_sound(str(tmp_path / "empty"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(StateError, match="is a file, and a checkpoint is a folder"):
        require_sound(str(tmp_path / "file"))
    pq.write_table(events("A0p"), tmp_path / "empty" / "1.parquet")
    with pytest.raises(StateError, match=r"is a folder of data: there is 1\.parquet"):
        require_sound(str(tmp_path / "empty"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_checkpoint_without_permission(checkpoint):
    checkpoint.chmod(0o500)
    try:
        with pytest.raises(StateError, match="no permission"):
            require_sound(str(checkpoint))
    finally:
        checkpoint.chmod(0o700)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("found", "found", "are the same folder"),
        ("found", "./found/", "are the same folder"),
        ("s3://b/found", "s3://b/found/state", "is inside the output"),
        ("found", "found/state", "is inside the output"),
        ("found", "found/_state", None),  # readers pass over it
        ("found/table", "found", None),
        ("found", "foundling", None),
        ("s3://b/found", "found", None),
    ],
)
def test_folders_are_apart(one, other, said):
    folders = [Folder("output", one, table=True), Folder("checkpoint", other)]
    if said is None:
        require_apart(folders)
        return
    with pytest.raises(EventError, match=said):
        require_apart(folders)


# ------------------------------------------------------------------------------ real streams


@pytest.mark.spark
def test_names_that_sinks_go_by_are_refused_where_they_are_written(source):
    source.add("A0p")
    for returned, named in (
        ("a.row AS match_id", "match_id"),
        ("a.row AS late_event", "late_event"),
        ("a.row AS Start", "'start' and 'Start' differ in capital letters only"),
        ("a.row AS x, b.row AS X", "'x' and 'X' differ in capital letters only"),
    ):
        for query in (f"{PAIRS} RETURN {returned}", {"one": f"{PAIRS} RETURN {returned}"}):
            with pytest.raises(QueryError, match=named) as raised:
                source.match(query)
            assert f"{' ' * (4 + len(PAIRS) + 8)}^" in str(raised.value)
    for variable in ("match_id", "late_event", "End"):
        with pytest.raises(QueryError, match=f"'{variable}'"):
            source.match(f"SEQ(A {variable}, B b) WHERE [k] WITHIN 10 seconds")
    with pytest.raises(QueryError, match="match_id"):
        source.match(TOWER + " RETURN x.start AS match_id")
    assert source.match(f"{PAIRS} RETURN a.row AS end").isStreaming


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["parquet", "delta"])
@pytest.mark.parametrize(
    "returned", ["a AS end, b.row AS row", "max(b.row), a.row AS `x.y`", "a.type = 'A' AS end"]
)
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


@pytest.mark.spark
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
    assert "  other: there bigint, here not a column\n" in str(raised.value)
    assert "  first: there not a column, here bigint\n" in str(raised.value)
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
    with pytest.raises(EventError, match="an output is a folder, a table, a topic or a function"):
        start(5)
    assert not (tmp_path / "checkpoint").exists()


def table_at(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder / "1.parquet"


@pytest.mark.spark
def test_streams_and_tables_do_not_go_together(source):
    stream = source.add("A0p").stream()
    for other in (events("B1p"), events("B1p").to_pylist()):
        with pytest.raises(EventError, match=r"streaming DataFrames and tables .*: A of these"):
            ensue.match({"A": stream, "B": other}, PAIRS, time="at", watermark="2 seconds")


@pytest.mark.spark
def test_what_remains_of_nothing(session, tmp_path):
    with pytest.raises(StateError, match="there is no checkpoint"):
        ensue.remaining(session, tmp_path / "nowhere")
    (tmp_path / "commits").mkdir()
    with pytest.raises(StateError, match="no micro-batch of a stream is done yet"):
        ensue.remaining(session, tmp_path)


@pytest.mark.spark
def test_matches_that_are_none_are_not_started(source, tmp_path):
    source.add("A0p")
    place = {"checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(EventError, match="not a NoneType"):
        ensue.start(None, tmp_path / "table", **place)
    with pytest.raises(EventError, match="has no column match_id"):
        ensue.start(source.stream(), tmp_path / "table", **place)
    with pytest.raises(RunnerError, match="every='soon' is not a length of time"):
        ensue.start(source.match(), tmp_path / "table", every="soon", **place)


@pytest.mark.spark
def test_a_checkpoint_is_not_for_another_kind_of_query(source, run, tmp_path):
    source.add("A0p A1q B2p")
    run(source.match())
    source.add("A3p")
    for query in (TOWER, {"one": PAIRS, "other": PAIRS.replace("[k]", "[type]")}):
        with pytest.raises(StateError, match="the checkpoint is that of another") as raised:
            run(source.match(query), tmp_path / "other")
        assert "hint: go on with the checkpoint that this stream has begun with" in str(
            raised.value
        )


@pytest.mark.spark
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
        ensue.wait(query)
    with pytest.raises(EventError, match="no usable time"):
        ensue.wait(query, 0)


@pytest.mark.slow
@pytest.mark.spark
def test_checkpoints_of_every_kind_are_told_apart(source, run, tmp_path):
    source.add("A0p A1q B2p", "B3q")
    kinds: dict[str, Any] = {
        "one query": PAIRS,
        "a query with definitions": ONE_KEY,
        "several queries": {
            "one": PAIRS,
            "other": PAIRS.replace("SEQ(A a, B b)", "SEQ(B a, A b)"),
        },
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
@pytest.mark.spark
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
@pytest.mark.spark
def test_two_streams_on_one_checkpoint(source, session, tmp_path):
    """By default Spark stops the first one; with this setting, or in two processes, it fails."""
    source.add("A0p A1q B2p")
    options = {"checkpoint": tmp_path / "checkpoint"}
    setting = "spark.sql.streaming.stopActiveRunOnRestart"
    session.conf.set(setting, "false")
    first = ensue.start(source.match(), tmp_path / "table", every="1 second", **options)
    try:
        with pytest.raises(RunnerError, match="another stream is at work with this checkpoint"):
            ensue.start(source.match(), tmp_path / "table", once=True, **options)
    finally:
        first.stop()
        session.conf.unset(setting)


@pytest.mark.slow
@pytest.mark.spark
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
@pytest.mark.spark
def test_a_function_and_an_operator_that_fail(source, run, tmp_path):
    source.add("A0p A1q B2p", "B20q")

    def write(matches: Any, batch: int) -> None:
        raise ValueError(f"no room for batch {batch}")

    with pytest.raises(RunnerError, match=r"ValueError: no room for batch 0\n  in .*\.py, line"):
        run(source.match(), write)
    bad = ensue.operator("bad_here", q=lambda a, b: 1 // (a.row - a.row) > b.row, known=False)
    query = "bad_here(A a, B b) r WHERE [k] WITHIN 10 seconds"
    with pytest.raises(ensue.EnsueError) as raised:
        run(source.match(query, operators=[bad]), checkpoint=tmp_path / "another")
    assert len(str(raised.value).splitlines()) < 4
