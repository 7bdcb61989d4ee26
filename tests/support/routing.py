"""Atoms and events for tests of routing, and the plain way to try them all."""

import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.functions.interpreter import compile_like
from ensue.geo.geometry import build_hull, evaluate_relation
from ensue.geo.geometry import parse_region as region_of
from ensue.ir.subscription import EventTest, Predicate, PredicateType, Region, RegionTest, SpatialRelation
from ensue.ir.values import compare
from ensue.operators.subscriptions.atom_index import AtomIndex
from ensue.vector.event_table import StreamSchema, create_schema
from ensue.vector.geo_regions import Regions

Event = dict[str, Any]
Place = list[tuple[float, float]]  # corners; none: no place

WHERE = tuple(SpatialRelation)
SPACES = ("plane", "earth")
TYPE_COLUMN = "kind"


class Corners:
    """The places of events, as columns keep them: corners, and where each event's begin."""

    def __init__(self, places: Sequence[Place]) -> None:
        flat = [corner for place in places for corner in place]
        self.x = np.array([c[0] for c in flat], np.float64)
        self.y = np.array([c[1] for c in flat], np.float64)
        self.first = np.cumsum([0, *(len(place) for place in places)]).astype(np.int64)


def satisfied(atom: EventTest, event: Event, place: Place, space: int) -> bool:
    """Whether an event satisfies an atom, said as plainly as can be."""
    return all(_holds(p, event) for p in atom.predicates) and all(_placed(test, place, space) for test in atom.places)


def _holds(predicate: Predicate, event: Event) -> bool:
    name = predicate.name
    if name == "type" and name not in event:
        name = TYPE_COLUMN
    value = event[name]
    if value is None:
        return False
    if predicate.operator == "IN":
        assert isinstance(predicate.value, tuple)
        return any(compare("=", value, option) for option in predicate.value)
    if predicate.operator == "LIKE":
        return bool(compile_like(predicate.value).fullmatch(value))
    return bool(compare(predicate.operator, value, predicate.value))


def _placed(test: RegionTest, place: Place, space: int) -> bool:
    if any(isnan(x) or isnan(y) for x, y in place):
        return False
    name = SPACES[space]
    return evaluate_relation(
        test.where,
        region_of(test.region.text, name),
        build_hull(place),
        test.comparison,
        test.number,
        test.tolerance,
        name,
    )


SCHEMA = pa.schema(
    {
        "t": pa.int64(),
        "kind": pa.string(),
        "id": pa.int64(),
        "small": pa.int16(),
        "speed": pa.float64(),
        "price": pa.decimal128(12, 2),
        "on": pa.bool_(),
        "name": pa.dictionary(pa.int32(), pa.string()),
        "at": pa.timestamp("ms"),
        "day": pa.date32(),
        "nothing": pa.null(),
    }
)


def shape(schema: pa.Schema = SCHEMA, type: str | None = TYPE_COLUMN) -> StreamSchema:
    return create_schema(schema, time="t", type=type, order=())


