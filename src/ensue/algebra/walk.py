"""Going through the nodes of patterns and expressions."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ensue.algebra.pattern import And, Atom, Kleene, Maybe, Not, Or, Pattern, Seq
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


def parts(pattern: Pattern) -> tuple[Pattern, ...]:
    """The patterns directly inside this one."""
    match pattern:
        case Atom():
            return ()
        case Kleene(atom=atom):
            return (atom,)
        case Maybe(part=part) | Not(part=part):
            return (part,)
        case Seq(parts=inner) | And(parts=inner) | Or(parts=inner):
            return inner


def with_parts(pattern: Pattern, new: tuple[Pattern, ...]) -> Pattern:
    """The same pattern around other parts."""
    match pattern:
        case Atom():
            return pattern
        case Kleene():
            (atom,) = new
            assert isinstance(atom, Atom)
            return replace(pattern, atom=atom)
        case Maybe() | Not():
            return replace(pattern, part=new[0])
        case Seq() | And() | Or():
            return replace(pattern, parts=new)


def rewrite(pattern: Pattern, change: Callable[[Pattern], Pattern]) -> Pattern:
    """Applies `change` to every node, the inner ones first."""
    return change(with_parts(pattern, tuple(rewrite(p, change) for p in parts(pattern))))


def atoms(pattern: Pattern) -> Iterator[Atom]:
    """Every atom in the order of the text, the negated ones too."""
    if isinstance(pattern, Atom):
        yield pattern
    for part in parts(pattern):
        yield from atoms(part)


def positives(pattern: Pattern) -> Iterator[Atom]:
    """The atoms that a match binds, in the order of the text.

    >>> [a.variable for a in positives(Seq((Atom("A", "a"), Not(Atom("B", "b")))))]
    ['a']
    """
    if isinstance(pattern, Not):
        return
    if isinstance(pattern, Atom):
        yield pattern
    for part in parts(pattern):
        yield from positives(part)


def negations(pattern: Pattern) -> Iterator[Not]:
    """Every outermost negation."""
    if isinstance(pattern, Not):
        yield pattern
        return
    for part in parts(pattern):
        yield from negations(part)


def kleenes(pattern: Pattern) -> dict[str, Kleene]:
    """The Kleene variables."""
    found = {pattern.atom.variable: pattern} if isinstance(pattern, Kleene) else {}
    for part in parts(pattern):
        found |= kleenes(part)
    return found


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside this one."""
    match expr:
        case Literal() | Field():
            return ()
        case Aggregate(argument=argument):
            return () if argument is None else (argument,)
        case Unary(operand=operand) | IsNull(operand=operand) | Like(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case In(operand=operand, options=options):
            return (operand, *options)
        case Between(operand=operand, low=low, high=high):
            return (operand, low, high)
        case Call(arguments=arguments):
            return arguments


def with_operands(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """The same expression over other operands."""
    match expr:
        case Literal() | Field():
            return expr
        case Aggregate():
            return replace(expr, argument=new[0] if new else None)
        case Unary() | IsNull() | Like():
            return replace(expr, operand=new[0])
        case Binary():
            return replace(expr, left=new[0], right=new[1])
        case In():
            return replace(expr, operand=new[0], options=new[1:])
        case Between():
            return replace(expr, operand=new[0], low=new[1], high=new[2])
        case Call():
            return replace(expr, arguments=new)


def rewrite_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Applies `change` to every node, the inner ones first."""
    return change(with_operands(expr, tuple(rewrite_expr(e, change) for e in operands(expr))))


def nodes(expr: Expr) -> Iterator[Expr]:
    """The expression and everything inside it."""
    yield expr
    for operand in operands(expr):
        yield from nodes(operand)


def references(expr: Expr) -> Iterator[Field | Aggregate]:
    """The fields outside aggregates, and the aggregates: what ties an expression to events."""
    if isinstance(expr, Field | Aggregate):
        yield expr
        return
    for operand in operands(expr):
        yield from references(operand)


def variables(expr: Expr) -> frozenset[str]:
    """The variables an expression speaks of."""
    return frozenset(r.variable for r in references(expr))


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction.

    >>> [e.value for e in conjuncts(Binary("and", Literal(True), Literal(False)))]
    [True, False]
    """
    if isinstance(expr, Binary) and expr.operator == "and":
        return conjuncts(expr.left) + conjuncts(expr.right)
    return (expr,)
