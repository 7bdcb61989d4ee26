"""Conditions, columns and windows that stand alone, as the builder takes them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput

from ensue.algebra.predicate import Expr, Literal
from ensue.algebra.query import Equivalence, Returned, SortKey
from ensue.algebra.text import show_expr
from ensue.algebra.window import Window
from ensue.errors import QueryError
from ensue.languages.clauses import returned_of
from ensue.languages.expressions import Node, condition, expr_of, pieces
from ensue.languages.parameter_tokens import read
from ensue.languages.parameters import Parameters, constant_of
from ensue.languages.patterns import grammar_of, limit_depth
from ensue.languages.syntax import explain
from ensue.languages.whole_results import sort_key_of
from ensue.languages.windows import window_of

_OPTIONS = 2  # of `x in (...)`: x, NOT, and then what it may be


@dataclass(frozen=True, slots=True)
class Names:
    """What a name without a field stands for."""

    values: Mapping[str, Any]  # a constant
    about: str | None = None  # else a field of this variable
    variables: Collection[str] = ()  # unless it is one of these
    used: set[str] = field(default_factory=set)  # the values that some text has named

    def unused(self) -> list[str]:
        """The values that no text has named."""
        return [name for name in self.values if name not in self.used]


def read_condition(text: str, names: Names) -> tuple[tuple[Expr, ...], tuple[Equivalence, ...]]:
    """The conjuncts of a text, and its `[attr]`s.

    >>> found, _ = read_condition("price > low and [k]", Names({"low": 3}, about="b"))
    >>> [show_expr(condition) for condition in found]
    ['b.price > 3']
    """
    return condition(_read(text, "condition", names))


def read_expression(text: str, names: Names) -> Expr:
    """What a text stands for in HAVING, or behind the name of a column."""
    return expr_of(_read(text, "expression", names))


def read_column(text: str, names: Names) -> Returned | None:
    """A column of RETURN, with or without AS; None is EXISTS."""
    node = _read(text, "returned", names)
    return None if node.data == "exists" else returned_of(node)


def read_grouped(text: str, names: Names) -> Returned:
    """A column of RETURN beside GROUP BY: an aggregate over matches."""
    node = _read(text, "returned", names)
    if node.data == "exists":
        raise QueryError("EXISTS is no aggregate over matches", hint="as in COUNT(*)")
    found = returned_of(node, grouped=True)
    if found.over is None:
        raise QueryError(
            "this is no aggregate over matches", hint="as in COUNT(*), or avg(b.price - a.price)"
        )
    return found


def read_sort_key(text: str, names: Names) -> SortKey:
    """What rows are ordered by: an expression, ASC or DESC, and where NULL is."""
    return sort_key_of(_read(text, "sorted", names))


def read_window(text: str) -> Window:
    """A length of time, of units, or a number of events."""
    return window_of(_read(text, "window", Names({})))


@cache
def _grammar() -> Lark:
    return grammar_of("condition", "expression", "returned", "sorted", "window")


def _read(text: str, rule: str, names: Names) -> Node:
    parameters = Parameters(names.values, lambda name: f"pass it: {name}=...", names.used)
    try:
        tree = read(_grammar(), text, rule, parameters)
        limit_depth(tree)
    except UnexpectedInput as error:
        raise explain(error, text, parameters) from None
    except QueryError as error:
        raise error.at(None, text) from None
    found = _resolved(tree, names)
    if len(found) > 1:
        raise _several()
    return found[0]


def _resolved(node: Node, names: Names) -> list[Node]:
    """The tree with values and fields in place of names that stand alone; a list is several."""
    if node.data == "reference":
        name, index, attribute = pieces(node)
        if index is None and attribute is None:
            return _named(node, name, names)
    inside: list[Any] = []
    for place, child in enumerate(node.children):
        if not isinstance(child, Tree):
            inside.append(child)
            continue
        found = _resolved(child, names)
        if len(found) > 1:
            if node.data == "expression" and len(node.children) == 1:
                return found
            if node.data != "is_in" or place < _OPTIONS:
                raise _several()
        inside += found
    return [Tree(node.data, inside, node.meta)]


def _several() -> QueryError:
    return QueryError(
        "there are several values where one is expected", hint="as in b.kind in (kinds)"
    )


def _named(node: Node, token: Token, names: Names) -> list[Node]:
    name = str(token)
    if name in names.values:
        if name in names.variables:
            raise QueryError(
                f"'{name}' is both an event of the pattern and a value",
                hint="give the value another name",
            )
        names.used.add(name)
        value = names.values[name]
        several = value if isinstance(value, list | tuple | set | frozenset) else [value]
        if not several:
            raise QueryError(f"{name}= is an empty list", hint="leave the condition out")
        return [_literal(name, one) for one in _ordered(several)]
    if names.about is None or name in names.variables:
        return [node]
    owner = Token.new_borrow_pos("NAME", names.about, token)
    nothing: Any = None
    return [Tree("reference", [owner, nothing, token], node.meta)]


def _ordered(values: Iterable[Any]) -> list[Any]:
    """Values in one order: that of a set changes from run to run."""
    return sorted(values, key=repr) if isinstance(values, set | frozenset) else list(values)


def _literal(name: str, value: object) -> Node:
    """A constant as the tree of its text; the printer quotes it."""
    try:
        constant = constant_of(value)
    except ValueError:
        raise QueryError(
            f"{name}={value!r} cannot be used as a constant",
            hint="pass a number, a string, a boolean, None, a datetime or a timedelta",
        ) from None
    return _grammar().parse(show_expr(Literal(constant)), start="expression")
