"""Places and regions as texts: WKT, and `CIRCLE (x y, r)`.

>>> read_wkt("point(1 2.0)")
Points(points=((1.0, 2.0),))
>>> written(read_wkt("CIRCLE(1 2, 0.50)"))
'CIRCLE (1 2, 0.5)'
>>> written(read_wkt("POLYGON((0 0,4 0,4 3,0 0))"))
'POLYGON ((0 0, 4 0, 4 3, 0 0))'
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ensue.errors import QueryError, did_you_mean

Point = tuple[float, float]
Ring = tuple[Point, ...]  # closed: the last corner is the first
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Points:
    """What stands for its convex hull: points, the ends of lines. None of them: empty."""

    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Polygons:
    """Polygons, each an outer ring and its holes. None of them: empty."""

    polygons: tuple[tuple[Ring, ...], ...]

    @property
    def rings(self) -> tuple[Ring, ...]:
        return tuple(ring for polygon in self.polygons for ring in polygon)


@dataclass(frozen=True, slots=True)
class Circle:
    """All that is no farther from a point than the radius."""

    x: float
    y: float
    radius: float


Geometry = Points | Polygons | Circle

HINT = "write 'POLYGON ((0 0, 10 0, 10 10, 0 0))', 'POINT (8.5 47.4)' or 'CIRCLE (8.5 47.4, 300)'"
KEYWORDS = (
    "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "CIRCLE",
)  # fmt: skip
_WORD = re.compile(r"\s*([A-Za-z]*)\s*")


def read_wkt(text: str) -> Geometry:
    """The geometry that a text describes; numbers beyond x and y of a point are left out."""
    reader = _Reader(text)
    keyword = reader.word()
    shape = reader.word()
    if shape in ("Z", "M", "ZM"):
        shape = reader.word()
    if shape not in ("", "EMPTY"):
        raise reader.error(f"'{shape}' contains no place")
    if shape == "EMPTY":
        found: Geometry = Polygons(()) if "POLYGON" in keyword else Points(())
    else:
        found = reader.geometry(keyword)
    reader.end()
    return found


class _Reader:
    """A text that is read from the left."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def error(self, problem: str) -> QueryError:
        shown = self._text if len(self._text) <= 60 else self._text[:57] + "..."
        return QueryError(f"a geometry cannot be read: {problem}, in '{shown}'", hint=HINT)

    def word(self) -> str:
        found = _WORD.match(self._text, self._at)
        assert found is not None  # it may be empty
        self._at = found.end()
        return found[1].upper()

    def end(self) -> None:
        if self._next():
            raise self.error(f"'{self._text[self._at :]:.10}' follows its end")

    def _next(self) -> str:
        """The next character that is no space, or nothing."""
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _need(self, character: str) -> None:
        found = self._next()
        if found != character:
            raise self.error(f"'{character}' is missing before '{found or 'its end'}'")
        self._at += 1

    def geometry(self, keyword: str) -> Geometry:
        match keyword:
            case "POINT":
                points = self._points()
                if len(points) != 1:
                    raise self.error(f"a point is one pair of numbers, not {len(points)}")
                return Points(points)
            case "CIRCLE":
                return self._circle()
            case "LINESTRING":
                return Points(self._points())
            case "MULTIPOINT":
                return Points(self._wrapped_points())
            case "MULTILINESTRING":
                return Points(tuple(point for line in self._lists() for point in line))
            case "POLYGON":
                return Polygons((self._rings(),))
            case "MULTIPOLYGON":
                return Polygons(tuple(self._each(self._rings)))
            case "":
                raise self.error("a geometry must begin with a keyword")
            case _:
                raise QueryError(
                    f"'{keyword}' is not a supported geometry",
                    hint=did_you_mean(keyword, KEYWORDS),
                )

    def _each(self, read: Callable[[], Part]) -> list[Part]:
        self._need("(")
        found = [read()]
        while self._next() == ",":
            self._at += 1
            found.append(read())
        self._need(")")
        return found

    def _rings(self) -> tuple[Ring, ...]:
        return tuple(r if r[0] == r[-1] else (*r, r[0]) for r in self._lists())

    def _lists(self) -> list[tuple[Point, ...]]:
        return self._each(self._points)

    def _wrapped_points(self) -> tuple[Point, ...]:
        """Those of MULTIPOINT ((1 2), (3 4)), which is also written without inner parentheses."""
        inner = self._text[self._at :].lstrip()[1:].lstrip()
        return sum(self._lists(), ()) if inner.startswith("(") else self._points()

    def _points(self) -> tuple[Point, ...]:
        return tuple((point[0], point[1]) for point in self._numbers(2))

    def _circle(self) -> Circle:
        found = self._numbers(1)
        if len(found) == 1:
            raise self.error("',' is missing before ')'")
        if len(found) != 2 or len(found[0]) != 2 or len(found[1]) != 1:
            raise self.error("a circle is 'CIRCLE (x y, radius)'")
        (x, y), (radius,) = found
        return Circle(x, y, radius)

    def _numbers(self, least: int) -> list[list[float]]:
        """What stands between parentheses: lists of numbers, with commas between them."""
        self._need("(")
        end = self._text.find(")", self._at)
        if end < 0:
            raise self.error("')' is missing before 'its end'")
        inside = self._text[self._at : end]
        self._at = end + 1
        try:
            found = [[float(word) for word in part.split()] for part in inside.split(",")]
        except ValueError:
            wrong = next(word for word in inside.replace(",", " ").split() if not _number(word))
            raise self.error(f"a number is missing before '{wrong.upper()}'") from None
        if "_" in inside or any(len(numbers) < least for numbers in found):
            raise self.error(f"a number is missing in '{inside.strip():.40}'")
        return found


def _number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def written(geometry: Geometry) -> str:
    """A geometry in one spelling, the same for equal ones."""
    match geometry:
        case Circle(x, y, radius):
            return f"CIRCLE ({_shown(x)} {_shown(y)}, {_shown(radius)})"
        case Points(()):
            return "POINT EMPTY"
        case Points((point,)):
            return f"POINT {_list((point,))}"
        case Points((first, second)):
            return f"LINESTRING {_list((first, second))}"
        case Points(points):
            return f"MULTIPOINT {_list(points)}"
        case Polygons(()):
            return "POLYGON EMPTY"
        case Polygons((polygon,)):
            return f"POLYGON {_nested(polygon)}"
        case Polygons(polygons):
            return f"MULTIPOLYGON ({', '.join(map(_nested, polygons))})"


def _nested(polygon: tuple[Ring, ...]) -> str:
    return f"({', '.join(map(_list, polygon))})"


def _list(points: tuple[Point, ...]) -> str:
    return f"({', '.join(f'{_shown(x)} {_shown(y)}' for x, y in points)})"


def _shown(number: float) -> str:
    return repr(number + 0.0).removesuffix(".0")
