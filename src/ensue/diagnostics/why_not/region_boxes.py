"""Regions with their bounding boxes: most events are far from a region."""

from dataclasses import dataclass
from math import hypot, radians

from ensue.geo import geometry as places
from ensue.geo.geometry import RADIUS
from ensue.geo.wkt import Circle
from ensue.ir.subscription import RegionTest, SpatialRelation

_SLACK = 1e-9  # sums are rounded, so places near a border are tested exactly


@dataclass(frozen=True, slots=True)
class RegionBox:
    """A region, the number of its edges, and its box; a circle on the earth has no box."""

    shape: places.Shape
    edges: int
    box: tuple[float, float, float, float] | None  # least x, least y, greatest x, greatest y
    space: str

    def decide(self, test: RegionTest, place: places.ConvexHull) -> bool | None:
        """Returns whether a test holds for a place, or None if the box does not tell."""
        if self.box is None:
            return None
        match test.where:
            case SpatialRelation.INSIDE | SpatialRelation.OVERLAP:
                return False if self.is_clear_of(place) else None
            case SpatialRelation.DISTANCE:
                far = self.is_farther(place, test.number + test.tolerance)
                return test.comparison == ">" if far else None
            case SpatialRelation.SAME:
                return None

    def is_clear_of(self, place: places.ConvexHull) -> bool:
        """Returns whether a place is outside of the box, so that it shares no point with it."""
        across, along = self._measure_gaps(place)
        return along > 0 or across > (0 if self.space == places.PLANE else _SLACK)

    def is_farther(self, place: places.ConvexHull, distance: float) -> bool:
        """Returns whether the box, and so the region, is farther from a place than `distance`."""
        across, along = self._measure_gaps(place)
        least = hypot(across, along)
        if self.space == places.EARTH:  # a degree of latitude is as long everywhere
            least = radians(along) * RADIUS
        return least * (1 - _SLACK) > distance * (1 + _SLACK)

    def _measure_gaps(self, place: places.ConvexHull) -> tuple[float, float]:
        """Returns the gaps between a place and the box in x and y; on the earth in degrees."""
        assert self.box is not None
        west, south, east, north = self.box
        xs, ys = zip(*place.corners, strict=True)
        along = max(0.0, south - max(ys), min(ys) - north)
        if self.space == places.PLANE:
            return max(0.0, west - max(xs), min(xs) - east), along
        turned = (west - max(xs)) % 360  # eastwards, to where the box begins
        width = (east - west) + (max(xs) - min(xs))
        return max(0.0, min(turned, 360 - turned - width)), along


def build_region_box(text: str, space: str) -> RegionBox:
    """Builds the region that a text describes.

    >>> region = build_region_box("POLYGON ((170 0, -170 0, -170 5, 170 0))", "earth")
    >>> [region.is_clear_of(places.ConvexHull(((x, 1.0),))) for x in (-175.0, 185.0, 160.0)]
    [False, False, True]
    """
    shape = places.parse_region(text, space)
    if isinstance(shape, Circle):
        x, y = shape.x, shape.y
        r = shape.radius + _SLACK * max(shape.radius, abs(x), abs(y))
        box = None if space == places.EARTH else (x - r, y - r, x + r, y + r)
        return RegionBox(shape, 1, box, space)
    corners = [corner for ring in shape.rings for corner in ring]
    if not corners:
        return RegionBox(shape, 0, None, space)
    xs, ys = zip(*corners, strict=True)
    return RegionBox(shape, len(corners), (min(xs), min(ys), max(xs), max(ys)), space)
