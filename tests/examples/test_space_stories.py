"""The samples with places: what is planted is what the subscriptions ask for, counted by hand."""

from collections import defaultdict
from datetime import datetime, timedelta
from itertools import pairwise
from math import hypot

import pyarrow as pa
import pytest
import shapely

from ensue.geo.geometry import ConvexHull, compute_distance, is_inside
from ensue.geo.wkt import read_wkt
from samples.convoys import convoys
from samples.fences import fences
from samples.warehouses import warehouses

SOON, LATE = timedelta(minutes=25), timedelta(seconds=90)


def rows(table: pa.Table) -> set[tuple[object, ...]]:
    return {tuple(row.values()) for row in table.to_pylist()}


def by_id(reports: pa.Table) -> dict[int, list[dict[str, object]]]:
    found: dict[int, list[dict[str, object]]] = defaultdict(list)
    for row in reports.to_pylist():
        found[row["id"]].append(row)
    return found


# -------------------------------------------------------------------------------- warehouses


def passages(reports, region, *, out: bool):
    """From inside to more than 300 metres away in time, or back; each report is used once."""
    area, found, since = shapely.from_wkt(region), [], None
    for row in reports:
        if row["type"] != "truck" or row["x"] is None:
            continue
        away = shapely.distance(area, shapely.Point(row["x"], row["y"]))
        begins, ends = (away == 0, away > 300) if out else (away > 300, away == 0)
        if ends and since is not None and row["ts"] - since <= SOON:
            found.append((since, row["ts"]))
            since = None
        if begins:
            since = row["ts"]
    return found


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", [7, 8])
def test_planted_departures_and_arrivals(seed):
    day = warehouses(300, seed=seed)
    reports = by_id(day.reports)
    told = {
        (f"{what}-{trip.truck}", *times)
        for trip in day.trips
        for what, region in (("left", trip.home), ("arrived", trip.target))
        for times in passages(reports[trip.truck], region, out=what == "left")
    }
    assert told == rows(day.notes)
    assert 150 < len(told) < 450


def test_the_day_has_its_near_misses():
    day = warehouses(300)
    notes = {name for name, _, _ in rows(day.notes)}
    away, types, gaps = set(), defaultdict(set), set()
    for trip in day.trips:
        own = by_id(day.reports.filter(pa.compute.equal(day.reports["id"], trip.truck)))
        for row in own[trip.truck]:
            types[trip.truck].add(row["type"])
            if row["x"] is not None:
                place = shapely.Point(row["x"], row["y"])
                away |= {shapely.distance(shapely.from_wkt(r), place) for r in trip[1:]}
        gaps |= {b["ts"] - a["ts"] for a, b in pairwise(own[trip.truck])}
    assert 300.0 in away, "exactly as far as it must not be"
    assert {SOON, SOON + timedelta(seconds=1)} <= gaps, "in time, and just not"
    assert any(row["x"] is None for row in day.reports.to_pylist()), "without a place"
    assert any("van" in kinds and f"left-{truck}" not in notes for truck, kinds in types.items())


# ------------------------------------------------------------------------------------ convoys


def straying(reports: pa.Table):
    """Pairs of a follower and its leader, close in time: near, and then far, in time."""
    found, leaders = set(), {}
    near: dict[int, tuple[datetime, datetime]] = {}
    for row in reports.to_pylist():
        if row["role"] == "leader":
            leaders[row["convoy"]] = row
            continue
        leader = leaders[row["convoy"]]
        if row["ts"] - leader["ts"] > timedelta(seconds=5):
            continue
        away = hypot(row["x"] - leader["x"], row["y"] - leader["y"])
        if away > 500 and row["id"] in near and row["ts"] - near[row["id"]][1] <= LATE:
            start = near[row["id"]][0]
            found.add((f"convoy-{row['convoy']}", row["id"], start, row["ts"]))
        if away < 500:
            near[row["id"]] = leader["ts"], row["ts"]
    return found


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", [7, 8])
def test_planted_strays(seed):
    morning = convoys(10, seed=seed)
    assert straying(morning.reports) == rows(morning.strayed)
    assert 20 < morning.strayed.num_rows < 100


# ------------------------------------------------------------------------------------- fences


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", [7, 8])
def test_planted_notes_of_fences(seed):
    day = fences(400, seed=seed)
    areas = {fence.name: read_wkt(fence.region) for fence in day.fences}
    told = set()
    for reports in by_id(day.reports).values():
        for fence in day.fences:
            if abs(_middle(areas[fence.name]) - reports[0]["lat"]) > 0.25:
                continue
            if fence.vehicle is None:
                told |= {(fence.name, *times) for times in _entering(reports, areas[fence.name])}
            elif fence.vehicle == reports[0]["id"]:
                told |= {(fence.name, *times) for times in _away(reports, areas[fence.name])}
    assert told == rows(day.notes)
    assert len(told) > 15


def _middle(area):
    return area.y if hasattr(area, "y") else area.polygons[0][0][0][1]


def _away(reports, area):
    seen = [row["ts"] for row in reports if is_inside(_place(row), area, "earth")]
    half = timedelta(minutes=30)
    for n, ts in enumerate(seen):
        if n + 1 == len(seen) or seen[n + 1] - ts > half:
            yield ts, ts + half


def _entering(reports, area):
    near = None
    for row in reports:
        if row["type"] != "truck":
            continue
        if is_inside(_place(row), area, "earth"):
            if near is not None and row["ts"] - near <= timedelta(minutes=10):
                yield near, row["ts"]
            near = None
        elif 0 < compute_distance(area, _place(row), "earth") < 2_000:
            near = row["ts"]


def _place(row):
    return ConvexHull(((row["lon"], row["lat"]),))


def test_the_first_fences_lie_across_180_degrees_and_are_visited_from_both_sides():
    day = fences(100)
    assert all("180.0078125" in fence.region for fence in day.fences[:2])
    assert {"fence-0", "fence-1"} <= {name for name, _, _ in rows(day.notes)}
    near = [row["lon"] for row in day.reports.to_pylist() if abs(row["lon"]) > 179.9]
    assert min(near) == -180.0
    assert any(-180 < lon < -179.9 for lon in near)


# ------------------------------------------------------------------------------------- all


@pytest.mark.parametrize("sample", [warehouses, convoys, fences])
def test_reports_are_in_time_order_and_seeded(sample):
    made = sample(20)
    times = made.reports["ts"].to_pylist()
    assert times == sorted(times)
    assert made == sample(20)
    assert made != sample(20, seed=8)
