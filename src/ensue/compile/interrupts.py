"""Ctrl-C while a kernel runs: Python hears it only between two calls of compiled code.

So where somebody may press it, a kernel runs in a thread of its own, and this thread listens.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ensue.compile import cache

_listening = False  # somebody waits for a match in this process, and may want to stop it


@contextmanager
def listening() -> Iterator[None]:
    """Kernels that are called inside can be interrupted: calls from the main thread only."""
    global _listening  # noqa: PLW0603
    before, _listening = _listening, threading.current_thread() is threading.main_thread()
    try:
        yield
    finally:
        _listening = before


def interruptible(kernel: Callable[[], Any], stop: Callable[[], None]) -> Any:
    """What a kernel gives; if this thread is interrupted, `stop` makes it return early."""
    if not _listening or cache.interpreted:
        return kernel()
    if threading.current_thread() is not threading.main_thread():
        return kernel()
    given: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            given.append(kernel())
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            failed.append(error)

    thread = threading.Thread(target=run, name="ensue-kernel", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        stop()
        thread.join()
        raise
    if failed:
        raise failed[0]
    return given[0]
