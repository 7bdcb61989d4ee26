"""Places and regions as texts: WKT, and `CIRCLE (x y, r)`.

>>> read_wkt("point(1 2.0)")
Points(points=((1.0, 2.0),))
>>> written(read_wkt("CIRCLE(1 2, 0.50)"))
'CIRCLE (1 2, 0.5)'
>>> written(read_wkt("POLYGON((0 0,4 0,4 3,0 0))"))
'POLYGON ((0 0, 4 0, 4 3, 0 0))'
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ensue.errors import QueryError, did_you_mean

Point = tuple[float, float]
Ring = tuple[Point, ...]  # closed: the last corner is the first


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
_TOKEN = re.compile(r"\s*(?:([(),])|([A-Za-z]+)|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?))")
_NOT_NUMBERS = {"nan": "nan", "inf": "inf", "infinity": "inf"}


def read_wkt(text: str) -> Geometry:
    """The geometry that a text describes; numbers beyond x and y of a point are left out."""
    reader = _Reader(text)
    keyword = reader.word()
    if keyword in ("Z", "M", "ZM", ""):
        raise reader.error("a geometry begins with a word")
    if reader.next_is("Z", "M", "ZM"):
        reader.word()
    if reader.next_is("EMPTY"):
        reader.word()
        found: Geometry = Polygons(()) if "POLYGON" in keyword else Points(())
    else:
        found = reader.geometry(keyword)
    reader.end()
    return found


class _Reader:
    """The tokens of a text, and what they are made into."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: Iterator[str] = self._split(text)
        self._token = next(self._tokens)

    def _split(self, text: str) -> Iterator[str]:
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.error(f"'{text[at : at + 10].strip()}' has no place in it")
            yield found.group().strip().upper()
            at = found.end()
        yield ""

    def error(self, problem: str) -> QueryError:
        shown = self._text if len(self._text) <= 60 else self._text[:57] + "..."
        return QueryError(f"a geometry cannot be read: {problem}, in '{shown}'", hint=HINT)

    def _take(self) -> str:
        token, self._token = self._token, next(self._tokens, "")
        return token

    def word(self) -> str:
        return self._take() if self._token[:1].isalpha() else ""

    def next_is(self, *tokens: str) -> bool:
        return self._token in tokens

    def end(self) -> None:
        if self._token:
            raise self.error(f"'{self._token}' stands behind its end")

    def _need(self, token: str) -> None:
        if self._token != token:
            raise self.error(f"'{token}' is missing before '{self._token or 'its end'}'")
        self._take()

    def geometry(self, keyword: str) -> Geometry:
        if keyword == "POINT":
            self._need("(")
            found: Geometry = Points((self._point(),))
            self._need(")")
            return found
        if keyword == "CIRCLE":
            return self._circle()
        if keyword == "LINESTRING":
            return Points(self._points())
        if keyword == "MULTIPOINT":
            return Points(self._points(inner=True))
        if keyword == "MULTILINESTRING":
            return Points(tuple(point for line in self._lists() for point in line))
        if keyword == "POLYGON":
            return Polygons((self._rings(),))
        if keyword == "MULTIPOLYGON":
            self._need("(")
            polygons = [self._rings()]
            while self.next_is(","):
                self._take()
                polygons.append(self._rings())
            self._need(")")
            return Polygons(tuple(polygons))
        raise QueryError(
            f"'{keyword}' is no geometry that is known here",
            hint=did_you_mean(keyword, KEYWORDS),
        )

    def _circle(self) -> Circle:
        self._need("(")
        x, y = self._point()
        self._need(",")
        radius = self._number()
        self._need(")")
        return Circle(x, y, radius)

    def _rings(self) -> tuple[Ring, ...]:
        return tuple(r if r[0] == r[-1] else (*r, r[0]) for r in self._lists())

    def _lists(self) -> list[tuple[Point, ...]]:
        self._need("(")
        found = [self._points()]
        while self.next_is(","):
            self._take()
            found.append(self._points())
        self._need(")")
        return found

    def _points(self, *, inner: bool = False) -> tuple[Point, ...]:
        self._need("(")
        found = [self._maybe_wrapped() if inner else self._point()]
        while self.next_is(","):
            self._take()
            found.append(self._maybe_wrapped() if inner else self._point())
        self._need(")")
        return tuple(found)

    def _maybe_wrapped(self) -> Point:
        """A point of MULTIPOINT ((1 2), (3 4)), which is also written without parentheses."""
        if not self.next_is("("):
            return self._point()
        self._take()
        point = self._point()
        self._need(")")
        return point

    def _point(self) -> Point:
        x, y = self._number(), self._number()
        while self._token not in ("(", ")", ",", ""):
            self._number()
        return x, y

    def _number(self) -> float:
        token = self._take()
        if token and (token[-1].isdigit() or token[-1] == "."):
            return float(token)
        if token.lower() in _NOT_NUMBERS:
            return float(_NOT_NUMBERS[token.lower()])
        raise self.error(f"a number is missing before '{token or 'its end'}'")


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
