"""Notes to topics of an MQTT broker, which confirms each of them (QoS 1)."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ensue.service.brokers.mqtt import Session, SessionError, Wanted
from ensue.service.delivery.contract import Sink, Undelivered
from ensue.service.delivery.destinations import Destination, headings_of, identity_of
from ensue.service.delivery.lines import Lines, Seat
from ensue.service.endpoints import Access, Given
from ensue.service.notes import Note

_LONGEST = 65_535  # bytes of a topic
_AROUND = 1_024  # bytes of a packet besides topic and body, at the most


def make(config: Mapping[str, Any]) -> Sink:
    """A sink from `server` and `topic`; if needed `username`, `password`, `tls`, `ca`,
    `timeout`."""
    given = Given("MQTT target", config)
    access = given.access("mqtt")
    topic = given.text("topic", hint="the name of a topic, as in ensue/{user}/{subscription}")
    given.done()
    return MqttSink(access, Destination("MQTT target: 'topic'", topic, _problem))


def _problem(topic: str) -> str | None:
    if topic.startswith("$"):
        return "belongs to the broker\n  hint: topics with '$' in front cannot be published to"
    if "+" in topic or "#" in topic or "\0" in topic:
        return "matches several topics\n  hint: leave out + and #"
    if len(topic.encode()) > _LONGEST:
        return "is too long"
    return None


class Line:
    """A session that targets share."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.silent = False  # did not answer in time

    @property
    def usable(self) -> bool:
        return not (self.silent or self.session.lost.done())

    async def close(self) -> None:
        await self.session.close()


async def _opened(access: Access) -> Line:
    try:
        return Line(await Session(access, Wanted()).open())
    except SessionError as error:
        raise Undelivered(error.why) from None


_lines = Lines(_opened)


class MqttSink:
    """Sends the notes of one target."""

    def __init__(self, access: Access, destination: Destination) -> None:
        self._access = access
        self._destination = destination
        self._seat: Seat[Line] | None = None
        self._careful = False  # the last try failed

    def __repr__(self) -> str:
        return f"MqttSink({self._access.shown}, {self._destination})"

    async def send(self, notes: Sequence[Note]) -> None:
        if not notes:
            return
        if self._seat is None:
            self._seat = _lines.seat(self._access)
        line = await self._seat.line()
        # Some brokers refuse and hang up at once: the refusal is heard if nothing comes behind.
        sent = 0
        if self._careful:
            sent = await self._send_some(line, notes[:1], 0)
        await self._send_some(line, notes[sent:], sent)
        self._careful = False

    async def _send_some(self, line: Line, notes: Sequence[Note], before: int) -> int:
        posted: list[asyncio.Future[None]] = []
        why = None
        try:
            async with asyncio.timeout(self._access.timeout):
                try:
                    for note in notes:  # what was posted before an error counts
                        posted += [await self._posted(line.session, note)]
                except SessionError as error:
                    why = error.why
                if posted:
                    await asyncio.wait(posted)
        except TimeoutError:
            line.silent = True
            why = f"the MQTT broker at {self._access.shown} does not answer"
        there = [future.done() and future.exception() is None for future in posted]
        sent = (*there, False).index(False)
        if sent < len(notes):
            self._careful = True
            if sent < len(posted) and posted[sent].done():
                why = str(posted[sent].exception())
            raise Undelivered(why or "", sent=before + sent)
        return sent

    async def _posted(self, session: Session, note: Note) -> "asyncio.Future[None]":
        topic = self._destination.of(note)
        size = len(note.body) + len(topic.encode()) + _AROUND
        if session.largest is not None and size > session.largest:
            raise SessionError(
                f"notification {note.number} has {len(note.body)} bytes, more than the MQTT "
                f"broker at {self._access.shown} takes\n  hint: raise its max_packet_size"
            )
        return await session.post(topic, note.body, headings_of(note) | {"id": identity_of(note)})

    async def close(self) -> None:
        seat, self._seat = self._seat, None
        if seat is not None:
            await seat.leave()
