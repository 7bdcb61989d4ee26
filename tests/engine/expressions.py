"""Random columns and random expressions over them."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import strategies as st

from ensue.algebra.functions import FUNCTIONS
from ensue.algebra.functions.record import Function, Gives, Takes
from ensue.algebra.predicate import (
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
from ensue.schema import Kind

BERLIN = ZoneInfo("Europe/Berlin")
INTS = st.one_of(
    st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1]), st.integers(-9999, 9999)
)
FLOATS = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 0.5, -2.5, 2.675, 1e300, float("nan"), float("inf"), -float("inf")]
    ),
    st.floats(-100, 100),
)
DECIMALS = st.one_of(
    st.decimals(-1000, 1000, places=3), st.sampled_from([Decimal("0.300"), Decimal(10**16) / 1000])
)
WORDS = st.one_of(
    st.sampled_from(
        ["", "a", "ab", "aB", "ba", " a ", "a%b", "a_b", "Straße", "İx", "日本", "a\nb"]
    ),
    st.text(max_size=4).filter(lambda s: s.isprintable()),
)
TIMES = st.datetimes(datetime(1960, 1, 1), datetime(2100, 1, 1))
SPANS = st.timedeltas(timedelta(days=-20), timedelta(days=20))

# name -> (kind, Arrow type, values)
COLUMNS: dict[str, tuple[Kind, pa.DataType, st.SearchStrategy[object]]] = {
    "i": (Kind.INTEGER, pa.int64(), INTS),
    "small": (Kind.INTEGER, pa.int8(), st.integers(-128, 127)),
    "f": (Kind.FLOAT, pa.float64(), FLOATS),
    "single": (Kind.FLOAT, pa.float32(), st.floats(-9, 9, width=32)),
    "d": (Kind.DECIMAL, pa.decimal128(20, 3), DECIMALS),
    "wide": (Kind.DECIMAL, pa.decimal128(38, 9), st.decimals(-99_999, 99_999, places=9)),
    "b": (Kind.BOOLEAN, pa.bool_(), st.booleans()),
    "s": (Kind.STRING, pa.string(), WORDS),
    "large": (Kind.STRING, pa.large_string(), WORDS),
    "coded": (Kind.STRING, pa.dictionary(pa.int8(), pa.string()), WORDS),
    "t": (Kind.TIMESTAMP, pa.timestamp("us"), TIMES),
    "zoned": (
        Kind.TIMESTAMP,
        pa.timestamp("ms", "Europe/Berlin"),
        TIMES.map(lambda t: t.replace(microsecond=0, tzinfo=UTC).astimezone(BERLIN)),
    ),
    "day": (Kind.DATE, pa.date32(), st.dates(date(1960, 1, 1), date(2100, 1, 1))),
    "span": (Kind.DURATION, pa.duration("us"), SPANS),
}

_LITERALS: dict[Kind, st.SearchStrategy[object]] = {
    Kind.INTEGER: INTS,
    Kind.FLOAT: FLOATS,
    Kind.STRING: WORDS,
    Kind.BOOLEAN: st.booleans(),
    Kind.TIMESTAMP: TIMES,
    Kind.DURATION: SPANS,
}
_ORDERED = (
    (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL),
    (Kind.STRING,),
    (Kind.TIMESTAMP, Kind.DATE),
    (Kind.DURATION,),
    (Kind.BOOLEAN,),
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
def expressions(draw: st.DrawFn, kind: Kind, depth: int = 3) -> Expr:
    """An expression of a kind."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(_leaf(kind))
    deeper = lambda of: draw(expressions(of, depth - 1))
    if draw(st.integers(0, 2)) == 0:
        return _called(draw, deeper, kind)
    match kind:
        case Kind.BOOLEAN:
            return _condition(draw, deeper)
        case Kind.INTEGER:
            return _integer(draw, deeper)
        case Kind.FLOAT | Kind.DECIMAL:
            return _float(draw, deeper)
        case Kind.STRING:
            return _string(deeper)
        case Kind.TIMESTAMP:
            sign = draw(st.sampled_from("+-"))
            left = draw(_leaf(draw(st.sampled_from([Kind.TIMESTAMP, Kind.DATE]))))
            return Binary(sign, left, draw(_leaf(Kind.DURATION)))
        case Kind.DURATION:
            return _duration(draw)
        case _:
            return draw(_leaf(kind))


