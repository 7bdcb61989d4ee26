"""Tracebacks of public calls end at the user's line, without Ensue's frames.

This applies to EnsueErrors. A MemoryError becomes a LimitError; other errors are bugs and keep
their traceback, as all do with `ENSUE_TRACEBACK=full` in the environment.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import aclosing
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from ensue.errors import EnsueError, LimitError
from ensue.traceback_filter import strip_library_frames

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Brief:
    """Shortens the traceback of an error.

    A `with` statement raises the error with its new traceback and adds no frame of its own: the
    next one is that of the caller.
    """

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or os.environ.get("ENSUE_TRACEBACK") == "full":
            return
        if isinstance(error, MemoryError):
            raise LimitError(
                "this call needs more memory than the system gives this process\n"
                "  hint: pass fewer events or columns at a time, return less (RETURN, LIMIT, "
                "COUNT(*)), or raise the limit (ulimit -v, the container's memory)"
            ) from None
        if isinstance(error, EnsueError):
            error.__traceback__ = strip_library_frames(traceback)
            _shorten_causes(error)
        elif isinstance(error, TypeError) and traceback is not None and not traceback.tb_next:
            error.__traceback__ = None  # the call itself has an unknown argument


def _shorten_causes(error: BaseException) -> None:
    """Shows the causes of an error with the user's frames, or not at all."""
    seen = {id(error)}
    while (before := error.__cause__ or error.__context__) is not None and id(before) not in seen:
        seen.add(id(before))
        users = strip_library_frames(before.__traceback__)
        if users is None and error.__cause__ is None:
            error.__suppress_context__ = True
        if users is not None or isinstance(before, EnsueError):
            before.__traceback__ = users
        error = before


_BRIEF = _Brief()


def shorten_tracebacks(call: Callable[P, R]) -> Callable[P, R]:
    """Decorates a public function, also a coroutine function or an async generator."""
    if inspect.isasyncgenfunction(call):

        @functools.wraps(call)
        async def generate(*args: Any, **named: Any) -> Any:
            with _BRIEF:
                async with aclosing(call(*args, **named)) as values:
                    async for value in values:
                        yield value

        return cast(Callable[P, R], generate)
    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def await_call(*args: Any, **named: Any) -> Any:
            with _BRIEF:
                return await call(*args, **named)

        return cast(Callable[P, R], await_call)

    @functools.wraps(call)
    def run(*args: P.args, **named: P.kwargs) -> R:
        with _BRIEF:
            return call(*args, **named)

    return run


def shorten_class_tracebacks(kind: type[T]) -> type[T]:
    """Decorates every public method and property of a class."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in ("__init__", "__aenter__"):
            continue
        if inspect.isfunction(member):
            setattr(kind, name, shorten_tracebacks(member))
        elif isinstance(member, classmethod):
            setattr(kind, name, classmethod(shorten_tracebacks(member.__func__)))
        elif isinstance(member, property) and member.fget is not None:
            setattr(kind, name, property(shorten_tracebacks(member.fget), doc=member.__doc__))
    return kind


def shorten_task_tracebacks(call: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Decorates the function that a Spark task calls for its rows.

    Spark sends the traceback to the driver as text. One of our frames stays, since otherwise
    Spark shows all of its own.
    """

    @functools.wraps(call)
    def generate(*args: P.args, **named: P.kwargs) -> Iterator[R]:
        try:
            yield from call(*args, **named)
        except EnsueError as error:
            if os.environ.get("ENSUE_TRACEBACK") == "full":
                raise
            stripped = strip_library_frames(error.__traceback__)
            raise error.with_traceback(stripped) from error.__cause__

    return generate
