"""A subscription as OPSL, in one spelling, which parses back to the same subscription."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from ensue.algebra.durations import show_duration
from ensue.algebra.predicate import Constant
from ensue.algebra.subscription import (
    Amid,
    Atomic,
    Both,
    Concurrent,
    Either,
    Expression,
    FieldOf,
    Interval,
    Length,
    Moment,
    Placed,
    Predicate,
    Region,
    Select,
    Since,
    Subscription,
    Timed,
    Use,
    Where,
    parts_of,
)
from ensue.algebra.window import ByTime, ByUnits
from ensue.errors import QueryError

_NAME = re.compile(r"[^\W\d]\w*(-\w+)*")


def show(subscription: Subscription) -> str:
    """The whole subscription, a definition a line.

    Regions that have names are defined by them, others stand where they are used.
    """
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
        yield f"concurrent = {show_length(subscription.concurrent)}"
    if subscription.same_place != 1:
        yield f"same_place = {show_number(subscription.same_place)}"
    if subscription.equal != 0.5:
        yield f"equal = {show_number(subscription.equal)}"
    if subscription.within is not None:
        yield f"within = {show_length(subscription.within)}"


def _names_of_regions(subscription: Subscription) -> dict[str, str]:
    """Regions by their names; a name that means two things is left out."""
    found: dict[str, str] = {}
    doubtful: set[str] = set()
    left: list[Expression] = [*[*subscription.variables.values()][::-1], subscription.root]
    while left:
        expression = left.pop()
        left += reversed(parts_of(expression))
        if isinstance(expression, Placed) and isinstance(expression.place, Region):
            text, name = expression.place.text, expression.place.name
            if name is not None and found.setdefault(name, text) != text:
                doubtful.add(name)
    return {name: text for name, text in found.items() if name not in doubtful}


class _Writer:
    def __init__(self, regions: Mapping[str, str]) -> None:
        self.regions = regions

    def expression(self, expression: Expression) -> str:
        """As it stands outside of parentheses."""
        match expression:
            case Atomic():
                return f"({_inside(expression)})"
            case Use(name):
                return f"${name};"
            case Timed(when, interval, part):
                return f"{when.value}({self.interval(interval)}){self.operand(part)}"
            case Concurrent(first, second, tolerance):
                length = "" if tolerance is None else f"; {show_length(tolerance)}"
                return f"|({self.inside(first)}{length}){self.operand(second)}"
            case Placed():
                return f"{self.place(expression)}{self.operand(expression.part)}"
            case Both(parts):
                return " && ".join(self.operand(part) for part in parts)
            case Either(parts):
                return " || ".join(
                    self.operand(part) if isinstance(part, Either) else self.expression(part)
                    for part in parts
                )

    def operand(self, expression: Expression) -> str:
        """Behind an operator that binds closer than && and ||."""
        shown = self.expression(expression)
        return f"({shown})" if isinstance(expression, Both | Either) else shown

    def inside(self, expression: Expression) -> str:
        """As all that a parenthesis has before its `;`."""
        return (
            _inside(expression) if isinstance(expression, Atomic) else self.expression(expression)
        )

    def interval(self, interval: Interval) -> str:
        match interval:
            case Amid(first, second):
                return f"{self.inside(first)}; {self.inside(second)}"
            case Since(Moment(at), length):
                return f"{show_value(at)}; {show_length(length)}"
            case Since(base, length):
                assert not isinstance(base, Moment)
                return f"{self.inside(base)}; {show_length(length)}"

    def place(self, placed: Placed) -> str:
        place = placed.place
        where = self.region(place) if isinstance(place, Region) else self.inside(place)
        match placed.where:
            case Where.DISTANCE:
                assert placed.number is not None
                return f"DIST({where}; {placed.comparison}; {show_number(placed.number)})"
            case Where.SAME if placed.number is not None:
                return f"SPL({where}; {show_number(placed.number)})"
            case Where.INSIDE:
                return f"@({where})"
            case kind:
                return f"{kind.value}({where})"

    def region(self, region: Region) -> str:
        named = self.regions.get(region.name or "") == region.text
        return str(region.name) if named else region.text


def _inside(atom: Atomic) -> str:
    return ", ".join(show_predicate(predicate) for predicate in atom.predicates)


def show_predicate(predicate: Predicate) -> str:
    """`ARITH:id = 17`."""
    head = f"{predicate.type.value}:{_name(predicate.name)} {predicate.operator} "
    match predicate.value:
        case tuple() as values:
            return f"{head}({', '.join(show_value(value) for value in values)})"
        case FieldOf(variable, name):
            return f"{head}${variable};.{_name(name)}"
        case value:
            return head + show_value(value)


def _name(name: str) -> str:
    return name if _NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def show_value(value: Constant) -> str:
    """A constant of a predicate, or a moment.

    >>> show_value("it's"), show_value(True), show_value(datetime(2026, 1, 31, 10))
    ("'it''s'", 'TRUE', "TIMESTAMP '2026-01-31 10:00:00'")
    """
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | float():
            return repr(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case _:
            raise QueryError(f"a subscription compares with no {type(value).__name__}")


def show_length(length: Length) -> str:
    """`25 minutes`, or a number.

    >>> show_length(ByTime(1_500_000_000_000)), show_length(ByUnits(5.0)), show_length(ByUnits(5))
    ('25 minutes', '5', '5')
    """
    match length:
        case ByTime(nanoseconds):
            return show_duration(nanoseconds)
        case ByUnits(amount):
            return show_number(amount) if isinstance(amount, float) else str(amount)


def show_number(number: float) -> str:
    """A number without needless digits.

    >>> show_number(3.0), show_number(0.1), show_number(1e30)
    ('3', '0.1', '1e+30')
    """
    return repr(number + 0.0).removesuffix(".0")
