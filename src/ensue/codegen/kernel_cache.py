"""Compiles generated kernels, caches their machine code, and decides when compiling pays off."""

import hashlib
import linecache
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

import numpy as np

from ensue import cache_files
from ensue.codegen.kernel_inputs import DONE
from ensue.errors import EventError
from ensue.kernels import compile_process, jit
from ensue.kernels.compile_process import IN_PROCESS
from ensue.kernels.jit import ALWAYS, NOTHING, SETTING, CompilePolicy, JitFunction, Types

interpreted = False  # True: generated kernels run as plain Python, which is faster in tests
_NOTHING_COMPILED = """
def njit(*arguments, **_):
    return arguments[0] if arguments else lambda function: function
"""


def compile_function(text: str, function: str, signature: Types, *, python: bool = False) -> Callable[..., Any]:
    """A function of a generated source, compiled for a signature.

    With `python` it is not compiled: it calls code that Numba does not support.
    """
    if interpreted or python or jit.is_disabled():
        return load_interpreted(text, function)
    with jit.using_numba():
        from ensue.kernels.jit_cache import compile_cached, numba_type

        module = _module(text)
        known: dict[object, Callable[..., Any]] = module.__dict__.setdefault("_compiled", {})
        key = function, signature  # one text may serve times of two types
        if key not in known:
            types = tuple(map(numba_type, signature))
            known[key] = compile_cached(getattr(module, function), text, types, **jit.OPTIONS)
        return known[key]


def get_loop(text: str, function: str, *, python: bool = False) -> Callable[..., Any]:
    """A function of a generated source that is compiled for the types of its arguments."""
    if interpreted or python or jit.is_disabled():
        return load_interpreted(text, function)
    return _loop(text, function)


@lru_cache(maxsize=256)
def _loop(text: str, function: str) -> JitFunction:
    plain = load_interpreted(text, function)

    def make() -> Any:
        from ensue.kernels.jit_cache import compile_cached

        return compile_cached(getattr(_module(text), function), text, **jit.OPTIONS)

    def elsewhere(types: Types) -> tuple[Any, ...]:
        return _compile_loop, text, function, types

    return JitFunction(plain, jit.OPTIONS, make, lambda: plain, elsewhere, jit.count_elements)


def _compile_loop(text: str, function: str, types: Types) -> None:
    _loop(text, function).compile(types)


def compile_beside(text: str, function: str, signature: Types) -> None:
    """Requests the compilation of a function in another process."""
    compile_process.request_compile(compile_function, text, function, signature)


def load_interpreted(text: str, function: str) -> Callable[..., Any]:
    """A function of a generated source as plain Python."""
    plain: Callable[..., Any] = getattr(_plain(text), function)
    return plain


def is_ready(text: str, function: str, signature: Types) -> bool:
    """Whether a function is compiled already, in memory or in a file."""
    name = _name(text)
    known = sys.modules[name].__dict__.get("_compiled", {}) if name in sys.modules else {}
    if (function, signature) in known:
        return True
    if f"{name}.{function}" not in cache_files.list_cached()[1]:
        return False
    with jit.using_numba():
        from ensue.kernels.jit_cache import is_cached, numba_type

        types = tuple(map(numba_type, signature))
        return is_cached(_loop(text, function).dispatcher, types)


@lru_cache(maxsize=256)
def _plain(text: str) -> ModuleType:
    """The source as an ordinary module, without files."""
    module = ModuleType(_name(text))
    plain = text.replace("from numba import njit\n", _NOTHING_COMPILED)
    exec(compile(plain, "ensue_kernel", "exec"), module.__dict__)
    for name, value in vars(module).items():
        if isinstance(value, JitFunction):
            vars(module)[name] = value.plain
    return module


@lru_cache(maxsize=256)
def _name(text: str) -> str:
    return f"ensue_kernel_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _module(text: str) -> ModuleType:
    """The source as a module that Numba compiles; only one thread may call it at a time."""
    name = _name(text)
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    file = f"<{name}>"
    # tracebacks and Numba's errors show lines of the text
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), module.__dict__)
    sys.modules[name] = module  # cached machine code finds its module by name
    return module


# Tiered execution: a kernel runs interpreted until compiling pays off.

COMPILE_MODES = ("auto", ALWAYS, NOTHING, IN_PROCESS)
LONG_COMPILE = 3.0  # compile seconds that `explain` reports
MAX_COMPILE = 15.0  # kernels that take longer are not compiled
SLICE_SECONDS = 0.02  # seconds of interpreted execution between decisions
MOST_EVENTS = 4_096  # in that time
MOST_ARRANGEMENTS = 200_000  # bound for interpreted code: about a second

_waiting: ContextVar[bool] = ContextVar("waiting", default=False)


@contextmanager
def mark_waiting() -> Iterator[None]:
    """Marks that a caller waits for the matches of a table: machine code is loaded only if the
    table is long enough."""
    before = _waiting.set(True)
    try:
        yield
    finally:
        _waiting.reset(before)


