"""Registers user-defined functions for kernels, and checks whether they can be compiled."""

import hashlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn

from ensue import cache_files
from ensue.codegen import kernel_cache
from ensue.errors import OperatorError
from ensue.ir.pattern import OperatorCall
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_operator_calls
from ensue.kernels import jit
from ensue.planner.join_operators import OperatorFunction, describe_operator
from ensue.schema import ValueKind

_GIVEN: dict[tuple[str, str], Callable[..., Any]] = {}
_HEAD = "from numba import njit\n"
COMPILED = "compiled"


def get_function(fingerprint: str, which: str) -> Callable[..., Any]:
    """The function of an operator by its fingerprint: cached kernels fit equal functions."""
    return _GIVEN[fingerprint, which]


def register_functions(query: Query) -> None:
    """Registers the functions of a query's operators for kernels."""
    for applied in iterate_operator_calls(query.pattern):
        user = applied.operator
        for which, function in (("q", user.q), ("f", user.f)):
            if function is not None:
                _GIVEN[user.fingerprint, which] = function


def raise_naming_operator(error: Exception, query: Query) -> NoReturn:
    """Raises the error of a kernel, and names the operator if it can be that of a user-defined function."""
    names = ", ".join(dict.fromkeys(a.operator.name for a in iterate_operator_calls(query.pattern)))
    if not names:
        raise error
    raise OperatorError(f"a function of operator {names} failed: {type(error).__name__}: {error}") from error


def find_uncompilable(query: Query) -> Mapping[str, str]:
    """The operators of a query that Numba cannot compile, by name, with the reason."""
    register_functions(query)
    reasons: dict[str, str] = {}
    for applied in iterate_operator_calls(query.pattern):
        node = describe_operator(applied, 0)
        for function in (node.fits, node.builds):
            why = None if function is None else _try_compile(function, _types(applied, function))
            if why is not None:
                reasons[applied.operator.name] = why
                break
    return reasons


def _types(applied: OperatorCall, function: OperatorFunction) -> tuple[str, ...]:
    """The types of a function's arguments, in their order."""
    time = "float64" if applied.time is ValueKind.FLOAT else "int64"
    by_name = {"start": time, "end": time}
    for reads in applied.reads:
        for reading in reads:
            by_name[reading.column] = by_name[reading.field] = _type(reading.kind)
    by_name |= {name: _type(kind) for name, kind in applied.operator.z if name not in by_name}
    return tuple(by_name[argument.name] for argument in function.arguments)


def _type(kind: ValueKind) -> str:
    return "float64" if kind in (ValueKind.FLOAT, ValueKind.DECIMAL) else "int64"


def _try_compile(function: OperatorFunction, types: tuple[str, ...]) -> str | None:
    """Why Numba cannot compile a function, if it cannot; cached on disk."""
    if kernel_cache.interpreted or jit.is_disabled():
        return None
    from importlib.metadata import version

    signature = f"{version('numba')} {function.text} {types}"
    digest = hashlib.sha256(signature.encode()).hexdigest()[:32]
    name = f"operator-{digest}"
    known = cache_files.read_cached(name)
    if known is not None:
        verdict = known.decode()
        return None if verdict == COMPILED else verdict
    module = ModuleType("ensue_operator")
    try:
        with jit.using_numba():
            from ensue.kernels.jit_cache import numba_type

            exec(_HEAD + function.text, module.__dict__)
            getattr(module, function.name).compile(tuple(map(numba_type, types)))
    except Exception as error:  # noqa: BLE001  Numba raises errors of many types
        verdict = _first_line(error)
    else:
        verdict = COMPILED
    cache_files.write_cached(name, verdict.encode())
    return None if verdict == COMPILED else verdict


def _first_line(error: Exception) -> str:
    """The essential line of Numba's error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ignored = ("Failed in nopython", "During: ", "File ", "- Resolution failure", "def ", "@")
    essential = [line for line in lines if not line.startswith(ignored)]
    return (essential or lines or [type(error).__name__])[0][:160]
