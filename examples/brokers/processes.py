"""A server on this machine as a process of its own: on loopback, in a folder that ends with it."""

import atexit
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from ensue.errors import RunnerError

_PATIENCE = 30.0  # seconds for a server to answer


class ServerProcess:
    """A server that can be ended, killed and started again on the same port and data."""

    name: str  # for people

    def __init__(self, *, port: int = 0) -> None:
        self.port = port or free_port()
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def folder(self) -> Path:
        """Where its data and its log are, while it lives."""
        if self._folder is None:
            raise RunnerError(f"{self.name} has no folder before it is started")
        return self._folder

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix=f"ensue-{self.name}-"))
        atexit.register(self._remove)  # for a server whose block is never left
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def start(self) -> None:
        """Starts it, with what is in its folder, and waits until it answers."""
        if not is_free(self.port):  # whoever listens there would answer in its place
            raise RunnerError(f"{self.name} does not start: port {self.port} is in use")
        log = self.folder / "log"
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                self.command(self.folder), stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        until = time.monotonic() + _PATIENCE
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RunnerError(f"{self.name} does not start:\n{last_lines(log)}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends it as an administrator would; its data stay."""
        self._end(subprocess.Popen.terminate)

    def kill(self) -> None:
        """Ends it without a chance to do anything more; what it wrote stays."""
        self._end(subprocess.Popen.kill)

    def wait(self) -> None:
        """Until it ends by itself."""
        if self._process is not None:
            self._process.wait()

    def command(self, folder: Path) -> list[str]:
        """What is run, with settings and data in the folder."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether it serves requests: an open port alone does not say so."""
        raise NotImplementedError

    def _end(self, how: Callable[["subprocess.Popen[bytes]"], None]) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        how(process)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _remove(self) -> None:
        atexit.unregister(self._remove)
        self.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def program(name: str, package: str) -> str:
    """Where a program is: on PATH, or where Debian puts servers."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise RunnerError(f"{name} is not on PATH\n  hint: sudo apt-get install {package}")
    return found


def said(port: int, question: bytes, size: int) -> bytes:
    """The first bytes that a server answers, or none."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as line:
            line.sendall(question)
            return line.recv(size)
    except OSError:
        return b""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        port: int = line.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether nobody listens on a port."""
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed ones may linger
        try:
            line.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def last_lines(log: Path) -> str:
    """The end of a log, for an error."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return "\n".join(f"  {line}" for line in lines[-10:])


class Runs(Protocol):
    """A server that runs inside a `with`."""

    @property
    def address(self) -> str: ...
    def wait(self) -> None: ...
    def __enter__(self) -> "Runs": ...
    def __exit__(self, *error: Any) -> None: ...


def run_until_interrupted(what: str, make: Callable[[int], Runs], arguments: Sequence[str], usual: int) -> int:
    """Runs a server until Ctrl-C; the one argument is its port."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # a shell has its background jobs ignore Ctrl-C, and nothing else would end this
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        port = int(arguments[0]) if arguments else usual
        with suppress(KeyboardInterrupt), make(port) as server:
            sys.stdout.write(f"{what} at {server.address} until Ctrl-C\n")
            sys.stdout.flush()
            server.wait()
    except (RunnerError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
