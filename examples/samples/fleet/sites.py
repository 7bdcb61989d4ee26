"""Depots, rest areas beside the roads, and the ways from one depot to another."""

from functools import cache

from samples.fleet.roads import TOWNS, Place, Way, moved, road, way_between

# By the town that is near: the middle, and on which side the gate is (1: east, -1: west). Roads
# pass more than four kilometres away.
DEPOTS: dict[str, tuple[Place, int]] = {
    "Bremen": ((8.8949, 53.0767), -1),
    "Dortmund": ((7.5813, 51.4518), -1),
    "Duisburg": ((6.8933, 51.5467), -1),
    "Groningen": ((6.5483, 53.2442), 1),
    "Hannover": ((9.7725, 52.3991), -1),
    "Koeln": ((6.9298, 50.9491), 1),
    "Osnabrueck": ((7.9695, 52.2842), 1),
    "Rotterdam": ((4.4177, 51.9415), 1),
    "Utrecht": ((5.0697, 52.1142), 1),
    "Venlo": ((6.1468, 51.3033), 1),
}
_WIDE, _HIGH = 450.0, 300.0  # metres from the middle of a depot to its sides
_ROAD = 1_300.0  # metres from the gate to where a way begins
_SHORTEST, _LONGEST = 80_000.0, 340_000.0  # ways, in metres

# Halfway to the bend of a road there is a rest area.
_RESTS = (
    ("Bielefeld", "Hannover"), ("Emmerich", "Duisburg"), ("Groningen", "Oldenburg"),
    ("Hengelo", "Osnabrueck"), ("Muenster", "Dortmund"), ("Osnabrueck", "Bremen"),
    ("Utrecht", "Arnhem"),
)  # fmt: skip
_BESIDE, _REST = 700.0, 120.0  # metres from the road, and from the middle to the sides


def regions() -> dict[str, str]:
    """Each depot, all depots, and all rest areas, as WKT."""
    depots = {name: _ring(middle, _WIDE, _HIGH) for name, (middle, _) in DEPOTS.items()}
    rests = [_ring(_rest(*ends), _REST, _REST) for ends in _RESTS]
    return {
        **{name: f"POLYGON ({ring})" for name, ring in depots.items()},
        "Depots": f"MULTIPOLYGON ({', '.join(f'({ring})' for ring in depots.values())})",
        "RestAreas": f"MULTIPOLYGON ({', '.join(f'({ring})' for ring in rests)})",
    }


def place_at(depot: str, out: float, along: float = 0.0) -> Place:
    """So many metres out of the gate, or less than 0: inside, and so many to the north of it.

    Where it is 0, it is on the border to the last digit.
    """
    middle, side = DEPOTS[depot]
    west, _, east, _ = _box(middle, _WIDE, _HIGH)
    return moved((east if side > 0 else west, middle[1]), side * out, along)


@cache
def way(home: str, target: str) -> Way:
    """From one depot to another, from the road before the gate to the road before the gate."""
    return Way([place_at(home, _ROAD), *way_between(home, target), place_at(target, _ROAD)])


@cache
def rest_on(home: str, target: str) -> tuple[float, Place] | None:
    """How far on a way there is a rest area, and where that is; None: there is none."""
    for a, b in _RESTS:
        passed = [way(home, target).passes(place) for place in (TOWNS[a], road(a, b)[1])]
        if passed[0] is not None and passed[1] is not None:
            return (passed[0] + passed[1]) / 2, _rest(a, b)
    return None


@cache
def targets(home: str) -> tuple[str, ...]:
    """The depots that trucks of a depot drive to."""
    others = (depot for depot in DEPOTS if depot != home)
    return tuple(depot for depot in others if _SHORTEST < way(home, depot).length < _LONGEST)


def _rest(a: str, b: str) -> Place:
    first = Way(road(a, b)[:2])
    east, north = first.heading(0)
    return moved(first.at(first.length / 2), -north * _BESIDE, east * _BESIDE)


def _ring(middle: Place, wide: float, high: float) -> str:
    west, south, east, north = _box(middle, wide, high)
    corners = ((west, south), (east, south), (east, north), (west, north), (west, south))
    return f"({', '.join(f'{x!r} {y!r}' for x, y in corners)})"


def _box(middle: Place, wide: float, high: float) -> tuple[float, float, float, float]:
    (west, south), (east, north) = moved(middle, -wide, -high), moved(middle, wide, high)
    return round(west, 5), round(south, 5), round(east, 5), round(north, 5)
