"""Calls of clients that do not keep to the rules of cancellation, each in a task of its own.

On Python 3.11 asyncio.wait_for may swallow a cancellation; and some clients let the cancellation
of a task of theirs escape to whoever closes them. Either would hang or end the task that called.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_log = logging.getLogger(__name__)


async def apart(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """What a client answers in time; a TimeoutError or another OSError if it does not."""
    task = asyncio.create_task(work)
    task.add_done_callback(_seen)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        done = task.done()
        task.cancel()
    if not done:
        raise TimeoutError
    if task.cancelled():
        raise ConnectionAbortedError("the client gave up")
    return task.result()


async def let_go(work: Coroutine[Any, Any, object], seconds: float) -> None:
    """Closes a client; one that does not close well, or in time, is gone all the same."""
    task = asyncio.create_task(work)
    task.add_done_callback(_closing.discard)
    task.add_done_callback(_seen)
    _closing.add(task)
    await asyncio.wait([task], timeout=seconds)


_closing: set["asyncio.Task[Any]"] = set()  # so that they are not forgotten half-way


def _seen(task: "asyncio.Task[T]") -> None:
    """An error that nobody waits for any more."""
    if not task.cancelled() and task.exception() is not None:
        _log.debug("a client said at last: %r", task.exception())
