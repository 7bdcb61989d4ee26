"""Functions that choose among their arguments, NULLs included."""

from ensue.algebra.functions.record import Fold, Function, Gives, Routine, Takes
from ensue.algebra.values import equal, prefers


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
    ),
)
