"""What SQL converts without being asked: numbers beside texts, whole numbers beside fractions."""

from dataclasses import replace
from datetime import datetime

from ensue.algebra.check.kinds import KindOfField, kind_of
from ensue.algebra.functions import FUNCTIONS
from ensue.algebra.functions.record import Gives, Takes
from ensue.algebra.predicate import COMPARISONS, Between, Binary, Call, Expr, In, Literal
from ensue.algebra.walk import rewrite_expr
from ensue.errors import QueryError
from ensue.schema import Kind

_JOINING = ("concat", "concat_ws")
_INSTANTS = (Kind.TIMESTAMP, Kind.DATE)


def converted(expr: Expr, kind_of_field: KindOfField) -> Expr:
    """An expression with the conversions in it that SQL makes.

    >>> from ensue.algebra.predicate import Field
    >>> converted(Binary("||", Field("", "n"), Literal("x")), lambda _: Kind.INTEGER).left
    Call(function='to_string', arguments=(Field(variable='', name='n', ...),))
    """

    def kind(part: Expr) -> Kind | None:
        try:
            return kind_of(part, kind_of_field)
        except QueryError:  # told when the whole is checked
            return None

    def text(part: Expr) -> Expr:
        found = kind(part)
        if found is None or found not in Takes.PRINTED.kinds or found is Kind.STRING:
            return part
        return Call("to_string", (part,), part.span)

    def beside(part: Expr, *others: Expr) -> Expr:
        """A constant text as the time that it is compared with."""
        if not isinstance(part, Literal) or not isinstance(part.value, str):
            return part
        if not any(kind(other) in _INSTANTS for other in others):
            return part
        try:
            return replace(part, value=datetime.fromisoformat(part.value.strip()))
        except ValueError:
            return part

    def change(node: Expr) -> Expr:
        match node:
            case Binary(operator="||", left=left, right=right):
                return replace(node, left=text(left), right=text(right))
            case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
                return replace(node, left=beside(left, right), right=beside(right, left))
            case Between(operand=operand, low=low, high=high):
                return replace(node, low=beside(low, operand), high=beside(high, operand))
            case In(operand=operand, options=options):
                return replace(node, options=tuple(beside(o, operand) for o in options))
            case Call(function=function, arguments=arguments) if function in _JOINING:
                return replace(node, arguments=tuple(map(text, arguments)))
            case Call(function=function) if FUNCTIONS[function].gives is Gives.SHARED:
                return _shared(node)
            case _:
                return node

    def _shared(node: Call) -> Expr:
        """Values that are chosen from are all of one kind."""
        if kind(node) is not Kind.FLOAT:
            return node
        return replace(
            node,
            arguments=tuple(
                Call("to_float", (a,), a.span) if kind(a) in (Kind.INTEGER, Kind.DECIMAL) else a
                for a in node.arguments
            ),
        )

    return rewrite_expr(expr, change)
