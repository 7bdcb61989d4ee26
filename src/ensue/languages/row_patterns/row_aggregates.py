"""Calls of aggregates: `sum(A.price)`, `count(*)`, `listagg(x, ',') WITHIN GROUP (ORDER BY y)`."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from ensue.algebra.predicate import Expr, Literal
from ensue.algebra.row_patterns.aggregates import RowFunction, row_aggregate
from ensue.algebra.row_patterns.values import OrderedBy, RowAggregate
from ensue.errors import QueryError
from ensue.languages.row_patterns.scalars import Place, counted
from ensue.span import Span


@dataclass(slots=True)
class Argument:
    """What the expressions of one navigation or aggregate speak of: the rows of one variable."""

    what: str
    owner: str | None = None  # the variable or SUBSET; "": of all variables
    members: tuple[str, ...] = ()

    def take(self, owner: str, members: tuple[str, ...], span: Span) -> None:
        if self.owner is None:
            self.owner, self.members = owner, members
        elif self.owner != owner:
            first, second = (name or "all variables" for name in (self.owner, owner))
            raise QueryError(
                f"{self.what} works over the rows of one variable, not of {first} and {second}",
                hint="use each separately; a SUBSET stands for the rows of several variables",
                span=span,
            )


Called = Callable[[exp.Anonymous], tuple[str, str | None]]
Inside = Callable[[exp.Expr, Argument], Expr]
Members = Callable[[str, Span], tuple[str, ...]]


@dataclass(slots=True)
class _Clauses:
    """What is said about an aggregate in and behind its parentheses."""

    call: exp.Anonymous
    only: exp.Expr | None = None
    order: tuple[exp.Expr, ...] = ()
    distinct: bool = False


def aggregate_of(
    node: exp.Expr,
    span: Span,
    place: Place,
    called: Called,
    inside: Inside,
    members: Members,
) -> RowAggregate:
    """The aggregate that a syntax tree stands for.

    `called` tells its name, `inside` reads an expression over its rows, and `members` gives the
    variables that a name stands for.
    """
    said = _taken_apart(node, span)
    name, semantics = called(said.call)
    function = row_aggregate(name)
    if function is None:
        raise QueryError(
            f"{name} is not an aggregate: FILTER and WITHIN GROUP cannot be combined with it",
            hint="leave it out",
            span=span,
        )
    argument = Argument(name)
    given = _arguments(said, name, span)
    arguments = _rows_counted(given, name, argument, place, members)
    if arguments is None:
        _require_count(function, name, len(given), span)
        arguments = tuple(inside(one, argument) for one in given)
    _require_constants(function, name, arguments)
    only = inside(said.only, argument) if said.only is not None else None
    order = tuple(_ordered(key, place, argument, inside) for key in said.order)
    return RowAggregate(
        function.name,
        arguments,
        argument.members,
        semantics == "FINAL",
        said.distinct,
        only,
        order,
        span,
    )


def _taken_apart(node: exp.Expr, span: Span) -> _Clauses:
    only = None
    if isinstance(node, exp.Filter):
        only, node = node.expression.this, node.this
    order: tuple[exp.Expr, ...] = ()
    if isinstance(node, exp.WithinGroup):
        order, node = tuple(node.expression.expressions), node.this
    if not isinstance(node, exp.Anonymous):
        raise QueryError("FILTER and WITHIN GROUP follow an aggregate", span=span)
    return _Clauses(node, only, order)


def _arguments(said: _Clauses, name: str, span: Span) -> list[exp.Expr]:
    """The arguments alone: DISTINCT and ORDER BY in the parentheses are taken note of."""
    given = list(said.call.expressions)
    if given and isinstance(given[-1], exp.Order):
        if said.order:
            raise QueryError(f"{name} is ordered twice", hint="leave out WITHIN GROUP", span=span)
        said.order, given[-1] = tuple(given[-1].expressions), given[-1].this
    if given and isinstance(given[0], exp.Distinct):
        said.distinct = True
        given[:1] = given[0].expressions
    return given


def _rows_counted(
    given: list[exp.Expr], name: str, argument: Argument, place: Place, members: Members
) -> tuple[Expr, ...] | None:
    """No arguments, for `count(*)` and `count(A.*)`; None: it is neither."""
    if len(given) != 1:
        return None
    (star,) = given
    owner = star.args.get("table") if isinstance(star, exp.Column) else None
    if not isinstance(star, exp.Star) and not (owner and isinstance(star.this, exp.Star)):
        return None
    if name != "count":
        raise QueryError(
            f"{name} needs a column, and only count takes whole rows",
            hint=f"as in {name}(A.price)",
            span=place.span(star),
        )
    if owner is None:
        argument.take("", (), place.span(star))
    else:
        folded = owner.name if owner.args.get("quoted") else owner.name.upper()
        argument.take(folded, members(folded, place.span(owner)), place.span(star))
    return ()


def _require_count(function: RowFunction, name: str, given: int, span: Span) -> None:
    least, most = function.takes, function.takes + function.optional
    if name == "count" and given == 0:
        raise QueryError("count of what?", hint="count(*) counts rows", span=span)
    if not least <= given <= most:
        raise QueryError(
            f"{name} takes {counted(least or 1, most)}, not {given}",
            hint=f"{ {'min': 'least', 'max': 'greatest'}[name] }(x, y) picks one of several values"
            if name in ("min", "max") and given > 1
            else None,
            span=span,
        )


def _require_constants(function: RowFunction, name: str, arguments: tuple[Expr, ...]) -> None:
    for place in function.constants:
        if place < len(arguments) and not isinstance(arguments[place], Literal):
            example = (
                "percentile(A.price, 90)" if name == "percentile" else f"{name}(A.name, ', ')"
            )
            raise QueryError(
                f"argument {place + 1} of {name} must be a constant",
                hint=f"as in {example}",
                span=arguments[place].span,
            )


def _ordered(key: exp.Expr, place: Place, argument: Argument, inside: Inside) -> OrderedBy:
    if not isinstance(key, exp.Ordered):
        return OrderedBy(inside(key, argument), span=place.span(key))
    return OrderedBy(
        inside(key.this, argument),
        bool(key.args.get("desc")),
        bool(key.args.get("nulls_first")),
        place.span(key),
    )
