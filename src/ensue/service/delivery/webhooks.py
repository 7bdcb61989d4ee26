"""Webhooks: one signed request a note, to public addresses, by the Standard Webhooks scheme."""

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import httpcore
import httpx

from ensue.errors import ServiceError, did_you_mean
from ensue.service.delivery.addresses import (
    Guard,
    Place,
    RefusedDelivery,
    RefusedError,
    place_of,
)
from ensue.service.delivery.connections import Connections, Keeping
from ensue.service.delivery.contract import Undelivered
from ensue.service.delivery.signing import ID, SIGNATURE, TIMESTAMP, Secret, from_stored
from ensue.service.delivery.signing import signed_headers as signed
from ensue.service.delivery.turns import Shares, Turns
from ensue.service.notes import Note

_KEYS = ("url", "headers", "secrets")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_OWN = {  # headers that say how the request travels, or who sent it
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    ID,
    TIMESTAMP,
    SIGNATURE,
}


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """How much of anything webhooks may take."""

    connect_seconds: float = 5.0
    seconds: float = 15.0  # from the request to the end of the answer
    answer_bytes: int = 16 << 10  # that are read of an answer
    at_once: int = 64  # requests in all
    at_once_per_target: int = 8
    idle_seconds: float = 30.0  # that a connection is kept for the next request
    connection_seconds: float = 300.0  # that one is used; then the name is looked up again
    headers: int = 20
    url_length: int = 2_000


