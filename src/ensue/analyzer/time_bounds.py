"""Time bounds of matches: the maximum span that conditions imply, and the range to read.

Conditions on times such as `b.end <= a.end + 25 minutes`, and the order of a sequence, bound the
difference of two times. The maximum span of a match is the maximum over the shortest paths between
the times of its events; a query that is bounded in every alternative needs no WITHIN on a stream.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from fractions import Fraction
from itertools import islice, pairwise, product
from math import inf, nextafter

from ensue.analyzer.pattern_rules import iterate_trailing_negations
from ensue.ir import traits
from ensue.ir.expression import Aggregate, Between, Binary, EventPosition, Expr, FieldRef, FunctionCall, Literal, Unary
from ensue.ir.pattern import Interval, Not, Pattern
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, ByTime, ByUnits, Strategy
from ensue.ir.traversal import (
    get_kleene_variables,
    get_variables,
    iterate_negations,
    iterate_operator_calls,
    iterate_positive_atoms,
    iterate_references,
)
from ensue.ir.user_operator import OperatorInputs
from ensue.ir.values import format_duration, to_instant
from ensue.schema import Schema, ValueKind

MAX_BOUND_ALTERNATIVES = 64  # maximum number of alternatives of OR, ? and *
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Node = tuple[str, bool, bool]  # a variable; its last or first event; the end or the start
ORIGIN: Node = ("", False, False)  # time 0, for constant times
Edge = tuple[Node, Node, Fraction]  # (x, y, width): y <= x + width
Edges = dict[tuple[Node, Node], Fraction]


def compute_window_bound(query: Query, schema: Schema) -> ByTime | ByUnits | None:
    """Computes the maximum span of a match of a checked query, or None if it is not bounded.

    Also None if a window would change the meaning: it limits a negation at the start, and under
    skip-till-next-match the events with a duration that a run may skip.
    """
    if (
        any(iterate_operator_calls(query.pattern))
        or any(map(traits.is_positional_negation, iterate_leading_negations(query.pattern)))
        or (Strategy.NEXT in query.strategies and schema.intervals)
    ):
        return None
    times = TimeFields(schema, frozenset(get_kleene_variables(query.pattern)))
    longest = Fraction(0)
    alternatives = list(_take_alternatives(query.pattern))
    if len(alternatives) > MAX_BOUND_ALTERNATIVES:
        return None
    for alternative in alternatives:
        span = _compute_span(alternative, query, times) if alternative.events else Fraction(0)
        if span is None:
            return None
        longest = max(longest, span)
    if schema.time_kind.numeric:
        return ByUnits(_round_up(longest))
    return ByTime(max(1, int(longest)))


def _round_up(length: Fraction) -> int | float:
    if length.denominator == 1:
        return max(1, int(length))
    nearest = float(length)
    return nearest if Fraction(nearest) >= length else nextafter(nearest, inf)


@dataclass(frozen=True, slots=True)
class BoundVariables:
    """Variables that a match may bind together, and pairs of which one precedes the other."""

    events: tuple[str, ...] = ()
    order: tuple[tuple[str, str], ...] = ()


def _iterate_alternatives(pattern: Pattern) -> Iterator[BoundVariables]:
    if traits.is_list(pattern):
        yield BoundVariables((pattern.atom.variable,))
        if traits.is_optional(pattern):
            yield BoundVariables()
        return
    match traits.get_form(pattern):
        case traits.NodeForm.EVENT | traits.NodeForm.LIST | traits.NodeForm.RESULT:
            yield BoundVariables((next(iterate_positive_atoms(pattern)).variable,))
        case traits.NodeForm.ABSENCE:
            yield BoundVariables()
        case traits.NodeForm.LOOP:
            # iterations may bind different variables, together all of them in any order
            yield BoundVariables(tuple(atom.variable for atom in iterate_positive_atoms(pattern)))
            for part in traits.get_parts(pattern):
                yield from _take_alternatives(part)
            if traits.is_optional(pattern):
                yield BoundVariables()
        case traits.NodeForm.OPTION:
            yield BoundVariables()
            yield from _take_alternatives(traits.get_parts(pattern)[0])
        case traits.NodeForm.CHOICE:
            for part in traits.get_parts(pattern):
                yield from _take_alternatives(part)
        case traits.NodeForm.SEQUENCE | traits.NodeForm.TOGETHER:
            ordered = traits.is_sequence(pattern)
            for chosen in product(*(list(_take_alternatives(part)) for part in traits.get_parts(pattern))):
                yield _combine([part for part in chosen if part.events], ordered)


def _take_alternatives(pattern: Pattern) -> Iterator[BoundVariables]:
    """Yields the alternatives of a pattern, at most one more than allowed."""
    return islice(_iterate_alternatives(pattern), MAX_BOUND_ALTERNATIVES + 1)


def _combine(chosen: list[BoundVariables], ordered: bool) -> BoundVariables:
    order = [pair for part in chosen for pair in part.order]
    if ordered:
        for left, right in pairwise(chosen):
            order += product(left.events, right.events)
    return BoundVariables(tuple(v for part in chosen for v in part.events), tuple(order))


@dataclass(frozen=True, slots=True)
class TimeSum:
    """A linear sum of times and a constant; `slack` bounds the rounding error."""

    plus: tuple[Node, ...] = ()
    minus: tuple[Node, ...] = ()
    constant: Fraction = Fraction(0)
    slack: Fraction = Fraction(0)
    moment: bool = False  # the constant is a point in time
    float: bool = False  # the constant is a float

    @property
    def is_constant(self) -> bool:
        return not self.plus and not self.minus

    @property
    def is_time(self) -> bool:
        return len(self.plus) == 1 and not self.minus


@dataclass(frozen=True, slots=True)
class TimeFields:
    """Interprets fields and constants as times."""

    schema: Schema
    kleene: frozenset[str]

    @property
    def real(self) -> bool:
        """Whether sums of times are rounded."""
        return self.schema.time_kind in (ValueKind.FLOAT, ValueKind.DECIMAL)

    def node(self, field: FieldRef, last: bool) -> Node | None:
        """Returns the time that a field holds, or None; `last` selects the event of `[i]`."""
        positions = {
            EventPosition.ONLY: False,
            EventPosition.NTH: False,
            EventPosition.LAST: True,
            EventPosition.CURRENT: last,
        }
        if field.name not in (self.schema.start, self.schema.end) or field.nth != 1:
            return None
        later = positions.get(field.at)
        if later is None:
            return None
        return self.get_node(field.variable, later, field.name == self.schema.end)

    def get_node(self, variable: str, last: bool, end: bool) -> Node:
        return (variable, last and variable in self.kleene, end and self.schema.intervals)

    def constant(self, literal: Literal) -> TimeSum | None:
        match literal.value:
            case bool() | None | str():
                return None
            case timedelta() as length:
                return TimeSum(constant=Fraction(length // _MICROSECOND * 1000))
            case datetime() as moment:
                micros = (to_instant(moment) - _EPOCH) // _MICROSECOND
                return TimeSum(constant=Fraction(micros * 1000), moment=True)
            case int() as number:
                return TimeSum(constant=Fraction(number), float=not -(2**63) <= number < 2**63)
            case float() as number:
                return TimeSum(constant=Fraction(number), float=True) if abs(number) < inf else None

    def bounds(self, expr: Expr, last: bool, *, below: bool) -> list[TimeSum]:
        """Returns lower (`below`) or upper bounds of an expression."""
        match expr:
            case Literal():
                constant = self.constant(expr)
                return [] if constant is None else [constant]
            case FieldRef():
                node = self.node(expr, last)
                return [] if node is None else [TimeSum((node,))]
            case FunctionCall(function="greatest" | "least" as name, arguments=arguments):
                each = [self.bounds(argument, last, below=below) for argument in arguments]
                if (name == "greatest") is not below or not all(each):
                    return []  # only one of the arguments is a bound
                return [bound for bounds in each for bound in bounds]
            case Binary(operator="+" | "-" as sign, left=left, right=right):
                left_bounds = self.bounds(left, last, below=below)
                right_bounds = self.bounds(right, last, below=below if sign == "+" else not below)
                return self._add(left_bounds, right_bounds, 1 if sign == "+" else -1)
            case Unary(operator="-", operand=operand):
                inverse = self.bounds(operand, last, below=not below)
                return self._add([TimeSum()], [s for s in inverse if s.is_constant], -1)
            case _:
                return []

    def _add(self, left: list[TimeSum], right: list[TimeSum], sign: int) -> list[TimeSum]:
        return [s for a in left for b in right if (s := self._add_pair(a, b, sign)) is not None]

    def _add_pair(self, a: TimeSum, b: TimeSum, sign: int) -> TimeSum | None:
        slack = a.slack + b.slack
        known = a.is_constant or b.is_constant
        if self.real and known and not (a.is_constant and b.is_constant):
            # rounding moves the sum by no more than the constant
            slack += abs((a if a.is_constant else b).constant)
        elif self.real and not known and not (sign < 0 and a.is_time and b.is_time):
            return None  # the rounding error depends on the times
        elif not self.real and (a.float or b.float):
            return None  # large integers would be rounded
        plus, minus = (b.plus, b.minus) if sign > 0 else (b.minus, b.plus)
        return TimeSum(a.plus + plus, a.minus + minus, a.constant + sign * b.constant, slack, a.moment is not b.moment)

    def edges(self, condition: Expr, last: bool) -> Iterator[Edge]:
        """Yields the bounds that a condition implies."""
        match condition:
            case Binary(operator="<" | "<=", left=left, right=right):
                yield from self._iterate_bounds(left, right, last)
            case Binary(operator=">" | ">=", left=left, right=right):
                yield from self._iterate_bounds(right, left, last)
            case Binary(operator="=", left=left, right=right):
                yield from self._iterate_bounds(left, right, last)
                yield from self._iterate_bounds(right, left, last)
            case Between(operand=operand, low=low, high=high, negated=False):
                yield from self._iterate_bounds(low, operand, last)
                yield from self._iterate_bounds(operand, high, last)
            case _:
                return

    def _iterate_bounds(self, small: Expr, large: Expr, last: bool) -> Iterator[Edge]:
        for a in self.bounds(small, last, below=True):
            for b in self.bounds(large, last, below=False):
                plus, minus = _cancel([*a.plus, *b.minus], [*a.minus, *b.plus])
                if len(plus) > 1 or len(minus) > 1 or not (plus or minus):
                    continue
                if len(plus) != len(minus) and not (self.schema.time_kind.numeric or a.moment or b.moment):
                    continue  # a length is compared with a length
                width = b.constant - a.constant + a.slack + b.slack
                if self.real and plus and minus:
                    width += abs(width) / 10**9  # more than the rounding error of a difference
                yield minus[0] if minus else ORIGIN, plus[0] if plus else ORIGIN, width


def _cancel(plus: list[Node], minus: list[Node]) -> tuple[list[Node], list[Node]]:
    """Cancels times that are on both sides."""
    for node in list(plus):
        if node in minus:
            plus.remove(node)
            minus.remove(node)
    return plus, minus


Offsets = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class IntervalDistance:
    """The maximum distance of an interval before the start and after the end of a match.

    None stands for a constant time.
    """

    back: Fraction | None
    ahead: Fraction | None = None


def compute_interval_distance(interval: Interval, query: Query, schema: Schema) -> IntervalDistance | None:
    """Computes the distance of an interval from a match; None if other fields determine it."""
    times = TimeFields(schema, frozenset(get_kleene_variables(query.pattern)))
    after, until = (_compute_offsets(end, times) for end in (interval.after, interval.until))
    moments = [isinstance(end, Literal) for end in (interval.after, interval.until)]
    if all(moments):
        return IntervalDistance(None)
    if after is None or (until is None and not moments[1]):
        return None
    ahead = None if until is None else max(Fraction(0), until[1])
    return IntervalDistance(max(Fraction(0), -after[0]), ahead)


def _compute_offsets(end: Expr, times: TimeFields) -> Offsets | None:
    """Returns the minimum offset from the start of a match, and the maximum from its end."""
    match end:
        case FieldRef(name=name) if name in (times.schema.start, times.schema.end):
            return Fraction(0), Fraction(0)
        case Aggregate(function="min" | "max" | "first" | "last", argument=FieldRef() as field):
            return _compute_offsets(field, times)
        case FunctionCall(function="greatest" | "least", arguments=arguments):
            each = [_compute_offsets(argument, times) for argument in arguments]
            known = [offsets for offsets in each if offsets is not None]
            if len(known) < len(each):
                return None
            return min(low for low, _ in known), max(high for _, high in known)
        case Binary(operator="+" | "-" as sign, left=left, right=Literal() as right):
            inside, length = _compute_offsets(left, times), times.constant(right)
            if inside is None or length is None or length.moment:
                return None
            by = length.constant if sign == "+" else -length.constant
            slack = abs(by) if times.real or length.float else 0
            return inside[0] + by - slack, inside[1] + by + slack
        case _:
            return None


def _compute_span(alternative: BoundVariables, query: Query, times: TimeFields) -> Fraction | None:
    """Computes the maximum difference between an end and a start; None if it is not bounded."""
    edges: Edges = {}

    def at_most(x: Node, y: Node, width: Fraction) -> None:
        if x != y and width < edges.get((x, y), inf):
            edges[x, y] = width

    zero = Fraction(0)
    for v in alternative.events:
        for last in (False, True):
            at_most(times.get_node(v, last, True), times.get_node(v, last, False), zero)
        for end in (False, True):
            at_most(times.get_node(v, True, end), times.get_node(v, False, end), zero)
    for left, right in alternative.order:
        at_most(times.get_node(right, False, False), times.get_node(left, True, True), zero)
    for condition in query.where:
        if get_variables(condition) <= {*alternative.events}:
            moving = any(r.at is EventPosition.CURRENT for r in iterate_references(condition))
            for last in (False, True) if moving else (False,):
                for x, y, width in times.edges(condition, last):
                    at_most(x, y, width)
    longest = zero
    lasts = [times.get_node(v, True, True) for v in alternative.events]
    for v in alternative.events:
        reached = _find_shortest_paths(times.get_node(v, False, False), edges)
        if reached is None:
            return None
        for final in lasts:
            if final not in reached:
                return None
            longest = max(longest, reached[final])
    return longest


def _find_shortest_paths(source: Node, edges: Edges) -> Mapping[Node, Fraction] | None:
    """Computes how much later each time can be; None if the conditions are contradictory."""
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


# --- the range to read, so that the matches in a range are those of the whole stream


class UnboundedRead(Enum):
    """An unlimited range: all events, of the key if the query has one."""

    OBJECT = "object"


ReadDistance = ByTime | ByUnits | UnboundedRead | None  # None: not at all


@dataclass(frozen=True, slots=True)
class ReadRange:
    """The additional ranges to read before and after a range."""

    before: ReadDistance = None
    after: ReadDistance = None

    def __str__(self) -> str:
        """Formats the ranges for explain: `from the first event of the key, 5 after`."""
        words = [*_format_distance(self.before, "before"), *_format_distance(self.after, "after")]
        return ", ".join(words) or "0"


def _format_distance(far: ReadDistance, side: str) -> Iterator[str]:
    match far:
        case None:
            return
        case ByTime(nanoseconds=length):
            yield f"{format_duration(length)} {side}"
        case ByUnits(amount=amount):
            yield f"{amount!r} {side}"
        case UnboundedRead.OBJECT if side == "before":
            yield "from the first event of the key"
        case UnboundedRead.OBJECT:
            yield "to the last event of the key"


def compute_read_range(query: Query, *, intervals: bool = False) -> ReadRange:
    """Computes how far a checked query reads beyond the range of its matches.

    `intervals` tells whether events have a duration: then an event that starts before the range
    may lie between two events inside.

    >>> from ensue.ir.pattern import Atom, Seq
    >>> a, b = Atom("A", "a"), Atom("B", "b")
    >>> print(compute_read_range(Query(Seq((a, Not(b))), within=ByUnits(5))))
    5 after
    """
    pattern, within = query.pattern, query.within
    calls = list(iterate_operator_calls(pattern))
    negated = any(iterate_negations(pattern))
    # an operator may move its results in time, and negations between them too
    moved = negated and any(call.operator.keeps != (True, True) for call in calls)
    before: ReadDistance = None
    after: ReadDistance = None
    if any(iterate_leading_negations(pattern)):
        before = _get_window(within)
    if any(iterate_trailing_negations(pattern)) or (query.after is not None and query.after.by_start):
        after = _get_window(within)
    counted = query.strategy is not Strategy.ANY or isinstance(within, ByEvents)
    if (
        moved
        or query.after is not None
        or any(call.operator.over is OperatorInputs.REPEAT for call in calls)
        or (intervals and counted)
    ):
        before = UnboundedRead.OBJECT
    return ReadRange(before, UnboundedRead.OBJECT if moved else after)


def _get_window(within: ByTime | ByUnits | ByEvents | None) -> ReadDistance:
    match within:
        case ByTime() | ByUnits():
            return within
        case ByEvents() | None:
            return UnboundedRead.OBJECT


def iterate_leading_negations(pattern: Pattern) -> Iterator[Not]:
    """Yields the negations before which nothing is bound: the window limits them.

    >>> from ensue.ir.pattern import Atom, Seq
    >>> list(iterate_leading_negations(Seq((Not(Atom("B", "b")), Atom("A", "a")))))
    [Not(part=Atom(type='B', variable='b'), interval=None)]
    """
    if traits.is_negation(pattern):
        return
    inner = traits.get_parts(pattern)
    if traits.is_sequence(pattern):
        for position, part in enumerate(inner):
            if traits.is_negation(part) and all(map(traits.is_optional, inner[:position])):
                yield part
    for part in inner:
        yield from iterate_leading_negations(part)
