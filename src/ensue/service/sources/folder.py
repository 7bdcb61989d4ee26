"""Events from files that appear in a folder, in the order of their names, each file once."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.errors import EventError
from ensue.service.endpoints import Given
from ensue.service.refusals import OverLimitError
from ensue.service.sources.contract import Progress, Source, Taker
from ensue.service.sources.event_files import UNREADABLE, Chunk, chunks_of, known
from ensue.service.sources.handing_over import keep_reading, kept


def make(config: Mapping[str, Any]) -> Source:
    """A source from `path`: files in JSON lines, JSON, CSV, Parquet and Arrow. Every `look`
    seconds it looks for new ones; `most` rows are taken together."""
    given = Given("folder source", config)
    path = given.text("path", hint="a folder that the service can read")
    source = FolderSource(
        Path(path), most=given.whole("most", 5_000), look=given.seconds("look", 1.0)
    )
    given.done()
    return source


@dataclass(frozen=True, slots=True)
class Look:
    """What tells whether a file has changed since we looked."""

    size: int
    written: int
    file: int  # the same name may be another file

    def is_no_more_of(self, before: "Look") -> bool:
        """Whether it cannot be the same file with rows added."""
        return self.file != before.file or self.size < before.size


class FolderSource:
    """Reads the files of one folder. What begins with '.' or '_' is left out.

    A file is read when it did not change between two looks. One that is still written holds back
    those with names behind its own.
    """

    def __init__(self, path: Path, *, most: int, look: float) -> None:
        self._path = path.absolute()
        self._most = most
        self._look = look
        self._seen: dict[str, Look] = {}
        self._taken: dict[str, Look] = {}  # read to the end, or put aside
        self.name = f"folder:{self._path}"
        self.progress = Progress(self.name)

    def __repr__(self) -> str:
        return f"FolderSource({str(self._path)!r})"

    async def run(self, service: Taker) -> None:
        await keep_reading(lambda: self._read(service), self.progress, self._words)

    def _words(self, error: Exception) -> str | None:
        if isinstance(error, OSError):
            return f"the folder {self._path} cannot be listed: {error.strerror}"
        return None

    async def _read(self, service: Taker) -> None:
        while True:
            looks = await asyncio.to_thread(self._looks)
            self.progress.well()
            ready = self._ready(looks)
            self._seen = looks
            self._taken = {name: look for name, look in self._taken.items() if name in looks}
            for name in ready:
                await self._take(name, looks[name], service)
            await asyncio.sleep(self._look)

    def _looks(self) -> dict[str, Look]:
        found = {}
        for path in self._path.iterdir():
            try:
                if path.name[0] not in "._" and path.is_file():
                    now = path.stat()
                    found[path.name] = Look(now.st_size, now.st_mtime_ns, now.st_ino)
            except FileNotFoundError:  # renamed or removed meanwhile
                continue
        return found

    def _ready(self, looks: Mapping[str, Look]) -> list[str]:
        """The files to be read now, by name."""
        ready = []
        for name in sorted(looks):
            if looks[name] == self._taken.get(name):
                continue
            if not known(name):
                if self._taken.get(name) is None:
                    self.progress.left_out(f"{name} is of no known kind")
                self._taken[name] = looks[name]
                continue
            if looks[name] != self._seen.get(name):
                break  # it is still written
            ready.append(name)
        return ready

    # ------------------------------------------------------------------------------ a file

    async def _take(self, name: str, look: Look, service: Taker) -> None:
        before = self._taken.get(name)
        self._taken[name] = look
        producer = f"{self.name}:{name}"
        position = await service.position(producer) or 0
        if position and before is not None and look.is_no_more_of(before):
            said = f"{name} was replaced after {position} rows of it were taken"
            hint = "give new events a file of a new name"
            await self._put_aside(f"{said}\n  hint: {hint}", producer, service)
            return
        try:
            chunks = chunks_of(self._path / name, position, self._most)
            while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
                await self._offer(chunk, producer, service)
        except UNREADABLE as error:
            await self._put_aside(f"{name}: {_reason(error)}", producer, service)
        except EventError as error:
            await self._put_aside(f"{name}: {error}", producer, service)

    async def _put_aside(self, why: str, producer: str, service: Taker) -> None:
        """Leaves out a file, or a row of it, and tells the operators."""
        self.progress.put_aside(why)
        await service.put_aside(b"", why, producer=producer)

    async def _offer(self, chunk: Chunk, producer: str, service: Taker) -> None:
        numbers = range(chunk.first, chunk.first + chunk.count)
        try:
            await kept(
                chunk.body(),
                chunk.media,
                service,
                self.progress,
                producer=producer,
                sequences=numbers,
            )
        except OverLimitError as error:
            if chunk.count > 1:
                for half in chunk.halves():
                    await self._offer(half, producer, service)
            else:
                why = f"{producer}, row {chunk.first}: {error}"
                await self._put_aside(why, producer, service)
        else:
            self.progress.count("messages", chunk.count)


def _reason(error: Exception) -> str:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (said or type(error).__name__).partition("\n")[0]
