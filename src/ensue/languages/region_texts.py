"""Regions as a text writes them, WKT or a circle, in one spelling."""

import math

from ensue.algebra.wkt import Circle, Points, Polygons, read_wkt, written
from ensue.errors import QueryError
from ensue.span import Span

CORNERS = 10_000  # that a region has at most

_FORMS = "write POLYGON ((0 0, 10 0, 10 10, 0 0)), or CIRCLE (5 5, 3)"


def region_text(text: str, span: Span | None = None) -> str:
    """The one spelling of a region, or a QueryError that says what is wrong with it.

    Whether edges cross is left to what makes the region: that takes longer.

    >>> region_text("polygon((0 0,1.50 0,1 1,0 0))"), region_text("Circle(1 2, 3e0)")
    ('POLYGON ((0 0, 1.5 0, 1 1, 0 0))', 'CIRCLE (1 2, 3)')
    """
    try:
        found = read_wkt(text)
    except QueryError as error:
        raise error.at(span, None) from None
    match found:
        case Circle(x, y, radius):
            corners = [(x, y)]
            if not radius > 0 or math.isinf(radius):
                raise QueryError("the radius of a circle must be positive", hint=_FORMS, span=span)
        case Points(()) | Polygons(()):
            raise QueryError("this region is empty", hint=_FORMS, span=span)
        case Points():
            raise QueryError("this region has no area", hint=_FORMS, span=span)
        case Polygons():
            corners = [corner for ring in found.rings for corner in ring]
            if any(len(set(ring)) < 3 for ring in found.rings):
                raise QueryError("a ring needs three or more corners", hint=_FORMS, span=span)
    if len(corners) > CORNERS:
        raise QueryError(
            f"this region has {len(corners):,} corners; the limit is {CORNERS:,}",
            hint="simplify it: shapely.simplify(region, tolerance)",
            span=span,
        )
    if any(not math.isfinite(x) or not math.isfinite(y) for x, y in corners):
        raise QueryError(
            "a corner of this region is not a number, or too far away", hint=_FORMS, span=span
        )
    return written(found)
