"""Prints subscriptions in OPSL, which parses back to the same subscription."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from ensue.errors import QueryError
from ensue.geo.wkt import format_number
from ensue.ir.expression import Constant, Literal
from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.subscription import (
    Concurrent,
    Conjunction,
    Disjunction,
    EventAtom,
    Expression,
    IntervalBetween,
    IntervalSince,
    Length,
    Predicate,
    Region,
    Select,
    SpatialCondition,
    SpatialRelation,
    Subscription,
    SubscriptionInterval,
    TemporalCondition,
    TimePoint,
    VariableField,
    VariableUse,
    get_subexpressions,
)
from ensue.ir.values import format_duration
from ensue.printing.expression_printer import format_scalar, quote_name

_NAME = re.compile(r"[^\W\d]\w*(-\w+)*")


def format_subscription(subscription: Subscription) -> str:
    """Prints a subscription, one definition per line; regions with names are defined by them."""
    regions = _names_of_regions(subscription)
    lines = [_Writer(regions).expression(subscription.root)]
    for name, expression in subscription.variables.items():
        lines.append(f"    ${name}; = {_Writer(regions).expression(expression)}")
    lines += [f"    {name} = {text}" for name, text in regions.items()]
    text = ",\n".join(lines)
    options = ", ".join(_options(subscription))
    return f"{text}\nWITH {options}" if options else text


def _options(subscription: Subscription) -> Iterator[str]:
    if subscription.select is not Select.LATEST:
        yield f"select = {subscription.select.value}"
    if subscription.concurrent is not None:
        yield f"concurrent = {format_length(subscription.concurrent)}"
    if subscription.same_place != 1:
        yield f"same_place = {format_number(subscription.same_place)}"
    if subscription.equal != 0.5:
        yield f"equal = {format_number(subscription.equal)}"
    if subscription.within is not None:
        yield f"within = {format_length(subscription.within)}"


def _names_of_regions(subscription: Subscription) -> dict[str, str]:
    """Returns the regions by name, without ambiguous names."""
    regions: dict[str, str] = {}
    ambiguous: set[str] = set()
    pending: list[Expression] = [*[*subscription.variables.values()][::-1], subscription.root]
    while pending:
        expression = pending.pop()
        pending += reversed(get_subexpressions(expression))
        if isinstance(expression, SpatialCondition) and isinstance(expression.place, Region):
            text, name = expression.place.text, expression.place.name
            if name is not None and regions.setdefault(name, text) != text:
                ambiguous.add(name)
    return {name: text for name, text in regions.items() if name not in ambiguous}


@dataclass(frozen=True, slots=True)
class _Writer:
    regions: Mapping[str, str]

    def expression(self, expression: Expression) -> str:
        """Prints an expression outside of parentheses."""
        match expression:
            case EventAtom():
                return f"({_inside(expression)})"
            case VariableUse(name):
                return f"${name};"
            case TemporalCondition(when, interval, part):
                return f"{when.value}({self.interval(interval)}){self.operand(part)}"
            case Concurrent(first, second, tolerance):
                length = "" if tolerance is None else f"; {format_length(tolerance)}"
                return f"|({self.inside(first)}{length}){self.operand(second)}"
            case SpatialCondition():
                return f"{self.place(expression)}{self.operand(expression.part)}"
            case Conjunction(parts):
                return " && ".join(self.operand(part) for part in parts)
            case Disjunction(parts):
                return " || ".join(
                    self.operand(part) if isinstance(part, Disjunction) else self.expression(part) for part in parts
                )

    def operand(self, expression: Expression) -> str:
        """Prints the operand of an operator that binds tighter than && and ||."""
        shown = self.expression(expression)
        return f"({shown})" if isinstance(expression, Conjunction | Disjunction) else shown

    def inside(self, expression: Expression) -> str:
        """Prints an expression inside parentheses, before a `;`."""
        if isinstance(expression, EventAtom):
            return _inside(expression)
        return self.expression(expression)

    def interval(self, interval: SubscriptionInterval) -> str:
        match interval:
            case IntervalBetween(first, second):
                return f"{self.inside(first)}; {self.inside(second)}"
            case IntervalSince(TimePoint(at), length):
                return f"{format_constant(at)}; {format_length(length)}"
            case IntervalSince(base, length):
                assert not isinstance(base, TimePoint)
                return f"{self.inside(base)}; {format_length(length)}"

    def place(self, placed: SpatialCondition) -> str:
        place = placed.place
        where = self.region(place) if isinstance(place, Region) else self.inside(place)
        match placed.where:
            case SpatialRelation.DISTANCE:
                assert placed.number is not None
                return f"DIST({where}; {placed.comparison}; {format_number(placed.number)})"
            case SpatialRelation.SAME if placed.number is not None:
                return f"SPL({where}; {format_number(placed.number)})"
            case SpatialRelation.INSIDE:
                return f"@({where})"
            case kind:
                return f"{kind.value}({where})"

    def region(self, region: Region) -> str:
        named = self.regions.get(region.name or "") == region.text
        return str(region.name) if named else region.text


def _inside(atom: EventAtom) -> str:
    return ", ".join(format_predicate(predicate) for predicate in atom.predicates)


def format_predicate(predicate: Predicate) -> str:
    """`ARITH:id = 17`."""
    head = f"{predicate.type.value}:{_name(predicate.name)} {predicate.operator} "
    match predicate.value:
        case tuple() as values:
            return f"{head}({', '.join(format_constant(value) for value in values)})"
        case VariableField(variable, name):
            return f"{head}${variable};.{_name(name)}"
        case value:
            return head + format_constant(value)


def _name(name: str) -> str:
    return name if _NAME.fullmatch(name) else quote_name(name)


def format_constant(value: Constant) -> str:
    """Prints a constant of a predicate or a point in time.

    >>> format_constant("it's"), format_constant(True)
    ("'it''s'", 'TRUE')
    """
    if value is None or isinstance(value, timedelta):
        raise QueryError(f"a subscription compares with no {type(value).__name__}")
    return format_scalar(Literal(value), str)


def format_length(length: Length) -> str:
    """Prints a length: `25 minutes`, or a number.

    >>> format_length(ByTime(1_500_000_000_000)), format_length(ByUnits(5.0))
    ('25 minutes', '5')
    """
    match length:
        case ByTime(nanoseconds):
            return format_duration(nanoseconds)
        case ByUnits(amount):
            return format_number(amount) if isinstance(amount, float) else str(amount)
