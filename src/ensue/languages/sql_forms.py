"""What expressions have of SQL beyond operators: CASE, CAST, IS TRUE, IS DISTINCT FROM, ILIKE."""

from collections.abc import Sequence

from lark import Token, Tree

from ensue.algebra.functions.casts import DECIMALS, TYPES
from ensue.algebra.functions.choices import CASE, surely
from ensue.algebra.predicate import Binary, Call, Expr, Like, Literal, Unary
from ensue.errors import QueryError, did_you_mean
from ensue.span import Span


def chosen(parts: Sequence[Expr], span: Span) -> Expr:
    """CASE WHEN: conditions and values in turn, then what else there is."""
    return Call(CASE, tuple(parts), span)


def chosen_by(subject: Expr, parts: Sequence[Expr], span: Span) -> Expr:
    """CASE x WHEN: each condition compares the subject.

    >>> chosen_by(Literal(1), [Literal(2), Literal("two")], Span(0, 1)).arguments[0]
    Binary(operator='=', left=Literal(value=1), right=Literal(value=2))
    """
    tests = range(0, len(parts) - 1, 2)
    return chosen(
        [Binary("=", subject, p, p.span) if n in tests else p for n, p in enumerate(parts)], span
    )


def cast(operand: Expr, kind: Tree[Token], span: Span) -> Expr:
    """CAST: a call of the function for the type; a decimal is a float, rounded to its scale.

    >>> cast(Literal("7"), Tree("kind", [Token("NAME", "INT"), None, None]), Span(0, 1))
    Call(function='to_integer', arguments=(Literal(value='7'),))
    """
    *words, precision, scale = kind.children
    name = str(words[0]).lower()
    if name not in TYPES:
        raise QueryError(
            f"unknown type '{words[0]}'", hint=did_you_mean(name, list(TYPES)), span=span
        )
    found = Call(TYPES[name], (operand,), span)
    if name not in DECIMALS or precision is None:
        return found
    return Call("round", (found, Literal(int(str(scale or 0)))), span)


def is_true(operand: Expr, negated: bool, span: Span) -> Expr:
    """x IS TRUE, x IS NOT TRUE."""
    found = surely(operand)
    return Unary("not", found, span) if negated else found


def is_false(operand: Expr, negated: bool, span: Span) -> Expr:
    """x IS FALSE, x IS NOT FALSE."""
    return is_true(Unary("not", operand, span), negated, span)


def is_distinct(left: Expr, negated: bool, right: Expr, span: Span) -> Expr:
    """x IS DISTINCT FROM y: two NULLs are not."""
    found = Call("is_distinct", (left, right), span)
    return Unary("not", found, span) if negated else found


def ilike(operand: Expr, negated: bool, pattern: str, span: Span) -> Expr:
    """LIKE, whatever the case."""
    return Like(Call("lower", (operand,), span), pattern.lower(), negated, span)
