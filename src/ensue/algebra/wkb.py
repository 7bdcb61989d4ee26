"""Places as WKB bytes, the ISO form and PostGIS's."""

import struct
from collections.abc import Iterator

from ensue.algebra.wkt import Point, Points
from ensue.errors import QueryError

_POINT, _LINE, _POLYGON, _MOST = 1, 2, 3, 7
_Z, _M, _SRID = 0x80000000, 0x40000000, 0x20000000


def read_wkb(data: bytes) -> Points:
    """All points of a geometry: what stands for its hull.

    >>> read_wkb(bytes.fromhex("0101000000000000000000f03f0000000000000040"))
    Points(points=((1.0, 2.0),))
    """
    try:
        reader = _Reader(data)
        found = tuple(reader.points())
    except struct.error:
        raise QueryError("its bytes end too early") from None
    if reader.at != len(data):
        raise QueryError("there are extra bytes after its end")
    return Points(found)


class _Reader:
    """Bytes, and how far they are read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def _read(self, form: str) -> tuple[float, ...]:
        found = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return found

    def points(self) -> Iterator[Point]:
        """Those of one geometry, its parts' too."""
        (order,) = self._read("B")
        end = "<" if order == 1 else ">"
        (kind,) = (int(n) for n in self._read(f"{end}I"))
        size = 2 + bool(kind & _Z) + bool(kind & _M)
        if kind & _SRID:
            self._read(f"{end}I")
        kind &= 0xFFFFFF
        size += (0, 1, 1, 2)[kind // 1000] if kind < 4000 else 0
        kind %= 1000
        if order > 1 or not _POINT <= kind <= _MOST:
            raise QueryError("these bytes are not WKB")
        if kind == _POINT:
            x, y, *_ = self._read(f"{end}{size}d")
            if x == x or y == y:  # NaN twice: empty
                yield x, y
            return
        (count,) = (int(n) for n in self._read(f"{end}I"))
        for _ in range(count):
            if kind == _LINE:
                yield self._corner(end, size)
            elif kind == _POLYGON:
                (corners,) = (int(n) for n in self._read(f"{end}I"))
                for _ in range(corners):
                    yield self._corner(end, size)
            else:
                yield from self.points()

    def _corner(self, end: str, size: int) -> Point:
        x, y, *_ = self._read(f"{end}{size}d")
        return x, y
