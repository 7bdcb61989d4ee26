"""Delta and Iceberg tables that others write: read by statistics of the log, as of a version."""

import json
import pickle
import shutil
import struct
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ensue
from ensue.archives.archive import Archive, ArchiveRead
from support.archives import asked, pieces
from support.iceberg import Catalogue
from support.seeds import scaled

INSTANT = pa.timestamp("us", "UTC")
T0 = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = pa.schema({"t": INSTANT, "k": pa.string(), "n": pa.int64(), "x": pa.int64()})


def _rows(numbers: list[tuple[int | None, str | None, int | None]]) -> list[dict[str, Any]]:
    return [
        {"t": None if t is None else T0 + timedelta(microseconds=t), "k": k, "n": n, "x": x}
        for x, (t, k, n) in enumerate(numbers)
    ]


events = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 9_999), st.integers(0, 9_999), st.none()),
        st.sampled_from(["a", "b", "c d", "é", None]),
        st.sampled_from([1, 2, None]),
    ),
    min_size=1,
    max_size=30,
).map(_rows)


@st.composite
def wishes(draw: st.DrawFn) -> ArchiveRead:
    field = draw(st.sampled_from(["k", "n", None]))
    values = {"k": ["a", "c d", "é", "z"], "n": [1, 2, 3], None: [None]}[field]
    kind = {"k": pa.string(), "n": pa.int32(), None: pa.null()}[field]
    times = st.one_of(st.none(), st.integers(0, 9_999))
    stretches = draw(st.lists(st.tuples(st.sampled_from(values), times, times), max_size=20))
    at = lambda t: None if t is None else T0 + timedelta(microseconds=t)
    return ArchiveRead(pieces(*((k, at(s), at(u)) for k, s, u in stretches), key=kind, time=INSTANT), field)


def check(archive: Archive, rows: list[dict[str, Any]], wanted: ArchiveRead) -> None:
    found = archive.read(wanted).events
    expected = asked(rows, wanted)
    # files of one commit have no order of their own
    assert sorted(found.to_pylist(), key=lambda r: r["x"]) == sorted(expected, key=lambda r: r["x"])
    assert [r["t"] for r in found.to_pylist()] == [r["t"] for r in expected]


