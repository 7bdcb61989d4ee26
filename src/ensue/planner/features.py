"""Features of events: parts of conditions that are computed per batch before the kernel runs.

A part of a condition that reads only one event (`lower(b.name)`, `0.8 * a[a.LEN].volume`)
becomes a feature of that event; the kernel compares the remaining numbers.
"""

from dataclasses import replace

from ensue.analyzer.types import infer_kind
from ensue.analyzer.user_operators import get_result_types
from ensue.functions import EARTH_LOCATION, FUNCTIONS, LOCATION
from ensue.functions.record import PointsForm, RewriteForm
from ensue.ir import expression
from ensue.ir.expression import Expr
from ensue.ir.pattern import Pattern
from ensue.ir.traversal import (
    get_kleene_variables,
    iterate_atoms,
    iterate_nodes,
    iterate_operator_calls,
    iterate_references,
    rewrite_expr,
)
from ensue.schema import Schema, ValueKind

EventRef = tuple[str, expression.EventPosition, int]  # variable, which of its events, number

_POINTS = ("point", "earth_point", LOCATION, EARTH_LOCATION)
KERNEL_KINDS = (
    ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL, ValueKind.BOOLEAN,
    ValueKind.TIMESTAMP, ValueKind.DATE, ValueKind.DURATION,
)  # fmt: skip


def find_event_ref(expr: Expr) -> EventRef | None:
    """The only event that an expression reads, or None if it reads several or none."""
    if any(isinstance(n, expression.Aggregate) for n in iterate_nodes(expr)):
        return None
    places = {
        (r.variable, r.at, r.nth if r.at is expression.EventPosition.NTH else 1)
        for r in iterate_references(expr)
        if isinstance(r, expression.FieldRef)
    }
    return places.pop() if len(places) == 1 else None


def to_feature(expr: Expr) -> Expr:
    """Rewrites an expression so that it is the same for every variable.

    >>> to_feature(expression.FieldRef("a", "price", expression.EventPosition.LAST)) == to_feature(
    ...     expression.FieldRef("b", "price")
    ... )
    True
    """

    def strip_variable(node: Expr) -> Expr:
        if isinstance(node, expression.FieldRef):
            return replace(node, variable="", at=expression.EventPosition.ONLY, nth=1, span=None)
        return node

    return rewrite_expr(expr, strip_variable)


def get_points(place: Expr) -> tuple[Expr, ...] | None:
    """Coordinates of the points whose hull is a geometry: x, y, x, y.

    None if it may have other parts than points: only columns hold its corners.
    """
    match place:
        case expression.FunctionCall(function=function, arguments=(x, y)) if function in _POINTS:
            return (x, y)
        case expression.FunctionCall(function="hull" | "earth_hull", arguments=parts):
            coordinates: list[Expr] = []
            for part in parts:
                points = get_points(part)
                if points is None:
                    return None
                coordinates += points
            return tuple(coordinates)
        case _:
            return None


class KindResolver:
    """Resolves the kinds of expressions over the events of a query."""

    def __init__(self, schema: Schema, pattern: Pattern) -> None:
        self._schema = schema
        self._types = {a.variable: a.type for a in iterate_atoms(pattern)}
        self.kleene = frozenset(get_kleene_variables(pattern))
        self.results = frozenset(a.variable for a in iterate_operator_calls(pattern))
        self._pattern = pattern

    def field(self, ref: expression.FieldRef) -> ValueKind:
        if ref.name is None:
            return ValueKind.OTHER
        if ref.variable in self.results:
            types = {v: self._schema.event_type(t, None) for v, t in self._types.items()}
            result = get_result_types(self._pattern, types, self._schema)[ref.variable]
            return result.get_kind(ref.name, ref.span, ref.variable)
        name = self._types[ref.variable]
        return self._schema.event_type(name, ref.span).get_kind(ref.name, ref.span, ref.variable)

    def get_kind(self, expr: Expr) -> ValueKind:
        return infer_kind(expr, self.field)


# Aggregates that kernels update per event; others are computed on complete matches.
_RUNNING = ("avg", "sum", "min", "max", "count", "first", "last", "stddev")


def is_compilable(expr: Expr, kinds: KindResolver) -> bool:
    """Whether compiled code can evaluate an expression over several events."""
    kind = kinds.get_kind(expr)
    if find_event_ref(expr) is not None:
        return kind in KERNEL_KINDS
    match expr:
        case expression.Literal(value=value):
            return not isinstance(value, str)
        case expression.FieldRef():
            return False
        case expression.Aggregate(variable=variable) if variable in kinds.results:
            return kind in KERNEL_KINDS
        case expression.Aggregate(function="count", argument=None):
            return True  # a plain variable: whether it is bound
        case expression.Aggregate(function=function, argument=argument, at=at):
            if expr.variable not in kinds.kleene or function not in _RUNNING:
                return False
            if function == "stddev" and at is expression.EventPosition.THROUGH:
                return False
            return argument is None or kinds.get_kind(argument) in KERNEL_KINDS
        case expression.Binary(operator=operator, left=left, right=right):
            if operator in ("=", "!=") and kinds.get_kind(left) is ValueKind.STRING is kinds.get_kind(right):
                return find_event_ref(left) is not None and find_event_ref(right) is not None
            supported = operator in (*expression.COMPARISONS, *expression.ARITHMETIC, "and", "or")
            return supported and is_compilable(left, kinds) and is_compilable(right, kinds)
        case expression.Unary(operand=operand) | expression.IsNull(operand=operand):
            return is_compilable(operand, kinds)
        case expression.Between(operand=operand, low=low, high=high):
            return all(is_compilable(e, kinds) for e in (operand, low, high))
        case expression.In(operand=operand, options=options):
            return all(is_compilable(e, kinds) for e in (operand, *options))
        case expression.FunctionCall(function=function, arguments=arguments):
            form = FUNCTIONS[function].kernel
            if isinstance(form, RewriteForm):
                return is_compilable(form.by(*arguments), kinds)
            if isinstance(form, PointsForm):
                places = [get_points(place) for place in arguments[:2]]
                arguments = arguments[2:]
                for coordinates in places:
                    if coordinates is None:
                        return False
                    arguments += coordinates
            return form is not None and all(is_compilable(e, kinds) for e in arguments)
        case expression.Like():
            return False
