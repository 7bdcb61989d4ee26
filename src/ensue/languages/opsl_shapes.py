"""Reading many texts that differ in nothing but numbers, quoted texts and regions.

Thousands of subscriptions come from one template. What is between the constants is the *shape* of
a text. When a shape comes for the second time, the tree that belongs to it is kept with holes in
it; from then on only the holes are filled in. Which hole of the text is which hole of the tree is
found out by reading the shape with constants that occur nowhere else.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

from ensue.algebra.alternatives import Alternative, alternatives
from ensue.algebra.subscription import Placed, Region, Subscription, Where
from ensue.algebra.window import ByTime
from ensue.errors import QueryError
from ensue.languages.language import NO_REGIONS
from ensue.languages.opsl import LONGEST, parse
from ensue.languages.region_texts import region_text

MOST_HOLES = 200
MOST_SHAPES = 1_000  # that are kept
_WHOLE, _DECIMAL, _TEXT, _REGION, _GIVEN = "\x01", "\x02", "\x03", "\x04", "\x05"
_MARKS = re.compile("[\x01-\x05]")

# Names, comments and signs belong to the shape; a number begins with a digit, as the grammar's
# tokens do. What is between two holes is one piece.
_AREA = (
    r"(?:CIRCLE|(?:MULTI)?(?:POINT|LINESTRING|POLYGON)|GEOMETRYCOLLECTION)(?:\s+(?:ZM|Z|M))?\s*"
    r"\((?:[^()']|\((?:[^()']|\([^()']*\))*\))*\)"
)
_PIECES = re.compile(
    rf"""(?P<area>{_AREA})
    |(?P<number>[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)
    |(?P<text>'(?:[^']|'')*')
    |(?P<shape>(?:--[^\n]*|/\*[\s\S]*?\*/|"(?:[^"]|"")*"|`(?:[^`]|``)*`
        |(?!{_AREA})[^\W\d]\w*(?:-\w+)*|[^\w'"`])++)""",
    re.IGNORECASE | re.VERBOSE,
)
_NAME = re.compile(r"[^\W\d]\w*(?:-\w+)*")

Holes = list[Any]
Fill = Callable[[Holes, Mapping[str, str]], Any]


class _UnfitError(Exception):
    """These constants do not go into the holes: the text is read as any other."""


class Alike(NamedTuple):
    """A subscription as `parse` gives it, but without places in its text."""

    subscription: Subscription
    ways: tuple[Alternative, ...]  # of one that differs from it in nothing but constants


def alike(text: str, regions: Mapping[str, str] = NO_REGIONS) -> Alike | None:
    """What a text says whose shape is known. It is in order: its shape was checked before.

    None: read it whole. Then errors point into the text.

    >>> [alike(f"@(Depot)(ARITH:id = {n})", {"Depot": "CIRCLE (0 0, 5)"}) is None for n in (1, 2)]
    [True, False]
    """
    read = _taken_apart(text)
    if read is None:
        return None
    shape, found = read
    known = _shapes.get(shape)
    if known is None:
        if len(_shapes) >= MOST_SHAPES:
            _shapes.clear()
        _shapes[shape] = _Shape(frozenset(_NAME.findall(shape)))
        return None
    key = frozenset(name for name in known.names if name in regions)
    if key not in known.templates:
        known.templates[key] = _template(text, regions)
    template = known.templates[key]
    if template is None:
        return None
    try:
        return Alike(template.filled(text, found, regions), template.ways)
    except (_UnfitError, QueryError):
        return None


# --------------------------------------------------------------------------------------- texts


def _taken_apart(text: str) -> tuple[str, Holes] | None:
    """The shape of a text, and what stands in its holes."""
    if len(text) * 4 > LONGEST or _MARKS.search(text):
        return None
    shape: list[str] = []
    holes: Holes = []
    end = 0
    for piece in iter(_PIECES.scanner(text).match, None):  # type: ignore[attr-defined]
        found, end = piece[0], piece.end()
        match piece.lastgroup:
            case "shape":
                shape.append(found)
            case "number":
                shape.append(_WHOLE if found.isdigit() else _DECIMAL)
                holes.append(found)
            case "text":
                shape.append(_TEXT)
                holes.append(found)
            case _:
                shape.append(_REGION)
                holes.append(found)
    if end != len(text) or len(holes) > MOST_HOLES:
        return None
    return "".join(shape), holes


