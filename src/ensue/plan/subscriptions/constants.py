"""The shape of a query: the query with its constants taken out.

Queries that differ in numbers and texts only have one shape. In it each constant is a field of
the event that it is compared with, so that one plan matches all of them: whoever feeds the plan
gives every event the constants of the query that it is for.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ensue.algebra.check.kinds import kind_of
from ensue.algebra.form import Form, form, is_event, is_list, parts
from ensue.algebra.functions import FUNCTIONS
from ensue.algebra.pattern import Pattern
from ensue.algebra.predicate import (
    ARITHMETIC,
    COMPARISONS,
    Aggregate,
    At,
    Between,
    Binary,
    Call,
    Expr,
    Field,
    In,
    Literal,
    Unary,
)
from ensue.algebra.query import Equivalence, Query
from ensue.algebra.values import EXACT
from ensue.algebra.walk import atoms, kleenes, nodes, with_operands
from ensue.schema import Kind, Schema

SUBSCRIPTION = "__subscription"  # the column that says whose a row is
CONSTANT = "__constant."  # what columns of constants begin with

# Of these every row of a query has the same event wherever the condition is judged.
_ALONE = (At.ONLY, At.CURRENT)
_OF_ONE = (At.ONLY, At.CURRENT, At.PREVIOUS, At.NTH, At.LAST)


@dataclass(frozen=True, slots=True)
class Shaped:
    """A query without its constants, and the constants."""

    query: Query
    kinds: tuple[Kind, ...]
    values: tuple[int | float | str, ...]


def constant_name(number: int) -> str:
    """The column of a constant."""
    return f"{CONSTANT}{number}"


def constant_number(name: str | None) -> int | None:
    """Which constant a column holds; None: it is a column of the events.

    >>> constant_number("__constant.3"), constant_number("price")
    (3, None)
    """
    if name is None or not name.startswith(CONSTANT):
        return None
    return int(name.removeprefix(CONSTANT))


def unshaped(query: Query) -> Shaped:
    """The query as its own shape: all constants stay."""
    return Shaped(_nameless(query), (), ())


def shaped(query: Query, schema: Schema) -> Shaped:
    """A checked query, with its constants taken out.

    Only numbers and texts that a field or an aggregate is compared with, in WHERE, are constants.
    Lengths of windows stay, and so do conditions on time, from which windows are derived.
    """
    found = _Taken(query, schema)
    where = tuple(found.condition(c) if not found.of_time(c) else c for c in query.where)
    return Shaped(replace(_nameless(query), where=where), tuple(found.kinds), tuple(found.values))


def keyed(query: Query) -> Query:
    """The query over the rows of many: those of one match are of one subscription."""
    return replace(query, equivalence=(Equivalence(SUBSCRIPTION), *query.equivalence))


def _nameless(query: Query) -> Query:
    return replace(query, name=None, text=None)


class _Taken:
    """Takes constants out of conditions."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self.kinds: list[Kind] = []
        self.values: list[int | float | str] = []
        self._types = {a.variable: schema.event_type(a.type, a.span) for a in atoms(query.pattern)}
        self._times = {schema.start, schema.end}
        lists = kleenes(query.pattern)
        self._lists = {v for v in _always(query.pattern) if v in lists and lists[v].least >= 1}

    def of_time(self, condition: Expr) -> bool:
        return any(isinstance(n, Field) and n.name in self._times for n in nodes(condition))

    # ------------------------------------------------------------------------ conditions

    def condition(self, expr: Expr) -> Expr:
        match expr:
            case Binary(operator="and" | "or", left=left, right=right):
                return replace(expr, left=self.condition(left), right=self.condition(right))
            case Unary(operator="not", operand=operand):
                return replace(expr, operand=self.condition(operand))
            case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
                return self._compared(expr, (left, right))
            case Between(operand=operand, low=low, high=high):
                return self._compared(expr, (operand, low, high))
            case In(operand=operand, options=options):
                return self._compared(expr, (operand, *options))
            case _:
                return expr

    def _compared(self, expr: Expr, sides: tuple[Expr, ...]) -> Expr:
        """A comparison. It is NULL where an event is missing, so the constant may be, too."""
        if not all(map(_strict, sides)):
            return expr
        if _is_text(sides) and self._kind(sides[0]) is Kind.STRING:
            return with_operands(expr, tuple(self._text(sides[0], side) for side in sides))
        kinds = [self._kind(n) for side in sides for n in _leaves(side)]
        if not all(kind in (Kind.INTEGER, Kind.FLOAT) for kind in kinds):
            return expr
        # IN and BETWEEN are NULL wherever their operand is, but not wherever another side is
        among = sides if isinstance(expr, Binary) else sides[:1]
        carrier = next((c for side in among if (c := self._carrier(side)) is not None), None)
        if carrier is None:
            return expr
        real = [self._kind(side) is Kind.FLOAT for side in sides if not isinstance(side, Literal)]
        given = tuple(self._number(side, carrier, exact=not all(real)) for side in sides)
        return with_operands(expr, given)

    def _kind(self, expr: Expr) -> Kind:
        def kind(field: Field) -> Kind:
            assert field.name is not None
            return self._types[field.variable].kind_of(field.name, field.span, field.variable)

        return kind_of(expr, kind)

    # ------------------------------------------------------------------------ constants

    def _text(self, field: Expr, side: Expr) -> Expr:
        if not isinstance(side, Literal):
            return side
        assert isinstance(field, Field)
        assert isinstance(side.value, str)
        return self._out(Kind.STRING, side.value, field)

    def _number(self, expr: Expr, carrier: Field, *, exact: bool) -> Expr:
        """An expression whose numbers are fields of an event that is known where they are."""
        match expr:
            case Literal(value=bool()):
                return expr
            case Literal(value=float(value)):
                return self._out(Kind.FLOAT, value, carrier)
            case Literal(value=int(value)) if not exact and abs(value) <= EXACT:
                return self._out(Kind.FLOAT, float(value), carrier)
            case Literal(value=int(value)) if -(2**63) <= value < 2**63:
                return self._out(Kind.INTEGER, value, carrier)
            case Binary(left=left, right=right):
                first = self._number(left, self._carrier(right) or carrier, exact=True)
                second = self._number(right, self._carrier(left) or carrier, exact=True)
                return replace(expr, left=first, right=second)
            case Unary(operand=operand):
                return replace(expr, operand=self._number(operand, carrier, exact=True))
            case _:
                return expr

    def _out(self, kind: Kind, value: int | float | str, carrier: Field) -> Field:
        self.kinds.append(kind)
        self.values.append(value)
        return replace(carrier, name=constant_name(len(self.values) - 1))

    def _carrier(self, expr: Expr) -> Field | None:
        """An event that is known once an expression is, and missing only where it is NULL."""
        for leaf in _leaves(expr):
            match leaf:
                case Call(arguments=arguments):
                    found = (c for a in arguments if (c := self._carrier(a)) is not None)
                    if (carrier := next(found, None)) is not None:
                        return carrier
                case Field(at=at) if at in _OF_ONE:
                    return replace(leaf, span=None)
                case Aggregate(variable=variable, at=At.ALL) if variable in self._lists:
                    return Field(variable, None, At.LAST)
                case Aggregate(variable=variable, at=At.THROUGH | At.BEFORE):
                    return Field(variable, None, At.CURRENT)
                case _:
                    continue
        return None


