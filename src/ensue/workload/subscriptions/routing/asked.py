"""What an atom asks of each field: an interval, a set of values, and values it must not have."""

from collections.abc import Callable
from datetime import date, datetime
from functools import partial

from ensue.algebra.event_test import EventTest
from ensue.algebra.predicate import Constant
from ensue.algebra.subscription import FieldOf, Predicate, PredicateType
from ensue.algebra.values import instant, microseconds
from ensue.columns.arrow_kinds import Unit
from ensue.errors import QueryError
from ensue.schema import Kind
from ensue.workload.subscriptions.routing.fields import REAL, Field, Fields
from ensue.workload.subscriptions.routing.ordered import GREATEST, LEAST, Interval, real, whole

Value = int | str  # an ordered integer, or a text that has no code yet

_NUMBERS = (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL)
_TIMES = (Kind.TIMESTAMP, Kind.DATE)
_KINDS = {
    PredicateType.ARITH: _NUMBERS,
    PredicateType.STRING: (Kind.STRING,),
    PredicateType.BOOL: (Kind.BOOLEAN,),
    PredicateType.TIME: (*_TIMES, *_NUMBERS),
}
_LISTS = "IN takes a list of values, and nothing else does"
_EPOCH = instant(datetime(1970, 1, 1))


class OfField:
    """What the predicates on one field ask together."""

    __slots__ = ("among", "field", "high", "low", "unlike")

    def __init__(self, field: Field) -> None:
        self.field = field
        self.low, self.high = LEAST, GREATEST
        self.among: set[Value] | None = None
        self.unlike: set[Value] | None = None

    def allowed(self) -> set[Value] | None:
        """The values that are left of a set; None: there is no set."""
        if self.among is None or (len(self.among) == 1 and self.unlike is None):
            return self.among
        left = {v for v in self.among if isinstance(v, str) or self.low <= v <= self.high}
        return left if self.unlike is None else left - self.unlike


class Asked:
    """What an atom asks, field by field; `never`: its predicates contradict each other."""

    __slots__ = ("fields", "late", "never")

    def __init__(self) -> None:
        self.fields: dict[int, OfField] = {}
        self.late: list[tuple[Field, str, str]] = []  # operator and text
        self.never = False


