"""The same answers over Spark Connect, where only the public DataFrame API exists.

A process has classic sessions or Connect sessions, so these run in one of their own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue

pytestmark = [pytest.mark.spark, pytest.mark.connect, pytest.mark.slow]

EVENTS = pa.table(
    {
        "at": [1, 2, 3, 4, 5, 6, 7, 8],
        "type": list("AABCABBA"),
        "k": list("pqpqppqq"),
        "x": [1.5, 2.5, None, 0.5, 4.5, 3.5, 2.0, 1.0],
    }
)
QUERIES = {
    "sequence": "SEQ(A a, B b) WHERE [k] WITHIN 5",
    "kleene": "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [k] and b.x > a[1].x }",
    "negation": "SEQ(A a, !C c, B b) WHERE [k] WITHIN 8",
    "return": "SEQ(A a, B b) WHERE [k] RETURN a.x AS low, b.x - a.x AS rise HAVING b.x > a.x",
    "whole stream": "SEQ(A a, B b) WHERE strict_contiguity(a, b) { 1 = 1 }",
}
CLAUSE = """
    SELECT m.match_id, m.k, m.n FROM events MATCH_RECOGNIZE (
        PARTITION BY k ORDER BY at MEASURES count(*) AS n
        PATTERN (L H+) WITHIN 100 DEFINE H AS x > PREV(x)
    ) AS m WHERE m.n > 1"""
COUNTERS = ("events", "before_cut", "partial_matches")
TABLES_QUERY = "SEQ(Shelf s, Exit e) WHERE [tag] RETURN s.weight AS w, e.weight AS v"

CLIENT = """
import json, sys, warnings
import pyarrow as pa
from pyspark.sql import SparkSession
import ensue

warnings.simplefilter("ignore")
task = json.load(sys.stdin)
session = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
assert type(session).__module__.startswith("pyspark.sql.connect"), type(session)
events = session.createDataFrame(pa.Table.from_pylist(task["events"]))
found = {}
for name, query in task["queries"].items():
    matches = ensue.match(events, query, time="at", type="type")
    columns = matches.columns  # before anything runs
    found[name] = {"columns": columns, "matches": matches.toArrow().to_pylist()}
tables = {
    "Shelf": session.createDataFrame([(1, "p", 10)], "at long, tag string, weight long"),
    "Exit": session.createDataFrame([(2, "p", "light")], "at long, tag string, weight string"),
}
matches = ensue.match(tables, task["tables query"], time="at").toArrow().to_pylist()
found["tables"] = {"matches": matches}

folder = task["folder"]
stream = session.readStream.schema(events.schema).option("maxFilesPerTrigger", 1)
stream = stream.parquet(folder + "/events")
matches = ensue.match(stream, task["queries"]["negation"], time="at", type="type", watermark=2)
ran = ensue.start(
    matches, folder + "/table", checkpoint=folder + "/checkpoint", once=True, flush=True,
    history=events.where("at < 3"),
)
progress = ran.progress()
found["stream"] = {"rows": sum(p.input_rows for p in progress), "batches": len(progress)}
found["stream"] |= {name: sum(getattr(p, name) for p in progress) for name in task["counters"]}

stream = session.readStream.schema(events.schema).parquet(folder + "/events")
rises = ensue.sql(task["clause"], tables={"events": stream}, watermark=2)
ensue.start(rises, folder + "/rises", checkpoint=folder + "/rising", once=True, flush=True)
with ensue.start(rises, folder + "/once", checkpoint=folder + "/running", name="rises") as running:
    named = (running.name, running.is_active, running.wait(0))
    running.finish(flush=True)
    found["running"] = [*named, running.is_active, running.wait(0), running.exception]
for wrong in ({"archives": {"past": events}}, {}):
    try:
        matches = ensue.match(
            stream, task["queries"]["sequence"], time="at", type="type", watermark=2, **wrong
        )
        ensue.start(matches, folder + "/a", checkpoint=folder + "/b", archive=events)
    except ensue.EnsueError as error:
        found.setdefault("archive", []).append(str(error))
print("ANSWER " + json.dumps(found))
session.stop()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A stream of the events, in two files."""
    folder = tmp_path_factory.mktemp("connect")
    (folder / "events").mkdir()
    half = EVENTS.num_rows // 2
    for number, part in enumerate((EVENTS.slice(0, half), EVENTS.slice(half))):
        path = folder / "events" / f"{number}.parquet"
        pq.write_table(part, path)
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads the oldest first
    return folder


@pytest.fixture(scope="module")
def answers(folder):
    """All answers of one Connect server, which starts and ends with its client."""
    source = str(Path(ensue.__file__).parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(paths), "SPARK_LOCAL_IP": "127.0.0.1"}
    task = {"events": EVENTS.to_pylist(), "queries": QUERIES, "tables query": TABLES_QUERY}
    task |= {"folder": str(folder), "clause": CLAUSE, "counters": COUNTERS}
    ended = subprocess.run(
        [sys.executable, "-c", CLIENT],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | settings,
        check=False,
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith("ANSWER ")]
    assert lines, ended.stderr[-4000:]
    return json.loads(lines[0].removeprefix("ANSWER ")) | {"printed": ended.stderr}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_it_gives_here(answers, name):
    here = ensue.match(EVENTS, QUERIES[name], time="at", type="type")
    assert answers[name]["columns"] == here.column_names

    def in_order(rows):
        return sorted(rows, key=lambda row: row["match_id"])

    assert in_order(answers[name]["matches"]) == in_order(here.to_pylist())
    assert here.num_rows > 0


def test_tables_by_type(answers):
    (row,) = answers["tables"]["matches"]
    assert (row["w"], row["v"]) == (10, "light")


def test_a_stream_with_a_history_gives_the_matches_of_the_batch_run(answers, folder):
    here = ensue.match(EVENTS, QUERIES["negation"], time="at", type="type")
    table = pq.read_table(folder / "table")
    assert sorted(table["match_id"].to_pylist()) == sorted(here["match_id"].to_pylist())
    assert answers["stream"]["rows"] == EVENTS.num_rows
    assert answers["stream"]["batches"] >= 2


def test_progress_counts(answers):
    counted = answers["stream"]
    assert counted["events"] + counted["before_cut"] == EVENTS.num_rows
    assert counted["partial_matches"] > 0


@pytest.mark.usefixtures("answers")
def test_what_is_left_of_a_stream_of_sql_goes_through_the_query(folder):
    here = ensue.sql(CLAUSE, tables={"events": EVENTS})
    given = pq.read_table(folder / "rises").select(here.column_names)
    assert sorted(map(str, given.to_pylist())) == sorted(map(str, here.to_pylist()))
    assert here.num_rows > 0


def test_a_running_stream_is_finished(answers, folder):
    assert answers["running"] == ["rises", True, False, False, True, None]
    rows = lambda place: sorted(map(repr, pq.read_table(folder / place).to_pylist()))
    assert rows("once") == rows("rises")


def test_a_frame_is_no_archive(answers):
    of_match, of_start = answers["archive"]
    assert "archives['past'] is no archive but of type DataFrame" in of_match
    assert "archive= must be the name of an archive" in of_start


def test_a_stream_starts_without_printing_its_schemas(answers):
    """What PySpark's own process prints for it goes to the terminal of the server."""
    assert "Received UDF from JVM" not in answers["printed"]
    assert "execution of UDF" not in answers["printed"]
