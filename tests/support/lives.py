"""A service that is killed over and over, and how its clients get along with that."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx2

API = "/api/v1"
PATIENCE = 120.0  # seconds before a test that waits for something has failed
PROGRAM = Path(__file__).with_name("killed_service.py")
FINE = (200, 201)

# What a service writes, and how often it may before that is its end. Fewer than it has written
# once it listens: it dies while it starts.
STATEMENTS = {
    "COMMIT": 40,
    "SAVEPOINT offers": 20,
    "INSERT INTO batches": 20,
    "INSERT INTO positions": 20,
    "INSERT OR IGNORE INTO outbox": 20,
    "INSERT INTO changes": 4,
    "INSERT INTO targets": 4,
    "INSERT OR REPLACE INTO keys": 2,
    "INSERT OR REPLACE INTO deliveries": 3,
    "UPDATE targets SET cursor": 30,  # sent, and not written down
    "INSERT INTO snapshots": 2,
    "SELECT position, version, data FROM snapshots": 1,  # starts
    "DELETE FROM sessions": 2,  # housekeeping
}


def deaths(chance: Random, count: int, longest: float) -> list[dict[str, Any]]:
    """How lives end: at a point of their work, or by the clock if that does not come `within`."""
    found: list[dict[str, Any]] = []
    for _ in range(count):
        way = chance.random()
        if way < 0.3:
            found.append({"within": chance.uniform(0, longest)})
        elif way < 0.45:
            found.append({"within": longest, "commit": chance.randint(1, 40)})
        else:
            statement, most = chance.choice(list(STATEMENTS.items()))
            time = chance.randint(1, most)
            found.append({"within": longest, "statement": statement, "time": time})
    return found


class Lives:
    """One process after the other on the same file."""

    def __init__(self, folder: Path, **said: Any) -> None:
        self._said = {"path": str(folder / "service.db"), **said}
        self._log = folder / "log"
        self._pid: int | None = None  # of the service, while it lives
        self._address: str | None = None
        self._begun = asyncio.Event()
        self._there = asyncio.Event()
        self._ended = asyncio.Event()
        self._exit = 0
        self._client = httpx2.AsyncClient(timeout=PATIENCE)
        self.died: Counter[str] = Counter()  # by how
        self.unanswered = 0  # requests that had to be made again
        self.over = False  # the last life has begun

    @property
    def kills(self) -> int:
        return sum(self.died.values())

    async def __aenter__(self) -> "Lives":
        with self._log.open("ab") as log:
            self._maker = await asyncio.create_subprocess_exec(
                sys.executable, "-W", "ignore", str(PROGRAM),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
            )  # fmt: skip
        self._hearing = asyncio.create_task(self._hear())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()
        self.kill()
        assert self._maker.stdin is not None
        self._maker.stdin.close()
        await self._maker.wait()
        await self._hearing

    async def _hear(self) -> None:
        """Takes in what is said of the process."""
        assert self._maker.stdout is not None
        while line := await self._maker.stdout.readline():
            match json.loads(line):
                case {"pid": pid}:
                    self._pid = pid
                    self._begun.set()
                case {"address": address}:
                    self._address = address
                    self._there.set()
                case {"exit": code}:
                    self._pid, self._address, self._exit = None, None, code
                    self._begun.clear()
                    self._there.clear()
                    self._ended.set()
        self._begun.set()  # there will be no other, and nobody need wait for it

    # ------------------------------------------------------------------------------ living

    async def live(self, death: Mapping[str, Any] | None = None) -> None:
        """Starts it. If it is to die, returns when it has."""
        assert self._maker.stdin is not None
        self._ended.clear()
        self._maker.stdin.write(json.dumps({**self._said, "death": death}).encode() + b"\n")
        await self._begun.wait()
        assert self._pid is not None, self.said
        if death is None:
            self.over = True
            await self.address()
            return
        how = death.get("statement", "behind a commit")
        try:
            async with asyncio.timeout(death["within"]):
                await self._ended.wait()
        except TimeoutError:
            how = "by the clock"
            self.kill()
            await self._ended.wait()
        assert self._exit == -signal.SIGKILL, self.said
        self.died[how] += 1

    def kill(self) -> None:
        """Ends it without a chance to do anything more."""
        if self._pid is not None:
            with suppress(ProcessLookupError):  # it was quicker
                os.kill(self._pid, signal.SIGKILL)

    async def stop(self) -> int:
        """Ends it as an administrator would; gives its exit code."""
        assert self._pid is not None
        os.kill(self._pid, signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            await self._ended.wait()
        return self._exit

    @property
    def said(self) -> str:
        """The end of what it has logged."""
        return self._log.read_text(errors="replace")[-5_000:]

    # ----------------------------------------------------------------------------- clients

    async def address(self) -> str:
        """Where it listens, as soon as it does."""
        async with asyncio.timeout(PATIENCE):
            while self._address is None:
                await self._there.wait()
        return self._address

    async def ask(self, method: str, path: str, **request: Any) -> Any:
        """Asks until it is answered: what a kill has cut off is asked again."""
        async with asyncio.timeout(PATIENCE):
            while (answer := await self._answer(method, path, request)) is None:
                self.unanswered += 1
                await asyncio.sleep(0.01)
        assert answer.status_code in FINE, f"{method} {path}: {answer.text}\n{self.said}"
        return answer.json()

    async def _answer(self, method: str, path: str, request: Mapping[str, Any]) -> httpx2.Response | None:
        address = await self.address()
        try:
            return await self._client.request(method, address + API + path, **request)
        except httpx2.TransportError:
            return None

    @asynccontextmanager
    async def stream(self, path: str, **request: Any) -> AsyncIterator[httpx2.Response]:
        """A response that does not end by itself."""
        address = await self.address()
        patient = httpx2.Timeout(PATIENCE, read=None)
        async with self._client.stream("GET", address + API + path, timeout=patient, **request) as answer:
            assert answer.status_code == 200, self.said
            yield answer
