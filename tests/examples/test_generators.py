"""The seeded generators: the thefts of the shop are the ones the question asks for."""

from datetime import datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from samples.shop import THEFT, shop
from samples.stocks import TYPES, stocks


def stolen(readings: pa.Table) -> set[tuple[str, datetime]]:
    """Exits with a shelf reading in the 12 hours before, and neither counter nor exit since."""
    found, on_shelf = set(), {}
    for row in readings.to_pylist():
        match row["reader"]:
            case "SHELF":
                on_shelf[row["tag"]] = row["ts"]
            case "COUNTER":
                on_shelf.pop(row["tag"], None)
            case "EXIT":
                since = on_shelf.pop(row["tag"], None)
                if since is not None and row["ts"] - since <= timedelta(hours=12):
                    found.add((row["tag"], row["ts"]))
    return found


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", [7, 8])
def test_the_planted_thefts_are_the_thefts(seed):
    day = shop(30_000, seed=seed)
    planted = set(zip(*(day.thefts[name].to_pylist() for name in ("tag", "gone")), strict=True))
    assert len(planted) == day.thefts.num_rows > 5
    assert stolen(day.readings) == planted


def test_the_day_has_its_tricky_items():
    readings = shop(100_000).readings
    kinds = set(readings["reader"].unique().to_pylist())
    assert kinds == {"SHELF", "COUNTER", "EXIT", "FITTING_ROOM"}
    exits = readings.filter(pc.equal(readings["reader"], "EXIT"))
    per_item = exits.group_by("tag").aggregate([("ts", "count")])
    assert pc.max(per_item["ts_count"]).as_py() > 1
    shelved = set(readings.filter(pc.equal(readings["reader"], "SHELF"))["tag"].to_pylist())
    assert set(exits["tag"].to_pylist()) - shelved, "customers wear what they bought long ago"


def test_the_shop_is_in_time_order_and_seeded():
    day = shop(5_000)
    times = day.readings["ts"].to_pylist()
    assert times == sorted(times)
    assert day == shop(5_000)
    assert day != shop(5_000, seed=8)


@pytest.mark.parametrize("events", [1_000, 50_000])
def test_the_number_of_readings_is_about_the_one_asked_for(events):
    assert shop(events).readings.num_rows == pytest.approx(events, rel=0.15)


def test_the_theft_query_names_the_columns_of_the_thefts():
    assert "AS tag" in THEFT
    assert "AS gone" in THEFT


def test_stocks_are_seeded_and_in_time_order():
    table = stocks(10_000, symbols=50)
    assert table.schema == pa.schema(
        [
            ("ts", pa.timestamp("us", "UTC")), ("type", pa.string()), ("symbol", pa.string()),
            ("price", pa.float64()), ("volume", pa.int64()),
        ]
    )  # fmt: skip
    assert table == stocks(10_000, symbols=50)
    gaps = pc.cast(pc.pairwise_diff(table["ts"].combine_chunks()), pa.int64()).drop_null()
    assert pc.min(gaps).as_py() == 0
    assert 9_000 < pc.mean(gaps).as_py() < 11_000


def test_stocks_have_all_types_and_symbols():
    table = stocks(10_000, symbols=50)
    assert set(table["type"].to_pylist()) == set(TYPES)
    assert len(table["symbol"].unique()) == 50
    assert pc.min(table["volume"]).as_py() >= 100
    assert pc.max(table["volume"]).as_py() <= 2_000


def test_a_price_walks_in_small_steps():
    table = stocks(10_000, symbols=3)
    prices = table.filter(pc.equal(table["symbol"], "SYM00001"))["price"].to_pylist()
    assert all(abs(after / before - 1) < 0.01 for before, after in pairwise(prices))


def test_no_stocks_at_all():
    assert stocks(0).num_rows == 0
