"""Text files as people have them: other delimiters, other times, words for nothing, many files."""

import bz2
import datetime as dt
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.backends.text_columns import CellKind, TextFileOptions, parse_time_format
from ensue.backends.text_files import cast_times, find_unreadable_rows, to_iso_form
from ensue.cli.inputs import read_local, read_spark, resolve_event_files
from ensue.cli.main import main
from ensue.cli.terminal import ExitCode, UsageError
from ensue.errors import EventError

NOON = dt.datetime(2026, 3, 14, 12, 5)
DAY = "%d.%m.%Y %H:%M"
QUERY = "SEQ(A a, B b) RETURN a.x AS x, b.x AS y"

# format, text, what Python's strptime makes of it
FORMATS = {
    "%d.%m.%Y %H:%M": "14.03.2026 12:05",
    "%m/%d/%Y %I:%M %p": "3/14/2026 12:05 PM",
    "%d-%b-%y %H:%M:%S": "14-Mar-26 12:05:00",
    "%A, %d %B %Y %H.%M": "Saturday, 14 march 2026 12.05",
    "%Y%m%dT%H%M": "20260314T1205",
    "%H:%M on %F": "12:05 on 2026-03-14",
    "%Y-%m-%dT%H:%M:%S.%f%z": "2026-03-14T13:05:00.000+01:00",
    "100%% %d.%m.%Y %R": "100% 14.03.2026 12:05",
}


@pytest.mark.parametrize("format", FORMATS)
def test_times_of_a_format(format):
    found = to_iso_form(pa.chunked_array([[FORMATS[format], None, "x"]]), parse_time_format(format))
    kind = CellKind.INSTANT if "%z" in format else CellKind.TIMESTAMP
    times = cast_times(found, kind).to_pylist()
    assert [t and t.replace(tzinfo=None) for t in times] == [NOON, None, None]


@given(
    st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2068, 12, 31)),
    st.sampled_from(["%d.%m.%Y %H:%M:%S.%f", "%y%m%d %I %M %S %p %f", "%b %d %Y %H %M %S %f", "%B/%d/%y %H:%M"]),
)
def test_what_strftime_writes_is_read_as_strptime_reads_it(time, format):
    text = time.strftime(format)
    found = to_iso_form(pa.chunked_array([[text]]), parse_time_format(format))
    assert cast_times(found, CellKind.TIMESTAMP).to_pylist() == [dt.datetime.strptime(text, format)]


@pytest.mark.parametrize(
    ("format", "why"),
    [
        ("%d.%m.%Y %k", "unknown directive %k"),
        ("%d.%m %H:%M", "lacks the year"),
        ("%Y %H:%M", "lacks the month"),
        ("%d.%m.%Y %y", "has the same part twice: %Y and %y"),
        ("%d.%m.%Y %I:%M", "one of %I and %p"),
        ("%d.%m.%Y %H:%M %Z", "zone names are ambiguous"),
        ("%d.%m.%Y %", "unknown directive %"),
    ],
)
def test_a_format_that_cannot_be_read_says_why(format, why):
    with pytest.raises(EventError, match=why):
        parse_time_format(format)


def test_the_texts_that_are_no_times():
    format = parse_time_format("%d.%m.%Y")
    given = pa.chunked_array([["1.1.2026", None], ["31.2.2026", "x"]])
    bad = find_unreadable_rows(given, lambda t: cast_times(to_iso_form(t, format), CellKind.TIMESTAMP))
    assert bad == [2, 3]


# ------------------------------------------------------------------------------- files


def written(folder: Path) -> dict[str, Path]:
    """The same events, four a file, in files of several kinds."""
    rows = [("14.03.2026 12:05", "A", "NA"), ("14.03.2026 12:06", "B", "3")]
    text = "\n".join(["when;kind;x", *(";".join(row) for row in rows), ""]).encode()
    lines = [json.dumps(dict(zip(("when", "kind", "x"), row, strict=True))) for row in rows]
    objects = "\n".join([*lines, ""]).encode()
    found = {}
    for name, data in {
        "plain.csv": text,
        "packed.csv.gz": gzip.compress(text),
        "packed.csv.bz2": bz2.compress(text),
        "packed.csv.zst": pa.compress(text, codec="zstd", asbytes=True),
        "lines.jsonl": objects,
        "lines.jsonl.gz": gzip.compress(objects),
        "lines.jsonl.zst": pa.compress(objects, codec="zstd", asbytes=True),
    }.items():
        found[name] = folder / name
        found[name].write_bytes(data)
    return found


