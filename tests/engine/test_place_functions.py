"""Functions of places over whole columns give what they mean for each row."""

import math
from random import Random

import numpy as np
import pyarrow as pa
import pytest
import shapely

from ensue.functions import LOCATION, WKT
from ensue.functions import interpreter as plain
from ensue.geo.geometry import ConvexHull
from ensue.ir.expression import Expr, FieldRef, FunctionCall, Literal
from ensue.vector import evaluation as vectors
from support.seeds import scaled

pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

WRITTEN = (
    "POINT (1 1)", "POINT (2 0.5)", "LINESTRING (0 0, 2 2)", "LINESTRING (0 2, 2 0, 1 3)",
    "POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))", "POLYGON ((1 1, 3 1, 2 3, 1 1))", "POINT EMPTY",
    "POINT (nan nan)", "MULTIPOINT (0 0, 1 0, 3 0)",
)  # fmt: skip
REGIONS = (
    "POLYGON ((0 0, 3 0, 3 3, 0 3, 0 0), (1 1, 1 2, 2 2, 2 1, 1 1))",
    "POLYGON ((0 0, 2 0, 1 1, 2 2, 0 2, 0 0))",
    "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((2 2, 3 2, 3 3, 2 2)))",
    "CIRCLE (1 1, 1)", "CIRCLE (1 1, 100000)", "POINT (1 1)", "LINESTRING (0 1, 3 1)",
)  # fmt: skip
DEGREES = (-180.0, -179.5, 179.5, 180.0, 181.0, 0.0)


def table(random: Random, rows: int, numbers: tuple[object, ...]) -> pa.Table:
    texts = [random.choice([*WRITTEN, None]) for _ in range(rows)]
    return pa.table(
        {
            "x": pa.array([random.choice(numbers) for _ in range(rows)], pa.float64()),
            "y": pa.array([random.choice((0, 1, 2, 3, None)) for _ in range(rows)], pa.int64()),
            "text": pa.array(texts, pa.string()),
            "bytes": pa.array([t and shapely.to_wkb(shapely.from_wkt(t)) for t in texts]),
        },
        schema=pa.schema({"x": pa.float64(), "y": pa.int64(), "text": pa.string(), "bytes": pa.binary()}),
    )


def place(random: Random, space: str, depth: int = 2) -> Expr:
    """A place of each row, or for all of them; no region."""
    match random.randrange(7 if depth else 4):
        case 0 | 1:
            return FunctionCall(LOCATION, (FieldRef("a", "x"), FieldRef("a", "y")))
        case 2:
            return FunctionCall(LOCATION, (FieldRef("a", random.choice(("text", "bytes"))),))
        case 3:
            return FunctionCall("point", (Literal(random.randrange(4)), FieldRef("a", "y")))
        case _:
            parts = [place(random, space, depth - 1) for _ in range(random.randrange(1, 4))]
            return FunctionCall("hull" if space == "plane" else "earth_hull", tuple(parts))


def question(random: Random, space: str) -> Expr:
    name = random.choice(("inside", "overlaps", "distance", "same_place"))
    p, q = place(random, space), place(random, space)
    if random.random() < 0.5:
        q = FunctionCall(WKT, (Literal(random.choice(REGIONS)),))
        if name != "inside" and random.random() < 0.5:
            p, q = q, p
    more = (Literal(random.choice((1, 1.5, 100_000))),) if name == "same_place" else ()
    return FunctionCall(name if space == "plane" else f"earth_{name}", (p, q, *more))


def one_by_one(expr: Expr, events: pa.Table) -> list[object]:
    rows = events.to_pylist()
    return [plain.evaluate(expr, lambda field, row=row: row[field.name]) for row in rows]


def at_once(expr: Expr, events: pa.Table) -> list[object]:
    def lookup(field):
        return vectors.from_arrow(events.column(field.name), "us")

    return vectors.to_arrow(vectors.evaluate(expr, lookup, events.num_rows, "us"), "us").to_pylist()


def alike(found: object, meant: object) -> bool:
    if isinstance(meant, float) and isinstance(found, float):
        return math.isclose(found, meant, rel_tol=1e-12, abs_tol=1e-6)
    return found == meant


@pytest.mark.parametrize("space", ["plane", "earth"])
@pytest.mark.parametrize("seed", range(8))
def test_columns_of_places_mean_what_each_row_means(space, seed):
    random, answers = Random(seed), set()
    numbers = (0.0, 1.0, 1.5, 2.0, 3.0, None, math.nan, math.inf)
    if space == "earth" and seed % 2:
        numbers = (*DEGREES, None)
    for _ in range(scaled(60)):
        events = table(random, random.randrange(6), numbers)
        expr = question(random, space)
        found, meant = at_once(expr, events), one_by_one(expr, events)
        assert all(map(alike, found, meant)), f"{expr}\n{events.to_pydict()}\n{found}\n{meant}"
        answers |= {value for value in meant if not isinstance(value, float)}
    assert answers == {True, False, None}


@pytest.mark.parametrize("space", ["plane", "earth"])
def test_hulls_are_written_as_wkt(space):
    random = Random(space)
    for _ in range(scaled(60)):
        events = table(random, 5, (0.0, 1.0, 2.0, None) if space == "plane" else DEGREES)
        expr = place(random, space)
        for found, meant in zip(at_once(expr, events), one_by_one(expr, events), strict=True):
            assert (found is None) == (meant is None)
            if meant is not None:
                assert isinstance(meant, ConvexHull)
                corners = shapely.get_coordinates(shapely.from_wkt(found))
                assert {tuple(c) for c in corners.tolist()} == set(meant.corners)


def test_no_rows_and_constants_alone():
    events = table(Random(1), 0, (1.0,))
    for seed in range(scaled(40)):
        expr = question(Random(seed), "plane")
        assert at_once(expr, events) == []
    point = FunctionCall("point", (Literal(1), Literal(2)))
    several = table(Random(1), 3, (1.0,))
    assert at_once(point, several) == ["POINT (1 2)"] * 3
    assert at_once(FunctionCall("distance", (point, point)), several) == [0.0] * 3
    assert at_once(FunctionCall("hull", (Literal(None), Literal(None))), several) == [None] * 3


def test_a_region_of_many_corners_is_tested_without_python_for_each_row():
    angles = np.linspace(0, 2 * np.pi, 1000, endpoint=False)
    ring = ", ".join(f"{math.cos(a)!r} {math.sin(a)!r}" for a in [*angles, 0.0])
    expr = FunctionCall("inside", (FunctionCall(LOCATION, (FieldRef("a", "x"), FieldRef("a", "y"))),
                           FunctionCall(WKT, (Literal(f"POLYGON (({ring}))"),))))  # fmt: skip
    events = pa.table({"x": [0.0, 0.99, 1.01, 1.0], "y": [0, 0, 0, 0]})
    assert at_once(expr, events) == [True, True, False, True]
