"""Templates: what each tells of planted stories, and what it does not."""

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import ensue
from ensue.backends.live_backend import LiveEventReader, build_source
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.runtime.source_schema import SourceOptions
from ensue.service.templates import TEMPLATES, fill_template
from ensue.service.templates.template import Parameter, ParameterKind, TemplateStream
from samples.fleet.roads import METRES
from samples.fleet_day import FleetDay, fleet_day
from support.cases import each_case

PLANE = TemplateStream("id", calendar=False, whole_numbers=True)
EARTH = TemplateStream("name", key_is_text=True, earth=True)
SQUARE = (0, 10)  # where the depot is, along x
BEGIN = datetime(2026, 3, 16, tzinfo=UTC)

Report = tuple[int, int, float]  # time, object, x
Told = list[tuple[int, int]]  # object, time of its last report


@dataclass(frozen=True)
class World:
    """How stories in plain numbers become events."""

    name: str
    stream: TemplateStream
    metres: float = 1.0  # of a unit

    def __str__(self) -> str:
        return self.name

    def events(self, reports: Iterable[Report]) -> pa.Table:
        rows = [self.event(*report) for report in sorted(reports)]
        return pa.Table.from_pylist(rows, self.schema)

    def event(self, time: int, number: int, x: float) -> dict[str, Any]:
        if self.stream.earth:
            at, here = BEGIN + timedelta(seconds=time), x * self.metres / METRES
            return {"t": at, "name": f"it's {number}", "x": here, "y": 0.0}
        return {"t": time, "id": number, "x": float(x), "y": 5.0}

    @property
    def schema(self) -> pa.Schema:
        earth = self.stream.earth
        return pa.schema(
            {
                "t": pa.timestamp("us", "UTC") if earth else pa.int64(),
                str(self.stream.key): pa.string() if earth else pa.int64(),
                "x": pa.float64(),
                "y": pa.float64(),
            }
        )

    def values(self, template: str, values: Mapping[str, Any]) -> dict[str, Any]:
        kinds = {parameter.name: parameter.kind for parameter in TEMPLATES[template].parameters}
        return {name: self._value(kinds[name], value) for name, value in values.items()}

    def _value(self, kind: ParameterKind, value: Any) -> Any:
        if not self.stream.earth:
            return value
        if kind is ParameterKind.DISTANCE:
            return value * self.metres
        if kind is ParameterKind.OBJECT and value != "all":
            return [f"it's {one}" for one in (value if isinstance(value, list) else [value])]
        return value

    @property
    def regions(self) -> dict[str, str]:
        west, east = SQUARE
        south, north = 0.0, 10.0
        if self.stream.earth:
            degrees = self.metres / METRES
            west, east, south, north = 0, 10 * degrees, -5 * degrees, 5 * degrees
        corners = (west, south), (east, south), (east, north), (west, north), (west, south)
        return {"Depot": f"POLYGON (({', '.join(f'{x!r} {y!r}' for x, y in corners)}))"}

    def subscriptions(self, **texts: str) -> ensue.Subscriptions:
        space = "earth" if self.stream.earth else "plane"
        found = ensue.Subscriptions(time="t", location=("x", "y"), space=space, regions=self.regions)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ensue.SubscriptionWarning)  # they see every report
            found.add_all(texts, language="opsl")
        return found

    def told(self, matches: pa.Table) -> Told:
        found = []
        for match in matches.to_pylist():
            last = match["members"][-1]
            if self.stream.earth:
                number = int(last["name"].removeprefix("it's "))
                found.append((number, round((last["t"] - BEGIN).total_seconds())))
            else:
                found.append((last["id"], last["t"]))
        return sorted(found)


ON_PLANE = World("plane, numbers", PLANE)
ON_EARTH = World("earth, timestamps, names", EARTH, metres=100.0)
WORLDS = pytest.mark.parametrize("world", [ON_PLANE, ON_EARTH], ids=str)


def told(template: str, values: Mapping[str, Any], reports: Sequence[Report], world: World = ON_PLANE) -> Told:
    """What is told of a table; a stream of it, cut anywhere and restored, tells the same."""
    text = fill_template(template, world.values(template, values), world.stream).text
    fleet, events = world.subscriptions(it=text), world.events(reports)
    found = ensue.match(events, fleet)
    random = Random(len(reports))
    live, pieces = ensue.live(fleet, schema=events.schema), []
    cuts = sorted(random.sample(range(events.num_rows + 1), min(3, events.num_rows)))
    for begin, end in pairwise([0, *cuts, events.num_rows]):
        pieces.append(live.feed(events.slice(begin, end - begin)))
        live = ensue.live(fleet, schema=events.schema).restore(live.save())
    again = pa.concat_tables([*pieces, live.finish()])
    assert sorted(again["match_id"].to_pylist()) == sorted(found["match_id"].to_pylist())
    return world.told(found)


def truck(number: int, text: str) -> list[Report]:
    """Reports of an object: time:x, time:x."""
    pairs = (one.split(":") for one in text.split())
    return [(int(time), number, float(x)) for time, x in pairs]


def every(step: int, since: int, until: int, x: float, number: int = 1) -> list[Report]:
    return [(time, number, x) for time in range(since, until, step)]


# ---------------------------------------------------------------------------- enters, leaves

