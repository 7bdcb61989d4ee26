"""`ensue run --stream`: events that keep coming, matches as they are found."""

import json
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import ensue
from ensue.cli.main import main
from ensue.cli.stream_progress import StreamTotals, TimeFormatter, build_counter_table, format_progress_line
from ensue.cli.terminal import get_message_console

QUERY = "SEQ(A a, B b) WHERE [id] WITHIN 5 minutes RETURN a.n AS first, b.n AS second"
MINUTE = 60_000_000


@pytest.fixture
def run(capsys):
    """Runs the command; returns exit code, standard output and standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main(["run", QUERY, *map(str, arguments)])
        except SystemExit as end:  # argparse ends so
            code = end.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def events(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "ts": pa.array([n * MINUTE // 2 for n in numbers], pa.timestamp("us", "UTC")),
            "kind": ["AB"[n // 3 % 2] for n in numbers],
            "id": [n % 3 for n in numbers],
            "n": list(numbers),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the first file of a stream."""
    folder = tmp_path / "events"
    folder.mkdir()
    pa.parquet.write_table(events(0, 40), folder / "1.parquet")
    return folder


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["first"], row["second"]) for row in rows)


# ------------------------------------------------------------------ without Spark: arguments


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "a stream needs --watermark"),
        (("--watermark", "10 fortnights"), "'fortnights' is not a unit of time"),
        (("--watermark", "1 s", "--flush"), "--flush needs --once"),
        (("--watermark", "1 s", "--once", "--every", "1 s"), "cannot be combined"),
        (("--watermark", "1 s", "--every", "soon"), "--every: 'soon' is not a length of time"),
        (("--watermark", "1 s", "--max-ahead", "soon"), "--max-ahead: 'soon' is not a length"),
        (("--watermark", "1 s", "--since", "2026-03-01"), "need --history"),
        (("--watermark", "1 s", "--allow-gap"), "need --history"),
        (("--watermark", "1 s", "--history", "past", "--since", "soon"), "neither a number nor"),
        (("--watermark", "1 s", "--output", "found.csv"), "delta:FOLDER"),
        (("--watermark", "1 s", "--output", "kafka://here"), "kafka://host:9092/topic"),
        (("--watermark", "1 s", "--output", "found", "--format", "json"), "--format"),
        (("--watermark", "1 s", "--format", "csv"), "table or json"),
        (("--watermark", "1 s", "--engine", "local"), "runs on Spark"),
        (("--watermark", "1 s", "--stream", "A=rate://5"), "to each --stream"),
        (("--watermark", "1 s", "--events", "x.csv"), "not allowed with"),
    ],
)
def test_arguments_that_do_not_go_together(run, arguments, said):
    code, out, err = run("--stream", "rate://10", *arguments)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("rate://many", 2, "write it like rate://1000"),
        ("kafka://127.0.0.1:9092", 2, "kafka://host:9092/topic"),
        ("nowhere", 3, "there is no folder"),
        ("nowhere/*.csv", 3, "there is no folder"),
        ("empty", 3, "hint: put a first file there"),
        ("empty/*.csv", 3, '--schema "ts timestamp, type string, ..."'),
        ("one.csv", 2, "is a file"),
    ],
)
def test_sources_that_are_none(run, tmp_path, source, code, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "one.csv").write_text("ts,kind\n")
    named = source if "://" in source else tmp_path / source
    ended, out, err = run("--stream", named, "--watermark", "10 s")
    assert (ended, out) == (code, "")
    assert said.lower() in err.lower()
    assert "Traceback" not in err


def test_an_empty_folder_with_a_schema_still_needs_to_know_the_kind_of_files(run, tmp_path):
    code, _, err = run("--stream", tmp_path, "--watermark", "1 s", "--schema", "ts timestamp")
    assert code == 3
    assert "*.parquet" in err


