"""A scalar function as one record: what it takes, what it gives, and how it is computed.

The plain meaning is enough. The other forms make a function faster, and are data: the parts of
Ensue that know arrays or write kernels read them, so that nothing here needs NumPy or Arrow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from ensue.algebra.predicate import Expr
from ensue.schema import Kind


class Takes(Enum):
    """What an argument must be; NULL goes everywhere."""

    NUMBER = "a number"
    WHOLE = "a whole number"
    TEXT = "a string"
    TIME = "a time"
    CONDITION = "a condition"
    REGEXP = "a regular expression"
    UNIT = "a unit of time, such as 'day'"
    ZONE = "the name of a time zone, such as 'Europe/Zurich'"
    SIMPLE = "a number, a string or a boolean"
    MOMENT = "a time, a string, or seconds since 1970"
    PRINTED = "a number, a string, a boolean or a time"
    PLACE = "a place"
    WRITTEN = "a coordinate, or a place as WKT or WKB"
    ANY = "a value that compares with the others"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        match self:
            case Takes.NUMBER:
                return (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL)
            case Takes.WHOLE:
                return (Kind.INTEGER,)
            case Takes.TEXT | Takes.UNIT | Takes.REGEXP | Takes.ZONE:
                return (Kind.STRING,)
            case Takes.TIME:
                return (Kind.TIMESTAMP, Kind.DATE)
            case Takes.CONDITION:
                return (Kind.BOOLEAN,)
            case Takes.SIMPLE:
                return (Kind.STRING, Kind.BOOLEAN, *Takes.NUMBER.kinds)
            case Takes.MOMENT:
                return (Kind.STRING, *Takes.TIME.kinds, *Takes.NUMBER.kinds)
            case Takes.PRINTED:
                return (*Takes.SIMPLE.kinds, *Takes.TIME.kinds)
            case Takes.PLACE:
                return (Kind.PLACE,)
            case Takes.WRITTEN:
                return (Kind.STRING, Kind.OTHER, *Takes.NUMBER.kinds)
            case Takes.ANY:
                return tuple(kind for kind in Kind if kind not in (Kind.OTHER, Kind.PLACE))


class Gives(Enum):
    """The kind of a result that depends on the arguments."""

    COMPUTED = "that of the first one; what is computed from decimals is a float"
    FIRST = "that of the first one"
    NUMBER = "an integer if all of them are, else a float"
    SHARED = "the one kind that holds all of those that compare with each other"


# ---- forms over whole columns


@dataclass(frozen=True, slots=True)
class OverNumbers:
    """An expression over NumPy arrays `x`, `y`, `z`, one for each argument.

    They are floats, unless the function gives the kind of its first argument and that is
    whole: then `x` is int64 and `whole`, where given, is taken in place of `value`.
    `null` and `whole_null` are expressions too: where there is no value. They may name `found`,
    which is the value. `arrow(pc.exp, x)` calls a function of Arrow, which uses the C library as
    Python does: the routines of NumPy may differ from it in the last bit.
    """

    value: str
    null: str | None = None
    whole: str | None = None
    whole_null: str | None = None


@dataclass(frozen=True, slots=True)
class OverTexts:
    """An expression over an Arrow array `texts`, with the other arguments as constants `y`, `z`.

    Arguments left out are None. Of a column with a dictionary only the distinct words are asked.
    With `ascii` the expression knows such texts only; others have the plain meaning.
    """

    value: str
    ascii: bool = False


@dataclass(frozen=True, slots=True)
class OverTimes:
    """An expression over NumPy arrays `clock` and `other` of datetime64, one for each time.

    `unit` is the unit in front of them or the zone behind, where the function takes one and it is
    a constant.
    `since(clock, "h", "D")` are the hours since the day began, `ticks(clock, "D")` the days
    since 1970; `columns/calendars.py` has them and the others.
    """

    value: str


@dataclass(frozen=True, slots=True)
class Routine:
    """A routine in `columns/routines.py`, by its name: for forms that are more than a line."""

    name: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The same by other expressions, over columns and in kernels."""

    by: Callable[..., Expr]


VectorForm = OverNumbers | OverTexts | OverTimes | Routine | Rewritten


# ---- forms in compiled code


@dataclass(frozen=True, slots=True)
class Inline:
    """An expression of a kernel over `{x}`, `{y}`, `{z}`.

    `known` says when there is a value, given that all arguments are there; `whole_known` says
    what else must hold where all of them are whole.
    """

    value: str
    known: str | None = None
    whole_known: str | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """An expression of a kernel that takes the best so far, `{a}`, against the next, `{b}`.

    `{a_known}` and `{b_known}` say whether they are there; one that is suffices for a value.
    """

    value: str


