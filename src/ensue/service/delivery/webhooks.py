"""Webhooks: one signed request per notification, to public addresses, by Standard Webhooks."""

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

import httpcore2

from ensue.errors import ServiceError, did_you_mean
from ensue.service.delivery.addresses import (
    AddressGuard,
    AddressRefusedError,
    RefusedDeliveryError,
    WebhookUrl,
    parse_webhook_url,
)
from ensue.service.delivery.retry_queue import ConcurrencyShares, FairQueue
from ensue.service.delivery.sink import DeliveryError
from ensue.service.secrets import (
    ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    SigningSecret,
    decode_secrets,
    sign_request,
)
from ensue.service.store.outbox import Notification

_MOST_TRIED = 4  # addresses per host name


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """Resource limits of webhooks."""

    connect_seconds: float = 5.0
    seconds: float = 15.0  # from the request to the end of the response
    answer_bytes: int = 16 << 10  # read from a response
    at_once: int = 64  # concurrent requests, and unused connections
    at_once_per_target: int = 8
    idle_seconds: float = 30.0  # an unused connection stays open
    connection_seconds: float = 300.0  # maximum age, then the name is resolved again
    headers: int = 20
    url_length: int = 2_000


class WebhookConnections:
    """Connections by receiver; a free one serves the next request.

    The pool of httpcore2 polls every idle connection for each request, which dominates the cost of
    a request with many connections.
    """

    def __init__(self, guard: AddressGuard, tls: ssl.SSLContext, limits: WebhookLimits) -> None:
        self._network = _Pinned(guard)
        self._tls = tls
        self._limits = limits
        # Free connections with their origins, the longest unused first.
        self._unused: dict[httpcore2.AsyncHTTPConnection, str] = {}
        self._opened_at: dict[httpcore2.AsyncHTTPConnection, float] = {}

    def __len__(self) -> int:
        return len(self._opened_at)

    @asynccontextmanager
    async def post(
        self, receiver: WebhookUrl, headers: Sequence[tuple[str, str]], body: bytes
    ) -> AsyncIterator[httpcore2.Response]:
        """Sends a request and yields the response."""
        seconds = self._limits.seconds
        times = {"connect": self._limits.connect_seconds, "read": seconds, "write": seconds}
        url = httpcore2.URL(scheme=receiver.scheme, host=receiver.host, port=receiver.port, target=receiver.path)
        request = httpcore2.Request("POST", url, headers=headers, content=body, extensions={"timeout": times})
        connection = await self._acquire(receiver.origin) or self._open(url.origin)
        try:
            answer = await connection.handle_async_request(request)
            try:
                yield answer
            finally:
                await answer.aclose()
        finally:
            await self._release(receiver.origin, connection)

    async def close(self) -> None:
        """Closes the free connections; the others are closed after their requests."""
        for connection in list(self._unused):
            await self._close(connection)

    def _open(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection:
        connection = httpcore2.AsyncHTTPConnection(
            origin, ssl_context=self._tls, keepalive_expiry=self._limits.idle_seconds, network_backend=self._network
        )
        self._opened_at[connection] = asyncio.get_running_loop().time()
        return connection

    async def _acquire(self, origin: str) -> httpcore2.AsyncHTTPConnection | None:
        """Returns a usable free connection: the last used one, so that others expire."""
        while True:
            newest_first = reversed(self._unused.items())
            connection = next((free for free, its in newest_first if its == origin), None)
            if connection is None:
                return None
            del self._unused[connection]
            if self._is_usable(connection):
                return connection
            await self._close(connection)

    async def _release(self, origin: str, connection: httpcore2.AsyncHTTPConnection) -> None:
        if not connection.is_idle() or not self._is_usable(connection):
            await self._close(connection)
            return
        self._unused[connection] = origin
        while self._unused:
            oldest = next(iter(self._unused))
            if len(self._unused) <= self._limits.at_once and not oldest.has_expired():
                break
            await self._close(oldest)

    def _is_usable(self, connection: httpcore2.AsyncHTTPConnection) -> bool:
        age = asyncio.get_running_loop().time() - self._opened_at[connection]
        return age < self._limits.connection_seconds and not connection.has_expired()

    async def _close(self, connection: httpcore2.AsyncHTTPConnection) -> None:
        self._unused.pop(connection, None)
        self._opened_at.pop(connection, None)
        await connection.aclose()


class _Pinned(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that passed the guard; host names are resolved only here."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connects to the first address of the host that answers."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        try:
            async with asyncio.timeout_at(end):
                addresses = (await self._guard.addresses(host, port))[:_MOST_TRIED]
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"looking up {host} took too long") from None
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from None
        failure: Exception | None = None
        for tried, address in enumerate(addresses):
            # An unresponsive address must leave time for the next ones.
            share = None if end is None else (end - loop.time()) / (len(addresses) - tried)
            try:
                return await self._network.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError(f"{host} has no address")


_KEYS = ("url", "headers", "secrets")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_OWN = {  # headers that control the transfer or identify the sender
    "connection", "content-encoding", "content-length", "content-type", "expect", "host",
    "keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade",
    ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER,
}  # fmt: skip


class Webhooks:
    """All webhooks of a service, with shared connections and concurrency limits."""

    def __init__(
        self,
        guard: AddressGuard | None = None,
        limits: WebhookLimits | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.guard = guard or AddressGuard()
        self.limits = limits or WebhookLimits()
        self.clock = clock
        self._turns: FairQueue[asyncio.Future[None]] = FairQueue(ConcurrencyShares.from_total(self.limits.at_once))
        tls = tls or httpcore2.default_ssl_context()
        self._connections = WebhookConnections(self.guard, tls, self.limits)

    def make(self, config: Mapping[str, Any]) -> "Webhook":
        """Creates a webhook from a configuration with `url` and optional `headers`."""
        for key in config:
            if key not in _KEYS:
                hint = did_you_mean(key, _KEYS[:2])
                raise ServiceError(f"a webhook has no option '{key}'\n  hint: {hint}")
        url = config.get("url")
        if not isinstance(url, str) or not 0 < len(url) <= self.limits.url_length:
            raise ServiceError(
                f"a webhook needs a url\n  hint: https://example.org/path, at most {self.limits.url_length} characters"
            )
        secrets = decode_secrets(config.get("secrets", ()))
        if not secrets:
            raise ServiceError(
                "the webhook has no secret, and requests must be signed\n  hint: rotate its secret to create one"
            )
        headers = _headers(config.get("headers", {}), self.limits.headers)
        return Webhook(self, parse_webhook_url(url), headers, secrets)

    async def check(self, config: Mapping[str, Any]) -> None:
        """Rejects a configuration that cannot work, before the first delivery."""
        webhook = self.make(config)
        try:
            async with asyncio.timeout(self.limits.connect_seconds):
                await self.guard.addresses(webhook.place.host, webhook.place.port)
        except TimeoutError:
            raise ServiceError(f"resolving {webhook.place.host} took too long") from None
        except OSError as error:
            raise ServiceError(f"{error}\n  hint: check the spelling of the host") from None

    async def close(self) -> None:
        await self._connections.close()
        self.guard.close()

    @asynccontextmanager
    async def slot(self, user: int, origin: str) -> AsyncIterator[None]:
        """Waits for one of the concurrent requests, fairly by user and receiver, and holds it."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.add(user, origin, turn)
        self._call()
        try:
            await turn
            yield
        finally:
            # A cancelled waiter still gets its slot later, which is released then.
            if turn.done() and not turn.cancelled():
                self._turns.done(user, origin)
                self._call()

    def _call(self) -> None:
        while (taken := self._turns.take()) is not None:
            user, origin, turn = taken
            if turn.cancelled():
                self._turns.done(user, origin)
            else:
                turn.set_result(None)

    async def request(self, body: bytes, place: WebhookUrl, headers: Iterable[tuple[str, str]]) -> httpcore2.Response:
        """Sends a request; raises DeliveryError without an answer."""
        limits = self.limits
        sent_headers = [
            ("host", place.origin.partition("://")[2]),
            ("user-agent", "ensue-webhooks"),
            ("accept", "*/*"),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            *headers,
        ]
        answer: httpcore2.Response | None = None
        try:
            async with asyncio.timeout(limits.seconds), self._connections.post(place, sent_headers, body) as answer:
                await self._drain(answer)
        except AddressRefusedError as error:
            raise RefusedDeliveryError(str(error)) from None
        except (TimeoutError, httpcore2.TimeoutException) as error:
            if answer is None:
                what, seconds = "answer from", limits.seconds
                if isinstance(error, httpcore2.ConnectTimeout):
                    what, seconds = "connection to", limits.connect_seconds
                raise DeliveryError(f"no {what} {place.origin} within {seconds:g} seconds") from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
            if answer is None:
                why = f"{place.origin} closed the connection: {str(error) or type(error).__name__}"
                if isinstance(error, httpcore2.ConnectError):
                    why = f"no connection to {place.origin}: {str(error) or 'refused'}"
                raise DeliveryError(why) from None
        # With the status the receiver has decided, even if the rest of the response fails.
        assert answer is not None
        return answer

    async def _drain(self, answer: httpcore2.Response) -> None:
        """Reads a short response, so that the connection can be reused; drops a long one."""
        size = 0
        async for piece in answer.aiter_stream():
            size += len(piece)
            if size > self.limits.answer_bytes:
                return


class Webhook:
    """The sink of one target; each notification is one request."""

    def __init__(
        self,
        webhooks: Webhooks,
        place: WebhookUrl,
        headers: tuple[tuple[str, str], ...],
        secrets: tuple[SigningSecret, ...],
    ) -> None:
        self.place = place
        self.at_once = webhooks.limits.at_once_per_target
        self._webhooks = webhooks
        self._headers = headers
        self._secrets = secrets

    async def send(self, notifications: Sequence[Notification]) -> None:
        for sent, notification in enumerate(notifications):
            try:
                await self._post(notification)
            except DeliveryError as error:
                error.sent = sent
                raise

    async def _post(self, notification: Notification) -> None:
        webhooks, clock = self._webhooks, self._webhooks.clock
        async with webhooks.slot(notification.user, self.place.origin):
            signature = sign_request(notification, clock(), self._secrets)
            if not signature[SIGNATURE_HEADER]:
                raise DeliveryError("the webhook has no valid secret: rotate its secret")
            answer = await webhooks.request(notification.body, self.place, [*self._headers, *signature.items()])
        _check_status(answer, clock())

    async def close(self) -> None:
        """Does nothing: the connections belong to all webhooks."""


def _headers(headers: object, most: int) -> tuple[tuple[str, str], ...]:
    if not isinstance(headers, Mapping) or len(headers) > most:
        raise ServiceError(
            f'the headers of a webhook map names to strings, at most {most}\n  hint: {{"authorization": "..."}}'
        )
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ServiceError(f"{name!r} is not a header name")
        if name.lower() in _OWN:
            raise ServiceError(f"the header '{name}' is set by the service\n  hint: remove it")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ServiceError(
                f"the header '{name}' has an invalid value\n  hint: one line of printable ASCII characters"
            )
    return tuple((name.lower(), value) for name, value in headers.items())


def _check_status(answer: httpcore2.Response, now: float) -> None:
    """Raises DeliveryError unless the receiver accepted the notification."""
    status = answer.status
    if 200 <= status < 300:
        return
    try:
        message = f"the receiver answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        message = f"the receiver answered {status}"
    if 300 <= status < 400:
        raise DeliveryError(f"{message}; redirects are not followed\n  hint: use the final URL")
    if status == HTTPStatus.GONE:
        raise DeliveryError(f"{message}: it does not accept notifications any more", gone=True)
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        delay = _retry_after(answer, now)
        if delay is None and status == HTTPStatus.TOO_MANY_REQUESTS:
            delay = 0.0  # the receiver is overloaded: other notifications must wait, too
        raise DeliveryError(message, retry_after=delay)
    raise DeliveryError(message)


def _retry_after(answer: httpcore2.Response, now: float) -> float | None:
    """The delay in seconds that the receiver requests, if any."""
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