class Webhooks:
    """All webhooks of a service: they share connections, and what may go at a time."""

    def __init__(
        self,
        guard: Guard | None = None,
        limits: WebhookLimits | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.guard = guard or Guard()
        self.limits = limits or WebhookLimits()
        self.clock = clock
        self._slots = _Slots(Shares.of(self.limits.at_once))
        keeping = Keeping(
            self.limits.connect_seconds,
            self.limits.seconds,
            self.limits.idle_seconds,
            self.limits.connection_seconds,
            self.limits.at_once,
        )
        tls = tls or httpx.create_ssl_context()
        self._connections = Connections(self.guard, tls, keeping)

    def make(self, config: Mapping[str, Any]) -> "Webhook":
        """The webhook that a configuration describes: `url`, and `headers` to be sent with it."""
        for key in config:
            if key not in _KEYS:
                hint = did_you_mean(key, _KEYS[:2])
                raise ServiceError(f"a webhook has no '{key}'\n  hint: {hint}")
        url = config.get("url")
        if not isinstance(url, str) or not 0 < len(url) <= self.limits.url_length:
            raise ServiceError(
                "a webhook needs a url\n"
                f"  hint: https://example.org/path, at most {self.limits.url_length} characters"
            )
        secrets = from_stored(config.get("secrets", ()))
        if not secrets:
            raise ServiceError(
                "the webhook has no secret, and nothing is sent unsigned\n"
                "  hint: give it a new one by rotating its secret"
            )
        headers = _headers(config.get("headers", {}), self.limits.headers)
        return Webhook(self, place_of(url), headers, secrets)

    async def check(self, config: Mapping[str, Any]) -> None:
        """Refuses a configuration that cannot work, before the first note shows it."""
        webhook = self.make(config)
        try:
            async with asyncio.timeout(self.limits.connect_seconds):
                await self.guard.addresses(webhook.place.host, webhook.place.port)
        except TimeoutError:
            raise ServiceError(f"looking up {webhook.place.host} took too long") from None
        except OSError as error:
            raise ServiceError(f"{error}\n  hint: check how the host is written") from None

    async def close(self) -> None:
        """Closes all connections."""
        await self._connections.close()
        self.guard.close()

    async def post(
        self,
        note: Note,
        place: Place,
        headers: Iterable[tuple[str, str]],
        secrets: Sequence[Secret],
    ) -> None:
        """Sends one note; Undelivered unless the receiver has taken it."""
        async with self._slots.one(note.user, place.origin):
            sent = signed(note, self.clock(), secrets)
            if not sent[SIGNATURE]:
                raise Undelivered("the webhook has no secret in force: rotate its secret")
            answer = await self._answer(note.body, place, [*headers, *sent.items()])
        _judge(answer, self.clock())

    async def _answer(
        self, body: bytes, place: Place, headers: Iterable[tuple[str, str]]
    ) -> httpcore.Response:
        limits = self.limits
        sent = [
            ("host", place.authority),
            ("user-agent", "ensue-webhooks"),
            ("accept", "*/*"),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            *headers,
        ]
        answer: httpcore.Response | None = None
        try:
            async with (
                asyncio.timeout(limits.seconds),
                self._connections.posted(place, sent, body) as answer,
            ):
                await self._rest_of(answer)
        except RefusedError as error:
            raise RefusedDelivery(str(error)) from None
        except (TimeoutError, httpcore.TimeoutException) as error:
            if answer is None:
                raise Undelivered(_late(error, place, limits)) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            if answer is None:
                raise Undelivered(_broken(error, place)) from None
        # Once the status is here the receiver has decided, whatever becomes of the rest.
        assert answer is not None
        return answer

    async def _rest_of(self, answer: httpcore.Response) -> None:
        """Reads a short answer, so that the connection can be used again; drops a long one."""
        size = 0
        async for piece in answer.aiter_stream():
            size += len(piece)
            if size > self.limits.answer_bytes:
                return


class Webhook:
    """The sink of one target. Each note is a request of its own."""

    def __init__(
        self,
        webhooks: Webhooks,
        place: Place,
        headers: tuple[tuple[str, str], ...],
        secrets: tuple[Secret, ...],
    ) -> None:
        self.place = place
        self.at_once = webhooks.limits.at_once_per_target
        self._webhooks = webhooks
        self._headers = headers
        self._secrets = secrets

    async def send(self, notes: Sequence[Note]) -> None:
        """Sends notes one after the other."""
        for sent, note in enumerate(notes):
            try:
                await self._webhooks.post(note, self.place, self._headers, self._secrets)
            except Undelivered as error:
                error.sent = sent
                raise

    async def close(self) -> None:
        """Nothing to let go of: connections are those of all webhooks."""


# ------------------------------------------------------------------------------- turns


class _Slots:
    """Lets so many requests go at a time, users and receivers by turns."""

    def __init__(self, shares: Shares) -> None:
        self._turns: Turns[asyncio.Future[None]] = Turns(shares)

    @asynccontextmanager
    async def one(self, user: int, place: str) -> AsyncIterator[None]:
        """Holds a slot."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.add(user, place, turn)
        self._call()
        try:
            await turn
            yield
        finally:
            # Given up while in line: its turn comes all the same, and is passed on then.
            if turn.done() and not turn.cancelled():
                self._back(user, place)

    def _back(self, user: int, place: str) -> None:
        self._turns.done(user, place)
        self._call()

    def _call(self) -> None:
        while (taken := self._turns.take()) is not None:
            user, place, turn = taken
            if turn.cancelled():
                self._turns.done(user, place)
            else:
                turn.set_result(None)


# ------------------------------------------------------------------------------- words


def _headers(found: object, most: int) -> tuple[tuple[str, str], ...]:
    if not isinstance(found, Mapping) or len(found) > most:
        raise ServiceError(
            f"the headers of a webhook are names with texts, at most {most}\n"
            '  hint: {"authorization": "..."}'
        )
    for name, value in found.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ServiceError(f"{name!r} is not a header name")
        if name.lower() in _OWN:
            raise ServiceError(f"the header '{name}' is set by the service\n  hint: leave it out")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ServiceError(
                f"the header '{name}' has a value that cannot be sent\n"
                "  hint: one line of letters, digits and signs of ASCII"
            )
    return tuple((name.lower(), value) for name, value in found.items())


def _judge(answer: httpcore.Response, now: float) -> None:
    """Whether the receiver has taken the note."""
    status = answer.status
    if 200 <= status < 300:
        return
    try:
        said = f"the receiver answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        said = f"the receiver answered {status}"
    if 300 <= status < 400:
        raise Undelivered(f"{said}; redirects are not followed\n  hint: give the final URL")
    if status == HTTPStatus.GONE:
        raise Undelivered(f"{said}: it wants no more notes", gone=True)
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        asked = _retry_after(answer, now)
        if asked is None and status == HTTPStatus.TOO_MANY_REQUESTS:
            asked = 0.0  # it is there and has had enough: no other note may try its luck
        raise Undelivered(said, retry_after=asked)
    raise Undelivered(said)


def _retry_after(answer: httpcore.Response, now: float) -> float | None:
    """Seconds that the receiver asks to wait, if it does."""
    for name, value in answer.headers:
        if name.lower() == b"retry-after":
            text = value.decode("latin-1").strip()
            if text.isascii() and text.isdigit():
                return float(text[:12])
            try:
                return max(0.0, parsedate_to_datetime(text).timestamp() - now)
            except (ValueError, OverflowError):
                return None
    return None


def _late(error: Exception, place: Place, limits: WebhookLimits) -> str:
    if isinstance(error, httpcore.ConnectTimeout):
        return f"no connection to {place.origin} within {limits.connect_seconds:g} seconds"
    return f"no answer from {place.origin} within {limits.seconds:g} seconds"


def _broken(error: Exception, place: Place) -> str:
    if isinstance(error, httpcore.ConnectError):
        return f"no connection to {place.origin}: {str(error) or 'refused'}"
    return f"{place.origin} broke off before it answered: {str(error) or type(error).__name__}"
