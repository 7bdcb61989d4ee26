"""Caches values of instances, and pauses garbage collection while much is created that stays."""

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

Value = TypeVar("Value")


class cached_property(functools.cached_property[Value]):  # noqa: N801  replaces that one
    """`functools.cached_property` without the lock that it has up to Python 3.11.

    All instances share that lock: threads would wait for each other's kernels, and a process
    forked meanwhile would wait forever. Here, two threads may compute a value twice.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        super().__init__(compute)
        self.lock = nullcontext()


@contextmanager
def pause_collection() -> Iterator[None]:
    """Pauses garbage collection while modules load: they allocate much and leave no garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