BORDER = {"region": "Depot", "margin": 5, "dwell": 20, "within": 100}
INSIDE, GATE, OUTSIDE = 5.0, 12.0, 30.0  # the gate is beside the depot, within the margin


def mirrored(reports: Sequence[Report]) -> list[Report]:
    """Outside for inside, and the other way round."""
    swap = {INSIDE: OUTSIDE, OUTSIDE: INSIDE}
    return [(time, number, swap.get(x, x)) for time, number, x in reports]


CROSSINGS = {
    "goes out": ("0:5 30:5 60:30 70:30 90:30", [60]),
    "is on the way for a while": ("0:5 30:5 40:12 50:12 60:30 90:30", [60]),
    "stays at the gate": ("0:5 30:5 40:12 50:12 60:12 90:12", []),
    "jitters over the border": ("0:5 30:5 40:12 50:5 60:12 70:5 80:12 90:5", []),
    "jitters, and goes": ("0:5 30:5 40:12 50:5 60:12 70:5 80:12 90:30 130:30", [90]),
    "comes back too soon": ("0:5 30:5 60:30 70:5 120:5", []),
    "comes back when the dwell time is just over": ("0:5 30:5 60:30 80:5 120:5", []),
    "comes back later": ("0:5 30:5 60:30 81:5 120:5", [60]),
    "goes twice": ("0:5 30:5 60:30 100:30 130:5 160:5 190:30 230:30", [60, 190]),
    "goes, comes back too soon, and goes": ("0:5 30:5 60:30 70:5 80:30 120:30", [80]),
    "is wrong about its place for a moment": ("0:5 30:5 60:5 70:30 75:5 110:5", []),
    "is silent afterwards": ("0:5 30:5 60:30", [60]),
    "was seen in time": ("0:5 100:30", [100]),
    "was seen too long ago": ("0:5 101:30", []),
    "was not there for long enough": ("0:12 10:5 30:30 80:30", []),
    "was never there": ("0:30 30:30 60:30 90:30", []),
    "is there from the beginning": ("0:5 30:5 60:5 90:5", []),
}


def told_by_story(found: Told, stories: Iterable[str]) -> dict[str, list[int]]:
    """The times of each story, whose objects are numbered as the stories are."""
    return {name: [time for object, time in found if object == number] for number, name in enumerate(stories, 1)}


@WORLDS
@pytest.mark.parametrize("template", ["leaves", "enters"])
def test_who_crosses_a_border_is_told_of_once(template, world):
    texts = enumerate((text for text, _ in CROSSINGS.values()), 1)
    reports = [report for number, text in texts for report in truck(number, text)]
    reports = reports if template == "leaves" else mirrored(reports)
    found = told_by_story(told(template, BORDER, reports, world), CROSSINGS)
    assert found == {name: times for name, (_, times) in CROSSINGS.items()}


def test_the_border_is_inside_and_the_margin_says_nothing():
    on_border = truck(1, "0:10 30:10 60:15.01 90:15.01")
    assert told("leaves", BORDER, on_border) == [(1, 60)]
    assert told("leaves", BORDER, truck(1, "0:10 30:10 60:15 90:15")) == []
    assert told("enters", BORDER, truck(1, "0:30 30:15.01 60:10 90:10")) == [(1, 60)]
    assert told("enters", {**BORDER, "dwell": 0}, truck(1, "0:15 60:10 90:10")) == []


def test_without_margin_and_dwell_every_crossing_counts():
    values = {**BORDER, "margin": 0, "dwell": 0}
    reports = truck(1, "0:5 10:10.1 20:5 30:30 40:30 50:10 60:11")
    assert told("leaves", values, reports) == [(1, 10), (1, 30), (1, 60)]
    assert told("enters", values, reports) == [(1, 20), (1, 50)]


@WORLDS
def test_each_object_has_its_own_story(world):
    reports = [
        *truck(1, "0:5 30:5 60:30 70:30 90:30"),
        *truck(2, "1:30 31:30 61:5 71:5 91:5"),
        *truck(3, "2:5 32:5 62:30 72:5 92:5"),  # back too soon, while others are outside
        *truck(4, "3:5 33:5 63:30 73:30 93:30"),
    ]
    assert told("leaves", BORDER, reports, world) == [(1, 60), (4, 63)]
    assert told("enters", BORDER, reports, world) == [(2, 61)]
    for objects, expected in ((4, [(4, 63)]), ([1, 2], [(1, 60)]), ([3], []), ("all", None)):
        values = {**BORDER, "object": objects}
        expected = [(1, 60), (4, 63)] if expected is None else expected
        assert told("leaves", values, reports, world) == expected


@WORLDS
def test_reports_from_beyond_the_reach_are_passed_over(world):
    reports = [*truck(1, "0:5 30:5 60:30 90:99"), *truck(2, "0:5 30:5 60:99 90:99")]
    assert told("leaves", {**BORDER, "reach": 50}, reports, world) == [(1, 60)]
    assert told("leaves", BORDER, reports, world) == [(1, 60), (2, 60)]


def test_a_shape_may_stand_for_a_region():
    values = {**BORDER, "region": "CIRCLE (5 5, 5)"}
    reports = truck(1, "0:5 30:10 60:16 90:16")
    assert told("leaves", values, reports) == [(1, 60)]
    corners = {**BORDER, "region": [(0, 0), (10, 0), (10, 10), (0, 10)]}
    assert told("leaves", corners, reports) == [(1, 60)]


