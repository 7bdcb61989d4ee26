"""Ctrl-C while a kernel runs: Python hears it only between two calls of compiled code.

So where somebody may press it, kernels run in a thread of their own, and this thread listens.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from ensue.source import cache


class _Beside:
    """A thread that runs kernels, one after the other."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._given: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        threading.Thread(target=self._run, name="ensue-kernels", daemon=True).start()

    def _run(self) -> None:
        while (kernel := self._asked.get()) is not None:
            try:
                self._given.put((kernel(), None))
            except BaseException as error:  # noqa: BLE001  raised again where it is waited for
                self._given.put((None, error))

    def call(self, kernel: Callable[[], Any], stop: Callable[[], None]) -> Any:
        self._asked.put(kernel)
        try:
            given, error = self._given.get()
        except BaseException:
            stop()
            self._given.get()
            raise
        if error is not None:
            raise error
        return given

    def end(self) -> None:
        self._asked.put(None)


_listening = False  # somebody waits for a match in this process, and may want to stop it
_beside: _Beside | None = None  # begun with the first kernel


@contextmanager
def listening() -> Iterator[None]:
    """Kernels that are called inside can be interrupted: calls from the main thread only."""
    global _listening, _beside  # noqa: PLW0603
    if _listening or not _on_main_thread():
        yield
        return
    _listening = True
    try:
        yield
    finally:
        _listening = False
        if _beside is not None:
            _beside.end()
            _beside = None


def interruptible(kernel: Callable[[], Any], stop: Callable[[], None]) -> Any:
    """What a kernel gives; if this thread is interrupted, `stop` makes it return early."""
    global _beside  # noqa: PLW0603
    if not _listening or cache.interpreted or not _on_main_thread():
        return kernel()
    if _beside is None:
        _beside = _Beside()
    return _beside.call(kernel, stop)


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
