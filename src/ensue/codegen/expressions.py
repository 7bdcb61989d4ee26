"""Writes conditions as the source of compiled code.

Each value carries its NULL flag: an expression becomes a pair of texts, the value and whether it
is not null; a condition becomes a pair, when it is true and when it is false. A text is None if
it would be the constant True.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from ensue.codegen.names import KernelConstants, find_names
from ensue.functions import FUNCTIONS
from ensue.functions.record import CaseForm, FoldForm, InlineForm, PointsForm, RewriteForm
from ensue.ir.expression import COMPARISONS, Aggregate, Between, Binary, Expr, FunctionCall, In, IsNull, Literal, Unary
from ensue.ir.values import to_instant
from ensue.kernels.jit import compute_digest
from ensue.planner.features import EventRef, KindResolver, find_event_ref, get_points, to_feature
from ensue.printing.expression_printer import format_expr
from ensue.schema import ValueKind

INTEGRAL = (
    ValueKind.INTEGER,
    ValueKind.BOOLEAN,
    ValueKind.TIMESTAMP,
    ValueKind.DATE,
    ValueKind.DURATION,
    ValueKind.STRING,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OF_ANY = '"".'  # a feature belongs to no particular variable
_REALS = (ValueKind.FLOAT, ValueKind.DECIMAL)
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FITS = {"+": "sum_fits", "-": "difference_fits", "*": "product_fits"}


@dataclass(frozen=True, slots=True)
class Feature:
    """A number that the scan computes for each event; strings are replaced by codes."""

    number: int
    expr: Expr
    kind: ValueKind

    @property
    def integral(self) -> bool:
        return self.kind in INTEGRAL

    @property
    def description(self) -> str:
        """Its expression, without a variable."""
        return " ".join(format_expr(self.expr).replace(_OF_ANY, "").splitlines())


@dataclass(slots=True)
class FeatureSet:
    """The features of a program, each once."""

    kinds: KindResolver
    features: dict[tuple[Expr, ValueKind], Feature] = field(default_factory=dict)

    def get_feature(self, expr: Expr) -> Feature:
        key = (to_feature(expr), self.kinds.get_kind(expr))
        if key not in self.features:
            self.features[key] = Feature(len(self.features), *key)
        return self.features[key]

    def all(self) -> tuple[Feature, ...]:
        return tuple(self.features.values())


ValueText = tuple[str, str | None]  # the value, and when it is not null (None: always)
TruthText = tuple[str, str]  # when it is true, when it is false


class ValueAccess(Protocol):
    """Gives compiled code access to the values of a condition."""

    def feature(self, place: EventRef, feature: Feature) -> ValueText: ...

    def aggregate(self, aggregate: Aggregate, feature: Feature | None) -> ValueText: ...


class ConditionWriter:
    """Writes conditions as expressions of the generated source."""

    def __init__(self, features: FeatureSet, unit: str, constants: KernelConstants) -> None:
        self.features = features
        self.unit = unit
        self.constants = constants

    def condition(self, expr: Expr, access: ValueAccess) -> str:
        """The test that a condition is true."""
        return self.truth(expr, access)[0]

    def truth(self, expr: Expr, access: ValueAccess) -> TruthText:
        if find_event_ref(expr) is None:
            match expr:
                case Binary(operator="and" | "or" as operator, left=left, right=right):
                    lt, lf = self.truth(left, access)
                    rt, rf = self.truth(right, access)
                    dual = "or" if operator == "and" else "and"
                    return f"({lt} {operator} {rt})", f"({lf} {dual} {rf})"
                case Unary(operator="not", operand=operand):
                    true, false = self.truth(operand, access)
                    return false, true
                case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
                    return self._write_comparison(operator, left, right, access)
                case IsNull(operand=operand, negated=negated):
                    _, ok = self.value(operand, access)
                    present = "True" if ok is None else ok
                    missing = "False" if ok is None else f"(not {ok})"
                    return (present, missing) if negated else (missing, present)
                case Between(operand=operand, low=low, high=high, negated=negated):
                    at, af = self._write_comparison(">=", operand, low, access)
                    bt, bf = self._write_comparison("<=", operand, high, access)
                    inside, outside = f"({at} and {bt})", f"({af} or {bf})"
                    return (outside, inside) if negated else (inside, outside)
                case In(operand=operand, options=options, negated=negated):
                    pairs = [self._write_comparison("=", operand, o, access) for o in options]
                    among = "(" + " or ".join(t for t, _ in pairs) + ")"
                    none = "(" + " and ".join(f for _, f in pairs) + ")"
                    return (none, among) if negated else (among, none)
                case _:
                    pass
        value, ok = self.value(expr, access)
        present = "" if ok is None else f"{ok} and "
        return f"({present}{value} != 0)", f"({present}{value} == 0)"

    def _write_comparison(self, operator: str, first: Expr, second: Expr, access: ValueAccess) -> TruthText:
        left, right = self.value(first, access), self.value(second, access)
        kinds = self.features.kinds.get_kind(first), self.features.kinds.get_kind(second)
        if kinds[0] is ValueKind.INTEGER and kinds[1] in _REALS:
            test = _exactly(operator, left[0], right[0])
        elif kinds[0] in _REALS and kinds[1] is ValueKind.INTEGER:
            test = _exactly(_MIRRORED[operator], right[0], left[0])
        else:
            python = {"=": "==", "!=": "!="}.get(operator, operator)
            test = f"{left[0]} {python} {right[0]}"
        ok = _both(left[1], right[1])
        if ok is None:
            return f"({test})", f"(not ({test}))"
        return f"({ok} and {test})", f"({ok} and not ({test}))"

    def value(self, expr: Expr, access: ValueAccess) -> ValueText:
        place = find_event_ref(expr)
        if place is not None:
            return access.feature(place, self.features.get_feature(expr))
        match expr:
            case Literal(value=constant):
                return self._constant(constant)
            case Aggregate(variable=variable) if variable in self.features.kinds.results:
                return access.aggregate(expr, None)
            case Aggregate(argument=argument):
                feature = None if argument is None else self.features.get_feature(argument)
                return access.aggregate(expr, feature)
            case Unary(operator="-", operand=operand):
                value, ok = self.value(operand, access)
                fits = f"{value} != LEAST" if self._is_integer(operand) else None
                return f"(-{value})", _both(ok, fits)
            case Binary(operator=operator, left=left, right=right) if operator in "+-*/%":
                result = self._arithmetic(
                    operator,
                    self.value(left, access),
                    self.value(right, access),
                    whole=self._is_integer(left) and self._is_integer(right),
                )
                divided = operator == "/" or not (self._is_integer(left) and self._is_integer(right))
                return round_duration(result) if divided and self._is_duration(expr) else result
            case FunctionCall():
                return self._call(expr, access)
            case _:
                true, false = self.truth(expr, access)
                return f"(1 if {true} else 0)", f"({true} or {false})"

    def _is_duration(self, expr: Expr) -> bool:
        return self.features.kinds.get_kind(expr) is ValueKind.DURATION

    def _is_integer(self, expr: Expr) -> bool:
        return self.features.kinds.get_kind(expr) in INTEGRAL

    def _arithmetic(self, operator: str, left: ValueText, right: ValueText, *, whole: bool) -> ValueText:
        ok = _both(left[1], right[1])
        if operator in "+-*":
            if whole:
                ok = _both(ok, f"{_FITS[operator]}({left[0]}, {right[0]})")
            return f"({left[0]} {operator} {right[0]})", ok
        ok = _both(ok, f"{right[0]} != 0")
        if operator == "/":
            return f"({left[0]} / {right[0]})", ok
        remainder = "remainder" if whole else "np.fmod"  # Numba has no math.fmod
        return f"{remainder}({left[0]}, {right[0]})", ok

    def _call(self, call: FunctionCall, access: ValueAccess) -> ValueText:
        match FUNCTIONS[call.function].kernel:
            case InlineForm(value=form, known=known, whole_known=whole_known):
                values = [self.value(a, access) for a in call.arguments]
                whole = all(self._is_integer(a) for a in call.arguments)
                named = dict(zip("xyz", (value for value, _ in values), strict=False))
                limits = (known, whole_known if whole else None)
                oks = (*(ok for _, ok in values), *(f and f.format(**named) for f in limits))
                return form.format(**named), _both(*oks)
            case FoldForm(value=form):
                return _fold([self.value(a, access) for a in call.arguments], form)
            case CaseForm():
                return self._case(call.arguments, access)
            case RewriteForm(by=by):
                return self.value(by(*call.arguments), access)
            case PointsForm():
                return self._call_over_points(call, access)
            case None:
                raise AssertionError(f"no compiled form of {call.function}")

    def _case(self, arguments: Sequence[Expr], access: ValueAccess) -> ValueText:
        """CASE: conditions and values alternate, and the last value is the default."""
        pairs = len(arguments) // 2
        value, ok = self.value(arguments[-1], access) if len(arguments) % 2 else ("0", "False")
        for n in reversed(range(pairs)):
            holds = self.condition(arguments[2 * n], access)
            other, present = self.value(arguments[2 * n + 1], access)
            value = f"({other} if {holds} else {value})"
            if ok is not None or present is not None:
                ok = f"({present or 'True'} if {holds} else {ok or 'True'})"
        return value, ok

    def _call_over_points(self, call: FunctionCall, access: ValueAccess) -> ValueText:
        """A function of two geometries; a point with a non-finite coordinate is null."""
        form = FUNCTIONS[call.function].kernel
        assert isinstance(form, PointsForm)
        places: list[list[ValueText]] = []
        for place in call.arguments[:2]:
            coordinates = get_points(place)
            assert coordinates is not None
            places.append([self.value(c, access) for c in coordinates])
        rest = [self.value(argument, access) for argument in call.arguments[2:]]
        x = dict.fromkeys(("x",), rest[0][0] if rest else "")
        if all(len(coordinates) == 2 for coordinates in places):
            flat = [*places[0], *places[1]]
            numbers = [value for value, _ in flat]
            known = (*(ok for _, ok in (*flat, *rest)), f"are_places({', '.join(numbers)}, {form.space})")
            named = dict(zip(("ax", "ay", "bx", "by"), numbers, strict=True))
            return form.value.format(**named, **x), _both(*known)
        a, b = (_tuple(coordinates) for coordinates in places)
        present = tuple(f"points_there({place}, {form.space})" for place in (a, b))
        known = (*present, *(ok for _, ok in rest))
        return form.several.format(a=a, b=b, **x), _both(*known)

    def _constant(self, value: object) -> ValueText:
        match value:
            case None:
                return "0", "False"
            case bool():
                return str(int(value)), None
            case int() if not -(2**63) <= value < 2**63:
                # it is out of range for 64-bit integers, but still a bound
                return self.constants.slot(float(value)), None
            case int() | float():
                return self.constants.slot(value), None
            case timedelta() | datetime() | date():
                length = value if isinstance(value, timedelta) else to_instant(value) - _EPOCH
                micros = length // timedelta(microseconds=1)
                return self.constants.slot(micros * (1_000 if self.unit == "ns" else 1)), None
            case _:
                raise AssertionError(f"no compiled form of {value!r}")


def round_duration(length: ValueText) -> ValueText:
    """A duration that was computed as a float: an integer, NULL beyond 64 bits."""
    value, ok = length
    return f"rounded({value})", _both(ok, f"in_64_bits({value})")


def _exactly(operator: str, whole: str, real: str) -> str:
    """Compares an integer with a float exactly: if the float rounds it, the remainder decides."""
    equal = f"equal_exactly({whole}, {real})"
    if operator in ("=", "!="):
        return equal if operator == "=" else f"not {equal}"
    strictly = f"{'less' if operator[0] == '<' else 'more'}_exactly({whole}, {real})"
    return f"({strictly} or {equal})" if operator.endswith("=") else strictly


def add_brackets(text: str) -> str:
    """Puts a test in brackets, unless it is.

    >>> add_brackets("(a) or (b)"), add_brackets("(a or (b))")
    ('((a) or (b))', '(a or (b))')
    """
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text if place == len(text) - 1 and place else f"({text})"
    raise AssertionError(f"brackets do not close: {text}")


def join_tests(tests: Sequence[str]) -> str:
    """The conjunction of tests.

    >>> join_tests([]), join_tests(["a or b"]), join_tests(["a or b", "c"])
    ('True', 'a or b', '(a or b) and (c)')
    """
    if len(tests) <= 1:
        return "".join(tests) or "True"
    return " and ".join(map(add_brackets, tests))


def _both(*conditions: str | None) -> str | None:
    known = [ok for ok in conditions if ok is not None]
    return add_brackets(join_tests(known)) if known else None


def _tuple(coordinates: list[ValueText]) -> str:
    """Coordinates as one value of a kernel; NULL becomes NaN."""
    numbers = (f"float({v})" if ok is None else f"(float({v}) if {ok} else np.nan)"
               for v, ok in coordinates)  # fmt: skip
    return f"({', '.join(numbers)})"


def _fold(values: list[ValueText], form: str) -> ValueText:
    value, ok = values[0]
    for other, other_ok in values[1:]:
        value = form.format(a=value, b=other, a_known=ok or "True", b_known=other_ok or "True")
        ok = None if ok is None or other_ok is None else f"({ok} or {other_ok})"
    return value, ok


# The range of 64-bit integers.
BOUNDS = {"MOST": 2**63 - 1, "LEAST": -(2**63), "SPAN": 2.0**64}

_TEXTS = """\
@njit(inline="always")
def remainder(a, b):
    r = a % b
    if r != 0 and (a < 0) != (b < 0):
        r -= b
    return r


