"""What the variables of a pattern ask of one event, as atoms that events are routed to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ensue.algebra.event_test import EventTest
from ensue.algebra.predicate import (
    COMPARISONS,
    Between,
    Binary,
    Constant,
    Expr,
    Field,
    In,
    Literal,
)
from ensue.algebra.subscription import Predicate, PredicateType
from ensue.columns.arrow_kinds import fields_of
from ensue.columns.stream import Shape
from ensue.plan.physical import Plan, Role
from ensue.plan.subscriptions.constants import constant_number
from ensue.schema import ANY, Kind, names_of

_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TYPES = {
    Kind.INTEGER: PredicateType.ARITH,
    Kind.FLOAT: PredicateType.ARITH,
    Kind.STRING: PredicateType.STRING,
    Kind.BOOLEAN: PredicateType.BOOL,
}
EVERY_EVENT = EventTest(())

Slot = int  # the number of a constant
Values = Sequence[int | float | str]


@dataclass(frozen=True, slots=True)
class Asks:
    """A predicate, some of whose values are constants of the subscription."""

    type: PredicateType
    column: str
    operator: str
    values: tuple[Literal | Slot, ...]

    def of(self, constants: Values) -> Predicate:
        found: tuple[Constant, ...] = tuple(
            value.value if isinstance(value, Literal) else constants[value]
            for value in self.values
        )
        given = found if self.operator == "IN" else found[0]
        return Predicate(self.type, self.column, self.operator, given)


@dataclass(frozen=True, slots=True)
class AtomsOf:
    """The atoms of all subscriptions of one shape: an event that is of none is in no match.

    What cannot be asked of one event by itself is left to the plan.
    """

    variables: tuple[tuple[Asks, ...], ...]

    def of(self, constants: Values) -> list[EventTest]:
        """The different atoms of a subscription with these constants."""
        tests = (tuple(asks.of(constants) for asks in asked) for asked in self.variables)
        return [EventTest(predicates) for predicates in dict.fromkeys(tests)]


def atoms_of(plan: Plan, shape: Shape) -> AtomsOf:
    """What the roles of a plan ask of one event."""
    kinds = fields_of(shape.arrow)
    found = []
    for role in _roles(plan):
        asked = [asks for c in role.conditions for asks in _asked(c, kinds)]
        column = shape.schema.type_column
        typed = shape.schema.typed and column is not None and kinds[column] is Kind.STRING
        if column is None or not typed or role.type == ANY:
            found.append(tuple(asked))
            continue
        for name in names_of(role.type):
            of_type = Asks(PredicateType.STRING, column, "=", (Literal(name),))
            found.append((of_type, *asked))
    return AtomsOf(tuple(dict.fromkeys(found)))


def _roles(plan: Plan) -> Iterator[Role]:
    for role in plan.roles:
        if role.inner is None:
            yield role
        else:
            yield from _roles(role.inner)


def _asked(condition: Expr, kinds: dict[str, Kind]) -> Iterator[Asks]:
    match condition:
        case Binary(operator="and", left=left, right=right):
            yield from _asked(left, kinds)
            yield from _asked(right, kinds)
        case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
            yield from _compared(left, operator, right, kinds)
            yield from _compared(right, _FLIPPED[operator], left, kinds)
        case Between(operand=operand, low=low, high=high, negated=False):
            yield from _compared(operand, ">=", low, kinds)
            yield from _compared(operand, "<=", high, kinds)
        case In(operand=Field(name=str(name)), options=options, negated=False):
            values = tuple(v for o in options if (v := _value(o, kinds.get(name))) is not None)
            if len(values) == len(options):
                yield Asks(_TYPES[kinds[name]], name, "IN", values)
        case _:
            return


def _compared(left: Expr, operator: str, right: Expr, kinds: dict[str, Kind]) -> Iterator[Asks]:
    match left:
        case Field(name=str(name)) if constant_number(name) is None:
            kind = kinds.get(name)
            value = _value(right, kind)
            plain = operator in ("=", "!=") or kind in (Kind.INTEGER, Kind.FLOAT)
            if value is not None and plain:
                assert kind is not None
                yield Asks(_TYPES[kind], name, operator, (value,))
        case _:
            return


def _value(expr: Expr, kind: Kind | None) -> Literal | Slot | None:
    """What a field of a kind is compared with, if it is one value that routing can look for."""
    if kind not in _TYPES:
        return None
    match expr:
        case Field(name=name):
            return constant_number(name)
        case Literal(value=bool()):
            return Literal(expr.value) if kind is Kind.BOOLEAN else None
        case Literal(value=str()):
            return Literal(expr.value) if kind is Kind.STRING else None
        case Literal(value=int() | float()):
            return Literal(expr.value) if kind in (Kind.INTEGER, Kind.FLOAT) else None
        case _:
            return None
