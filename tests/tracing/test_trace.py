"""A match opened down to the events that came in."""

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pandas
import pyarrow as pa
import pytest

import ensue

TEXT = """
EVENT Collapse AS SEQ(Stock+ a[], Stock b) WHERE [symbol] WITHIN 1 hour
    RETURN b.symbol AS symbol, b.sector AS sector;
EVENT Alarm AS SEQ(Collapse x, Collapse y, News n) WITHIN 1 hour RETURN x.sector AS sector
"""


def at(minute: int) -> datetime:
    return datetime(2026, 3, 2, 10, tzinfo=UTC) + timedelta(minutes=minute)


def stock(minute: int, symbol: str, volume: int) -> dict:
    return {"ts": at(minute), "symbol": symbol, "sector": "energy", "volume": volume}


def collapse(minute: int, symbol: str, rises: int = 2) -> dict:
    return {
        "match_id": f"{minute:016x}", "start": at(minute), "end": at(minute + rises),
        "symbol": symbol, "sector": "energy",
        "members": {
            "a": [stock(minute + n, symbol, 1000 + n) for n in range(rises)],
            "b": stock(minute + rises, symbol, 10),
        },
    }  # fmt: skip


def alarm(rises: int = 2) -> dict:
    return {
        "match_id": "00", "start": at(0), "end": at(30), "sector": "energy",
        "members": {
            "x": collapse(0, "E1", rises),
            "y": collapse(20, "E2"),
            "n": {"ts": at(30), "headline": "a < b & c"},
            "gone": None,
        },
    }  # fmt: skip


def test_the_tree_names_variables_times_and_fields():
    assert str(ensue.trace(alarm())) == (
        "match       2026-03-02 10:00:00 to 10:30:00  sector energy\n"
        "├─ x        10:00:00 to 10:02:00  symbol E1\n"
        "│  ├─ a[1]  10:00:00              volume 1000\n"
        "│  ├─ a[2]  10:01:00              volume 1001\n"
        "│  └─ b     10:02:00              volume 10\n"
        "├─ y        10:20:00 to 10:22:00  symbol E2\n"
        "│  ├─ a[1]  10:20:00              volume 1000\n"
        "│  ├─ a[2]  10:21:00              volume 1001\n"
        "│  └─ b     10:22:00              volume 10\n"
        "└─ n        10:30:00              headline a < b & c"
    )


def test_with_the_query_it_names_types():
    lines = str(ensue.trace(alarm(), TEXT)).splitlines()
    assert lines[0].startswith("Alarm ")
    assert lines[1].startswith("├─ x  Collapse ")
    assert lines[2].startswith("│  ├─ a[1]  Stock ")
    assert lines[-1].startswith("└─ n  News ")


def test_the_level_is_seen_from_the_members_or_said():
    assert str(ensue.trace(collapse(0, "E1"), TEXT)).startswith("Collapse ")
    assert str(ensue.trace(collapse(0, "E1"), TEXT, level="Collapse")).startswith("Collapse ")
    with pytest.raises(ensue.QueryError, match="did you mean 'Collapse'"):
        ensue.trace(collapse(0, "E1"), TEXT, level="Colapse")


def test_long_lists_are_shortened():
    text = str(ensue.trace(alarm(rises=15)))
    assert "… 9 more" in text
    assert "a[3]" in text
    assert "a[4]" not in text
    assert "a[15]" in text


def test_every_kind_of_row_is_opened_alike():
    row = alarm()
    expected = str(ensue.trace(row))
    table = pa.Table.from_pylist([row])
    assert str(ensue.trace(table)) == expected
    assert str(ensue.trace(table.to_pandas().iloc[0])) == expected
    assert str(ensue.trace(table.to_pandas())) == expected
    assert str(ensue.trace(table.to_struct_array()[0])) == expected
    assert isinstance(table.to_pandas(), pandas.DataFrame)

    class Row(tuple):  # what Spark gives
        def asDict(self, recursive: bool = False) -> dict:  # noqa: N802
            assert recursive
            return row

    assert str(ensue.trace(Row())) == expected


def test_times_may_be_numbers_and_events_may_last():
    row = {
        "start": 3, "end": 9,
        "members": {"a": {"from": 3, "to": 5, "k": 3}, "b": {"from": 6, "to": 9, "k": 4}},
    }  # fmt: skip
    assert str(ensue.trace(row)).splitlines()[1:] == ["├─ a   3 to 5  k 3", "└─ b   6 to 9  k 4"]
    assert "k 3" not in str(ensue.trace(row, time="k"))


def test_a_picture_has_a_bar_for_each_complex_event_and_a_dot_for_each_other():
    svg = ElementTree.fromstring(ensue.trace(alarm(), TEXT).svg)
    kinds = [element.tag.rpartition("}")[2] for element in svg.iter()]
    assert kinds.count("circle") == 7
    said = " ".join(svg.itertext())
    assert "x Collapse: 10:00:00 to 10:02:00" in said
    assert "a < b & c" in said
    assert ensue.trace(alarm())._repr_svg_().startswith("<svg")


@pytest.mark.parametrize(
    "row",
    [
        {"start": None, "end": None, "members": {"a": {"x": 1}, "b": {"y": None}}},
        {"start": 5, "end": 5, "members": {"a": {"t": 5}}},
        {"start": 0.001, "end": 0.0042, "members": {"a": {"t": 0.001}, "b": {"t": 0.0042}}},
        {
            "start": at(0),
            "end": at(99999),
            "members": {"a": stock(0, "s", 1), "b": stock(99999, "s", 2)},
        },
    ],
)
def test_odd_times_are_drawn_too(row):
    trace = ensue.trace(row)
    assert str(trace).startswith("match")
    ElementTree.fromstring(trace.svg)


def test_a_match_without_members_says_how_to_get_them():
    with pytest.raises(ensue.EnsueError, match="trace=True"):
        ensue.trace({"start": 1, "end": 2, "match_id": "x"})


def test_one_match_at_a_time():
    with pytest.raises(ensue.EnsueError, match="these are 2"):
        ensue.trace(pa.Table.from_pylist([alarm(), alarm()]))
    with pytest.raises(ensue.EnsueError, match="not a int"):
        ensue.trace(3)


def test_a_row_of_spark_is_opened_with_all_that_is_in_it():
    spark = pytest.importorskip("pyspark.sql")

    def row_of(value: object) -> object:
        match value:
            case dict():
                return spark.Row(**{name: row_of(inner) for name, inner in value.items()})
            case list():
                return [row_of(item) for item in value]
            case _:
                return value

    assert str(ensue.trace(row_of(alarm()))) == str(ensue.trace(alarm()))