def _strict(expr: Expr) -> bool:
    """Whether an expression is NULL wherever one of its fields is."""
    match expr:
        case Field(name=str()) | Aggregate() | Literal():
            return True
        case Binary(operator=operator, left=left, right=right) if operator in ARITHMETIC:
            return _strict(left) and _strict(right)
        case Unary(operator="-", operand=operand):
            return _strict(operand)
        case Call(function=function, arguments=arguments):
            return not FUNCTIONS[function].sees_null and all(map(_strict, arguments))
        case _:
            return False


def _leaves(expr: Expr) -> Iterator[Expr]:
    """What a strict expression computes with, down to fields, constants and functions."""
    match expr:
        case Binary(left=left, right=right):
            yield from _leaves(left)
            yield from _leaves(right)
        case Unary(operand=operand):
            yield from _leaves(operand)
        case _:
            yield expr


def _is_text(sides: tuple[Expr, ...]) -> bool:
    """Whether the text of one event is compared with constants."""
    first, *others = sides
    match first:
        case Field(at=at, nth=nth) if at in _ALONE or (at is At.NTH and nth == 1):
            return all(isinstance(o, Literal) and isinstance(o.value, str) for o in others)
        case _:
            return False


def _always(pattern: Pattern) -> Iterator[str]:
    """The variables that every match binds."""
    if is_event(pattern):
        yield pattern.variable
    elif is_list(pattern):
        yield pattern.atom.variable
    elif form(pattern) in (Form.SEQUENCE, Form.TOGETHER):
        for part in parts(pattern):
            yield from _always(part)
