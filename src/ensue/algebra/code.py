"""What can be said of a user's function from its code: the names in it, and whether it changed."""

import dis
import hashlib
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

Function = Callable[..., Any]


def plain_function(function: Function | None) -> Function | None:
    """The Python function below one that Numba has compiled."""
    return getattr(function, "py_func", function)


def names_in(function: Function) -> frozenset[str]:
    """The names that a function uses, also in functions that it calls by name.

    >>> sorted(names_in(lambda a, b: a.price < b.price))
    ['price']
    """
    return frozenset(name for one in _called(function) for name in _names(one.__code__))


def attributes_of(function: Function) -> tuple[tuple[str, ...], ...]:
    """By parameter, the attributes that a function is seen to take directly of it.

    >>> attributes_of(lambda a, b: a.price < b.price and a.size > 1)
    (('price', 'size'), ('price',))
    """
    plain = plain_function(function)
    if not isinstance(plain, FunctionType):
        return ()
    code = plain.__code__
    found: dict[str, dict[str, None]] = {n: {} for n in code.co_varnames[: code.co_argcount]}
    loaded: object = None
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_ATTR" and loaded in found:
            found[str(loaded)][str(step.argval)] = None
        loaded = None
        if step.opname.startswith("LOAD_FAST"):
            loaded = step.argval[-1] if isinstance(step.argval, tuple) else step.argval
    return tuple(tuple(names) for names in found.values())


class _Known(float):
    """A number that is known again, and that cannot be compared: nothing may depend on it."""

    def _refuse(self, _: object) -> bool:
        raise TypeError("its value is not known")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __hash__ = float.__hash__

    def __bool__(self) -> bool:
        raise TypeError("its value is not known")


class _Probe:
    """An event whose fields are all there, each a number of its own."""

    def __init__(self) -> None:
        self.fields: dict[str, _Known] = {}

    def __getattr__(self, name: str) -> _Known:
        return self.fields.setdefault(name, _Known(1.5))


def keeps_times(function: Function, events: int) -> tuple[bool, bool]:
    """Whether a function of events surely gives the first one's start, and the last one's end.

    >>> keeps_times(lambda a, b: (a.start, b.end, b.x - a.x), 2)
    (True, True)
    >>> keeps_times(lambda a, b: (b.end, b.end), 2)
    (False, True)
    """
    plain = plain_function(function)
    if not isinstance(plain, FunctionType):
        return False, False
    steps = list(dis.get_instructions(plain))
    if any(step.opcode in dis.hasjrel or step.opcode in dis.hasjabs for step in steps):
        return False, False
    probes = [_Probe() for _ in range(events)]
    others = [_Known(2.5)] * (plain.__code__.co_argcount - events)
    try:
        given = plain(*probes, *others)
        return given[0] is probes[0].start, given[1] is probes[-1].end
    except Exception:  # noqa: BLE001  whatever it did, it cannot be told without an event
        return False, False


def code_fingerprint(*parts: object) -> str:
    """A text that changes with what functions do: their code, their constants, what they call.

    >>> code_fingerprint(lambda a: a.x > 1) == code_fingerprint(lambda a: a.x > 2)
    False
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        for text in _described(part, set()):
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def outside(function: FunctionType) -> dict[str, Any]:
    """What a function knows from around it."""
    used = {n: function.__globals__[n] for n in _names(function.__code__)
            if n in function.__globals__}  # fmt: skip
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            used[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return dict(sorted(used.items()))


def _called(function: Function, seen: set[int] | None = None) -> Iterator[FunctionType]:
    """A function and those that it reaches by name."""
    seen = set() if seen is None else seen
    plain = plain_function(function)
    if not isinstance(plain, FunctionType) or id(plain) in seen:
        return
    seen.add(id(plain))
    yield plain
    for value in outside(plain).values():
        yield from _called(value, seen)


def _described(part: object, seen: set[int]) -> Iterator[str]:
    plain = plain_function(part) if callable(part) else part
    match plain:
        case FunctionType():
            if id(plain) in seen:
                return
            seen.add(id(plain))
            yield from _code(plain.__code__)
            yield repr(plain.__defaults__)
            for name, value in outside(plain).items():
                yield name
                yield from _described(value, seen)
        case ModuleType() | BuiltinFunctionType() | type():
            yield plain.__name__
        case _:
            yield repr(plain) if type(plain).__repr__ is not object.__repr__ else str(type(plain))


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    yield repr(code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield repr(constant)
