"""Generated kernels: compiled once, then loaded by every process that needs them."""

import hashlib
import linecache
import sys
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

from ensue import private_files
from ensue.kernels import compile_process, jit
from ensue.kernels.jit import Loop, Types

interpreted = False  # True: generated kernels run as plain Python, which tests find quicker
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_NOTHING_COMPILED = """
def njit(*given, **_):
    return given[0] if given else lambda function: function
"""


def compiled(
    text: str, function: str, signature: Types, *, python: bool = False
) -> Callable[..., Any]:
    """A function of a generated source, compiled for a signature.

    With `python` it is not compiled: it calls what Numba does not take.
    """
    if interpreted or python or jit.is_off():
        return uncompiled(text, function)
    with jit.using_numba():
        from ensue.kernels.kept_code import kept, numba_type

        module = _module(text)
        ready: dict[object, Callable[..., Any]] = module.__dict__.setdefault("_compiled", {})
        wanted = function, signature  # one text may serve times of two types
        if wanted not in ready:
            types = tuple(map(numba_type, signature))
            ready[wanted] = kept(getattr(module, function), text, types, **_OPTIONS)
        return ready[wanted]


def loop(text: str, function: str, *, python: bool = False) -> Callable[..., Any]:
    """A function of a generated source whose arguments say for which types it is compiled."""
    if interpreted or python or jit.is_off():
        return uncompiled(text, function)
    return _loop(text, function)


@lru_cache(maxsize=256)
def _loop(text: str, function: str) -> Loop:
    plain = uncompiled(text, function)

    def make() -> Any:
        from ensue.kernels.kept_code import kept

        return kept(getattr(_module(text), function), text, **_OPTIONS)

    def elsewhere(types: Types) -> tuple[Any, ...]:
        return _compile_loop, text, function, types

    return Loop(plain, _OPTIONS, make, lambda: plain, elsewhere, jit.elements_of)


def _compile_loop(text: str, function: str, types: Types) -> None:
    _loop(text, function).compile(types)


def compile_beside(text: str, function: str, signature: Types) -> None:
    """Has another process compile a function."""
    compile_process.request(compiled, text, function, signature)


def uncompiled(text: str, function: str) -> Callable[..., Any]:
    """A function of a generated source as plain Python."""
    plain: Callable[..., Any] = getattr(_plain(text), function)
    return plain


def is_ready(text: str, function: str, signature: Types) -> bool:
    """Whether a function is compiled already, here or in a file."""
    name = _name(text)
    known = sys.modules[name].__dict__.get("_compiled", {}) if name in sys.modules else {}
    if (function, signature) in known:
        return True
    if f"{name}.{function}" not in private_files.listed()[1]:
        return False
    with jit.using_numba():
        from ensue.kernels.kept_code import is_kept, numba_type

        types = tuple(map(numba_type, signature))
        return is_kept(_loop(text, function).dispatcher, types)


@lru_cache(maxsize=256)
def _plain(text: str) -> ModuleType:
    """The source as an ordinary module, with nothing kept on disk."""
    module = ModuleType(_name(text))
    plain = text.replace("from numba import njit\n", _NOTHING_COMPILED)
    exec(compile(plain, "ensue_kernel", "exec"), module.__dict__)
    for name, value in vars(module).items():
        if isinstance(value, Loop):
            vars(module)[name] = value.plain
    return module


def _name(text: str) -> str:
    return f"ensue_kernel_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _module(text: str) -> ModuleType:
    """The source as a module that Numba compiles; only one thread at a time may ask for it."""
    name = _name(text)
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    file = f"<{name}>"
    # tracebacks and Numba's errors show lines of the text
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), module.__dict__)
    sys.modules[name] = module  # code loaded from the cache looks its module up by name
    return module
