"""The plain meaning of expressions: one value at a time, None for NULL."""

import math
import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import lru_cache

from ensue.algebra.aggregates import distinct, joined, most_frequent, product, spread
from ensue.algebra.functions import call
from ensue.algebra.predicate import (
    Aggregate,
    Between,
    Binary,
    Call,
    Expr,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.algebra.values import (
    compare,
    duration,
    equal,
    fitting,
    instant,
    microseconds,
    number,
    prefers,
)

Lookup = Callable[[Field | Aggregate], object]


def evaluate(expr: Expr, lookup: Lookup) -> object:
    """The value of an expression, given the values of its fields and aggregates.

    >>> price = Field("a", "price")
    >>> evaluate(Binary(">", price, Literal(3)), lambda _: 5)
    True
    >>> evaluate(Binary(">", price, Literal(3)), lambda _: None) is None
    True
    """
    match expr:
        case Literal():
            return literal(expr.value)
        case Field() | Aggregate():
            return lookup(expr)
        case Unary(operator=operator, operand=operand):
            return _unary(operator, evaluate(operand, lookup))
        case Binary(operator="and", left=left, right=right):
            return conjunction(evaluate(left, lookup), evaluate(right, lookup))
        case Binary(operator="or", left=left, right=right):
            return disjunction(evaluate(left, lookup), evaluate(right, lookup))
        case Binary(operator=operator, left=left, right=right):
            return binary(operator, evaluate(left, lookup), evaluate(right, lookup))
        case IsNull(operand=operand, negated=negated):
            return (evaluate(operand, lookup) is None) != negated
        case In(operand=operand, options=options, negated=negated):
            value = evaluate(operand, lookup)
            found: object = False
            for option in options:
                found = disjunction(found, equal(value, evaluate(option, lookup)))
            return _negated(found) if negated else found
        case Between(operand=operand, low=low, high=high, negated=negated):
            value = evaluate(operand, lookup)
            inside = conjunction(
                compare(">=", value, evaluate(low, lookup)),
                compare("<=", value, evaluate(high, lookup)),
            )
            return _negated(inside) if negated else inside
        case Like(operand=operand, pattern=pattern, negated=negated):
            value = evaluate(operand, lookup)
            if value is None:
                return None
            return (like(pattern).fullmatch(str(value)) is not None) != negated
        case Call(function=function, arguments=arguments):
            return call(function, [evaluate(a, lookup) for a in arguments])


def literal(value: object) -> object:
    """A constant as predicates see it: an integer beyond 64 bits is a float.

    >>> literal(2**63)
    9.223372036854776e+18
    """
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)
    return value


def conjunction(left: object, right: object) -> bool | None:
    """SQL's `and`: false wins over unknown."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def disjunction(left: object, right: object) -> bool | None:
    """SQL's `or`: true wins over unknown."""
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def _negated(value: object) -> bool | None:
    return None if value is None else not value


def _unary(operator: str, value: object) -> object:
    if value is None:
        return None
    if operator == "not":
        return not value
    if isinstance(value, timedelta):
        return -value
    operand = number(value)
    return fitting(-operand) if isinstance(operand, int) else -operand


def binary(operator: str, left: object, right: object) -> object:
    """Arithmetic, comparison, or `||` on two values.

    >>> binary("/", 1, 0) is None, binary("%", -7, 3), binary("+", 2**63 - 1, 1) is None
    (True, -1, True)
    """
    if left is None or right is None:
        return None
    if operator == "||":
        return str(left) + str(right)
    if operator not in ("+", "-", "*", "/", "%"):
        return compare(operator, left, right)
    if isinstance(left, date | timedelta) or isinstance(right, date | timedelta):
        return _temporal(operator, left, right)
    return _arithmetic(operator, number(left), number(right))


def _arithmetic(operator: str, left: int | float, right: int | float) -> int | float | None:
    if operator == "/":
        return None if right == 0 else float(left) / float(right)
    if isinstance(left, int) and isinstance(right, int):
        match operator:
            case "+":
                return fitting(left + right)
            case "-":
                return fitting(left - right)
            case "*":
                return fitting(left * right)
            case _:
                if right == 0:
                    return None
                rest = abs(left) % abs(right)
                return -rest if left < 0 else rest
    x, y = float(left), float(right)
    match operator:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
        case _:
            if y == 0:
                return None
            return math.nan if math.isinf(x) else math.fmod(x, y)


