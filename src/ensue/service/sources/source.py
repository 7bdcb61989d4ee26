"""Sources of events: their interface, their messages, and the base class of sources that retry."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from ensue.errors import EventError, ServiceError
from ensue.service.brokers import UnavailableError
from ensue.service.delivery.retry_queue import SOURCE_BACKOFF
from ensue.service.errors import OverLimitError
from ensue.service.intake import ARROW, JSON_LINES, measure_stream

if TYPE_CHECKING:
    from ensue.service.service import Service

MAX_BYTES = 1 << 20  # of messages in a batch
MAX_ROWS = 10_000_000  # of an Arrow message
_ARROW_STREAM = b"\xff\xff\xff\xff"  # JSON cannot begin with it
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a broker, with its number if it has one."""

    payload: bytes
    number: int | None = None

    @property
    def is_arrow(self) -> bool:
        return self.payload.startswith(_ARROW_STREAM)


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages that are published together; events of one message share its number."""

    messages: tuple[Message, ...]
    body: bytes
    media: str
    sequences: tuple[int, ...] | None


def batch_messages(messages: Iterable[Message], most_bytes: int = MAX_BYTES) -> Iterator[MessageBatch]:
    """Groups messages into batches, in order; empty ones are skipped."""
    joined: list[Message] = []
    size = 0
    for message in messages:
        if not message.payload.strip():
            continue
        if joined and (message.is_arrow or size + len(message.payload) > most_bytes):
            yield build_batch(joined)
            joined, size = [], 0
        if message.is_arrow:
            yield build_batch([message])
        else:
            joined.append(message)
            size += len(message.payload)
    if joined:
        yield build_batch(joined)


def build_batch(messages: Sequence[Message]) -> MessageBatch:
    """Builds a batch of several JSON messages, or of one Arrow message."""
    body: bytes
    if messages[0].is_arrow:
        body, media = messages[0].payload, ARROW
        numbers = [messages[0].number] * _rows(body)
    else:
        parsed = [(message.number, split_events(message.payload)) for message in messages]
        body, media = b"\n".join(line for _, lines in parsed for line in lines), JSON_LINES
        numbers = [number for number, lines in parsed for _ in lines]
    sequences = tuple(number for number in numbers if number is not None)
    return MessageBatch(tuple(messages), body, media, sequences or None)


def split_events(payload: bytes) -> list[bytes]:
    """Splits a message into a line per event: an object, a list of objects, or lines.

    An unreadable message stays one line: the service reports what is wrong.

    >>> split_events(b'[{"id": 1},\\n {"id": 2}]')
    [b'{"id": 1}', b'{"id": 2}']
    """
    payload = payload.strip()
    if not payload.startswith(b"[") and b"\n" not in payload and b"\r" not in payload:
        return [payload]
    try:
        return [_join_lines(text.encode()) for text in _split_events(payload.decode())]
    except ValueError:  # not JSON, or not UTF-8
        lines = [line.strip() for line in payload.splitlines() if line.strip()]
        return lines if _is_object(lines[0]) else [_join_lines(payload)]


def _is_object(line: bytes) -> bool:
    """Whether a line is a complete event, so that later bad lines are rejected separately."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _split_events(text: str) -> Iterator[str]:
    """Yields the texts of the events unchanged, so that numbers keep their digits."""
    at = 0
    while at < len(text):
        if text[at] == "[":
            at = _skip_blanks(text, at + 1)
            while text[at : at + 1] != "]":
                _, end = _DECODER.raw_decode(text, at)
                yield text[at:end]
                at = _skip_blanks(text, end)
                if text[at : at + 1] == ",":
                    at = _skip_blanks(text, at + 1)
                    if text[at : at + 1] == "]":
                        raise ValueError("a comma before the end of a list")
                elif text[at : at + 1] != "]":
                    raise ValueError("an unterminated list")
            at = _skip_blanks(text, at + 1)
        else:
            _, end = _DECODER.raw_decode(text, at)
            yield text[at:end]
            at = _skip_blanks(text, end)


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _join_lines(text: bytes) -> bytes:
    # line breaks within JSON are white space, since strings escape them
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


def _rows(body: bytes) -> int:
    try:
        rows, _ = measure_stream(body)
    except EventError:
        return 1  # the service reports the error
    return rows if 0 <= rows <= MAX_ROWS else 1  # the service rejects too many rows


_log = logging.getLogger("ensue.service.sources")
_SIZES = ("events_per_request", "body_bytes")  # limits that a smaller batch meets


