"""When a generated kernel is compiled: when it has run uncompiled for a while, or never.

The generated text is Python: uncompiled it finds the same matches, some fifty times slower, and
compiling takes longer the longer it is. So a kernel runs uncompiled until machine code pays off
(`kernels.jit`); compiled code then goes on from the next event. `ENSUE_COMPILE=always` has every
kernel compiled before it runs, `never` none; with `in_process` no other process compiles.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ensue.errors import EventError
from ensue.kernels import jit
from ensue.kernels.compile_process import IN_PROCESS
from ensue.kernels.jit import ALWAYS, NOTHING, SETTING, Payoff, Types
from ensue.source import cache
from ensue.source.kernel_inputs import DONE

WORDS = ("auto", ALWAYS, NOTHING, IN_PROCESS)
LONG = 3.0  # seconds to compile that `explain` speaks of
NEVER = 15.0  # what takes longer is not compiled at all
A_WHILE = 0.02  # seconds that uncompiled code runs before it is asked whether to go on so
MOST_EVENTS = 4_096  # in that while
MOST_ARRANGEMENTS = 200_000  # that uncompiled code may have to go through: about a second

_waiting: ContextVar[bool] = ContextVar("waiting", default=False)


@contextmanager
def waited_for() -> Iterator[None]:
    """Somebody waits for the matches of a table: what is compiled already is loaded only where the
    table is long enough."""
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
    return jit.seconds_to_compile(cache.uncompiled(text, function))


def kernel(
    text: str,
    function: str,
    signature: Types,
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
    if python or said == NOTHING or cache.interpreted or jit.is_off():
        return cache.compiled(text, function, signature, python=True)
    if said == ALWAYS or (not _waiting.get() and cache.is_ready(text, function, signature)):
        return cache.compiled(text, function, signature)
    waiting = later(text, function, signature)
    if function != "step":
        return waiting
    return partial(waiting.step, returned=returned, arrangements=arrangements)


@lru_cache(maxsize=256)
def later(text: str, function: str, signature: Types) -> "Later":
    """One for each kernel: many short tables pay for compiling it together."""
    return Later(text, function, signature)


class Later:
    """A kernel that runs uncompiled until machine code pays off."""

    def __init__(self, text: str, function: str, signature: Types) -> None:
        self._asked = text, function, signature
        self._plain = cache.uncompiled(text, function)
        self.payoff = Payoff(lambda: seconds_to_compile(text, function))
        self._compiled: Callable[..., Any] | None = None
        self._requested = False
        self._events = 16  # looked at before the clock is
        self._an_event = 0.0  # seconds that one took, the last time

    def __call__(self, *given: Any) -> Any:
        """All of it in one go, one way or the other."""
        compiled = self._when_worth(0.0)
        return self._measured(*given) if compiled is None else compiled(*given)

    def _when_worth(self, expected: float) -> Callable[..., Any] | None:
        """The compiled kernel, if it is worth while for what is expected to take so long."""
        if self._compiled is None and self.payoff.is_worth_compiling(
            expected, lambda: cache.is_ready(*self._asked), self._compile_beside
        ):
            return self._compile()
        return self._compiled

    def _compile(self) -> Callable[..., Any] | None:
        if self._compiled is None and (
            self.payoff.seconds <= NEVER or cache.is_ready(*self._asked)
        ):
            self._compiled = cache.compiled(*self._asked)
        return self._compiled

    def _compile_beside(self) -> None:
        if not self._requested and self.payoff.seconds <= NEVER:
            self._requested = True
            cache.compile_beside(*self._asked)

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
        compiled = self._compiled
        if arrangements is not None and compiled is None:
            _base, mask, key, _starts, ends, *_ = given
            if (
                arrangements(mask[begin:stop], key[begin:stop], ends[begin:stop])
                > MOST_ARRANGEMENTS
            ):
                compiled = self._compile()
        while compiled is None:
            compiled = self._when_worth(self._an_event * (stop - begin))
            if compiled is not None:
                break
            until = min(stop, begin + self._events)
            before = self.payoff.spent
            found = self._measured(wholes, reals, begin, until, *given)
            self._pace(until - begin, self.payoff.spent - before)
            code, *larger = found if returned else (found,)
            if code != DONE or until == stop:
                return found
            tables = list(given)
            for place, table in zip(returned, larger, strict=True):
                tables[place] = table
            begin, given = until, tuple(tables)
        return compiled(wholes, reals, begin, stop, *given)

    def _measured(self, *given: Any) -> Any:
        begun = time.thread_time()
        with np.errstate(all="ignore"):
            found = self._plain(*given)
        self.payoff.spend(time.thread_time() - begun)
        return found

    def _pace(self, events: int, seconds: float) -> None:
        """So many events that they take about `A_WHILE`; never many more than before."""
        self._an_event = seconds / max(1, events)
        fitting = int(A_WHILE / max(self._an_event, 1e-7))
        self._events = max(1, min(fitting, 2 * self._events, MOST_EVENTS))
