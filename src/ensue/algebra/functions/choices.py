"""Functions that choose among their arguments, NULLs included."""

from itertools import pairwise

from ensue.algebra.functions.record import (
    Branches,
    Fold,
    Function,
    Gives,
    Rewritten,
    Routine,
    Takes,
)
from ensue.algebra.predicate import Binary, Call, Expr, IsNull, Literal, Unary
from ensue.algebra.values import equal, prefers
from ensue.schema import Kind

CASE = "case"  # CASE WHEN c THEN x ELSE y END is case(c, x, y)


def _case(*arguments: object) -> object:
    """The value behind the first condition that is true; at the end, what else there is."""
    for condition, value in list(pairwise(arguments))[::2]:
        if condition is True:
            return value
    return arguments[-1] if len(arguments) % 2 else None


def surely(condition: Expr) -> Expr:
    """A condition that is false where it is not known to be true.

    >>> surely(Literal(None))
    Call(function='coalesce', arguments=(Literal(value=None), Literal(value=False)))
    """
    return Call("coalesce", (condition, Literal(False)))


def _distinct(left: Expr, right: Expr) -> Expr:
    missing = Binary("and", IsNull(left), IsNull(right))
    return Unary("not", Binary("or", surely(Binary("=", left, right)), missing))


def _unless_equal(value: Expr, other: Expr) -> Expr:
    return Call(CASE, (Binary("=", value, other), Literal(None), value))


def _coalesce(*values: object) -> object:
    return next((value for value in values if value is not None), None)


def _nullif(value: object, other: object) -> object:
    return None if equal(value, other) else value


def _extreme(name: str, side: str, sign: str) -> Function:
    def extreme(*values: object) -> object:
        best = None
        for value in values:
            if value is not None and (best is None or prefers(side, value, best)):
                best = value
        return best

    # a NaN gives way to any number
    better = f"({{b}} {sign} {{a}} or {{a}} != {{a}})"
    return Function(
        name,
        (Takes.ANY, Takes.ANY),
        Gives.SHARED,
        extreme,
        repeats=True,
        sees_null=True,
        vector=Routine(name),
        kernel=Fold(f"({{b}} if (not {{a_known}}) or ({{b_known}} and {better}) else {{a}})"),
    )


CHOICES = (
    _extreme("least", "min", "<"),
    _extreme("greatest", "max", ">"),
    Function(
        "coalesce",
        (Takes.ANY,),
        Gives.SHARED,
        _coalesce,
        repeats=True,
        sees_null=True,
        aliases=("ifnull", "nvl"),
        vector=Routine("coalesce"),
        kernel=Fold("({a} if {a_known} else {b})"),
    ),
    Function(
        "nullif",
        (Takes.ANY, Takes.ANY),
        Gives.FIRST,
        _nullif,
        sees_null=True,
        vector=Routine("nullif"),
        kernel=Rewritten(_unless_equal),
    ),
    Function(
        CASE,
        (Takes.CONDITION, Takes.ANY),
        Gives.SHARED,
        _case,
        in_pairs=True,
        sees_null=True,
        aliases=("if", "iff"),
        vector=Routine(CASE),
        kernel=Branches(),
    ),
    Function(
        "is_distinct",
        (Takes.ANY, Takes.ANY),
        Kind.BOOLEAN,
        lambda left, right: (left is None) != (right is None) or equal(left, right) is False,
        sees_null=True,
        vector=Rewritten(_distinct),
        kernel=Rewritten(_distinct),
    ),
)