@pytest.mark.parametrize(
    "option",
    [
        ("--once",),
        ("--watermark", "1 s"),
        ("--late", "aside"),
        ("--max-ahead", "1 h"),
        ("--history", "past"),
        ("--since", "3"),
        ("--allow-gap",),
    ],
)
def test_options_of_streams_need_one(run, option):
    code, _, err = run("--events", "x.csv", *option)
    assert code == 2
    assert f"{option[0]} is only for --stream" in err


# ------------------------------------------------------------------- without Spark: counters


@pytest.fixture
def report():
    from ensue.backends.spark.stream_progress import BatchProgress

    shown: dict[str, Any] = {
        "input_rows": 10, "events": 8, "late": 1, "matches": 3, "partial_matches": 4,
        "state_bytes": 2_000, "seconds": 0.5, "matching_share": 0.25,
        "watermark": datetime(2026, 3, 14, 9, 0, 0, tzinfo=UTC), "lag_seconds": 10.0,
    }  # fmt: skip
    return BatchProgress(**{f.name: shown.get(f.name, 0) for f in fields(BatchProgress)})


def test_totals_count_every_micro_batch_once(report):
    totals = StreamTotals()
    reports = [replace(report, batch=number) for number in range(500)]
    for seen in range(0, 500, 40):  # Spark remembers the last 100
        totals.add(reports[max(0, seen - 100) : seen])
    new = totals.add(reports[400:])
    assert [p.batch for p in new][-1] == 499
    assert (totals.batches, totals.counts["input_rows"], totals.counts["matches"]) == (500, 5_000, 1_500)
    assert totals.add(reports[400:]) == []


def test_the_display_shows_what_there_is_to_know(report):
    totals = StreamTotals()
    totals.add([report])
    console = get_message_console()
    with console.capture() as shown:
        console.print(build_counter_table("here -> there", totals, 75.0, TimeFormatter()))
    for part in ("here -> there", "0:01:15", "20 a second", "2.0 kB", "25%", "10.0 s behind"):
        assert part in shown.get()


def test_a_line_for_logs_knows_times_that_are_numbers(report):
    told = replace(report, matches=1, ahead=2, before_cut=3, watermark=1_773_478_800_000)
    text = format_progress_line(told, TimeFormatter(numbers=True))
    assert "1 match," in text
    assert "2 ahead of the clock, 3 before the cut," in text
    assert "watermark 1,773,478,800,000, 10,000 behind the newest event" in text


# ------------------------------------------------------------------------------- with Spark