class SourceProgress:
    """Counters of a source, and its current problem.

    `counts` has `messages` (or rows of files), `publishes`, `bad` (messages and files that were
    rejected), `left_out` (files of other kinds), `missed` (deleted before they were read),
    `repeated` (duplicates within one batch) and `interruptions`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.counts: Counter[str] = Counter()
        self.trouble: str | None = None

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] += by

    def clear_problem(self) -> None:
        if self.trouble is not None:
            _log.info("%s: continues", self._name)
        self.trouble = None

    def report_problem(self, why: str) -> None:
        if why != self.trouble:
            _log.warning("%s: %s", self._name, why)
        self.trouble = why

    def count_dropped(self, what: str, why: str, by: int = 1, level: int = logging.WARNING) -> None:
        """Records messages or files that were not read, as `bad`, `left_out` or `missed`."""
        _log.log(level, "%s: %s", self._name, why)
        self.counts[what] += by


class EventSource:
    """A source of events, which reconnects after interruptions; `run` reads until it is cancelled."""

    def __init__(self, name: str) -> None:
        self.name = name  # as in 'kafka:trucks'; the names of its producers begin with it
        self.progress = SourceProgress(name)

    async def run(self, service: "Service") -> None:
        """Reads again after interruptions; a ServiceError is permanent."""
        self._service = service
        progress = self.progress
        failures = 0
        task = asyncio.current_task()
        while True:
            before = progress.counts["messages"]
            try:
                await self._read()
            except ServiceError as error:
                progress.report_problem(str(error))
                raise
            except asyncio.CancelledError:
                if task is None or task.cancelling():
                    raise
                progress.report_problem("the client gave up: retrying")  # our task was not cancelled
                progress.count("interruptions")
            except UnavailableError as error:
                progress.report_problem(str(error))
                progress.count("interruptions")
            except Exception as error:  # noqa: BLE001 - a temporary failure must not end a source
                _log.exception("a source failed")
                progress.count("failures")
                progress.report_problem(f"{type(error).__name__}: retrying")
                progress.count("interruptions")
            if progress.counts["messages"] > before:
                failures = 0
            failures += 1
            await asyncio.sleep(SOURCE_BACKOFF.after(failures))

    async def _read(self) -> None:
        """Reads until an error."""
        raise NotImplementedError

    def _resume_at(self, where: str, position: int | None, first: int, end: int) -> int:
        """Returns the number of the message to continue at, given those that the broker has."""
        if position is None:
            return first
        if position > end:
            raise ServiceError(
                f"{where} ends at {end}, but was read up to {position}: it seems to be another "
                f"one with the same name\n  hint: use another name, such as name={self.name}-2"
            )
        if position < first:
            missed = first - position
            why = f"up to {missed} messages of {where} were deleted before they were read"
            self.progress.count_dropped("missed", f"{why}: continuing at {first}", missed)
        return max(first, position)

    async def _publish(self, messages: Iterable[Message], producer: str | None) -> None:
        """Returns when the service has accepted or rejected all messages."""
        numbered = messages if producer is None else self._drop_repeated(messages)
        for batch in batch_messages(numbered):
            await self._publish_or_split(batch, producer)

    def _drop_repeated(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Drops messages with repeated numbers.

        To the service, consecutive events with the same number belong to one message.
        """
        last: int | None = None
        for message in messages:
            if last is not None and message.number is not None and message.number <= last:
                self.progress.count("repeated")
                continue
            last = message.number
            yield message

    async def _publish_or_split(self, batch: MessageBatch, producer: str | None) -> None:
        """Publishes a batch, or its halves if it is rejected; a rejected message becomes a bad
        event."""
        try:
            if batch.body:  # it is empty for lists without events
                by = producer if batch.sequences is not None else None
                await self._publish_batch(batch.body, batch.media, by, batch.sequences)
        except (EventError, OverLimitError) as error:
            middle = len(batch.messages) // 2
            if middle:
                for half in (batch.messages[:middle], batch.messages[middle:]):
                    await self._publish_or_split(build_batch(half), producer)
                return
            (message,) = batch.messages
            where = f"message {message.number}: " if message.number is not None else ""
            self.progress.count_dropped("bad", f"rejected: {where}{error}")
            await self._service.put_aside(message.payload, f"{where}{error}", producer=producer)
        else:
            self.progress.count("messages", len(batch.messages))

    async def _publish_batch(
        self, body: bytes, media: str, producer: str | None, sequences: Sequence[int] | None
    ) -> None:
        """Returns when the service has accepted the events; permanent are an EventError and an
        OverLimitError about their number or size."""
        for attempt in count(1):
            try:
                await self._service.publish(body, media=media, producer=producer, sequences=sequences)
            except OverLimitError as error:
                if error.limit in _SIZES:
                    raise
                self.progress.report_problem(str(error))
            except ServiceError as error:  # for example a full disk: wait
                self.progress.report_problem(str(error))
            else:
                self.progress.clear_problem()
                self.progress.count("publishes")
                return
            await asyncio.sleep(SOURCE_BACKOFF.after(attempt))
