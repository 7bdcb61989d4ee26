"""Notes to a NATS JetStream stream, which drops repeats by the match."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import nats.errors
import nats.js.errors

from ensue.service.brokers.nats import Connection, NatsError
from ensue.service.delivery.contract import Sink, Undelivered
from ensue.service.delivery.destinations import Destination, headings_of, identity_of
from ensue.service.delivery.lines import Lines, Seat
from ensue.service.endpoints import Access, Given
from ensue.service.notes import Note

_AT_A_TIME = 4  # targets that send over one connection
_PIECE = 500  # notes that wait for their answer; all targets together stay below the client's 4000


def make(config: Mapping[str, Any]) -> Sink:
    """A sink from `servers` and `subject`; if needed `username`, `password`, `token`, `tls`, `ca`,
    `timeout`."""
    given = Given("NATS target", config)
    access = given.access("nats", token=True)
    subject = given.text("subject", hint="a subject, as in ensue.{user}.{subscription}")
    given.done()
    return NatsSink(access, Destination("NATS target: 'subject'", subject, _problem))


def _problem(subject: str) -> str | None:
    tokens = subject.split(".")
    if subject.startswith("$"):
        return "belongs to the server\n  hint: subjects with '$' in front are its own"
    if "*" in tokens or ">" in tokens:
        return "matches several subjects\n  hint: leave out * and >"
    if not all(tokens) or any(c.isspace() or not c.isprintable() for c in subject):
        return "is not a subject\n  hint: words with dots between, as in ensue.alerts"
    return None


class Line:
    """A connection that targets share."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.room = asyncio.Semaphore(_AT_A_TIME)
        self.silent = False  # did not answer in time

    @property
    def usable(self) -> bool:
        return not (self.silent or self.connection.lost.done())

    async def close(self) -> None:
        await self.connection.close()


async def _opened(access: Access) -> Line:
    try:
        return Line(await Connection(access).open())
    except NatsError as error:
        raise Undelivered(str(error)) from None


_lines = Lines(_opened)


class NatsSink:
    """Sends the notes of one target."""

    def __init__(self, access: Access, destination: Destination) -> None:
        self._access = access
        self._destination = destination
        self._seat: Seat[Line] | None = None

    def __repr__(self) -> str:
        return f"NatsSink({self._access.shown}, {self._destination})"

    async def send(self, notes: Sequence[Note]) -> None:
        if not notes:
            return
        if self._seat is None:
            self._seat = _lines.seat(self._access)
        line = await self._seat.line()
        for start in range(0, len(notes), _PIECE):
            await self._send_piece(line, notes[start : start + _PIECE], start)

    async def _send_piece(self, line: Line, notes: Sequence[Note], before: int) -> None:
        posted: list[asyncio.Future[Any]] = []
        trouble: BaseException | None = None
        lost: asyncio.Future[Any] = line.connection.lost
        try:
            async with asyncio.timeout(self._access.timeout), line.room:
                try:
                    for note in notes:  # what was posted before an error counts
                        posted += [await self._posted(line, note)]
                except nats.errors.Error as error:
                    trouble = error
                if posted:
                    answered: asyncio.Future[Any] = asyncio.gather(*posted, return_exceptions=True)
                    await asyncio.wait((answered, lost), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            line.silent = True
            trouble = trouble or error
        there = [f.done() and not f.cancelled() and f.exception() is None for f in posted]
        sent = (*there, False).index(False)
        for future in posted:
            future.cancel()
        if sent == len(notes):
            return
        if sent < len(posted) and posted[sent].done() and not posted[sent].cancelled():
            trouble = posted[sent].exception() or trouble
        if lost.done():
            trouble = nats.errors.ConnectionClosedError()
        why = await self._words(line, trouble or TimeoutError(), self._destination.of(notes[sent]))
        raise Undelivered(why, sent=before + sent)

    async def _posted(self, line: Line, note: Note) -> "asyncio.Future[Any]":
        names = headings_of(note) | {"Nats-Msg-Id": identity_of(note)}
        return await line.connection.jetstream.publish_async(
            self._destination.of(note), note.body, headers=names
        )

    async def _words(self, line: Line, error: BaseException, subject: str) -> str:
        """What is wrong; no stream may also mean that the server keeps none at all."""
        if isinstance(error, nats.js.errors.NoStreamResponseError):
            try:
                await line.connection.ask(line.connection.jetstream.account_info())
            except (nats.errors.Error, TimeoutError):
                return (
                    f"NATS at {self._access.shown} keeps no streams\n"
                    "  hint: switch JetStream on, as in nats-server -js"
                )
        return line.connection.words(error, subject)

    async def close(self) -> None:
        seat, self._seat = self._seat, None
        if seat is not None:
            await seat.leave()