def walk(random: Random, reports: int, objects: int) -> list[Report]:
    """To and fro around the depot; times of different objects may be equal."""
    time, found = 0, []
    at = {number: random.choice((-20.0, 5.0, 30.0)) for number in range(1, objects + 1)}
    seen: set[tuple[int, int]] = set()
    for _ in range(reports):
        time += random.choice((0, 1, 1, 2, 3, 5))
        number = random.choice(list(at))
        if (time, number) not in seen:
            seen.add((time, number))
            steps = (at[number] + random.choice((-8, -4, 0, 4, 8)), 5.0, 10.0, 12.0, 15.0, 20.0)
            at[number] = random.choice(steps)
            found.append((time, number, at[number]))
    return found


def lasting(reports: Sequence[Report], margin: float, dwell: int) -> list[tuple[int, bool]]:
    """When one object is reported inside or outside, if it lasts."""
    away = [(time, max(0, -x, x - 10)) for time, _, x in reports]
    known = [(time, far == 0) for time, far in away if far == 0 or far > margin]
    return [
        (time, inside)
        for time, inside in known
        if not any(other != inside and time < t <= time + dwell for t, other in known)
    ]


def crossings(states: Sequence[tuple[int, bool]], within: int) -> Iterator[tuple[int, bool]]:
    """When the state that lasts becomes another, if the last one is not too old."""
    for (before, was), (time, inside) in pairwise(states):
        if was != inside and time - before <= within:
            yield time, inside


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(6))
def test_random_walks_are_told_as_counted_by_hand(seed):
    random = Random(f"borders {seed}")
    reports = walk(random, 80, 3)
    dwell, margin, longer = random.choice((0, 4, 9)), random.choice((0, 3)), 15
    values = {
        "region": "Depot", "margin": margin, "dwell": dwell,
        "within": dwell + random.choice((8, 40)),
    }  # fmt: skip
    expected: dict[str, Told] = {"enters": [], "leaves": [], "stays": []}
    for number in (1, 2, 3):
        states = lasting([one for one in reports if one[1] == number], margin, dwell)
        for time, inside in crossings(states, values["within"]):
            expected["enters" if inside else "leaves"].append((number, time))
            left = any(not state and time < t <= time + longer for t, state in states)
            if inside and not left:
                expected["stays"].append((number, time))
    for template in ("enters", "leaves"):
        assert told(template, values, reports) == sorted(expected[template])
    stays = told("stays", {**values, "longer_than": longer}, reports)
    assert stays == sorted(expected["stays"])


# ------------------------------------------------------------------------------------- stays

STAY = {**BORDER, "longer_than": 60}
STAYS = {
    "stays": ([*every(10, 0, 50, OUTSIDE), *every(10, 50, 150, INSIDE)], [50]),
    "goes in time": ([*every(10, 0, 50, OUTSIDE), *every(10, 50, 100, INSIDE),
                      *every(10, 100, 200, OUTSIDE)], []),
    "goes at the last moment": ([*every(10, 0, 50, OUTSIDE), *every(10, 50, 110, INSIDE),
                                 *every(10, 110, 200, OUTSIDE)], []),
    "goes a moment later": ([*every(10, 0, 50, OUTSIDE), *every(10, 50, 110, INSIDE),
                             *every(10, 111, 200, OUTSIDE)], [50]),
    "is outside for less than the dwell time": (
        [*every(10, 0, 50, OUTSIDE), *every(10, 50, 80, INSIDE), (85, 1, OUTSIDE),
         (95, 1, OUTSIDE), *every(10, 100, 300, INSIDE)], [50]),
    "is outside between two short stays": (
        [*every(10, 0, 50, OUTSIDE), *every(10, 50, 90, INSIDE), *every(10, 90, 120, OUTSIDE),
         *every(10, 120, 160, INSIDE), *every(10, 160, 250, OUTSIDE)], []),
    "stands at the gate": ([*every(10, 0, 50, OUTSIDE), *every(10, 50, 60, INSIDE),
                            *every(10, 60, 150, GATE)], [50]),
    "is silent": ([*every(10, 0, 50, OUTSIDE), (50, 1, INSIDE)], [50]),
    "stays twice": ([*every(10, 0, 50, OUTSIDE), *every(10, 50, 150, INSIDE),
                     *every(10, 150, 200, OUTSIDE), *every(10, 200, 300, INSIDE)], [50, 200]),
    "was there before": (every(10, 0, 200, INSIDE), []),
}  # fmt: skip


@WORLDS
def test_a_stay_is_told_of_once(world):
    stories = enumerate((reports for reports, _ in STAYS.values()), 1)
    reports = [(time, number, x) for number, story in stories for time, _, x in story]
    found = told_by_story(told("stays", STAY, reports, world), STAYS)
    assert found == {name: times for name, (_, times) in STAYS.items()}


def test_a_stay_without_dwell_time():
    values = {**STAY, "dwell": 0}
    reports = truck(1, "0:30 10:5 40:5 70:5 90:30 100:5 130:5 160:5")
    assert told("stays", values, reports) == [(1, 10), (1, 100)]
    assert told("stays", values, truck(1, "0:30 10:5 40:5 70:30 90:5")) == [(1, 90)]


