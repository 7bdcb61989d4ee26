"""The day of trucks: what is planted is what the templates ask for, counted by hand."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import cos, hypot, radians
from typing import Any

import pyarrow as pa
import pytest
import shapely

from ensue.geo.geometry import haversine
from samples.fleet.roads import METRES, ROADS, Way, apart, moved, road
from samples.fleet.sites import DEPOTS, targets, way
from samples.fleet_day import FleetDay, fleet_day

Row = dict[str, Any]
Box = tuple[float, float, float, float]
MIDNIGHT = datetime(2026, 3, 16, tzinfo=UTC)


@pytest.fixture(scope="module")
def day() -> FleetDay:
    return fleet_day()


def by_id(reports: pa.Table) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in reports.to_pylist():
        found[row["id"]].append(row)
    return found


def boxes(day: FleetDay, region: str) -> list[Box]:
    """All areas of the day are boxes of longitudes and latitudes."""
    areas = shapely.get_parts(shapely.from_wkt(day.regions[region]))
    assert all(area.equals(shapely.box(*area.bounds)) for area in areas)
    return [area.bounds for area in areas]


def away(row: Row, areas: Sequence[Box]) -> float:
    """Metres from the nearest of them; 0 inside or on the border."""
    return min(
        hypot(
            max(west - row["x"], 0, row["x"] - east) * METRES * cos(radians(row["y"])),
            max(south - row["y"], 0, row["y"] - north) * METRES,
        )
        for west, south, east, north in areas
    )


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


# ----------------------------------------------------------------------------- counted by hand


def lasting(reports: Sequence[Row], areas: Sequence[Box], asked: dict[str, Any]) -> list[tuple[datetime, bool]]:
    """When a truck is inside, or outside beyond the margin, if it lasts."""
    known = []
    for row in reports:
        far = away(row, areas)
        if far == 0 or asked["margin"] < far < asked["reach"]:
            known.append((row["ts"], far == 0))
    found = []
    for place, (time, inside) in enumerate(known):
        behind = known[place + 1 : place + 20]  # a dwell time has fewer reports
        over = time + seconds(asked["dwell"])
        if all(other == inside or at > over for at, other in behind):
            found.append((time, inside))
    return found


def crossings(states: Sequence[tuple[datetime, bool]], within: float) -> Iterator[tuple[datetime, bool]]:
    for (before, was), (time, inside) in pairwise(states):
        if was != inside and time - before <= seconds(within):
            yield time, inside


def strays(leader: Sequence[Row], follower: Sequence[Row], asked: dict[str, Any]) -> Iterator[datetime]:
    """From close to apart; a report counts if it answers one of the leader's."""
    rounds = []
    for row in follower:
        since = row["ts"] - seconds(asked["together"])
        before = [one for one in leader if since <= one["ts"] <= row["ts"]]
        if before:
            far = haversine((row["x"], row["y"]), (before[-1]["x"], before[-1]["y"]))
            if far < asked["distance"] or far > asked["distance"] + asked["margin"]:
                rounds.append((row["ts"], far < asked["distance"]))
    for place, ((before_it, was), (time, close)) in enumerate(pairwise(rounds)):
        over = time + seconds(asked["dwell"])
        back = any(near and time < at <= over for at, near in rounds[place + 1 :])
        if was and not close and time - before_it <= seconds(asked["within"]) and not back:
            yield time


def counted(day: FleetDay) -> Iterator[tuple[str, int, datetime, datetime]]:
    trucks = by_id(day.reports)
    for name, template, asked in day.subscriptions:
        areas = boxes(day, asked.get("region") or asked.get("unless_in") or "Depots")
        for truck, reports in trucks.items():
            times: list[datetime] = []
            lasts = asked.get("dwell", 0)
            if template == "not_seen":
                lasts = asked["longer_than"]
                for row, after in pairwise([*reports, None]):
                    silent = after is None or after["ts"] - row["ts"] > seconds(lasts)
                    if silent and away(row, areas) > asked["margin"]:
                        times.append(row["ts"])
            elif template == "strays":
                if truck in asked["followers"]:
                    times += strays(trucks[asked["leader"]], reports, asked)
            else:
                states = lasting(reports, areas, asked)
                changes = crossings(states, asked["within"])
                times += [time for time, inside in changes if inside != (template == "leaves")]
                if template == "stays":
                    longer = seconds(asked["longer_than"])
                    left = [time for time, inside in states if not inside]
                    times = [t for t in times if not any(t < out <= t + longer for out in left)]
                    lasts += asked["longer_than"]
            for time in times:
                yield name, truck, time, time + seconds(lasts)