@njit
def sum_fits(a, b):
    return a <= MOST - b if b >= 0 else a >= LEAST - b


@njit
def difference_fits(a, b):
    return a >= LEAST + b if b >= 0 else a <= MOST + b


@njit
def product_fits(a, b):
    about = abs(float(a) * float(b))
    if about < 9.2e18:
        return True
    if about > 9.3e18:
        return False
    x, y = int(a), int(b)
    if x == LEAST or y == LEAST:
        return x == 1 or y == 1
    most = MOST // abs(y)
    if abs(x) <= most:
        return True
    return (x < 0) != (y < 0) and abs(x) == most + 1 and abs(y) & (abs(y) - 1) == 0


@njit
def carry_of(total, value):
    if value >= 0:
        return 1 if total > MOST - value else 0
    return -1 if total < LEAST - value else 0


@njit
def wrapping_sum(total, value):
    if value >= 0:
        return total + value if total <= MOST - value else (total + LEAST) + (value + LEAST)
    return total + value if total >= LEAST - value else (total - LEAST) + (value - LEAST)


@njit
def in_64_bits(x):
    return -9223372036854775808.0 <= x and x < 9223372036854775808.0


@njit
def rounded(x):
    return int(np.rint(x))


@njit
def gap_of(i, x):
    return -1 if x >= 9223372036854775808.0 else i - int(x)


