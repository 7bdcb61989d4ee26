"""Authentication, CSRF and size checks of every request, and fair access to stored events."""

import asyncio
import hmac
import ipaddress
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ensue.service.access import Accounts, Principal
from ensue.service.errors import NotAllowedError, OverLimitError, UnauthenticatedError
from ensue.service.settings import ServiceLimits
from ensue.service.store.user_store import ADMIN, PUBLISH, READ, SUBSCRIBE
from ensue.service.web.problem_details import BodyTooLargeError, describe_problem

API = "/api/v1/"
OPEN_PATHS = frozenset({"/api/v1/openapi.json"})  # public information
SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"  # forms: the token is one of their fields
COOKIE = "ensue_session"
ACCESS = "ensue.access"  # its key in the scope of a request
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_GZIP = 16 + zlib.MAX_WBITS
_PIECE = 256 << 10  # bytes decompressed at a time
_NOBODY_BYTES = 64 << 10  # of an unauthenticated request

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self'; manifest-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class RequestGuard:
    """ASGI middleware that answers rejected requests itself."""

    def __init__(self, app: ASGIApp, *, accounts: Accounts, limits: ServiceLimits) -> None:
        self._app = app
        self._accounts = accounts
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def answer(message: Message) -> None:
            """Adds the common headers."""
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            headers = Headers(scope=scope)
            access = scope[ACCESS] = await self._access(scope, headers)
            most = access.limits(self._limits).body_bytes if access else _NOBODY_BYTES
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length) > most:
                raise BodyTooLargeError(most)
            bounded = _limit_size(receive, most)
            if _is_gzip(headers):
                dropped = (b"content-encoding", b"content-length")
                left = [pair for pair in scope["headers"] if pair[0].lower() not in dropped]
                scope = {**scope, "headers": left}
                bounded = _limit_size(_Decompressed(bounded), most)
            await self._app(scope, bounded, answer)
        except ClientDisconnect:
            return  # the client cannot receive an answer
        except Exception as error:
            if started:
                raise
            await describe_problem(error).response()(scope, receive, answer)

    async def _access(self, scope: Scope, headers: Headers) -> Principal | None:
        """Returns the authenticated user; None for anonymous requests to public paths."""
        path, unsafe = scope["path"], scope["method"] not in _SAFE
        if unsafe:
            _refuse_other_sites(headers)
        try:
            access = await self._authenticate(scope, headers)
        except UnauthenticatedError as refused:
            self._accounts.record_refusal(str(refused), scope["client"][0] if scope.get("client") else "")
            raise
        if access is None and path.startswith(API) and path not in OPEN_PATHS:
            raise UnauthenticatedError("this needs a token\n  hint: send it as 'Authorization: Bearer ens_...'")
        if access is not None and access.csrf is not None and unsafe:
            _refuse_forged(path, headers, access.csrf)
        return access

    async def _authenticate(self, scope: Scope, headers: Headers) -> Principal | None:
        authorization = headers.get("authorization")
        if authorization is not None:
            kind, _, token = authorization.partition(" ")
            if kind.lower() != "bearer":
                raise UnauthenticatedError(
                    f"the authentication scheme '{kind[:20]}' is not supported\n"
                    "  hint: send 'Authorization: Bearer ens_...'"
                )
            return self._accounts.authenticate(token.strip())
        if self._accounts.is_open:
            _refuse_elsewhere(scope, headers)
            return await self._accounts.local()
        cookie = get_session_cookie(headers)
        if cookie is None:
            return None
        try:
            return self._accounts.session(cookie)
        except UnauthenticatedError:
            if scope["path"].startswith(API):
                raise
            return None  # the page redirects to signing in


def _limit_size(receive: Receive, most: int) -> Receive:
    """Limits the size of a request body."""
    left = most

    async def receive_bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise BodyTooLargeError(most)
        return message

    return receive_bounded


