"""Properties that are computed when they are first asked for."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class cached_property(Generic[Value]):  # noqa: N801  it stands in for that of functools
    """Like that of `functools`, without the lock that it has up to Python 3.11.

    That lock is one for all instances: threads would wait for each other's kernels, and a child
    that is forked meanwhile would wait for ever. Threads that ask at the same time may compute
    a value twice.

    >>> class Circle:
    ...     @cached_property
    ...     def area(self) -> float:
    ...         print("computed")
    ...         return 3.14
    >>> circle = Circle()
    >>> circle.area, circle.area
    computed
    (3.14, 3.14)
    >>> class Disc(Circle):
    ...     @cached_property
    ...     def area(self) -> float:
    ...         return 2 * super().area
    >>> disc = Disc()
    >>> disc.area, disc.area
    computed
    (6.28, 6.28)
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> "cached_property[Value]": ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> Value: ...
    def __get__(
        self, instance: object | None, owner: type[Any]
    ) -> "cached_property[Value] | Value":
        if instance is None:
            return self
        value = self.compute(instance)
        instance.__dict__[self.name] = value  # over that of a class above, if it was asked for
        return value
