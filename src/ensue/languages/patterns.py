"""The pattern language: text to a query, or a QueryError that points into the text."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from importlib.resources import files

from lark import Lark, Token, Tree, UnexpectedInput

from ensue.algebra.check.query import check_structure
from ensue.algebra.durations import nanoseconds
from ensue.algebra.form import Form, form, is_event, is_input
from ensue.algebra.operator import Operator, known_operator
from ensue.algebra.pattern import And, Apply, Atom, Kleene, Maybe, Not, Or, Pattern, Seq
from ensue.algebra.policy import AfterMatch, SkipTo, Strategy
from ensue.algebra.predicate import Literal, Unary
from ensue.algebra.query import Limit, Query, Returned
from ensue.algebra.text import default_name
from ensue.algebra.walk import atoms, positives, results, rewrite
from ensue.algebra.window import ByEvents, ByTime, ByUnits, Window
from ensue.errors import QueryError, did_you_mean
from ensue.languages.expressions import (
    Node,
    condition,
    expr_of,
    interval,
    name_of,
    number,
    pieces,
    span_of,
)
from ensue.languages.syntax import explain
from ensue.span import Span

_DEEPEST = 200  # levels of syntax: what follows walks trees recursively
_CONSTANTS = ("number", "percent", "duration", "interval", "string", "minus")
_WIDEST = 32  # levels that a chain of and/or adds at most


def parse(text: str, operators: Iterable[Operator] = ()) -> Query:
    """Reads a query. `operators` are known in it beside those that are registered.

    >>> query = parse("SEQ(Shelf x, !Counter y, Exit z) WHERE [tag] WITHIN 12 hours")
    >>> [atom.variable for atom in positives(query.pattern)]
    ['x', 'z']
    """
    try:
        tree = _grammar().parse(text)
        _limit_depth(tree)
        return check_structure(_query(tree, text, tuple(operators)))
    except UnexpectedInput as error:
        raise explain(error, text) from None
    except QueryError as error:
        raise error.at(None, text) from None


@cache
def _grammar() -> Lark:
    return Lark(
        files("ensue.languages").joinpath("patterns.lark").read_text("utf-8"),
        parser="lalr",
        lexer="contextual",
        propagate_positions=True,
        maybe_placeholders=True,
    )


def _limit_depth(tree: Node) -> None:
    left: list[tuple[Node, int]] = [(tree, 0)]
    while left:
        node, depth = left.pop()
        if depth > _DEEPEST:
            raise QueryError(
                "this is nested too deeply",
                hint="split the condition at its 'and's, or list values with IN (...)",
                span=span_of(node),
            )
        chained = node.data in ("expression", "conjunction")
        below = depth + (min(len(node.children), _WIDEST) if chained else 1)
        left += [(child, below) for child in node.children if isinstance(child, Tree)]


# ------------------------------------------------------------------------------------ clauses


def _query(tree: Node, text: str, operators: tuple[Operator, ...]) -> Query:
    *name, body = pieces(tree)
    pattern, where, within, after, returning, having, limit = pieces(body)
    strategy, conditions = Strategy.ANY, None
    shape = _with_names(_pattern(pattern, operators))
    if where is not None:
        *selection, conditions = pieces(where)
        if selection:
            strategy = Strategy(selection[0].lower())
            _expect_all(selection[1:], shape, span_of(where))
    conjuncts, equivalence = condition(conditions) if conditions else ((), ())
    columns = pieces(returning) if returning else []
    return Query(
        pattern=shape,
        name=name_of(name[0]) if name else None,
        strategy=strategy,
        where=conjuncts,
        equivalence=equivalence,
        within=_window(within.children[0]) if within else None,
        after=_after(after) if after else None,
        returns=tuple(_returned(c) for c in columns if c.data != "exists"),
        having=expr_of(having.children[0]) if having else None,
        exists=any(column.data == "exists" for column in columns),
        limit=_limit(limit) if limit else None,
        text=text,
    )


def _expect_all(listed: Sequence[Node], pattern: Pattern, clause: Span) -> None:
    """The strategy's list names every positive variable once."""
    expected = [atom.variable for atom in positives(pattern)]
    named: set[str] = set()
    for member in listed:
        variable = name_of(pieces(member)[0])
        if variable not in expected:
            negated = variable in [atom.variable for atom in atoms(pattern)]
            raise QueryError(
                f"'{variable}' is negated: no event of it is selected"
                if negated
                else f"unknown variable '{variable}'",
                hint="leave it out of the list" if negated else did_you_mean(variable, expected),
                span=span_of(member),
            )
        if variable in named:
            raise QueryError(
                f"'{variable}' is listed twice", hint="list it once", span=span_of(member)
            )
        named.add(variable)
    missing = [variable for variable in expected if variable not in named]
    if missing:
        raise QueryError(
            f"the strategy's list leaves out {', '.join(missing)}",
            hint=f"list every variable: ({', '.join(expected)})",
            span=span_of(listed[0]).to(span_of(listed[-1])) if listed else clause,
        )


