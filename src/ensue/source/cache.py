"""Generated kernels: compiled once, then loaded by every process that needs them."""

import hashlib
import linecache
import sys
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

import numba

from ensue.kernels.forking import loading
from ensue.kernels.kept_code import is_kept, kept

interpreted = False  # True: generated kernels run as plain Python, which tests find quicker
_NOTHING_COMPILED = """
def njit(*given, **_):
    return given[0] if given else lambda function: function
"""


def compiled(
    text: str, function: str, signature: object, *, python: bool = False
) -> Callable[..., Any]:
    """A function of a generated source, compiled for a signature (or lazily, for None).

    With `python` it is not compiled: it calls what Numba does not take.
    """
    if interpreted or python or numba.config.DISABLE_JIT:
        return uncompiled(text, function)
    with loading:
        module = _module(text)
        ready: dict[object, Callable[..., Any]] = module.__dict__.setdefault("_compiled", {})
        wanted = function, signature  # one text may serve times of two types
        if wanted not in ready:
            ready[wanted] = kept(
                getattr(module, function), text, signature, nogil=True, error_model="numpy"
            )
        return ready[wanted]


def uncompiled(text: str, function: str) -> Callable[..., Any]:
    """A function of a generated source as plain Python."""
    plain: Callable[..., Any] = getattr(_plain(text), function)
    return plain


def is_ready(text: str, function: str, signature: object) -> bool:
    """Whether a function is compiled already, here or in a file."""
    module = _module(text)
    known = module.__dict__.get("_compiled", {})
    return (function, signature) in known or is_kept(getattr(module, function), text, signature)


@lru_cache(maxsize=256)
def _plain(text: str) -> ModuleType:
    """The source as an ordinary module, with nothing kept on disk."""
    module = ModuleType("ensue_kernel")
    plain = text.replace("from numba import njit\n", _NOTHING_COMPILED)
    exec(compile(plain, module.__name__, "exec"), module.__dict__)
    return module


def _module(text: str) -> ModuleType:
    name = f"ensue_kernel_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    file = f"<{name}>"
    # tracebacks and Numba's errors show lines of the text
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    # before it runs: code loaded from the cache looks its module up by name
    sys.modules[name] = module
    try:
        exec(compile(text, file, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module
