"""Syntax trees of patterns to algebra."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial

from lark import Token

from ensue.algebra.form import Form, form, grouped, is_event, is_input, is_list, is_loop
from ensue.algebra.operator import Operator, known_operator
from ensue.algebra.pattern import (
    UNTIL,
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
    Pause,
    Repeat,
    Seq,
    Then,
)
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import At, Binary, Expr, Field, Literal, Unary
from ensue.algebra.text import show_types
from ensue.algebra.walk import atoms, references, results, rewrite, rewrite_expr
from ensue.algebra.window import constant_of
from ensue.errors import QueryError
from ensue.languages.expressions import Node, expr_of, name_of, pieces, span_of
from ensue.languages.windows import length_of, whole
from ensue.schema import ANY, OneOf, Types, names_of
from ensue.span import Span

_LIKE = "like "  # a type that is not known yet: that of a variable
_CONSTANTS = ("number", "percent", "duration", "interval", "string", "minus")


def pattern_of(node: Node, operators: tuple[Operator, ...], conditions: list[Expr]) -> Pattern:
    """The pattern that a syntax tree stands for; variables that it does not name are empty.

    Conditions that stand beside parts are added to `conditions`.
    """
    span = span_of(node)

    def inner(part: Node) -> Pattern:
        return pattern_of(part, operators, conditions)

    match node.data, pieces(node):
        case "seq", parts:
            return grouped(Seq, map(inner, parts), span)
        case "entered", [how, pause, part]:
            word = Strategy[how.upper()] if how else Strategy.PARTITION
            _check_pause(pause, part)
            return Then(inner(part), word, _pause(pause), span)
        case "all", parts:
            return grouped(And, map(inner, parts), span)
        case "any", parts:
            return grouped(Or, map(inner, parts), span)
        case "bracketed", [inside]:
            return inner(inside)
        case "negated", [part]:
            return Not(inner(part), span)
        case "absent", [part, after, until]:
            ends = expr_of(after), expr_of(until)
            within = Interval(*ends, span_of(after).to(span_of(until)))
            return Not(inner(part), span, within)
        case "repeated", [part, quantifier, until]:
            repeated = _repeated(inner(part), quantifier, span)
            return _stopped(repeated, until, conditions)
        case "looped", [*parts, again, quantifier, until]:
            if quantifier.data == "maybe":
                raise QueryError(
                    "THEN at the end of a group says how one round follows another",
                    hint="repeat the group: (A a THEN)+",
                    span=span_of(again),
                )
            words, pause = pieces(again)
            how = Strategy[(words.split()[1:] or ["PARTITION"])[-1].upper()]
            repeated = _repeated(grouped(Seq, map(inner, parts), span), quantifier, span)
            assert is_list(repeated) or is_loop(repeated)
            repeated = replace(repeated, inner=how, pause=_pause(pause))
            return _stopped(repeated, until, conditions)
        case "applied", [name, *given, variable]:
            operator = known_operator(name_of(name), operators, span_of(name))
            inputs = [inner(g) for g in given if g.data not in _CONSTANTS]
            constants = [_constant(g) for g in given if g.data in _CONSTANTS]
            called = name_of(variable) if variable else ""
            return Apply(operator, tuple(inputs), tuple(constants), called, span=span)
        case "atom" | "one_of" as kind, [written, quantifier, variable, until, reach]:
            type_ = _types(written) if kind == "atom" else _one_of(written, variable)
            part = _stopped(_atom(type_, quantifier, variable, span), until, conditions)
            if reach:
                conditions.append(_near(part, reach))
            return part
        case _:
            raise AssertionError(node.data)


def _pause(node: Node | None) -> Pause | None:
    return None if node is None else length_of(node)


def _check_pause(pause: Node | None, part: Node) -> None:
    """`WITHIN 5 D d` may be five days before an event d, or 5 before an event D with a name."""
    if pause is None or pause.data != "so_long" or part.data != "atom":
        return
    (amount, unit), (type_, quantifier, variable, *_) = pieces(pause), pieces(part)
    letter = unit is not None and len(unit) == 1 and unit.isupper()
    if not letter or quantifier is not None or variable is not None:
        return
    raise QueryError(
        f"{amount} {unit} {type_} can be read in two ways: {unit} as a unit of time, or as the "
        f"type of the event {type_}",
        hint=f"write WITHIN {amount} ({unit} {type_}) for an event {unit}, and WITHIN {amount} "
        f"{unit.lower()} {type_} for a unit of time",
        span=span_of(pause).to(span_of(part)),
    )


def _stopped(part: Pattern, until: Node | None, conditions: list[Expr]) -> Pattern:
    """A loop with what ends it."""
    if until is None:
        return part
    if not (is_list(part) or is_loop(part)):
        raise QueryError(
            "UNTIL ends a loop, and this is not one",
            hint="repeat it: B+ b[] UNTIL C c",
            span=span_of(until),
        )
    span = span_of(until)
    if until.data != "until_condition":
        *written, variable = pieces(until)
        atom = Atom(_types(*written), name_of(variable) if variable else "", span)
        return replace(part, until=Not(atom, span))
    (test,) = pieces(until)
    stop = expr_of(test)
    plain = [r for r in references(stop) if isinstance(r, Field) and r.at is At.ONLY]
    own = {a.variable for a in atoms(part)}
    meant = [r for r in plain if r.variable in own] or plain
    if len({r.variable for r in meant}) != 1:
        raise QueryError(
            "UNTIL with a condition needs one event: it is not clear which one",
            hint="as in B+ b[] UNTIL b.price > 3; for another event: B+ b[] UNTIL C c, and what "
            "c must be in WHERE",
            span=span,
        )
    variable = meant[0].variable
    conditions.append(rewrite_expr(stop, partial(_renamed, variable)))
    return replace(part, until=Not(Atom(_LIKE + variable, variable + UNTIL, span), span))


def _renamed(variable: str, node: Expr) -> Expr:
    """`b.price` of the event that ends a loop; `b[1].price` and `avg(b.price)` are the loop's."""
    if isinstance(node, Field) and node.variable == variable and node.at is At.ONLY:
        return replace(node, variable=variable + UNTIL)
    return node