def _window(node: Node) -> Window:
    span = span_of(node)
    match node.data, pieces(node):
        case "interval", [text, unit]:
            return ByTime(interval(text, unit, span), span)
        case "units", [sign, amount]:
            return ByUnits(-number(amount) if sign else number(amount), span)
        case "time", [sign, amount, unit]:
            length = nanoseconds(amount, unit, span)
            return ByTime(-length if sign else length, span)
        case _, [sign, amount, _]:
            count = _whole(amount)
            return ByEvents(-count if sign else count, span)
        case _:
            raise AssertionError(node.data)


def _after(node: Node) -> AfterMatch:
    span = span_of(node)
    match node.data, pieces(node):
        case "next_event", _:
            return AfterMatch(SkipTo.NEXT_EVENT, None, span)
        case "past_last", _:
            return AfterMatch(SkipTo.PAST_LAST, None, span)
        case kind, [variable]:
            to = SkipTo.FIRST if kind == "to_first" else SkipTo.LAST
            return AfterMatch(to, name_of(variable), span_of(variable))
        case _:
            raise AssertionError(node.data)


def _returned(node: Node) -> Returned:
    expression, alias = pieces(node)
    expr = expr_of(expression)
    return Returned(expr, name_of(alias) if alias else default_name(expr), span_of(node))


def _limit(node: Node) -> Limit:
    sign, amount = pieces(node)
    count = _whole(amount)
    return Limit(-count if sign else count, span_of(node))


# ----------------------------------------------------------------------------------- patterns


def _pattern(node: Node, operators: tuple[Operator, ...]) -> Pattern:
    span = span_of(node)

    def inner(part: Node) -> Pattern:
        return _pattern(part, operators)

    match node.data, pieces(node):
        case "seq", parts:
            return _group(Seq, map(inner, parts), span)
        case "all", parts:
            return _group(And, map(inner, parts), span)
        case "any", parts:
            return _group(Or, map(inner, parts), span)
        case "bracketed", [inside]:
            return inner(inside)
        case "negated", [part]:
            return Not(inner(part), span)
        case "repeated", [part, quantifier]:
            return _repeated(inner(part), quantifier, span)
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
    match part:
        case Atom():
            least, most = _bounds(quantifier)
            return Kleene(part, least, most, span)
        case Kleene() | Maybe() | Seq() | And() | Or() | Not() | Apply():
            raise QueryError(
                "a quantifier repeats one event type, not a group",
                hint="repeat the types inside: SEQ(A+ a[], B+ b[])",
                span=span,
            )


def _bounds(quantifier: Node) -> tuple[int, int | None]:
    match quantifier.data, pieces(quantifier):
        case "some", _:
            return 1, None
        case "many", _:
            return 0, None
        case "exactly", [count]:
            return _whole(count), _whole(count)
        case "at_least", [least]:
            return _whole(least), None
        case "at_most", [most]:
            return 0, _whole(most)
        case _, [least, most]:
            return _whole(least), _whole(most)
        case _:
            raise AssertionError(quantifier.data)


def _whole(digits: Token) -> int:
    if digits.isdigit() and len(digits) <= 9:
        return int(digits)
    raise QueryError(
        "this must be a whole number", hint="below a thousand million", span=span_of(digits)
    )


def _with_names(pattern: Pattern) -> Pattern:
    """Names the variables of atoms like `SEQ(A, B, A)`: A, B and A2."""
    taken = {atom.variable for atom in atoms(pattern)}
    taken |= {applied.variable for applied in results(pattern)}
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
