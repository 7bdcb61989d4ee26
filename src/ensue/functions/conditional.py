"""Conditional functions, which may see NULL arguments."""

from itertools import pairwise

from ensue.functions.record import (
    CASE,
    ArgumentType,
    CaseForm,
    FoldForm,
    ResultType,
    RewriteForm,
    RoutineForm,
    ScalarFunction,
)
from ensue.ir.expression import Binary, Expr, FunctionCall, IsNull, Literal, Unary
from ensue.ir.values import compare_equal, is_preferred
from ensue.schema import ValueKind


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


def _coalesce(*values: object) -> object:
    return next((value for value in values if value is not None), None)


def _nullif(value: object, other: object) -> object:
    return None if compare_equal(value, other) else value


def _extreme(name: str, side: str, sign: str) -> ScalarFunction:
    def extreme(*values: object) -> object:
        best = None
        for value in values:
            if value is not None and (best is None or is_preferred(side, value, best)):
                best = value
        return best

    # any number replaces NaN
    better = f"({{b}} {sign} {{a}} or {{a}} != {{a}})"
    return ScalarFunction(
        name,
        (ArgumentType.ANY, ArgumentType.ANY),
        ResultType.SHARED,
        extreme,
        repeats=True,
        sees_null=True,
        vector=RoutineForm(name),
        kernel=FoldForm(f"({{b}} if (not {{a_known}}) or ({{b_known}} and {better}) else {{a}})"),
    )


CHOICES = (
    _extreme("least", "min", "<"),
    _extreme("greatest", "max", ">"),
    ScalarFunction(
        "coalesce",
        (ArgumentType.ANY,),
        ResultType.SHARED,
        _coalesce,
        repeats=True,
        sees_null=True,
        aliases=("ifnull", "nvl"),
        vector=RoutineForm("coalesce"),
        kernel=FoldForm("({a} if {a_known} else {b})"),
    ),
    ScalarFunction(
        "nullif",
        (ArgumentType.ANY, ArgumentType.ANY),
        ResultType.FIRST,
        _nullif,
        sees_null=True,
        vector=RoutineForm("nullif"),
        kernel=RewriteForm(_unless_equal),
    ),
    ScalarFunction(
        CASE,
        (ArgumentType.CONDITION, ArgumentType.ANY),
        ResultType.SHARED,
        _case,
        in_pairs=True,
        sees_null=True,
        aliases=("if", "iff"),
        vector=RoutineForm(CASE),
        kernel=CaseForm(),
    ),
    ScalarFunction(
        "is_distinct",
        (ArgumentType.ANY, ArgumentType.ANY),
        ValueKind.BOOLEAN,
        lambda left, right: (
            (left is None) != (right is None) or compare_equal(left, right) is False
        ),
        sees_null=True,
        vector=RewriteForm(_distinct),
        kernel=RewriteForm(_distinct),
    ),
)
