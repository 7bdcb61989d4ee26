"""Decorators: `dataclass` and `cached_property` of the standard library at less cost, and `pause_collection`."""

import dataclasses
import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import KW_ONLY, MISSING, Field, FrozenInstanceError, asdict, field, fields, replace
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["KW_ONLY", "asdict", "cached_property", "dataclass", "field", "fields", "replace"]
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


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        kind: type | None = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True, **others: bool
    ) -> Any:
        """`dataclasses.dataclass`, of whose methods only `__init__` is compiled.

        That one compiles six, a third of a millisecond for each of the hundreds of classes that a first
        answer loads. Classes that inherit from each other have the same decorator.
        """
        if kind is None:
            return functools.partial(dataclass, frozen=frozen, eq=eq, repr=repr, **others)
        own = dict(vars(kind))
        kind = dataclasses.dataclass(init=False, repr=False, eq=False, **others)(kind)
        parts = fields(kind)
        methods: dict[str, Any] = {"__init__": _compile_init(kind, parts, frozen)}
        if frozen:
            methods |= _forbid_changes(kind, [part.name for part in parts], others.get("slots", False))
        if eq:
            compared = _get_values([part.name for part in parts if part.compare])
            hashed = _get_values([part.name for part in parts if (part.compare if part.hash is None else part.hash)])
            methods["__eq__"] = lambda self, other: (
                compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented
            )
            if own.get("__hash__") is None:
                kind.__hash__ = (lambda self: hash(hashed(self))) if frozen else None
        if repr:
            methods["__repr__"] = _format_values([part.name for part in parts if part.repr])
        for name, method in methods.items():
            if name not in own:
                setattr(kind, name, method)
        return kind


def _compile_init(kind: type, parts: Sequence[Field[Any]], frozen: bool) -> Any:
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters, body = ["self"], []
    for part in sorted(parts, key=lambda part: bool(part.kw_only)):
        name, default, is_made = part.name, f"_{part.name}_default", part.default_factory is not MISSING
        has_default = is_made or part.default is not MISSING
        names[default] = part.default_factory if is_made else part.default
        if part.init:
            parameters += ["*"] if part.kw_only and "*" not in parameters else []
            parameters.append(f"{name}={'_missing' if is_made else default}" if has_default else name)
        value = f"{default}()" if is_made else default
        if part.init:
            value = f"{value} if {name} is _missing else {name}" if is_made else name
        if part.init or has_default:
            body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), names)
    init = names["__init__"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    init.__annotations__ = {part.name: part.type for part in parts if part.init} | {"return": None}
    return init


def _forbid_changes(kind: type, names: Sequence[str], slots: bool) -> dict[str, Any]:
    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is kind or name in names:
            raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
        (object.__setattr__ if value else object.__delattr__)(self, name, *value)

    def restore(self: Any, state: Sequence[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    pickled = {"__getstate__": lambda self: [getattr(self, name) for name in names], "__setstate__": restore}
    return {"__setattr__": refuse, "__delattr__": refuse} | (pickled if slots else {})


def _get_values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda self: (get(self),)


def _format_values(names: Sequence[str]) -> Callable[[Any], str]:
    values = _get_values(names)

    @recursive_repr()
    def format_values(self: Any) -> str:
        shown = []
        for name, value in zip(names, values(self), strict=True):  # a comprehension recurs less deep
            shown.append(f"{name}={value!r}")
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    return format_values
