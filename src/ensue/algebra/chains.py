"""Chains of `and` and of `or`, as trees shallow enough to walk."""

from collections.abc import Sequence

from ensue.algebra.predicate import Binary, Expr

_STRAIGHT = 16  # longer chains are halved, so that a thousand alternatives are ten levels more


def chain(operator: str, operands: Sequence[Expr]) -> Expr:
    """The operands joined: from the left while they are few, in halves when they are many.

    >>> from ensue.algebra.predicate import Literal
    >>> a, b, c = Literal(True), Literal(False), Literal(None)
    >>> chain("or", [a, b, c]) == Binary("or", Binary("or", a, b), c)
    True
    """
    if len(operands) > _STRAIGHT:
        half = len(operands) // 2
        left, right = operands[:half], operands[half:]
        return _joined(operator, chain(operator, left), chain(operator, right))
    joined = operands[0]
    for operand in operands[1:]:
        joined = _joined(operator, joined, operand)
    return joined


def links(operator: str, expr: Expr) -> list[Expr]:
    """The operands of a chain, whatever its shape.

    >>> from ensue.algebra.predicate import Literal
    >>> [e.value for e in links("or", chain("or", [Literal(n) for n in range(40)]))][-1]
    39
    """
    if isinstance(expr, Binary) and expr.operator == operator:
        return links(operator, expr.left) + links(operator, expr.right)
    return [expr]


def _joined(operator: str, left: Expr, right: Expr) -> Binary:
    return Binary(operator, left, right, left.span.to(right.span) if left.span else None)
