"""How values of matches are written."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

from ensue.cli.output import flatten_for_csv
from ensue.projection.notification_rows import convert_to_json_rows, format_cell


def written(value: object, kind: pa.DataType) -> object:
    row = convert_to_json_rows(pa.table({"v": pa.array([value], kind)}))[0]
    json.dumps(row, allow_nan=False)
    return row["v"]


def test_times_are_iso():
    moment = datetime(2026, 3, 14, 9, 0, 0, 250, UTC)
    assert written(moment, pa.timestamp("us", "UTC")) == "2026-03-14T09:00:00.000250+00:00"
    assert written(date(2026, 3, 14), pa.date32()) == "2026-03-14"
    assert written(timedelta(seconds=1.5), pa.duration("ms")) == 1.5


def test_nanoseconds_are_kept():
    kind = pa.timestamp("ns", "UTC")
    table = pa.table({"a": pa.array([1_000_000_001]).cast(kind), "n": pa.array([{"t": 5}])})
    nested = table.set_column(1, "n", table["n"].cast(pa.struct([("t", pa.timestamp("ns"))])))
    assert convert_to_json_rows(nested) == [
        {"a": "1970-01-01T00:00:01.000000001+00:00", "n": {"t": "1970-01-01T00:00:00.000000005"}}
    ]


def test_decimals_are_numbers_and_nan_is_null():
    assert written(Decimal("2.50"), pa.decimal128(5, 2)) == 2.5
    assert written(Decimal("7.00"), pa.decimal128(5, 2)) == 7
    assert written(float("nan"), pa.float64()) is None


def test_lists_of_events():
    kind = pa.list_(pa.struct([("t", pa.timestamp("s")), ("b", pa.binary())]))
    value = [{"t": datetime(2026, 1, 1), "b": b"\x01"}]
    assert written(value, kind) == [{"t": "2026-01-01T00:00:00", "b": "01"}]


def test_dictionary_columns_are_their_values():
    table = pa.table({"v": pa.array(["x", "y"]).dictionary_encode()})
    assert convert_to_json_rows(table) == [{"v": "x"}, {"v": "y"}]


def test_csv_columns_of_a_missing_event_are_empty():
    kind = pa.struct([("price", pa.int64()), ("tags", pa.list_(pa.string()))])
    table = pa.table({"a": pa.array([{"price": 1, "tags": ["x"]}, None], kind)})
    assert flatten_for_csv(table).to_pylist() == [{"a.price": 1, "a.tags": '["x"]'}, {"a.price": None, "a.tags": None}]


def test_cells_are_short():
    assert format_cell([{"a": None}, 1.0, True]) == "[{a: null}, 1, true]"
