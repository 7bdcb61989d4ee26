"""Broker messages as JSON lines or an Arrow stream."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ensue.errors import EventError
from ensue.service.arrow_streams import measure_stream
from ensue.service.intake import ARROW, JSON_LINES

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