# ----------------------------------------------------------------------------------- not seen


@WORLDS
def test_a_silence_is_told_of_once_and_only_if_it_lasts(world):
    reports = [
        *truck(1, "0:30 50:30 110:30 171:30 180:30"),
        *truck(2, "1:30 61:30 121:30 181:30 241:30"),  # exactly as long as it may be
        *every(10, 0, 250, 30.0, number=3),
    ]
    assert told("not_seen", {"longer_than": 60}, reports, world) == [
        (1, 110), (1, 180), (2, 241), (3, 240),
    ]  # fmt: skip
    assert told("not_seen", {"longer_than": 60, "object": [1, 3]}, reports, world) == [
        (1, 110), (1, 180), (3, 240),
    ]  # fmt: skip


@WORLDS
def test_in_a_yard_one_may_be_silent(world):
    reports = [
        *truck(1, "0:30 10:5 100:5"),
        *truck(2, "0:5 10:12 100:5"),  # around the yard
        *truck(3, "0:5 10:30 100:5"),
    ]
    values = {"longer_than": 60, "unless_in": "Depot", "margin": 5}
    assert told("not_seen", values, reports, world) == [(3, 10)]
    inside = told("not_seen", {**values, "margin": 0}, reports, world)
    assert inside == [(2, 10), (3, 10)]


def test_silence_needs_no_places():
    stream = replace(PLANE, located=False)
    text = fill_template("not_seen", {"longer_than": 5}, stream).text
    fleet = ensue.Subscriptions(time="t")
    fleet.add("silent", text, language="opsl")
    found = ensue.match(pa.table({"t": [1, 4, 12], "id": [7, 7, 7]}), fleet)
    assert [row["end"] for row in found.to_pylist()] == [9, 17]


def test_silence_is_told_when_time_has_passed_without_a_further_report():
    text = fill_template("not_seen", {"longer_than": 60}, PLANE).text
    live = ensue.live(ON_PLANE.subscriptions(it=text), schema=ON_PLANE.schema)
    assert live.feed(ON_PLANE.event(5, 1, 30.0)).num_rows == 0
    assert live.advance(65).num_rows == 0
    assert live.advance(66).num_rows == 1


# ------------------------------------------------------------------------------- near, strays

NEAR = {"object": 1, "distance": 20, "margin": 10, "dwell": 20, "within": 200, "together": 9}
STRAYS = {
    "leader": 1, "followers": [2, 3], "distance": 20, "margin": 10, "dwell": 20, "within": 200,
    "together": 9,
}  # fmt: skip


def rounds(*others: str, step: int = 10) -> list[Report]:
    """The first object reports that it is at 0, the others answer, one unit after the other."""
    found = []
    for number, text in enumerate(others, 2):
        for minute, place in enumerate(text.split()):
            found.append((minute * step, 1, 0.0))
            if place != "-":
                found.append((minute * step + number - 1, number, float(place)))
    return sorted(set(found))


MEETINGS = {
    "comes near": ("50 40 15 10 10 10", [21]),
    "was between the distances": ("50 25 25 15 10 10 10", [31]),
    "comes not near enough": ("50 25 21 25 21 25 50", []),
    "is near from the beginning": ("10 10 10 10", []),
    "parts not far enough, and is near": ("50 10 10 10 25 29 10 10", [11]),
    "parts, and is near": ("50 10 10 10 31 10 10 10", [11, 51]),
    "is gone again too soon": ("50 10 50 50 50", []),
    "is gone again when the dwell time is just over": ("50 10 10 50 50", []),
    "is gone a round later": ("50 10 10 10 50", [11]),
    "is gone too soon, and comes back": ("50 10 50 10 10 10", [31]),
    "is silent between": ("50 - - - 10 10 10", [41]),
    "is silent for too long": ("50 " + "- " * 20 + "10 10 10", []),
    "is never apart as far as one knows": ("- - - 10 10 10", []),
}


MET_AT_ONCE = 7  # more would answer too late to be compared
PARTS = pytest.mark.parametrize("first", range(0, len(MEETINGS), MET_AT_ONCE))


def met(template, values, texts, world):
    """When each of several objects is told of, counted from its first report."""
    found = told(template, values, rounds(*texts), world)
    return [[time - number + 2 for object, time in found if object == number] for number in range(2, len(texts) + 2)]


@WORLDS
@PARTS
def test_who_comes_near_is_told_of_once(first, world):
    texts, times = zip(*list(MEETINGS.values())[first : first + MET_AT_ONCE], strict=True)
    assert met("near", NEAR, texts, world) == list(times)


@WORLDS
@PARTS
def test_who_strays_is_told_of_once(first, world):
    swap = {"50": "10", "10": "50", "15": "35", "40": "15", "21": "29", "29": "21", "31": "10"}
    texts, times = zip(*list(MEETINGS.values())[first : first + MET_AT_ONCE], strict=True)
    texts = [" ".join(swap.get(place, place) for place in text.split()) for text in texts]
    followers = list(range(2, len(texts) + 2))
    assert met("strays", STRAYS | {"followers": followers}, texts, world) == list(times)


def test_exactly_as_far_as_the_distance_is_not_near_and_with_the_margin_not_apart():
    assert told("near", NEAR, rounds("50 20 20 20 20")) == []
    assert told("near", NEAR, rounds("30 30 10 10 10 10")) == []
    assert told("strays", STRAYS, rounds("10 10 30 30 30 30")) == []
    assert told("strays", STRAYS, rounds("20 20 50 50 50 50")) == []


