"""The interpreter of expressions: one value at a time, None for NULL."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import lru_cache, reduce
from operator import add, mul, sub
from typing import Any

from ensue.functions import call_function
from ensue.ir import expression
from ensue.ir.expression import Expr
from ensue.ir.values import (
    compare,
    compare_equal,
    fit_int64,
    is_preferred,
    to_duration,
    to_instant,
    to_microseconds,
    to_number,
)

Lookup = Callable[[expression.FieldRef | expression.Aggregate], object]


def evaluate(expr: Expr, lookup: Lookup) -> object:
    """Evaluates an expression, given the values of its fields and aggregates.

    >>> price = expression.FieldRef("a", "price")
    >>> evaluate(expression.Binary(">", price, expression.Literal(3)), lambda _: 5)
    True
    >>> evaluate(expression.Binary(">", price, expression.Literal(3)), lambda _: None) is None
    True
    """
    match expr:
        case expression.Literal():
            return normalize_constant(expr.value)
        case expression.FieldRef() | expression.Aggregate():
            return lookup(expr)
        case expression.Unary(operator=operator, operand=operand):
            return _unary(operator, evaluate(operand, lookup))
        case expression.Binary(operator="and", left=left, right=right):
            return evaluate_and(evaluate(left, lookup), evaluate(right, lookup))
        case expression.Binary(operator="or", left=left, right=right):
            return evaluate_or(evaluate(left, lookup), evaluate(right, lookup))
        case expression.Binary(operator=operator, left=left, right=right):
            return evaluate_binary(operator, evaluate(left, lookup), evaluate(right, lookup))
        case expression.IsNull(operand=operand, negated=negated):
            return (evaluate(operand, lookup) is None) != negated
        case expression.In(operand=operand, options=options, negated=negated):
            value = evaluate(operand, lookup)
            result: object = False
            for option in options:
                result = evaluate_or(result, compare_equal(value, evaluate(option, lookup)))
            return _negate(result) if negated else result
        case expression.Between(operand=operand, low=low, high=high, negated=negated):
            value = evaluate(operand, lookup)
            inside = evaluate_and(
                compare(">=", value, evaluate(low, lookup)), compare("<=", value, evaluate(high, lookup))
            )
            return _negate(inside) if negated else inside
        case expression.Like(operand=operand, pattern=pattern, negated=negated):
            value = evaluate(operand, lookup)
            if value is None:
                return None
            return (compile_like(pattern).fullmatch(str(value)) is not None) != negated
        case expression.FunctionCall(function=function, arguments=arguments):
            return call_function(function, [evaluate(a, lookup) for a in arguments])


def normalize_constant(value: object) -> object:
    """Converts an integer beyond 64 bits to a float, and returns other constants unchanged.

    >>> normalize_constant(2**63)
    9.223372036854776e+18
    """
    return float(value) if isinstance(value, int) and fit_int64(value) is None else value


def evaluate_and(left: object, right: object) -> bool | None:
    """Computes SQL's AND: false wins over unknown."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def evaluate_or(left: object, right: object) -> bool | None:
    """Computes SQL's OR: true wins over unknown."""
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def _negate(value: object) -> bool | None:
    return None if value is None else not value


def _unary(operator: str, value: object) -> object:
    if value is None:
        return None
    if operator == "not":
        return not value
    if isinstance(value, timedelta):
        return -value
    operand = to_number(value)
    return fit_int64(-operand) if isinstance(operand, int) else -operand


def evaluate_binary(operator: str, left: object, right: object) -> object:
    """Computes arithmetic, a comparison, or `||` of two values.

    >>> evaluate_binary("%", -7, 3), evaluate_binary("+", 2**63 - 1, 1) is None
    (-1, True)
    """
    if left is None or right is None:
        return None
    if operator == "||":
        return str(left) + str(right)
    if operator not in ("+", "-", "*", "/", "%"):
        return compare(operator, left, right)
    if isinstance(left, date | timedelta) or isinstance(right, date | timedelta):
        return _temporal(operator, left, right)
    return _arithmetic(operator, to_number(left), to_number(right))


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul}


