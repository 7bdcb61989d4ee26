"""Properties that are computed when they are first asked for."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

Value = TypeVar("Value")


class cached_property(functools.cached_property[Value]):  # noqa: N801  it stands in for that one
    """Like that of `functools`, without the lock that it has up to Python 3.11.

    That lock is one for all instances: threads would wait for each other's kernels, and a child
    that is forked meanwhile would wait for ever. Threads that ask at the same time may compute
    a value twice. With Python 3.12 as the least version, `functools` has what is needed.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        super().__init__(compute)
        self.lock = nullcontext()
