"""The samples with a past: what is planted is what the question asks for, counted by hand."""

from collections import defaultdict
from datetime import datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest

import ensue
from samples.comeback import COMEBACK, comebacks
from samples.logins import NEW_DEVICE, logins
from samples.toll import SPEEDING, toll

SAMPLES = (toll, comebacks, logins)


def rows(table: pa.Table) -> set[tuple[object, ...]]:
    return {tuple(row.values()) for row in table.to_pylist()}


# ------------------------------------------------------------------------------------- toll


def sections(past: pa.Table, live: pa.Table) -> list[dict[str, object]]:
    """Every live pass with the pass of this car before it, if that is at most 6 hours ago."""
    last: dict[str, dict[str, object]] = {}
    found = []
    for number, row in enumerate(pa.concat_tables([past, live]).to_pylist()):
        before = last.get(row["tag"])
        if number >= past.num_rows and before and row["ts"] - before["ts"] <= timedelta(hours=6):
            took = (row["ts"] - before["ts"]) / timedelta(hours=1)
            driven = abs(row["km"] - before["km"])
            found.append(row | {"came_from": before["point"], "speed": driven / took})
        last[row["tag"]] = row
    return found


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", [7, 8])
def test_the_planted_speeders_are_the_speeders(seed):
    road = toll(20_000, seed=seed)
    driven = sections(road.past, road.live)
    fast = {(s["tag"], s["came_from"], s["point"], s["ts"]) for s in driven if s["speed"] > 120 and s["kind"] == "toll"}
    assert fast == rows(road.speeders)
    assert len(fast) == road.speeders.num_rows > 20
    assert sum(s["speed"] <= 120 for s in driven) > 1_000


def test_the_road_has_what_only_looks_like_speeding():
    road = toll(20_000)
    driven = sections(road.past, road.live)
    assert any(s["speed"] > 120 and s["kind"] == "gantry" for s in driven), "nobody is fined there"
    assert any(s["came_from"] == s["point"] and s["speed"] == 0 for s in driven), "read twice"
    passes = road.live.num_rows
    assert len(driven) < passes, "some come after more than 6 hours, or for the first time"


def test_some_sections_begin_in_the_past():
    road = toll(20_000)
    noon = road.live["ts"][0].as_py()
    alone = sections(road.past.slice(0, 0), road.live)
    both = sections(road.past, road.live)
    early = {s["tag"] for s in both if s["ts"] - noon < timedelta(minutes=10)}
    assert len(both) - len(alone) > 100
    assert early & set(road.speeders["tag"].to_pylist())


# --------------------------------------------------------------------------------- comeback


def prices(trades: pa.Table) -> dict[str, list[tuple[datetime, float]]]:
    found: dict[str, list[tuple[datetime, float]]] = defaultdict(list)
    for row in trades.to_pylist():
        found[row["symbol"]].append((row["ts"], row["price"]))
    return found


def third_falls(trades: list[tuple[datetime, float]]) -> list[datetime]:
    """When a price has fallen three times in a row."""
    found, falls = [], 0
    for (_, before), (ts, price) in pairwise(trades):
        falls = falls + 1 if price < before else 0
        if falls == 3:
            found.append(ts)
    return found


def ticks(trades: list[tuple[datetime, float]]) -> list[tuple[datetime, datetime]]:
    """Falls, and rises by more than a tenth above where the fall began: from when to when."""
    found = []
    for low in range(1, len(trades) - 1):
        top = low
        while top + 1 < len(trades) and trades[top + 1][1] > trades[top][1]:
            top += 1
        first = low
        while first > 0 and trades[first - 1][1] > trades[first][1]:
            first -= 1
            lowest, highest = trades[low][1], trades[top][1]
            within = trades[top][0] - trades[first][0] <= timedelta(hours=1)
            if highest > max(trades[first][1], lowest * 1.1) and within:
                found.append((trades[first][0], trades[top][0]))
    return found


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", [7, 8])
def test_the_planted_comebacks_are_the_comebacks(seed):
    made = comebacks(30_000, seed=seed)
    past, live = prices(made.past), prices(made.live)
    falls = {(symbol, ts) for symbol, trades in live.items() for ts in third_falls(trades)}
    assert falls == rows(made.falls)
    ticked = {symbol: ticks(trades) for symbol, trades in past.items()}
    back = {
        (symbol, ts)
        for symbol, ts in falls
        if any(ts - since < timedelta(days=30, minutes=-10) for since, _ in ticked[symbol])
    }
    assert back == rows(made.comebacks)
    assert 3 <= len(back) < len(falls)


def test_the_past_has_what_only_looks_like_a_comeback():
    made = comebacks(30_000)
    today = made.live["ts"][0].as_py()
    of = {symbol: ticks(trades) for symbol, trades in prices(made.past).items()}
    ages = [(today - since).days for found in of.values() for since, _ in found]
    assert any(age >= 30 for age in ages), "too long ago"
    half = [s for s, trades in prices(made.past).items() if _halved(trades) and not of[s]]
    assert half, "a rise that ends below where the fall began"


def _halved(trades: list[tuple[datetime, float]]) -> bool:
    return any(price < before * 0.85 for (_, before), (_, price) in pairwise(trades))


# ----------------------------------------------------------------------------------- logins


def first_logins(past: pa.Table, live: pa.Table) -> set[tuple[object, ...]]:
    """Those of today whose user was not in from there in the 90 days before."""
    last: dict[tuple[str, str], datetime] = {}
    found = set()
    for number, row in enumerate(pa.concat_tables([past, live]).to_pylist()):
        if not row["ok"]:
            continue
        who = row["user"], row["device"]
        seen = last.get(who)
        if number >= past.num_rows and not (seen and row["ts"] - seen <= timedelta(days=90)):
            found.add((*who, row["ts"]))
        last[who] = row["ts"]
    return found


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", [7, 8])
def test_the_planted_devices_are_the_new_ones(seed):
    log = logins(20_000, seed=seed)
    assert first_logins(log.past, log.live) == rows(log.new)
    assert 50 < log.new.num_rows < log.live.num_rows / 5


def test_new_devices_come_in_every_kind():
    log = logins(20_000)
    past = log.past.to_pylist()
    known = {row["device"] for row in past}
    own = {(row["user"], row["device"]) for row in past if row["ok"]}
    tried = {(row["user"], row["device"]) for row in past if not row["ok"]}
    kinds = {
        "back after long" if (user, device) in own
        else "tried" if (user, device) in tried
        else "of another" if device in known
        else "fresh"
        for user, device, _ in rows(log.new)
    }  # fmt: skip
    assert kinds == {"back after long", "tried", "of another", "fresh"}


# ------------------------------------------------------------------------------------- all


@pytest.mark.parametrize("sample", SAMPLES)
def test_tables_are_in_time_order_seeded_and_of_about_the_size_asked_for(sample):
    past, live, *truth = made = sample(30_000)
    times = pa.concat_tables([past, live])["ts"].to_pylist()
    assert times == sorted(times)
    assert past.schema == live.schema
    assert len(times) == pytest.approx(30_000, rel=0.15)
    assert all(table.num_rows == len(rows(table)) for table in truth)
    assert made == sample(30_000)
    assert made != sample(30_000, seed=8)


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_smallest_one_has_something_to_find(sample):
    assert sample(1)[2].num_rows > 0


@pytest.mark.parametrize("query", [SPEEDING, COMEBACK, NEW_DEVICE])
def test_the_questions_can_be_read(query):
    assert isinstance(ensue.parse(query), ensue.ArchiveJoinQuery)