EPOCH = datetime(2026, 1, 1)
HUGE = (2**53 + 1, 2**53, -(2**63), 2**63 - 1, 2**62 + 1)
FLOATS = (0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf"), float("nan"), 1e300, 5e-324, 2.0**53)


def event(rng: random.Random) -> Event:
    """An event with values that atoms ask for, at times none."""
    found: Event = {
        "t": 0,
        "kind": rng.choice(["truck", "van", "bus", "unseen", "ähm"]),
        "id": rng.choice([rng.randrange(8), rng.choice(HUGE)]),
        "small": rng.randrange(-3, 30),
        "speed": rng.choice([rng.uniform(0, 40), rng.choice(FLOATS)]),
        "price": pa.scalar(f"{rng.randrange(2000) / 100:.2f}").cast(pa.decimal128(12, 2)).as_py(),
        "on": rng.random() < 0.5,
        "name": rng.choice(["anna", "bob", "ann%", "", "zoë", "carl"]),
        "at": EPOCH + timedelta(milliseconds=rng.randrange(5_000)),
        "day": (EPOCH + timedelta(days=rng.randrange(5))).date(),
        "nothing": None,
    }
    for name in found:
        if name != "t" and rng.random() < 0.06:
            found[name] = None
    return found


def place(rng: random.Random, space: int) -> Place:
    kind = rng.random()
    if kind < 0.08:
        return []
    if kind < 0.1:
        return [(float("nan"), 1.0)]
    wide = 360.0 if space == 1 else 100.0
    x, y = rng.uniform(-wide / 2, wide / 2), rng.uniform(-60, 60)
    if kind < 0.2:
        x, y = round(x / 10) * 10.0, round(y / 10) * 10.0
    if kind < 0.8:
        return [(x, y)]
    w = rng.choice([0.5, 3.0, 30.0])
    return [(x, y), (x + w, y), (x + w, y + w / 2), (x, y + w / 2)]


def predicate(rng: random.Random) -> Predicate:
    operator = rng.choice(["=", "=", "=", "!=", "<", "<=", ">", ">=", "IN"])
    kind = rng.choice(["kind", "type", "id", "small", "speed", "price", "on", "name", "at", "day", "nothing"])
    type = PredicateType.ARITH

    def value() -> Any:
        match kind:
            case "kind" | "type":
                return rng.choice(["truck", "van", "bus", "ähm", "never"])
            case "id":
                return rng.choice([rng.randrange(8), rng.choice(HUGE), rng.uniform(0, 8), 3.0, 2.0**53])
            case "small":
                return rng.choice([rng.randrange(-3, 30), 17.5, 1e40, float("inf"), float("nan")])
            case "speed":
                return rng.choice([rng.uniform(0, 40), rng.choice(FLOATS), 2**53 + 1, 3])
            case "price":
                return rng.choice([rng.randrange(2000) / 100, 7])
            case "on":
                return rng.random() < 0.5
            case "name":
                return rng.choice(["anna", "bob", "ann%", "", "zoë", "c"])
            case "at":
                return EPOCH + timedelta(microseconds=rng.randrange(5_000_000) // 500 * 500)
            case "day":
                return EPOCH + timedelta(hours=12 * rng.randrange(10))
            case _:
                return 1

    if kind in ("kind", "type", "name"):
        type = PredicateType.STRING
        if rng.random() < 0.15:
            return Predicate(type, kind, "LIKE", rng.choice(["a%", "%b%", "_nn%", "truck", "%ë"]))
    elif kind == "on":
        type = PredicateType.BOOL
    elif kind in ("at", "day") or (rng.random() < 0.1 and kind != "nothing"):
        type = PredicateType.TIME
    if operator == "IN":
        return Predicate(type, kind, "IN", tuple(value() for _ in range(rng.randrange(1, 6))))
    return Predicate(type, kind, operator, None if rng.random() < 0.02 else value())


def region(rng: random.Random, space: int) -> RegionTest:
    wide = 360.0 if space == 1 else 100.0
    x, y = rng.uniform(-wide / 2, wide / 2), rng.uniform(-60, 60)
    if rng.random() < 0.2:
        x, y = round(x / 10) * 10.0, round(y / 10) * 10.0
    where = rng.choice(WHERE)
    w = rng.choice([0.01, 0.3, 2.0, 10.0, 50.0])
    if rng.random() < 0.4:
        text = f"CIRCLE ({x!r} {y!r}, {w * (1e5 if space == 1 else 1)!r})"
    else:
        corners = [(x, y), (x + w, y), (x + w, y + w / 2), (x, y + w / 2), (x, y)]
        text = f"POLYGON (({', '.join(f'{a!r} {b!r}' for a, b in corners)}))"
    number = rng.choice([0.0, 0.5, 5.0]) * (1e5 if space == 1 else 1)
    if where is SpatialRelation.DISTANCE:
        return RegionTest(where, Region(text), rng.choice("<=>"), number, 0.5)
    return RegionTest(where, Region(text), None, number)


def atom(rng: random.Random, space: int) -> EventTest:
    """An atom of any predicates, mostly of few."""
    count = rng.choice([0, 1, 1, 2, 2, 3, 4])
    places = rng.choice([0, 0, 1, 1, 2]) if count else 1
    return EventTest(tuple(predicate(rng) for _ in range(count)), tuple(region(rng, space) for _ in range(places)))


# ---- an index and what it must find


def index_of(*atoms: EventTest, space: int = 0, of: StreamSchema | None = None) -> AtomIndex:
    """An index with atoms in the slots 0, 1, ..."""
    index = AtomIndex(of or shape(), Regions(SPACES[space]), space)
    for slot, one in enumerate(atoms):
        assert index.add(one) == slot
    return index


def routed(index: AtomIndex, events: Sequence[Event], places: Sequence[Place] | None = None) -> list[tuple[int, int]]:
    """The pairs of row and slot."""
    table = pa.Table.from_pylist(list(events), SCHEMA)
    rows, slots = index.route(table, None if places is None else Corners(places))
    return list(zip(rows.tolist(), slots.tolist(), strict=True))


def check(index: AtomIndex, living: Mapping[int, EventTest], space: int, rng: random.Random, count: int) -> int:
    """Routes random events, compares with trying all atoms, and says how many pairs there are."""
    events = [event(rng) for _ in range(count)]
    places = [place(rng, space) for _ in range(count)]
    expected = [
        (row, slot)
        for row, (e, p) in enumerate(zip(events, places, strict=True))
        for slot, a in sorted(living.items())
        if satisfied(a, e, p, space)
    ]
    assert routed(index, events, places) == expected
    return len(expected)


def change_at_random(seed: int, space: int, folder: Path, steps: int) -> int:
    """Adds, cancels, saves and opens atoms in any order, and checks after each step."""
    rng = random.Random(seed)
    regions = Regions(SPACES[space])
    index = AtomIndex(shape(), regions, space)
    living: dict[int, EventTest] = {}
    found = 0
    for step in range(steps):
        match rng.choice(["add", "add", "many", "cancel", "save"]):
            case "add":
                for _ in range(10):
                    one = atom(rng, space)
                    slot = index.add(one)
                    assert slot not in living
                    living[slot] = one
            case "many":
                several = [atom(rng, space) for _ in range(30)]
                slots = index.add_many(several).tolist()
                assert len(set(slots) - set(living)) == len(several)
                living |= dict(zip(slots, several, strict=True))
            case "cancel":
                for slot in rng.sample(sorted(living), len(living) // 2):
                    index.cancel(slot)
                    del living[slot]
            case "save":
                index.save(folder / f"{step}")
                regions.save(folder / f"{step}")
                regions = Regions.open(folder / f"{step}", SPACES[space])
                index = AtomIndex.open(folder / f"{step}", shape(), regions, space)
        assert len(index) == len(living)
        found += check(index, living, space, rng, 12)
    return found