SPELLING = TextFileOptions(";", ("NA",), parse_time_format(DAY), ("when",))
NAMES = ("plain.csv", "packed.csv.gz", "packed.csv.bz2", "packed.csv.zst", "lines.jsonl",
         "lines.jsonl.gz", "lines.jsonl.zst")  # fmt: skip


def events_of(table):
    return [(r["when"], r["kind"], r["x"]) for r in table.to_pylist()]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_read_as_it_is_spelled(tmp_path, name):
    spelling = SPELLING if "csv" in name else TextFileOptions(None, *_rest(SPELLING))
    found = read_local(resolve_event_files([str(written(tmp_path)[name])]), spelling)
    three = 3 if "csv" in name else "3"  # of what is text in JSON, only times are read
    later = NOON.replace(minute=6)
    assert events_of(found) == [(NOON, "A", None), (later, "B", three)]


def _rest(spelling):
    return spelling.nulls, spelling.time_format, spelling.times


@pytest.mark.slow
@pytest.mark.spark
def test_spark_reads_the_same(spark, tmp_path):
    files = written(tmp_path)
    for names in (["plain.csv", "packed.csv.gz", "packed.csv.bz2"], ["lines.jsonl.gz"]):
        named = resolve_event_files([str(files[name]) for name in names])
        spelling = SPELLING if "csv" in names[0] else TextFileOptions(None, *_rest(SPELLING))
        here, there = read_local(named, spelling), read_spark(named, spelling).toArrow()
        assert sorted(events_of(there), key=str) == sorted(events_of(here), key=str)
        assert dict(zip(there.schema.names, there.schema.types, strict=True)) == dict(
            zip(here.schema.names, here.schema.types, strict=True)
        )
    with pytest.raises(EventError, match=r"Spark cannot decompress \.zst files"):
        read_spark(resolve_event_files([str(files["packed.csv.zst"])]), SPELLING)


@pytest.mark.spark
def test_spark_reads_every_format_as_it_is_read_here(spark):
    from pyspark.sql import functions as sql

    from ensue.backends.spark.event_sources import parse_formatted_times

    frame = spark.createDataFrame([(text,) for text in FORMATS.values()], "t string")
    for format, text in FORMATS.items():
        spelling = TextFileOptions(time_format=parse_time_format(format))
        made = parse_formatted_times(sql.col("t"), spelling).cast("timestamp_ntz").alias("made")
        rows = frame.select("t", made).collect()
        assert [(row.t, row.made) for row in rows if row.made is not None] == [(text, NOON)]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_stream_reads_the_same(spark, tmp_path, form):
    from ensue.backends.spark.event_sources import read_folder

    name = "plain.csv" if form == "csv" else "lines.jsonl"
    files = written(tmp_path)
    place = tmp_path / "stream"
    place.mkdir()
    files[name].rename(place / name)
    frame = read_folder(spark, str(place), form, None, SPELLING)
    called = f"spelled_{form}"
    running = frame.writeStream.format("memory").queryName(called).trigger(availableNow=True)
    running.start().awaitTermination()
    three = 3 if form == "csv" else "3"
    found = events_of(spark.table(called).toArrow())
    assert [(at.replace(tzinfo=None), *others) for at, *others in found] == [
        (NOON, "A", None), (NOON.replace(minute=6), "B", three),
    ]  # fmt: skip


def test_a_column_is_of_one_kind_in_all_files(tmp_path):
    (tmp_path / "2026-01.csv").write_text("day,x\n2026-01-01,\n")
    (tmp_path / "2026-02.csv").write_text("day,x,y\n2026-02-01,3,1\n")
    found = read_local(resolve_event_files([str(tmp_path / "2026-*.csv")]))
    assert found.column("x").to_pylist() == [None, 3]
    assert found.column("y").to_pylist() == [None, 1]


