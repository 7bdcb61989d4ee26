"""The range of time before a live match that conditions of ON leave for an archived one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ensue.algebra.correlation import Anchor, ClauseSide, Range
from ensue.algebra.predicate import Between, Binary, Expr, Field, Literal, Unary
from ensue.algebra.row_patterns.edges import End, ends_of
from ensue.algebra.window import ByTime, ByUnits

Length = timedelta | int | float
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class _Linear:
    """Columns that are added and subtracted, and a constant."""

    fields: dict[tuple[str, str], int]
    constant: Length | None = None  # None: nothing

    def plus(self, other: "_Linear", sign: int) -> "_Linear | None":
        fields = dict(self.fields)
        for field, times in other.fields.items():
            fields[field] = fields.get(field, 0) + sign * times
        own, more = self.constant, other.constant
        if more is None:
            return _Linear(fields, own)
        turned = more if sign > 0 else -more
        if own is None:
            return _Linear(fields, turned)
        if isinstance(own, timedelta) != isinstance(turned, timedelta):
            return None
        return _Linear(fields, own + turned)  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class _Bound:
    """`archived <= live - back`, or `>=`; where a row is the only one it is both its ends."""

    archived: frozenset[End]
    live: frozenset[End]
    operator: str
    back: Length | None  # None: 0


def range_of(on: Sequence[Expr], live: ClauseSide, archived: ClauseSide) -> Range | None:
    """The smallest range that holds all archived matches that conditions let through.

    It may hold more: conditions stay what they are.
    """
    bounds = [bound for part in on for bound in _bounds(part, live, archived)]
    for anchor, end in ((Anchor.START, End.FIRST), (Anchor.END, End.LAST)):
        nears = [b.back for b in bounds if end in b.live and _is_upper(b)]
        # a match ends no earlier than it starts: what is counted from its end is nearer
        counted = (end, End.LAST)
        fars = [
            b.back
            for b in bounds
            if b.operator in (">", ">=")
            and End.FIRST in b.archived
            and any(one in b.live for one in counted)
            and b.back is not None
            and _amount(b.back) > 0
        ]
        if nears and fars:
            far = min(fars, key=_amount)
            near = max(nears, key=lambda back: 0 if back is None else _amount(back))
            made = None if near is None or not _amount(near) else _window(near)
            if near is None or _amount(near) < _amount(far):
                return Range(_window(far), anchor, made)
    return None


def _is_upper(bound: _Bound) -> bool:
    """Whether an archived match ends before the live one by it."""
    if End.LAST not in bound.archived or bound.operator not in ("<", "<="):
        return False
    back = 0 if bound.back is None else _amount(bound.back)
    return back > 0 or (back == 0 and bound.operator == "<")


def _amount(length: Length) -> int | float:
    if isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    return length


def _window(length: Length) -> ByTime | ByUnits:
    if isinstance(length, timedelta):
        return ByTime(length // timedelta(microseconds=1) * 1_000)
    return ByUnits(length)


def _bounds(condition: Expr, live: ClauseSide, archived: ClauseSide) -> Iterator[_Bound]:
    match condition:
        case Between(operand=operand, low=low, high=high, negated=False):
            yield from _bounds(Binary(">=", operand, low), live, archived)
            yield from _bounds(Binary("<=", operand, high), live, archived)
        case Binary(operator=operator, left=left, right=right) if operator in _TURNED:
            one, other = _linear(left), _linear(right)
            whole = None if one is None or other is None else one.plus(other, -1)
            if whole is None:
                return
            fields = {field: times for field, times in whole.fields.items() if times}
            ours = [name for variable, name in fields if variable == live.alias]
            theirs = [name for variable, name in fields if variable == archived.alias]
            if len(fields) != 2 or len(ours) != 1 or len(theirs) != 1:
                return
            signs = fields[archived.alias, theirs[0]], fields[live.alias, ours[0]]
            back = whole.constant  # archived - live + back <operator> 0
            if signs == (-1, 1):
                operator = _TURNED[operator]
                back = None if back is None else -back
            elif signs != (1, -1):
                return
            yield _Bound(_ends(archived, theirs[0]), _ends(live, ours[0]), operator, back)


def _ends(side: ClauseSide, name: str) -> frozenset[End]:
    for measure in side.recognition.measures:
        if measure.name == name:
            return ends_of(side.recognition, measure.value)
    return frozenset()


def _linear(expr: Expr) -> _Linear | None:
    match expr:
        case Field(variable=variable, name=str(name)):
            return _Linear({(variable, name): 1})
        case Literal(value=timedelta() as value):
            return _Linear({}, value)
        case Literal(value=int() | float() as value) if not isinstance(value, bool):
            return _Linear({}, value)
        case Unary(operator="-", operand=operand):
            inner = _linear(operand)
            return None if inner is None else _Linear({}).plus(inner, -1)
        case Binary(operator="+" | "-" as operator, left=left, right=right):
            one, other = _linear(left), _linear(right)
            if one is None or other is None:
                return None
            return one.plus(other, 1 if operator == "+" else -1)
        case _:
            return None
