"""Brokers: one module each with its client, its sink and its source; and what their clients share.

On Python 3.11 asyncio.wait_for can swallow a cancellation, and some clients leak the cancellation
of their own tasks when they are closed. Either would hang or end the calling task. So client calls
run in their own tasks.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar


class UnavailableError(Exception):
    """A broker or folder cannot be used at the moment; the text tells users why."""


T = TypeVar("T")
_log = logging.getLogger(__name__)


async def run_shielded(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Waits for a client call; raises TimeoutError or another OSError if it fails."""
    task = asyncio.create_task(work)
    task.add_done_callback(_log_late_error)
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


async def close_client(work: Coroutine[Any, Any, object], seconds: float) -> None:
    """Closes a client within a time limit, ignoring errors."""
    task = asyncio.create_task(work)
    task.add_done_callback(_closing.discard)
    task.add_done_callback(_log_late_error)
    _closing.add(task)
    await asyncio.wait([task], timeout=seconds)


_closing: set["asyncio.Task[Any]"] = set()  # keeps the tasks alive


def _log_late_error(task: "asyncio.Task[T]") -> None:
    """Logs the error of a task that is no longer awaited."""
    if not task.cancelled() and task.exception() is not None:
        _log.debug("late error of a client: %r", task.exception())
