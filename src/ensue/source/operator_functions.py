"""Users' functions where generated kernels find them, and whether they can be compiled."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ensue import private_files
from ensue.algebra.pattern import Apply
from ensue.algebra.query import Query
from ensue.algebra.walk import results
from ensue.errors import OperatorError
from ensue.kernels import jit
from ensue.plan.physical_rules.operators import Function
from ensue.plan.physical_rules.user_operators import operator_of
from ensue.schema import Kind
from ensue.source import cache

_GIVEN: dict[tuple[str, str], Callable[..., Any]] = {}
_HEAD = "from numba import njit\n"
COMPILED = "compiled"


def given(fingerprint: str, which: str) -> Callable[..., Any]:
    """The function of an operator, by what it does: kernels on disk fit any that does the same."""
    return _GIVEN[fingerprint, which]


def know(query: Query) -> None:
    """Makes the functions of a query's operators known to kernels."""
    for applied in results(query.pattern):
        user = applied.operator
        for which, function in (("q", user.q), ("f", user.f)):
            if function is not None:
                _GIVEN[user.fingerprint, which] = function


@contextmanager
def failing_functions(query: Query) -> Iterator[None]:
    """Says whose function failed, where a kernel calls functions of users."""
    try:
        yield
    except Exception as error:
        names = ", ".join(dict.fromkeys(a.operator.name for a in results(query.pattern)))
        if not names:
            raise
        raise OperatorError(
            f"a function of operator {names} failed: {type(error).__name__}: {error}"
        ) from error


def run_as_python(query: Query) -> Mapping[str, str]:
    """The operators of a query that Numba cannot compile, by name, each with its reason."""
    know(query)
    found: dict[str, str] = {}
    for applied in results(query.pattern):
        why = _why_python(applied)
        if why is not None:
            found[applied.operator.name] = why
    return found


def _why_python(applied: Apply) -> str | None:
    node = operator_of(applied, 0)
    kinds = {("q", k): v for k, v in enumerate(_types(applied, node.fits))}
    kinds |= {("f", k): v for k, v in enumerate(_types(applied, node.builds))}
    for function, which in ((node.fits, "q"), (node.builds, "f")):
        if function is None:
            continue
        types = tuple(v for (w, _), v in kinds.items() if w == which)
        why = _tried(function, types)
        if why is not None:
            return why
    return None


def _types(applied: Apply, function: Function | None) -> list[str]:
    """The types of a function's arguments, in their order."""
    if function is None:
        return []
    time = "float64" if applied.time is Kind.FLOAT else "int64"
    by_name = {"start": time, "end": time}
    for reads in applied.reads:
        for reading in reads:
            by_name[reading.column] = by_name[reading.field] = _type(reading.kind)
    by_name |= {name: _type(kind) for name, kind in applied.operator.z if name not in by_name}
    return [by_name[argument.name] for argument in function.arguments]


def _type(kind: Kind) -> str:
    return "float64" if kind in (Kind.FLOAT, Kind.DECIMAL) else "int64"


def _tried(function: Function, types: tuple[str, ...]) -> str | None:
    """Why Numba cannot compile a function, if it cannot; remembered on disk."""
    if cache.interpreted or jit.is_off():
        return None
    from importlib.metadata import version

    shown = f"{version('numba')} {function.text} {types}"
    digest = hashlib.sha256(shown.encode()).hexdigest()[:32]
    name = f"operator-{digest}"
    known = private_files.read(name)
    if known is not None:
        verdict = known.decode()
        return None if verdict == COMPILED else verdict
    module = ModuleType("ensue_operator")
    try:
        with jit.using_numba():
            from ensue.kernels.kept_code import numba_type

            exec(_HEAD + function.text, module.__dict__)
            getattr(module, function.name).compile(tuple(map(numba_type, types)))
    except Exception as error:  # noqa: BLE001  Numba's errors are of many kinds
        verdict = _first_line(error)
    else:
        verdict = COMPILED
    private_files.write(name, verdict.encode())
    return None if verdict == COMPILED else verdict


def _first_line(error: Exception) -> str:
    """What Numba complains of, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ignored = ("Failed in nopython", "During: ", "File ", "- Resolution failure", "def ", "@")
    telling = [line for line in lines if not line.startswith(ignored)]
    return (telling or lines or [type(error).__name__])[0][:160]
