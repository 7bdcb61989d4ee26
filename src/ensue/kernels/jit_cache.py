"""A cache of machine code between processes.

Unlike Numba's own cache, each function and signature is one checksummed file for exactly this
processor; a damaged one is compiled again.
"""

import hashlib
import os
import pickle
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite.binding import ffi
from numba.core import typeinfer
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.serialize import dumps

from ensue import cache_files
from ensue.kernels.jit import loading

# in the order in which the compiler acquires them
_LOCKS: tuple[Any, ...] = (loading, global_compiler_lock, ffi.lib._lock)
_taken: list[Any] = []


@lru_cache(maxsize=1)
def guard_forks() -> None:
    """Make forks wait until no other thread is in the compiler.

    A child has only the forking thread: a lock held by another thread would never be released, and
    the compiler's tables might be half written.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_take, after_in_parent=_release, after_in_child=_release)


def _take() -> None:
    for lock in _LOCKS:
        lock.__enter__()
        _taken.append(lock)


def _release() -> None:
    while _taken:
        _taken.pop().__exit__(None, None, None)


guard_forks()


class MachineCodeCache(NullCache):  # type: ignore[misc]
    """The cache of one function for Numba's dispatcher."""

    def __init__(self, function: Callable[..., Any], source: str, place: Path | None = None):
        self._function = function
        self._name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"
        self._source = source
        self._place = place

    @property
    def cache_path(self) -> str | None:
        place = self._place or cache_files.get_cache_folder()
        return None if place is None else str(place)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load the code for a signature, or return None."""
        target_context.refresh()
        name = self._file(sig, target_context.codegen())
        content = cache_files.read_cached(name, self._place)
        if content is None:
            return None
        try:
            saved, payload = pickle.loads(content)
            return CompileResult._rebuild(target_context, *payload) if saved == sig else None
        except Exception as error:  # noqa: BLE001  pickle and LLVM raise anything
            path = Path(self.cache_path or "", name)
            cache_files.warn_of_rebuild(path, f"cannot be loaded ({type(error).__name__}: {error})")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the code for a signature."""
        if data.library.has_dynamic_globals or any(not part.can_cache for part in data.lifted):
            cache_files.warn_once(
                "code",
                f"{self._name} is compiled in every process: it uses a large global array or a "
                "pointer, which cannot be cached with its code",
            )
            return
        name = self._file(sig, data.codegen)
        cache_files.write_cached(name, dumps((sig, data._reduce())), self._place)

    def _file(self, sig: Any, codegen: Any) -> str:
        code = hashlib.sha256(self._function.__code__.co_code).hexdigest()
        parts = (_versions(), self._source, self._name, code, str(sig), codegen.magic_tuple())
        return f"{self._name}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"


def compile_cached(
    function: Callable[..., Any], source: str, signature: object = None, *, place: Path | None = None, **options: Any
) -> Callable[..., Any]:
    """Compile a function for a signature (or lazily, for None), using the cache.

    `source` is the text that the code depends on, or a digest of it.
    """
    dispatcher: Any = numba.njit(**options)(function)
    if dispatcher is function:  # NUMBA_DISABLE_JIT
        return function
    dispatcher._cache = MachineCodeCache(function, source, place)
    _take_values(dispatcher)
    if signature is not None:
        with typeinfer.register_dispatcher(dispatcher):  # as numba.njit does, for recursion
            dispatcher.compile(signature)
        dispatcher.disable_compile()
    compiled: Callable[..., Any] = dispatcher
    return compiled


def is_cached(dispatcher: Any, types: tuple[Any, ...]) -> bool:
    """Whether the cache has the machine code of a function for some types."""
    code = getattr(dispatcher, "_cache", None)
    if not isinstance(code, MachineCodeCache) or code.cache_path is None:
        return False
    name = code._file(types, cpu_target.target_context.codegen())
    return Path(code.cache_path, name).exists()


def numba_type(type: Any) -> Any:
    """Numba's type for one of `jit.get_type`."""
    match type:
        case "none":
            return numba.types.none
        case str():
            return numba.from_dtype(np.dtype(type))
        case "array", dtype, ndim, layout, readonly:
            kind = numba.from_dtype(np.dtype(dtype))
            return numba.types.Array(kind, ndim, layout, readonly=readonly)
        case "tuple", named, *parts:
            return numba.types.BaseTuple.from_types(tuple(map(numba_type, parts)), named)
        case _:
            raise TypeError(f"no type of arguments: {type!r}")


def _take_values(dispatcher: Any) -> None:
    """Compile a function once per type, not for each literal argument.

    Numba's literal types would compile the geometry kernels ten times.
    """
    get_template = dispatcher.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        plain = {name: numba.types.unliteral(kind) for name, kind in kws.items()}
        return get_template(tuple(map(numba.types.unliteral, args)), plain)

    dispatcher.get_call_template = get_call_template


def _versions() -> tuple[object, ...]:
    # bounds-checked code differs
    checked = numba.config.BOUNDSCHECK
    tag = sys.implementation.cache_tag
    return numba.__version__, llvmlite.__version__, np.__version__, tag, sys.abiflags, checked
