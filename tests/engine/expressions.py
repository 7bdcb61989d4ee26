"""Random columns and random expressions over them."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import strategies as st

from ensue.functions import FUNCTIONS
from ensue.functions.record import ArgumentType, ResultType, ScalarFunction
from ensue.ir.expression import Between, Binary, Expr, FieldRef, FunctionCall, In, IsNull, Like, Literal, Unary
from ensue.schema import ValueKind

BERLIN = ZoneInfo("Europe/Berlin")
INTS = st.one_of(st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1]), st.integers(-9999, 9999))
FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, -2.5, 2.675, 1e300, float("nan"), float("inf"), -float("inf")]),
    st.floats(-100, 100),
)
DECIMALS = st.one_of(st.decimals(-1000, 1000, places=3), st.sampled_from([Decimal("0.300"), Decimal(10**16) / 1000]))
WORDS = st.one_of(
    st.sampled_from(["", "a", "ab", "aB", "ba", " a ", "a%b", "a_b", "Straße", "İx", "日本", "a\nb"]),
    st.text(max_size=4).filter(lambda s: s.isprintable()),
)
TIMES = st.datetimes(datetime(1960, 1, 1), datetime(2100, 1, 1))
SPANS = st.timedeltas(timedelta(days=-20), timedelta(days=20))

# name -> (kind, Arrow type, values)
COLUMNS: dict[str, tuple[ValueKind, pa.DataType, st.SearchStrategy[object]]] = {
    "i": (ValueKind.INTEGER, pa.int64(), INTS),
    "small": (ValueKind.INTEGER, pa.int8(), st.integers(-128, 127)),
    "f": (ValueKind.FLOAT, pa.float64(), FLOATS),
    "single": (ValueKind.FLOAT, pa.float32(), st.floats(-9, 9, width=32)),
    "d": (ValueKind.DECIMAL, pa.decimal128(20, 3), DECIMALS),
    "wide": (ValueKind.DECIMAL, pa.decimal128(38, 9), st.decimals(-99_999, 99_999, places=9)),
    "b": (ValueKind.BOOLEAN, pa.bool_(), st.booleans()),
    "s": (ValueKind.STRING, pa.string(), WORDS),
    "large": (ValueKind.STRING, pa.large_string(), WORDS),
    "coded": (ValueKind.STRING, pa.dictionary(pa.int8(), pa.string()), WORDS),
    "t": (ValueKind.TIMESTAMP, pa.timestamp("us"), TIMES),
    "zoned": (
        ValueKind.TIMESTAMP,
        pa.timestamp("ms", "Europe/Berlin"),
        TIMES.map(lambda t: t.replace(microsecond=0, tzinfo=UTC).astimezone(BERLIN)),
    ),
    "day": (ValueKind.DATE, pa.date32(), st.dates(date(1960, 1, 1), date(2100, 1, 1))),
    "span": (ValueKind.DURATION, pa.duration("us"), SPANS),
}

_LITERALS: dict[ValueKind, st.SearchStrategy[object]] = {
    ValueKind.INTEGER: INTS,
    ValueKind.FLOAT: FLOATS,
    ValueKind.STRING: WORDS,
    ValueKind.BOOLEAN: st.booleans(),
    ValueKind.TIMESTAMP: TIMES,
    ValueKind.DURATION: SPANS,
}
_ORDERED = (
    (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL),
    (ValueKind.STRING,),
    (ValueKind.TIMESTAMP, ValueKind.DATE),
    (ValueKind.DURATION,),
    (ValueKind.BOOLEAN,),
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A few rows of all columns, sliced at times so that offsets are not zero."""
    count = draw(st.integers(0, 6))
    skipped = draw(st.integers(0, 2))
    columns = {}
    for name, (_, type, values) in COLUMNS.items():
        size = st.lists(st.none() | values, min_size=count + skipped, max_size=count + skipped)
        columns[name] = pa.array(draw(size), type).slice(skipped)
    return pa.table(columns)


