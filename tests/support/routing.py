"""Atoms and events for tests of routing, and the plain way to try them all."""

import random
import re
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.algebra.evaluate import like
from ensue.algebra.event_test import EventTest, RegionTest
from ensue.algebra.subscription import Predicate, PredicateType, Region, Where
from ensue.algebra.values import compare
from ensue.columns.stream import Shape, shape_of
from ensue.kernels.regions import RegionTable, region_test

WHERE = (Where.INSIDE, Where.OVERLAP, Where.SAME, Where.DISTANCE)


class ConvexRegions:
    """Convex polygons and circles, as a table of regions keeps them."""

    def __init__(self) -> None:
        self._rows: list[list[float]] = []
        self._corners: list[tuple[float, float]] = []
        self._known: dict[str, int] = {}
        self.table = RegionTable(np.zeros((0, 10)), np.zeros((0, 2)))

    def add(self, region: Region) -> int:
        if region.text in self._known:
            return self._known[region.text]
        numbers = [float(n) for n in re.findall(r"-?[0-9][0-9.e+-]*", region.text)]
        if region.text.startswith("CIRCLE"):
            x, y, r = numbers
            self._rows.append([1, x - r, y - r, x + r, y + r, x, y, r, 0, 0])
        else:
            xs, ys = numbers[::2], numbers[1::2]
            box = [min(xs), min(ys), max(xs), max(ys)]
            centre = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2]
            self._rows.append([0, *box, *centre, 0, len(self._corners), 1])
            self._corners += [(len(xs), 0), *zip(xs, ys, strict=True)]
        self.table = RegionTable(np.array(self._rows), np.array(self._corners).reshape(-1, 2))
        self._known[region.text] = len(self._rows) - 1
        return len(self._rows) - 1


class Corners:
    """The places of events, as columns keep them: corners, and where each event's begin."""

    def __init__(self, places: list[list[tuple[float, float]]]) -> None:
        flat = [corner for place in places for corner in place]
        self.x = np.array([c[0] for c in flat], np.float64)
        self.y = np.array([c[1] for c in flat], np.float64)
        self.first = np.cumsum([0, *(len(place) for place in places)]).astype(np.int64)


def satisfied(
    atom: EventTest,
    event: dict[str, Any],
    place: list[tuple[float, float]],
    regions: ConvexRegions,
    space: int,
    type_column: str = "kind",
) -> bool:
    """Whether an event satisfies an atom, said as plainly as can be."""
    return all(_holds(p, event, type_column) for p in atom.predicates) and all(
        _placed(test, place, regions, space) for test in atom.places
    )


def _holds(predicate: Predicate, event: dict[str, Any], type_column: str) -> bool:
    name = predicate.name
    if name == "type" and name not in event:
        name = type_column
    value = event[name]
    if value is None:
        return False
    if predicate.operator == "IN":
        assert isinstance(predicate.value, tuple)
        return any(compare("=", value, option) for option in predicate.value)
    if predicate.operator == "LIKE":
        return bool(like(predicate.value).fullmatch(value))
    return bool(compare(predicate.operator, value, predicate.value))


def _placed(
    test: RegionTest, place: list[tuple[float, float]], regions: ConvexRegions, space: int
) -> bool:
    if not place or np.isnan(place).any():
        return False
    comparison = {None: 0, "<": 0, "=": 1, ">": 2}[test.comparison]
    xs, ys = (np.array(part, np.float64) for part in zip(*place, strict=True))
    row = regions.add(test.region)
    return bool(
        region_test(
            regions.table, row, WHERE.index(test.where), comparison, test.number, test.tolerance,
            xs, ys, len(xs), space,
        )
    )  # fmt: skip


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


def shape(schema: pa.Schema = SCHEMA, type: str | None = "kind") -> Shape:
    return shape_of(schema, time="t", type=type, order=())


EPOCH = datetime(2026, 1, 1)
HUGE = (2**53 + 1, 2**53, -(2**63), 2**63 - 1, 2**62 + 1)
FLOATS = (0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf"), float("nan"), 1e300, 5e-324, 2.0**53)


def event(rng: random.Random) -> dict[str, Any]:
    """An event with values that atoms ask for, at times none."""
    found: dict[str, Any] = {
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


def place(rng: random.Random, space: int) -> list[tuple[float, float]]:
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
    kind = rng.choice(
        ["kind", "type", "id", "small", "speed", "price", "on", "name", "at", "day", "nothing"]
    )
    type = PredicateType.ARITH

    def value() -> Any:
        match kind:
            case "kind" | "type":
                return rng.choice(["truck", "van", "bus", "ähm", "never"])
            case "id":
                return rng.choice(
                    [rng.randrange(8), rng.choice(HUGE), rng.uniform(0, 8), 3.0, 2.0**53]
                )
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
    if where is Where.DISTANCE:
        return RegionTest(where, Region(text), rng.choice("<=>"), number, 0.5)
    return RegionTest(where, Region(text), None, number)


def atom(rng: random.Random, space: int) -> EventTest:
    """An atom of any predicates, mostly of few."""
    count = rng.choice([0, 1, 1, 2, 2, 3, 4])
    places = rng.choice([0, 0, 1, 1, 2]) if count else 1
    return EventTest(
        tuple(predicate(rng) for _ in range(count)),
        tuple(region(rng, space) for _ in range(places)),
    )
