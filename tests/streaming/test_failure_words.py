"""What is said of a stream that cannot start or go on: by texts and files, without Spark."""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ensue.backends.spark.spark_errors import translate_error
from ensue.backends.spark.stream_folders import StreamFolder, check_checkpoint, require_separate
from ensue.errors import EventError, OperatorError, QueryError, RunnerError, StateError

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
IN_JAVA = (
    "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in "
    "foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message: "
    "Traceback (most recent call last):\n"
    '  File "/x/site-packages/py4j/protocol.py", line 327, in get_return_value\n'
    "    raise Py4JJavaError(\n"
    "py4j.protocol.Py4JJavaError: An error occurred while calling o1922.parquet.\n"
    ": org.apache.spark.SparkException: {}\n"
    "\tat org.apache.spark.scheduler.Task.run(Task.scala:147)\n"
    "Caused by: org.apache.hadoop.fs.FSError: {}\n\t... 41 more\n"
)
NO_SPACE = "java.io.IOException: No space left on device"
FULL_OUTPUT = IN_JAVA.format(
    "[TASK_WRITE_FAILED] Task failed while writing rows to file:/out/t. SQLSTATE: 58030", NO_SPACE
)
FULL_STATE = IN_JAVA.format(
    "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing state store files. SQLSTATE: 58030", NO_SPACE
)
STATE_GONE = (
    "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent "
    "call last):\n"
    '  File "/x/pyspark/sql/streaming/stateful_processor_api_client.py", line 490, in _receive\n'
    "    length = read_int(self.sockfile)\n"
    '  File "/x/pyspark.zip/pyspark/serializers.py", line 606, in read_int\n'
    "    raise EOFError\nEOFError\n"
)
SAYINGS = [
    (
        NOT_MATCH.format(OURS, OURS.replace(")]", f"){TWICE}]")), StateError,
        "its state has 1 part, and that of this query 2 parts",
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
        "another stream is using this checkpoint",
    ),
    (
        "Failed to read log file file:/data/state/commits/2. Incomplete log file", StateError,
        "damaged: /data/state/commits/2 is missing, empty",
    ),
    ("Unexpected end-of-input in field name", StateError, "a file of its logs"),
    ("Unexpected character ('w' (code 119)): was expecting", StateError, "a file of its logs"),
    (
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.",
        StateError, "a file of its state is missing",
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
        "the column row of the file /in/2.parquet has another type: here bigint, there BINARY",
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
        "no micro-batch has finished",
    ),
    (FULL_OUTPUT, RunnerError, "the disk is full: Spark cannot write the output /out/t"),
    (FULL_STATE, RunnerError, "the disk is full: Spark cannot write the state of the checkpoint"),
    (NO_SPACE, RunnerError, "the disk is full"),
    ("OSError: No space left on device: '/mnt/x'", RunnerError, "cannot write /mnt/x"),
    (STATE_GONE, RunnerError, "the state store has failed"),
    ("Python worker failed to connect back.", RunnerError, "did not start in time"),
    ("", RunnerError, "Spark failed without giving a reason"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "said"), SAYINGS)
def test_what_spark_says_in_a_line_or_two(text, kind, said):
    error = translate_error(Exception(failed_with(text)))
    assert type(error) is kind
    problem, _, hint = str(error).partition("\n  hint: ")
    assert said in problem
    assert hint
    for noise in ("SQLSTATE", "STREAM_FAILED", "\tat ", "file:/", "["):
        assert noise not in str(error)


def test_what_nobody_has_met_is_said_as_spark_says_it():
    error = translate_error(Exception(failed_with("[NEW_CONDITION] Something new.")))
    assert (type(error), str(error)) == (RunnerError, "Something new.")


def test_what_java_says_where_a_sink_called_it_is_said_with_its_cause():
    text = IN_JAVA.format("[TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030", "read-only disk")
    assert str(translate_error(Exception(failed_with(text)))) == "Task failed: read-only disk"


def test_texts_of_a_query_are_no_reason():
    """Spark ends with the plan of the query, whose conditions may hold any text."""
    plan = "Logical Plan:\n+- Filter (message = No space left on device)"
    error = translate_error(Exception(failed_with("[NEW_CONDITION] Something new.") + plan))
    assert (type(error), str(error)) == (RunnerError, "Something new.")


@pytest.mark.parametrize(
    ("name", "kind"), [("EventError", EventError), ("OperatorError", OperatorError), ("StateError", StateError)]
)
def test_errors_of_ours_come_through(name, kind):
    text = in_foreach_batch(f"ensue.errors.{name}: no such thing", "  then: 2", "  hint: repair or remove it")
    error = translate_error(Exception(text))
    assert (type(error), str(error)) == (kind, "no such thing\n  then: 2\n  hint: repair or remove it")


def test_a_query_error_of_a_worker_keeps_its_place():
    said = str(QueryError("no field 'y'", hint="x?", span=None).at(None, None))
    error = translate_error(Exception(in_foreach_batch(*f"ensue.errors.QueryError: {said}".splitlines())))
    assert (type(error), str(error)) == (QueryError, said)


def test_an_error_in_a_function_of_the_user_names_its_place():
    text = in_foreach_batch('  File "/home/me/job.py", line 7, in write', "    1 / 0", "Oops: no")
    assert str(translate_error(Exception(text))) == "Oops: no\n  in /home/me/job.py, line 7"