class Reader:
    """How predicates of one type, field and operator are read."""

    def __init__(self, predicate: Predicate, field: Field, unit: Unit) -> None:
        self.type = predicate.type
        self.field = field
        self._operator = predicate.operator
        self._interval: Callable[[str, float], Interval | None] = (
            real if field.kind in REAL else whole
        )
        self._of_time = field.kind in _TIMES
        self._scale = 1_000 if unit == "ns" else 1
        self._accepted = self._constants()
        if field.kind not in (*_KINDS[predicate.type], Kind.NULL):
            raise self._misfit(predicate, f"column '{field.column}' is {field.kind.value}")
        if self._operator == "LIKE" and predicate.type is not PredicateType.STRING:
            raise self._misfit(predicate, "LIKE compares texts")
        self.take = self._how_to_take()

    def _constants(self) -> tuple[type, ...]:
        match self.type:
            case PredicateType.STRING:
                return (str,)
            case PredicateType.BOOL:
                return (bool,)
            case PredicateType.TIME if self._of_time:
                return (datetime, date)
            case PredicateType.ARITH | PredicateType.TIME:
                return (int, float)

    def _how_to_take(self) -> Callable[[Predicate, OfField, Asked], bool]:
        """Takes a predicate to what is asked of its field; whether anything can satisfy it."""
        if self.field.kind is Kind.NULL:
            return self._never  # no event has a value there
        if self._operator == "IN":
            return self._one_of
        if self._operator == "!=":
            return self._other_than
        if self.field.kind is not Kind.STRING:
            return self._compared
        return self._same_text if self._operator == "=" else self._late

    def _never(self, predicate: Predicate, _: OfField, __: Asked) -> bool:
        options = predicate.value if isinstance(predicate.value, tuple) else (predicate.value,)
        for option in options:
            self._checked(predicate, option)
        return False

    def _compared(self, predicate: Predicate, part: OfField, _: Asked) -> bool:
        constant = self._checked(predicate, predicate.value)
        if constant is None:
            return False
        interval = self._within(self._operator, constant)
        if interval is None:
            return False
        if interval[0] > part.low:
            part.low = interval[0]
        if interval[1] < part.high:
            part.high = interval[1]
        return part.low <= part.high

    def _same_text(self, predicate: Predicate, part: OfField, _: Asked) -> bool:
        text = self._checked(predicate, predicate.value)
        if not isinstance(text, str):
            return False
        if part.among is None:
            part.among = {text}
            return True
        part.among &= {text}
        return bool(part.among)

    def _one_of(self, predicate: Predicate, part: OfField, _: Asked) -> bool:
        if not isinstance(predicate.value, tuple):
            raise self._misfit(predicate, _LISTS)
        values = {v for option in predicate.value for v in self._equal(predicate, option)}
        part.among = values if part.among is None else part.among & values
        return bool(part.among)

    def _other_than(self, predicate: Predicate, part: OfField, _: Asked) -> bool:
        if predicate.value is None:
            return False
        part.unlike = (part.unlike or set()) | set(self._equal(predicate, predicate.value))
        return True

    def _late(self, predicate: Predicate, _: OfField, asked: Asked) -> bool:
        constant = self._checked(predicate, predicate.value)
        if constant is None:
            return False
        assert isinstance(constant, str)
        asked.late.append((self.field, self._operator, constant))
        return True

    def _equal(self, predicate: Predicate, option: object) -> tuple[Value, ...]:
        """The one value that equals a constant, or none."""
        constant = self._checked(predicate, option)
        if constant is None:
            return ()
        if isinstance(constant, str):
            return (constant,)
        interval = self._within("=", constant)
        return () if interval is None else (interval[0],)

    def _within(self, operator: str, constant: Constant) -> Interval | None:
        if isinstance(constant, date):
            ticks = microseconds(instant(constant) - _EPOCH) * self._scale
            return whole(operator, ticks)
        assert isinstance(constant, int | float)
        return self._interval(operator, constant)

    def _checked(self, predicate: Predicate, constant: object) -> Constant:
        """A constant that fits the column."""
        if constant is None or type(constant) in self._accepted:
            return constant  # type: ignore[return-value]
        if isinstance(constant, tuple):
            raise self._misfit(predicate, _LISTS)
        if isinstance(constant, FieldOf):
            raise self._misfit(predicate, "a field of another event is no constant")
        if isinstance(constant, self._accepted) and not isinstance(constant, bool):
            return constant  # type: ignore[return-value]
        raise self._misfit(predicate, f"{constant!r} is of another kind")

    def _misfit(self, predicate: Predicate, why: str) -> QueryError:
        kind = self.field.kind
        fitting = [t.value for t, kinds in _KINDS.items() if kind in kinds]
        return QueryError(
            f"{predicate.type.value}:{predicate.name} {predicate.operator} ...: {why}",
            hint=f"write {' or '.join(fitting)} with a value of that kind" if fitting else None,
            span=predicate.span,
        )


class Readers:
    """Readers of all predicates met so far.

    NULL satisfies no predicate; NaN satisfies `!=` alone, as everywhere in Ensue.
    """

    def __init__(self, fields: Fields, unit: Unit) -> None:
        self._make = partial(self._new, fields, unit)
        self._known: dict[tuple[str, str], list[Reader]] = {}

    @staticmethod
    def _new(fields: Fields, unit: Unit, predicate: Predicate) -> Reader:
        return Reader(predicate, fields.of(predicate), unit)

    def _of(self, predicate: Predicate) -> Reader:
        known = self._known.setdefault((predicate.name, predicate.operator), [])
        for reader in known:
            if reader.type is predicate.type:
                return reader
        known.append(self._make(predicate))
        return known[-1]

    def read(self, atom: EventTest) -> Asked:
        """What an atom asks; QueryError where a predicate does not fit its column."""
        asked = Asked()
        parts = asked.fields
        for predicate in atom.predicates:
            reader = self._of(predicate)
            part = parts.get(reader.field.number)
            if part is None:
                part = parts[reader.field.number] = OfField(reader.field)
            if not reader.take(predicate, part, asked):
                asked.never = True
        for part in parts.values():
            bounded = part.low != LEAST or part.high != GREATEST or part.unlike is not None
            if bounded and part.among is not None and not part.allowed():
                asked.never = True
        return asked