class _Decompressed:
    """Decompresses a gzip body in chunks."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._stream = zlib.decompressobj(_GZIP)
        self._pending = b""  # compressed bytes that have arrived
        self._ended = False  # no more bytes arrive
        self._whole = False  # everything was decompressed

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        while not self._pending and not self._ended:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            self._pending = message.get("body", b"")
            self._ended = not message.get("more_body", False)
        body = self._next_piece()
        await asyncio.sleep(0)  # a small body can have many chunks: let others run
        return {"type": "http.request", "body": body, "more_body": not self._whole}

    def _next_piece(self) -> bytes:
        if self._pending and self._stream.eof:  # a file in gzip may have several members
            self._stream = zlib.decompressobj(_GZIP)
        try:
            body = self._stream.decompress(self._pending, _PIECE)
        except zlib.error as error:
            raise HTTPException(400, f"the body is not gzip: {error}") from None
        self._pending = self._stream.unused_data or self._stream.unconsumed_tail
        if self._ended and not self._pending:
            self._whole = self._stream.eof
            if not self._whole and not body:
                raise HTTPException(400, "the gzip body is truncated")
        return body


def _refuse_elsewhere(scope: Scope, headers: Headers) -> None:
    """Restricts an open service to this machine, under its own name, since other sites can
    point a name of theirs to this address."""
    client = scope.get("client")
    if client is not None and not is_loopback(client[0]):
        raise NotAllowedError(
            "a service without tokens accepts only requests from its own machine\n"
            "  hint: create a token: ensue token FILE --user NAME"
        )
    if not is_loopback(_host_name(headers.get("host", ""))):
        raise NotAllowedError(
            "a service without tokens must be addressed by a name of this machine\n"
            "  hint: use http://127.0.0.1 or http://localhost"
        )


def _refuse_other_sites(headers: Headers) -> None:
    """Rejects changes that are requested by pages of other sites."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    foreign = site is not None and site not in ("same-origin", "none")
    if origin is not None:
        there = origin.partition("://")[2]  # a proxy may end TLS, so the scheme is ignored
        foreign = foreign or there.lower() != headers.get("host", "").lower()
    if foreign and "authorization" not in headers:  # browsers do not add tokens by themselves
        raise NotAllowedError("requests from pages of other sites are rejected")


def _refuse_forged(path: str, headers: Headers, csrf: str) -> None:
    if path in (SIGN_IN, SIGN_OUT):
        return
    if not hmac.compare_digest(headers.get("x-csrf-token", "").encode(), csrf.encode()):
        raise NotAllowedError(
            "the CSRF token is missing or wrong\n"
            "  hint: send the session's token in the header X-CSRF-Token, or reload the page"
        )


def get_session_cookie(headers: Headers) -> str | None:
    return cookie_parser(headers.get("cookie", "")).get(COOKIE)


def is_loopback(name: str) -> bool:
    """Whether a host is this machine.

    >>> [is_loopback(name) for name in ("localhost", "127.0.0.2", "::1", "0.0.0.0", "ensue.io")]
    [True, True, True, False, False]
    """
    if name.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _host_name(host: str) -> str:
    """The name in a Host header, without its port.

    >>> _host_name("[::1]:8765"), _host_name("localhost:80"), _host_name("a b")
    ('::1', 'localhost', 'a b')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_gzip(headers: Headers) -> bool:
    """Whether a body is compressed; raises HTTPException for unsupported encodings."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("gzip", "x-gzip"):
        return True
    if encoding not in ("identity", ""):
        raise HTTPException(
            415,
            f"the content encoding '{encoding[:40]}' is not supported\n  hint: use Content-Encoding: gzip, or none",
            {"accept-encoding": "gzip, identity"},
        )
    return False


def get_principal(request: Request) -> Principal:
    """Returns the user of a request; raises UnauthenticatedError for anonymous ones."""
    access = request.scope.get(ACCESS)
    if not isinstance(access, Principal):
        raise UnauthenticatedError("this needs a token\n  hint: Authorization: Bearer ens_...")
    return access


def require_scope(scope: str) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency that requires a scope and returns the user."""

    async def access(request: Request) -> Principal:
        user = get_principal(request)
        user.require(scope)
        return user

    return access


ReadAccess = Annotated[Principal, Depends(require_scope(READ))]
SubscribeAccess = Annotated[Principal, Depends(require_scope(SUBSCRIBE))]
PublishAccess = Annotated[Principal, Depends(require_scope(PUBLISH))]
AdminAccess = Annotated[Principal, Depends(require_scope(ADMIN))]


MAX_RUNNING = 2  # long queries; the other reader threads serve short ones
MAX_PER_USER = 6  # running or waiting


class QuerySlots:
    """Limits concurrent queries over stored events, in total and per user."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_RUNNING)
        self._running: Counter[int] = Counter()

    @asynccontextmanager
    async def acquire(self, user: int) -> AsyncIterator[None]:
        """Waits for a slot for a query of a user."""
        if self._running[user] >= MAX_PER_USER:
            raise OverLimitError(
                "turns",
                f"{MAX_PER_USER} queries of this user over stored events are already waiting\n"
                "  hint: try again when they are finished",
            )
        self._running[user] += 1
        try:
            async with self._free:
                yield
        finally:
            self._running[user] -= 1
            if not self._running[user]:
                del self._running[user]