def test_two_that_stray_at_once_are_both_told_of():
    reports = rounds("10 10 50 50 50", "10 10 50 50 50", "50 50 10 10 10")
    assert told("strays", STRAYS, reports) == [(2, 21), (3, 22)]
    everybody = {**STRAYS, "followers": "all"}
    assert told("strays", everybody, reports) == [(2, 21), (3, 22)]
    assert told("near", NEAR, reports) == [(4, 23)]


def test_who_answers_too_late_is_not_compared():
    reports = [*every(20, 0, 200, 0.0), *truck(2, "1:10 21:10 50:50 70:50 90:50 110:50")]
    assert told("strays", STRAYS, reports) == []
    assert told("strays", {**STRAYS, "together": 10}, reports) == [(2, 50)]


def test_a_report_is_compared_with_the_one_just_before_it():
    """The leader moves on; its older reports say nothing any more."""
    reports = [*truck(1, "0:0 10:0 20:0 24:40 30:40 40:40 50:40"),
               *truck(2, "1:5 11:5 25:5 31:5 41:5 51:5")]  # fmt: skip
    assert told("strays", {**STRAYS, "together": 100}, reports) == [(2, 25)]
    both = [*truck(1, "0:0 10:0 20:40 30:40 40:40"), *truck(2, "0:5 10:5 20:5 30:5 40:5")]
    assert told("strays", STRAYS, both) == [(2, 20)], "at the same time is before"


def crowd() -> list[Report]:
    """Three that are apart, then together, until the third one goes."""
    found = []
    for minute, places in enumerate(((0, 50, 100), (0, 50, 100), (0, 10, 15), (0, 10, 15),
                                     (0, 10, 80), (0, 10, 80))):  # fmt: skip
        found += [(10 * minute + k, k + 1, float(x)) for k, x in enumerate(places)]
    return found


@pytest.mark.slow
def test_every_two_of_several_that_come_near():
    values = {**NEAR, "dwell": 5}
    found = [(2, 21), (3, 22), (3, 22)]  # 1 and 2, 1 and 3, 2 and 3
    for both in ({"object": "all"}, {"object": [3, 1, 2], "other": [1, 2, 3]}):
        assert told("near", {**values, **both}, crowd()) == found
    assert told("near", {**values, "object": [1, 2], "other": [3]}, crowd()) == found[1:]
    assert told("near", {**values, "object": "all", "other": 1}, crowd()) == found[:2]
    assert told("near", {**values, "object": [1, 3], "dwell": 20}, crowd()) == [(2, 21)]


def test_who_is_beyond_the_reach_is_passed_over():
    reports = rounds("90 90 10 10 10 10", "90 35 10 10 10 10")
    assert told("near", {**NEAR, "reach": 60}, reports) == [(3, 22)]
    assert told("near", {**NEAR, "object": "all", "reach": 60}, reports)[-1] == (3, 22)
    assert told("near", NEAR, reports) == [(2, 21), (3, 22)]


def test_names_have_no_order_so_each_of_two_is_told_of():
    values = {**NEAR, "object": [1, 2], "other": [1, 2], "dwell": 5}
    assert told("near", values, crowd()) == [(2, 21)]
    assert told("near", values, crowd(), ON_EARTH) == [(1, 30), (2, 21)]


def together(reports: Sequence[Report], one: int, other: int, most: int) -> list[Report]:
    """Pairs: both times, how far they are apart."""
    found = []
    theirs = [report for report in reports if report[1] == other]
    for time, _, x in theirs:
        before = [report for report in reports if report[1] == one and report[0] <= time]
        if before and time - before[-1][0] <= most:
            since = before[-1][0]
            if not any(since < report[0] < time for report in theirs):
                found.append((since, time, abs(x - before[-1][2])))
    return found


def meetings(pairs: Sequence[Report], values: Mapping[str, Any], *, near: bool) -> Iterator[int]:
    """When two that were apart are near, or the other way round, and it lasts."""
    close, far = values["distance"], values["distance"] + values["margin"]
    known = [(a, b, away < close) for a, b, away in pairs if away < close or away > far]
    for (_, before, was), (_, time, state) in pairwise(known):
        broken = any(other != state and a > time and b <= time + values["dwell"] for a, b, other in known)
        if was != state and state is near and time - before <= values["within"] and not broken:
            yield time


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(4))
def test_random_company_is_told_as_counted_by_hand(seed):
    random = Random(f"company {seed}")
    time, reports, at = 0, [], dict.fromkeys((1, 2, 3), 0.0)
    for _ in range(50):
        time += random.choice((1, 1, 2, 3, 5))
        number = random.choice(list(at))
        at[number] = random.choice((at[number] + random.choice((-20, 0, 20)), 5.0, 25.0, 30.0, 60.0))
        reports.append((time, number, at[number]))
    values = {
        "distance": 30, "margin": 5, "dwell": random.choice((0, 3, 12)),
        "within": random.choice((10, 90)), "together": random.choice((3, 10, 30)),
    }  # fmt: skip

    def by_hand(pairs: Iterable[tuple[int, int]], *, near: bool) -> Told:
        return sorted(
            (other, time)
            for one, other in pairs
            for time in meetings(together(reports, one, other, values["together"]), values, near=near)
        )

    led = [(1, 2), (1, 3)]
    assert told("near", {**values, "object": 1}, reports) == by_hand(led, near=True)
    strayed = told("strays", {**values, "leader": 1, "followers": [2, 3]}, reports)
    assert strayed == by_hand(led, near=False)
    each = told("near", {**values, "object": "all"}, reports)
    assert each == by_hand([*led, (2, 3)], near=True)


