"""Values of parameters in syntax trees of SQL: `:low`, `x IN :names`."""

from datetime import datetime, timedelta

from sqlglot import exp

from ensue.algebra.predicate import Constant
from ensue.languages.parameters import Parameters, several_values
from ensue.span import Span


def filled(tree: exp.Expr, parameters: Parameters, offset: int) -> exp.Expr:
    """The tree with constants in place of parameters; a list stands behind IN.

    `offset` is where the text of the tree begins in the text of errors.
    """
    for place in list(tree.find_all(exp.Placeholder)):
        if not isinstance(place.this, str) or "start" not in place.meta:
            continue  # a question mark
        span = Span(place.meta["start"] + offset, place.meta["end"] + 1 + offset)
        found = parameters.constants(place.name, span)
        several = found if isinstance(found, list) else [found]
        made = [_node(value, place) for value in several]
        owner, key = place.parent, place.arg_key
        if isinstance(owner, exp.In) and key == "field":  # x IN :names
            owner.set("field", None)
            owner.set("expressions", made)
        elif isinstance(owner, exp.In) and key == "expressions":  # x IN (:names)
            options = [
                one
                for option in owner.expressions
                for one in (made if option is place else [option])
            ]
            owner.set("expressions", options)
        elif isinstance(found, list):
            raise several_values(place.name, span)
        elif owner is None:
            return made[0]
        else:
            place.replace(made[0])
    return tree


def _node(value: Constant, place: exp.Expr) -> exp.Expr:
    made = _constant(value)
    told = made.this if isinstance(made, exp.Cast) else made  # a cast with a place is a CAST
    told.meta.update(start=place.meta["start"], end=place.meta["end"])
    return made


def _constant(value: Constant) -> exp.Expr:
    match value:
        case None:
            return exp.Null()
        case bool():
            return exp.Boolean(this=value)
        case str():
            return exp.Literal.string(value)
        case int() | float():
            digits = exp.Literal.number(repr(abs(value)))
            return exp.Neg(this=digits) if repr(value).startswith("-") else digits
        case datetime():
            moment = exp.Literal.string(value.isoformat(sep=" "))
            return exp.Cast(this=moment, to=exp.DataType.build("TIMESTAMP"))
        case timedelta():
            length = value // timedelta(microseconds=1)
            return exp.Interval(this=exp.Literal.string(str(length)), unit=exp.var("MICROSECOND"))
