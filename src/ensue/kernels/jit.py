"""Kernels run as Python until compiling them pays off.

Loading Numba takes almost half a second, and compiling a kernel as long or longer, which small
tables do not amortize. Each kernel measures the processor time of its interpreted calls. When
this, or the expected time of the next call, exceeds the cost of machine code, it is loaded from
the cache, compiled by a background process (`compile_process`), or, if one call would take longer
than the compiler, compiled in this process.
"""

import dis
import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache, update_wrapper
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np

from ensue import cache_files
from ensue.kernels import compile_process

SETTING = "ENSUE_COMPILE"
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}  # of every kernel
ALWAYS, NOTHING = "always", "never"

# seconds of processor time
IMPORT = 0.4  # to import Numba and prepare loading
LOAD = 0.01  # to load the machine code of a function
FIRST = 1.0  # to import Numba and prepare compiling
AN_INSTRUCTION = 0.0015  # of a function to compile: benchmarks/compile_time.py
AN_ELEMENT = 1e-6  # of an array to interpret, before it is measured

SHARE = 0.1  # of the compile time: interpreted before the background process compiles
PATIENCE = 4  # times the compile time: interpreted while the background process compiles

Types = tuple[Any, ...]  # of arguments: see `get_type`
_interpreted = [0.0]  # processor seconds of all interpreted calls


def is_disabled() -> bool:
    """Whether NUMBA_DISABLE_JIT is set."""
    numba = sys.modules.get("numba")
    if numba is not None and hasattr(numba, "config"):
        return bool(numba.config.DISABLE_JIT)
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


