"""Reading an archive gives what every row gives that is judged alone, whatever holds it."""

import pickle
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ensue
from ensue.archives.archive import Archive, ArchiveRead, read_last_end
from ensue.archives.parquet_reader import build_filter, read_footer
from ensue.archives.pruning import RowSelector
from support.archives import asked, pieces
from support.seeds import scaled

T0 = datetime(2026, 3, 1, tzinfo=UTC)
INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    {"t": INSTANT, "until": INSTANT, "k": pa.string(), "n": pa.int32(), "type": pa.string(),
     "x": pa.float64()}
)  # fmt: skip
TIMES = {"instants": "t", "intervals": ("t", "until")}


def _at(seconds: int | None) -> datetime | None:
    # microseconds, so that what cuts them off is found out
    return None if seconds is None else T0 + timedelta(seconds=seconds, microseconds=seconds * 7)


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    count = draw(st.integers(1, 40))
    rows = []
    for number in range(count):
        start = draw(st.one_of(st.integers(0, 30), st.integers(0, 30), st.none()))
        length = draw(st.integers(-1, 6))
        rows.append(
            {
                "t": _at(start),
                "until": None if start is None else _at(start + length),
                "k": draw(st.sampled_from(["a", "b", "c", "d", None])),
                "n": draw(st.one_of(st.integers(0, 3), st.none())),
                "type": draw(st.sampled_from(["A", "B", None])),
                "x": float(number),
            }
        )
    return rows


@st.composite
def wishes(draw: st.DrawFn) -> ArchiveRead:
    field = draw(st.sampled_from([None, "k", "n"]))
    values = {"k": ["a", "b", "z", None], "n": [0, 1, 7, None], None: [None]}[field]
    key = {"k": pa.large_string(), "n": pa.int64(), None: pa.null()}[field]
    stretches = draw(
        st.lists(
            st.tuples(
                st.sampled_from(values),
                st.one_of(st.none(), st.integers(0, 30)),
                st.one_of(st.none(), st.integers(0, 30)),
            ),
            max_size=24,
        )
    )
    return ArchiveRead(
        pieces(*((k, _at(s), _at(u)) for k, s, u in stretches), key=key, time=INSTANT),
        field,
        draw(st.sampled_from([None, frozenset({"A"}), frozenset({"A", "B"}), frozenset({"C"})])),
        draw(st.sampled_from([None, ("x",), ("k", "t")])),
    )


def _parquet(folder: Path, table: pa.Table, cuts: list[int]) -> Path:
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(table)], strict=True)):
        part = table.slice(first, max(0, last - first))
        pq.write_table(part, folder / f"part-{number:03}.parquet", row_group_size=3)
    return folder


def check(archive: Archive, rows: list[dict[str, Any]], wanted: ArchiveRead, time: Any) -> None:
    pair = (time, time) if isinstance(time, str) else time
    expected = asked(rows, wanted, time=pair, type="type")
    found = archive.read(wanted)
    assert found.events.to_pylist() == expected
    names = SCHEMA.names if wanted.columns is None else wanted.columns
    assert found.events.schema == pa.schema([SCHEMA.field(n) for n in names])


@pytest.mark.parametrize("time", TIMES.values(), ids=TIMES)
@settings(max_examples=scaled(60), deadline=None)
@given(rows=events(), wanted=wishes())
def test_a_table_is_read_as_rows_judged_one_by_one(time: Any, rows: list[dict[str, Any]], wanted: ArchiveRead) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    archive = ensue.archive(table, time=time, type="type", key="k")
    check(archive, rows, wanted, time)


