"""Ctrl-C while a kernel runs: kernels run in a worker thread, and the main thread handles signals.

Python handles a signal only between two calls of compiled code.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from ensue.codegen import kernel_cache


class _KernelThread:
    """A worker thread that runs kernels one at a time."""

    def __init__(self) -> None:
        self._requests: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        threading.Thread(target=self._run, name="ensue-kernels", daemon=True).start()

    def _run(self) -> None:
        while (kernel := self._requests.get()) is not None:
            try:
                self._results.put((kernel(), None))
            except BaseException as error:  # noqa: BLE001  raised again by `call`
                self._results.put((None, error))

    def call(self, kernel: Callable[[], Any], stop: Callable[[], None]) -> Any:
        self._requests.put(kernel)
        try:
            result, error = self._results.get()
        except BaseException:
            stop()
            self._results.get()
            raise
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        self._requests.put(None)


_listening = False
_thread: _KernelThread | None = None  # started with the first kernel


@contextmanager
def allow_interrupts() -> Iterator[None]:
    """Make kernels that the main thread calls in this context interruptible."""
    global _listening, _thread  # noqa: PLW0603
    if _listening or not _on_main_thread():
        yield
        return
    _listening = True
    try:
        yield
    finally:
        _listening = False
        if _thread is not None:
            _thread.end()
            _thread = None


def run_interruptibly(kernel: Callable[[], Any], stop: Callable[[], None]) -> Any:
    """Run a kernel; if this thread is interrupted, `stop` makes the kernel return early."""
    global _thread  # noqa: PLW0603
    if not _listening or kernel_cache.interpreted or not _on_main_thread():
        return kernel()
    if _thread is None:
        _thread = _KernelThread()
    return _thread.call(kernel, stop)


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