@njit
def equal_exactly(i, x):
    return float(i) == x and gap_of(i, x) == 0


@njit
def less_exactly(i, x):
    f = float(i)
    return f < x or (f == x and gap_of(i, x) < 0)


@njit
def more_exactly(i, x):
    f = float(i)
    return f > x or (f == x and gap_of(i, x) > 0)
"""
_DEFINED = re.compile(r"^def (\w+)", re.MULTILINE)

# Kernels that are imported if a text calls them.
_IMPORTED = {
    "ensue.kernels.geometry_pairs": (
        "are_places", "place_distance", "points_apart", "points_distance", "points_inside",
        "points_meet", "points_overlap", "points_there",
    ),
}  # fmt: skip


def write_imports(used: set[str]) -> Iterator[str]:
    """The lines that import fixed kernels, with the version of their code."""
    for module, names in _IMPORTED.items():
        called = sorted(used.intersection(names))
        if called:
            yield f"from {module} import {', '.join(called)}  # {compute_digest(module)[:16]}"


def split_functions(texts: str) -> dict[str, str]:
    """Splits functions, separated by two empty lines, by their names."""
    functions = {}
    for text in texts.strip("\n").split("\n\n\n"):
        name = _DEFINED.search(text)
        assert name is not None
        functions[name[1]] = text
    return functions


FUNCTIONS_PRELUDE = split_functions(_TEXTS)


def collect_functions(used: set[str], own: Mapping[str, str]) -> Iterator[str]:
    """The functions of these names and their callees, each before its callers.

    >>> [text.split("(")[0].split()[-1] for text in collect_functions({"less_exactly"}, {})]
    ['gap_of', 'less_exactly']
    """
    functions, needed = {**FUNCTIONS_PRELUDE, **own}, set(used)
    for name, text in reversed(functions.items()):
        if name in needed:
            needed |= find_names(text)
    yield from (text for name, text in functions.items() if name in needed)