# --------------------------------------------------------------------------- a day of trucks


def found_in(day: FleetDay) -> pa.Table:
    stream = TemplateStream("id", earth=True)
    fleet = ensue.Subscriptions(time="ts", type="type", location=("x", "y"), space="earth", regions=day.regions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ensue.SubscriptionWarning)
        for name, template, values in day.subscriptions:
            fleet.add(name, fill_template(template, values, stream).text)
    live = ensue.live(fleet, schema=day.reports.schema)
    return pa.concat_tables([live.feed(piece) for piece in day.batches(900)])


@pytest.mark.parametrize(("trucks", "seed"), [(3, 11)])
def test_what_is_planted_in_a_day_of_trucks_is_told_and_nothing_else(trucks, seed):
    day = fleet_day(trucks, seed)
    told = sorted(
        (row["subscription"], row["members"][-1]["id"], row["members"][-1]["ts"], row["end"])
        for row in found_in(day).to_pylist()
    )
    assert told == sorted(tuple(row.values()) for row in day.notes.to_pylist())


# ---------------------------------------------------------------------------------- the text

NUMBERS = TemplateStream("id", calendar=False)
STREAMS = {
    "earth": TemplateStream("id", earth=True),
    "names": TemplateStream("truck's name", key_is_text=True, earth=True),
    "plane": TemplateStream("id"),
    "numbers": NUMBERS,
    "whole numbers": PLANE,
}
USUAL: dict[str, dict[str, Any]] = {
    "enters": {"region": "Depot"},
    "leaves": {"region": "CIRCLE (5 5, 3)", "reach": 1_000},
    "stays": {"region": "Depot", "longer_than": "45 minutes"},
    "not_seen": {"longer_than": "20 minutes", "unless_in": "Depot"},
    "near": {"object": "all", "distance": 50},
    "strays": {"leader": "1", "followers": "all", "distance": 50.5},
}
LENGTHS = {"longer_than": 45, "within": 30, "together": 1, "dwell": 2}


def usual(template: str, stream: TemplateStream, **more: Any) -> dict[str, Any]:
    known = {parameter.name for parameter in TEMPLATES[template].parameters}
    lengths = {} if stream.calendar else {n: v for n, v in LENGTHS.items() if n in known}
    return {**USUAL[template], **lengths, **more}


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_text_reads_back_and_is_bounded(template):
    with each_case() as case:
        for name, stream in STREAMS.items():
            for dwell, objects in ((None, None), (0, "7"), (None, ["7", "8"])):
                with case(f"{name}, dwell {dwell}, objects {objects}"):
                    _reads_back(template, stream, dwell, objects)


def _reads_back(template, stream, dwell, objects):
    values = usual(template, stream)
    if dwell is not None and template != "not_seen":
        values["dwell"] = dwell
    if objects is not None:
        values["followers" if template == "strays" else "object"] = objects
    text = fill_template(template, values, stream).text
    assert text.startswith("-- Reports when ")
    assert len(text.splitlines()) > 2
    regions = {"Depot": "POLYGON ((0 0, 1 0, 1 1, 0 0))"}
    parsed = ensue.parse(text, language="opsl", regions=regions)
    assert ensue.parse(ensue.show(parsed, "opsl"), language="opsl") == parsed
    assert ensue.parse(text, regions=regions) == parsed, "it looks like what it is"
    schema = pa.schema(
        {
            "t": pa.timestamp("us", "UTC") if stream.calendar
            else pa.int64() if stream.whole_numbers else pa.float64(),
            str(stream.key): pa.string() if stream.key_is_text else pa.int64(),
            "x": pa.float64(),
            "y": pa.float64(),
        }
    )  # fmt: skip
    space = "earth" if stream.earth else "plane"
    reader = LiveEventReader(schema, "t", None, ())
    source = build_source(reader, SourceOptions(time="t", type=None, location=("x", "y"), space=space))
    fleet = SubscriptionSet(source.shape, streaming=True)
    used = {} if "CIRCLE" in text else regions
    fleet.take(SubscriptionChange.add("it", text, language="opsl", regions=used), 1)
    assert len(fleet) == 1


def test_a_text_says_in_words_what_it_finds():
    values = {"region": "Yard", "object": [17, 18]}
    filled = fill_template("leaves", values, TemplateStream("id", earth=True))
    lines = filled.text.splitlines()
    assert " ".join(line.removeprefix("-- ") for line in lines[:2]) == (
        "Reports when one of 17, 18 leaves Yard: was inside for 2 minutes, then more than 50 m "
        "from Yard for 2 minutes, at most 30 minutes later."
    )
    trucks = "ARITH:id IN (17, 18)"
    assert lines[2:] == [
        "=|($inside;; 30 minutes)($outside;)",
        f"    && !($inside;; 2 minutes)(DIST(Yard; >; 50)({trucks}, ARITH:id = $inside;.id))",
        f"    && !($outside;; 2 minutes)(@(Yard)({trucks}, ARITH:id = $outside;.id)),",
        f"    $inside; = @(Yard)({trucks}),",
        f"    $outside; = DIST(Yard; >; 50)({trucks}, ARITH:id = $inside;.id)",
        "WITH select = once",
    ]
    assert filled.title == "leaves Yard: 17, 18"
    assert filled.quiet is None


