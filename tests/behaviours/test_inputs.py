"""Events from every library and of every Arrow type: carried through to the matches untouched."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.errors import EventError, QueryError

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

EVENTS = pa.table({"at": [1, 2, 3], "type": ["A", "X", "B"], "x": [1, None, 3]})
QUERY = "SEQ(A a, B b) WHERE a.x < b.x RETURN a.x AS x, b.x AS y"


def answer(events, kind=pa.Table):
    found = ensue.match(events, QUERY, time="at", type="type")
    assert isinstance(found, kind)
    return as_arrow(found).select(["x", "y"]).to_pylist()


def as_arrow(found):
    """A result of any library as an Arrow table."""
    match found:
        case pd.DataFrame():
            return pa.Table.from_pandas(found)
        case pl.LazyFrame():
            return found.collect().to_arrow()
        case duckdb.DuckDBPyRelation():
            return found.to_arrow_table()
        case _:
            return pa.table(found)


@pytest.mark.parametrize(
    "given",
    [
        lambda t: t,
        lambda t: t.to_batches()[0],
        lambda t: t.to_reader(),
        lambda t: t.to_batches(max_chunksize=1),
        lambda t: t.to_pylist(),
        lambda t: pa.concat_tables([t.slice(0, 1), t.slice(1, 2)]),
    ],
    ids=["table", "batch", "reader", "batches", "dicts", "chunks"],
)
def test_arrow(given):
    assert answer(given(EVENTS)) == [{"x": 1, "y": 3}]


def test_pandas():
    frame = EVENTS.to_pandas()
    frame.index = [7, 8, 9]
    assert answer(frame, pd.DataFrame) == [{"x": 1.0, "y": 3.0}]


def test_pandas_without_its_index_in_the_matches():
    frame = EVENTS.to_pandas().set_index("x", drop=False)
    found = ensue.match(frame, "SEQ(A a, B b)", time="at", type="type")
    assert list(found["a"][0]) == ["at", "type", "x"]


@pytest.mark.parametrize(("name", "time"), [("at", "at"), (None, "index")])
def test_time_may_be_the_index_of_pandas(name, time):
    frame = EVENTS.to_pandas().set_index("at")
    frame.index = pd.to_datetime(frame.index, unit="s").rename(name)
    found = ensue.match(frame, "SEQ(A a, B b)", time=time, type="type")
    assert isinstance(found, pd.DataFrame)
    assert found["start"].tolist() == [pd.Timestamp("1970-01-01 00:00:01")]
    assert list(found["a"][0]) == [time, "type", "x"]
    live = ensue.live("SEQ(A a, B b)", schema=frame, time=time, type="type")
    assert live.feed(frame).to_pandas()["start"].equals(found["start"])


def test_time_and_order_may_be_levels_of_an_index_of_pandas():
    frame = EVENTS.to_pandas().assign(at=1, place=[3, 2, 1]).set_index(["at", "place"])
    counts = [
        len(ensue.match(frame, query, time="at", type="type", order="place"))
        for query in ("SEQ(A a, B b)", "SEQ(B b, A a)")
    ]
    assert counts == [0, 1]


def test_a_column_comes_before_a_level_of_the_same_name():
    frame = EVENTS.to_pandas().set_index(pd.Index([9, 8, 7], name="at"))
    assert answer(frame, pd.DataFrame) == [{"x": 1.0, "y": 3.0}]


@pytest.mark.parametrize("index", [None, "at"])
def test_two_pandas_columns_of_one_name_are_refused(index):
    frame = EVENTS.to_pandas().rename(columns={"x": "type"})
    frame = frame if index is None else frame.set_index(index)
    with pytest.raises(EventError, match="two columns called 'type'"):
        answer(frame)


def test_two_columns_of_one_name_are_refused(runner):
    table = pa.table([*EVENTS.columns, pa.array([1, 2, 3])], names=[*EVENTS.column_names, "x"])
    with pytest.raises(EventError, match="two columns called 'x'"):
        runner.match(table, QUERY, time="at", type="type")
    with pytest.raises(EventError, match="two columns called 'x'"):
        runner.match({"A": table, "B": EVENTS}, QUERY, time="at")


def test_two_columns_of_one_name_are_refused_live():
    table = pa.table([*EVENTS.columns, pa.array([1, 2, 3])], names=[*EVENTS.column_names, "x"])
    with pytest.raises(EventError, match="two columns called 'x'"):
        ensue.live(QUERY, schema=table.schema, time="at", type="type")
    live = ensue.live(QUERY, schema=EVENTS.schema, time="at", type="type")
    with pytest.raises(EventError, match="two columns called 'x'"):
        live.feed(table)


# ------------------------------------------------------------------------------- files


def written(folder):
    """The events as a file of each form."""
    csv, lines = folder / "events.csv", folder / "events.jsonl"
    pa.csv.write_csv(EVENTS, csv)
    lines.write_text("\n".join(map(json.dumps, EVENTS.to_pylist())))
    parquet, arrow = folder / "events.parquet", folder / "events.arrow"
    pq.write_table(EVENTS, parquet)
    pa.feather.write_feather(EVENTS, arrow)
    return csv, lines, parquet, arrow


def test_files_of_every_form(tmp_path):
    for path in written(tmp_path):
        assert answer(path) == answer(str(path)) == [{"x": 1, "y": 3}]


def test_a_folder_a_pattern_and_a_dict_of_files(tmp_path):
    for row in range(3):
        pa.csv.write_csv(EVENTS.slice(row, 1), tmp_path / f"{row}.csv")
    assert answer(tmp_path) == answer(f"{tmp_path}/*.csv") == [{"x": 1, "y": 3}]
    by_type = {"A": tmp_path / "0.csv", "B": tmp_path / "2.csv"}
    assert ensue.match(by_type, QUERY, time="at").num_rows == 1


def test_a_file_that_is_not_there_or_not_of_events(tmp_path):
    pq.write_table(EVENTS, tmp_path / "events.parquet")
    with pytest.raises(EventError, match=r"no file or folder .*event\.parquet\n.*did you mean"):
        answer(tmp_path / "event.parquet")
    (tmp_path / "events.xls").write_text("")
    with pytest.raises(EventError, match="cannot tell the format"):
        answer(tmp_path / "events.xls")


def test_a_column_of_a_file_that_is_text_because_of_a_few_cells_is_told(tmp_path):
    (tmp_path / "events.csv").write_text("at,type,x\n1,A,1\n2,X,NA\n3,B,3\n")
    with pytest.warns(UserWarning, match=r"^x is text only because of cells with 'NA'$"):
        answer(tmp_path / "events.csv")


# ------------------------------------------------------------------------------- libraries


def test_polars():
    assert answer(pl.from_arrow(EVENTS), pl.DataFrame) == [{"x": 1, "y": 3}]


def test_polars_that_is_lazy():
    assert answer(pl.from_arrow(EVENTS).lazy(), pl.LazyFrame) == [{"x": 1, "y": 3}]


def test_polars_categories():
    frame = pl.from_arrow(EVENTS).with_columns(pl.col("type").cast(pl.Categorical))
    assert answer(frame, pl.DataFrame) == [{"x": 1, "y": 3}]


def test_a_relation_of_duckdb_gives_one_on_the_same_connection():
    with duckdb.connect() as connection:
        connection.register("given", EVENTS)
        connection.execute("CREATE TABLE events AS FROM given; CREATE TABLE named AS SELECT 1 AS x")
        relation = connection.table("events")
        assert answer(relation, duckdb.DuckDBPyRelation) == [{"x": 1, "y": 3}]
        found = ensue.match(relation, QUERY, time="at", type="type")
        assert found.join(connection.table("named"), "x").project("x, y").fetchall() == [(1, 3)]
        shown = {name for (name,) in connection.execute("SHOW TABLES").fetchall()}
        assert shown == {"events", "given", "named"}, "nothing of ours is left"


def test_a_relation_whose_connection_sees_no_variables_says_what_to_do():
    with duckdb.connect(config={"python_enable_replacements": False}) as connection:
        events = connection.sql("SELECT 1 AS at, 'A' AS type, 1 AS x")
        with pytest.raises(ensue.RunnerError, match="to_arrow_table"):
            answer(events)


@pytest.mark.parametrize(
    ("made", "kind"),
    [(pa.Table.to_pandas, pd.DataFrame), (pl.from_arrow, pl.DataFrame), (lambda t: t.to_batches()[0], pa.Table)],
    ids=["pandas", "Polars", "Arrow"],
)
def test_several_tables_several_queries_several_levels_are_of_the_common_kind(made, kind):
    tables = {name: made(EVENTS.select(["at", "x"])) for name in ("A", "B")}
    found = ensue.match(tables, {"one": "A a", "two": "SEQ(A a, B b)"}, time="at")
    assert {name: type(table) for name, table in found.items()} == {"one": kind, "two": kind}
    hierarchy = "EVENT Pair AS SEQ(A a, B b) WITHIN 5; SEQ(Pair p)"
    levels = ensue.match(tables, hierarchy, time="at", options=ensue.OutputOptions(levels="all"))
    assert {type(table) for table in levels.values()} == {kind}
    assert len(levels) == 2


def test_tables_of_several_libraries_give_arrow():
    tables = {"A": EVENTS.to_pandas(), "B": pl.from_arrow(EVENTS)}
    assert isinstance(ensue.match(tables, "SEQ(A a, B b)", time="at"), pa.Table)


@pytest.mark.in_process("DataFrames of Spark have the zone of their session")
def test_times_of_several_zones_are_instants_and_come_out_in_utc(runner):
    at = datetime(2026, 3, 14, 12, tzinfo=UTC)
    zones = {"A": ("Europe/Zurich", "us", 0), "B": ("America/New_York", "ms", 1)}
    tables = {
        name: pa.table({"at": pa.array([at + timedelta(hours=h)], pa.timestamp(unit, zone))})
        for name, (zone, unit, h) in zones.items()
    }
    found = runner.match(tables, "SEQ(A a, B b) RETURN a.at AS a, b.at AS b", time="at")
    assert found.schema.field("a").type.tz == "UTC"
    (row,) = found.to_pylist()
    assert (row["a"], row["b"]) == (at, at + timedelta(hours=1))


@pytest.mark.in_process("DataFrames of Spark have the zone of their session")
def test_times_with_a_zone_and_without_one_are_refused(runner):
    tables = {
        "A": pa.table({"at": pa.array([0], pa.timestamp("us", "Asia/Tokyo"))}),
        "B": pa.table({"at": pa.array([1], pa.timestamp("us"))}),
    }
    with pytest.raises(EventError, match=r"have a zone in A \(Asia/Tokyo\) and none in B"):
        runner.match(tables, "SEQ(A a, B b)", time="at")


def test_pandas_has_the_nanoseconds_and_the_zone_of_times_inside_events():
    at = pd.to_datetime([1, 2, 2**60 + 1]).tz_localize("UTC").tz_convert("Europe/Zurich")
    took = pd.to_timedelta([1, None, 3], unit="ns")
    frame = pd.DataFrame({"at": at, "took": took, "n": pd.array([2**60 + 1, None, 3], "Int64")})
    query = "SEQ(E a, E+ b[]) RETURN a, b, b[].at AS times LIMIT 9"
    found = ensue.match(frame, query, time="at")
    event = {"at": at[0], "took": took[0], "n": 2**60 + 1}
    first = found.iloc[0]
    assert first["a"] == event
    assert first["a"]["at"].nanosecond == 1
    assert str(first["a"]["at"].tz) == "Europe/Zurich"
    assert isinstance(first["a"]["n"], int)
    assert first["b"][0] == {"at": at[1], "took": None, "n": None}
    assert first["times"][0] == at[1]


def test_large_integers_beside_null_stay_integers_in_pandas():
    frame = pd.DataFrame({"at": [1, 2], "n": pd.array([2**60 + 1, None], "Int64")})
    found = ensue.match(frame, "E a RETURN a.n AS n", time="at")
    assert found["n"].dtype == "Int64"
    assert found["n"][0] == 2**60 + 1


def test_anything_else_is_refused():
    with pytest.raises(EventError, match="events of type int are not supported"):
        answer(3)
    with pytest.raises(EventError, match="an empty list has no columns"):
        answer([])


# ------------------------------------------------------------------------------- untouched

COLUMNS = {
    "boolean": pa.array([True, None, False]),
    "int8": pa.array([1, None, 3], pa.int8()),
    "uint64": pa.array([2**64 - 1, None, 3], pa.uint64()),
    "float32": pa.array([1.5, None, float("inf")], pa.float32()),
    "decimal": pa.array([Decimal("1.10"), None, Decimal("-2.20")], pa.decimal128(12, 2)),
    "text": pa.array(["ä\n", None, ""]),
    "large text": pa.array(["a", None, "b"], pa.large_string()),
    "text view": pa.array(["a", None, "b"], pa.string_view()),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "bytes": pa.array([b"\x00", None, b""]),
    "date": pa.array([date(1969, 1, 1), None, date(2026, 1, 1)]),
    "seconds": pa.array([datetime(2026, 1, 1), None, datetime(1900, 1, 1)], pa.timestamp("s")),
    "zone": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("us", "Asia/Tokyo")),
    "nanoseconds": pa.array([1, None, 3], pa.timestamp("ns")),
    "duration": pa.array([timedelta(1), None, timedelta(0)]),
    "list": pa.array([[1, None], None, []]),
    "struct": pa.array([{"p": 1, "q": [{"r": "x"}]}, None, {"p": None, "q": None}]),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "nothing": pa.nulls(3),
}


@pytest.mark.in_process("types that Spark does not have")
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_comes_out_as_it_went_in(runner, name):
    column = COLUMNS[name]
    events = pa.table({"at": [1, 2, 3], "type": ["A", "C", "B"], "v": column})
    query = "SEQ(A a, C+ c[], B b) RETURN a, a.v AS v, c[].v AS vs, b.v AS w"
    found = runner.match(events, query, time="at", type="type")
    assert found.column("v").type == column.type
    assert found.column("vs").type == pa.list_(column.type)
    (row,) = found.to_pylist()
    first, middle, last = column.to_pylist()
    assert (row["v"], row["a"]["v"], row["vs"], row["w"]) == (first, first, [middle], last)


@pytest.mark.everywhere
def test_many_columns_at_once(runner):
    left_out = {"nothing", "uint64", "nanoseconds", "seconds", "zone", "text view"}  # not Spark's
    kept = {n: c for n, c in COLUMNS.items() if n not in left_out}
    events = pa.table({"at": [1, 2, 3], "type": ["A", "C", "B"]} | kept)
    (row,) = runner.match(events, "SEQ(A a, B b)", time="at", type="type").to_pylist()
    first, _, last = events.to_pylist()
    assert row["a"] == first
    assert row["b"] == last


# ------------------------------------------------------------------------------- a table a type

SHELF = pa.table({"at": [1, 5], "tag": ["p", "q"], "weight": [10, 20]})
EXIT = pa.table({"at": [3, 9], "tag": ["p", "q"], "weight": ["light", "heavy"], "gate": [7, 8]})
TABLES = {"Shelf": SHELF, "Exit": EXIT}


@pytest.mark.streams(slow=True)
def test_tables_with_columns_of_one_name_and_different_types(runner):
    query = """SEQ(Shelf s, Exit e) WHERE [tag] and s.weight > 5 and e.weight like 'l%'
        RETURN s, e.weight AS w"""
    (row,) = runner.match(TABLES, query, time="at").to_pylist()
    assert row["s"] == {"at": 1, "tag": "p", "weight": 10}
    assert row["w"] == "light"


def test_each_event_has_the_columns_of_its_table(runner):
    found = runner.match(TABLES, "SEQ(Shelf s, Exit e) WHERE [tag]", time="at")
    assert [f.name for f in found.schema.field("s").type] == ["at", "tag", "weight"]
    assert [f.name for f in found.schema.field("e").type] == ["at", "tag", "weight", "gate"]
    assert found.num_rows == 2


def test_a_field_of_the_other_table_is_unknown(runner):
    with pytest.raises(QueryError, match="unknown field 'gate' of event s"):
        runner.match(TABLES, "SEQ(Shelf s, Exit e) WHERE s.gate = 7", time="at")


def test_an_unknown_type_of_a_dict_is_an_error(runner):
    with pytest.raises(QueryError, match=r"unknown event type 'Exits'"):
        runner.match(TABLES, "SEQ(Shelf s, Exits e)", time="at")


def test_a_key_of_different_types_is_an_error(runner):
    with pytest.raises(QueryError, match=r"\[weight\]"):
        runner.match(TABLES, "SEQ(Shelf s, Exit e) WHERE [weight]", time="at")


def test_a_dict_takes_no_type_column():
    with pytest.raises(EventError, match="the keys"):
        ensue.match(TABLES, "SEQ(Shelf s, Exit e)", time="at", type="tag")
    with pytest.raises(EventError, match="no event types"):
        ensue.match({}, "SEQ(Shelf s, Exit e)", time="at")


def test_integers_and_reals_share_a_column(runner):
    tables = {"A": pa.table({"at": [1], "v": [1]}), "B": pa.table({"at": [2], "v": [1.5]})}
    found = runner.match(tables, "SEQ(A a, B b) WHERE a.v < b.v", time="at")
    assert found.num_rows == 1


def test_without_a_type_column_all_events_are_of_one_type(runner):
    events = EVENTS.drop_columns(["type"])
    query = "SEQ(Any a, Any b) WHERE a.x < b.x"
    assert runner.match(events, query, time="at").num_rows == 1
    with pytest.raises(QueryError, match="the events have no type"):
        runner.match(events, "SEQ(A a, B b)", time="at")