@pytest.mark.parametrize(("trucks", "seed"), [(9, 11), (4, 1)])
def test_the_notes_are_what_one_counts_by_hand(trucks, seed):
    day = fleet_day(trucks, seed)
    notes = [tuple(row.values()) for row in day.notes.to_pylist()]
    assert sorted(counted(day)) == sorted(notes)
    assert len(notes) > trucks


# ------------------------------------------------------------------------------- what is in it


def test_a_day_has_enough_of_everything(day):
    assert 50_000 < day.reports.num_rows < 120_000
    times = day.reports["ts"].to_pylist()
    assert times == sorted(set(times)), "in order, and no two at a time"
    assert set(day.reports["id"].to_pylist()) == set(range(1, 201))
    assert max(day.notes["end"].to_pylist()) < times[-1], "all is told before the day is over"
    told = Counter(name.partition("-")[0] for name in day.notes["subscription"].to_pylist())
    assert set(told) == {"left", "reached", "silent", "rests", "convoy"}
    assert min(told.values()) > 50
    names = {name for name, _, _ in day.subscriptions}
    assert set(day.notes["subscription"].to_pylist()) == names


@pytest.mark.slow
def test_the_day_has_its_near_misses(day):
    gaps, margins, borders, jumps = set(), set(), 0, 0
    areas = {name: boxes(day, name) for name in DEPOTS}
    everywhere = boxes(day, "Depots")
    for reports in by_id(day.reports).values():
        for row, after in pairwise(reports):
            far = away(row, everywhere)
            if far > 150:
                gaps.add(after["ts"] - row["ts"])
            margins.add(round(far))
            jumps += far == 0 and 2_000 < away(after, everywhere) < 5_000
            borders += far == 0 and any(row["x"] in (b[0], b[2]) for (b,) in areas.values())
    assert {seconds(1_200), seconds(1_201)} <= gaps, "silent as long as one may be, and longer"
    assert 149 in margins, "a metre before the wider border"
    assert borders > 10, "exactly on the border"
    assert jumps > 10, "somewhere else for a moment"


def test_what_happens_at_one_place_is_seen_at_no_other(day):
    """Roads pass far away from depots, and rest areas lie apart from roads and depots."""
    ways = [Way(road(a, b)) for a, b in ROADS]
    roads = [one.at(k * 1000.0) for one in ways for k in range(int(one.length / 1000))]
    rows = [{"x": x, "y": y} for x, y in roads]
    for name in DEPOTS:
        assert min(away(row, boxes(day, name)) for row in rows) > 3_500
        others = [other for other in DEPOTS if other != name]
        middle = {"x": DEPOTS[name][0][0], "y": DEPOTS[name][0][1]}
        assert min(away(middle, boxes(day, other)) for other in others) > 30_000
    assert min(away(row, boxes(day, "RestAreas")) for row in rows) > 400
    west, south, _, _ = boxes(day, "RestAreas")[0]
    assert away({"x": west, "y": south}, boxes(day, "Depots")) > 10_000


def test_every_depot_has_somewhere_to_drive_to():
    for home in DEPOTS:
        assert len(targets(home)) > 2
        for target in targets(home):
            assert way(home, target).length == pytest.approx(way(target, home).length, rel=0.01)


# ------------------------------------------------------------------------------------- pieces


@pytest.mark.parametrize("size", [60, 3_600, 0.5 * 86_400])
def test_pieces_are_cut_by_the_time_of_events(size):
    day = fleet_day(2)
    pieces = list(day.batches(size))
    assert pa.concat_tables(pieces).equals(day.reports)
    for number, piece in enumerate(pieces):
        for time in piece["ts"].to_pylist():
            assert seconds(number * size) <= time - MIDNIGHT < seconds((number + 1) * size)


def test_a_seed_is_a_day():
    assert fleet_day(3, seed=1) == fleet_day(3, seed=1)
    assert not fleet_day(3, seed=1).reports.equals(fleet_day(3, seed=2).reports)
    assert fleet_day(0).reports.num_rows == 0
    assert [piece.num_rows for piece in fleet_day(0).batches(60)] == [0]


def test_metres_on_the_way_are_metres_on_the_earth():
    here = (7.5, 51.5)
    there = moved(here, 1_200.0, -500.0)
    assert haversine(here, there) == pytest.approx(1_300, rel=1e-3)
    assert apart(here, there) == pytest.approx((1_200, -500))
