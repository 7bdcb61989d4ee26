"""How far apart the events of a match can be, as its conditions tell: the life of what waits.

Conditions on times such as `b.end <= a.end + 25 minutes`, and the order of a sequence, say that
one time is at most so much later than another. The greatest span of a match is a longest way over
shortest paths between the times of its events; a query in which every alternative has one needs no
WITHIN to forget.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import islice, pairwise, product
from math import inf, nextafter

from ensue.algebra.form import (
    Form,
    form,
    is_absence,
    is_list,
    is_sequence,
    optional,
    parts,
    stands,
)
from ensue.algebra.pattern import Interval, Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import (
    Aggregate,
    At,
    Between,
    Binary,
    Call,
    Expr,
    Field,
    Literal,
    Unary,
)
from ensue.algebra.query import Query
from ensue.algebra.values import instant
from ensue.algebra.walk import kleenes, positives, references, results, variables
from ensue.algebra.window import ByTime, ByUnits
from ensue.schema import Kind, Schema

MOST = 64  # alternatives that are looked at: of OR, ? and *
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Node = tuple[str, bool, bool]  # a variable; of its last event or its first; the end or the start
ORIGIN: Node = ("", False, False)  # time 0: moments are as much later
Edge = tuple[Node, Node, Fraction]
Edges = dict[tuple[Node, Node], Fraction]  # (x, y): y is at most so much later than x


def derived_window(query: Query, schema: Schema) -> ByTime | ByUnits | None:
    """The greatest span of a match of a checked query, if its conditions bound it.

    None too where a window would mean more than that: it says how far a negation at the start
    looks back, and under skip-till-next-match which events that last a run may pass over.
    """
    if (
        any(results(query.pattern))
        or _looks_back(query.pattern)
        or (Strategy.NEXT in query.strategies and schema.intervals)
    ):
        return None
    times = Times(schema, frozenset(kleenes(query.pattern)))
    longest = Fraction(0)
    alternatives = list(_some(query.pattern))
    if len(alternatives) > MOST:
        return None
    for alternative in alternatives:
        span = _span(alternative, query, times) if alternative.events else Fraction(0)
        if span is None:
            return None
        longest = max(longest, span)
    if schema.time_kind.numeric:
        return ByUnits(_rounded_up(longest))
    return ByTime(max(1, int(longest)))


def _rounded_up(length: Fraction) -> int | float:
    if length.denominator == 1:
        return max(1, int(length))
    nearest = float(length)
    return nearest if Fraction(nearest) >= length else nextafter(nearest, inf)


def _looks_back(pattern: Pattern) -> bool:
    """Whether a negation may have nothing in front of it."""
    if is_absence(pattern):
        return False
    inner = parts(pattern)
    if is_sequence(pattern) and any(
        stands(part) and all(map(optional, inner[:k])) for k, part in enumerate(inner)
    ):
        return True
    return any(map(_looks_back, inner))


# ------------------------------------------------------------------------------- alternatives


@dataclass(frozen=True, slots=True)
class Alternative:
    """The variables that a match may bind together, and which of them come before which."""

    events: tuple[str, ...] = ()
    order: tuple[tuple[str, str], ...] = ()


def _alternatives(pattern: Pattern) -> Iterator[Alternative]:
    if is_list(pattern):
        yield Alternative((pattern.atom.variable,))
        if optional(pattern):
            yield Alternative()
        return
    match form(pattern):
        case Form.EVENT | Form.LIST | Form.RESULT:
            yield Alternative((next(positives(pattern)).variable,))
        case Form.ABSENCE:
            yield Alternative()
        case Form.LOOP:
            # each time may bind others; together they may bind all, in any order
            yield Alternative(tuple(atom.variable for atom in positives(pattern)))
            for part in parts(pattern):
                yield from _some(part)
            if optional(pattern):
                yield Alternative()
        case Form.OPTION:
            yield Alternative()
            yield from _some(parts(pattern)[0])
        case Form.CHOICE:
            for part in parts(pattern):
                yield from _some(part)
        case Form.SEQUENCE | Form.TOGETHER:
            ordered = is_sequence(pattern)
            for chosen in product(*(list(_some(part)) for part in parts(pattern))):
                yield _together([one for one in chosen if one.events], ordered)


def _some(pattern: Pattern) -> Iterator[Alternative]:
    """Its alternatives, or one more than are looked at."""
    return islice(_alternatives(pattern), MOST + 1)


def _together(chosen: list[Alternative], ordered: bool) -> Alternative:
    order = [pair for one in chosen for pair in one.order]
    if ordered:
        for left, right in pairwise(chosen):
            order += product(left.events, right.events)
    return Alternative(tuple(v for one in chosen for v in one.events), tuple(order))


# -------------------------------------------------------------------------------- differences


@dataclass(frozen=True, slots=True)
class Sum:
    """Times added and subtracted, and a constant; `slack`: how far rounding can be off."""

    plus: tuple[Node, ...] = ()
    minus: tuple[Node, ...] = ()
    constant: Fraction = Fraction(0)
    slack: Fraction = Fraction(0)
    moment: bool = False  # the constant is a point in time
    float: bool = False  # the constant makes floats of integers

    @property
    def is_constant(self) -> bool:
        return not self.plus and not self.minus

    @property
    def is_time(self) -> bool:
        return len(self.plus) == 1 and not self.minus


@dataclass(frozen=True, slots=True)
class Times:
    """What fields and constants are, as times."""

    schema: Schema
    kleene: frozenset[str]

    @property
    def real(self) -> bool:
        """Whether sums of times are rounded."""
        return self.schema.time_kind in (Kind.FLOAT, Kind.DECIMAL)

    def node(self, field: Field, last: bool) -> Node | None:
        """A time of an event, if the field is one; `last`: of which event `[i]` speaks."""
        if field.name not in (self.schema.start, self.schema.end):
            return None
        match field.at:
            case At.ONLY:
                later = False
            case At.NTH if field.nth == 1:
                later = False
            case At.LAST:
                later = True
            case At.CURRENT:
                later = last
            case _:
                return None
        return self.of(field.variable, later, field.name == self.schema.end)

    def of(self, variable: str, last: bool, end: bool) -> Node:
        return (variable, last and variable in self.kleene, end and self.schema.intervals)

    def constant(self, literal: Literal) -> Sum | None:
        match literal.value:
            case bool() | None | str():
                return None
            case timedelta() as length:
                return Sum(constant=Fraction(length // _MICROSECOND * 1000))
            case datetime() as moment:
                micros = (instant(moment) - _EPOCH) // _MICROSECOND
                return Sum(constant=Fraction(micros * 1000), moment=True)
            case int() as number:
                return Sum(constant=Fraction(number), float=not -(2**63) <= number < 2**63)
            case float() as number:
                return Sum(constant=Fraction(number), float=True) if abs(number) < inf else None

    def bounds(self, expr: Expr, last: bool, *, below: bool) -> list[Sum]:
        """Sums that are never above the expression, or never below it."""
        match expr:
            case Literal():
                found = self.constant(expr)
                return [] if found is None else [found]
            case Field():
                node = self.node(expr, last)
                return [] if node is None else [Sum((node,))]
            case Call(function="greatest" | "least" as name, arguments=arguments):
                each = [self.bounds(one, last, below=below) for one in arguments]
                if (name == "greatest") is not below or not all(each):
                    return []  # one of them, but which?
                return [found for bounds in each for found in bounds]
            case Binary(operator="+", left=left, right=right):
                found_left = self.bounds(left, last, below=below)
                found_right = self.bounds(right, last, below=below)
                return self._added(found_left, found_right, 1)
            case Binary(operator="-", left=left, right=right):
                found_left = self.bounds(left, last, below=below)
                found_right = self.bounds(right, last, below=not below)
                return self._added(found_left, found_right, -1)
            case Unary(operator="-", operand=operand):
                inverse = self.bounds(operand, last, below=not below)
                return self._added([Sum()], [s for s in inverse if s.is_constant], -1)
            case _:
                return []

    def _added(self, left: list[Sum], right: list[Sum], sign: int) -> list[Sum]:
        return [s for a in left for b in right if (s := self._sum(a, b, sign)) is not None]

    def _sum(self, a: Sum, b: Sum, sign: int) -> Sum | None:
        slack = a.slack + b.slack
        known = a.is_constant or b.is_constant
        if self.real and known and not (a.is_constant and b.is_constant):
            # the nearest float is no farther from the sum than the float it was added to
            slack += abs((a if a.is_constant else b).constant)
        elif self.real and not known and not (sign < 0 and a.is_time and b.is_time):
            return None  # rounded by as much as the times are large
        elif not self.real and (a.float or b.float):
            return None  # large integers would be rounded
        plus, minus = (b.plus, b.minus) if sign > 0 else (b.minus, b.plus)
        return Sum(
            a.plus + plus,
            a.minus + minus,
            a.constant + sign * b.constant,
            slack,
            a.moment is not b.moment,
        )

    def edges(self, condition: Expr, last: bool) -> Iterator[Edge]:
        """What a condition says: (x, y, w) where y is at most w later than x."""
        match condition:
            case Binary(operator="<" | "<=", left=left, right=right):
                yield from self._at_most(left, right, last)
            case Binary(operator=">" | ">=", left=left, right=right):
                yield from self._at_most(right, left, last)
            case Binary(operator="=", left=left, right=right):
                yield from self._at_most(left, right, last)
                yield from self._at_most(right, left, last)
            case Between(operand=operand, low=low, high=high, negated=False):
                yield from self._at_most(low, operand, last)
                yield from self._at_most(operand, high, last)
            case _:
                return

    def _at_most(self, small: Expr, large: Expr, last: bool) -> Iterator[Edge]:
        for a in self.bounds(small, last, below=True):
            for b in self.bounds(large, last, below=False):
                plus, minus = _left([*a.plus, *b.minus], [*a.minus, *b.plus])
                if len(plus) > 1 or len(minus) > 1 or not (plus or minus):
                    continue
                if len(plus) != len(minus) and not self._moments(a, b):
                    continue
                width = b.constant - a.constant + a.slack + b.slack
                if self.real and plus and minus:
                    width += abs(width) / 10**9  # a difference is rounded by less
                yield minus[0] if minus else ORIGIN, plus[0] if plus else ORIGIN, width

    def _moments(self, a: Sum, b: Sum) -> bool:
        """Whether a time is compared with a moment, and not a length with a length."""
        return self.schema.time_kind.numeric or a.moment or b.moment


def _left(plus: list[Node], minus: list[Node]) -> tuple[list[Node], list[Node]]:
    """What is on one side only."""
    for node in list(plus):
        if node in minus:
            plus.remove(node)
            minus.remove(node)
    return plus, minus


# ---------------------------------------------------------------------------------- intervals

Offsets = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Looks:
    """How long before a match an absence looks; None: not before a moment, wherever it is.

    `ahead` is how long after the end of a match its interval may end; None: at a moment.
    """

    back: Fraction | None
    ahead: Fraction | None = None


def looks_as_far(interval: Interval, query: Query, schema: Schema) -> Looks | None:
    """How far an interval is from the events of a match; None: as far as other fields say."""
    times = Times(schema, frozenset(kleenes(query.pattern)))
    after, until = (_offsets(end, times) for end in (interval.after, interval.until))
    moments = [isinstance(end, Literal) for end in (interval.after, interval.until)]
    if all(moments):
        return Looks(None)
    if after is None or (until is None and not moments[1]):
        return None
    ahead = None if until is None else max(Fraction(0), until[1])
    return Looks(max(Fraction(0), -after[0]), ahead)


def _offsets(end: Expr, times: Times) -> Offsets | None:
    """From the first start of a match to the least, from its last end to the greatest."""
    match end:
        case Field(name=name) if name in (times.schema.start, times.schema.end):
            return Fraction(0), Fraction(0)
        case Aggregate(function="min" | "max" | "first" | "last", argument=Field() as field):
            return _offsets(field, times)
        case Call(function="greatest" | "least", arguments=arguments):
            each = [_offsets(one, times) for one in arguments]
            known = [one for one in each if one is not None]
            if len(known) < len(each):
                return None
            return min(low for low, _ in known), max(high for _, high in known)
        case Binary(operator="+" | "-" as sign, left=left, right=Literal() as right):
            inside, length = _offsets(left, times), times.constant(right)
            if inside is None or length is None or length.moment:
                return None
            by = length.constant if sign == "+" else -length.constant
            slack = abs(by) if times.real or length.float else 0
            return inside[0] + by - slack, inside[1] + by + slack
        case _:
            return None


# -------------------------------------------------------------------------------------- paths


def _span(alternative: Alternative, query: Query, times: Times) -> Fraction | None:
    """The greatest difference between an end and a start; None: there is no bound."""
    edges: Edges = {}

    def at_most(x: Node, y: Node, width: Fraction) -> None:
        if x != y and width < edges.get((x, y), inf):
            edges[x, y] = width

    zero = Fraction(0)
    for v in alternative.events:
        for last in (False, True):
            at_most(times.of(v, last, True), times.of(v, last, False), zero)
        for end in (False, True):
            at_most(times.of(v, True, end), times.of(v, False, end), zero)
    for left, right in alternative.order:
        at_most(times.of(right, False, False), times.of(left, True, True), zero)
    for condition in query.where:
        if variables(condition) <= {*alternative.events}:
            moving = any(r.at is At.CURRENT for r in references(condition))
            for last in (False, True) if moving else (False,):
                for x, y, width in times.edges(condition, last):
                    at_most(x, y, width)
    longest = zero
    lasts = [times.of(v, True, True) for v in alternative.events]
    for v in alternative.events:
        reached = _shortest(times.of(v, False, False), edges)
        if reached is None:
            return None
        for final in lasts:
            if final not in reached:
                return None
            longest = max(longest, reached[final])
    return longest


def _shortest(source: Node, edges: Edges) -> Mapping[Node, Fraction] | None:
    """How much later each time can be; None: the conditions contradict each other."""
    reached = {source: Fraction(0)}
    nodes = {node for pair in edges for node in pair}
    for _ in range(len(nodes) + 1):
        changed = False
        for (x, y), width in edges.items():
            if x in reached and reached[x] + width < reached.get(y, inf):
                reached[y] = reached[x] + width
                changed = True
        if not changed:
            return reached
    return None
