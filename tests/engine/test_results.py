"""The table of matches: its columns, their types, and what is left out."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.expressions import COLUMNS, tables
from tests.engine.test_vectors import normal

from ensue.functions.interpreter import compute_aggregate, evaluate
from ensue.ir.expression import AGGREGATES, Aggregate, Binary, EventPosition, FieldRef, IsNull, Literal
from ensue.ir.pattern import Atom, Kleene, Maybe, Seq
from ensue.ir.query import Query, ReturnItem
from ensue.projection.match_table import MatchTableBuilder
from ensue.schema import build_table_schema
from ensue.vector.arrow_types import get_field_kinds
from ensue.vector.match_rows import Matches
from support.seeds import scaled

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # with JIT off, scalars warn

EVENTS = pa.table(
    {
        "t": pa.array([10, 20, 30, 40, 50], pa.timestamp("ms", "Europe/Berlin")),
        "price": pa.array(["1.50", "0.30", None, "2.00", "9.99"]).cast(pa.decimal128(9, 2)),
        "name": pa.array(["b", "a", "c", None, "a"]).dictionary_encode(),
        "size": pa.array([1, 2, 3, None, 5], pa.int32()),
        "tags": pa.array([["x"], [], None, ["y", "z"], []]),
    }
)
SCHEMA = build_table_schema(get_field_kinds(EVENTS.schema), time="t")
PATTERN = Seq((Maybe(Atom("E", "a")), Kleene(Atom("E", "k"), 0, None), Atom("E", "b")))
MATCHES = Matches(
    {"a": np.array([0, -1, 1]), "b": np.array([4, 3, 2])}, {"k": (np.array([0, 2, 3, 3]), np.array([1, 3, 2]))}, 3
)
A, B = FieldRef("a", "price"), FieldRef("b", "price")


def columns_of(events, variables="abk"):
    return {v: [(n, n) for n in events.column_names] for v in variables}


def result(*returned, having=None, residual=(), matches=MATCHES, events=EVENTS, schema=SCHEMA):
    named = tuple(ReturnItem(expr, f"c{k}") for k, expr in enumerate(returned))
    query = Query(PATTERN, returns=named, having=having)
    builder = MatchTableBuilder(query, schema, events.schema, residual, columns_of=columns_of(events))
    found = builder.build(matches, events)
    found.validate(full=True)
    assert found.schema == builder.output_schema
    return found


def column(*args, **kwargs):
    return result(*args, **kwargs).column("c0")


def test_without_return_a_match_is_its_events():
    found = result()
    assert found.column_names == ["match_id", "start", "end", "a", "k", "b"]
    assert found.column("a").to_pylist()[1] is None
    assert found.column("a").to_pylist()[0] == EVENTS.slice(0, 1).to_pylist()[0]
    assert [len(k) for k in found.column("k").to_pylist()] == [2, 1, 0]
    assert found.column("k").to_pylist()[1] == EVENTS.slice(2, 1).to_pylist()
    assert found.column("a").type == pa.struct(list(EVENTS.schema))


def test_start_and_end_are_those_of_the_members():
    found = result(Literal(1))
    times = EVENTS.column("t").to_pylist()
    assert found.column("start").to_pylist() == [times[0], times[2], times[1]]
    assert found.column("end").to_pylist() == [times[4], times[3], times[2]]
    assert found.schema.field("start").type == EVENTS.schema.field("t").type


def test_intervals_start_with_the_earliest_start():
    events = pa.table({"s": [5, 1, 2], "e": [6, 7, 8]})
    schema = build_table_schema(get_field_kinds(events.schema), time=("s", "e"))
    matches = Matches(
        {"a": np.array([-1, 0]), "b": np.array([2, 2])}, {"k": (np.array([0, 2, 2]), np.array([0, 1]))}, 2
    )
    found = result(Literal(1), matches=matches, events=events, schema=schema)
    assert found.column("start").to_pylist() == [1, 2]
    assert found.column("end").to_pylist() == [8, 8]


@pytest.mark.parametrize("name", EVENTS.column_names)
def test_a_plain_field_keeps_its_type(name):
    found = column(FieldRef("b", name))
    assert found.type == EVENTS.schema.field(name).type
    values = EVENTS.column(name).to_pylist()
    assert found.to_pylist() == [values[4], values[3], values[2]]


@pytest.mark.parametrize("type", [pa.string_view(), pa.large_string(), pa.null(), pa.binary(), pa.float16()], ids=str)
def test_unusual_types_are_carried_through(type):
    events = pa.table({"t": [1, 2, 3, 4, 5], "x": pa.nulls(5, type)})
    schema = build_table_schema(get_field_kinds(events.schema), time="t")
    assert column(FieldRef("b", "x"), events=events, schema=schema).type == type


def test_run_ends_are_carried_through():
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array([1, 2]))
    events = pa.table({"t": [1, 2, 3, 4, 5], "x": runs})
    schema = build_table_schema(get_field_kinds(events.schema), time="t")
    found = column(FieldRef("a", "x"), events=events, schema=schema)
    assert found.type == runs.type
    assert found.to_pylist() == [1, None, 1]


def test_elements_of_a_kleene_variable():
    assert column(FieldRef("k", "size", EventPosition.NTH, 2)).to_pylist() == [None, None, None]
    assert column(FieldRef("k", "size", EventPosition.NTH, 1)).to_pylist() == [2, 3, None]
    assert column(FieldRef("k", "name", EventPosition.LAST)).to_pylist() == [None, "c", None]
    assert column(FieldRef("k", "size", EventPosition.ALL)).to_pylist() == [[2, None], [3], []]
    whole = column(FieldRef("k", None, EventPosition.NTH, 1)).to_pylist()
    assert [w and w["size"] for w in whole] == [2, 3, None]


def test_chosen_values_keep_their_type():
    lowest = column(Aggregate("min", "k", FieldRef("k", "price", EventPosition.ALL)))
    assert lowest.type == pa.decimal128(9, 2)
    assert lowest.to_pylist() == [Decimal("0.30"), None, None]
    names = column(Aggregate("max", "k", FieldRef("k", "name", EventPosition.ALL)))
    assert names.type == EVENTS.schema.field("name").type
    assert names.to_pylist() == ["a", "c", None]
    last = column(Aggregate("last", "k", FieldRef("k", "tags", EventPosition.ALL)))
    assert last.to_pylist() == [["y", "z"], None, None]


def test_computed_columns():
    later = column(Binary("+", FieldRef("b", "t"), Literal(timedelta(seconds=1))))
    assert later.type == pa.timestamp("us", "Europe/Berlin")
    assert later.to_pylist()[0] == datetime(1970, 1, 1, 0, 0, 1, 50_000, tzinfo=UTC)
    assert column(Aggregate("count", "k", None)).to_pylist() == [2, 1, 0]
    assert column(Binary("/", B, Literal(2))).to_pylist() == [9.99 / 2, 1.0, None]
    assert column(Literal(None)).type == pa.null()


def test_having_leaves_matches_out():
    found = result(B, having=Binary(">", A, Literal(1)))
    assert found.column("c0").to_pylist() == [Decimal("9.99")]


def test_a_residual_conjunct_about_a_missing_event_does_not_apply():
    never = Binary(">", A, Literal(100))
    assert column(B, residual=(never,)).to_pylist() == [Decimal("2.00")]
    unknown = IsNull(FieldRef("k", "size", EventPosition.NTH, 2))
    assert column(B, residual=(unknown, never)).to_pylist() == [Decimal("2.00")]


def test_a_returned_name_replaces_a_standard_column():
    query = Query(PATTERN, returns=(ReturnItem(B, "end"), ReturnItem(A, "match_id")))
    builder = MatchTableBuilder(query, SCHEMA, EVENTS.schema, columns_of=columns_of(EVENTS))
    found = builder.build(MATCHES, EVENTS)
    assert found.column_names == ["start", "end", "match_id"]
    assert found.schema.field("end").type == pa.decimal128(9, 2)


def test_fields_may_lie_in_columns_of_other_names():
    events = EVENTS.rename_columns(["t", "price@E", "name", "size", "tags"])
    columns = {v: [("t", "t"), ("price", "price@E")] for v in "abk"}
    for name in ("price", "price@E"):
        query = Query(PATTERN, returns=(ReturnItem(FieldRef("b", name), "p"), ReturnItem(FieldRef("b", None), "b")))
        builder = MatchTableBuilder(query, SCHEMA, events.schema, columns_of=columns)
        found = builder.build(MATCHES, events)
        assert found.column("p").to_pylist()[1] == Decimal("2.00")
        assert list(found.column("b").to_pylist()[1]) == ["t", "price"]


def test_no_matches_give_an_empty_table():
    none = Matches({"a": np.zeros(0, int), "b": np.zeros(0, int)}, {"k": (np.zeros(1, int), np.zeros(0, int))}, 0)
    assert result(matches=none).num_rows == 0
    assert result(A, Aggregate("avg", "k", FieldRef("k", "size", EventPosition.ALL)), matches=none).num_rows == 0


def test_events_may_come_in_chunks():
    chunked = pa.concat_tables([EVENTS.slice(0, 2), EVENTS.slice(2)])
    assert result(events=chunked).to_pylist() == result().to_pylist()


@settings(max_examples=scaled(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), tables())
def test_aggregates_are_those_of_the_plain_meaning(data, table):
    rows = st.lists(st.integers(0, table.num_rows - 1), max_size=4, unique=True).map(sorted)
    groups = data.draw(st.lists(rows if table.num_rows else st.just([]), max_size=4))
    offsets = np.cumsum([0, *map(len, groups)]).astype(np.int64)
    flat = np.array([r for group in groups for r in group], np.int64)
    matches = Matches({}, {"k": (offsets, flat)}, len(groups))
    name = data.draw(st.sampled_from(list(COLUMNS)))
    numeric = COLUMNS[name][0].numeric
    functions = ("count", "min", "max", "first", "last")
    if numeric:
        functions = tuple(set(AGGREGATES) - {"string_agg", "bool_and", "bool_or"})
    function = data.draw(st.sampled_from(sorted(functions)))
    parameter = data.draw(st.floats(0, 100)) if function == "percentile" else None
    plain = FieldRef("k", name, EventPosition.ALL)
    argument = Binary("*", plain, Literal(2)) if numeric and data.draw(st.booleans()) else plain
    events = table.append_column("time", pa.array(range(table.num_rows), pa.int64()))
    schema = build_table_schema(get_field_kinds(events.schema), time="time")
    found = column(
        Aggregate(function, "k", argument, parameter=parameter), matches=matches, events=events, schema=schema
    )
    values = [evaluate(argument, lambda f, row=row: row[f.name]) for row in events.to_pylist()]
    wanted = [compute_aggregate(function, [values[r] for r in group], parameter) for group in groups]
    assert [normal(v) for v in found.to_pylist()] == [normal(v) for v in wanted]
