"""Regions with the box around them: most events are nowhere near."""

from dataclasses import dataclass
from math import hypot, radians

from ensue.algebra import places
from ensue.algebra.earth import RADIUS
from ensue.algebra.event_test import RegionTest
from ensue.algebra.subscription import Where
from ensue.algebra.wkt import Circle

_SLACK = 1e-9  # what is near a border is looked at, since sums are rounded


@dataclass(frozen=True, slots=True)
class Zone:
    """A region, how many edges it has, and its box; a circle on the earth has no box."""

    shape: places.Shape
    edges: int
    box: tuple[float, float, float, float] | None  # least x, least y, greatest x, greatest y
    space: str

    def settled(self, test: RegionTest, place: places.Place) -> bool | None:
        """Whether a test holds for a place, if the box tells; None: it has to be looked at."""
        if self.box is None:
            return None
        match test.where:
            case Where.INSIDE | Where.OVERLAP:
                return False if self.is_clear_of(place) else None
            case Where.DISTANCE:
                far = self.is_farther(place, test.number + test.tolerance)
                return test.comparison == ">" if far else None
            case Where.SAME:
                return None

    def is_clear_of(self, place: places.Place) -> bool:
        """Whether a place is outside of the box, so that it shares no point with the region."""
        across, along = self._gaps(place)
        return along > 0 or across > (0 if self.space == places.PLANE else _SLACK)

    def is_farther(self, place: places.Place, distance: float) -> bool:
        """Whether a place is farther from the region, since it is from the box."""
        across, along = self._gaps(place)
        least = hypot(across, along)
        if self.space == places.EARTH:  # a degree of latitude is as long everywhere
            least = radians(along) * RADIUS
        return least * (1 - _SLACK) > distance * (1 + _SLACK)

    def _gaps(self, place: places.Place) -> tuple[float, float]:
        """How far a place is from the box, in x and in y; on the earth in degrees."""
        assert self.box is not None
        west, south, east, north = self.box
        xs, ys = [x for x, _ in place.corners], [y for _, y in place.corners]
        along = max(0.0, south - max(ys), min(ys) - north)
        if self.space == places.PLANE:
            return max(0.0, west - max(xs), min(xs) - east), along
        turned = (west - max(xs)) % 360  # eastwards, to where the box begins
        width = (east - west) + (max(xs) - min(xs))
        return max(0.0, min(turned, 360 - turned - width)), along


def zone_of(text: str, space: str) -> Zone:
    """The region that a text describes.

    >>> zone = zone_of("POLYGON ((170 0, -170 0, -170 5, 170 0))", "earth")
    >>> [zone.is_clear_of(places.Place(((x, 1.0),))) for x in (-175.0, 185.0, 160.0)]
    [False, False, True]
    """
    shape = places.shape_of(text, space)
    if isinstance(shape, Circle):
        x, y = shape.x, shape.y
        r = shape.radius + _SLACK * max(shape.radius, abs(x), abs(y))
        box = None if space == places.EARTH else (x - r, y - r, x + r, y + r)
        return Zone(shape, 1, box, space)
    corners = [corner for ring in shape.rings for corner in ring]
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    box = (min(xs), min(ys), max(xs), max(ys)) if corners else None
    return Zone(shape, len(corners), box, space)
