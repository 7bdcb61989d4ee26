"""The record of a scalar function: its arguments, its result, and its implementations.

Only the interpreted implementation (`meaning`) is required. The vectorized and generated forms
make a function faster and are data, so this module needs neither NumPy nor Arrow.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from ensue.ir.expression import Expr
from ensue.schema import ValueKind

_NUMBERS = (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL)
_TIMES = (ValueKind.TIMESTAMP, ValueKind.DATE)
_SIMPLE = (ValueKind.STRING, ValueKind.BOOLEAN, *_NUMBERS)


class ArgumentType(Enum):
    """The accepted kinds of an argument; NULL is always accepted."""

    kinds: tuple[ValueKind, ...]

    NUMBER = "a number", *_NUMBERS
    WHOLE = "a whole number", ValueKind.INTEGER
    TEXT = "a string", ValueKind.STRING
    TIME = "a time", *_TIMES
    CONDITION = "a condition", ValueKind.BOOLEAN
    REGEXP = "a regular expression", ValueKind.STRING
    UNIT = "a unit of time, such as 'day'", ValueKind.STRING
    ZONE = "the name of a time zone, such as 'Europe/Zurich'", ValueKind.STRING
    SIMPLE = "a number, a string or a boolean", *_SIMPLE
    MOMENT = "a time, a string, or seconds since 1970", ValueKind.STRING, *_TIMES, *_NUMBERS
    PRINTED = "a number, a string, a boolean or a time", *_SIMPLE, *_TIMES
    PLACE = "a place", ValueKind.PLACE
    WRITTEN = ("a coordinate, or a place as WKT or WKB", ValueKind.STRING, ValueKind.OTHER, *_NUMBERS)
    ANY = (
        "a value that compares with the others",
        *(kind for kind in ValueKind if kind not in (ValueKind.OTHER, ValueKind.PLACE)),
    )

    def __new__(cls, description: str, *kinds: ValueKind) -> "ArgumentType":
        member = object.__new__(cls)
        member._value_ = description
        member.kinds = kinds
        return member


class ResultType(Enum):
    """The kind of a result that depends on the arguments."""

    COMPUTED = "that of the first one; a float for decimals"
    FIRST = "that of the first one"
    NUMBER = "an integer if all of them are, else a float"
    SHARED = "the common kind of all arguments that compare with each other"


# --- functions that the syntax or the analyzer refers to by name

CASE = "case"  # CASE WHEN c THEN x ELSE y END is case(c, x, y)
AT_TIME_ZONE = "at_time_zone"
TO_CLOCK = "from_utc_timestamp"
TO_INSTANT = "to_utc_timestamp"
WKT = "wkt"  # WKT 'POLYGON (...)' is a call of it
CIRCLE = "circle"
LOCATION = ".location"  # a.location is a call of it over the location columns of a
EARTH_LOCATION = ".earth_location"  # likewise, for locations on the earth
EARTH = "earth_"
SPACES = ("plane", "earth")  # generated code uses their indices


# --- vectorized forms


@dataclass(frozen=True, slots=True)
class NumpyForm:
    """An expression over NumPy arrays `x`, `y`, `z`, one for each argument.

    The arrays are floats, unless the function returns the kind of its first argument and that is
    an integer: then `x` is int64 and `whole`, if given, replaces `value`.
    `null` and `whole_null` are expressions for the rows that are NULL; `found` is the value.
    `arrow(pc.exp, x)` calls Arrow, which uses the C library as Python does: NumPy may differ in
    the last bit.
    """

    value: str
    null: str | None = None
    whole: str | None = None
    whole_null: str | None = None


@dataclass(frozen=True, slots=True)
class ArrowStringForm:
    """An expression over an Arrow array `texts`, with the other arguments as constants `y`, `z`.

    Omitted arguments are None. For a dictionary column only the dictionary is evaluated.
    With `ascii` the expression applies to ASCII strings only; others are interpreted.
    """

    value: str
    ascii: bool = False


@dataclass(frozen=True, slots=True)
class DatetimeForm:
    """An expression over NumPy arrays `clock` and `other` of datetime64, one for each time.

    `unit` is the constant unit or zone, if the function takes one.
    `count_since(clock, "h", "D")` are the hours since the start of the day, `ticks(clock, "D")` the
    days since 1970; `vector/functions.py` defines these helpers.
    """

    value: str


@dataclass(frozen=True, slots=True)
class RoutineForm:
    """The name of a routine in `vector/functions.py`, for forms longer than one line."""

    name: str


@dataclass(frozen=True, slots=True)
class RewriteForm:
    """An equivalent expression, for columns and kernels."""

    by: Callable[..., Expr]


VectorForm = NumpyForm | ArrowStringForm | DatetimeForm | RoutineForm | RewriteForm


# --- generated forms


@dataclass(frozen=True, slots=True)
class InlineForm:
    """An expression of a kernel over `{x}`, `{y}`, `{z}`.

    `known` is the condition for a non-NULL value if no argument is NULL; `whole_known` is an
    additional condition if all arguments are integers.
    """

    value: str
    known: str | None = None
    whole_known: str | None = None


@dataclass(frozen=True, slots=True)
class FoldForm:
    """An expression of a kernel that combines the result so far, `{a}`, with the next value `{b}`.

    `{a_known}` and `{b_known}` tell whether they are not NULL; one of them suffices for a value.
    """

    value: str


@dataclass(frozen=True, slots=True)
class PointsForm:
    """An expression of a kernel over two locations that consist of points.

    For two single points, `value` uses their coordinates `{ax}`, `{ay}` and `{bx}`, `{by}`; for
    hulls of points, `several` uses tuples of coordinates `{a}` and `{b}`. `{x}` is the argument
    after the locations, if any. `space` is an index of SPACES.
    """

    space: int
    value: str
    several: str


@dataclass(frozen=True, slots=True)
class CaseForm:
    """The kernel form of CASE."""


KernelForm = InlineForm | FoldForm | PointsForm | CaseForm | RewriteForm


# --- the record


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A scalar function.

    `meaning` is called with one value per argument; None stands for NULL. Unless `sees_null`, the
    result is NULL if an argument is NULL. Without a vector form, columns are computed value by
    value. Without a kernel form, calls over one event are precomputed as a feature of the event,
    and conditions with calls over several events are evaluated on complete matches.

    >>> from ensue.ir.values import to_number
    >>> half = ScalarFunction("half", (ArgumentType.NUMBER,), ValueKind.FLOAT, lambda x: float(to_number(x)) / 2)
    >>> half([5]), half([None]), half.kind([ValueKind.INTEGER])
    (2.5, None, <ValueKind.FLOAT: 'float'>)
    """

    name: str
    takes: tuple[ArgumentType, ...]
    gives: ValueKind | ResultType
    meaning: Callable[..., object]
    optional: tuple[ArgumentType, ...] = ()
    repeats: bool = False  # the last argument is variadic
    in_pairs: bool = False  # all arguments repeat in turn; the last may occur once more
    sees_null: bool = False
    clock: bool = False  # it depends on the local time in the time zone of its argument
    aliases: tuple[str, ...] = ()
    vector: VectorForm | None = None
    kernel: KernelForm | None = None

    def __post_init__(self) -> None:
        text = ArgumentType.TEXT in (*self.takes, *self.optional)
        if self.kernel is not None and text:
            raise ValueError(f"{self.name}: a kernel sees codes of strings, not their characters")
        folds = self.sees_null and isinstance(self.kernel, InlineForm | FoldForm | PointsForm)
        if isinstance(self.kernel, FoldForm) != folds:
            raise ValueError(f"{self.name}: a fold is the kernel form of functions of NULLs")
        if isinstance(self.kernel, InlineForm) and (self.optional or self.repeats):
            raise ValueError(f"{self.name}: an inlined form has a fixed number of arguments")
        if isinstance(self.kernel, PointsForm) != (
            self.kernel is not None and self.takes[:2] == (ArgumentType.PLACE, ArgumentType.PLACE)
        ):
            raise ValueError(f"{self.name}: a form over points takes two locations")
        if isinstance(self.vector, ArrowStringForm) and not (text and isinstance(self.gives, ValueKind)):
            raise ValueError(f"{self.name}: a form over strings takes one and returns one kind")

    def __call__(self, arguments: Sequence[object]) -> object:
        if not self.sees_null and any(a is None for a in arguments):
            return None
        return self.meaning(*arguments)

    @property
    def least(self) -> int:
        """The minimum number of arguments."""
        return len(self.takes)

    @property
    def most(self) -> int | None:
        """The maximum number of arguments; None: unlimited."""
        return None if self.repeats or self.in_pairs else len(self.takes) + len(self.optional)

    def get_argument_types(self, count: int) -> tuple[ArgumentType, ...]:
        """Returns the types of the arguments of a call with `count` arguments."""
        types = (*self.takes, *self.optional)
        if self.in_pairs:
            return (*types * (count // len(types)), *types[-1:] * (count % len(types)))
        return (*types, *types[-1:] * (count - len(types)))[:count]

    def kind(self, kinds: Sequence[ValueKind]) -> ValueKind:
        """Returns the kind of the result for compatible arguments of these kinds."""
        match self.gives:
            case ValueKind() as kind:
                return kind
            case ResultType.FIRST:
                return kinds[0]
            case ResultType.COMPUTED:
                return ValueKind.FLOAT if kinds[0] is ValueKind.DECIMAL else kinds[0]
            case ResultType.NUMBER:
                whole = all(kind in (ValueKind.INTEGER, ValueKind.NULL) for kind in kinds)
                return ValueKind.INTEGER if whole else ValueKind.FLOAT
            case ResultType.SHARED:
                common = ValueKind.NULL
                for kind, argument in zip(kinds, self.get_argument_types(len(kinds)), strict=True):
                    if argument is ArgumentType.ANY:
                        common = get_common_kind(common, kind)
                return common


def define(
    signature: str,
    meaning: Callable[..., object],
    vector: VectorForm | None = None,
    kernel: KernelForm | None = None,
    *,
    in_pairs: bool = False,
    sees_null: bool = False,
    clock: bool = False,
) -> ScalarFunction:
    """Defines a function by a signature with its aliases, optional (`?`) and repeated (`...`)
    arguments, and the kind of its result.

    >>> power = define("power|pow(number, number?) -> float", pow)
    >>> power.name, power.aliases, power.least, power.most
    ('power', ('pow',), 1, 2)
    """
    match = re.fullmatch(r"([.\w|]+)\((.+?)(\.\.\.)?\) -> (\w+)", signature)
    assert match is not None, signature
    name, *aliases = match[1].split("|")
    types = [(ArgumentType[t.strip(" ?").upper()], "?" in t) for t in match[2].split(",")]
    gives = match[4].upper()
    return ScalarFunction(
        name,
        tuple(type for type, optional in types if not optional),
        ValueKind[gives] if gives in ValueKind.__members__ else ResultType[gives],
        meaning,
        optional=tuple(type for type, optional in types if optional),
        repeats=match[3] is not None,
        in_pairs=in_pairs,
        sees_null=sees_null,
        clock=clock,
        aliases=tuple(aliases),
        vector=vector,
        kernel=kernel,
    )


def get_common_kind(left: ValueKind, right: ValueKind) -> ValueKind:
    """Returns the common kind of two comparable kinds.

    >>> get_common_kind(ValueKind.INTEGER, ValueKind.DECIMAL)
    <ValueKind.FLOAT: 'float'>
    """
    if left is right or right is ValueKind.NULL:
        return left
    if left is ValueKind.NULL:
        return right
    return ValueKind.FLOAT if left.numeric else ValueKind.TIMESTAMP