def test_without_a_named_column_those_that_are_of_the_format_are_times(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("from,to,note\n1.2.2026,2.2.2026,3.2.2026\n1.2.2026,,soon\n")
    found = read_local(resolve_event_files([str(path)]), TextFileOptions(time_format=parse_time_format("%d.%m.%Y")))
    assert [str(type) for type in found.schema.types] == ["timestamp[us]"] * 2 + ["string"]


# ------------------------------------------------------------------------------- the command


def run(*arguments, capsys):
    code = main(["run", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_files_behind_one_option_and_the_query_last(tmp_path, capsys):
    written(tmp_path)
    code, out, _ = run(
        "--type", "kind", "--delimiter", ";", "--time-format", DAY, "--null", "NA", "--format",
        "csv", "--events", *sorted(tmp_path.glob("packed.csv.*")), QUERY, capsys=capsys,
    )  # fmt: skip
    assert code == ExitCode.FINE
    assert len(out.splitlines()) == 1 + 9


def test_a_pattern_that_names_no_file(tmp_path, capsys):
    written(tmp_path)
    code, _, err = run(QUERY, "--events", tmp_path / "2026-*.csv", capsys=capsys)
    assert code == ExitCode.EVENTS
    assert "no file is named like" in err


def test_a_pattern_for_each_type(tmp_path):
    for name in ("a1.csv", "a2.csv", "b1.csv"):
        (tmp_path / name).write_text("t\n1\n")
    found = resolve_event_files([f"A={tmp_path}/a*.csv", f"B={tmp_path}/b*.csv"])
    assert [(f.type, Path(f.path).name) for f in found] == [
        ("A", "a1.csv"), ("A", "a2.csv"), ("B", "b1.csv"),
    ]  # fmt: skip


def test_a_time_that_is_none_is_named_with_its_row(tmp_path, capsys):
    path = tmp_path / "e.csv"
    path.write_text("when,kind,x\n14.03.2026 12:05,A,1\n31.02.2026 12:05,B,2\n")
    code, _, err = run(QUERY, "--events", path, "--time", "when", "--time-format", DAY, capsys=capsys)
    assert code == ExitCode.EVENTS
    assert "'31.02.2026 12:05' in column 'when' does not have the time format" in err
    assert f"(row 2 of {path})" in err
    with pytest.warns(UserWarning, match="1 events without usable time are left out"):
        code, _, err = run(
            "SEQ(A a)", "--events", path, "--time", "when", "--time-format", DAY,
            "--bad-events", "drop", capsys=capsys,
        )  # fmt: skip
    assert code == ExitCode.FINE
    assert "1 match" in err


@pytest.mark.parametrize("delimiter", [";", "|", "\t"])
def test_another_delimiter_is_pointed_at(tmp_path, capsys, delimiter):
    path = tmp_path / "e.csv"
    path.write_text(f"when{delimiter}kind\n1{delimiter}A\n")
    code, _, err = run(QUERY, "--events", path, capsys=capsys)
    assert code == ExitCode.EVENTS
    assert "--delimiter" in err


@pytest.mark.parametrize("given", ["", "ab", '"', "ä"])
def test_a_delimiter_is_one_letter(tmp_path, capsys, given):
    code, _, err = run(QUERY, "--events", tmp_path, "--delimiter", given, capsys=capsys)
    assert code == ExitCode.WRONG
    assert "not a single ASCII character" in err


def test_days_are_the_time_where_nothing_is_finer(tmp_path, capsys):
    path = tmp_path / "e.csv"
    path.write_text("day,kind,x\n2026-03-14,A,1\n2026-03-15,B,2\n")
    code, out, err = run(QUERY, "--events", path, "--type", "kind", capsys=capsys)
    assert code == ExitCode.FINE
    assert "using 'day' as the time" in err
    assert "2026-03-15" in out


def test_what_is_said_of_text_files_goes_with_text_files(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"t": [1]}), tmp_path / "e.parquet")
    files = resolve_event_files([str(tmp_path / "e.parquet")])
    for spelling in (TextFileOptions(";"), TextFileOptions(nulls=("NA",)), SPELLING):
        with pytest.raises(UsageError, match=r"is for CSV"):
            read_local(files, spelling)


def test_tables_of_sql_are_spelled_as_well(tmp_path, capsys):
    path = tmp_path / "p.csv"
    path.write_text("at;x\n1.2.2026;1\n2.2.2026;NA\n")
    code, out, _ = run(
        "SELECT * FROM p MATCH_RECOGNIZE (ORDER BY at MEASURES LAST(at) AS at, LAST(x) AS x "
        "PATTERN (A B) DEFINE B AS x IS NULL)",
        "--table", path, "--delimiter", ";", "--null", "NA", "--time-format", "%d.%m.%Y",
        "--format", "csv", capsys=capsys,
    )  # fmt: skip
    assert code == ExitCode.FINE
    assert "2026-02-02" in out


def test_a_word_that_makes_text_of_numbers_is_pointed_at(tmp_path, capsys):
    path = tmp_path / "flights.csv"
    late = [*range(300), "NA"]
    rows = [f"2026-03-14 12:00,{delay},{delay},n/a,x" for delay in late]
    path.write_text("\n".join(["at,delay,again,gate,name", *rows]))
    read_local(resolve_event_files([str(path)]))
    said = " ".join(capsys.readouterr().err.split())
    assert "note: delay and again are text only because of cells with 'NA'" in said
    assert "--null NA reads such cells as NULL" in said
    table = read_local(resolve_event_files([str(path)]), TextFileOptions(nulls=("NA",)))
    assert table.schema.field("delay").type == pa.int64()
    assert "text only because" not in capsys.readouterr().err
