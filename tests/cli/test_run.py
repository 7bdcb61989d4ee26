"""`ensue run`: events from files, matches to the terminal and to files."""

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from ensue.cli.main import main

QUERY = "SEQ(A a, B b) WHERE [id] WITHIN 5 minutes"
RETURNING = QUERY + " RETURN a.price AS before, b.price AS after"
LINES = [
    "ts,kind,id,price",
    "2026-03-14T09:00:00Z,A,1,3.5",
    "2026-03-14T09:01:00Z,B,1,4",
    "2026-03-14T09:01:30Z,A,2,",
    "2026-03-14T09:02:00Z,B,2,5",
]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    file = tmp_path / "events.csv"
    file.write_text("\n".join(LINES) + "\n")
    return file


@pytest.fixture
def run(capsys):
    """Runs the command; returns exit code, standard output and standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse ends so
            code = end.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def json_lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_matches_go_to_stdout_and_all_else_to_stderr(run, events):
    code, out, err = run("run", QUERY, "--events", events, "--type", "kind", "--format", "json")
    assert code == 0
    assert [m["a"]["id"] for m in json_lines(out)] == [1, 2]
    assert "using 'ts' as the time" in err
    assert "2 matches" in err


def test_a_table_shows_nested_events_and_how_many_more(run, events):
    code, out, _ = run("run", QUERY, "--events", events, "--type", "kind", "--limit", 1)
    assert code == 0
    assert "{ts: 2026-03-14 09:00:00, kind: A, id: 1, price: 3.5}" in out
    assert "... and 1 more" in out


def test_json_has_iso_times_and_nulls(run, events):
    _, out, _ = run("run", QUERY, "--events", events, "--type", "kind", "--format", "json")
    second = json_lines(out)[1]
    assert second["a"]["price"] is None
    assert second["a"]["ts"].startswith("2026-03-14T09:01:30")


def test_csv_flattens_events_into_columns(run, events):
    _, out, _ = run("run", QUERY, "--events", events, "--type", "kind", "--format", "csv")
    table = pa.csv.read_csv(io.BytesIO(out.encode()))
    assert {"a.price", "b.price", "start", "end"} <= set(table.column_names)
    assert table["b.price"].to_pylist() == [4, 5]


def test_plain_columns_in_the_place_of_whole_events(run, events, tmp_path):
    target = tmp_path / "found.parquet"
    given = ("--events", events, "--type", "kind", "--output", target, "--flat")
    assert run("run", QUERY, *given)[0] == 0
    table = pa.parquet.read_table(target)
    assert {"a.price", "b.price"} <= set(table.column_names)
    assert not any(pa.types.is_struct(field.type) for field in table.schema)


def test_the_ending_of_the_output_chooses_the_format(run, events, tmp_path):
    target = tmp_path / "found.parquet"
    code, out, err = run("run", QUERY, "--events", events, "--type", "kind", "--output", target)
    assert (code, out) == (0, "")
    assert str(target) in err
    assert pa.parquet.read_table(target).num_rows == 2


def test_no_match_is_fine(run, events):
    query = QUERY.replace("5 minutes", "1 s")
    code, out, err = run("run", query, "--events", events, "--type", "kind", "--format", "json")
    assert (code, out) == (0, "")
    assert "0 matches" in err


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "jsonl", "ndjson", "json", "parquet"])
def test_every_kind_of_file_gives_the_same_matches(run, tmp_path, ending):
    table = pa.csv.read_csv(io.BytesIO("\n".join(LINES).encode()))
    file = tmp_path / f"events.{ending}"
    match ending:
        case "csv":
            file.write_text("\n".join(LINES))
        case "csv.gz":
            file.write_bytes(gzip.compress("\n".join(LINES).encode()))
        case "tsv":
            file.write_text("\n".join(LINES).replace(",", "\t"))
        case "parquet":
            pa.parquet.write_table(table, file)
        case _:
            rows = [row | {"ts": row["ts"].isoformat()} for row in table.to_pylist()]
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--events", file, "--type", "kind", "--format", "json")
    code, out, _ = run("run", RETURNING, *options)
    assert code == 0
    found = [(m["before"], m["after"]) for m in json_lines(out)]
    assert found == [(3.5, 4), (None, 5)]


def test_a_folder_of_files_is_one_stream(run, tmp_path):
    folder = tmp_path / "day"
    folder.mkdir()
    (folder / "1.csv").write_text("\n".join(LINES[:2]))
    (folder / "2.csv").write_text("\n".join([LINES[0], *LINES[2:]]))
    _, out, _ = run("run", QUERY, "--events", folder, "--type", "kind", "--format", "json")
    assert len(json_lines(out)) == 2


def test_several_files_are_one_stream(run, tmp_path):
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    first.write_text("\n".join(LINES[:2]))
    second.write_text("\n".join([LINES[0], *LINES[2:]]))
    files = ("--events", first, "--events", second)
    _, out, _ = run("run", QUERY, *files, "--type", "kind", "--format", "json")
    assert len(json_lines(out)) == 2


def test_a_file_for_each_event_type(run, tmp_path):
    before, after = tmp_path / "a.csv", tmp_path / "b.csv"
    before.write_text("ts,id\n2026-03-14T09:00:00Z,1\n")
    after.write_text("ts,id,price\n2026-03-14T09:01:00Z,1,4\n")
    files = ("--events", f"A={before}", "--events", f"B={after}")
    code, out, _ = run("run", QUERY, *files, "--format", "json")
    assert code == 0
    assert json_lines(out)[0]["b"]["price"] == 4


def test_the_query_may_be_a_file_or_standard_input(run, events, tmp_path, monkeypatch):
    file = tmp_path / "pairs.ensue"
    file.write_text(QUERY)
    options = ("--events", events, "--type", "kind", "--format", "json")
    _, from_file, _ = run("run", file, *options)
    monkeypatch.setattr(sys, "stdin", io.StringIO(QUERY))
    _, from_input, _ = run("run", "-", *options)
    assert from_file == from_input != ""


def test_a_wrong_query_is_underlined(run, events):
    code, out, err = run("run", "SEQ(A a, B b", "--events", events, "--type", "kind")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "^" in err
    assert "Traceback" not in err


def test_an_unknown_field_is_underlined_with_a_hint(run, events):
    query = "SEQ(A a, B b) WHERE a.pric > 3 WITHIN 5 minutes"
    code, _, err = run("check", query, "--events", events, "--type", "kind")
    assert code == 2
    assert "^^^^^^" in err
    assert "did you mean 'price'?" in err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.csv", None),
        ("events.xlsx", b"PK"),
        ("events.parquet", b"not parquet"),
        ("events.csv", b"a,b\n1\n2,3,4\n"),
        ("events.json", b'[\n{"ts": 1}\n'),
        ("empty.csv", b""),
    ],
)
def test_unreadable_events_are_named(run, tmp_path, name, content):
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    code, out, err = run("run", QUERY, "--events", file, "--time", "ts", "--type", "kind")
    assert (code, out) == (3, "")
    assert name in err
    assert "Traceback" not in err


def test_the_time_must_be_named_where_several_columns_could_be_it(run, tmp_path):
    file = tmp_path / "stays.csv"
    file.write_text("came,went,kind,id\n2026-03-14T09:00:00Z,2026-03-14T09:10:00Z,A,1\n")
    code, _, err = run("run", QUERY, "--events", file, "--type", "kind")
    assert code == 2
    assert "came, went" in err
    code, _, _ = run("run", QUERY, "--events", file, "--type", "kind", "--time", "came,went")
    assert code == 0


def test_a_column_that_is_not_there_is_no_traceback(run, events):
    code, _, err = run("run", QUERY, "--events", events, "--time", "nope", "--type", "kind")
    assert code in (2, 3)
    assert "nope" in err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("fly",),
        ("run", QUERY),
        ("run", "missing.ensue", "--events", "x.csv"),
        ("run", "  ", "--events", "x.csv"),
        ("run", QUERY, "--events", "A=a.csv", "--events", "b.csv"),
        ("run", QUERY, "--events", "x.csv", "--limit", "0"),
        ("explain", QUERY, "--time", "ts"),
    ],
)
def test_wrong_usage_ends_with_2(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "error" in err


def test_an_output_that_cannot_be_written(run, events, tmp_path):
    target = tmp_path / "no" / "such" / "folder.csv"
    code, _, err = run("run", QUERY, "--events", events, "--type", "kind", "--output", target)
    assert code == 2
    assert "cannot write" in err


def test_explain_prints_the_plan_and_draws_it(run, tmp_path):
    picture = tmp_path / "plan.svg"
    code, out, _ = run("explain", QUERY, "--picture", picture)
    assert code == 0
    assert out.strip()
    assert "<svg" in picture.read_text()


def test_explain_prints_the_kernel(run, events):
    code, out, _ = run("explain", QUERY, "--kernel", "--events", events, "--type", "kind")
    assert code == 0
    assert "# The kernel of\n#   PATTERN" in out
    assert "def step(" in out


def test_check_says_ok(run, events):
    assert run("check", QUERY)[:2] == (0, "ok: the query is valid\n")
    with_events = run("check", QUERY, "--events", events, "--type", "kind")
    assert with_events[:2] == (0, "ok: the query fits the events\n")


def test_ctrl_c_ends_with_130(run, events, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ensue.cli.inputs.read_local", interrupted)
    code, _, err = run("run", QUERY, "--events", events)
    assert code == 130
    assert "Traceback" not in err


def test_help_names_the_exit_codes(run):
    code, out, _ = run("run", "--help")
    assert code == 0
    assert "exit codes:" in out


def test_without_java_the_remedy_is_said(events):
    """In a process of its own: Spark may be running in this one."""
    hidden = {k: v for k, v in os.environ.items() if k not in ("PATH", "JAVA_HOME")}
    command = [sys.executable, "-m", "ensue.cli", "run", QUERY, "--events", str(events)]
    ended = subprocess.run(
        [*command, "--engine", "spark", "--type", "kind"],
        env=hidden | {"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 4, ended.stderr
    assert "Java" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.spark
def test_spark_gives_the_same_matches(run, events, tmp_path):
    options = ("--events", events, "--type", "kind")
    _, here, _ = run("run", RETURNING, *options, "--format", "json")
    code, there, _ = run("run", RETURNING, *options, "--format", "json", "--engine", "spark")
    assert code == 0

    def prices(text: str) -> list[tuple]:
        found = [(m["before"], m["after"]) for m in json_lines(text)]
        return sorted(found, key=lambda pair: pair[1])

    assert prices(there) == prices(here)
    folder = tmp_path / "found.parquet"
    code, _, _ = run("run", RETURNING, *options, "--engine", "spark", "--output", folder)
    assert code == 0
    assert pa.parquet.read_table(folder).num_rows == 2


@pytest.mark.spark
def test_empty_cells_are_null_on_spark_as_here(run, tmp_path):
    file = tmp_path / "events.csv"
    keys = ("x", "", '""', "x", "y")
    rows = [f"{n},{'AB'[n % 2]},{keys[n % 5]},{n if n % 3 else ''}" for n in range(60)]
    file.write_text("\n".join(["at,kind,key,price", *rows, ""]))
    for condition in ("[key]", "a.key != b.key AND NOT (b.price > 30)"):
        query = f"SEQ(A a, B b) WHERE {condition} WITHIN 20"
        options = ("--events", file, "--time", "at", "--type", "kind", "--format", "json")
        code, here, _ = run("run", query, *options)
        assert code == 0
        _, there, _ = run("run", query, *options, "--engine", "spark")
        assert sorted(m["match_id"] for m in json_lines(here)) == sorted(m["match_id"] for m in json_lines(there))
        assert json_lines(here)


def test_several_queries_share_a_scan_and_have_a_file_each(run, events, tmp_path):
    named = tmp_path / "pairs.ensue"
    named.write_text(RETURNING)
    folder = tmp_path / "found"
    code, _, err = run(
        "run", named, "EVENT Dear AS SEQ(B b, A a)", "--events", events, "--type", "kind",
        "--output", folder, "--format", "json",
    )  # fmt: skip
    assert code == 0
    assert sorted(p.name for p in folder.iterdir()) == ["query1.jsonl", "query2.jsonl"]
    assert [m["after"] for m in json_lines((folder / "query1.jsonl").read_text())] == [4.0, 5.0]
    assert "query2: 1 match" in err
    code, out, err = run(
        "run", "EVENT Up AS " + RETURNING, "EVENT Dear AS SEQ(B b, A a)", "--events", events,
        "--type", "kind",
    )  # fmt: skip
    assert code == 0
    assert "before" in out
    assert "Up: 2 matches" in out


def test_names_of_several_queries_are_those_of_files(run, events, tmp_path):
    """Of query files with odd names, and of texts with a dot in them, which are no files."""
    asked = ("--events", events, "--type", "kind", "--output", tmp_path / "found")
    for name in ("...ensue", "A.ensue", "a.ensue"):
        (tmp_path / name).write_text(QUERY)
    code, _, err = run("run", tmp_path / "...ensue", tmp_path / "a.ensue", *asked)
    assert code == 2, err
    assert "query '..': its name cannot be used for a folder" in err
    code, _, err = run("run", tmp_path / "A.ensue", tmp_path / "a.ensue", *asked)
    assert code == 2, err
    assert "share the folder" in err
    assert not (tmp_path / "found").exists()
    dotted = QUERY.replace("[id]", "[id] and a.price > 0.5")
    assert run("run", dotted, dotted.replace("0.5", "0.25"), *asked)[0] == 0
    assert sorted(p.stem for p in (tmp_path / "found").iterdir()) == ["query1", "query2"]


def test_hidden_files_of_a_folder_are_left_out_whatever_reads_it(run, tmp_path):
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "_later.csv").write_text("\n".join(LINES))
    code, _, err = run("run", QUERY, "--events", folder, "--type", "kind")
    assert code == 3
    assert "start with _ or . are ignored" in err
    (folder / "1.csv").write_text("\n".join(LINES))
    code, _, err = run("run", QUERY, "--events", folder, "--type", "kind")
    assert code == 0, err
    assert "skipped 1 file" in err


def test_several_queries_need_a_place_each(run, events, tmp_path):
    code, _, err = run("run", QUERY, RETURNING, "--events", events, "--format", "json")
    assert code == 2
    assert "need a folder" in err
    code, _, err = run("run", QUERY, RETURNING, "--stream", tmp_path, "--watermark", "1 s")
    assert code == 2
    assert "takes one query" in err


def test_bounds_are_options_and_warnings_are_plain(events):
    """In a process of its own: pytest catches warnings before they are shown."""
    command = ["run", "SEQ(A+ a[], C c)", "--events", str(events), "--type", "kind"]
    command += ["--max-matches", "1"]
    code = f"from ensue.cli.main import main; raise SystemExit(main({command}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0
    assert "warning: no event is of type 'C': known here: A, B\n" in found.stderr


def test_a_query_that_finds_too_much_ends_with_a_hint(run, events):
    query = "SEQ(A+ a[], B b)"
    code, _, err = run("run", query, "--events", events, "--type", "kind", "--max-matches", 1)
    assert code == 2
    assert "max_matches=1 allows" in err
    assert "LIMIT n" in err


JOINED = (
    "SEQ(B b) LEFT JOIN ARCHIVE old SEQ(A o) RANGE 1 day BEFORE START LAST 1 ON [id] "
    "RETURN b.id AS id, o.price AS before"
)


@pytest.mark.parametrize("made", [False, True])
def test_a_query_that_looks_into_an_archive(run, events, tmp_path, made):
    past = tmp_path / "past.csv"
    past.write_text("ts,kind,id,price\n2026-03-14T08:00:00Z,A,1,2.5\n")
    place = tmp_path / "past.parquet"
    if made:
        columns = ("--time", "ts", "--type", "kind", "--key", "id")
        assert run("archive", "create", place, "--events", past, *columns)[0] == 0
    else:
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(past), place)
    given = ("--events", events, "--type", "kind", "--archive", f"old={place}")
    code, out, _ = run("run", JOINED, *given, "--archive-key", "id", "--format", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(row["id"], row["before"]) for row in rows] == [(1, 2.5), (2, None)]
    assert "access " in run("explain", JOINED, *given)[1]
    assert run("check", JOINED, *given)[1] == "ok: the query fits the events\n"


def test_an_archive_that_is_not_named_rightly(run, events):
    code, _, err = run("run", JOINED, "--events", events, "--archive", "old")
    assert code == 2
    assert "as in --archive trades=/data/trades" in err
    code, _, err = run("run", JOINED, "--events", events, "--access", "lazy")
    assert code == 2
    assert "--access is for archives: name one with --archive" in err


def test_parameters_are_typed_by_how_they_are_written(run, events):
    query = "SEQ(A a, B b) WHERE [id] and a.id IN :ids and b.price > :low WITHIN :gap"
    query += " RETURN b.price AS p"
    given = ["--events", events, "--type", "kind", "--format", "json"]
    params = ["--param", "ids=1", "--param", "ids=2", "--param", "low=4.5", "--param", "gap=5 minutes"]
    code, out, _ = run("run", query, *given, *params)
    assert (code, [json.loads(line)["p"] for line in out.splitlines()]) == (0, [5.0])
    code, _, err = run("run", query, *given, *params[:-2])
    assert code == 2
    assert "no value is given for :gap" in err
    assert "--param gap=..." in err
    code, _, err = run("check", "A a", "--param", "gap=5")
    assert (code, "no query here has the parameter :gap" in err) == (2, True)
    code, _, err = run("check", "A a", "--param", "5 minutes")
    assert (code, "--param NAME=VALUE" in err) == (2, True)


def test_parameters_of_sql(run, tmp_path):
    file = tmp_path / "prices.csv"
    file.write_text("day,price\n1,1\n2,2\n3,3\n")
    clause = "MATCH_RECOGNIZE (ORDER BY day MEASURES LAST(day) AS day PATTERN (S U+) DEFINE U AS price > :low)"
    query = f"SELECT day, :label AS label FROM prices {clause}"
    given = ["--table", file, "--param", "low=1", "--param", "label=5 o'clock"]
    code, out, err = run("run", query, *given, "--format", "json")
    assert (code, out and json.loads(out)) == (0, {"day": 3, "label": "5 o'clock"}), err
    code, out, err = run("explain", query, *given)
    assert (code, "PATTERN" in out.upper()) == (0, True), err


def test_rows_that_are_no_matches_are_counted_as_rows(tmp_path, capsys):
    path = tmp_path / "events.csv"
    path.write_text("at,type\n1,A\n2,B\n3,B\n")
    query = "SEQ(A a, B b) RETURN TOTAL COUNT(*) AS n"
    assert main(["run", query, "--events", str(path), "--time", "at", "--type", "type"]) == 0
    said = capsys.readouterr()
    assert "2" in said.out
    assert "1 row in" in said.err
