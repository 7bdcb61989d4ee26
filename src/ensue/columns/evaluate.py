"""Expressions over whole columns, with exactly the meaning of `algebra.evaluate`."""

from collections.abc import Callable

from ensue.algebra.functions import FUNCTIONS
from ensue.algebra.functions.record import Rewritten
from ensue.algebra.predicate import (
    Aggregate,
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
from ensue.columns import functions, operators
from ensue.columns.arrow_kinds import Unit
from ensue.columns.values import (
    Refused,
    Vector,
    arrow_type,
    constant,
    from_arrow,
    spread,
    to_arrow,
    truth,
)

__all__ = [
    "Lookup", "Refused", "Vector", "arrow_type", "evaluate", "from_arrow", "to_arrow", "truth",
]  # fmt: skip

Lookup = Callable[[Field | Aggregate], Vector]


def evaluate(expr: Expr, lookup: Lookup, length: int, unit: Unit) -> Vector:
    """The values of an expression, given the columns of its fields and aggregates.

    >>> import numpy as np
    >>> from ensue.schema import Kind
    >>> price = Vector(Kind.INTEGER, np.array([1, 5]))
    >>> evaluate(Binary(">", Field("a", "price"), Literal(3)), lambda _: price, 2, "us").values
    array([False,  True])
    """
    return spread(_evaluate(expr, lookup, unit), length)


def _evaluate(expr: Expr, lookup: Lookup, unit: Unit) -> Vector:
    match expr:
        case Literal():
            return constant(expr.value, unit)
        case Field() | Aggregate():
            return lookup(expr)
        case Unary(operator="not", operand=operand):
            return operators.negation(_evaluate(operand, lookup, unit))
        case Unary(operand=operand):
            return operators.minus(_evaluate(operand, lookup, unit))
        case Binary(operator=operator, left=left, right=right):
            found = operators.binary(
                operator, _evaluate(left, lookup, unit), _evaluate(right, lookup, unit)
            )
            return operators.in_years(found, unit)
        case IsNull(operand=operand, negated=negated):
            return operators.is_null(_evaluate(operand, lookup, unit), negated)
        case In(operand=operand, options=options, negated=negated):
            found = operators.is_in(
                _evaluate(operand, lookup, unit), [_evaluate(o, lookup, unit) for o in options]
            )
            return operators.negation(found) if negated else found
        case Between(operand=operand, low=low, high=high, negated=negated):
            value = _evaluate(operand, lookup, unit)
            inside = operators.conjunction(
                operators.binary(">=", value, _evaluate(low, lookup, unit)),
                operators.binary("<=", value, _evaluate(high, lookup, unit)),
            )
            return operators.negation(inside) if negated else inside
        case Like(operand=operand, pattern=pattern, negated=negated):
            found = functions.like(_evaluate(operand, lookup, unit), pattern)
            return operators.negation(found) if negated else found
        case Call(function=function, arguments=arguments):
            form = FUNCTIONS[function].vector
            if isinstance(form, Rewritten):
                return _evaluate(form.by(*arguments), lookup, unit)
            return functions.call(function, [_evaluate(a, lookup, unit) for a in arguments], unit)
