"""Functions of the bits of whole numbers, which are 64, the highest one being the sign."""

from ensue.algebra.functions.record import Function, Inline, OverNumbers, Takes
from ensue.algebra.values import fitting, number
from ensue.schema import Kind

_TWO = (Takes.WHOLE, Takes.WHOLE)


def _whole(value: object) -> int:
    return int(number(value))


def _shift_left(value: object, count: object) -> int | None:
    """Times a power of two; NULL where that is more than 64 bits hold."""
    by = _whole(count)
    return fitting(_whole(value) << by) if 0 <= by < 64 else None


def _shift_right(value: object, count: object) -> int | None:
    by = _whole(count)
    return _whole(value) >> by if 0 <= by < 64 else None


_SHIFT = "np.clip(y, 0, 63)"
_NO_SHIFT = "(y < 0) | (y > 63)"

BITS = (
    Function(
        "bitand",
        _TWO,
        Kind.INTEGER,
        lambda x, y: _whole(x) & _whole(y),
        vector=OverNumbers("x & y"),
        kernel=Inline("({x} & {y})"),
    ),
    Function(
        "bitor",
        _TWO,
        Kind.INTEGER,
        lambda x, y: _whole(x) | _whole(y),
        vector=OverNumbers("x | y"),
        kernel=Inline("({x} | {y})"),
    ),
    Function(
        "bitxor",
        _TWO,
        Kind.INTEGER,
        lambda x, y: _whole(x) ^ _whole(y),
        aliases=("xor",),
        vector=OverNumbers("x ^ y"),
        kernel=Inline("({x} ^ {y})"),
    ),
    Function(
        "bitnot",
        (Takes.WHOLE,),
        Kind.INTEGER,
        lambda x: ~_whole(x),
        vector=OverNumbers("~x"),
        kernel=Inline("(~{x})"),
    ),
    Function(
        "shiftleft",
        _TWO,
        Kind.INTEGER,
        _shift_left,
        vector=OverNumbers(f"x << {_SHIFT}", null=f"{_NO_SHIFT} | ((found >> {_SHIFT}) != x)"),
    ),
    Function(
        "shiftright",
        _TWO,
        Kind.INTEGER,
        _shift_right,
        vector=OverNumbers(f"x >> {_SHIFT}", null=_NO_SHIFT),
    ),
    Function(
        "bit_count",
        (Takes.WHOLE,),
        Kind.INTEGER,
        lambda x: (_whole(x) & (2**64 - 1)).bit_count(),
        vector=OverNumbers("np.bitwise_count(x.view(np.uint64)).astype(np.int64)"),
    ),
)
