"""Events from topics of an MQTT broker. A message is confirmed once its events are kept."""

import asyncio
import hashlib
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NoReturn

from ensue.errors import ServiceError
from ensue.service.brokers.mqtt import Arrival, Session, SessionError, Wanted
from ensue.service.endpoints import Access, Given
from ensue.service.sources.contract import Progress, Source, Taker
from ensue.service.sources.handing_over import hand_over, keep_reading
from ensue.service.sources.payloads import Message

_WEEK = 7 * 86_400
_LONGEST = (1 << 32) - 1  # seconds; for MQTT this is for ever
_OVERFLOW = (
    10_000  # unconfirmed kinds of messages that may wait; the broker does not hold them back
)
_OTHER = 30.0  # seconds before a session is taken back from another client
_SHORT, _OFTEN = 5.0, 5  # sessions of less than so many seconds in a row are suspicious


def make(config: Mapping[str, Any]) -> Source:
    """A source from `server` and `topic`, in which + and # may stand. The broker keeps messages
    for the client `client` while it is away, for at most `expires` seconds. `most` messages or
    those of `wait` seconds are taken together. If needed `username`, `password`, `tls`, `ca`,
    `timeout`."""
    given = Given("MQTT source", config)
    access = given.access("mqtt")
    topic = given.text("topic", hint="a topic, as in trucks/# or trucks/+/position")
    if not _is_filter(topic):
        raise ServiceError(
            f"MQTT source: '{topic}' is not a topic\n  hint: + stands for one level, # for the "
            "rest"
        )
    made_up = "ensue-" + hashlib.sha256(topic.encode()).hexdigest()[:16]
    source = MqttSource(
        access,
        topic,
        client=given.optional("client", hint="a name that no other client has") or made_up,
        expires=min(given.whole("expires", _WEEK), _LONGEST),
        most=given.whole("most", 500),
        wait=given.seconds("wait", 0.02),
    )
    given.done()
    return source


def _is_filter(topic: str) -> bool:
    """Whether MQTT knows a filter like this.

    >>> [_is_filter(topic) for topic in ("a/+/b/#", "+", "a/#/b", "a+/b")]
    [True, True, False, False]
    """
    *front, last = topic.split("/")
    whole = all("+" not in level or level == "+" for level in (*front, last))
    return whole and not any("#" in level for level in front) and ("#" not in last or last == "#")


class MqttSource:
    """Reads topics of one broker in a session that outlives its connections."""

    def __init__(
        self, access: Access, topic: str, *, client: str, expires: int, most: int, wait: float
    ) -> None:
        self._access = access
        self._topic = topic
        self._wanted = Wanted(client, expires, at_a_time=2 * most)
        self._most = most
        self._wait = wait
        self._connected_before = False
        self._short = 0
        self.name = f"mqtt:{topic}"
        self.progress = Progress(self.name)

    def __repr__(self) -> str:
        return f"MqttSource({self._access.shown}, {self._topic!r})"

    async def run(self, service: Taker) -> None:
        await keep_reading(lambda: self._read(service), self.progress, self._words)

    def _words(self, error: Exception) -> str | None:
        return error.why if isinstance(error, SessionError) else None

    async def _read(self, service: Taker) -> None:
        arrivals: asyncio.Queue[Arrival] = asyncio.Queue()

        def arrived(arrival: Arrival) -> None:
            if arrival.qos == 0 and arrivals.qsize() >= _OVERFLOW:
                self.progress.missed("messages of QoS 0 come faster than they can be taken", 1)
            else:
                arrivals.put_nowait(arrival)

        session = await Session(self._access, self._wanted, arrived).open()
        opened = time.monotonic()
        try:
            if self._connected_before and not session.resumed:
                self.progress.missed(
                    "the MQTT broker has forgotten the session: what came meanwhile is gone", 0
                )
                self.progress.count("sessions_lost")
            self._connected_before = True
            await session.subscribe(self._topic)
            self.progress.well()
            while True:
                some = await self._some(arrivals, session)
                await self._hand_over(some, service, session)
        except SessionError as error:
            lost = session.lost.done()  # and not merely refused something
            await self._interrupted(error, short=lost and time.monotonic() - opened < _SHORT)
        finally:
            await session.close()

    async def _interrupted(self, error: SessionError, *, short: bool) -> NoReturn:
        """Says why; two clients of one name would take the session from each other for ever."""
        self._short = self._short + 1 if short else 0
        if not error.taken_over and self._short < _OFTEN:
            raise error
        name = self._wanted.client
        guess = "" if error.taken_over else f": maybe another client has the name '{name}'"
        self.progress.hindered(f"{error.why}{guess}\n  hint: give each its own client=")
        await asyncio.sleep(_OTHER)
        raise SessionError(self.progress.trouble or error.why)

    async def _some(self, arrivals: "asyncio.Queue[Arrival]", session: Session) -> list[Arrival]:
        """What has come: as much as may be taken together, or what comes within the wait."""
        first = asyncio.ensure_future(arrivals.get())
        try:
            await asyncio.wait((first, session.lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not first.done():
                first.cancel()
        if session.lost.done():
            raise session.lost.result()  # what was not confirmed comes again
        some = [first.result()]
        end = time.monotonic() + self._wait
        while len(some) < self._most:
            while len(some) < self._most and not arrivals.empty():
                some.append(arrivals.get_nowait())
            await asyncio.sleep(self._wait / 10)
            # a broker that wants confirmation before it sends more is not waited for
            if arrivals.empty() or time.monotonic() >= end:
                break
        return some

    async def _hand_over(
        self, arrivals: Sequence[Arrival], service: Taker, session: Session
    ) -> None:
        for producer, group in groupby(arrivals, _producer):
            some = list(group)
            messages = [Message(one.payload, _number(one) if producer else None) for one in some]
            await hand_over(messages, service, producer, self.progress)
            for one in some:
                session.confirm(one)


def _producer(arrival: Arrival) -> str | None:
    """Who numbers its messages; kept apart from the producers of other sources."""
    name = arrival.properties.get("producer")
    return f"mqtt:{name}" if name and _number(arrival) is not None else None


def _number(arrival: Arrival) -> int | None:
    text = arrival.properties.get("sequence", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
