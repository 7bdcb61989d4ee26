"""The source of a user's function, with all that it needs, as part of a generated kernel."""

import ast
import linecache
import math
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from ensue.algebra.code import outside, plain_function

Function = Callable[..., Any]

_CONSTANTS = (bool, int, float, str)
_MODULES = ("math", "numpy", "operator")


class NotEmbeddable(Exception):
    """A function whose source cannot stand alone; the text says why."""


def embedded(function: Function, name: str) -> str:
    """A text that defines `name` as this function, ready for compiled code to call.

    Constants, modules and functions that it uses come along; they are as they are now.
    """
    return "\n".join([*_scope(function, name, set()), f"{name} = make_{name}()", ""])


def _scope(function: Function, name: str, seen: set[int]) -> Iterator[str]:
    """A function that makes the function: what it uses has its names only inside."""
    plain = plain_function(function)
    if not isinstance(plain, FunctionType):
        raise NotEmbeddable("it is no plain function")
    if id(plain) in seen:
        raise NotEmbeddable("it calls itself")
    definition = _definition(plain)
    yield f"def make_{name}():"
    for used, value in outside(plain).items():
        for line in _brought(used, value, seen | {id(plain)}):
            yield f"    {line}"
    yield "    @njit"
    for line in ast.unparse(definition).splitlines():
        yield f"    {line}"
    yield f"    return {definition.name}"


def _brought(name: str, value: object, seen: set[int]) -> Iterator[str]:
    """What a function knows under a name, defined again."""
    match value:
        case ModuleType() if value.__name__ in _MODULES:
            yield f"import {value.__name__} as {name}"
        case BuiltinFunctionType() if value.__module__ == math.__name__:
            yield f"from math import {value.__name__} as {name}"
        case float() if not math.isfinite(value):
            yield f"{name} = float({str(value)!r})"
        case _ if type(value) in _CONSTANTS:
            yield f"{name} = {value!r}"
        case tuple() if all(type(v) in _CONSTANTS for v in value):
            yield f"{name} = {value!r}"
        case _ if isinstance(plain_function(value), FunctionType):  # type: ignore[arg-type]
            yield from _scope(value, name, seen)  # type: ignore[arg-type]
            yield f"{name} = make_{name}()"
        case _:
            raise NotEmbeddable(f"it uses {name}, a {type(value).__name__}")


# ---------------------------------------------------------------------------------- its source


def _definition(function: FunctionType) -> ast.FunctionDef:
    """A function's own `def`, or that of a lambda; the text must give the very same code."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        tree = ast.Module([], [])
    # a compiler knows the names that a module imports, and calls their functions another way
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Lambda | ast.FunctionDef):
            continue
        if node.lineno == code.co_firstlineno and _same(node, code, imports):
            return _plain(node)
    raise NotEmbeddable("its source is not found")


def _same(node: ast.Lambda | ast.FunctionDef, code: CodeType, imports: Sequence[ast.stmt]) -> bool:
    """Whether a piece of source compiles to this code."""
    around = ast.parse(f"def around({', '.join(code.co_freevars)}): return None").body[0]
    assert isinstance(around, ast.FunctionDef)
    body: ast.stmt = ast.Expr(node) if isinstance(node, ast.Lambda) else node
    around.body = [body]
    module = ast.fix_missing_locations(ast.Module([*imports, around], []))
    try:
        compiled = compile(module, code.co_filename, "exec")
    except SyntaxError:
        return False
    return any(_alike(found, code) for found in _codes(compiled))


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _alike(one: CodeType, other: CodeType) -> bool:
    return (
        one.co_code == other.co_code
        and one.co_names == other.co_names
        and one.co_varnames == other.co_varnames
        and [repr(c) for c in one.co_consts if not isinstance(c, CodeType)]
        == [repr(c) for c in other.co_consts if not isinstance(c, CodeType)]
    )


def _plain(node: ast.Lambda | ast.FunctionDef) -> ast.FunctionDef:
    """The function as a `def` without decorators, defaults and annotations."""
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(name) for name in names],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    lines: list[ast.stmt] = (
        [ast.Return(node.body)] if isinstance(node, ast.Lambda) else list(node.body)
    )
    name = "judge" if isinstance(node, ast.Lambda) else node.name
    made = ast.FunctionDef(name=name, args=arguments, body=lines, decorator_list=[])
    if "type_params" in ast.FunctionDef._fields:
        made.type_params = []  # type: ignore[attr-defined]
    return ast.fix_missing_locations(made)
