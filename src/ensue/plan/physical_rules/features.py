"""What a kernel knows of an event: features, computed for whole batches before the scan.

A part of a condition that looks at one event only (`lower(b.name)`, `0.8 * a[a.LEN].volume`)
becomes a feature of that event; what is left for the kernel compares numbers.
"""

from dataclasses import replace

from ensue.algebra.check.applied import result_types
from ensue.algebra.check.kinds import kind_of
from ensue.algebra.functions import EARTH_LOCATION, FUNCTIONS, LOCATION
from ensue.algebra.functions.record import OverPoints, Rewritten
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
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.algebra.walk import atoms, kleenes, nodes, references, results, rewrite_expr
from ensue.schema import Kind, Schema

Place = tuple[str, At, int]  # variable, which of its events, number

_POINTS = ("point", "earth_point", LOCATION, EARTH_LOCATION)
KERNEL_KINDS = (
    Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL, Kind.BOOLEAN,
    Kind.TIMESTAMP, Kind.DATE, Kind.DURATION,
)  # fmt: skip


def place_of(expr: Expr) -> Place | None:
    """The one event that an expression looks at, if it is one."""
    if any(isinstance(n, Aggregate) for n in nodes(expr)):
        return None
    places = {
        (r.variable, r.at, r.nth if r.at is At.NTH else 1)
        for r in references(expr)
        if isinstance(r, Field)
    }
    return places.pop() if len(places) == 1 else None


def feature_of(expr: Expr) -> Expr:
    """The expression as one about any event: the same for every variable.

    >>> feature_of(Field("a", "price", At.LAST)) == feature_of(Field("b", "price"))
    True
    """

    def plain(node: Expr) -> Expr:
        if isinstance(node, Field):
            return replace(node, variable="", at=At.ONLY, nth=1, span=None)
        return node

    return rewrite_expr(expr, plain)


def points_of(place: Expr) -> tuple[Expr, ...] | None:
    """The coordinates of the points that a place is the hull of: x, y, x, y.

    None where it may be made of more than points: only columns know its corners.
    """
    match place:
        case Call(function=function, arguments=(x, y)) if function in _POINTS:
            return (x, y)
        case Call(function="hull" | "earth_hull", arguments=parts):
            found: list[Expr] = []
            for part in parts:
                points = points_of(part)
                if points is None:
                    return None
                found += points
            return tuple(found)
        case _:
            return None


class Kinds:
    """The kinds of expressions about the events of a query."""

    def __init__(self, schema: Schema, pattern: Pattern) -> None:
        self._schema = schema
        self._types = {a.variable: a.type for a in atoms(pattern)}
        self.kleene = frozenset(kleenes(pattern))
        self.results = frozenset(a.variable for a in results(pattern))
        self._pattern = pattern

    def field(self, ref: Field) -> Kind:
        if ref.name is None:
            return Kind.OTHER
        if ref.variable in self.results:
            types = {v: self._schema.event_type(t, None) for v, t in self._types.items()}
            made = result_types(self._pattern, types, self._schema)[ref.variable]
            return made.kind_of(ref.name, ref.span, ref.variable)
        name = self._types[ref.variable]
        return self._schema.event_type(name, ref.span).kind_of(ref.name, ref.span, ref.variable)

    def of(self, expr: Expr) -> Kind:
        return kind_of(expr, self.field)


# Aggregates that kernels keep as events come; others are for finished matches.
_RUNNING = ("avg", "sum", "min", "max", "count", "first", "last", "stddev")


def fits_a_kernel(expr: Expr, kinds: Kinds) -> bool:
    """Whether compiled code can judge an expression over several events."""
    kind = kinds.of(expr)
    if place_of(expr) is not None:
        return kind in KERNEL_KINDS
    match expr:
        case Literal(value=value):
            return not isinstance(value, str)
        case Field():
            return False
        case Aggregate(variable=variable) if variable in kinds.results:
            return kind in KERNEL_KINDS
        case Aggregate(function="count", argument=None):
            return True  # of a plain variable: whether it is bound
        case Aggregate(function=function, argument=argument, at=at):
            if expr.variable not in kinds.kleene or function not in _RUNNING:
                return False
            if function == "stddev" and at is At.THROUGH:
                return False
            return argument is None or kinds.of(argument) in KERNEL_KINDS
        case Binary(operator=operator, left=left, right=right):
            if operator in ("=", "!=") and kinds.of(left) is Kind.STRING is kinds.of(right):
                return place_of(left) is not None and place_of(right) is not None
            known = operator in (*COMPARISONS, *ARITHMETIC, "and", "or")
            return known and fits_a_kernel(left, kinds) and fits_a_kernel(right, kinds)
        case Unary(operand=operand) | IsNull(operand=operand):
            return fits_a_kernel(operand, kinds)
        case Between(operand=operand, low=low, high=high):
            return all(fits_a_kernel(e, kinds) for e in (operand, low, high))
        case In(operand=operand, options=options):
            return all(fits_a_kernel(e, kinds) for e in (operand, *options))
        case Call(function=function, arguments=arguments):
            form = FUNCTIONS[function].kernel
            if isinstance(form, Rewritten):
                return fits_a_kernel(form.by(*arguments), kinds)
            if isinstance(form, OverPoints):
                places = [points_of(place) for place in arguments[:2]]
                arguments = arguments[2:]
                for coordinates in places:
                    if coordinates is None:
                        return False
                    arguments += coordinates
            return form is not None and all(fits_a_kernel(e, kinds) for e in arguments)
        case Like():
            return False
