"""Parses single conditions, columns and windows, which the builder takes as text."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput

from ensue.errors import QueryError
from ensue.ir.expression import Expr, Literal
from ensue.ir.query import Equivalence, ReturnItem, SortKey
from ensue.ir.selection import Window
from ensue.parser.clauses import build_column, build_sort_key, build_window
from ensue.parser.expressions import Node, build_conjuncts, build_expression, get_children
from ensue.parser.grammar import parse_tree
from ensue.parser.parameters import Parameters, to_constant
from ensue.parser.pattern_parser import check_depth, load_pattern_grammar
from ensue.printing.expression_printer import format_expr

_OPTIONS = 2  # of `x in (...)`: x and NOT precede the options


@dataclass(frozen=True, slots=True)
class FragmentNames:
    """How a name without a field is resolved."""

    values: Mapping[str, Any]  # a constant
    about: str | None = None  # else a field of this variable
    variables: Collection[str] = ()  # unless it is one of these
    used: set[str] = field(default_factory=set)  # by some text

    def list_unused(self) -> list[str]:
        """Returns the values that no text has used."""
        return [name for name in self.values if name not in self.used]


def read_condition(text: str, names: FragmentNames) -> tuple[tuple[Expr, ...], tuple[Equivalence, ...]]:
    """Parses the conjuncts of a text, and its `[attr]`s.

    >>> found, _ = read_condition("price > low and [k]", FragmentNames({"low": 3}, about="b"))
    >>> [format_expr(build_conjuncts) for build_conjuncts in found]
    ['b.price > 3']
    """
    return build_conjuncts(_read(text, "condition", names))


def read_expression(text: str, names: FragmentNames) -> Expr:
    """Parses the expression of HAVING, or of a column."""
    return build_expression(_read(text, "expression", names))


def read_column(text: str, names: FragmentNames) -> ReturnItem | None:
    """Parses a column of RETURN, with or without AS; None stands for EXISTS."""
    node = _read(text, "returned", names)
    return None if node.data == "exists" else build_column(node)


def read_group_column(text: str, names: FragmentNames) -> ReturnItem:
    """Parses a column of RETURN with GROUP BY: an aggregate over matches."""
    node = _read(text, "returned", names)
    if node.data == "exists":
        raise QueryError("EXISTS is no aggregate over matches", hint="as in COUNT(*)")
    column = build_column(node, grouped=True)
    if column.over is None:
        raise QueryError("this is no aggregate over matches", hint="as in COUNT(*), or avg(b.price - a.price)")
    return column


def read_sort_key(text: str, names: FragmentNames) -> SortKey:
    """Parses a key of ORDER BY: an expression, ASC or DESC, and the position of NULL."""
    return build_sort_key(_read(text, "sorted", names))


def read_window(text: str) -> Window:
    """Parses a window: a duration, a number of units, or a number of events."""
    return build_window(_read(text, "window", FragmentNames({})))


@cache
def _grammar() -> Lark:
    return load_pattern_grammar("condition", "expression", "returned", "sorted", "window")


def _read(text: str, rule: str, names: FragmentNames) -> Node:
    parameters = Parameters(names.values, lambda name: f"pass it: {name}=...", names.used)
    try:
        tree = parse_tree(_grammar(), text, rule, parameters)
        check_depth(tree)
    except UnexpectedInput as error:
        from ensue.parser.syntax_errors import explain_syntax_error

        raise explain_syntax_error(error, text, parameters) from None
    except QueryError as error:
        raise error.at(None, text) from None
    nodes = _resolve(tree, names)
    if len(nodes) > 1:
        raise _list_error()
    return nodes[0]


def _resolve(node: Node, names: FragmentNames) -> list[Node]:
    """Replaces names without a field by values and fields; a list becomes several nodes."""
    if node.data == "reference":
        name, index, attribute = get_children(node)
        if index is None and attribute is None:
            return _resolve_name(node, name, names)
    children: list[Any] = []
    for index, child in enumerate(node.children):
        if not isinstance(child, Tree):
            children.append(child)
            continue
        resolved = _resolve(child, names)
        if len(resolved) > 1:
            if node.data == "expression" and len(node.children) == 1:
                return resolved
            if node.data != "is_in" or index < _OPTIONS:
                raise _list_error()
        children += resolved
    return [Tree(node.data, children, node.meta)]


def _list_error() -> QueryError:
    return QueryError("there are several values where one is expected", hint="as in b.kind in (kinds)")


def _resolve_name(node: Node, token: Token, names: FragmentNames) -> list[Node]:
    name = str(token)
    if name in names.values:
        if name in names.variables:
            raise QueryError(
                f"'{name}' is both an event of the pattern and a value", hint="give the value another name"
            )
        names.used.add(name)
        value = names.values[name]
        values = value if isinstance(value, list | tuple | set | frozenset) else [value]
        if not values:
            raise QueryError(f"{name}= is an empty list", hint="leave the condition out")
        # a set changes its order from run to run
        ordered = sorted(values, key=repr) if isinstance(values, set | frozenset) else values
        return [_literal(name, item) for item in ordered]
    if names.about is None or name in names.variables:
        return [node]
    owner = Token.new_borrow_pos("NAME", names.about, token)
    no_index: Any = None
    return [Tree("reference", [owner, no_index, token], node.meta)]


def _literal(name: str, value: object) -> Node:
    """Builds the tree of a constant; the printer quotes it."""
    try:
        constant = to_constant(value)
    except ValueError:
        raise QueryError(
            f"{name}={value!r} cannot be used as a constant",
            hint="pass a number, a string, a boolean, None, a datetime or a timedelta",
        ) from None
    return _grammar().parse(format_expr(Literal(constant)), start="expression")
