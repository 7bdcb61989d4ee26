"""Query templates: queries without their constants.

Queries that differ in numbers and strings only have one template. There, each constant is a field
of the event that it is compared with, so that one plan matches all of them: the operator adds the
constants of its query to every event.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ensue.analyzer.types import infer_kind
from ensue.functions import FUNCTIONS
from ensue.ir.expression import (
    ARITHMETIC,
    COMPARISONS,
    Aggregate,
    Between,
    Binary,
    EventPosition,
    Expr,
    FieldRef,
    FunctionCall,
    In,
    Literal,
    Unary,
)
from ensue.ir.pattern import Pattern
from ensue.ir.query import Equivalence, Query
from ensue.ir.traits import NodeForm, get_form, get_parts, is_event, is_list
from ensue.ir.traversal import get_kleene_variables, iterate_atoms, iterate_nodes, replace_operands
from ensue.ir.values import MAX_EXACT_INTEGER
from ensue.schema import Schema, ValueKind

SUBSCRIPTION = "__subscription"  # the column with the subscription of a row
CONSTANT = "__constant."  # prefix of columns of constants

# For these, a condition reads the same event wherever it is evaluated.
_ALONE = (EventPosition.ONLY, EventPosition.CURRENT)
_OF_ONE = (EventPosition.ONLY, EventPosition.CURRENT, EventPosition.PREVIOUS, EventPosition.NTH, EventPosition.LAST)


@dataclass(frozen=True, slots=True)
class ExtractedTemplate:
    """A query without its constants, and the constants."""

    query: Query
    kinds: tuple[ValueKind, ...]
    values: tuple[int | float | str, ...]


def get_constant_name(number: int) -> str:
    """The column of a constant."""
    return f"{CONSTANT}{number}"


def get_constant_number(name: str | None) -> int | None:
    """The constant that a column holds; None: it is a column of the events.

    >>> get_constant_number("__constant.3"), get_constant_number("price")
    (3, None)
    """
    if name is None or not name.startswith(CONSTANT):
        return None
    return int(name.removeprefix(CONSTANT))


def keep_constants(query: Query) -> ExtractedTemplate:
    """The query as its own template: all constants stay."""
    return ExtractedTemplate(_without_name(query), (), ())


def extract_constants(query: Query, schema: Schema) -> ExtractedTemplate:
    """Extracts the constants of an analyzed query.

    Only numbers and strings in WHERE that are compared with a field or an aggregate are constants.
    Window lengths stay, and so do conditions on time, from which windows are derived.
    """
    extractor = _ConstantExtractor(query, schema)
    where = tuple(c if extractor.reads_time(c) else extractor.condition(c) for c in query.where)
    return ExtractedTemplate(
        replace(_without_name(query), where=where), tuple(extractor.kinds), tuple(extractor.values)
    )


def add_subscription_key(query: Query) -> Query:
    """The query over the rows of many subscriptions: a match has rows of one subscription only."""
    return replace(query, equivalence=(Equivalence(SUBSCRIPTION), *query.equivalence))


def _without_name(query: Query) -> Query:
    return replace(query, name=None, text=None)


class _ConstantExtractor:
    """Replaces constants in conditions by fields."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self.kinds: list[ValueKind] = []
        self.values: list[int | float | str] = []
        self._types = {a.variable: schema.event_type(a.type, a.span) for a in iterate_atoms(query.pattern)}
        self._times = {schema.start, schema.end}
        lists = get_kleene_variables(query.pattern)
        self._lists = {v for v in _always(query.pattern) if v in lists and lists[v].least >= 1}

    def reads_time(self, condition: Expr) -> bool:
        return any(isinstance(n, FieldRef) and n.name in self._times for n in iterate_nodes(condition))

    def condition(self, expr: Expr) -> Expr:
        match expr:
            case Binary(operator="and" | "or", left=left, right=right):
                return replace(expr, left=self.condition(left), right=self.condition(right))
            case Unary(operator="not", operand=operand):
                return replace(expr, operand=self.condition(operand))
            case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
                return self._extract(expr, (left, right))
            case Between(operand=operand, low=low, high=high):
                return self._extract(expr, (operand, low, high))
            case In(operand=operand, options=options):
                return self._extract(expr, (operand, *options))
            case _:
                return expr

    def _extract(self, expr: Expr, sides: tuple[Expr, ...]) -> Expr:
        """A comparison is NULL if an event is missing, so the constant may be missing, too."""
        if not all(map(_is_strict, sides)):
            return expr
        if _is_text(sides) and self._kind(sides[0]) is ValueKind.STRING:
            return replace_operands(expr, tuple(self._text(sides[0], side) for side in sides))
        kinds = [self._kind(n) for side in sides for n in _leaves(side)]
        if not all(kind in (ValueKind.INTEGER, ValueKind.FLOAT) for kind in kinds):
            return expr
        # IN and BETWEEN are NULL if their operand is, but not if another side is
        carriers = sides if isinstance(expr, Binary) else sides[:1]
        carrier = next((c for side in carriers if (c := self._carrier(side)) is not None), None)
        if carrier is None:
            return expr
        real = [self._kind(side) is ValueKind.FLOAT for side in sides if not isinstance(side, Literal)]
        operands = tuple(self._number(side, carrier, exact=not all(real)) for side in sides)
        return replace_operands(expr, operands)

    def _kind(self, expr: Expr) -> ValueKind:
        def kind(field: FieldRef) -> ValueKind:
            assert field.name is not None
            return self._types[field.variable].get_kind(field.name, field.span, field.variable)

        return infer_kind(expr, kind)

    def _text(self, field: Expr, side: Expr) -> Expr:
        if not isinstance(side, Literal):
            return side
        assert isinstance(field, FieldRef)
        assert isinstance(side.value, str)
        return self._add_constant(ValueKind.STRING, side.value, field)

    def _number(self, expr: Expr, carrier: FieldRef, *, exact: bool) -> Expr:
        """An expression whose numbers are fields of an event that is bound where they are read."""
        match expr:
            case Literal(value=bool()):
                return expr
            case Literal(value=float(value)):
                return self._add_constant(ValueKind.FLOAT, value, carrier)
            case Literal(value=int(value)) if not exact and abs(value) <= MAX_EXACT_INTEGER:
                return self._add_constant(ValueKind.FLOAT, float(value), carrier)
            case Literal(value=int(value)) if -(2**63) <= value < 2**63:
                return self._add_constant(ValueKind.INTEGER, value, carrier)
            case Binary(left=left, right=right):
                first = self._number(left, self._carrier(right) or carrier, exact=True)
                second = self._number(right, self._carrier(left) or carrier, exact=True)
                return replace(expr, left=first, right=second)
            case Unary(operand=operand):
                return replace(expr, operand=self._number(operand, carrier, exact=True))
            case _:
                return expr

    def _add_constant(self, kind: ValueKind, value: int | float | str, carrier: FieldRef) -> FieldRef:
        self.kinds.append(kind)
        self.values.append(value)
        return replace(carrier, name=get_constant_name(len(self.values) - 1))

    def _carrier(self, expr: Expr) -> FieldRef | None:
        """An event that is bound if an expression has a value, and missing only if it is NULL."""
        for leaf in _leaves(expr):
            match leaf:
                case FunctionCall(arguments=arguments):
                    carriers = (c for a in arguments if (c := self._carrier(a)) is not None)
                    if (carrier := next(carriers, None)) is not None:
                        return carrier
                case FieldRef(at=at) if at in _OF_ONE:
                    return replace(leaf, span=None)
                case Aggregate(variable=variable, at=EventPosition.ALL) if variable in self._lists:
                    return FieldRef(variable, None, EventPosition.LAST)
                case Aggregate(variable=variable, at=EventPosition.THROUGH | EventPosition.BEFORE):
                    return FieldRef(variable, None, EventPosition.CURRENT)
                case _:
                    continue
        return None


