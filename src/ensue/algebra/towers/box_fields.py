"""What the fields of a box are, in terms of the events that its pattern stands for."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from ensue.algebra.form import Form, form, is_event, is_list, parts
from ensue.algebra.pattern import Kleene, Pattern
from ensue.algebra.predicate import Aggregate, At, Binary, Call, Expr, Field, Literal
from ensue.algebra.query import Query
from ensue.algebra.text import show_expr
from ensue.algebra.walk import operands, with_operands
from ensue.algebra.window import ByTime, ByUnits, Window

_OF_ONE = ("min", "max", "first", "last", "sum")  # aggregates that give a lone value back


class NotSaidError(Exception):
    """A layer names something of a box that its events alone do not tell."""


# -------------------------------------------------------------------------------------- times


def start_of(pattern: Pattern, column: Mapping[str, str]) -> Expr:
    """When a match of a pattern starts; `column` is where each variable's start is.

    >>> from ensue.algebra.pattern import And, Atom, Seq
    >>> a, b, c = (Atom("T", name) for name in "abc")
    >>> from collections import defaultdict
    >>> show_expr(start_of(And((Seq((a, b)), c)), defaultdict(lambda: "t")))
    'least(a.t, c.t)'
    """
    expr, _ = _edge(pattern, column, first=True)
    assert expr is not None  # a pattern that binds nothing is refused before
    return expr


def end_of(pattern: Pattern, column: Mapping[str, str]) -> Expr:
    """When a match of a pattern ends; `column` is where each variable's end is.

    >>> from ensue.algebra.pattern import Atom, Seq
    >>> k = Kleene(Atom("T", "k"), 0, None)
    >>> show_expr(end_of(Seq((Atom("T", "a"), k)), {"a": "t", "k": "t"}))
    'coalesce(last(k.t), a.t)'
    """
    expr, _ = _edge(pattern, column, first=False)
    assert expr is not None
    return expr


def _edge(pattern: Pattern, column: Mapping[str, str], *, first: bool) -> tuple[Expr | None, bool]:
    """A time, and whether there always is one."""
    if is_event(pattern):
        return Field(pattern.variable, column[pattern.variable]), True
    if is_list(pattern):
        name = pattern.atom.variable
        if pattern.least:
            return Field(name, column[name], At.NTH if first else At.LAST), True
        every = Field(name, column[name], At.ALL)
        return Aggregate("first" if first else "last", name, every), False
    inner = parts(pattern)
    match form(pattern):
        case Form.SEQUENCE:
            tried: list[Expr] = []
            for part in inner if first else reversed(inner):
                expr, certain = _edge(part, column, first=first)
                tried += [] if expr is None else [expr]
                if certain:
                    return _one_of("coalesce", tried), True
            return _one_of("coalesce", tried), False
        case Form.TOGETHER:
            edges = [_edge(part, column, first=first) for part in inner]
            times = [expr for expr, _ in edges if expr is not None]
            certain = any(known for _, known in edges)
            return _one_of("least" if first else "greatest", times), certain
        case Form.ABSENCE:
            return None, False
        case Form.EVENT | Form.LIST | Form.LOOP | Form.RESULT | Form.OPTION | Form.CHOICE:
            raise AssertionError(f"{form(pattern)} in a box")  # boxes are without them


def _one_of(function: str, times: list[Expr]) -> Expr | None:
    if len(times) < 2:
        return times[0] if times else None
    return Call(function, tuple(times))


def window_condition(window: Window | None, start: Expr, end: Expr) -> tuple[Expr, ...]:
    """That a box lasts no longer than its window allows."""
    match window:
        case ByUnits(amount=amount):
            length = Literal(amount)
        case ByTime(nanoseconds=nanoseconds):
            length = Literal(timedelta(microseconds=nanoseconds // 1_000))
        case _:
            return ()
    return (Binary("<=", Binary("-", end, start), length),)


# ------------------------------------------------------------------------------------- fields


def fields_of(query: Query, starts: Mapping[str, str], ends: Mapping[str, str]) -> dict[str, Expr]:
    """The fields of a box by name: what its layer returns, its start and its end."""
    own = {r.name.removesuffix("@own"): r.expr for r in query.returns}
    pattern = query.pattern
    return {"start": start_of(pattern, starts), "end": end_of(pattern, ends)} | own


def substituted(
    expr: Expr, variable: str, fields: Mapping[str, Expr], lists: Mapping[str, Kleene]
) -> Expr:
    """An expression without a box: its fields are replaced by what they are.

    `lists` are the Kleene variables of the box's pattern. Raises NotSaidError.
    """
    match expr:
        case Field(variable=named, name=name) if named == variable:
            if name is None or name not in fields:
                raise NotSaidError(
                    f"{show_expr(expr)} exists only for complex events"
                    if name is not None
                    else f"the whole of {variable} is no value of its events"
                )
            return _certain(fields[name], lists)
        case Aggregate(variable=named, argument=None) if named == variable:
            return Literal(1)
        case Aggregate(variable=named, argument=argument) if named == variable:
            assert argument is not None
            if expr.function not in _OF_ONE:
                raise NotSaidError(f"{show_expr(expr)} is an aggregate over a complex event")
            return substituted(argument, variable, fields, lists)
        case _:
            inside = (substituted(e, variable, fields, lists) for e in operands(expr))
            return with_operands(expr, tuple(inside))


def _certain(expr: Expr, lists: Mapping[str, Kleene]) -> Expr:
    """An expression that is NULL where an event is missing.

    A condition that names a missing event itself does not apply, but one on a box's field does.
    """
    match expr:
        case Field(variable=variable, name=name, at=at, nth=nth):
            if name is None or at is At.ALL:
                raise NotSaidError(f"{show_expr(expr)} is more than one value")
            least = lists[variable].least if variable in lists else 1
            if nth <= least:
                return expr
            if nth > 1:
                raise NotSaidError(f"{show_expr(expr)} is optional")
            every = Field(variable, name, At.ALL)
            return Aggregate("last" if at is At.LAST else "first", variable, every)
        case Aggregate():
            return expr
        case _:
            return with_operands(expr, tuple(_certain(e, lists) for e in operands(expr)))


def named_anew(expr: Expr, names: Mapping[str, str]) -> Expr:
    """An expression with other names for variables.

    >>> show_expr(named_anew(Field("a", "price"), {"a": "x_a"}))
    'x_a.price'
    """
    inside = with_operands(expr, tuple(named_anew(e, names) for e in operands(expr)))
    if isinstance(inside, Field | Aggregate):
        return replace(inside, variable=names.get(inside.variable, inside.variable))
    return inside
