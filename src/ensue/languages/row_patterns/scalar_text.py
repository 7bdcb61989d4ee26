"""Expressions as SQL writes them."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from ensue.algebra.chains import chain, links
from ensue.algebra.durations import show_duration
from ensue.algebra.predicate import (
    COMPARISONS,
    Aggregate,
    Between,
    Binary,
    Call,
    Constant,
    Expr,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words that would not be read as names where a column or a variable stands.
_RESERVED = re.compile(
    r"after|all|alter|and|as|asc|between|by|call|case|classifier|create|cross|current|define"
    r"|desc|distinct|drop|else|end|escape|except|exclude|execute|explain|false|fetch|filter"
    r"|final|for|from|glob|grant|group|having|ilike|in|inner|insert|intersect|interval|into|is"
    r"|join|lateral|like|limit|match|match_number|match_recognize|measures|not|notnull|null"
    r"|nulls|offset|on|one|optimize|or|order|outer|over|partition|partitioned_by|pattern"
    r"|permute|prepare|qualify|regexp|rename|returning|revoke|rlike|rollback|row|rows|running"
    r"|select|show|skip|subset|tablesample|then|true|uncache|union|unknown|using|vacuum|values"
    r"|when|where|with|within|xor",
    re.IGNORECASE,
)
# How tightly an expression holds together; an operand that is looser goes into parentheses.
_OR, _AND, _NOT, _COMPARISON, _JOINED, _SUM, _PRODUCT, _SIGNED, _VALUE = range(9)
_TIGHTNESS = {"||": _JOINED, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}

Leaf = Callable[[Field], str]


def is_reserved(word: str) -> bool:
    """Whether a word needs quotes to be a name.

    >>> is_reserved("SELECT"), is_reserved("price")
    (True, False)
    """
    return _RESERVED.fullmatch(word) is not None


def show_name(name: str) -> str:
    """A name of a column, quoted if it would not be read as one.

    >>> print(show_name("price"), show_name("unit price"), show_name("Select"))
    price "unit price" "Select"
    """
    if _NAME.fullmatch(name) and not is_reserved(name):
        return name
    return '"' + name.replace('"', '""') + '"'


def show_variable(name: str) -> str:
    """A name of a variable, which is quoted unless it is in upper case.

    >>> print(show_variable("UP"), show_variable("Up"))
    UP "Up"
    """
    shown = show_name(name)
    return shown if shown.startswith('"') or name == name.upper() else f'"{name}"'


def show_scalar(expr: Expr, leaf: Leaf, inside: int = _OR) -> str:
    """An expression; `leaf` shows its fields, `inside` is how tightly what is around it holds.

    >>> show_scalar(
    ...     Binary("*", Binary("+", Field("", "x"), Literal(1)), Literal(2)), lambda _: "x"
    ... )
    '(x + 1) * 2'
    """
    text, tightness = _shown(expr, leaf)
    return f"({text})" if tightness < inside else text


def _shown(expr: Expr, leaf: Leaf) -> tuple[str, int]:
    def show(operand: Expr, inside: int = _OR) -> str:
        return show_scalar(operand, leaf, inside)

    match expr:
        case Literal(value=value):
            return _constant(value)
        case Field():
            return leaf(expr), _VALUE
        case Aggregate():
            raise AssertionError("aggregates of a clause are reaches")
        case Unary(operator="not", operand=operand):
            return f"NOT {show(operand, _NOT)}", _NOT
        case Unary(operator=operator, operand=operand):
            text = show(operand, _SIGNED)
            # Two signs without a blank would begin a comment.
            return f"{operator}{' ' if text.startswith('-') else ''}{text}", _SIGNED
        case Binary(operator="and" | "or" as operator):
            tightness = _OR if operator == "or" else _AND
            operands = links(operator, expr)
            if chain(operator, operands) != expr:
                operands = [expr.left, expr.right]
            joined = f" {operator.upper()} ".join(show(o, tightness + 1) for o in operands)
            return joined, tightness
        case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
            sign = "<>" if operator == "!=" else operator
            return f"{show(left, _JOINED)} {sign} {show(right, _JOINED)}", _COMPARISON
        case Binary(operator=operator, left=left, right=right):
            tightness = _TIGHTNESS[operator]
            return f"{show(left, tightness)} {operator} {show(right, tightness + 1)}", tightness
        case IsNull(operand=operand, negated=negated):
            return f"{show(operand, _JOINED)} IS {_not(negated)}NULL", _COMPARISON
        case In(operand=operand, options=options, negated=negated):
            listed = ", ".join(map(show, options))
            return f"{show(operand, _JOINED)} {_not(negated)}IN ({listed})", _COMPARISON
        case Between(operand=operand, low=low, high=high, negated=negated):
            bounds = f"{show(low, _JOINED)} AND {show(high, _JOINED)}"
            return f"{show(operand, _JOINED)} {_not(negated)}BETWEEN {bounds}", _COMPARISON
        case Like(operand=operand, pattern=pattern, negated=negated):
            text = f"{show(operand, _JOINED)} {_not(negated)}LIKE {_quoted(pattern)}"
            return text, _COMPARISON
        case Call(function="case", arguments=(*branches, default)) if len(branches) % 2 == 0:
            shown = list(map(show, branches))
            pairs = zip(shown[::2], shown[1::2], strict=True)
            whens = " ".join(f"WHEN {test} THEN {value}" for test, value in pairs)
            return f"CASE {whens} ELSE {show(default)} END", _VALUE
        case Call(function="position", arguments=(text, part)):
            return f"POSITION({show(part, _JOINED)} IN {show(text, _JOINED)})", _VALUE
        case Call(function="substring" | "trim" as function, arguments=arguments):
            # FROM and FOR may stand between the arguments: conditions go into parentheses
            return f"{function}({', '.join(show(a, _JOINED) for a in arguments)})", _VALUE
        case Call(function=function, arguments=arguments):
            return f"{function}({', '.join(map(show, arguments))})", _VALUE


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _constant(value: Constant) -> tuple[str, int]:
    match value:
        case None:
            return "NULL", _VALUE
        case bool():
            return str(value).upper(), _VALUE
        case int() | float():
            text = repr(value)
            return text, _SIGNED if text.startswith("-") else _VALUE
        case str():
            return _quoted(value), _VALUE
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'", _VALUE
        case timedelta():
            # Not an operand of + and its like: a number behind it would be read as one more.
            return (
                f"INTERVAL '{show_duration(value // timedelta(microseconds=1) * 1000)}'",
                _JOINED,
            )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