class CompilePolicy:
    """Decides when compiling one function pays off."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds  # to compile it
        self.spent = 0.0  # seconds of interpreted calls

    @cached_property
    def seconds(self) -> float:
        return self._seconds()

    def spend(self, seconds: float) -> None:
        """Add the seconds of an interpreted call."""
        self.spent += seconds
        _interpreted[0] += seconds

    def is_worth_compiling(
        self, expected: float, is_kept: Callable[[], bool], compile_beside: Callable[[], None]
    ) -> bool:
        """Whether to get machine code now; `expected` are the seconds of the next call."""
        setting = os.environ.get(SETTING)
        if setting in (ALWAYS, NOTHING):
            return setting == ALWAYS
        total = self.spent + expected
        if "numba" in sys.modules:
            if total < LOAD:
                return False
        elif _interpreted[0] + expected < IMPORT:
            return False
        if is_kept():
            return True
        price = self.seconds + (0.0 if "numba" in sys.modules else FIRST)
        if expected > price:
            return True
        if not compile_process.is_allowed():
            return total > price
        if total > SHARE * price and _interpreted[0] > IMPORT:
            compile_beside()
        return total > PATIENCE * price


def count_elements(args: tuple[Any, ...]) -> int:
    """The number of elements in the array arguments, without named tuples of tables, which kernels
    mostly only look up."""
    return sum(value.size for value in args if isinstance(value, np.ndarray))


class JitFunction:
    """A function over arrays that is interpreted or compiled, whichever pays off.

    `make` creates Numba's dispatcher, `plain` the function with all its callees as Python, and
    `elsewhere` the request with which the background process compiles it for some types.
    `elements` estimates the work of a call.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: dict[str, Any],
        make: Callable[[], Any],
        plain: Callable[[], Callable[..., Any]],
        elsewhere: Callable[[Types], tuple[Any, ...]],
        elements: Callable[[tuple[Any, ...]], int],
    ) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._file_name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"
        self.targetoptions = options  # where Numba looks for `inline`
        self._make = make
        self._make_plain = plain
        self._elsewhere = elsewhere
        self._elements = elements
        self._payoff = CompilePolicy(lambda: estimate_compile_seconds(self))
        self._an_element = AN_ELEMENT
        self._dispatcher: Any = None
        self._requested: set[Types] = set()
        self._missing: dict[Types, int] = {}  # state of the folder without a file

    def __call__(self, *args: Any) -> Any:
        dispatcher = self._dispatcher
        return self._choose_implementation(*args)(*args) if dispatcher is None else dispatcher(*args)

    def _choose_implementation(self, *args: Any) -> Callable[..., Any]:
        """Choose what a call with these arguments runs, if they have no machine code yet."""
        types = tuple(map(get_type, args))
        expected = self._an_element * self._elements(args)
        if not is_disabled() and self._payoff.is_worth_compiling(
            expected, lambda: self._is_kept(types), lambda: self._compile_beside(types)
        ):
            return self.compile(types)
        return self._interpret

    def _interpret(self, *args: Any) -> Any:
        begun = time.thread_time()
        with np.errstate(all="ignore"):  # machine code does not warn of overflow
            result = self.plain(*args)
        seconds = time.thread_time() - begun
        self._payoff.spend(seconds)
        elements = self._elements(args)
        if elements > 256:  # small calls measure overhead
            self._an_element = seconds / elements
        return result

    @property
    def is_interpreted(self) -> bool:
        """Whether it has run without machine code so far."""
        return self._dispatcher is None

    def compile(self, types: Types) -> Callable[..., Any]:
        """Load or compile the machine code for argument types."""
        with using_numba():
            from ensue.kernels.jit_cache import numba_type

            dispatcher = self.dispatcher
            if isinstance(dispatcher, FunctionType):  # Numba's configuration file disables the JIT
                return self.plain
            compiled: Callable[..., Any] = dispatcher.compile(tuple(map(numba_type, types)))
            return compiled

    def compile_for(self, *args: Any) -> None:
        """Compile the function for these arguments, unless compiling is disabled."""
        if not is_disabled() and os.environ.get(SETTING) != NOTHING:
            self.compile(tuple(map(get_type, args)))

    @property
    def dispatcher(self) -> Any:
        """Numba's dispatcher; once created, calls go through it."""
        with loading:
            if self._dispatcher is None:
                dispatcher = self._make()
                dispatcher._compile_for_args = self._choose_implementation  # called by Numba for unknown types
                self._dispatcher = dispatcher
            return self._dispatcher

    @property
    def _numba_type_(self) -> Any:
        """The type by which compiled code calls it."""
        return self.dispatcher._numba_type_

    @cached_property
    def plain(self) -> Callable[..., Any]:
        """The function and all its callees as Python."""
        return self._make_plain()

    def _is_kept(self, types: Types) -> bool:
        """Whether the cache has its machine code; checked again when the folder changes."""
        changed, names = cache_files.list_cached()
        if self._missing.get(types) == changed:
            return False
        if self._file_name in names:
            with using_numba():
                from ensue.kernels.jit_cache import is_cached, numba_type

                if is_cached(self.dispatcher, tuple(map(numba_type, types))):
                    return True
        self._missing[types] = changed
        return False

    def _compile_beside(self, types: Types) -> None:
        if types not in self._requested:
            self._requested.add(types)
            compile_process.request_compile(*self._elsewhere(types))