@dataclass(frozen=True, slots=True)
class OverPoints:
    """An expression of a kernel over two places that are made of points.

    Of two single points `{ax}`, `{ay}` are the coordinates of the first, `{bx}`, `{by}` those of
    the second; of hulls of points `{a}` and `{b}` are tuples of coordinates, for `several`.
    `{x}` is the argument behind the places, where there is one. `there` names the function of
    four coordinates that says whether both points are places.
    """

    there: str
    value: str
    several: str


@dataclass(frozen=True, slots=True)
class Branches:
    """The value behind the first condition that holds: the kernel form of CASE."""


KernelForm = Inline | Fold | OverPoints | Branches | Rewritten


# ---- the record


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function.

    `meaning` is called with one value for each argument, and None stands for NULL; unless
    `sees_null`, it is not called where an argument is NULL, and the result is NULL.
    Without a vector form columns are computed value by value. Without a kernel form compiled
    code has the function of one event computed beforehand, as a feature of that event, and
    conditions that need it of several events are judged on finished matches.

    >>> from ensue.algebra.values import number
    >>> half = Function("half", (Takes.NUMBER,), Kind.FLOAT, lambda x: float(number(x)) / 2)
    >>> half([5]), half([None]), half.kind([Kind.INTEGER])
    (2.5, None, <Kind.FLOAT: 'float'>)
    """

    name: str
    takes: tuple[Takes, ...]
    gives: Kind | Gives
    meaning: Callable[..., object]
    optional: tuple[Takes, ...] = ()
    repeats: bool = False  # the last argument may be given any number of times
    in_pairs: bool = False  # all of them may, in turn, and the last once more
    sees_null: bool = False
    clock: bool = False  # it reads clocks: those of the zone that a time is in
    aliases: tuple[str, ...] = ()
    vector: VectorForm | None = None
    kernel: KernelForm | None = None

    def __post_init__(self) -> None:
        text = Takes.TEXT in (*self.takes, *self.optional)
        if self.kernel is not None and text:
            raise ValueError(f"{self.name}: a kernel sees the codes of strings, not their letters")
        folds = self.sees_null and isinstance(self.kernel, Inline | Fold | OverPoints)
        if isinstance(self.kernel, Fold) != folds:
            raise ValueError(f"{self.name}: a fold is the kernel form of what sees NULLs")
        if isinstance(self.kernel, Inline) and (self.optional or self.repeats):
            raise ValueError(f"{self.name}: an inlined form has all of its arguments")
        if isinstance(self.kernel, OverPoints) != (
            self.kernel is not None and self.takes[:2] == (Takes.PLACE, Takes.PLACE)
        ):
            raise ValueError(f"{self.name}: a form over points is that of two places")
        if isinstance(self.vector, OverTexts) and not (text and isinstance(self.gives, Kind)):
            raise ValueError(f"{self.name}: a form over strings takes one and gives one kind")

    def __call__(self, arguments: Sequence[object]) -> object:
        if not self.sees_null and any(a is None for a in arguments):
            return None
        return self.meaning(*arguments)

    @property
    def least(self) -> int:
        """The fewest arguments."""
        return len(self.takes)

    @property
    def most(self) -> int | None:
        """The most arguments; None: any number."""
        return None if self.repeats or self.in_pairs else len(self.takes) + len(self.optional)

    def wanted(self, given: int) -> tuple[Takes, ...]:
        """What each of the arguments given must be."""
        known = (*self.takes, *self.optional)
        if self.in_pairs:
            return (*known * (given // len(known)), *known[-1:] * (given % len(known)))
        return (*known, *known[-1:] * (given - len(known)))[:given]

    def kind(self, kinds: Sequence[Kind]) -> Kind:
        """The kind of the result for arguments of these kinds, which go together."""
        match self.gives:
            case Kind() as kind:
                return kind
            case Gives.FIRST:
                return kinds[0]
            case Gives.COMPUTED:
                return Kind.FLOAT if kinds[0] is Kind.DECIMAL else kinds[0]
            case Gives.NUMBER:
                whole = all(kind in (Kind.INTEGER, Kind.NULL) for kind in kinds)
                return Kind.INTEGER if whole else Kind.FLOAT
            case Gives.SHARED:
                found = Kind.NULL
                for kind, wanted in zip(kinds, self.wanted(len(kinds)), strict=True):
                    if wanted is Takes.ANY:
                        found = shared(found, kind)
                return found


def shared(left: Kind, right: Kind) -> Kind:
    """The kind that holds the values of two that compare.

    >>> shared(Kind.INTEGER, Kind.DECIMAL), shared(Kind.NULL, Kind.STRING)
    (<Kind.FLOAT: 'float'>, <Kind.STRING: 'string'>)
    """
    if left is right or right is Kind.NULL:
        return left
    if left is Kind.NULL:
        return right
    return Kind.FLOAT if left.numeric else Kind.TIMESTAMP
