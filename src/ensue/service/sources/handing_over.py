"""Handing messages to the service: in pieces, again while it takes none, never twice at a time."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence

from ensue.errors import EventError, ServiceError
from ensue.service.refusals import OverLimitError
from ensue.service.sources.contract import Progress, Taker
from ensue.service.sources.payloads import Message, Piece, piece_of, pieces_of

_log = logging.getLogger(__name__)

_LEAST, _MOST = 0.1, 15.0  # seconds between tries
_SIZES = ("events_per_request", "body_bytes")  # limits that a smaller piece keeps


def pauses(most: float = _MOST) -> Iterator[float]:
    """Seconds to wait before the next try: growing, and not the same for everybody."""
    pause = _LEAST
    while True:
        yield pause * random.uniform(0.75, 1.25)
        pause = min(2 * pause, most)


async def keep_reading(
    read: Callable[[], Awaitable[None]],
    progress: Progress,
    words: Callable[[Exception], str | None],
) -> None:
    """Reads again whenever it was interrupted; a ServiceError is what no try will mend."""
    waits = pauses()
    me = asyncio.current_task()
    while True:
        before = progress.counts["messages"]
        try:
            await read()
        except ServiceError as error:
            progress.hindered(str(error))
            raise
        except asyncio.CancelledError:
            if me is None or me.cancelling():
                raise
            progress.hindered("the client gave up: it tries again")  # nobody cancelled us
            progress.count("interruptions")
        except Exception as error:  # noqa: BLE001 - one bad hour must not end a source
            why = words(error)
            if why is None:
                _log.exception("a source failed")
                progress.count("failures")
            progress.hindered(why or f"{type(error).__name__}: it tries again")
            progress.count("interruptions")
        if progress.counts["messages"] > before:
            waits = pauses()
        await asyncio.sleep(next(waits))


async def hand_over(
    messages: Sequence[Message], service: Taker, producer: str | None, progress: Progress
) -> None:
    """Returns when the service has all messages, or has put aside what it cannot read."""
    for piece in pieces_of(messages if producer is None else _once(messages, progress)):
        await _hand_over(piece, service, producer, progress)


def _once(messages: Sequence[Message], progress: Progress) -> Iterator[Message]:
    """Messages without those whose number has come before.

    To the service, events of the same number that come together are those of one message.
    """
    last: int | None = None
    for message in messages:
        if last is not None and message.number is not None and message.number <= last:
            progress.count("repeated")
            continue
        last = message.number
        yield message


async def kept(
    body: bytes,
    media: str,
    service: Taker,
    progress: Progress,
    *,
    producer: str | None,
    sequences: Sequence[int] | None,
) -> None:
    """Returns when the service has events; what it will never take is an EventError or an
    OverLimitError of their number or size."""
    for pause in pauses():
        try:
            await service.publish(body, media=media, producer=producer, sequences=sequences)
        except OverLimitError as error:
            if error.limit in _SIZES:
                raise
            progress.hindered(str(error))
        except ServiceError as error:  # no room on the disk, say: nothing is lost, it waits
            progress.hindered(str(error))
        else:
            progress.well()
            progress.count("publishes")
            return
        await asyncio.sleep(pause)


async def _hand_over(
    piece: Piece, service: Taker, producer: str | None, progress: Progress
) -> None:
    if piece.body:  # there are lists without events
        by = producer if piece.sequences is not None else None
        try:
            await kept(
                piece.body, piece.media, service, progress, producer=by, sequences=piece.sequences
            )
        except (EventError, OverLimitError) as error:
            await _one_by_one(piece, service, producer, progress, error)
            return
    progress.count("messages", len(piece.messages))


async def _one_by_one(
    piece: Piece, service: Taker, producer: str | None, progress: Progress, error: Exception
) -> None:
    """Halves of a piece that was refused as a whole; a single message is put aside."""
    if len(piece.messages) == 1:
        number = piece.messages[0].number
        where = f"message {number}: " if number is not None else ""
        progress.put_aside(f"{where}{error}")
        payload = piece.messages[0].payload
        await service.put_aside(payload, f"{where}{error}", producer=producer)
        return
    middle = len(piece.messages) // 2
    for half in (piece.messages[:middle], piece.messages[middle:]):
        await _hand_over(piece_of(half), service, producer, progress)
