"""Compiling and forking: no child begins its life with a lock that a lost thread holds."""

import os
from functools import lru_cache
from typing import Any

from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock

from ensue.kernels.jit import loading

# in the order in which a thread that compiles takes them
_LOCKS: tuple[Any, ...] = (loading, global_compiler_lock, ffi.lib._lock)
_taken: list[Any] = []


@lru_cache(maxsize=1)
def keep_locks_free() -> None:
    """From now on a fork waits until no other thread is in the compiler.

    A child has only the thread that forked. Had another one been compiling, the child would wait
    for it for ever, and find the compiler's tables half written.
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
