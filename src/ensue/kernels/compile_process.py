"""A background process that compiles kernels; the machine code is returned by the cache folder.

Each process has at most one. It starts with the first request, runs at low priority, prints
nothing, and exits with its parent or after some idle time.
"""

import atexit
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import BinaryIO

from ensue import cache_files

IN_PROCESS = "in_process"  # value of ENSUE_COMPILE: no background process
IDLE = 30.0  # seconds without a request before it exits
NICE = 10


class _CompileProcess:
    """The last started process, and the process that started it: a fork owns none."""

    process: subprocess.Popen[bytes] | None = None
    owner = 0
    failed = False


def is_allowed() -> bool:
    """Whether a background process may compile.

    It needs a writable cache folder, and workers start none, as there may be one per core.
    """
    return (
        os.environ.get("ENSUE_COMPILE") != IN_PROCESS
        and not _CompileProcess.failed
        and bool(sys.executable)
        and not getattr(sys, "frozen", False)
        and not _in_a_worker()
        and cache_files.get_cache_folder() is not None
    )


def _in_a_worker() -> bool:
    if "pyspark.worker_util" in sys.modules:  # drivers do not import it
        return True
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def request_compile(function: Callable[..., object], *args: object) -> None:
    """Call a function in the background process, which caches the compiled code."""
    content = pickle.dumps(pickle.dumps((function, args)))
    for _ in range(2):  # it may be exiting, being idle
        try:
            process = _running()
            assert process.stdin is not None
            process.stdin.write(content)
            process.stdin.flush()
            return
        except OSError:
            continue
    _CompileProcess.failed = True  # it cannot start, so this process compiles


def _running() -> subprocess.Popen[bytes]:
    process = _CompileProcess.process
    if process is None or _CompileProcess.owner != os.getpid() or process.poll() is not None:
        if process is None:
            atexit.register(stop_process)
        folder = cache_files.get_cache_folder()
        assert folder is not None
        paths = [path or os.getcwd() for path in sys.path]  # noqa: PTH109
        process = _CompileProcess.process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "ENSUE_CACHE": str(folder.parent)},
            start_new_session=True,  # Ctrl-C is for the parent only
            pipesize=1 << 20,  # requests never block
        )
        _CompileProcess.owner = os.getpid()
    return process


def stop_process() -> None:
    """Kill the process if this one has started it."""
    process = _CompileProcess.process
    if process is not None and _CompileProcess.owner == os.getpid():
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        _CompileProcess.process = None


def main() -> None:
    """Serve requests until the parent exits or sends none."""
    if hasattr(os, "nice"):
        os.nice(NICE)
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests), daemon=True).start()
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    while True:
        try:
            content = requests.get(timeout=IDLE)
        except Empty:
            return
        try:
            function, args = pickle.loads(content)
            function(*args)
        except Exception:  # noqa: BLE001  the parent compiles it, too, and reports the error
            continue


def _read(source: BinaryIO, requests: SimpleQueue[bytes]) -> None:
    while True:
        try:
            requests.put(pickle.load(source))
        except EOFError:
            os._exit(0)


def _watch(parent: int) -> None:
    """Exit with the parent, since a fork of the parent may keep the pipe open."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


if __name__ == "__main__":
    # requests refer to functions of the module, of which `__main__` is a copy
    run = main

    run()
