"""Vectorized evaluation of expressions, with exactly the semantics of the interpreter."""

from collections.abc import Callable

from ensue.functions import FUNCTIONS
from ensue.functions.record import RewriteForm
from ensue.ir.expression import (
    Aggregate,
    Between,
    Binary,
    Expr,
    FieldRef,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.vector import operators
from ensue.vector.arrow_types import Unit
from ensue.vector.column_values import (
    Refused,
    Vector,
    arrow_type,
    broadcast,
    create_constant,
    from_arrow,
    to_arrow,
    truth,
)

__all__ = [
    "Lookup", "Refused", "Vector", "arrow_type", "evaluate", "from_arrow", "to_arrow", "truth",
]  # fmt: skip

# values of the fields and aggregates of an expression
Lookup = Callable[[FieldRef | Aggregate], Vector]


def evaluate(expr: Expr, lookup: Lookup, length: int, unit: Unit) -> Vector:
    """Evaluate an expression over the columns of its fields and aggregates.

    >>> import numpy as np
    >>> from ensue.schema import ValueKind
    >>> price = Vector(ValueKind.INTEGER, np.array([1, 5]))
    >>> evaluate(Binary(">", FieldRef("a", "price"), Literal(3)), lambda _: price, 2, "us").values
    array([False,  True])
    """
    return broadcast(_evaluate(expr, lookup, unit), length)


def _evaluate(expr: Expr, lookup: Lookup, unit: Unit) -> Vector:
    match expr:
        case Literal():
            return create_constant(expr.value, unit)
        case FieldRef() | Aggregate():
            return lookup(expr)
        case Unary(operator="not", operand=operand):
            return operators.logical_not(_evaluate(operand, lookup, unit))
        case Unary(operand=operand):
            return operators.negate(_evaluate(operand, lookup, unit))
        case Binary(operator=operator, left=left, right=right):
            result = operators.apply_binary(operator, _evaluate(left, lookup, unit), _evaluate(right, lookup, unit))
            return operators.limit_years(result, unit)
        case IsNull(operand=operand, negated=negated):
            return operators.is_null(_evaluate(operand, lookup, unit), negated)
        case In(operand=operand, options=options, negated=negated):
            result = operators.is_in(_evaluate(operand, lookup, unit), [_evaluate(o, lookup, unit) for o in options])
            return operators.logical_not(result) if negated else result
        case Between(operand=operand, low=low, high=high, negated=negated):
            value = _evaluate(operand, lookup, unit)
            inside = operators.logical_and(
                operators.apply_binary(">=", value, _evaluate(low, lookup, unit)),
                operators.apply_binary("<=", value, _evaluate(high, lookup, unit)),
            )
            return operators.logical_not(inside) if negated else inside
        case Like(operand=operand, pattern=pattern, negated=negated):
            from ensue.vector.functions import match_like

            result = match_like(_evaluate(operand, lookup, unit), pattern)
            return operators.logical_not(result) if negated else result
        case FunctionCall(function=function, arguments=arguments):
            form = FUNCTIONS[function].vector
            if isinstance(form, RewriteForm):
                return _evaluate(form.by(*arguments), lookup, unit)

            from ensue.vector.functions import call_function

            return call_function(function, [_evaluate(a, lookup, unit) for a in arguments], unit)
