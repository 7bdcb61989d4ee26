"""When a kernel is compiled: at once, when it has run uncompiled for a while, or never.

The generated text is Python: uncompiled it finds the same matches, some fifty times slower, and
compiling takes longer the longer it is. So where somebody waits for the matches of a table, and
where compiling takes very long, a kernel runs uncompiled until that has cost as much as compiling
will; compiled code then goes on from the next event. Tables that are done before are never
compiled for. `ENSUE_COMPILE=always` has every kernel compiled before it runs, `never` none.
"""

import dis
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any

import numba
import numpy as np

from ensue.errors import EventError
from ensue.source import cache
from ensue.source.kernel_inputs import DONE

SETTING = "ENSUE_COMPILE"
WORDS = ("auto", "always", "never")
AN_INSTRUCTION = 0.0015  # seconds of processor time to compile it: benchmarks/compile_time.py
AT_ONCE = 3.0  # what takes no longer is compiled before it runs
NEVER = 15.0  # what takes longer is not compiled at all
A_WHILE = 0.02  # seconds that uncompiled code runs before it is asked whether to go on so
MOST_EVENTS = 4_096  # in that while
MOST_ARRANGEMENTS = 200_000  # that uncompiled code may have to go through: about a second

_waiting: ContextVar[bool] = ContextVar("waiting", default=False)


@contextmanager
def waited_for() -> Iterator[None]:
    """Somebody waits for the matches of a table: kernels that are not compiled yet run so."""
    before = _waiting.set(True)
    try:
        yield
    finally:
        _waiting.reset(before)


def setting() -> str:
    """What the environment says about compiling."""
    said = os.environ.get(SETTING, WORDS[0])
    if said not in WORDS:
        raise EventError(f"{SETTING}={said!r} is none of {', '.join(WORDS)}")
    return said


@lru_cache(maxsize=256)
def seconds_to_compile(text: str, function: str) -> float:
    """About how long a function of a text takes to compile: by its instructions for Python."""
    code = cache.uncompiled(text, function).__code__
    return AN_INSTRUCTION * sum(1 for _ in dis.get_instructions(code))


def kernel(
    text: str,
    function: str,
    signature: object,
    *,
    python: bool = False,
    returned: Sequence[int] = (),
    arrangements: Callable[..., float] | None = None,
) -> Callable[..., Any]:
    """A function of a kernel as it is to be called: compiled, or waiting to be.

    `returned` are the places, from the end, of the arguments that it gives back behind its code.
    `arrangements` says of the events it is given how many arrangements one of them may complete,
    for kernels that go through all of them at once.
    """
    said = setting()
    if python or said == "never" or cache.interpreted or numba.config.DISABLE_JIT:
        return cache.compiled(text, function, signature, python=True)
    seconds = seconds_to_compile(text, function)
    soon = seconds <= AT_ONCE and not _waiting.get()
    if said == "always" or soon or cache.is_ready(text, function, signature):
        return cache.compiled(text, function, signature)
    if seconds > NEVER:
        return cache.compiled(text, function, signature, python=True)
    waiting = later(text, function, signature)
    if function != "step":
        return waiting
    return partial(waiting.step, returned=returned, arrangements=arrangements)


@lru_cache(maxsize=256)
def later(text: str, function: str, signature: object) -> "Later":
    """One for each kernel: many short tables pay for compiling it together."""
    return Later(text, function, signature, seconds_to_compile(text, function))


class Later:
    """A kernel that runs uncompiled until that has cost as much as compiling it will."""

    def __init__(self, text: str, function: str, signature: object, seconds: float) -> None:
        self._asked = text, function, signature
        self._plain = cache.uncompiled(text, function)
        self.left = seconds  # of processor time
        self._events = 16  # looked at before the clock is

    def __call__(self, *given: Any) -> Any:
        """All of it in one go, one way or the other."""
        return self._measured(*given) if self.left > 0 else self.compiled(*given)

    @property
    def compiled(self) -> Callable[..., Any]:
        return cache.compiled(*self._asked)

    def step(
        self,
        wholes: Any,
        reals: Any,
        begin: int,
        stop: int,
        *given: Any,
        returned: Sequence[int] = (),
        arrangements: Callable[..., float] | None = None,
    ) -> Any:
        """The events from `begin` to `stop`: compiled code may take over between any two."""
        if arrangements is not None and self.left > 0:
            _base, mask, key, _starts, ends, *_ = given
            if (
                arrangements(mask[begin:stop], key[begin:stop], ends[begin:stop])
                > MOST_ARRANGEMENTS
            ):
                self.left = 0.0
        while self.left > 0:
            until = min(stop, begin + self._events)
            before = self.left
            found = self._measured(wholes, reals, begin, until, *given)
            self._pace(before - self.left)
            code, *larger = found if returned else (found,)
            if code != DONE or until == stop:
                return found
            tables = list(given)
            for place, table in zip(returned, larger, strict=True):
                tables[place] = table
            begin, given = until, tuple(tables)
        return self.compiled(wholes, reals, begin, stop, *given)

    def _measured(self, *given: Any) -> Any:
        begun = time.thread_time()
        with np.errstate(all="ignore"):
            found = self._plain(*given)
        self.left -= time.thread_time() - begun
        return found

    def _pace(self, seconds: float) -> None:
        """So many events that they take about `A_WHILE`; never many more than before."""
        fitting = int(self._events * A_WHILE / max(seconds, 1e-6))
        self._events = max(1, min(fitting, 2 * self._events, MOST_EVENTS))
