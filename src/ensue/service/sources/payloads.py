"""Messages of brokers as bytes that a service reads: JSON lines or an Arrow stream."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ensue.errors import EventError
from ensue.service.arrow_streams import stream_size
from ensue.service.intake import ARROW, JSON_LINES

MOST_BYTES = 1 << 20  # of messages that are joined
MOST_ROWS = 10_000_000  # of a message in Arrow
_ARROW_STREAM = b"\xff\xff\xff\xff"  # no JSON begins so
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Message:
    """What a broker delivered, and its number there if it has one."""

    payload: bytes
    number: int | None = None

    @property
    def is_arrow(self) -> bool:
        return self.payload.startswith(_ARROW_STREAM)


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages that are handed over together. Events of one message share its number."""

    messages: tuple[Message, ...]
    body: bytes
    media: str
    sequences: tuple[int, ...] | None


def pieces_of(messages: Iterable[Message], most_bytes: int = MOST_BYTES) -> Iterator[Piece]:
    """Messages in as few pieces as may be, in their order; empty ones are left out."""
    joined: list[Message] = []
    size = 0
    for message in messages:
        if not message.payload.strip():
            continue
        if joined and (message.is_arrow or size + len(message.payload) > most_bytes):
            yield piece_of(joined)
            joined, size = [], 0
        if message.is_arrow:
            yield piece_of([message])
        else:
            joined.append(message)
            size += len(message.payload)
    if joined:
        yield piece_of(joined)


def piece_of(messages: Sequence[Message]) -> Piece:
    """One piece of several messages in JSON, or of one in Arrow."""
    body: bytes
    if messages[0].is_arrow:
        body, media = messages[0].payload, ARROW
        numbers = [messages[0].number] * _rows(body)
    else:
        read = [(message.number, lines_of(message.payload)) for message in messages]
        body, media = b"\n".join(line for _, lines in read for line in lines), JSON_LINES
        numbers = [number for number, lines in read for _ in lines]
    sequences = tuple(number for number in numbers if number is not None)
    return Piece(tuple(messages), body, media, sequences or None)


def lines_of(payload: bytes) -> list[bytes]:
    """A line for each event of a message: an object, a list of objects, or lines of them.

    What cannot be read is one line as it is: the service says what is wrong with it.

    >>> lines_of(b'[{"id": 1},\\n {"id": 2}]')
    [b'{"id": 1}', b'{"id": 2}']
    """
    payload = payload.strip()
    if not payload.startswith(b"[") and b"\n" not in payload and b"\r" not in payload:
        return [payload]
    try:
        return [_line(text.encode()) for text in _events(payload.decode())]
    except ValueError:  # no JSON, or no UTF-8
        lines = [line.strip() for line in payload.splitlines() if line.strip()]
        return lines if _is_object(lines[0]) else [_line(payload)]


def _is_object(line: bytes) -> bool:
    """Whether a line is an event by itself, so that a bad one behind it stands alone, too."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _events(text: str) -> Iterator[str]:
    """The texts of the events, as they are written: numbers keep their digits."""
    at = 0
    while at < len(text):
        if text[at] == "[":
            at = _blank(text, at + 1)
            while text[at : at + 1] != "]":
                _, end = _DECODER.raw_decode(text, at)
                yield text[at:end]
                at = _blank(text, end)
                if text[at : at + 1] == ",":
                    at = _blank(text, at + 1)
                    if text[at : at + 1] == "]":
                        raise ValueError("a comma before the end of a list")
                elif text[at : at + 1] != "]":
                    raise ValueError("a list that does not end")
            at = _blank(text, at + 1)
        else:
            _, end = _DECODER.raw_decode(text, at)
            yield text[at:end]
            at = _blank(text, end)


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _line(text: bytes) -> bytes:
    # within JSON line breaks are white space, as strings have them escaped
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


def _rows(body: bytes) -> int:
    try:
        rows = stream_size(body).rows
    except EventError:
        return 1  # the service says what is wrong with it
    return rows if 0 <= rows <= MOST_ROWS else 1  # so it does if they are too many