def test_the_name_of_an_object_cannot_become_part_of_the_text():
    name = "it's\n=|(A; 5)B, -- /* $x; " + "long " * 99
    stream = TemplateStream("id", key_is_text=True, located=False)
    filled = fill_template("not_seen", {"longer_than": 60, "object": name}, stream)
    parsed = ensue.parse(filled.text, language="opsl")
    (atom,) = parsed.variables.values()
    assert atom.predicates[0].value == name
    assert "\n" not in filled.title
    assert len(filled.title) <= 120


def test_the_quiet_period_is_handed_back():
    stream = TemplateStream("id")
    for given, expected in ((None, None), ("10 minutes", 600), (90, 90), (0, None), ("", None)):
        values = {"longer_than": "1 hour", "quiet": given}
        assert fill_template("not_seen", values, stream).quiet == expected
    assert fill_template("not_seen", {"longer_than": 3, "quiet": 2.5}, NUMBERS).quiet == 2.5


def test_lengths_and_distances_as_programs_and_forms_give_them():
    earth = TemplateStream("id", earth=True)

    def text(**values: Any) -> str:
        return fill_template("leaves", {"region": "Depot", **values}, earth).text

    assert text(dwell=timedelta(minutes=5)) == text(dwell="5 min") == text(dwell=300)
    assert text(margin=2_000) == text(margin="2 km") == text(margin="2000") == text(margin="2000 m")
    assert text(object="17, 18") == text(object=[17, 18]) == text(object=(18 - 1, 18, 17))
    assert text() == text(object="all") == text(object=None, dwell="", margin=None)
    assert "margin" not in text()


def test_a_template_knows_what_a_stream_needs():
    assert set(TEMPLATES) == {"enters", "leaves", "stays", "not_seen", "near", "strays"}

    def named(template: str, stream: TemplateStream) -> dict[str, Parameter]:
        found = TEMPLATES[template].on(stream).parameters
        return {parameter.name: parameter for parameter in found}

    on_earth, in_numbers = named("leaves", STREAMS["earth"]), named("leaves", NUMBERS)
    assert (on_earth["margin"].unit, on_earth["margin"].default) == ("m", 50)
    assert (in_numbers["margin"].unit, in_numbers["margin"].default) == ("units of the plane", 0)
    assert (on_earth["within"].default, on_earth["within"].required) == ("30 minutes", False)
    assert (in_numbers["within"].default, in_numbers["within"].required) == (None, True)
    assert (in_numbers["dwell"].default, in_numbers["dwell"].required) == (0, False)
    nowhere = named("not_seen", replace(NUMBERS, located=False))
    assert set(nowhere) == {"longer_than", "object", "quiet"}
    for template in TEMPLATES.values():
        assert template.title
        assert all(parameter.title and parameter.says for parameter in template.parameters)


# ------------------------------------------------------------------------------------- errors