@settings(max_examples=scaled(40), deadline=None)
@given(rows=events, wanted=wishes(), cut=st.integers(0, 30), by=st.sampled_from([None, "k", "n"]))
def test_a_delta_table_is_read_as_rows_judged_one_by_one(
    rows: list[dict[str, Any]], wanted: ArchiveRead, cut: int, by: str | None
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        for part in (table.slice(0, cut), table.slice(cut)):
            if part.num_rows:
                deltalake.write_deltalake(folder, part, mode="append", partition_by=by)
        check(ensue.archive(folder, time="t", key="k"), rows, wanted)


@settings(max_examples=scaled(20), deadline=None)
@given(rows=events, wanted=wishes(), cut=st.integers(0, 30))
def test_an_iceberg_table_is_read_as_rows_judged_one_by_one(
    rows: list[dict[str, Any]], wanted: ArchiveRead, cut: int
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        made = Catalogue().create(Path(folder), SCHEMA)
        for part in (table.slice(0, cut), table.slice(cut)):
            if part.num_rows:
                made.append(part)
        check(ensue.archive(made, time="t", key="k"), rows, wanted)
        again = ensue.archive(made.metadata_location, time="t", key="k")
        check(pickle.loads(pickle.dumps(again)), rows, wanted)


def _of_key(key: str, since: datetime | None = None, until: datetime | None = None) -> ArchiveRead:
    return ArchiveRead(pieces((key, since, until), key=pa.string(), time=INSTANT), "k")


def test_delta_cuts_times_to_milliseconds_and_no_event_is_lost(tmp_path: Path) -> None:
    late = T0 + timedelta(microseconds=1_999)
    rows = pa.table({"t": pa.array([T0, late], INSTANT), "k": ["a", "a"]})
    deltalake.write_deltalake(tmp_path, rows)
    actions = pa.table(deltalake.DeltaTable(tmp_path).get_add_actions(flatten=True))
    assert actions.column("max.t")[0].as_py() < late, "the statistics are exact: no test"
    archive = ensue.archive(tmp_path, time="t", key="k")
    assert archive.read(_of_key("a", since=late)).events.num_rows == 1
    until = archive.layout().until
    assert isinstance(until, datetime)
    assert until >= late


def test_a_table_is_followed_and_a_pinned_one_stays(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(_rows([(1, "a", 1), (2, "b", 1)]), SCHEMA)
    deltalake.write_deltalake(tmp_path, rows)
    archive = ensue.archive(tmp_path, time="t", key="k")
    pinned = pickle.loads(pickle.dumps(archive.pinned()))
    deltalake.write_deltalake(tmp_path, rows, mode="append")
    assert archive.read(_of_key("a")).events.num_rows == 2
    assert pinned.read(_of_key("a")).events.num_rows == 1
    assert pinned.describe()["version"] == "0"
    first = ensue.archive(tmp_path, time="t", key="k", version=0)
    assert first.read(_of_key("a")).events.num_rows == 1


def test_a_version_that_was_vacuumed_is_named(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(_rows([(1, "a", 1)]), SCHEMA)
    deltalake.write_deltalake(tmp_path, rows)
    archive = ensue.archive(tmp_path, time="t", key="k").pinned()
    deltalake.write_deltalake(tmp_path, rows, mode="overwrite")
    table = deltalake.DeltaTable(tmp_path)
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(ensue.EventError, match=r"version 0 of .*vacuumed(?s:.*)hint: take a newer"):
        archive.read(_of_key("a"))


def test_a_version_that_never_was_is_named(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pa.Table.from_pylist(_rows([(1, "a", 1)]), SCHEMA))
    with pytest.raises(ensue.EventError, match=r"version 7 of .* the newest is 0(?s:.*)hint: "):
        ensue.archive(tmp_path, time="t", version=7)
    with pytest.raises(ensue.EventError, match="are numbers"):
        ensue.archive(tmp_path, time="t", version="yesterday")


def test_a_table_made_anew_is_another_one(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(_rows([(1, "a", 1)]), SCHEMA)
    place = tmp_path / "t"
    deltalake.write_deltalake(place, rows)
    archive = ensue.archive(place, time="t", key="k")
    shutil.rmtree(place)
    deltalake.write_deltalake(place, pa.concat_tables([rows, rows]))
    anew = ensue.archive(place, time="t", key="k")
    assert anew.read(_of_key("a")).events.num_rows == 2
    with pytest.raises(ensue.EventError, match="hint: "):
        archive.read(_of_key("a"))


def test_a_column_that_came_later_is_null_in_older_files(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(_rows([(1, "a", 1)]), SCHEMA)
    deltalake.write_deltalake(tmp_path, rows)
    more = rows.append_column("y", pa.array([0.5]))
    deltalake.write_deltalake(tmp_path, more, mode="append", schema_mode="merge")
    archive = ensue.archive(tmp_path, time="t", key="k")
    assert archive.read(_of_key("a")).events.column("y").to_pylist() == [None, 0.5]


@pytest.mark.parametrize(("package", "kind"), [("deltalake", "Delta"), ("pyiceberg.table", "Iceberg")])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, kind: str) -> None:
    (tmp_path / "_delta_log").mkdir()
    place = tmp_path if kind == "Delta" else tmp_path / "0.metadata.json"
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ensue.EventError, match=r"which is not installed\n  hint: pip install .*archive\]"):
        ensue.archive(place, time="t")


def test_rows_that_an_iceberg_table_deleted_are_gone(tmp_path: Path) -> None:
    made = Catalogue().create(tmp_path, SCHEMA)
    made.append(pa.Table.from_pylist(_rows([(1, "a", 1), (2, "b", 1)]), SCHEMA))
    before = ensue.archive(made, time="t", key="k")
    made.delete("k = 'a'")
    assert ensue.archive(made, time="t", key="k").read(_of_key("a")).events.num_rows == 0
    assert before.read(_of_key("a")).events.num_rows == 1
    older = ensue.archive(made, time="t", version=str(before.layout().version))
    assert older.read(_of_key("a")).events.num_rows == 1
    with pytest.raises(ensue.EventError, match=r"version 5 of(?s:.*)hint: there are"):
        ensue.archive(made, time="t", version=5)


def _deletion_vector(*rows: int) -> str:
    """Rows that are deleted, as a Delta log has them inline: a Roaring bitmap in Z85."""
    offset = 4 + 4 + 4 + 4
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, offset)
    bitmap += struct.pack(f"<{len(rows)}H", *rows)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    data += b"\0" * (-len(data) % 4)
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    text = ""
    for (word,) in struct.iter_unpack(">I", data):
        text += "".join(letters[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def test_rows_that_a_delta_table_deleted_by_a_vector_are_gone(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(_rows([(k, "a", 1) for k in range(6)]), SCHEMA)
    on = {"delta.enableDeletionVectors": "true"}
    deltalake.write_deltalake(tmp_path, rows, configuration=on)
    log = tmp_path / "_delta_log"
    lines = (log / f"{0:020}.json").read_text(encoding="utf-8").splitlines()
    add = next(json.loads(line)["add"] for line in lines if '"add"' in line)
    gone = (1, 4)
    vector = {
        "storageType": "i",
        "pathOrInlineDv": _deletion_vector(*gone),
        "sizeInBytes": 16 + 16 + 2 * len(gone),
        "cardinality": len(gone),
    }
    remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
    actions = [{"remove": remove}, {"add": add | {"deletionVector": vector}}]
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    archive = ensue.archive(tmp_path, time="t", key="k")
    assert archive.read(_of_key("a")).events.column("x").to_pylist() == [0, 2, 3, 5]
    assert archive.layout().rows == 4