@st.composite
def _leaf(draw: st.DrawFn, kind: Kind) -> Expr:
    names = [name for name, (of, _, _) in COLUMNS.items() if of is kind]
    choice = draw(st.integers(0, 9))
    if choice == 0:
        return Literal(None)
    if choice < 4 and kind in _LITERALS:
        return Literal(draw(_LITERALS[kind]))
    return Field("a", draw(st.sampled_from(names)))


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
            return Binary(operator, deeper(Kind.BOOLEAN), deeper(Kind.BOOLEAN))
        case 3:
            return Unary("not", deeper(Kind.BOOLEAN))
        case 4:
            return IsNull(pick(), negated)
        case 5:
            options = tuple(
                draw(_leaf(draw(st.sampled_from(family)))) for _ in range(draw(st.integers(1, 4)))
            )
            return In(pick(), options, negated)
        case 6:
            return Between(pick(), pick(), pick(), negated)
        case _:
            text = deeper(Kind.STRING)
            pattern = draw(st.text("aAbß%_\\. \n", max_size=5))
            return Like(text, pattern, negated)


# ------------------------------------------------------------------- functions, by their records

_NUMBERS = (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL)
_BROKEN = (Kind.FLOAT, Kind.DECIMAL)
_PLACES = st.one_of(
    st.integers(-4, 5), st.integers(-20, 320), st.sampled_from([-19, -18, 308, 309])
)
_REGEXPS = st.sampled_from(
    ["a", "(?i)AB", "^a|ß$", "(a)(b)?", "[^ab]+", "x*", "\\b.", "(a", "\\w{2}"]
).map(Literal)
_UNITS = st.sampled_from(["day", "Weeks", "month", "quarter", "year", "hour", "ms", "x"]).map(
    Literal
)


_ZONES = st.sampled_from(["UTC", "Europe/Zurich", "America/New_York", "Asia/Kolkata"]).map(Literal)


def _called(draw, deeper, kind: Kind) -> Expr:
    """A call of any registered function that can give a kind."""
    able = [f for f in FUNCTIONS.values() if _gives(f, kind) and Takes.PLACE not in f.takes]
    record = draw(st.sampled_from(able))
    given = record.least + draw(st.integers(0, 1)) * (record.most != record.least)
    arguments = []
    for wanted in record.wanted(given):
        of = _kind_of_argument(record, wanted, kind, first=not arguments)
        if wanted is Takes.WHOLE:
            places = _PLACES.map(Literal) | st.just(Field("a", "small")) | st.just(Literal(None))
            arguments.append(draw(places))
        elif wanted is Takes.REGEXP:
            arguments.append(draw(_REGEXPS))
        elif wanted is Takes.UNIT:
            arguments.append(draw(_UNITS))
        elif wanted is Takes.ZONE:
            arguments.append(draw(_ZONES))
        else:
            arguments.append(deeper(draw(st.sampled_from(of))))
    return Call(record.name, tuple(arguments))


def _gives(record: Function, kind: Kind) -> bool:
    match record.gives:
        case Kind() as given:
            return given is kind or (given is Kind.FLOAT and kind is Kind.DECIMAL)
        case Gives.COMPUTED:
            return kind in _NUMBERS
        case Gives.FIRST | Gives.SHARED:
            return True


def _kind_of_argument(
    record: Function, wanted: Takes, kind: Kind, *, first: bool
) -> tuple[Kind, ...]:
    match wanted:
        case Takes.NUMBER if record.gives is Gives.COMPUTED and first:
            return (kind,) if kind is Kind.INTEGER else _BROKEN
        case Takes.NUMBER:
            return _NUMBERS
        case Takes.WHOLE:
            return (Kind.INTEGER,)
        case Takes.TEXT:
            return (Kind.STRING,)
        case Takes.TIME:
            return (Kind.TIMESTAMP, Kind.DATE)
        case Takes.CONDITION:
            return (Kind.BOOLEAN,)
        case Takes.SIMPLE | Takes.MOMENT | Takes.PRINTED:
            return wanted.kinds
        case Takes.ANY if isinstance(record.gives, Gives) and kind in _BROKEN:
            return _BROKEN
        case Takes.ANY if isinstance(record.gives, Gives):
            return (kind,)
        case Takes.ANY:
            return _NUMBERS


def _integer(draw, deeper) -> Expr:
    whole = Kind.INTEGER
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
    return Binary("||", deeper(Kind.STRING), deeper(Kind.STRING))


def _duration(draw) -> Expr:
    time = st.sampled_from([Kind.TIMESTAMP, Kind.DATE])
    spans = lambda: draw(_leaf(Kind.DURATION))
    match draw(st.integers(0, 3)):
        case 0:
            return Binary("-", draw(_leaf(draw(time))), draw(_leaf(draw(time))))
        case 1:
            return Binary(draw(st.sampled_from("+-%")), spans(), spans())
        case 2:
            factor = draw(_leaf(draw(st.sampled_from([Kind.INTEGER, Kind.FLOAT]))))
            return Binary(draw(st.sampled_from("*/")), spans(), factor)
        case _:
            return Unary("-", spans())
