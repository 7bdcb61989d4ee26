"""Threads that run kernels, and Ctrl-C meanwhile: the main thread handles signals.

Python handles a signal only between two calls of compiled code.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

from ensue.codegen import kernel_cache

T = TypeVar("T")


class _KernelThread:
    """A worker thread that runs kernels one at a time."""

    def __init__(self) -> None:
        # each request has a queue for its result: that of an interrupted call is left there
        self._requests: SimpleQueue[tuple[Callable[[], Any], SimpleQueue[Any]]] = SimpleQueue()
        threading.Thread(target=self._run, name="ensue-kernels", daemon=True).start()

    def _run(self) -> None:
        while True:
            kernel, results = self._requests.get()
            try:
                results.put((kernel(), None))
            except BaseException as error:  # noqa: BLE001  raised again by `call`
                results.put((None, error))
            del kernel, results

    def call(self, kernel: Callable[[], Any], stop: Callable[[], None]) -> Any:
        results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._requests.put((kernel, results))
        try:
            result, error = results.get()
        except BaseException:
            stop()
            results.get()
            raise
        if error is not None:
            raise error
        return result


_listening = False
_thread: _KernelThread | None = None  # started with the first kernel, and kept: starting one takes 0.1 ms


def _forget_thread() -> None:
    """The threads of a process are not in its fork."""
    global _thread  # noqa: PLW0603
    _thread = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_thread)


@contextmanager
def allow_interrupts() -> Iterator[None]:
    """Make kernels that the main thread calls in this context interruptible."""
    global _listening  # noqa: PLW0603
    if _listening or not _on_main_thread():
        yield
        return
    _listening = True
    try:
        yield
    finally:
        _listening = False


def run_interruptibly(kernel: Callable[[], Any], stop: Callable[[], None]) -> Any:
    """Run a kernel; if this thread is interrupted, `stop` makes the kernel return early."""
    global _thread  # noqa: PLW0603
    if (tasks := _tasks.get()) is not None:
        return tasks.call(kernel, stop)
    if not _listening or kernel_cache.interpreted or not _on_main_thread():
        return kernel()
    if _thread is None:
        _thread = _KernelThread()
    return _thread.call(kernel, stop)


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class _Tasks:
    """Tasks in several threads: if one fails or the main thread is interrupted, all stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: dict[int, Callable[[], None]] = {}  # of the running kernels, by thread
        self._stopped = False

    def call(self, kernel: Callable[[], Any], stop: Callable[[], None]) -> Any:
        thread = threading.get_ident()
        with self._lock:
            if self._stopped:
                raise CancelledError
            self._stops[thread] = stop
        try:
            result = kernel()
        finally:
            with self._lock:
                del self._stops[thread]
        if self._stopped:
            raise CancelledError
        return result

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for stop in self._stops.values():
                stop()


_tasks: ContextVar[_Tasks | None] = ContextVar("tasks", default=None)


def run_in_threads(
    tasks: Sequence[Callable[[], T]], threads: int, finished: Callable[[int], None] = lambda _: None
) -> list[T]:
    """Run tasks in at most `threads` threads and return their results in order.

    `finished` is called in this thread with the number of each finished task. The first error, or
    an interrupt of this thread, stops the kernels of all tasks.
    """
    if threads < 2 or len(tasks) < 2:
        results = []
        for number, task in enumerate(tasks):
            results.append(task())
            finished(number)
        return results
    group = _Tasks()
    token = _tasks.set(group)
    contexts = [copy_context() for _ in tasks]
    _tasks.reset(token)
    with ThreadPoolExecutor(min(threads, len(tasks)), "ensue") as pool:
        submitted = [pool.submit(context.run, task) for context, task in zip(contexts, tasks, strict=True)]
        numbers = {future: number for number, future in enumerate(submitted)}
        try:
            for future in as_completed(numbers):
                future.result()
                finished(numbers[future])
        except BaseException:
            group.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [future.result() for future in submitted]
