"""Syntax trees of patterns to algebra."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from lark import Token

from ensue.algebra.form import Form, form, is_event, is_input, is_list, is_loop
from ensue.algebra.operator import Operator, known_operator
from ensue.algebra.pattern import (
    And,
    Apply,
    Atom,
    Interval,
    Kleene,
    Leave,
    Maybe,
    Not,
    Or,
    Pattern,
    Repeat,
    Seq,
    Then,
)
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Literal, Unary
from ensue.algebra.walk import atoms, results, rewrite
from ensue.errors import QueryError
from ensue.languages.expressions import Node, expr_of, name_of, pieces, span_of
from ensue.span import Span

_CONSTANTS = ("number", "percent", "duration", "interval", "string", "minus")


def pattern_of(node: Node, operators: tuple[Operator, ...]) -> Pattern:
    """The pattern that a syntax tree stands for; variables that it does not name are empty."""
    span = span_of(node)

    def inner(part: Node) -> Pattern:
        return pattern_of(part, operators)

    match node.data, pieces(node):
        case "seq", parts:
            return _group(Seq, map(inner, parts), span)
        case "entered", [how, part]:
            return Then(inner(part), Strategy[how.upper()] if how else Strategy.PARTITION, span)
        case "all", parts:
            return _group(And, map(inner, parts), span)
        case "any", parts:
            return _group(Or, map(inner, parts), span)
        case "bracketed", [inside]:
            return inner(inside)
        case "negated", [part]:
            return Not(inner(part), span)
        case "absent", [part, after, until]:
            ends = expr_of(after), expr_of(until)
            within = Interval(*ends, span_of(after).to(span_of(until)))
            return Not(inner(part), span, within)
        case "repeated", [part, quantifier]:
            return _repeated(inner(part), quantifier, span)
        case "looped", [*parts, again, quantifier]:
            if quantifier.data == "maybe":
                raise QueryError(
                    "THEN at the end of a group says how one time of it follows another",
                    hint="repeat the group: (A a THEN)+",
                    span=span_of(again),
                )
            (words,) = pieces(again)
            how = Strategy[(words.split()[1:] or ["PARTITION"])[0].upper()]
            repeated = _repeated(_group(Seq, map(inner, parts), span), quantifier, span)
            assert is_list(repeated) or is_loop(repeated)
            return replace(repeated, inner=how)
        case "applied", [name, *given, variable]:
            operator = known_operator(name_of(name), operators, span_of(name))
            inputs = [inner(g) for g in given if g.data not in _CONSTANTS]
            constants = [_constant(g) for g in given if g.data in _CONSTANTS]
            called = name_of(variable) if variable else ""
            return Apply(operator, tuple(inputs), tuple(constants), called, span=span)
        case "atom", [type_, quantifier, variable]:
            return _atom(type_, quantifier, variable, span)
        case _:
            raise AssertionError(node.data)


def _constant(node: Node) -> Literal:
    match expr_of(node):
        case Literal() as literal:
            return literal
        case Unary(operand=Literal(value=int() | float() | timedelta() as value), span=span):
            return Literal(-value, span)
        case _:
            raise QueryError("this has no negative", span=span_of(node))


def _group(
    kind: type[Seq] | type[And] | type[Or], inside: Iterable[Pattern], span: Span
) -> Pattern:
    """The parts together; a group directly inside one of its kind is spliced into it."""
    parts: list[Pattern] = []
    for part in inside:
        parts += part.parts if isinstance(part, kind) else [part]
    return kind(tuple(parts), span) if len(parts) > 1 else parts[0]


def _atom(type_: Token, quantifier: Node | None, variable: Node | None, span: Span) -> Pattern:
    name, brackets = pieces(variable) if variable else (None, None)
    atom = Atom(name_of(type_), name_of(name) if name else "", span)
    if brackets and (quantifier is None or quantifier.data == "maybe"):
        raise QueryError(
            f"{name}[] stands for several events, but {type_} has no + or *",
            hint=f"write {type_}+ {name}[] for one or more, or {type_} {name} for one",
            span=span,
        )
    return atom if quantifier is None else _repeated(atom, quantifier, span)


def _repeated(part: Pattern, quantifier: Node, span: Span) -> Pattern:
    if quantifier.data == "maybe":
        return part if form(part) is Form.OPTION else Maybe(part, span)
    leave = Leave.FORK
    if quantifier.data in ("greedy", "reluctant"):
        leave = Leave[quantifier.data.upper()]
        quantifier, *_ = pieces(quantifier)
    least, most = _bounds(quantifier)
    match part:
        case Atom():
            return Kleene(part, least, most, span, leave)
        case Kleene() | Repeat() | Maybe() | Seq() | Then() | And() | Or() | Not() | Apply():
            return Repeat(part, least, most, leave, span)


def _bounds(quantifier: Node) -> tuple[int, int | None]:
    match quantifier.data, pieces(quantifier):
        case "some", _:
            return 1, None
        case "many", _:
            return 0, None
        case "exactly", [count]:
            return whole(count), whole(count)
        case "at_least", [least]:
            return whole(least), None
        case "at_most", [most]:
            return 0, whole(most)
        case _, [least, most]:
            return whole(least), whole(most)
        case _:
            raise AssertionError(quantifier.data)


def whole(digits: Token) -> int:
    """A whole number that is not too large."""
    if digits.isdigit() and len(digits) <= 9:
        return int(digits)
    raise QueryError(
        "this must be a whole number", hint="below a thousand million", span=span_of(digits)
    )


def explicit_names(pattern: Pattern) -> set[str]:
    """The variables that the text names."""
    named = {atom.variable for atom in atoms(pattern)}
    named |= {applied.variable for applied in results(pattern)}
    return named - {""}


def with_names(pattern: Pattern, taken: set[str]) -> Pattern:
    """Names the variables of atoms like `SEQ(A, B, A)`: A, B and A2. `taken` gets them, too."""
    used: Counter[str] = Counter()

    def named(part: Pattern) -> Pattern:
        if not is_input(part) or part.variable:
            return part
        base = part.type if is_event(part) else part.operator.name
        name = base
        while name in taken:
            used[base] += 1
            name = f"{base}{used[base] + 1}"
        taken.add(name)
        return replace(part, variable=name)

    return rewrite(pattern, named)
