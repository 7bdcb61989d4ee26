"""Brokers that tests share, a service that writes down what sources publish, and patience."""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from brokers import kafka, mosquitto, nats
from ensue.errors import EventError
from ensue.service.delivery.sink import DeliveryError, Sink
from ensue.service.intake import ARROW
from ensue.service.sources.source import EventSource
from ensue.service.store.outbox import Notification

PATIENCE = 60.0  # seconds before a test that waits for something has failed

needs_mosquitto = pytest.mark.skipif(mosquitto.missing() is not None, reason=mosquitto.missing() or "")
needs_nats = pytest.mark.skipif(nats.missing() is not None, reason=nats.missing() or "")


# ----------------------------------------------------------------------------------- waiting


async def until(holds: Callable[[], Any], what: str = "it") -> None:
    """Waits until something holds; a test in which it never does has failed."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"{what} never came to be"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def reading(source: EventSource, service: "Recorder") -> AsyncIterator[EventSource]:
    """A source that reads meanwhile, and then ends as in a crash: it is not asked to finish."""
    task = asyncio.create_task(source.run(service))
    try:
        yield source
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# ------------------------------------------------------------------------------------ notes


def notes(count: int, first: int = 1) -> list[Notification]:
    """A start, and matches behind it."""
    return [
        Notification(n, 7, 3, "started", None, 0.0, b'{"kind":"started","n":%d}' % n)
        if n == 1
        else Notification(n, 7, 3, "match", f"m{n}", 0.0, b'{"kind":"match","n":%d}' % n)
        for n in range(first, first + count)
    ]


async def delivered(sink: Sink, some: Sequence[Notification]) -> int:
    """Sends notes in order, again from where it failed, as a courier does; how often it failed."""
    at, failures = 0, 0
    while at < len(some):
        piece = some[at : at + 50]
        try:
            await sink.send(piece)
        except DeliveryError as undelivered:
            failure = undelivered
        else:
            at += len(piece)
            continue
        assert failure.why
        assert 0 <= failure.sent < len(piece)
        at += failure.sent
        failures += 1
        await asyncio.sleep(0.05)
    return failures


# ---------------------------------------------------------------------------------- service


class Recorder:
    """Takes events as a service does: repeats are dropped by producer and number."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.bad: list[str] = []
        self.put_asides: list[tuple[bytes, str, str | None]] = []
        self.positions: dict[str, int] = {}
        self.calls = 0
        self.at_once = 0
        self.repeated = 0
        self.refusals: list[Exception] = []  # raised by the next calls
        self.open = asyncio.Event()  # while it is not set, publish does not return
        self.open.set()
        self._now = 0

    async def publish(
        self,
        events: bytes,
        *,
        media: str | None = None,
        producer: str | None = None,
        sequences: Sequence[int] | None = None,
    ) -> object:
        self.calls += 1
        self._now += 1
        self.at_once = max(self.at_once, self._now)
        try:
            await self.open.wait()
            if self.refusals:
                raise self.refusals.pop(0)
            read = _table(events) if media == ARROW else _lines(events)
            assert (producer is None) == (sequences is None)
            if producer is not None and sequences is not None:
                assert len(sequences) == len(read)
                expected = self.positions.get(producer, 0)
                new = [e for e, n in zip(read, sequences, strict=True) if n >= expected]
                self.repeated += len(read) - len(new)
                self.positions[producer] = max(expected, max(sequences) + 1)
                read = new
            self.bad += [e for e in read if isinstance(e, str)]
            self.events += [e for e in read if not isinstance(e, str)]
        finally:
            self._now -= 1
        return None

    async def put_aside(self, payload: bytes, reason: str, *, producer: str | None = None) -> None:
        self.put_asides.append((payload, reason, producer))

    async def position(self, producer: str) -> int | None:
        return self.positions.get(producer)

    @property
    def ids(self) -> list[int]:
        return [event["id"] for event in self.events]


def _lines(body: bytes) -> list[Any]:
    found: list[Any] = []
    for line in body.split(b"\n"):
        assert line.strip(), "a source sends no empty lines"
        try:
            read = json.loads(line)
        except ValueError:
            read = None
        found.append(read if isinstance(read, dict) else line.decode(errors="replace"))
    return found


def _table(body: bytes) -> list[Any]:
    try:
        with pa.ipc.open_stream(body) as reader:
            return reader.read_all().to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise EventError(f"the events are not an Arrow stream: {error}") from None


def event(number: int) -> bytes:
    """An event in JSON."""
    return json.dumps({"id": number, "type": "truck"}).encode()


def arrow(numbers: Sequence[int]) -> bytes:
    """Events as an Arrow stream."""
    table = pa.table({"id": list(numbers)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


# ------------------------------------------------------------------------------------ Kafka


@cache
def kafka_broker() -> kafka.Broker:
    """The one broker of a test run; it ends with the process."""
    reason = kafka.missing()
    if reason is not None:
        pytest.skip(reason)
    return kafka.Broker().__enter__()


class KafkaRestart:
    """A broker that is killed, and comes back on its port with its data."""

    def __init__(self, broker: kafka.Broker) -> None:
        self._broker = broker

    def kill(self) -> None:
        process = self._broker._process
        assert process is not None
        self._command = process.args
        process.kill()
        process.wait()

    def start(self) -> None:
        folder = self._broker._folder
        assert folder is not None
        with (folder / "log").open("ab") as said:
            self._broker._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        end = time.monotonic() + PATIENCE
        while not kafka._answers(self._broker.port):
            assert time.monotonic() < end, "Kafka does not come back"
            time.sleep(0.05)