def get_compile_mode() -> str:
    """The compile mode of the environment."""
    mode = os.environ.get(SETTING, COMPILE_MODES[0])
    if mode not in COMPILE_MODES:
        raise EventError(f"{SETTING}={mode!r} is none of {', '.join(COMPILE_MODES)}")
    return mode


@lru_cache(maxsize=256)
def estimate_compile_seconds(text: str, function: str) -> float:
    """The approximate compile time of a function, by its Python instructions."""
    return jit.estimate_compile_seconds(load_interpreted(text, function))


def get_kernel(
    text: str,
    function: str,
    signature: Types,
    *,
    python: bool = False,
    returned: Sequence[int] = (),
    arrangements: Callable[..., float] | None = None,
) -> Callable[..., Any]:
    """A function of a kernel to call: compiled, or compiled later.

    `returned` are the positions, from the end, of the arguments that it returns after its code.
    `arrangements` estimates for a batch how many combinations one event may complete, for kernels
    that visit all of them at once.
    """
    mode = get_compile_mode()
    if python or mode == NOTHING or interpreted or jit.is_disabled():
        return compile_function(text, function, signature, python=True)
    if mode == ALWAYS or (not _waiting.get() and is_ready(text, function, signature)):
        return compile_function(text, function, signature)
    waiting = get_lazy_kernel(text, function, signature)
    if function != "step":
        return waiting
    return partial(waiting.step, returned=returned, arrangements=arrangements)


@lru_cache(maxsize=256)
def get_lazy_kernel(text: str, function: str, signature: Types) -> "LazyKernel":
    """One instance per kernel: many short tables share the cost of compiling it."""
    return LazyKernel(text, function, signature)


class LazyKernel:
    """A kernel that runs interpreted until compiling pays off."""

    def __init__(self, text: str, function: str, signature: Types) -> None:
        self._key = text, function, signature
        self._plain = load_interpreted(text, function)
        self.payoff = CompilePolicy(lambda: estimate_compile_seconds(text, function))
        self._compiled: Callable[..., Any] | None = None
        self._requested = False
        self._events = 16  # processed between clock readings
        self._event_seconds = 0.0  # per event, in the last run

    def __call__(self, *arguments: Any) -> Any:
        """Runs the kernel once, compiled or interpreted."""
        compiled = self._compile_if_worth(0.0)
        return self._measure(*arguments) if compiled is None else compiled(*arguments)

    def _compile_if_worth(self, expected: float) -> Callable[..., Any] | None:
        """The compiled kernel, if it pays off for the expected seconds."""
        if self._compiled is None and self.payoff.is_worth_compiling(
            expected, lambda: is_ready(*self._key), self._compile_beside
        ):
            return self._compile()
        return self._compiled

    def _compile(self) -> Callable[..., Any] | None:
        if self._compiled is None and (self.payoff.seconds <= MAX_COMPILE or is_ready(*self._key)):
            self._compiled = compile_function(*self._key)
        return self._compiled

    def _compile_beside(self) -> None:
        if not self._requested and self.payoff.seconds <= MAX_COMPILE:
            self._requested = True
            compile_beside(*self._key)

    def step(
        self,
        wholes: Any,
        reals: Any,
        begin: int,
        stop: int,
        *arguments: Any,
        returned: Sequence[int] = (),
        arrangements: Callable[..., float] | None = None,
    ) -> Any:
        """Processes events from `begin` to `stop`; compiled code may take over between two."""
        compiled = self._compiled
        if arrangements is not None and compiled is None:
            _base, mask, key, _starts, ends, *_ = arguments
            batch = (mask[begin:stop], key[begin:stop], ends[begin:stop])
            if arrangements(*batch) > MOST_ARRANGEMENTS:
                compiled = self._compile()
        while compiled is None:
            compiled = self._compile_if_worth(self._event_seconds * (stop - begin))
            if compiled is not None:
                break
            until = min(stop, begin + self._events)
            before = self.payoff.spent
            result = self._measure(wholes, reals, begin, until, *arguments)
            self._pace(until - begin, self.payoff.spent - before)
            code, *grown = result if returned else (result,)
            if code != DONE or until == stop:
                return result
            tables = list(arguments)
            for place, table in zip(returned, grown, strict=True):
                tables[place] = table
            begin, arguments = until, tuple(tables)
        return compiled(wholes, reals, begin, stop, *arguments)

    def _measure(self, *arguments: Any) -> Any:
        begin = time.thread_time()
        with np.errstate(all="ignore"):
            result = self._plain(*arguments)
        self.payoff.spend(time.thread_time() - begin)
        return result

    def _pace(self, events: int, seconds: float) -> None:
        """Adapts the number of events to about `SLICE_SECONDS`, at most doubling it."""
        self._event_seconds = seconds / max(1, events)
        fitting = int(SLICE_SECONDS / max(self._event_seconds, 1e-7))
        self._events = max(1, min(fitting, 2 * self._events, MOST_EVENTS))