def with_types(pattern: Pattern, conditions: list[Expr]) -> Pattern:
    """Gives events that end loops the type of the variable that their condition names.

    A variable that nothing else binds is any event: `UNTIL z.price > 3`. It keeps its name then,
    also in `conditions`.
    """
    types = {a.variable: a.type for a in atoms(pattern)}

    def typed(part: Pattern) -> Pattern:
        if not is_event(part) or not _is_like(part):
            return part
        variable = part.variable.removesuffix(UNTIL)
        if variable in types:
            return replace(part, type=types[variable])
        conditions[:] = [rewrite_expr(c, partial(_called, variable)) for c in conditions]
        return replace(part, type=ANY, variable=variable)

    return rewrite(pattern, typed)


def _is_like(atom: Atom) -> bool:
    return isinstance(atom.type, str) and atom.type.startswith(_LIKE)


def _called(variable: str, node: Expr) -> Expr:
    """What `_renamed` took for a variable of the pattern has its own name again."""
    if isinstance(node, Field) and node.variable == variable + UNTIL:
        return replace(node, variable=variable)
    return node


def _near(part: Pattern, reach: Node) -> Expr:
    """`B b WITHIN 5 minutes OF a` as a condition."""
    *_, other = pieces(reach)
    span = span_of(reach)
    most = Literal(constant_of(length_of(reach)), span)
    (atom,) = atoms(part) if not is_list(part) else (part.atom,)
    mine = Field(atom.variable, "end", at=At.CURRENT if is_list(part) else At.ONLY, span=span)
    ago = Binary("-", mine, Field(name_of(other), "start", span=span_of(other)), span)
    return Binary("<=", ago, most, span)


def _constant(node: Node) -> Literal:
    match expr_of(node):
        case Literal() as literal:
            return literal
        case Unary(operand=Literal(value=int() | float() | timedelta() as value), span=span):
            return Literal(-value, span)
        case _:
            raise QueryError("this has no negative", span=span_of(node))


def _types(*names: Token) -> Types:
    """The types that names stand for; ANY without quotes is all of them."""
    if any(name.upper() == "ANY" for name in names):
        return ANY
    found = tuple(dict.fromkeys(map(name_of, names)))
    return found[0] if len(found) == 1 else OneOf(found)


def _one_of(choice: Node, variable: Node) -> Types:
    """The types in a bracket with a variable behind it: `(A|B) x`."""
    names: list[Token] = []
    for part in pieces(choice):
        found = pieces(part)
        if part.data != "atom" or any(piece is not None for piece in found[1:]):
            raise QueryError(
                "a variable after a bracket is one event, and the bracket lists its types",
                hint=f"as in (A|B) {name_of(pieces(variable)[0])}; if each part has its own "
                "variable, leave this one out",
                span=span_of(variable),
            )
        names.append(found[0])
    return _types(*names)


def _atom(type_: Types, quantifier: Node | None, variable: Node | None, span: Span) -> Pattern:
    name, brackets = pieces(variable) if variable else (None, None)
    atom = Atom(type_, name_of(name) if name else "", span)
    if brackets and (quantifier is None or quantifier.data == "maybe"):
        shown = show_types(type_)
        raise QueryError(
            f"{name}[] stands for several events, but {shown} has no + or *",
            hint=f"write {shown}+ {name}[] for one or more, or {shown} {name} for one",
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
        base = _base(part.type) if is_event(part) else part.operator.name
        name = base
        while name in taken:
            used[base] += 1
            name = f"{base}{used[base] + 1}"
        taken.add(name)
        return replace(part, variable=name)

    return rewrite(pattern, named)


def _base(types: Types) -> str:
    """What an event without a name is called."""
    return "_or_".join(names_of(types)) or "ANY"