def test_an_error_of_spark_in_a_sink_is_said_without_its_stack():
    text = in_foreach_batch(
        "pyspark.errors.exceptions.captured.AnalysisException: [COLUMN_ALREADY_EXISTS] The column "
        "`start` already exists. SQLSTATE: 42711"
    )
    assert str(translate_error(Exception(text))) == "The column `start` already exists."


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
        "sources/0/0": f'v1\n{{"path":"{tmp_path.as_uri()}/1.parquet","batchId":0}}',
        "sources/0/1": f'v1\n{{"path":"{tmp_path.as_uri()}/2.parquet","batchId":1}}',
        "state/0/_metadata/v2/0": f"v2\n{json.dumps(described)}",
        str(schema.relative_to(folder)): '\0\2v3\0ensue_head\0{"type":"struct"}\0{"fields":[]}',
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in ("1.parquet", "2.parquet"):
        (tmp_path / name).touch()
    check_checkpoint(str(folder))
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
        check_checkpoint(str(checkpoint))  # the micro-batch is done again
        return
    with pytest.raises(StateError) as raised:
        check_checkpoint(str(checkpoint))
    assert f"is damaged: {name} is " in str(raised.value)
    assert ("is missing" in str(raised.value)) == (how == "gone")
    assert "hint: restore the folder" in str(raised.value)


@pytest.mark.parametrize("done", [-1, 0, 1])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_file_that_is_to_be_read_again_must_be_there(checkpoint, tmp_path, done, compacted):
    """Spark would pass over it."""
    there, gone = tmp_path / "there 1.parquet", tmp_path / "gone 2.parquet"
    there.touch()
    entries = [json.dumps({"path": file.as_uri(), "batchId": k}) for k, file in enumerate((there, gone))]
    source = checkpoint / "sources" / "0"
    if compacted:
        shutil.rmtree(source)
        source.mkdir()
        (source / "1.compact").write_text("\n".join(["v1", *entries]))
    else:
        for k, entry in enumerate(entries):
            (source / str(k)).write_text(f"v1\n{entry}")
    for number in range(done + 1, 2):
        (checkpoint / "commits" / str(number)).unlink()
    if done == 1:
        check_checkpoint(str(checkpoint))  # it was read: who removes it then may do so
        return
    with pytest.raises(StateError, match=r"still has to read is missing: .*/gone 2\.parquet"):
        check_checkpoint(str(checkpoint))
    gone.touch()
    check_checkpoint(str(checkpoint))


def test_a_stream_that_is_read_twice_has_one_list_of_files(checkpoint):
    offsets = checkpoint / "offsets" / "1"
    offsets.write_text(offsets.read_text() + '\n{"logOffset":1}')
    check_checkpoint(str(checkpoint))


def test_sources_that_are_not_files_have_no_list_of_them(checkpoint):
    shutil.rmtree(checkpoint / "sources")
    (checkpoint / "offsets" / "1").write_text('v1\n{"batchWatermarkMs":7}\n{"t":{"0":5}}\n-\n12')
    check_checkpoint(str(checkpoint))


def test_a_list_of_files_may_be_compacted(checkpoint):
    shutil.move(checkpoint / "sources/0/1", checkpoint / "sources/0/1.compact")
    check_checkpoint(str(checkpoint))


def test_a_checkpoint_of_something_else(checkpoint):
    (checkpoint / "state/0/_metadata/v2/0").write_text('v1\n{"operatorInfo":{"operatorId":0}}')
    with pytest.raises(StateError, match="no state of an Ensue query"):
        check_checkpoint(str(checkpoint))
    shutil.rmtree(checkpoint / "state")
    with pytest.raises(StateError, match="its state folder is missing"):
        check_checkpoint(str(checkpoint))


@pytest.mark.parametrize("how", ["empty", "half", "overwritten"])
@pytest.mark.parametrize("name", ["_metadata/v2/0", "_stateSchema/default/0_4b1e"])
def test_the_description_of_a_state_is_damaged(checkpoint, name, how):
    """Of most of these Spark gives no reason."""
    file = checkpoint / "state" / "0" / name
    text = file.read_text()
    damages = {"empty": "", "half": text[: len(text) // 2], "overwritten": text.replace('":', "w:")}
    file.write_text(damages[how])
    with pytest.raises(StateError, match=f"state/0/{name} is empty, truncated or overwritten"):
        check_checkpoint(str(checkpoint))


def test_a_checkpoint_that_was_moved(checkpoint, tmp_path):
    moved = tmp_path / "moved"
    shutil.move(checkpoint, moved)
    with pytest.raises(StateError, match=f"was begun as {checkpoint}"):
        check_checkpoint(str(moved))


def test_folders_that_are_no_checkpoint(tmp_path):
    check_checkpoint(str(tmp_path / "new"))
    check_checkpoint("s3://somewhere/else")
    (tmp_path / "empty").mkdir()
    check_checkpoint(str(tmp_path / "empty"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(StateError, match="is a file, and a checkpoint must be a folder"):
        check_checkpoint(str(tmp_path / "file"))
    pq.write_table(pa.table({"at": [1]}), tmp_path / "empty" / "1.parquet")
    with pytest.raises(StateError, match=r"is a folder of data: it contains 1\.parquet"):
        check_checkpoint(str(tmp_path / "empty"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_checkpoint_without_permission(checkpoint):
    checkpoint.chmod(0o500)
    try:
        with pytest.raises(StateError, match="no permission"):
            check_checkpoint(str(checkpoint))
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
    folders = [StreamFolder("output", one, table=True), StreamFolder("checkpoint", other)]
    if said is None:
        require_separate(folders)
        return
    with pytest.raises(EventError, match=said):
        require_separate(folders)