@st.composite
def expressions(draw: st.DrawFn, kind: ValueKind, depth: int = 3) -> Expr:
    """An expression of a kind."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(_leaf(kind))
    deeper = lambda of: draw(expressions(of, depth - 1))
    if draw(st.integers(0, 2)) == 0:
        return _called(draw, deeper, kind)
    match kind:
        case ValueKind.BOOLEAN:
            return _condition(draw, deeper)
        case ValueKind.INTEGER:
            return _integer(draw, deeper)
        case ValueKind.FLOAT | ValueKind.DECIMAL:
            return _float(draw, deeper)
        case ValueKind.STRING:
            return _string(deeper)
        case ValueKind.TIMESTAMP:
            sign = draw(st.sampled_from("+-"))
            left = draw(_leaf(draw(st.sampled_from([ValueKind.TIMESTAMP, ValueKind.DATE]))))
            return Binary(sign, left, draw(_leaf(ValueKind.DURATION)))
        case ValueKind.DURATION:
            return _duration(draw)
        case _:
            return draw(_leaf(kind))


@st.composite
def _leaf(draw: st.DrawFn, kind: ValueKind) -> Expr:
    names = [name for name, (of, _, _) in COLUMNS.items() if of is kind]
    choice = draw(st.integers(0, 9))
    if choice == 0:
        return Literal(None)
    if choice < 4 and kind in _LITERALS:
        return Literal(draw(_LITERALS[kind]))
    return FieldRef("a", draw(st.sampled_from(names)))


def _condition(draw, deeper) -> Expr:
    family = draw(st.sampled_from(_ORDERED))
    pick = lambda: deeper(draw(st.sampled_from(family)))
    negated = draw(st.booleans())
    match draw(st.integers(0, 7)):
        case 0 | 1:
            operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
            return Binary(operator, pick(), pick())
        case 2:
            operator = draw(st.sampled_from(["and", "or"]))
            return Binary(operator, deeper(ValueKind.BOOLEAN), deeper(ValueKind.BOOLEAN))
        case 3:
            return Unary("not", deeper(ValueKind.BOOLEAN))
        case 4:
            return IsNull(pick(), negated)
        case 5:
            options = tuple(draw(_leaf(draw(st.sampled_from(family)))) for _ in range(draw(st.integers(1, 4))))
            return In(pick(), options, negated)
        case 6:
            return Between(pick(), pick(), pick(), negated)
        case _:
            text = deeper(ValueKind.STRING)
            pattern = draw(st.text("aAbß%_\\. \n", max_size=5))
            return Like(text, pattern, negated)


# ------------------------------------------------------------------- functions, by their records

_NUMBERS = (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL)
_BROKEN = (ValueKind.FLOAT, ValueKind.DECIMAL)
_PLACES = st.one_of(st.integers(-4, 5), st.integers(-20, 320), st.sampled_from([-19, -18, 308, 309]))
_REGEXPS = st.sampled_from(["a", "(?i)AB", "^a|ß$", "(a)(b)?", "[^ab]+", "x*", "\\b.", "(a", "\\w{2}"]).map(Literal)
_UNITS = st.sampled_from(["day", "Weeks", "month", "quarter", "year", "hour", "ms", "x"]).map(Literal)


_ZONES = st.sampled_from(["UTC", "Europe/Zurich", "America/New_York", "Asia/Kolkata"]).map(Literal)


def _called(draw, deeper, kind: ValueKind) -> Expr:
    """A call of any registered function that can give a kind."""
    able = [f for f in FUNCTIONS.values() if _gives(f, kind) and ArgumentType.PLACE not in f.takes]
    record = draw(st.sampled_from(able))
    given = record.least + draw(st.integers(0, 1)) * (record.most != record.least)
    arguments = []
    for wanted in record.get_argument_types(given):
        of = _kind_of_argument(record, wanted, kind, first=not arguments)
        if wanted is ArgumentType.WHOLE:
            places = _PLACES.map(Literal) | st.just(FieldRef("a", "small")) | st.just(Literal(None))
            arguments.append(draw(places))
        elif wanted is ArgumentType.REGEXP:
            arguments.append(draw(_REGEXPS))
        elif wanted is ArgumentType.UNIT:
            arguments.append(draw(_UNITS))
        elif wanted is ArgumentType.ZONE:
            arguments.append(draw(_ZONES))
        else:
            arguments.append(deeper(draw(st.sampled_from(of))))
    return FunctionCall(record.name, tuple(arguments))


def _gives(record: ScalarFunction, kind: ValueKind) -> bool:
    match record.gives:
        case ValueKind() as given:
            return given is kind or (given is ValueKind.FLOAT and kind is ValueKind.DECIMAL)
        case ResultType.COMPUTED:
            return kind in _NUMBERS
        case ResultType.FIRST | ResultType.SHARED:
            return True


def _kind_of_argument(
    record: ScalarFunction, wanted: ArgumentType, kind: ValueKind, *, first: bool
) -> tuple[ValueKind, ...]:
    match wanted:
        case ArgumentType.NUMBER if record.gives is ResultType.COMPUTED and first:
            return (kind,) if kind is ValueKind.INTEGER else _BROKEN
        case ArgumentType.NUMBER:
            return _NUMBERS
        case ArgumentType.WHOLE:
            return (ValueKind.INTEGER,)
        case ArgumentType.TEXT:
            return (ValueKind.STRING,)
        case ArgumentType.TIME:
            return (ValueKind.TIMESTAMP, ValueKind.DATE)
        case ArgumentType.CONDITION:
            return (ValueKind.BOOLEAN,)
        case ArgumentType.SIMPLE | ArgumentType.MOMENT | ArgumentType.PRINTED:
            return wanted.kinds
        case ArgumentType.ANY if isinstance(record.gives, ResultType) and kind in _BROKEN:
            return _BROKEN
        case ArgumentType.ANY if isinstance(record.gives, ResultType):
            return (kind,)
        case ArgumentType.ANY:
            return _NUMBERS


def _integer(draw, deeper) -> Expr:
    whole = ValueKind.INTEGER
    if draw(st.integers(0, 2)):
        return Binary(draw(st.sampled_from("+-*%")), deeper(whole), deeper(whole))
    return Unary("-", deeper(whole))


def _float(draw, deeper) -> Expr:
    number = lambda: deeper(draw(st.sampled_from(_NUMBERS)))
    broken = lambda: deeper(draw(st.sampled_from(_BROKEN)))
    if draw(st.booleans()):
        return Binary("/", number(), number())
    operator = draw(st.sampled_from("+-*%"))
    pair = (broken(), number()) if draw(st.booleans()) else (number(), broken())
    return Binary(operator, *pair)


def _string(deeper) -> Expr:
    return Binary("||", deeper(ValueKind.STRING), deeper(ValueKind.STRING))


def _duration(draw) -> Expr:
    time = st.sampled_from([ValueKind.TIMESTAMP, ValueKind.DATE])
    spans = lambda: draw(_leaf(ValueKind.DURATION))
    match draw(st.integers(0, 3)):
        case 0:
            return Binary("-", draw(_leaf(draw(time))), draw(_leaf(draw(time))))
        case 1:
            return Binary(draw(st.sampled_from("+-%")), spans(), spans())
        case 2:
            factor = draw(_leaf(draw(st.sampled_from([ValueKind.INTEGER, ValueKind.FLOAT]))))
            return Binary(draw(st.sampled_from("*/")), spans(), factor)
        case _:
            return Unary("-", spans())
