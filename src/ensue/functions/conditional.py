"""Conditional functions, which may see NULL arguments."""

from itertools import pairwise

from ensue.functions.record import CASE, CaseForm, FoldForm, RewriteForm, RoutineForm, ScalarFunction, define
from ensue.ir.expression import Binary, Expr, FunctionCall, IsNull, Literal, Unary
from ensue.ir.values import compare_equal, is_preferred


def _case(*arguments: object) -> object:
    """Returns the value after the first true condition, or the trailing default."""
    for condition, value in list(pairwise(arguments))[::2]:
        if condition is True:
            return value
    return arguments[-1] if len(arguments) % 2 else None


def coalesce_to_false(condition: Expr) -> Expr:
    """Turns an unknown condition into a false one."""
    return FunctionCall("coalesce", (condition, Literal(False)))


def _distinct(left: Expr, right: Expr) -> Expr:
    missing = Binary("and", IsNull(left), IsNull(right))
    return Unary("not", Binary("or", coalesce_to_false(Binary("=", left, right)), missing))


def _unless_equal(value: Expr, other: Expr) -> Expr:
    return FunctionCall(CASE, (Binary("=", value, other), Literal(None), value))


def _extreme(name: str, side: str, sign: str) -> ScalarFunction:
    def extreme(*values: object) -> object:
        best = None
        for value in values:
            if value is not None and (best is None or is_preferred(side, value, best)):
                best = value
        return best

    # any number replaces NaN
    better = f"({{b}} {sign} {{a}} or {{a}} != {{a}})"
    return define(
        f"{name}(any, any...) -> shared",
        extreme,
        RoutineForm(name),
        FoldForm(f"({{b}} if (not {{a_known}}) or ({{b_known}} and {better}) else {{a}})"),
        sees_null=True,
    )


CHOICES = (
    _extreme("least", "min", "<"),
    _extreme("greatest", "max", ">"),
    define(
        "coalesce|ifnull|nvl(any...) -> shared",
        lambda *values: next((value for value in values if value is not None), None),
        RoutineForm("coalesce"),
        FoldForm("({a} if {a_known} else {b})"),
        sees_null=True,
    ),
    define(
        "nullif(any, any) -> first",
        lambda value, other: None if compare_equal(value, other) else value,
        RoutineForm("nullif"),
        RewriteForm(_unless_equal),
        sees_null=True,
    ),
    define(
        f"{CASE}|if|iff(condition, any) -> shared", _case, RoutineForm(CASE), CaseForm(), in_pairs=True, sees_null=True
    ),
    define(
        "is_distinct(any, any) -> boolean",
        lambda left, right: (left is None) != (right is None) or compare_equal(left, right) is False,
        RewriteForm(_distinct),
        RewriteForm(_distinct),
        sees_null=True,
    ),
)
