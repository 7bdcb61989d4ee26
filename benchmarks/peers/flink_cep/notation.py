"""Flink patterns and events as short texts, and what they are for the program that asks Flink.

A pattern is written as one would call Flink's builder, with two short forms. The second argument
of `begin`, `next`, ... is the event's type; conditions are texts, in which a bare name is a field
of the event that is judged, and `last(a.price)`, `sum(a.price)`, `count(a)` speak of the events
that a part holds so far:

>>> for call in calls('begin("a", "A").oneOrMore().next("b").where("x > last(a.x)")'):
...     print(call)
{'call': 'begin', 'name': 'a'}
{'call': 'where', 'condition': ['==', ['field', 'type'], 'A']}
{'call': 'oneOrMore'}
{'call': 'next', 'name': 'b'}
{'call': 'where', 'condition': ['>', ['field', 'x'], ['last', 'a', 'x']]}

Events are letters, each a type, at the times 1, 2, 3 and so on, or a table with its names in the
first row:

>>> rows("A B")
[{'ts': 1, 'type': 'A'}, {'ts': 2, 'type': 'B'}]
>>> rows([["ts", "type", "x"], [4, "A", 9]])
[{'ts': 4, 'type': 'A', 'x': 9}]
"""

import ast
from typing import Any

STEPS = ("begin", "next", "followedBy", "followedByAny", "notNext", "notFollowedBy")
CONDITIONS = ("where", "or", "until")
SIGNS: dict[type[ast.AST], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Mod: "%",
}

Tree = list[Any] | str | int | float | bool | None
Call = dict[str, Any]
Row = dict[str, Any]


def calls(pattern: str) -> list[Call]:
    """The calls of Flink's builder that `pattern` writes down."""
    # `or` is a word of Python, which reads the text for us.
    return _chain(ast.parse(pattern.replace(".or(", ".or_("), mode="eval").body)


def condition(text: str) -> Tree:
    """The tree of a condition.

    >>> condition("price > 3 and type in ('A', 'B')")
    ['and', ['>', ['field', 'price'], 3], ['in', ['field', 'type'], 'A', 'B']]
    """
    return _tree(ast.parse(text, mode="eval").body)


def rows(events: str | list[list[Any]]) -> list[Row]:
    """The events that a text of types or a table stands for."""
    if isinstance(events, str):
        return [{"ts": ts, "type": kind} for ts, kind in enumerate(events.split(), start=1)]
    names, *values = events
    return [dict(zip(names, row, strict=True)) for row in values]


def _chain(node: ast.expr) -> list[Call]:
    assert isinstance(node, ast.Call), ast.dump(node)
    if isinstance(node.func, ast.Name):
        return _call(node.func.id, node)
    assert isinstance(node.func, ast.Attribute)
    return [*_chain(node.func.value), *_call(node.func.attr.rstrip("_"), node)]


def _call(method: str, node: ast.Call) -> list[Call]:
    window = {each.arg: _constant(each.value) for each in node.keywords}
    if method in STEPS:
        return _step(method, node.args)
    if method in CONDITIONS:
        return [{"call": method, "condition": condition(str(_constant(node.args[0])))}]
    values = [_constant(each) for each in node.args]
    numbers = [each for each in values if isinstance(each, int)]
    kinds = [each for each in values if isinstance(each, str)]
    call: Call = {"call": method, **window}
    if numbers:
        call["numbers"] = numbers
    if kinds:
        call["kind"] = kinds[0]
    return [call]


def _step(method: str, arguments: list[ast.expr]) -> list[Call]:
    call: Call = {"call": method}
    types: list[Call] = []
    for argument in arguments:
        if isinstance(argument, ast.Call):
            name = argument.func.id if isinstance(argument.func, ast.Name) else ""
            if name.startswith(("skip", "noSkip")):
                call["skip"] = _skip(name, argument)
            else:
                call["group"] = _chain(argument)
        elif "name" not in call:
            call["name"] = _constant(argument)
        else:
            types = [{"call": "where", "condition": ["==", ["field", "type"], _constant(argument)]}]
    return [call, *types]


def _skip(kind: str, node: ast.Call) -> Call:
    skip: Call = {"kind": kind}
    if node.args:
        skip["name"] = _constant(node.args[0])
    if node.keywords:
        skip["throw"] = True
    return skip


def _constant(node: ast.expr) -> Any:
    return ast.literal_eval(node)


def _tree(node: ast.expr) -> Tree:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return ["field", name]
        case ast.BoolOp(op=op, values=values):
            return ["and" if isinstance(op, ast.And) else "or", *map(_tree, values)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ["not", _tree(operand)]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ["-", 0, _tree(operand)]
        case ast.BinOp(left=left, op=op, right=right):
            return [SIGNS[type(op)], _tree(left), _tree(right)]
        case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.Tuple(elts=choices)]):
            return ["in", _tree(left), *map(_tree, choices)]
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return [SIGNS[type(op)], _tree(left), _tree(right)]
        case ast.Call(func=ast.Name(id="abs"), args=[argument]):
            return ["abs", _tree(argument)]
        case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=part)]):
            return [name, part]
        case ast.Call(func=ast.Name(id=name), args=[ast.Attribute(value=ast.Name(id=part), attr=field)]):
            return [name, part, field]
    raise ValueError(f"no condition: {ast.unparse(node)}")