@dataclass
class _Shape:
    """The texts of one shape, by which of their names are regions of the call."""

    names: frozenset[str]
    templates: "dict[frozenset[str], _Template | None]"

    def __init__(self, names: frozenset[str]) -> None:
        self.names, self.templates = names, {}


_shapes: dict[str, _Shape] = {}


# ----------------------------------------------------------------------------------- templates


@dataclass(frozen=True, slots=True)
class _Template:
    """A subscription with holes."""

    fill: Fill
    ways: tuple[Alternative, ...]

    def filled(self, text: str, holes: Holes, regions: Mapping[str, str]) -> Subscription:
        found = cast(Subscription, self.fill(holes, regions))
        object.__setattr__(found, "text", text)  # nobody else knows it yet
        return found


def _template(text: str, regions: Mapping[str, str]) -> _Template | None:
    """The tree of a shape; None if its texts have to be read one by one."""
    read = _taken_apart(text)
    assert read is not None
    shape, found = read
    strange = _Strange(shape)
    try:
        whole = parse(text, regions)
        ways = alternatives(whole)
        other = parse(strange.text, {name: f"{_GIVEN}{name}" for name in regions})
        filling = _Filling(strange)
        fill = filling.of(other)
        if fill is None or filling.met != set(range(len(found))):
            return None
        template = _Template(fill, ways)
        again = template.filled(text, found, regions)
    except (_UnfitError, QueryError):
        return None
    return template if repr(again) == repr(whole) else None


class _Strange:
    """A text of a shape, with constants by which each hole is known again."""

    def __init__(self, shape: str) -> None:
        self.whole: dict[float, int] = {}
        self.texts: dict[str, int] = {}
        self.areas: dict[str, int] = {}
        self._holes = 0
        self.text = re.sub("[\x01-\x04]", self._constant, shape)

    def _constant(self, mark: re.Match[str]) -> str:
        hole, self._holes = self._holes, self._holes + 1
        match mark[0]:
            case "\x01":
                self.whole[1_001 + hole] = hole
                return str(1_001 + hole)
            case "\x02":
                self.whole[1_001.5 + hole] = hole
                return str(1_001.5 + hole)
            case "\x03":
                self.texts[f"{_TEXT}{hole}"] = hole
                return f"'{_TEXT}{hole}'"
            case _:
                area = region_text(f"CIRCLE ({hole} 0, 1)")
                self.areas[area] = hole
                return area


