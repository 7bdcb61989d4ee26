"""Roads between towns of the Netherlands and Germany, as far as a sample needs them.

Places are (longitude, latitude) in degrees, lengths metres. A road is two straight lines with a
bend between them.
"""

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from math import cos, hypot, radians

Place = tuple[float, float]

METRES = 111_195.08  # of a degree of latitude
TOWNS: dict[str, Place] = {
    "Amersfoort": (5.40, 52.18),
    "Apeldoorn": (5.97, 52.19),
    "Arnhem": (5.93, 52.01),
    "Bielefeld": (8.60, 51.98),
    "Breda": (4.78, 51.59),
    "Bremen": (8.85, 53.03),
    "Dortmund": (7.52, 51.49),
    "Duesseldorf": (6.80, 51.28),
    "Duisburg": (6.85, 51.50),
    "Eindhoven": (5.45, 51.42),
    "Emmerich": (6.28, 51.86),
    "Groningen": (6.60, 53.20),
    "Hannover": (9.70, 52.43),
    "Hengelo": (6.78, 52.24),
    "Koeln": (7.00, 50.98),
    "Muenster": (7.58, 51.93),
    "Oldenburg": (8.22, 53.11),
    "Osnabrueck": (8.02, 52.24),
    "Rotterdam": (4.50, 51.96),
    "Utrecht": (5.12, 52.07),
    "Venlo": (6.19, 51.35),
    "Zwolle": (6.12, 52.50),
}
ROADS: tuple[tuple[str, str], ...] = (
    ("Amersfoort", "Apeldoorn"), ("Amersfoort", "Zwolle"), ("Apeldoorn", "Hengelo"),
    ("Arnhem", "Apeldoorn"), ("Arnhem", "Emmerich"), ("Bielefeld", "Hannover"),
    ("Breda", "Eindhoven"), ("Bremen", "Hannover"), ("Dortmund", "Bielefeld"),
    ("Duesseldorf", "Koeln"), ("Duisburg", "Dortmund"), ("Duisburg", "Duesseldorf"),
    ("Eindhoven", "Venlo"), ("Emmerich", "Duisburg"), ("Groningen", "Oldenburg"),
    ("Hengelo", "Osnabrueck"), ("Koeln", "Dortmund"), ("Muenster", "Dortmund"),
    ("Oldenburg", "Bremen"), ("Osnabrueck", "Bielefeld"), ("Osnabrueck", "Bremen"),
    ("Osnabrueck", "Muenster"), ("Rotterdam", "Breda"), ("Rotterdam", "Utrecht"),
    ("Utrecht", "Amersfoort"), ("Utrecht", "Arnhem"), ("Utrecht", "Eindhoven"),
    ("Venlo", "Duesseldorf"), ("Venlo", "Duisburg"), ("Zwolle", "Groningen"),
)  # fmt: skip
_BEND = 0.05  # of a road's length, to the left and to the right in turns


def moved(place: Place, east: float, north: float) -> Place:
    """A place so many metres further."""
    x, y = place
    return x + east / (METRES * cos(radians(y))), y + north / METRES


def apart(a: Place, b: Place) -> tuple[float, float]:
    """How far east and north b is of a, in metres."""
    return (b[0] - a[0]) * METRES * cos(radians(a[1])), (b[1] - a[1]) * METRES


class Way:
    """A line that one drives along.

    >>> way = Way([(5.0, 52.0), (5.0, 53.0)])
    >>> round(way.length), way.at(way.length / 2)
    (111195, (5.0, 52.5))
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = list(places)
        self._find_late = [0.0]
        for a, b in pairwise(self.places):
            self._find_late.append(self._find_late[-1] + hypot(*apart(a, b)))

    @property
    def length(self) -> float:
        return self._find_late[-1]

    def at(self, metres: float) -> Place:
        """The place so many metres from the beginning."""
        k = self._part(metres)
        (ax, ay), (bx, by) = self.places[k], self.places[k + 1]
        share = (metres - self._find_late[k]) / (self._find_late[k + 1] - self._find_late[k])
        return ax + share * (bx - ax), ay + share * (by - ay)

    def heading(self, metres: float) -> tuple[float, float]:
        """The direction there, east and north, of length 1."""
        k = self._part(metres)
        east, north = apart(self.places[k], self.places[k + 1])
        return east / hypot(east, north), north / hypot(east, north)

    def passes(self, place: Place) -> float | None:
        """Where it passes one of its corners; None: it does not."""
        return self._find_late[self.places.index(place)] if place in self.places else None

    def _part(self, metres: float) -> int:
        return min(max(bisect_right(self._find_late, metres) - 1, 0), len(self.places) - 2)


def road(a: str, b: str) -> list[Place]:
    """The corners of a road, from one town to the other."""
    if (a, b) not in ROADS:
        return road(b, a)[::-1]
    (ax, ay), (bx, by) = TOWNS[a], TOWNS[b]
    side = _BEND if ROADS.index((a, b)) % 2 else -_BEND
    bend = (ax + bx) / 2 - (by - ay) * side, (ay + by) / 2 + (bx - ax) * side
    return [(ax, ay), bend, (bx, by)]


def way_between(start: str, end: str) -> list[Place]:
    """The corners of the shortest way from a town to another."""
    queue: list[tuple[float, list[str]]] = [(0.0, [start])]
    seen: set[str] = set()
    while queue:
        length, towns = heappop(queue)
        here = towns[-1]
        if here == end:
            corners = [TOWNS[start]]
            for a, b in pairwise(towns):
                corners += road(a, b)[1:]
            return corners
        if here not in seen:
            seen.add(here)
            for a, b in ROADS:
                if here in (a, b):
                    there = b if here == a else a
                    further = length + Way(road(a, b)).length
                    heappush(queue, (further, [*towns, there]))
    raise ValueError(f"no road leads from {start} to {end}")