def _arithmetic(operator: str, left: int | float, right: int | float) -> int | float | None:
    whole = isinstance(left, int) and isinstance(right, int)
    if operator in _ARITHMETIC:
        compute = _ARITHMETIC[operator]
        return fit_int64(compute(left, right)) if whole else compute(float(left), float(right))
    if right == 0:
        return None
    if operator == "/":
        return float(left) / float(right)
    if whole:
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return math.nan if math.isinf(left) else math.fmod(left, right)


def _temporal(operator: str, left: object, right: object) -> object:
    """Computes arithmetic with timestamps, dates or durations."""
    try:
        match operator, left, right:
            case "-", date(), date():
                return to_instant(left) - to_instant(right)
            case "+" | "-", date(), timedelta():
                return _ARITHMETIC[operator](to_instant(left), right)
            case "+", timedelta(), date():
                return left + to_instant(right)
            case "+" | "-", timedelta(), timedelta():
                return _ARITHMETIC[operator](left, right)
            case "/", timedelta(), timedelta():
                return _arithmetic("/", to_microseconds(left), to_microseconds(right))
            case "%", timedelta(), timedelta():
                rest = _arithmetic("%", to_microseconds(left), to_microseconds(right))
                return None if rest is None else to_duration(rest)
            case "*", timedelta(), _:
                return to_duration(to_microseconds(left) * to_number(right))
            case "*", _, timedelta():
                return to_duration(to_microseconds(right) * to_number(left))
            case "/", timedelta(), _:
                quotient = _arithmetic("/", to_microseconds(left), to_number(right))
                return None if quotient is None else to_duration(quotient)
            case _:
                kinds = f"{type(left).__name__} and {type(right).__name__}"
                raise TypeError(f"{operator} of {kinds}")
    except OverflowError:  # beyond the years 1 to 9999
        return None


@lru_cache(maxsize=512)
def compile_like(pattern: str) -> re.Pattern[str]:
    r"""Converts a LIKE pattern to a regular expression for a full match.

    >>> compile_like("a_c%").pattern, compile_like(r"100\%").pattern
    ('a.c.*', '100%')
    """
    wildcards = {"%": ".*", "_": "."}
    tokens = re.findall(r"\\.|.", pattern, re.DOTALL)
    parts = (wildcards.get(token, re.escape(token[-1])) for token in tokens)
    return re.compile("".join(parts), re.DOTALL)


def compute_aggregate(function: str, values: Sequence[object], parameter: float | str | None = None) -> object:
    """Computes an aggregate of values in the order of their events.

    NULLs are skipped, except by `first` and `last`. Sums add from the left in double precision, so
    that compiled loops compute the same bits.

    >>> compute_aggregate("avg", [1, None, 4]), compute_aggregate("percentile", [1, 2, 3, 4], 50)
    (2.5, 2.5)
    """
    if function in ("first", "last"):
        return (values[0] if function == "first" else values[-1]) if values else None
    known = [value for value in values if value is not None]
    if function == "count":
        return len(known)
    if function == "count_distinct":
        return len(drop_duplicates(known))
    if not known:
        return None
    match function:
        case "min" | "max":
            return reduce(lambda a, b: b if is_preferred(function, b, a) else a, known)
        case "sum":
            return _sum(known)
        case "avg":
            return _average(known)
        case "percentile":
            assert isinstance(parameter, int | float)
            if isinstance(known[0], timedelta):
                return to_duration(compute_percentile([float(to_microseconds(v)) for v in known], parameter))
            return compute_percentile([float(to_number(value)) for value in known], parameter)
        case "stddev" | "stddev_pop" | "variance" | "var_pop":
            numbers = [float(to_number(value)) for value in known]
            of_population, root = function.endswith("pop"), function.startswith("stddev")
            return compute_variance(numbers, whole=of_population, root=root)
        case "any_value":
            return known[0]
        case "mode":
            return known[find_mode(known)]
        case "product":
            return multiply(known)
        case "string_agg":
            return str(parameter).join(map(str, known))
        case "bool_and" | "bool_or":
            return all(known) if function == "bool_and" else any(known)
        case _:
            raise ValueError(f"unknown aggregate '{function}'")


