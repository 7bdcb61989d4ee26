"""Expressions over the events of a match."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from ensue.errors import Span


class EventPosition(Enum):
    """The event or events of a variable that a reference reads."""

    ONLY = "the event of a plain variable: a.price"
    NTH = "the n-th event of a Kleene variable: a[1].price"
    LAST = "its last event: a[a.LEN].price"
    CURRENT = "each event in turn: a[i].price"
    PREVIOUS = "the one before the current: a[i-1].price"
    BEFORE = "all before the current, in an aggregate: avg(a[..i-1].price)"
    THROUGH = "all up to the current, in an aggregate: avg(a[..i].price)"
    ALL = "all of them: avg(a.price), avg(a[].price)"


# The positions that run with i.
MOVING_POSITIONS = frozenset(EventPosition) - {
    EventPosition.ONLY, EventPosition.NTH, EventPosition.LAST, EventPosition.ALL,
}  # fmt: skip

# Literal durations are timedelta; DATE literals are written as timestamps at midnight.
Constant = bool | int | float | str | datetime | timedelta | None


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: `80%` is 0.8, `5 minutes` a timedelta, `TIMESTAMP '...'` a datetime."""

    value: Constant
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field of an event, or of each of several events of a Kleene variable.

    `name` is None only in RETURN, for the whole event: `RETURN a`, `RETURN a[1]`, `RETURN a[]`.
    """

    variable: str
    name: str | None
    at: EventPosition = EventPosition.ONLY
    nth: int = 1  # for At.NTH, from 1
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A value over the events of one variable.

    `argument` is an expression whose fields all belong to `variable` and are at ALL, BEFORE or
    THROUGH (or ONLY, for a plain variable), or None for `count(a)`, `a.LEN`, `count(a[..i-1])`.
    `function` is one of AGGREGATES; `parameter` is the percentage of a percentile, 0 to 100, or
    the separator of string_agg.
    NULL arguments are skipped. Over no values, count is 0 and the others are NULL.
    """

    function: str
    variable: str
    argument: "Expr | None"
    at: EventPosition = EventPosition.ALL
    parameter: float | str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


MATCHES = ""  # the variable of `COUNT(*)`: all matches of a trigger; event names are never empty
GROUP, VALUE = " group", "value"  # the variable of a group of matches, and its field

AGGREGATES = (
    "avg", "sum", "min", "max", "count", "first", "last", "stddev", "percentile",
    "count_distinct", "stddev_pop", "variance", "var_pop", "mode", "any_value", "product",
    "string_agg", "bool_and", "bool_or",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `NOT x`."""

    operator: str  # "-", "not"
    operand: "Expr"
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, comparison, `and`, `or`, and `||` for joining strings."""

    operator: str  # + - * / %   = != < <= > >=   and or   ||
    left: "Expr"
    right: "Expr"
    span: Span | None = field(default=None, compare=False, repr=False)


COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%")


@dataclass(frozen=True, slots=True)
class IsNull:
    """`x IS NULL`, `x IS NOT NULL`."""

    operand: "Expr"
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class In:
    """`x IN (1, 2, 3)`."""

    operand: "Expr"
    options: tuple["Expr", ...]
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Between:
    """`x BETWEEN low AND high`, both ends included."""

    operand: "Expr"
    low: "Expr"
    high: "Expr"
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Like:
    """`x LIKE 'ab%_'`: `%` any text, `_` any one character, `\\` escapes the next one."""

    operand: "Expr"
    pattern: str
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a scalar function by its lower-case name, one of `ensue.functions.FUNCTIONS`."""

    function: str
    arguments: tuple["Expr", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Expr = Literal | FieldRef | Aggregate | Unary | Binary | IsNull | In | Between | Like | FunctionCall
