"""Loops run as Python until machine code is worth its price.

Loading Numba takes almost half a second, and compiling a loop about as long, or much longer. Short
tables and the first events of a stream pay for neither. Each function counts the processor time
that its interpreted calls take. If that, or what the next call is expected to take, is more than
loading or compiling costs, machine code takes over: loaded from a file, compiled by a process
beside this one (`compile_process`), or, where one call takes longer than the compiler, compiled
here.
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

from ensue import private_files
from ensue.kernels import compile_process

SETTING = "ENSUE_COMPILE"
ALWAYS, NOTHING = "always", "never"

# seconds of processor time
IMPORT = 0.4  # to import Numba and make it ready to load machine code
LOAD = 0.01  # to load the machine code of a function
FIRST = 1.0  # to import Numba and make it ready to compile
AN_INSTRUCTION = 0.0015  # to compile it: benchmarks/compile_time.py
AN_ELEMENT = 1e-6  # to interpret a loop over one element of an array, before it is measured

SHARE = 0.1  # of the time to compile: so long is interpreted before a process beside compiles
PATIENCE = 4  # times the time to compile: so long is interpreted while a process beside compiles

Types = tuple[Any, ...]  # of arguments: see `type_of`
_interpreted = [0.0]  # seconds that this process has interpreted loops for


def is_off() -> bool:
    """Whether Numba is told to compile nothing."""
    numba = sys.modules.get("numba")
    if numba is not None and hasattr(numba, "config"):
        return bool(numba.config.DISABLE_JIT)
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


class Payoff:
    """Decides when machine code of one function is worth its price."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds  # to compile it
        self.spent = 0.0  # seconds of interpreted calls

    @cached_property
    def seconds(self) -> float:
        return self._seconds()

    def spend(self, seconds: float) -> None:
        """An interpreted call has taken so long."""
        self.spent += seconds
        _interpreted[0] += seconds

    def is_worth_compiling(
        self,
        expected: float,
        is_kept: Callable[[], bool],
        compile_beside: Callable[[], None],
    ) -> bool:
        """Whether machine code is to be loaded or compiled now, where interpreting what comes next
        is expected to take so many seconds."""
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


def elements_of(args: tuple[Any, ...]) -> int:
    """How many elements the arrays among some arguments have; tables in named tuples are left out,
    as most loops only look something up in them."""
    return sum(value.size for value in args if isinstance(value, np.ndarray))