EARTHLY = TemplateStream("id", earth=True)
NAMED = TemplateStream("id", key_is_text=True, earth=True)
DEPOT = {"region": "Depot"}
WRONG: dict[str, tuple[str, dict[str, Any], TemplateStream, str, str]] = {
    "no such template": ("leafs", {}, EARTHLY, "no template 'leafs'", "did you mean 'leaves'"),
    "no such parameter": ("leaves", {**DEPOT, "dwel": 1}, EARTHLY, "no parameter 'dwel'",
                          "did you mean 'dwell'"),
    "no region": ("leaves", {}, EARTHLY, "'region': a region is missing", "the name of a region"),
    "not a length": ("stays", DEPOT, EARTHLY, "'longer_than': a length of time is missing",
                  "5 minutes"),
    "no objects": ("near", {"distance": 5}, EARTHLY, "'object': an object, or a .* is missing",
                   "column 'id', as in 7"),
    "not a length in numbers": ("leaves", DEPOT, PLANE, "'within': a length of time is missing",
                             "a whole number in the units of the time column"),
    "a name with a space": ("leaves", {"region": "My Depot"}, EARTHLY,
                            "'region': expected a region, found 'My Depot'", "letters, digits"),
    "a number for a region": ("leaves", {"region": 7}, EARTHLY, "'region': 7 is not a region",
                              "the name of a region"),
    "a broken shape": ("leaves", {"region": "POLYGON ((0 0, 1"}, EARTHLY, "'region': ",
                       "a shape: POLYGON"),
    "a shape without area": ("leaves", {"region": "POINT (1 2)"}, EARTHLY, "'region': ",
                             "POLYGON"),
    "a shape that is not on the earth": ("leaves", {"region": "CIRCLE (5 95, 3)"}, EARTHLY,
                                         "'region': ", "POLYGON"),
    "not a length of time": ("leaves", {**DEPOT, "dwell": "soon"}, EARTHLY,
                          "'dwell': expected a length of time, found 'soon'", "'5 minutes'"),
    "a length without unit": ("leaves", {**DEPOT, "dwell": "5"}, EARTHLY,
                              "'dwell': expected a length of time, found '5'", "'5 minutes'"),
    "a truth for a length": ("leaves", {**DEPOT, "dwell": True}, EARTHLY,
                             "'dwell': expected a length of time, found True", "'5 minutes'"),
    "a negative length": ("leaves", {**DEPOT, "dwell": -5}, EARTHLY, "'dwell': .* is less than 0",
                          "before and after"),
    "an infinite length": ("leaves", {**DEPOT, "dwell": float("inf")}, EARTHLY,
                           "'dwell': expected a length of time", "'5 minutes'"),
    "no time at all": ("stays", {**DEPOT, "longer_than": 0}, EARTHLY,
                       "'longer_than': 0 seconds is not more than 0", "time has passed"),
    "too long": ("leaves", {**DEPOT, "within": "8 days"}, EARTHLY,
                 "'within': 8 days is more than 1 week", "apart"),
    "less than time is made of": ("leaves", {**DEPOT, "dwell": "3 ns"}, EARTHLY,
                                  "'dwell': this is less than a microsecond", "before and after"),
    "within the dwell time": ("leaves", {**DEPOT, "dwell": "1 hour"}, EARTHLY,
                              "'within': 30 minutes is not longer than 'dwell', 1 hour",
                              "begins within"),
    "a fraction of a whole number": ("stays", {**DEPOT, "within": 9, "longer_than": 2.5}, PLANE,
                                     "'longer_than': expected a length of time, found 2.5",
                                     "a whole number"),
    "text for a number": ("stays", {**DEPOT, "within": "9 minutes"}, NUMBERS, "'longer_than'",
                          "a number in the units"),
    "no distance": ("leaves", {**DEPOT, "margin": "far"}, EARTHLY,
                    "'margin': expected a distance, found 'far'", "metres"),
    "a distance of the plane with a unit": ("leaves", {**DEPOT, "margin": "5 m"},
                                            TemplateStream("id"), "'margin': expected a distance",
                                            "units of the plane"),
    "a negative distance": ("leaves", {**DEPOT, "margin": -1}, EARTHLY,
                            "'margin': -1 is less than 0", "counts neither"),
    "no distance between objects": ("near", {"object": 1, "distance": 0}, EARTHLY,
                                    "'distance': 0 is not more than 0", "near"),
    "not beyond the margin": ("leaves", {**DEPOT, "reach": 50}, EARTHLY,
                              "'reach': 50 m is not beyond the margin of 50 m", "leave it out"),
    "not beyond where two are apart": ("near", {"object": 1, "distance": 50, "reach": 100},
                                       EARTHLY, "'reach': 100 m is not beyond 100 m",
                                       "leave it out"),
    "no number for a key": ("leaves", {**DEPOT, "object": "truck"}, EARTHLY,
                            "'object': expected an object, or a list of them, found 'truck'",
                            "column 'id', as in 7"),
    "no text for a key": ("leaves", {**DEPOT, "object": ["a", 7]}, NAMED,
                          "'object': expected an object, or a list of them, found 7",
                          "as in 'truck 7'"),
    "an empty list": ("leaves", {**DEPOT, "object": []}, EARTHLY, "'object': .* is empty",
                      "as in 7"),
    "a key that is too large": ("leaves", {**DEPOT, "object": 2**63}, EARTHLY,
                                "'object': expected an object", "as in 7"),
    "two leaders": ("strays", {"leader": [1, 2], "followers": 3, "distance": 5}, EARTHLY,
                    "'leader': a convoy has one leader", "a single object"),
    "a leader that follows": ("strays", {"leader": 1, "followers": [1, 2], "distance": 5},
                              EARTHLY, "'followers': 1 cannot be on both sides", "one side"),
    "near itself": ("near", {"object": 1, "other": 1, "distance": 5}, EARTHLY,
                    "'other': 1 cannot be on both sides", "one side"),
    "no key": ("leaves", DEPOT, TemplateStream(None), "has no key column", 'key="id"'),
    "no places": ("leaves", DEPOT, TemplateStream("id", located=False), "needs locations",
                  "location="),
    "no places for objects": ("near", {"object": 1, "distance": 5},
                              TemplateStream("id", located=False), "needs locations",
                              "location="),
}  # fmt: skip


def test_a_wrong_value_is_named_with_what_is_wanted():
    with each_case() as case:
        for name, (template, values, stream, problem, hint) in WRONG.items():
            with case(name):
                with pytest.raises(ensue.QueryError) as caught:
                    fill_template(template, values, stream)
                assert re.search(problem, caught.value.problem)
                assert hint.lower() in str(caught.value.hint).lower()


def test_one_may_not_leave_twice_without_coming_back():
    """Of entering and leaving each follows the other, whatever the walk is."""
    reports = walk(Random("in turn"), 250, 2)
    values = {**BORDER, "dwell": 6, "within": 1_000}
    ways = {name: told(name, values, reports) for name in ("enters", "leaves")}
    happened = sorted((o, time, name) for name, found in ways.items() for o, time in found)
    assert len(happened) > 10
    for _, own in groupby(happened, key=lambda one: one[0]):
        names = [name for _, _, name in own]
        assert all(a != b for a, b in pairwise(names))
