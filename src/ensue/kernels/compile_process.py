"""A process that compiles beside this one: machine code comes back through the cache folder.

There is one for each process at a time. It starts with the first request, runs at low priority,
prints nothing, and ends with its parent or when it has had nothing to do for a while.
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

from ensue import private_files

IN_PROCESS = "in_process"  # ENSUE_COMPILE: no other process compiles
IDLE = 30.0  # seconds without a request after which it ends
NICE = 10


class _Beside:
    """The process that was started last, and by whom: a fork does not own its parent's."""

    process: subprocess.Popen[bytes] | None = None
    owner = 0
    failed = False


def is_allowed() -> bool:
    """Whether another process may compile: not where the folder cannot be written, and not in
    workers, of which there may be as many as the machine has cores."""
    return (
        os.environ.get("ENSUE_COMPILE") != IN_PROCESS
        and not _Beside.failed
        and bool(sys.executable)
        and not getattr(sys, "frozen", False)
        and not _in_a_worker()
        and private_files.folder() is not None
    )


def _in_a_worker() -> bool:
    if "pyspark.worker_util" in sys.modules:  # which drivers do not import
        return True
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def request(function: Callable[..., object], *args: object) -> None:
    """Has a function called in the other process, which keeps what it compiles."""
    content = pickle.dumps(pickle.dumps((function, args)))
    for _ in range(2):  # it may end just now, for want of requests
        try:
            process = _running()
            assert process.stdin is not None
            process.stdin.write(content)
            process.stdin.flush()
            return
        except OSError:
            continue
    _Beside.failed = True  # it cannot be started: this process compiles what it needs


def _running() -> subprocess.Popen[bytes]:
    process = _Beside.process
    if process is None or _Beside.owner != os.getpid() or process.poll() is not None:
        if process is None:
            atexit.register(stop)
        folder = private_files.folder()
        assert folder is not None
        paths = [path or os.getcwd() for path in sys.path]  # noqa: PTH109
        process = _Beside.process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(paths), "ENSUE_CACHE": str(folder.parent)},
            start_new_session=True,  # Ctrl-C is not for it
            pipesize=1 << 20,  # nobody waits for it to read
        )
        _Beside.owner = os.getpid()
    return process


def stop() -> None:
    """Ends the process, if this one has started it."""
    process = _Beside.process
    if process is not None and _Beside.owner == os.getpid():
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        _Beside.process = None


# ------------------------------------------------------------------------------ the process


def main() -> None:
    """Calls what it reads, until its parent has ended or has nothing for it."""
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
        except Exception:  # noqa: BLE001  who asked for it compiles it, and sees the error
            continue


def _read(source: BinaryIO, requests: SimpleQueue[bytes]) -> None:
    while True:
        try:
            requests.put(pickle.load(source))
        except EOFError:
            os._exit(0)


def _watch(parent: int) -> None:
    """The end of its input is not seen where a fork of the parent still holds the pipe."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


if __name__ == "__main__":
    # requests name functions of the module, of which `__main__` is a copy
    from ensue.kernels.compile_process import main as run

    run()