def kernel(
    elements: Callable[[tuple[Any, ...]], int] = count_elements, /, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a fixed kernel; `options` are further options of Numba."""
    options = OPTIONS | options

    def decorated(function: Callable[..., Any]) -> JitFunction:
        def make() -> Any:
            from ensue.kernels.jit_cache import compile_cached

            return compile_cached(function, compute_digest(function.__module__), **options)

        def plain() -> Callable[..., Any]:
            names: dict[str, Callable[..., Any]] = get_python_names(function.__module__)
            return names[function.__name__]

        def elsewhere(types: Types) -> tuple[Any, ...]:
            return _compile_fixed, function.__module__, function.__name__, types

        return JitFunction(function, options, make, plain, elsewhere, elements)

    return decorated


def _compile_fixed(module: str, function: str, types: Types) -> None:
    getattr(import_module(module), function).compile(types)


@lru_cache(maxsize=64)
def get_python_names(module: str) -> dict[str, Any]:
    """The names of a module of kernels, with all kernels as Python."""
    names: dict[str, Any] = {}
    for name, value in vars(import_module(module)).items():
        if not isinstance(value, JitFunction):
            names[name] = value
        elif value.__module__ == module:
            code = value.py_func.__code__
            names[name] = FunctionType(code, names, name)
        else:
            names[name] = value.plain
    return names


def estimate_compile_seconds(function: Any) -> float:
    """Estimate the seconds to compile a function and its callees."""
    codes = (called.__code__ for called in _find_callees(function))
    return AN_INSTRUCTION * sum(1 for code in codes for _ in dis.get_instructions(code))


@lru_cache(maxsize=512)
def _find_callees(function: Any) -> frozenset[Any]:
    """A function and all kernels that it calls, directly or not."""
    plain = getattr(function, "py_func", function)
    named = (plain.__globals__.get(name) for name in plain.__code__.co_names)
    loops = [value for value in named if isinstance(value, JitFunction) and value is not function]
    return frozenset([plain]).union(*map(_find_callees, loops))


def array_type(dtype: Any, ndim: int = 1, *, readonly: bool = False) -> Types:
    """The type of contiguous arrays."""
    return "array", np.dtype(dtype).str, ndim, "C", readonly


def get_type(value: Any) -> Any:
    """The type of an argument without importing Numba; `jit_cache.numba_type` converts it.

    >>> get_type(1), get_type(np.zeros((2, 3), np.int32)), get_type((1.5, None))
    ('int64', ('array', '<i4', 2, 'C', False), ('tuple', None, 'float64', 'none'))
    """
    if isinstance(value, np.ndarray):
        flags = value.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return "array", value.dtype.str, value.ndim, layout, not flags.writeable
    if isinstance(value, tuple):
        named = type(value) if hasattr(value, "_fields") else None
        return "tuple", named, *map(get_type, value)
    if isinstance(value, np.generic):
        return value.dtype.name
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64" if -(2**63) <= value < 2**63 else "uint64"
    return {float: "float64"}[type(value)]


@lru_cache(maxsize=64)
def compute_digest(module: str) -> str:
    """The version of a module of kernels: a digest of its file and of the kernels that it imports.

    The loader reads the file, since it may be in a zip file of Spark or exist only compiled.
    """
    spec = import_module(module).__spec__
    assert spec is not None
    data: bytes = spec.loader.get_data(spec.origin)  # type: ignore[union-attr]
    digest = hashlib.sha256(data)
    for other in sorted(_find_imports(module)):
        digest.update(compute_digest(other).encode())
    return digest.hexdigest()


def _find_imports(module: str) -> set[str]:
    """The modules of kernels from which a module imports."""
    values = list(vars(sys.modules[module]).values())
    homes = {str(getattr(value, "__module__", "")) for value in values}
    return {home for home in homes if home.startswith("ensue.kernels.")} - {module, __name__}


loading = threading.RLock()  # held while Numba is imported, loads or compiles


class _NumbaTime(threading.local):
    """Processor seconds of this thread in Numba."""

    seconds = 0.0
    depth = 0

    @contextmanager
    def measure(self) -> Iterator[None]:
        self.depth += 1
        began = time.thread_time()
        try:
            yield
        finally:
            self.depth -= 1
            if not self.depth:
                self.seconds += time.thread_time() - began


numba_time = _NumbaTime()


@contextmanager
def using_numba() -> Iterator[None]:
    """Protect code that imports or calls Numba from interruption.

    One thread runs it at a time, forks wait, and Ctrl-C takes effect afterwards.
    """
    with loading, numba_time.measure():
        before = signal.getsignal(signal.SIGINT)
        if before is None or threading.current_thread() is not threading.main_thread():
            yield  # other threads are not interrupted
            return
        signals: list[tuple[int, Any]] = []
        signal.signal(signal.SIGINT, lambda number, frame: signals.append((number, frame)))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            if signals and callable(before):
                before(*signals[0])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=loading.acquire, after_in_parent=loading.release, after_in_child=loading.release)
