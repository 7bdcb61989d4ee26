"""Turns conditions into the text of compiled code.

NULL is carried beside each value: an expression becomes a pair of texts, the value and whether
there is one; a condition becomes a pair, when it is true and when it is false. A text is None
where it would be the constant True.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from ensue.algebra.functions import FUNCTIONS
from ensue.algebra.functions.record import Branches, Fold, Inline, OverPoints, Rewritten
from ensue.algebra.predicate import (
    COMPARISONS,
    Aggregate,
    Between,
    Binary,
    Call,
    Expr,
    In,
    IsNull,
    Literal,
    Unary,
)
from ensue.algebra.text import show_expr
from ensue.plan.physical_rules.features import (
    Kinds,
    Place,
    feature_of,
    place_of,
    points_of,
)
from ensue.schema import Kind
from ensue.source.constants import Constants

INTEGRAL = (Kind.INTEGER, Kind.BOOLEAN, Kind.TIMESTAMP, Kind.DATE, Kind.DURATION, Kind.STRING)

_OF_ANY = '"".'  # the variable of a feature is none in particular
_REALS = (Kind.FLOAT, Kind.DECIMAL)
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FITS = {"+": "sum_fits", "-": "difference_fits", "*": "product_fits"}


@dataclass(frozen=True, slots=True)
class Feature:
    """A number the scan computes of each event; strings are replaced by codes."""

    number: int
    expr: Expr
    kind: Kind

    @property
    def integral(self) -> bool:
        return self.kind in INTEGRAL

    @property
    def told(self) -> str:
        """Its expression, of any event."""
        return " ".join(show_expr(self.expr).replace(_OF_ANY, "").splitlines())


@dataclass(slots=True)
class Features:
    """The features a program asks for, each once."""

    kinds: Kinds
    found: dict[tuple[Expr, Kind], Feature] = field(default_factory=dict)

    def of(self, expr: Expr) -> Feature:
        key = (feature_of(expr), self.kinds.of(expr))
        if key not in self.found:
            self.found[key] = Feature(len(self.found), *key)
        return self.found[key]

    def all(self) -> tuple[Feature, ...]:
        return tuple(self.found.values())


Text = tuple[str, str | None]  # the value, and when there is one (None: always)
Truth = tuple[str, str]  # when it is true, when it is false


class Access(Protocol):
    """Where compiled code finds what a condition speaks of."""

    def feature(self, place: Place, feature: Feature) -> Text: ...

    def aggregate(self, aggregate: Aggregate, feature: Feature | None) -> Text: ...


class Writer:
    """Writes conditions as expressions of the generated source."""

    def __init__(self, features: Features, unit: str, constants: Constants) -> None:
        self.features = features
        self.unit = unit
        self.constants = constants

    def condition(self, expr: Expr, access: Access) -> str:
        """When a condition is true."""
        return self.truth(expr, access)[0]

    def truth(self, expr: Expr, access: Access) -> Truth:
        if place_of(expr) is None:
            match expr:
                case Binary(operator="and", left=left, right=right):
                    lt, lf = self.truth(left, access)
                    rt, rf = self.truth(right, access)
                    return f"({lt} and {rt})", f"({lf} or {rf})"
                case Binary(operator="or", left=left, right=right):
                    lt, lf = self.truth(left, access)
                    rt, rf = self.truth(right, access)
                    return f"({lt} or {rt})", f"({lf} and {rf})"
                case Unary(operator="not", operand=operand):
                    true, false = self.truth(operand, access)
                    return false, true
                case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
                    return self._compared(operator, left, right, access)
                case IsNull(operand=operand, negated=negated):
                    _, ok = self.value(operand, access)
                    there = "True" if ok is None else ok
                    missing = "False" if ok is None else f"(not {ok})"
                    return (there, missing) if negated else (missing, there)
                case Between(operand=operand, low=low, high=high, negated=negated):
                    at, af = self._compared(">=", operand, low, access)
                    bt, bf = self._compared("<=", operand, high, access)
                    inside, outside = f"({at} and {bt})", f"({af} or {bf})"
                    return (outside, inside) if negated else (inside, outside)
                case In(operand=operand, options=options, negated=negated):
                    pairs = [self._compared("=", operand, o, access) for o in options]
                    among = "(" + " or ".join(t for t, _ in pairs) + ")"
                    none = "(" + " and ".join(f for _, f in pairs) + ")"
                    return (none, among) if negated else (among, none)
                case _:
                    pass
        value, ok = self.value(expr, access)
        there = "" if ok is None else f"{ok} and "
        return f"({there}{value} != 0)", f"({there}{value} == 0)"

    def _compared(self, operator: str, first: Expr, second: Expr, access: Access) -> Truth:
        left, right = self.value(first, access), self.value(second, access)
        kinds = self.features.kinds.of(first), self.features.kinds.of(second)
        if kinds[0] is Kind.INTEGER and kinds[1] in _REALS:
            test = _exactly(operator, left[0], right[0])
        elif kinds[0] in _REALS and kinds[1] is Kind.INTEGER:
            test = _exactly(_MIRRORED[operator], right[0], left[0])
        else:
            python = {"=": "==", "!=": "!="}.get(operator, operator)
            test = f"{left[0]} {python} {right[0]}"
        ok = _both(left[1], right[1])
        if ok is None:
            return f"({test})", f"(not ({test}))"
        return f"({ok} and {test})", f"({ok} and not ({test}))"

    def value(self, expr: Expr, access: Access) -> Text:
        place = place_of(expr)
        if place is not None:
            return access.feature(place, self.features.of(expr))
        match expr:
            case Literal(value=constant):
                return self._constant(constant)
            case Aggregate(variable=variable) if variable in self.features.kinds.results:
                return access.aggregate(expr, None)
            case Aggregate(argument=argument):
                feature = None if argument is None else self.features.of(argument)
                return access.aggregate(expr, feature)
            case Unary(operator="-", operand=operand):
                value, ok = self.value(operand, access)
                fits = f"{value} != LEAST" if self._whole(operand) else None
                return f"(-{value})", _both(ok, fits)
            case Binary(operator=operator, left=left, right=right) if operator in "+-*/%":
                found = self._arithmetic(
                    operator,
                    self.value(left, access),
                    self.value(right, access),
                    whole=self._whole(left) and self._whole(right),
                )
                divided = operator == "/" or not (self._whole(left) and self._whole(right))
                return rounded(found) if divided and self._lasts(expr) else found
            case Call():
                return self._call(expr, access)
            case _:
                true, false = self.truth(expr, access)
                return f"(1 if {true} else 0)", f"({true} or {false})"

    def _lasts(self, expr: Expr) -> bool:
        return self.features.kinds.of(expr) is Kind.DURATION

    def _whole(self, expr: Expr) -> bool:
        return self.features.kinds.of(expr) in INTEGRAL

    def _arithmetic(self, operator: str, left: Text, right: Text, *, whole: bool) -> Text:
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

    def _call(self, call: Call, access: Access) -> Text:
        match FUNCTIONS[call.function].kernel:
            case Inline(value=form, known=known, whole_known=whole_known):
                values = [self.value(a, access) for a in call.arguments]
                whole = all(self._whole(a) for a in call.arguments)
                named = dict(zip("xyz", (value for value, _ in values), strict=False))
                limits = (known, whole_known if whole else None)
                oks = (*(ok for _, ok in values), *(f and f.format(**named) for f in limits))
                return form.format(**named), _both(*oks)
            case Fold(value=form):
                return _fold([self.value(a, access) for a in call.arguments], form)
            case Branches():
                return self._chosen(call.arguments, access)
            case Rewritten(by=by):
                return self.value(by(*call.arguments), access)
            case OverPoints():
                return self._of_points(call, access)
            case None:
                raise AssertionError(f"no compiled form of {call.function}")

    def _chosen(self, arguments: Sequence[Expr], access: Access) -> Text:
        """Conditions and values in turn, and at the end what else there is."""
        pairs = len(arguments) // 2
        value, ok = self.value(arguments[-1], access) if len(arguments) % 2 else ("0", "False")
        for n in reversed(range(pairs)):
            holds = self.condition(arguments[2 * n], access)
            other, there = self.value(arguments[2 * n + 1], access)
            value = f"({other} if {holds} else {value})"
            if ok is not None or there is not None:
                ok = f"({there or 'True'} if {holds} else {ok or 'True'})"
        return value, ok

    def _of_points(self, call: Call, access: Access) -> Text:
        """A function of two places; a point whose coordinates are not finite is none."""
        form = FUNCTIONS[call.function].kernel
        assert isinstance(form, OverPoints)
        places: list[list[Text]] = []
        for place in call.arguments[:2]:
            coordinates = points_of(place)
            assert coordinates is not None
            places.append([self.value(c, access) for c in coordinates])
        rest = [self.value(argument, access) for argument in call.arguments[2:]]
        x = dict.fromkeys(("x",), rest[0][0] if rest else "")
        if all(len(coordinates) == 2 for coordinates in places):
            flat = [*places[0], *places[1]]
            numbers = [value for value, _ in flat]
            known = (*(ok for _, ok in (*flat, *rest)), f"{form.there}({', '.join(numbers)})")
            named = dict(zip(("ax", "ay", "bx", "by"), numbers, strict=True))
            return form.value.format(**named, **x), _both(*known)
        a, b = (_tuple(coordinates) for coordinates in places)
        space = int(form.there == "earth_places")
        there = tuple(f"points_there({place}, {space})" for place in (a, b))
        known = (*there, *(ok for _, ok in rest))
        return form.several.format(a=a, b=b, **x), _both(*known)

    def _constant(self, value: object) -> Text:
        match value:
            case None:
                return "0", "False"
            case bool():
                return str(int(value)), None
            case int() if not -(2**63) <= value < 2**63:
                return self.constants.slot(
                    float(value)
                ), None  # no integer of 64 bits; a bound all the same
            case int() | float():
                return self.constants.slot(value), None
            case timedelta():
                micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
                return self.constants.slot(micros * (1_000 if self.unit == "ns" else 1)), None
            case datetime() | date():
                return self.constants.slot(
                    _instant(value) * (1_000 if self.unit == "ns" else 1)
                ), None
            case _:
                raise AssertionError(f"no compiled form of {value!r}")


def rounded(length: Text) -> Text:
    """A duration that was computed as a float: whole units, NULL beyond 64 bits."""
    value, ok = length
    return f"rounded({value})", _both(ok, f"in_64_bits({value})")


def _exactly(operator: str, whole: str, real: str) -> str:
    """An integer against a float: where the integer is rounded to the float, the rest decides."""
    match operator:
        case "=":
            return f"equal_exactly({whole}, {real})"
        case "!=":
            return f"not equal_exactly({whole}, {real})"
        case "<" | ">":
            return f"{'less' if operator == '<' else 'more'}_exactly({whole}, {real})"
        case _:
            strictly = _exactly(operator[0], whole, real)
            return f"({strictly} or equal_exactly({whole}, {real}))"


def _instant(moment: datetime | date) -> int:
    """Microseconds since 1970; a moment without zone counts as UTC."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def bracketed(text: str) -> str:
    """A test in brackets, unless it is.

    >>> bracketed("(a) or (b)"), bracketed("(a or (b))")
    ('((a) or (b))', '(a or (b))')
    """
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text if place == len(text) - 1 and place else f"({text})"
    raise AssertionError(f"brackets do not close: {text}")


def all_of(tests: Sequence[str]) -> str:
    """When all tests hold.

    >>> all_of([]), all_of(["a or b"]), all_of(["a or b", "c"])
    ('True', 'a or b', '(a or b) and (c)')
    """
    if len(tests) <= 1:
        return "".join(tests) or "True"
    return " and ".join(map(bracketed, tests))


def _both(*conditions: str | None) -> str | None:
    known = [ok for ok in conditions if ok is not None]
    return bracketed(all_of(known)) if known else None


def _tuple(coordinates: list[Text]) -> str:
    """Coordinates as one value of a kernel: NaN for one that is not there."""
    numbers = (f"float({v})" if ok is None else f"(float({v}) if {ok} else np.nan)"
               for v, ok in coordinates)  # fmt: skip
    return f"({', '.join(numbers)})"


def _fold(values: list[Text], form: str) -> Text:
    value, ok = values[0]
    for other, other_ok in values[1:]:
        value = form.format(a=value, b=other, a_known=ok or "True", b_known=other_ok or "True")
        ok = None if ok is None or other_ok is None else f"({ok} or {other_ok})"
    return value, ok
