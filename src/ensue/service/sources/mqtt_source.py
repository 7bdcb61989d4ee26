"""Source for topics of an MQTT broker; a message is acknowledged once its events are committed."""

import asyncio
import hashlib
import time
from collections.abc import Mapping
from itertools import groupby
from typing import Any, NoReturn

from ensue.errors import ServiceError
from ensue.service.brokers.mqtt_client import MqttMessage, MqttSession, MqttSessionError, SessionOptions
from ensue.service.endpoints import ConfigReader
from ensue.service.sources.payloads import Message
from ensue.service.sources.source import EventReceiver, RetryingSource

_WEEK = 7 * 86_400
_LONGEST = (1 << 32) - 1  # seconds; MQTT's value for "never"
_OVERFLOW = 10_000  # waiting messages of QoS 0, for which MQTT has no flow control
_OTHER = 30.0  # seconds before a session is taken back from another client
_SHORT, _OFTEN = 5.0, 5  # consecutive sessions shorter than this many seconds are suspicious


def _is_filter(topic: str) -> bool:
    """Whether a topic filter is valid in MQTT.

    >>> [_is_filter(topic) for topic in ("a/+/b/#", "+", "a/#/b", "a+/b")]
    [True, True, False, False]
    """
    *front, last = topic.split("/")
    whole = all("+" not in level or level == "+" for level in (*front, last))
    return whole and not any("#" in level for level in front) and ("#" not in last or last == "#")


class MqttSource(RetryingSource):
    """Reads topics of a broker in a persistent session."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Reads `server` and `topic`, which may contain + and #. The broker stores messages for
        the client `client` while it is disconnected, for at most `expires` seconds. The source
        publishes `most` messages at a time, or those of `wait` seconds. Optional are `username`,
        `password`, `tls`, `ca`, and `timeout`."""
        reader = ConfigReader("MQTT source", config)
        self._access = reader.access("mqtt")
        self._topic = topic = reader.text("topic", hint="a topic, as in trucks/# or trucks/+/position")
        if not _is_filter(topic):
            raise ServiceError(f"MQTT source: '{topic}' is not a topic\n  hint: + stands for one level, # for the rest")
        super().__init__(f"mqtt:{topic}")
        client = reader.optional("client", hint="a name that no other client has")
        expires = min(reader.read_integer("expires", _WEEK), _LONGEST)
        self._most = reader.read_integer("most", 500)
        self._wait = reader.seconds("wait", 0.02)
        reader.done()
        client = client or "ensue-" + hashlib.sha256(topic.encode()).hexdigest()[:16]
        self._options = SessionOptions(client, expires, at_a_time=2 * self._most)
        self._connected_before = False
        self._short = 0

    def __repr__(self) -> str:
        return f"MqttSource({self._access.shown}, {self._topic!r})"

    async def _read(self, service: EventReceiver) -> None:
        arrivals: asyncio.Queue[MqttMessage] = asyncio.Queue()

        def enqueue(message: MqttMessage) -> None:
            if message.qos == 0 and arrivals.qsize() >= _OVERFLOW:
                self.progress.count_dropped("missed", "messages of QoS 0 arrive faster than they can be processed")
            else:
                arrivals.put_nowait(message)

        session = await MqttSession(self._access, self._options, enqueue).open()
        opened = time.monotonic()
        try:
            if self._connected_before and not session.resumed:
                self.progress.count_dropped(
                    "sessions_lost", "the MQTT broker has dropped the session: messages since then are lost"
                )
            self._connected_before = True
            await session.subscribe(self._topic)
            self.progress.clear_problem()
            while True:
                batch = await self._receive(arrivals, session)
                for producer, group in groupby(batch, _producer):
                    received = list(group)
                    messages = [Message(each.payload, _number(each) if producer else None) for each in received]
                    await self._publish(messages, service, producer)
                    for message in received:
                        session.confirm(message)
        except MqttSessionError as error:
            lost = session.lost.done()  # the connection, not only a request
            await self._raise_interrupted(error, short=lost and time.monotonic() - opened < _SHORT)
        finally:
            await session.close()

    async def _raise_interrupted(self, error: MqttSessionError, *, short: bool) -> NoReturn:
        """Re-raises; two clients of one name would take the session from each other forever."""
        self._short = self._short + 1 if short else 0
        if not error.taken_over and self._short < _OFTEN:
            raise error
        name = self._options.client
        guess = "" if error.taken_over else f": maybe another client has the name '{name}'"
        self.progress.report_problem(f"{error}{guess}\n  hint: give each its own client=")
        await asyncio.sleep(_OTHER)
        raise MqttSessionError(self.progress.trouble or str(error))

    async def _receive(self, arrivals: "asyncio.Queue[MqttMessage]", session: MqttSession) -> list[MqttMessage]:
        """Waits for messages: a full batch, or those that arrive within the wait time."""
        first = asyncio.ensure_future(arrivals.get())
        try:
            await asyncio.wait((first, session.lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not first.done():
                first.cancel()
        if session.lost.done():
            raise session.lost.result()  # unacknowledged messages are sent again
        batch = [first.result()]
        end = time.monotonic() + self._wait
        while len(batch) < self._most:
            while len(batch) < self._most and not arrivals.empty():
                batch.append(arrivals.get_nowait())
            await asyncio.sleep(self._wait / 10)
            # some brokers send more only after acknowledgements
            if arrivals.empty() or time.monotonic() >= end:
                break
        return batch


def _producer(message: MqttMessage) -> str | None:
    """The producer of a numbered message, with a prefix that is unique among sources."""
    name = message.properties.get("producer")
    return f"mqtt:{name}" if name and _number(message) is not None else None


def _number(message: MqttMessage) -> int | None:
    text = message.properties.get("sequence", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
