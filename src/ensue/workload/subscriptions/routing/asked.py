"""What an atom asks of each field: an interval, a set of values, and values it must not have."""

from dataclasses import dataclass, field
from datetime import date, datetime

from ensue.algebra.event_test import EventTest
from ensue.algebra.predicate import Constant
from ensue.algebra.subscription import FieldOf, Predicate, PredicateType
from ensue.algebra.values import instant, microseconds
from ensue.columns.arrow_kinds import Unit
from ensue.errors import QueryError
from ensue.schema import Kind
from ensue.workload.subscriptions.routing import ordered
from ensue.workload.subscriptions.routing.fields import REAL, Field, Fields
from ensue.workload.subscriptions.routing.ordered import EVERYTHING, Interval

Value = int | str  # an ordered integer, or a text that has no code yet

_KINDS = {
    PredicateType.ARITH: (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL),
    PredicateType.STRING: (Kind.STRING,),
    PredicateType.BOOL: (Kind.BOOLEAN,),
    PredicateType.TIME: (Kind.TIMESTAMP, Kind.DATE, Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL),
}
_EPOCH = datetime(1970, 1, 1)
_COMPARISONS = ("=", "<", "<=", ">", ">=")


@dataclass(slots=True)
class OfField:
    """What the predicates on one field ask together."""

    low: int = ordered.LEAST
    high: int = ordered.GREATEST
    among: set[Value] | None = None
    unlike: set[Value] = field(default_factory=set)

    def within(self, interval: Interval | None) -> bool:
        """Takes an interval to what is asked; whether anything is left."""
        if interval is None:
            return False
        self.low, self.high = max(self.low, interval[0]), min(self.high, interval[1])
        return self.low <= self.high

    def one_of(self, values: set[Value]) -> bool:
        self.among = values if self.among is None else self.among & values
        return bool(self.among)

    def allowed(self) -> set[Value] | None:
        """The values that are left of a set; None: there is no set."""
        if self.among is None:
            return None
        inside = {v for v in self.among if isinstance(v, str) or self.low <= v <= self.high}
        return inside - self.unlike


@dataclass(slots=True)
class Asked:
    """What an atom asks, field by field; `never`: its predicates contradict each other."""

    fields: dict[Field, OfField] = field(default_factory=dict)
    late: list[tuple[Field, str, str]] = field(default_factory=list)  # operator and text
    never: bool = False


def asked_of(atom: EventTest, fields: Fields, unit: Unit) -> Asked:
    """The predicates of an atom, checked against the columns they name.

    NULL satisfies none; NaN satisfies `!=` alone, as everywhere in Ensue.
    """
    asked = Asked()
    for predicate in atom.predicates:
        column = fields.of(predicate)
        _check(predicate, column)
        part = asked.fields.get(column)
        if part is None:
            part = asked.fields[column] = OfField()
        if not _take(predicate, column, part, asked, unit):
            asked.never = True
    for part in asked.fields.values():
        if part.low > part.high or part.allowed() == set():
            asked.never = True
    return asked


def _take(predicate: Predicate, column: Field, part: OfField, asked: Asked, unit: Unit) -> bool:
    """Takes a predicate to what is asked of its field; whether anything can satisfy it."""
    operator, constant = predicate.operator, predicate.value
    if column.kind is Kind.NULL:
        return False  # no event has a value there
    if isinstance(constant, tuple):
        options = [_values(predicate, column, option, unit) for option in constant]
        return part.one_of(set().union(*options))
    assert not isinstance(constant, FieldOf)
    if constant is None:
        return False
    if operator == "!=":
        part.unlike |= _values(predicate, column, constant, unit)
        return True
    if column.kind is Kind.STRING and operator != "=":
        assert isinstance(constant, str)
        asked.late.append((column, operator, constant))
        return True
    if column.kind is Kind.STRING:
        return part.one_of(_values(predicate, column, constant, unit))
    return part.within(_interval(predicate, column, operator, constant, unit))


def _values(predicate: Predicate, column: Field, constant: Constant, unit: Unit) -> set[Value]:
    """The one value that equals a constant, or none."""
    if constant is None:
        return set()
    if column.kind is Kind.STRING:
        assert isinstance(constant, str)
        return {constant}
    interval = _interval(predicate, column, "=", constant, unit)
    return set() if interval is None else {interval[0]}


def _interval(
    predicate: Predicate, column: Field, operator: str, constant: Constant, unit: Unit
) -> Interval | None:
    if operator not in _COMPARISONS:
        raise _misfit(predicate, column, f"{operator} compares texts")
    if isinstance(constant, date):
        since = microseconds(instant(constant) - instant(_EPOCH))
        return ordered.whole(operator, since * (1_000 if unit == "ns" else 1))
    assert isinstance(constant, int | float)
    return (ordered.real if column.kind in REAL else ordered.whole)(operator, constant)


def _check(predicate: Predicate, column: Field) -> None:
    """A predicate fits its column, and its constants fit both."""
    if column.kind not in (*_KINDS[predicate.type], Kind.NULL):
        raise _misfit(predicate, column, f"column '{column.column}' is {column.kind.value}")
    constants = predicate.value if isinstance(predicate.value, tuple) else (predicate.value,)
    if isinstance(predicate.value, tuple) != (predicate.operator == "IN"):
        raise _misfit(predicate, column, "IN takes a list of values, and nothing else does")
    for constant in constants:
        if constant is None:
            continue
        if isinstance(constant, FieldOf):
            raise _misfit(predicate, column, "a field of another event is no constant")
        if not _fits(predicate, column, constant):
            raise _misfit(predicate, column, f"{constant!r} is of another kind")


def _fits(predicate: Predicate, column: Field, constant: Constant) -> bool:
    match predicate.type:
        case PredicateType.STRING:
            return isinstance(constant, str)
        case PredicateType.BOOL:
            return isinstance(constant, bool)
        case PredicateType.ARITH:
            return isinstance(constant, int | float) and not isinstance(constant, bool)
        case PredicateType.TIME:
            if column.kind in (Kind.TIMESTAMP, Kind.DATE, Kind.NULL):
                return isinstance(constant, date)
            return isinstance(constant, int | float) and not isinstance(constant, bool)


def _misfit(predicate: Predicate, column: Field, why: str) -> QueryError:
    fitting = [t.value for t, kinds in _KINDS.items() if column.kind in kinds]
    hint = f"write {' or '.join(fitting)} with a value of that kind" if fitting else None
    return QueryError(
        f"{predicate.type.value}:{predicate.name} {predicate.operator} ... does not fit: {why}",
        hint=hint,
        span=predicate.span,
    )


__all__ = ["EVERYTHING", "Asked", "OfField", "asked_of"]
