"""Machine code of kernels between processes.

Numba's own cache loads whatever its files hold. Here each function and signature is one file that
is whole, ours and for this very processor, or is compiled again.
"""

import hashlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import typeinfer
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.serialize import dumps

from ensue import private_files
from ensue.kernels import forking

forking.keep_locks_free()


class KeptCode(NullCache):  # type: ignore[misc]
    """What a dispatcher asks for its compiled code: the files of one function."""

    def __init__(self, function: Callable[..., Any], source: str, place: Path | None = None):
        self._function = function
        self._name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"
        self._source = source
        self._place = place

    @property
    def cache_path(self) -> str | None:
        place = self._place or private_files.folder()
        return None if place is None else str(place)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for a signature, or None."""
        target_context.refresh()
        name = self._file(sig, target_context.codegen())
        content = private_files.read(name, self._place)
        if content is None:
            return None
        try:
            kept, payload = pickle.loads(content)
            return CompileResult._rebuild(target_context, *payload) if kept == sig else None
        except Exception as error:  # noqa: BLE001  whatever a pickle or LLVM finds wrong
            path = Path(self.cache_path or "", name)
            private_files.say_anew(path, f"cannot be loaded ({type(error).__name__}: {error})")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps the code for a signature."""
        if data.library.has_dynamic_globals or any(not part.can_cache for part in data.lifted):
            private_files.say_once(
                "code",
                f"{self._name} is compiled in every process: it uses a large array or a pointer "
                "from outside, which cannot be kept with its code",
            )
            return
        name = self._file(sig, data.codegen)
        private_files.write(name, dumps((sig, data._reduce())), self._place)

    def _file(self, sig: Any, codegen: Any) -> str:
        code = hashlib.sha256(self._function.__code__.co_code).hexdigest()
        parts = (_versions(), self._source, self._name, code, str(sig), codegen.magic_tuple())
        return f"{self._name}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"


def kept(
    function: Callable[..., Any],
    source: str,
    signature: object = None,
    *,
    place: Path | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """A function compiled for a signature (or lazily, for None), from the files if it is there.

    `source` stands for all that its code is made of: the text around it, or a digest of that.
    """
    dispatcher: Any = numba.njit(**options)(function)
    if dispatcher is function:  # NUMBA_DISABLE_JIT
        return function
    dispatcher._cache = KeptCode(function, source, place)
    _take_values(dispatcher)
    if signature is not None:
        with typeinfer.register_dispatcher(dispatcher):  # as numba.njit does: it may call itself
            dispatcher.compile(signature)
        dispatcher.disable_compile()
    compiled: Callable[..., Any] = dispatcher
    return compiled


def is_kept(dispatcher: Any, types: tuple[Any, ...]) -> bool:
    """Whether there is a file with the machine code of a function for arguments of some types."""
    code = getattr(dispatcher, "_cache", None)
    if not isinstance(code, KeptCode) or code.cache_path is None:
        return False
    name = code._file(types, cpu_target.target_context.codegen())
    return Path(code.cache_path, name).exists()


def numba_type(type: Any) -> Any:
    """Numba's type for one of `jit.type_of`."""
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
    """Has a function compiled for an integer, not again for each constant that it is called with.

    Numba gives constants types of their own: the kernels of geometry were compiled ten times.
    """
    found = dispatcher.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        plain = {name: numba.types.unliteral(kind) for name, kind in kws.items()}
        return found(tuple(map(numba.types.unliteral, args)), plain)

    dispatcher.get_call_template = get_call_template


def _versions() -> tuple[object, ...]:
    # checked code differs from unchecked
    checked = numba.config.BOUNDSCHECK
    tag = sys.implementation.cache_tag
    return numba.__version__, llvmlite.__version__, np.__version__, tag, sys.abiflags, checked
