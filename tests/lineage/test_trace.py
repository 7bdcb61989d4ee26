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
    assert "… and 9 more" in text
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
        {"start": at(0), "end": at(99999), "members": {"a": stock(0, "s", 1), "b": stock(99999, "s", 2)}},
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


PLAIN = pa.table({"t": [1, 2, 3, 4, 5], "kind": ["A", "B", "B", "C", "A"], "x": [1, 2, 3, 4, 5]})


def test_a_plain_query_is_traced_from_its_columns():
    found = ensue.match(PLAIN, "SEQ(A a, B+ b[], C c) USING next", time="t", type="kind")
    assert str(ensue.trace(found, "SEQ(A a, B+ b[], C c)")) == (
        "match       1 to 4\n├─ a  A     1  x 1\n├─ b[1]  B  2  x 2\n├─ b[2]  B  3  x 3\n└─ c  C     4  x 4"
    )


@pytest.mark.parametrize(
    "query",
    [
        "SEQ(A a, B b)",
        "SEQ(A a, B+ b[], C c) RETURN a.x AS first, count(b[]) AS n",
        "SEQ(A a, !X x, C c) WITHIN 9 RETURN c.x AS last",
        "OR(A a, C c) RETURN a.x AS first",
        "SEQ(A a, B b, C c) USING next AFTER MATCH SKIP PAST LAST EVENT RETURN b.x AS x",
    ],
)
def test_trace_adds_members_to_plain_queries_and_changes_nothing_else(query):
    given = {"time": "t", "type": "kind"}
    plain = ensue.match(PLAIN, query, **given)
    traced = ensue.match(PLAIN, query, **given, options=ensue.OutputOptions(trace=True))
    assert traced.column_names == [*plain.column_names, "members"]
    assert traced.drop_columns(["members"]).equals(plain)
    for number in range(traced.num_rows):
        assert list(ensue.trace(traced.slice(number, 1), query).events())


def test_live_gives_members_of_plain_queries_too():
    query = "SEQ(A a, B b) RETURN a.x AS x"
    live = ensue.live(query, schema=PLAIN.schema, time="t", type="kind", options=ensue.OutputOptions(trace=True))
    found = live.feed(PLAIN)
    assert found.column("members").to_pylist()[0]["b"]["x"] == 2


def test_what_has_no_members_says_so():
    given = {"time": "t", "type": "kind"}
    for returned in ("COUNT(*)", "TOTAL COUNT(*)", "a.x AS x, count(*) AS n GROUP BY a.x"):
        with pytest.raises(ensue.QueryError, match="give no matches"):
            ensue.match(PLAIN, f"SEQ(A a, B b) RETURN {returned}", **given, options=ensue.OutputOptions(trace=True))
    with pytest.raises(ensue.QueryError, match="names definitions of the query"):
        ensue.match(PLAIN, "SEQ(A a, B b)", **given, options=ensue.OutputOptions(levels="all"))


def test_the_picture_has_siblings_in_the_order_of_time_and_says_what_it_leaves_out():
    row = alarm()
    row["members"]["many"] = [collapse(minute, f"S{minute}", 1) for minute in range(29, 9, -1)]
    row["members"]["early"] = collapse(0, "S0", 1)
    svg = ElementTree.fromstring(ensue.trace(row, time="ts").svg)
    texts = [e for e in svg.iter() if e.tag.endswith("text") and e.get("font-weight") == "600"]
    named = [e.text for e in texts if (e.text or "").startswith(("x", "y", "many", "early"))]
    rows = ["early", "x", "many[20]", "many[19]", "many[18]", "y", "many[3]", "many[2]", "many[1]"]
    assert named == rows
    assert "… and 14 more of many" in "".join(svg.itertext())


def test_dots_that_there_is_no_room_for_are_counted():
    events = [{"t": n} for n in range(500)]
    row = {"start": 0, "end": 499, "members": {"a": events}}
    svg = ensue.trace(row).svg
    assert "… and 300 more" in svg
    assert svg.count("<circle") == 200


def test_marks_are_at_round_times_and_exactly_where_they_say():
    from zoneinfo import ZoneInfo

    from ensue.lineage.text import TimeAxis

    zone = ZoneInfo("Asia/Kolkata")  # half an hour off
    first = datetime(2026, 3, 2, 10, 7, 13, 500, tzinfo=zone)
    axis = TimeAxis(first, first + timedelta(hours=4), 0, 1000)
    marks = axis.list_ticks()
    assert [name for _, name in marks] == [
        "10:30", "11:00", "11:30", "12:00", "12:30", "13:00", "13:30", "14:00"
    ]  # fmt: skip
    for time, name in marks:
        assert f"{time:%H:%M:%S.%f}" == f"{name}:00.000000"
        assert axis.locate(time) == pytest.approx((time - first) / timedelta(hours=4) * 1000)
    numbers = TimeAxis(1_700_000_000_123, 1_700_000_009_999, 0, 100).list_ticks()
    assert all(str(time) == name and time % 2000 == 0 for time, name in numbers)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (datetime(2026, 3, 2, 10, 0, 3), datetime(2026, 3, 2, 10, 0, 3, 7)),
        (datetime(2026, 3, 28), datetime(2026, 3, 29, 14)),
        (datetime(2026, 3, 2), datetime(2026, 5, 9)),
        (datetime(2001, 3, 2), datetime(2027, 5, 9)),
        (0.001, 0.0042),
        (-5, 5),
        (1e15, 3e15),
        (0, 10**18),
    ],
)
def test_there_are_neither_few_nor_many_marks(first, last):
    from ensue.lineage.text import TimeAxis

    marks = TimeAxis(first, last, 0, 100).list_ticks()
    assert 2 <= len(marks) <= 9
    assert all(first <= time <= last for time, _ in marks)


def test_the_timeline_is_text():
    found = ensue.match(PLAIN, "SEQ(A a, B+ b[], C c) USING next", time="t", type="kind")
    lines = ensue.trace(found).timeline.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("match   ├───")
    assert [line.split() for line in lines[1:5]] == [
        ["a", "●"], ["b[1]", "●"], ["b[2]", "●"], ["c", "●"]
    ]  # fmt: skip
    places = [line.index("●") for line in lines[1:5]]
    assert places == sorted(places)
    assert lines[-1].split() == ["1", "1.5", "2", "2.5", "3", "3.5", "4"]
