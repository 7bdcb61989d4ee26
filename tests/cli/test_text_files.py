"""CSV and JSON say the same to Arrow and to Spark: one command, one answer."""

import datetime as dt
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ensue.cli.inputs import EventFile, read_local, read_spark
from ensue.errors import EventError

UTC = dt.UTC
NOON = dt.datetime(2026, 3, 14, 12)

# what is in the file, after a column with the numbers of the rows; what is read
COLUMNS: dict[str, tuple[list[str], list[Any]]] = {
    "empty cells of text are NULL": (["x", "", '""', "y"], ["x", None, None, "y"]),
    "empty cells of integers are NULL": (["1", "", '""'], [1, None, None]),
    "empty cells of numbers are NULL": (["1.5", "", '""'], [1.5, None, None]),
    "empty cells of timestamps are NULL": (["2026-03-14 12:00:00", "", '""'], [NOON, None, None]),
    "empty cells of booleans are NULL": (["true", "", '""'], [True, None, None]),
    "a column of nothing is text": (["", '""', ""], [None, None, None]),
    "words for nothing are words": (
        ["NA", "null", "NULL", "NaN", "n/a", "None", "-"],
        ["NA", "null", "NULL", "NaN", "n/a", "None", "-"],
    ),
    "words for nothing make a column of numbers text": (["1", "NA"], ["1", "NA"]),
    "NaN is a number": (["1", "NaN"], [1.0, math.nan]),
    "nan is a word": (["1", "nan"], ["1", "nan"]),
    "infinity is a number": (["1.5", "-Infinity"], [1.5, -math.inf]),
    "quoted numbers are numbers": (['"1"', '"2"'], [1, 2]),
    "leading zeros are no part of a number": (["007", "8"], [7, 8]),
    "integers and fractions are numbers": (["1", "2.5", "1e3", ".5", "5."], [1, 2.5, 1e3, 0.5, 5]),
    "negative numbers": (["-1", "-0"], [-1, 0]),
    "nanoseconds since 1970 are integers": (["1773489600000000001"], [1773489600000000001]),
    "an integer of 20 digits is text": (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
    "a plus makes text": (["+5", "6"], ["+5", "6"]),
    "blanks make text": ([" 5", "6 "], [" 5", "6 "]),
    "hexadecimal is text": (["0x1F", "1"], ["0x1F", "1"]),
    "a letter of Java's numbers is text": (["1d", "2f"], ["1d", "2f"]),
    "true and false in any case": (["true", "False", "TRUE"], [True, False, True]),
    "yes and no are words": (["yes", "no"], ["yes", "no"]),
    "0 and 1 are integers": (["0", "1"], [0, 1]),
    "days": (["2026-03-14", "2026-03-15"], [dt.date(2026, 3, 14), dt.date(2026, 3, 15)]),
    "a day that is none makes text": (["2026-02-30"], ["2026-02-30"]),
    "times of a day are text": (["12:00:00"], ["12:00:00"]),
    "timestamps": (["2026-03-14T12:00:00", "2026-03-14 12:00", "2026-03-14T12:00:00.000"], [NOON, NOON, NOON]),
    "timestamps with a zone": (
        ["2026-03-14T12:00:00Z", "2026-03-14T13:00:00+01:00", "2026-03-14 08:00:00-0400"],
        [NOON, NOON, NOON],
    ),
    "where some have a zone, those without are in UTC": (
        ["2026-03-14T12:00:00", "2026-03-14T13:00:00+01:00"],
        [NOON, NOON],
    ),
    "microseconds": (
        ["2026-03-14T12:00:00.000001", "2026-03-14T12:00:00.000002000"],
        [NOON.replace(microsecond=1), NOON.replace(microsecond=2)],
    ),
    "days with slashes": (["2026/03/14", "2026-03-15"], [dt.date(2026, 3, 14), dt.date(2026, 3, 15)]),
    "times with slashes": (["2026/03/14 12:00", "2026/03/14 12:00:00"], [NOON, NOON]),
    "instants with slashes": (["2026/03/14 12:00Z", "2026-03-14 13:00+01:00"], [NOON, NOON]),
    "a month first is text": (["03/14/2026", "2026-03/14"], ["03/14/2026", "2026-03/14"]),
    "an hour that is none makes text": (["2026-03-14T25:00:00"], ["2026-03-14T25:00:00"]),
    "days and timestamps are text": (["2026-03-14", "2026-03-14T12:00:00"], ["2026-03-14", "2026-03-14T12:00:00"]),
    "quotes in quotes": (['"a ""b"" c"', '"d,e"', "f\\g", '"h\\"'], ['a "b" c', "d,e", "f\\g", "h\\"]),
    "lines in quotes": (['"a\nb"', '"c\n\nd,1"', "e"], ["a\nb", "c\n\nd,1", "e"]),
    "letters of all kinds": (["ä", "日本", "😀"], ["ä", "日本", "😀"]),
    "quotes amid a cell": (['a"b', "c'd"], ['a"b', "c'd"]),
}


def csv_of(cells: list[str]) -> str:
    return "\n".join(["number,cell,last", *(f"{n},{c},x" for n, c in enumerate(cells)), ""])


def plain(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "not a number"
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def read_here(path: Path) -> pa.Table:
    return read_local([EventFile(str(path))])


def read_there(path: Path) -> pa.Table:
    return read_spark([EventFile(str(path))]).toArrow()


def types(table: pa.Table) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in table.schema]


def cells(table: pa.Table, name: str = "cell") -> list[Any]:
    rows = sorted(table.to_pylist(), key=lambda row: row["number"])
    return [plain(row[name]) for row in rows]


@pytest.mark.parametrize("case", COLUMNS)
def test_cells_of_csv(tmp_path, case):
    written, wanted = COLUMNS[case]
    path = tmp_path / "events.csv"
    path.write_text(csv_of(written))
    found = cells(read_here(path))
    assert found == [plain(value) for value in wanted]
    assert [type(v) for v in found] == [type(plain(v)) for v in wanted] or case.startswith("integ")


def side_by_side(broken: bool) -> tuple[str, dict[str, list[Any]]]:
    """All columns in one file: each start of Spark's readers costs a second."""
    chosen = {k: v for k, v in COLUMNS.items() if broken or "lines" not in k}
    height = max(len(written) for written, _ in chosen.values())
    names = {f"c{n}": case for n, case in enumerate(chosen)}
    lines = [",".join(["number", *names])]
    for row in range(height):
        given = [(chosen[c][0][row : row + 1] or [""])[0] for c in names.values()]
        lines.append(",".join([str(row), *given]))
    wanted = {
        name: [plain(v) for v in chosen[case][1]] + [None] * (height - len(chosen[case][1]))
        for name, case in names.items()
    }
    return "\n".join([*lines, ""]), wanted


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_cells_side_by_side(tmp_path, broken, ends):
    text, wanted = side_by_side(broken)
    path = tmp_path / "events.csv"
    path.write_bytes(b"\xef\xbb\xbf" + (text if broken else text.replace("\n", ends)).encode())
    table = read_here(path)
    assert {name: cells(table, name) for name in wanted} == wanted


@pytest.mark.spark
@pytest.mark.parametrize(("broken", "ends"), [(False, "\r\n"), pytest.param(True, "\n", marks=pytest.mark.slow)])
def test_cells_side_by_side_on_spark(spark, tmp_path, broken, ends):
    text, wanted = side_by_side(broken)
    path = tmp_path / "events.csv"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", ends).encode())
    table = read_there(path)
    assert {name: cells(table, name) for name in wanted} == wanted
    assert {f.name: f.type for f in table.schema} == {f.name: f.type for f in read_here(path).schema}


REFUSED = {
    "an extra delimiter": ("number,a,\n1,2,\n", "column 3 of .* has no name"),
    "a name twice": ("number,a,a\n1,2,3\n", "several columns named 'a'"),
    "a row too short": ("number,a,b\n1,2\n", "cannot read events"),
    "a row too long": ("number,a\n1,2,3\n", "cannot read events"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_is_none_is_refused(tmp_path, case):
    text, why = REFUSED[case]
    (tmp_path / "events.csv").write_text(text)
    with pytest.raises(EventError, match=why):
        read_here(tmp_path / "events.csv")


@pytest.mark.spark
@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_is_none_is_refused_on_spark(spark, tmp_path, case):
    text, why = REFUSED[case]
    (tmp_path / "events.csv").write_text(text)
    with pytest.raises(EventError, match=why):
        read_there(tmp_path / "events.csv")


def test_nanoseconds_are_kept_here(tmp_path):
    (tmp_path / "events.csv").write_text("number,cell\n1,2026-03-14T12:00:00.000000001\n")
    table = read_here(tmp_path / "events.csv")
    assert table.schema.field("cell").type == pa.timestamp("ns")
    assert table.column("cell").cast(pa.int64()).to_pylist()[0] % 1000 == 1


@pytest.mark.spark
def test_nanoseconds_are_refused_on_spark(spark, tmp_path):
    (tmp_path / "events.csv").write_text("number,cell\n1,2026-03-14T12:00:00.000000001\n")
    with pytest.raises(EventError, match="finer than microseconds"):
        read_there(tmp_path / "events.csv")


OBJECTS = [
    {"number": 0, "text": "", "some": "x", "at": "2026-03-14T12:00:00", "mixed": 1, "flag": True},
    {"number": 1, "text": "NA", "at": "2026-03-14T12:00:00", "mixed": 2.5, "flag": False},
    {"number": 2, "text": None, "some": "", "at": "2026-03-14T12:00:00", "mixed": None},
]
ZONES = ["2026-03-14T12:00:00Z", "2026-03-14T13:00:00+01:00", "2026-03-14T12:00:00"]
WANTED = {
    "text": ["", "NA", None],
    "some": ["x", None, ""],
    "at": [NOON, NOON, NOON],
    "mixed": [1.0, 2.5, None],
    "flag": [True, False, None],
    "zoned": [NOON, NOON, NOON],
    "day": [dt.datetime(2026, 3, 14)] * 3,
    "figures": ["1", "2", "3"],
}


def objects(path: Path) -> Path:
    rows = [
        row | {"zoned": zoned, "day": "2026-03-14", "figures": str(number)}
        for number, (row, zoned) in enumerate(zip(OBJECTS, ZONES, strict=True), 1)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_values_of_json(tmp_path):
    table = read_here(objects(tmp_path / "events.jsonl"))
    assert {name: cells(table, name) for name in WANTED} == WANTED


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("events.jsonl", b'{"number": 1, "a": "x"}\n{"number": 2, "a": "\xff"}\n'),
        ("events.jsonl", b'{"number": 1}\n{"number": 2, "\xff": 1}\n'),
        ("events.jsonl", b'{"number": 1}\n{"number": {"a": ["\xff"]}}\n'),
        ("events.csv", b"number,a\n1,\xff\n"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_line_that_is_not_utf_8_is_named(tmp_path, name, text, packed):
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(text) if packed else text)
    with pytest.raises(EventError, match=f"{path.name}: line 2 is not UTF-8"):
        read_here(path)


@pytest.mark.spark
def test_values_of_json_on_spark(spark, tmp_path):
    table = read_there(objects(tmp_path / "events.jsonl"))
    assert {name: cells(table, name) for name in WANTED} == WANTED


@pytest.mark.spark
def test_a_broken_line_of_json_is_an_error_on_spark_too(spark, tmp_path):
    (tmp_path / "events.jsonl").write_text('{"number": 1}\n{"number": \n')
    for read in (read_here, read_there):
        with pytest.raises(EventError, match="cannot read events"):
            read(tmp_path / "events.jsonl")