def _is_strict(expr: Expr) -> bool:
    """Whether an expression is NULL if one of its fields is."""
    match expr:
        case FieldRef(name=str()) | Aggregate() | Literal():
            return True
        case Binary(operator=operator, left=left, right=right) if operator in ARITHMETIC:
            return _is_strict(left) and _is_strict(right)
        case Unary(operator="-", operand=operand):
            return _is_strict(operand)
        case FunctionCall(function=function, arguments=arguments):
            return not FUNCTIONS[function].sees_null and all(map(_is_strict, arguments))
        case _:
            return False


def _leaves(expr: Expr) -> Iterator[Expr]:
    """The operands of a strict expression: fields, constants and function calls."""
    match expr:
        case Binary(left=left, right=right):
            yield from _leaves(left)
            yield from _leaves(right)
        case Unary(operand=operand):
            yield from _leaves(operand)
        case _:
            yield expr


def _is_text(sides: tuple[Expr, ...]) -> bool:
    """Whether a string of one event is compared with constants."""
    first, *others = sides
    match first:
        case FieldRef(at=at, nth=nth) if at in _ALONE or (at is EventPosition.NTH and nth == 1):
            return all(isinstance(o, Literal) and isinstance(o.value, str) for o in others)
        case _:
            return False


def _always(pattern: Pattern) -> Iterator[str]:
    """The variables that every match binds."""
    if is_event(pattern):
        yield pattern.variable
    elif is_list(pattern):
        yield pattern.atom.variable
    elif get_form(pattern) in (NodeForm.SEQUENCE, NodeForm.TOGETHER):
        for part in get_parts(pattern):
            yield from _always(part)