class Loop:
    """A function over arrays: interpreted or compiled, by what pays off.

    `make` gives Numba's dispatcher, `plain` the function with all that it calls as Python, and
    `elsewhere` what a process beside this one calls to compile it for arguments of some types.
    `elements` says how many elements of arrays it goes through.
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
        self._payoff = Payoff(lambda: seconds_to_compile(self))
        self._an_element = AN_ELEMENT
        self._dispatcher: Any = None
        self._requested: set[Types] = set()
        self._missing: dict[Types, int] = {}  # the state of the folder in which no file was found

    def __call__(self, *args: Any) -> Any:
        dispatcher = self._dispatcher
        return self._chosen(*args)(*args) if dispatcher is None else dispatcher(*args)

    def _chosen(self, *args: Any) -> Callable[..., Any]:
        """What a call with such arguments runs, where there is no machine code for them yet."""
        types = tuple(map(type_of, args))
        expected = self._an_element * self._elements(args)
        if not is_off() and self._payoff.is_worth_compiling(
            expected, lambda: self._is_kept(types), lambda: self._compile_beside(types)
        ):
            return self.compile(types)
        return self._interpret

    def _interpret(self, *args: Any) -> Any:
        begun = time.thread_time()
        with np.errstate(all="ignore"):  # machine code does not warn of integers that overflow
            found = self.plain(*args)
        seconds = time.thread_time() - begun
        self._payoff.spend(seconds)
        elements = self._elements(args)
        if elements > 256:  # fewer say little
            self._an_element = seconds / elements
        return found

    def compile(self, types: Types) -> Callable[..., Any]:
        """Its machine code for arguments of such types: from a file, or compiled here."""
        with using_numba():
            from ensue.kernels.kept_code import numba_type

            dispatcher = self.dispatcher
            if isinstance(dispatcher, FunctionType):  # a file of Numba's settings turns it off
                return self.plain
            found: Callable[..., Any] = dispatcher.compile(tuple(map(numba_type, types)))
            return found

    def compile_for(self, *args: Any) -> None:
        """Has calls with such arguments run compiled, unless nothing may be compiled."""
        if not is_off() and os.environ.get(SETTING) != NOTHING:
            self.compile(tuple(map(type_of, args)))

    @property
    def dispatcher(self) -> Any:
        """What Numba knows it as. Calls go through it as soon as it is there."""
        with loading:
            if self._dispatcher is None:
                made = self._make()
                made._compile_for_args = self._chosen  # called where Numba has no machine code
                self._dispatcher = made
            return self._dispatcher

    @property
    def _numba_type_(self) -> Any:
        """Its type where compiled code calls it."""
        return self.dispatcher._numba_type_

    @cached_property
    def plain(self) -> Callable[..., Any]:
        """It and all that it calls as Python."""
        return self._make_plain()

    def _is_kept(self, types: Types) -> bool:
        """Whether there is a file with its machine code. Looks again when the folder changes."""
        changed, names = private_files.listed()
        if self._missing.get(types) == changed:
            return False
        if self._file_name in names:
            with using_numba():
                from ensue.kernels.kept_code import is_kept, numba_type

                if is_kept(self.dispatcher, tuple(map(numba_type, types))):
                    return True
        self._missing[types] = changed
        return False

    def _compile_beside(self, types: Types) -> None:
        if types not in self._requested:
            self._requested.add(types)
            compile_process.request(*self._elsewhere(types))


def kernel(
    elements: Callable[[tuple[Any, ...]], int] = elements_of, /, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """A fixed loop, as a decorator."""

    def decorated(function: Callable[..., Any]) -> Loop:
        def make() -> Any:
            from ensue.kernels.kept_code import kept

            return kept(function, digest_of(function.__module__), **options)

        def plain() -> Callable[..., Any]:
            found: Callable[..., Any] = plain_names(function.__module__)[function.__name__]
            return found

        def elsewhere(types: Types) -> tuple[Any, ...]:
            return _compile_fixed, function.__module__, function.__name__, types

        return Loop(function, options, make, plain, elsewhere, elements)

    return decorated


def _compile_fixed(module: str, function: str, types: Types) -> None:
    getattr(import_module(module), function).compile(types)


@lru_cache(maxsize=64)
def plain_names(module: str) -> dict[str, Any]:
    """The names of a module of kernels, where loops are Python that calls only Python."""
    names: dict[str, Any] = {}
    for name, value in vars(import_module(module)).items():
        if not isinstance(value, Loop):
            names[name] = value
        elif value.__module__ == module:
            code = value.py_func.__code__
            names[name] = FunctionType(code, names, name)
        else:
            names[name] = value.plain
    return names


def seconds_to_compile(function: Any) -> float:
    """About how long a function and the loops that it calls take to compile."""
    return AN_INSTRUCTION * sum(_instructions(f) for f in _called(function))


@lru_cache(maxsize=512)
def _called(function: Any) -> frozenset[Any]:
    """A function and the loops that it calls, directly or not."""
    plain = getattr(function, "py_func", function)
    named = (plain.__globals__.get(name) for name in plain.__code__.co_names)
    loops = [value for value in named if isinstance(value, Loop) and value is not function]
    return frozenset([plain]).union(*map(_called, loops))


def _instructions(function: Any) -> int:
    return sum(1 for _ in dis.get_instructions(function.__code__))


# ------------------------------------------------------------------------------ types


def array_type(dtype: Any, ndim: int = 1, *, readonly: bool = False) -> Types:
    """The type of contiguous arrays."""
    return "array", np.dtype(dtype).str, ndim, "C", readonly


def type_of(value: Any) -> Any:
    """The type of an argument, without Numba: `kept_code.numba_type` gives Numba's.

    >>> type_of(1), type_of(np.zeros((2, 3), np.int32)), type_of((1.5, None))
    ('int64', ('array', '<i4', 2, 'C', False), ('tuple', None, 'float64', 'none'))
    """
    if isinstance(value, np.ndarray):
        flags = value.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return "array", value.dtype.str, value.ndim, layout, not flags.writeable
    if isinstance(value, tuple):
        named = type(value) if hasattr(value, "_fields") else None
        return "tuple", named, *map(type_of, value)
    if isinstance(value, np.generic):
        return value.dtype.name
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64" if -(2**63) <= value < 2**63 else "uint64"
    return {float: "float64"}[type(value)]


# ------------------------------------------------------------------------------ versions


@lru_cache(maxsize=64)
def digest_of(module: str) -> str:
    """What tells one version of a module of kernels from another.

    It is that of the module's file, wherever it was loaded from: a zip of Spark's, or compiled
    only. Kernels of other modules that it has imported become part of its code, so they are part
    of it.
    """
    spec = import_module(module).__spec__
    assert spec is not None
    data: bytes = spec.loader.get_data(spec.origin)  # type: ignore[union-attr]
    digest = hashlib.sha256(data)
    for other in sorted(_imported(module)):
        digest.update(digest_of(other).encode())
    return digest.hexdigest()


def _imported(module: str) -> set[str]:
    """The modules of kernels that one takes names from."""
    values = list(vars(sys.modules[module]).values())
    homes = {str(getattr(value, "__module__", "")) for value in values}
    return {home for home in homes if home.startswith("ensue.kernels.")} - {module, __name__}


# ------------------------------------------------------------------------------ Numba

loading = threading.RLock()  # held while Numba is imported, loads or compiles


class _NumbaTime(threading.local):
    """The processor seconds that this thread has spent in Numba."""

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
    """Around all that imports or calls Numba, which is of no use when it is left half done.

    One thread is here at a time, forks wait, and Ctrl-C takes effect when this is over.
    """
    with loading, numba_time.measure():
        before = signal.getsignal(signal.SIGINT)
        if before is None or threading.current_thread() is not threading.main_thread():
            yield  # other threads are not interrupted
            return
        came: list[tuple[int, Any]] = []
        signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            if came and callable(before):
                before(*came[0])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=loading.acquire, after_in_parent=loading.release, after_in_child=loading.release
    )