class _Filling:
    """How the tree of a strange text is made from holes: for each part a function, None if it has
    none. Spans are left out."""

    def __init__(self, strange: _Strange) -> None:
        self.strange = strange
        self.met: set[int] = set()

    def of(self, value: Any) -> Fill | None:
        match value:
            case bool() | None:
                return None
            case int() | float():
                return self._number(value)
            case str():
                hole = self.strange.texts.get(value)
                return None if hole is None else self._met(hole, _filled_text(hole))
            case ByTime(nanoseconds):
                return self._duration(nanoseconds)
            case Region(text, name):
                return self._region(text, name)
            case tuple():
                return self._several(value, tuple)
            case Mapping():
                return self._mapping(value)
            case _ if is_dataclass(value):
                return self._node(value)
            case _:
                return None

    def _met(self, hole: int, fill: Fill) -> Fill:
        self.met.add(hole)
        return fill

    def _number(self, value: float) -> Fill | None:
        hole = self.strange.whole.get(abs(value))
        if hole is None:
            return None
        sign = -1 if value < 0 else 1
        return self._met(
            hole,
            _filled_whole(hole, sign) if isinstance(value, int) else _filled_number(hole, sign),
        )

    def _duration(self, nanoseconds: int) -> Fill | None:
        for constant, hole in self.strange.whole.items():
            for unit in _UNITS:
                if nanoseconds == constant * unit:
                    if constant != int(constant):
                        raise _UnfitError  # rounding is left to who reads it
                    return self._met(hole, _filled_duration(hole, unit))
        return None

    def _region(self, text: str, name: str | None) -> Fill | None:
        if text.startswith(_GIVEN):
            given = text[1:]
            return lambda _, regions: Region(regions[given], name)
        hole = self.strange.areas.get(text)
        if hole is None:
            return None
        return self._met(hole, lambda holes, _: Region(_area(holes[hole]), name))

    def _several(self, values: tuple[Any, ...], kind: type) -> Fill | None:
        constant, filled = self._parts(values)
        if not filled:
            return None

        def fill(holes: Holes, regions: Mapping[str, str]) -> Any:
            found = constant[:]
            for place, part in filled:
                found[place] = part(holes, regions)
            return kind(found)

        return fill

    def _mapping(self, values: Mapping[str, Any]) -> Fill:
        names = list(values)
        parts = self._several(tuple(values.values()), list)
        if parts is None:
            constant = _bare(dict(values))
            return lambda _, __: dict(constant)
        return lambda holes, regions: dict(zip(names, parts(holes, regions), strict=True))

    def _node(self, value: Any) -> Fill | None:
        kind = type(value)
        names = [f.name for f in fields(value) if f.name not in ("span", "text")]
        constant, filled = self._parts([getattr(value, name) for name in names])
        if not filled:
            return None
        positive = isinstance(value, Placed) and value.where is Where.SAME
        positive_names = {"number"} if positive else {"same_place"}
        must = [n for n, (place, _) in enumerate(filled) if names[place] in positive_names]

        def fill(holes: Holes, regions: Mapping[str, str]) -> Any:
            found = constant[:]
            for place, part in filled:
                found[place] = part(holes, regions)
            for n in must:
                if not found[filled[n][0]] > 0:
                    raise _UnfitError
            return kind(*found)

        return fill

    def _parts(self, values: Any) -> tuple[list[Any], list[tuple[int, Fill]]]:
        """What stays as it is, and what is filled in where."""
        fills = [self.of(value) for value in values]
        constant = [_bare(v) if f is None else None for v, f in zip(values, fills, strict=True)]
        return constant, [(n, f) for n, f in enumerate(fills) if f is not None]


_UNITS = (1, 10**3, 10**6, 10**9, 60 * 10**9, 3_600 * 10**9, 86_400 * 10**9, 604_800 * 10**9)
_LONGEST = 9 * 10**18  # nanoseconds; a little less than what is taken


def _filled_whole(hole: int, sign: int) -> Fill:
    def fill(holes: Holes, _: Mapping[str, str]) -> int:
        digits = holes[hole]
        if len(digits) > 18:
            raise _UnfitError
        return sign * int(digits)

    return fill


def _filled_number(hole: int, sign: int) -> Fill:
    def fill(holes: Holes, _: Mapping[str, str]) -> float:
        digits = holes[hole]
        value = float(digits)
        if not math.isfinite(value) or len(digits) > 18:
            raise _UnfitError
        return sign * value

    return fill


def _filled_duration(hole: int, unit: int) -> Fill:
    def fill(holes: Holes, _: Mapping[str, str]) -> ByTime:
        digits = holes[hole]
        if len(digits) > 18 or int(digits) * unit > _LONGEST:
            raise _UnfitError
        return ByTime(int(digits) * unit)

    return fill


@lru_cache(maxsize=64)  # a name that is used twice is read once
def _area(text: str) -> str:
    return region_text(text)


def _filled_text(hole: int) -> Fill:
    return lambda holes, _: holes[hole][1:-1].replace("''", "'")


def _bare(value: Any) -> Any:
    """Without places in a text that nobody wrote."""
    if isinstance(value, tuple):
        return tuple(map(_bare, value))
    if isinstance(value, Mapping):
        return {name: _bare(part) for name, part in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    kept = {
        f.name: None if f.name == "span" else _bare(getattr(value, f.name)) for f in fields(value)
    }
    return type(value)(**kept)