@pytest.mark.parametrize("time", TIMES.values(), ids=TIMES)
@settings(max_examples=scaled(60), deadline=None)
@given(rows=events(), wanted=wishes(), cuts=st.lists(st.integers(0, 40), max_size=3))
def test_a_folder_is_read_as_rows_judged_one_by_one(
    time: Any, rows: list[dict[str, Any]], wanted: ArchiveRead, cuts: list[int]
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        place = _parquet(Path(folder), table, sorted(c for c in cuts if c <= len(table)))
        check(ensue.archive(place, time=time, type="type", key="k"), rows, wanted, time)


def _simple(count: int = 100) -> pa.Table:
    return pa.table(
        {
            "t": pa.array([_at(k) for k in range(count)], INSTANT),
            "k": pa.array([f"k{k % 7}" for k in range(count)]),
            "x": np.arange(count),
        }
    )


def _of_key(key: str, since: int | None = None, until: int | None = None) -> ArchiveRead:
    return ArchiveRead(pieces((key, _at(since), _at(until)), key=pa.string(), time=INSTANT), "k")


def test_parts_of_paths_are_columns_and_leave_out_files(tmp_path: Path) -> None:
    table = _simple()
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        half = table.slice((day - 1) * 50, 50)
        pq.write_table(half, tmp_path / f"day={day}" / "a.parquet")
    archive = ensue.archive(tmp_path, time="t", key="k")
    found = archive.read(_of_key("k3", 50, None))
    assert found.files == 1
    assert set(found.events.column("day").to_pylist()) == {2}
    by_day = ArchiveRead(pieces((2, None, None), key=pa.int64(), time=INSTANT), "day")
    assert archive.read(by_day).events.num_rows == 50
    assert archive.layout().partitioned_by == ("day",)


def test_groups_of_rows_that_cannot_hold_it_are_not_decoded(tmp_path: Path) -> None:
    pq.write_table(_simple().sort_by("k"), tmp_path / "a.parquet", row_group_size=10)
    archive = ensue.archive(tmp_path, time="t", key="k")
    found = archive.read(_of_key("k0"))
    assert (found.files, found.rows) == (1, 15)
    condition = build_filter(RowSelector(_of_key("k0"), archive.shape), {"k": pa.string()})
    assert len(read_footer(str(tmp_path / "a.parquet")).fragment.split_by_row_group(condition)) == 2
    assert archive.layout().clustered
    assert archive.read(_of_key("nobody")).files == 0


def test_events_of_one_time_come_by_order_columns_then_as_they_arrived(tmp_path: Path) -> None:
    table = pa.table({"t": [1, 1, 1, 1], "seq": [2, 1, 1, None], "x": [0, 1, 2, 3]})
    pq.write_table(table.slice(0, 2), tmp_path / "a.parquet")
    pq.write_table(table.slice(2), tmp_path / "b.parquet")
    every = ArchiveRead(pieces((None, None, None), key=pa.null(), time=pa.int64()))
    for archive in (ensue.archive(tmp_path, time="t", order="seq"), ensue.archive(table, time="t", order="seq")):
        assert archive.read(every).events.column("x").to_pylist() == [1, 2, 0, 3]


def test_a_folder_grows_and_a_pinned_one_does_not(tmp_path: Path) -> None:
    pq.write_table(_simple(), tmp_path / "a.parquet")
    archive = ensue.archive(tmp_path, time="t", key="k")
    pinned = pickle.loads(pickle.dumps(archive.pinned()))
    pq.write_table(_simple(), tmp_path / "b.parquet")
    assert archive.read(_of_key("k0")).events.num_rows == 30
    assert pinned.read(_of_key("k0")).events.num_rows == 15
    assert pinned.describe()["files"] == ["a.parquet"]


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    later = _simple(200).slice(100)
    pq.write_table(_simple(), tmp_path / "a.parquet")
    archive = ensue.archive(tmp_path, time="t", key="k")
    for one in (archive, archive.pinned()):
        pq.write_table(_simple(), tmp_path / "a.parquet")
        assert one.read(_of_key("k1", 150)).events.num_rows == 0
        pq.write_table(later, tmp_path / "a.parquet")
        assert one.read(_of_key("k1", 150)).events.num_rows == 7


@pytest.mark.parametrize("names", [("a", "A"), ("file_index", "b"), ("filename", "__row")])
def test_names_of_columns_mean_nothing_to_who_decodes_them(tmp_path: Path, names: tuple[str, str]) -> None:
    table = pa.table({"t": [1, 2], names[0]: ["x", "y"], names[1].replace("__", ""): [5, 6]})
    pq.write_table(table.slice(0, 1), tmp_path / "a [1]*.parquet")
    pq.write_table(table.slice(1, 1), tmp_path / "b.parquet")
    archive = ensue.archive(tmp_path, time="t", key=names[0])
    wanted = ArchiveRead(pieces(("y", None, None), key=pa.string(), time=pa.int64()), names[0])
    assert archive.read(wanted).events.equals(table.slice(1, 1))


KEYS: dict[str, Callable[[pa.Table], pa.Array]] = {
    "wider integers": lambda _: pa.array([1], pa.int64()),
    "narrower integers": lambda _: pa.array([1], pa.int8()),
    "floats": lambda _: pa.array([1.0]),
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_numbers_are_compared_whatever_their_width(tmp_path: Path, keys: Callable[[pa.Table], pa.Array]) -> None:
    table = pa.table({"t": [1, 2, 3], "k": pa.array([1, 2, 1], pa.int16())})
    pq.write_table(table, tmp_path / "a.parquet")
    asked_for = pieces((None, 0, 9), key=pa.null(), time=pa.int64())
    asked_for = asked_for.set_column(0, "key", keys(table))
    archive = ensue.archive(tmp_path, time="t")
    assert archive.read(ArchiveRead(asked_for, "k")).events.column("t").to_pylist() == [1, 3]


def test_keys_that_are_texts_of_a_dictionary_or_times_of_another_zone(tmp_path: Path) -> None:
    table = pa.table(
        {
            "t": pa.array([1, 2, 3], pa.timestamp("ns")),
            "k": pa.array(["a", "b", "a"]).dictionary_encode(),
            "at": pa.array([1_000, 2_000, None], pa.timestamp("ms", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    archive = ensue.archive(tmp_path, time="t")
    text = pieces((None, None, None), key=pa.null(), time=pa.timestamp("ns"))
    text = text.set_column(0, "key", pa.array(["a"]).dictionary_encode())
    assert archive.read(ArchiveRead(text, "k")).events.num_rows == 2
    zone = pa.array([2_000_000_000], pa.timestamp("ns", "Europe/Berlin"))
    times = text.set_column(0, "key", zone)
    assert archive.read(ArchiveRead(times, "at")).events.column("t").cast(pa.int64()).to_pylist() == [2]


def test_files_with_other_columns_are_one_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [1], "k": pa.array([5], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": [2], "k": [5], "x": [0.5]}), tmp_path / "b.parquet")
    archive = ensue.archive(tmp_path, time="t", key="k")
    wanted = ArchiveRead(pieces((5, None, None), key=pa.int64(), time=pa.int64()), "k")
    assert archive.read(wanted).events.to_pylist() == [{"t": 1, "k": 5, "x": None}, {"t": 2, "k": 5, "x": 0.5}]


def test_a_damaged_and_a_missing_file_are_named(tmp_path: Path) -> None:
    for name in "ab":
        pq.write_table(_simple(), tmp_path / f"{name}.parquet")
    archive = ensue.archive(tmp_path, time="t", key="k").pinned()
    archive.read(_of_key("k0"))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nothing of use PAR1")
    with pytest.raises(ensue.EventError, match=r"cannot be read: .*b\.parquet(?s:.*)hint: "):
        archive.read(_of_key("k0"))
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(ensue.EventError, match=r"missing: .*b\.parquet(?s:.*)hint: "):
        archive.read(_of_key("k0"))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such time": ({"time": "tt"}, "no column 'tt' for time="),
    "time of a wrong kind": ({"time": "k"}, "cannot be ordered by time='k'"),
    "no such key": ({"time": "t", "key": "kk"}, "no column 'kk' for key="),
    "no such type": ({"time": "t", "type": "tipe"}, "no column 'tipe' for type="),
    "no time": ({}, "pass time="),
    "a version": ({"time": "t", "version": 3}, "has no versions"),
}


@pytest.mark.parametrize(("arguments", "problem"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_say_what_to_do(tmp_path: Path, arguments: dict[str, Any], problem: str) -> None:
    pq.write_table(_simple(), tmp_path / "a.parquet")
    for place in (tmp_path, _simple()):
        with pytest.raises(ensue.EventError) as raised:
            ensue.archive(place, **arguments)
        assert problem in str(raised.value)
        assert "hint: " in str(raised.value)


def test_places_that_are_no_archive(tmp_path: Path) -> None:
    for place in (tmp_path / "nowhere", tmp_path, 7, {"a": _simple()}):
        with pytest.raises(ensue.EventError, match="hint: "):
            ensue.archive(place, time="t")


def test_threads_read_at_once(tmp_path: Path) -> None:
    pq.write_table(_simple(700), tmp_path / "a.parquet", row_group_size=50)
    archive = ensue.archive(tmp_path, time="t", key="k")
    many = [(f"x{k}", None, None) for k in range(30)]

    def count(number: int) -> int:
        own = pieces((f"k{number % 7}", _at(number), None), *many, key=pa.string(), time=INSTANT)
        return archive.read(ArchiveRead(own, "k")).events.num_rows

    expected = [sum(k % 7 == number % 7 for k in range(number, 700)) for number in range(40)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count, range(40))) == expected


def test_a_table_finds_the_events_of_an_object_without_looking_at_others() -> None:
    archive = ensue.archive(_simple(700), time="t", key="k")
    assert archive.read(_of_key("k3")).rows == 100
    assert archive.read(_of_key("k3", 10, 80)).rows == 11
    assert archive.read(_of_key("nobody")).rows == 0
    again = pickle.loads(pickle.dumps(archive))
    assert again.read(_of_key("k3")).events.equals(archive.read(_of_key("k3")).events)


def test_a_table_narrows_many_objects_by_time_and_knows_none_without_key() -> None:
    count, objects = 200_000, 70_000  # more objects than 16 bits tell apart
    numbers = np.arange(count)
    keys = pa.array(numbers % objects, mask=numbers % 10 == 0)
    archive = ensue.archive(pa.table({"t": numbers, "k": keys}), time="t", key="k")
    wanted = [1, 69_999, 10, *range(2, 1_000, 3)]
    asked_for = pieces(*((k, 65_000, 145_000) for k in wanted), key=pa.int64(), time=pa.int64())
    read = archive.read(ArchiveRead(asked_for, "k"))
    inside = (numbers >= 65_000) & (numbers <= 145_000) & (numbers % 10 != 0)
    expected = numbers[inside & np.isin(numbers % objects, wanted)]
    assert read.events.column("t").to_pylist() == expected.tolist()
    assert read.rows == len(expected)


@pytest.mark.slow
def test_a_table_does_not_remember_who_was_not_there() -> None:
    archive = ensue.archive(_simple(), time="t", key="k")
    for first in range(0, 30_000, 3_000):
        strangers = [(f"x{k}", None, None) for k in range(first, first + 3_000)]
        asked_for = pieces(("k1", None, None), *strangers, key=pa.string(), time=INSTANT)
        assert archive.read(ArchiveRead(asked_for, "k")).events.num_rows == 15
    assert len(archive._indexes["k"]._codes) < 15_000


def test_what_is_asked_for_is_checked() -> None:
    archive = ensue.archive(_simple(), time="t", key="k")
    with pytest.raises(ensue.EventError, match=r"no column 'kk'(?s:.*)did you mean 'k'"):
        archive.read(replace(_of_key("k0"), field="kk"))
    numbers = pieces((1, None, None), key=pa.int64(), time=INSTANT)
    with pytest.raises(ensue.EventError, match="is string, and is compared with integer"):
        archive.read(ArchiveRead(numbers, "k"))


@pytest.mark.parametrize("intervals", [False, True])
def test_the_last_event_is_known_exactly(tmp_path, intervals):
    """Delta's statistics are in milliseconds: what comes within the same one is not past."""
    last = datetime(2026, 3, 1, 12, 0, 0, 1_234)
    events = pa.table(
        {
            "b": pa.array([last - timedelta(hours=2), last - timedelta(hours=3)], pa.timestamp("us")),
            "t": pa.array([last - timedelta(hours=1), last], pa.timestamp("us")),
            "k": ["x", "y"],
        }
    )
    time = ("b", "t") if intervals else "t"
    made = ensue.create_archive(tmp_path / "past", events, time=time, key="k")
    assert read_last_end(made).to_pylist() == [last]
    assert read_last_end(ensue.archive(events, time=time, key="k")).to_pylist() == [last]
    assert read_last_end(ensue.archive(events.slice(0, 0), time=time, key="k")) is None