@pytest.fixture
def two_key_groups(spark):
    """Few tasks: most of the time of so small a stream is theirs."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.spark
def test_a_stream_that_ends_gives_the_matches_of_a_batch_run(run, two_key_groups, folder, tmp_path):
    whole = ensue.match(events(0, 40), QUERY, time="ts", type="kind").to_pylist()
    found, state = tmp_path / "found", tmp_path / "state"
    options = ("--stream", folder, "--type", "kind", "--watermark", "1 minute")
    options += ("--checkpoint", state, "--output", found, "--once", "--flush")
    code, out, err = run(*options)
    assert (code, out) == (0, ""), err
    assert "using 'ts' as the time" in err
    assert "micro-batch 0: 40 events" in err
    assert "at the end of the stream" in err
    assert f"to continue from the checkpoint {state}" in " ".join(err.split())
    assert pairs(pa.parquet.read_table(found).to_pylist()) == pairs(whole) != []


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_that_begins_with_a_history(run, two_key_groups, folder, tmp_path):
    past, found = tmp_path / "past", tmp_path / "found"
    past.mkdir()
    pa.parquet.write_table(events(0, 60), past / "1.parquet")
    pa.parquet.write_table(events(40, 40), folder / "2.parquet")  # 20 of them again
    (folder / "1.parquet").unlink()
    code, out, err = run(
        "--stream", folder, "--type", "kind", "--watermark", "1 minute", "--output", found,
        "--history", past, "--since", "1970-01-01T00:05:00", "--once", "--flush",
    )  # fmt: skip
    assert (code, out) == (0, ""), err
    assert "20 already in the history or the archive" in " ".join(err.split())
    whole = ensue.match(events(10, 70), QUERY, time="ts", type="kind").to_pylist()
    assert pairs(pa.parquet.read_table(found).to_pylist()) == pairs(whole) != []


@pytest.mark.slow
@pytest.mark.spark
def test_matches_are_printed_as_they_come(run, two_key_groups, folder):
    options = ("--stream", folder, "--type", "kind", "--watermark", "1 minute", "--once")
    code, out, err = run(*options)
    assert code == 0, err
    assert "the state is lost when the stream stops" in err
    whole = ensue.match(events(0, 40), QUERY, time="ts", type="kind").to_pylist()
    printed = pairs([json.loads(text) for text in out.splitlines()])
    assert printed == [pair for pair in pairs(whole) if pair[1] < 37]  # the watermark's minute


@pytest.mark.slow
@pytest.mark.spark
def test_an_event_without_time_ends_the_stream_in_two_lines(run, two_key_groups, folder):
    bad = events(0, 3).set_column(0, "ts", pa.nulls(3, pa.timestamp("us", "UTC")))
    pa.parquet.write_table(bad, folder / "2.parquet")
    code, out, err = run("--stream", folder, "--time", "ts", "--type", "kind", "--watermark", "1 s", "--once")
    assert (code, out) == (3, "")
    assert "3 events have no usable time" in err
    assert len(err.splitlines()) < 8
    assert "Traceback" not in err


@pytest.mark.spark
def test_a_source_that_cannot_be_read_is_named(run, spark, tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"not parquet")
    code, _, err = run("--stream", tmp_path, "--time", "ts", "--watermark", "1 s")
    assert code == 3
    assert "x.parquet" in err
    assert "\tat " not in err


@pytest.mark.spark
def test_folders_that_do_not_fit_are_named_before_anything_starts(run, two_key_groups, folder, tmp_path):
    options = ("--stream", folder, "--type", "kind", "--watermark", "1 minute", "--once")
    state, found = tmp_path / "state", tmp_path / "found"
    state.write_text("no folder")
    (tmp_path / "damaged" / "offsets").mkdir(parents=True)
    (tmp_path / "damaged" / "offsets" / "0").write_text("")
    found.mkdir()
    pa.parquet.write_table(pa.table({"match_id": ["x"], "other": [1]}), found / "1.parquet")
    for code, said, named in (
        (2, "is a file, and a checkpoint must be a folder", ("--checkpoint", state)),
        (2, "damaged: metadata is missing", ("--checkpoint", tmp_path / "damaged")),
        (4, "has other columns than these matches", ("--output", found)),
        (3, "the --stream and the --output are the same folder", ("--output", folder)),
        (3, "is inside the --stream", ("--output", folder / "found")),
    ):
        ended, out, err = run(*options, *named)
        assert (ended, out) == (code, "")
        assert said in " ".join(err.split())
        assert "hint: " in err
        assert "Traceback" not in err
        assert "\tat " not in err


def test_a_column_level_of_several_levels_needs_folders(tmp_path):
    from ensue.cli.stream import _target
    from ensue.cli.terminal import UsageError

    class Frame:
        columns = ("match_id", "level")

    with pytest.raises(UsageError, match="returns a column 'level'"):
        _target({"Pair": Frame(), "": Frame()}, None, "-")
    assert set(_target({"Pair": Frame(), "": Frame()}, None, str(tmp_path))) == {"Pair", ""}


@pytest.mark.spark
def test_a_schema_that_cannot_be_read(run, two_key_groups, folder):
    code, _, err = run("--stream", folder, "--watermark", "1 s", "--schema", "ts", "--time", "ts")
    assert code == 3
    assert "hint: write it like" in err