def _temporal(operator: str, left: object, right: object) -> object:
    """Arithmetic in which a timestamp, date or duration takes part."""
    try:
        match operator, left, right:
            case "-", date(), date():
                return instant(left) - instant(right)
            case "+", date(), timedelta():
                return instant(left) + right
            case "+", timedelta(), date():
                return left + instant(right)
            case "-", date(), timedelta():
                return instant(left) - right
            case "+", timedelta(), timedelta():
                return left + right
            case "-", timedelta(), timedelta():
                return left - right
            case "/", timedelta(), timedelta():
                return None if not right else float(microseconds(left)) / microseconds(right)
            case "%", timedelta(), timedelta():
                rest = _arithmetic("%", microseconds(left), microseconds(right))
                return None if rest is None else duration(rest)
            case "*", timedelta(), _:
                return _scaled(left, number(right))
            case "*", _, timedelta():
                return _scaled(right, number(left))
            case "/", timedelta(), _:
                quotient = _arithmetic("/", microseconds(left), number(right))
                return None if quotient is None else duration(quotient)
            case _:
                kinds = f"{type(left).__name__} and {type(right).__name__}"
                raise TypeError(f"{operator} of {kinds}")
    except OverflowError:  # beyond the years 1 to 9999
        return None


def _scaled(length: timedelta, factor: int | float) -> timedelta | None:
    if isinstance(factor, int):
        return duration(microseconds(length) * factor)
    return duration(float(microseconds(length)) * factor)


@lru_cache(maxsize=512)
def like(pattern: str) -> re.Pattern[str]:
    r"""The regular expression of a LIKE pattern, for a full match.

    >>> bool(like("a_c%").fullmatch("abcd")), bool(like(r"100\%").fullmatch("1000"))
    (True, False)
    """
    out, at = [], 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\" and at + 1 < len(pattern):
            at += 1
            out.append(re.escape(pattern[at]))
        else:
            out.append({"%": ".*", "_": "."}.get(character, re.escape(character)))
        at += 1
    return re.compile("".join(out), re.DOTALL)


def aggregate(
    function: str, values: Sequence[object], parameter: float | str | None = None
) -> object:
    """The aggregate of some values, in the order of their events.

    NULLs are passed over, except by `first` and `last`, which take that event's value as it is.
    Sums run from the left in double precision, so that compiled loops give the same bits.

    >>> aggregate("avg", [1, None, 4]), aggregate("count", [1, None]), aggregate("last", [1, None])
    (2.5, 1, None)
    >>> aggregate("percentile", [1, 2, 3, 4], 50)
    2.5
    """
    if function in ("first", "last"):
        return (values[0] if function == "first" else values[-1]) if values else None
    known = [value for value in values if value is not None]
    if function == "count":
        return len(known)
    if function == "count_distinct":
        return len(distinct(known))
    if not known:
        return None
    match function:
        case "min" | "max":
            best = known[0]
            for value in known[1:]:
                if prefers(function, value, best):
                    best = value
            return best
        case "sum":
            return _sum(known)
        case "avg":
            return _average(known)
        case "stddev":
            return spread([float(number(value)) for value in known], whole=False, root=True)
        case "percentile":
            assert isinstance(parameter, int | float)
            if isinstance(known[0], timedelta):
                return duration(percentile([float(microseconds(v)) for v in known], parameter))
            return percentile([float(number(value)) for value in known], parameter)
        case "stddev_pop" | "variance" | "var_pop":
            numbers = [float(number(value)) for value in known]
            return spread(numbers, whole=function != "variance", root=function == "stddev_pop")
        case "any_value":
            return known[0]
        case "mode":
            return known[most_frequent(known)]
        case "product":
            return product(known)
        case "string_agg":
            return joined(known, str(parameter))
        case "bool_and" | "bool_or":
            return all(known) if function == "bool_and" else any(known)
        case _:
            raise ValueError(f"unknown aggregate '{function}'")


def _sum(known: Sequence[object]) -> object:
    if isinstance(known[0], timedelta):
        return duration(sum(microseconds(value) for value in known))
    numbers = [number(value) for value in known]
    if all(isinstance(value, int) for value in numbers):
        return fitting(int(sum(numbers)))
    total = 0.0
    for value in numbers:
        total += float(value)
    return total


def _average(known: Sequence[object]) -> object:
    """Whole numbers are added exactly, others in double precision, and then divided."""
    if isinstance(known[0], timedelta):
        return duration(as_double(sum(map(microseconds, known))) / len(known))
    numbers = [number(value) for value in known]
    if all(isinstance(value, int) for value in numbers):
        return as_double(int(sum(numbers))) / len(numbers)
    total = 0.0
    for value in numbers:
        total += float(value)
    return total / len(numbers)


def as_double(total: int) -> float:
    """A sum of 64-bit integers as compiled loops read it: 64 bits, and how often they ran over.

    >>> as_double(2**63), as_double(-(2**65))
    (9.223372036854776e+18, -3.6893488147419103e+19)
    """
    carry = (total + 2**63) >> 64
    return float(total - (carry << 64)) + carry * 2.0**64


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile with linear interpolation between the two nearest values; NaN taints it."""
    if any(value != value for value in values):
        return math.nan
    ordered = sorted(values)
    place = min(max(percent / 100.0, 0.0), 1.0) * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    share = place - below
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    if share == 0.0 or low == high:
        return low
    step = high - low
    return high - step * (1.0 - share) if share >= 0.5 else low + step * share