def _sum(known: Sequence[object]) -> object:
    if isinstance(known[0], timedelta):
        return to_duration(sum(to_microseconds(value) for value in known))
    total = _total(known)
    return fit_int64(total) if isinstance(total, int) else total


def _total(known: Sequence[object]) -> int | float:
    """Adds integers exactly, and other numbers from the left in double precision."""
    numbers = [to_number(value) for value in known]
    if all(isinstance(value, int) for value in numbers):
        return int(sum(numbers))
    total = 0.0  # not sum(), which compensates rounding errors
    for value in numbers:
        total += float(value)
    return total


def _average(known: Sequence[object]) -> object:
    if isinstance(known[0], timedelta):
        return to_duration(round_like_int64_sum(sum(map(to_microseconds, known))) / len(known))
    total = _total(known)
    return (round_like_int64_sum(total) if isinstance(total, int) else total) / len(known)


def round_like_int64_sum(total: int) -> float:
    """Rounds a sum of 64-bit integers as compiled loops do, which keep 64 bits and a carry.

    >>> round_like_int64_sum(2**63), round_like_int64_sum(-(2**65))
    (9.223372036854776e+18, -3.6893488147419103e+19)
    """
    carry = (total + 2**63) >> 64
    return float(total - (carry << 64)) + carry * 2.0**64


def compute_percentile(values: Sequence[float], percent: float) -> float:
    """Computes a percentile with linear interpolation; NaN if a value is NaN."""
    if any(value != value for value in values):
        return math.nan
    ordered = sorted(values)
    position = min(max(percent / 100.0, 0.0), 1.0) * (len(ordered) - 1)
    below = min(int(position), len(ordered) - 1)
    share = position - below
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    if share == 0.0 or low == high:
        return low
    step = high - low
    return high - step * (1.0 - share) if share >= 0.5 else low + step * share


# --- algorithms of aggregates, over the events of a variable or the rows of a match

# Names of aggregates in other systems, and ours.
AGGREGATE_ALIASES = {
    "mean": "avg", "first_value": "first", "last_value": "last", "arbitrary": "any_value",
    "stddev_samp": "stddev", "std": "stddev", "var_samp": "variance",
    "approx_count_distinct": "count_distinct", "listagg": "string_agg", "group_concat": "string_agg",
    "every": "bool_and", "logical_and": "bool_and", "some": "bool_or", "logical_or": "bool_or",
}  # fmt: skip


def compute_variance(values: Sequence[float], *, whole: bool, root: bool) -> float | None:
    """Computes the variance or its root, of a population (`whole`) or a sample (Welford).

    >>> compute_variance([1.0, 3.0], whole=True, root=False)
    1.0
    """
    if len(values) < (1 if whole else 2):
        return None
    mean = squares = 0.0
    for count, value in enumerate(values, 1):
        delta = value - mean
        mean += delta / count
        squares += delta * (value - mean)
    variance = squares / (len(values) - (0 if whole else 1))
    return math.sqrt(variance) if root else variance


def drop_duplicates(values: Sequence[object]) -> list[object]:
    """Returns each value once, in the order of first occurrence.

    >>> drop_duplicates([2, 1, 2.0, float("nan"), float("nan")])
    [2, 1, nan]
    """
    first: dict[object, object] = {}
    for value in values:
        first.setdefault(_key(value), value)
    return list(first.values())


def find_mode(values: Sequence[object]) -> int:
    """Returns the position of the most frequent value, the first one in case of a tie.

    >>> find_mode(["b", "a", "c", "a", "c"])
    1
    """
    keys = list(map(_key, values))
    return keys.index(Counter(keys).most_common(1)[0][0])


def _key(value: object) -> object:
    """Returns the value, or one key for all NaNs."""
    return "nan" if value != value else value


def multiply(values: Sequence[object]) -> float:
    """Multiplies the values from left to right as doubles."""
    return math.prod((float(to_number(value)) for value in values), start=1.0)
