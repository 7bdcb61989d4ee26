"""What every request meets first: who asks, whether from where it may, how much it may send."""

import asyncio
import hmac
import ipaddress
import zlib
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ensue.service.access import Access, Accounts
from ensue.service.refusals import NotAllowedError, UnauthenticatedError
from ensue.service.settings import Limits
from ensue.service.web.problems import BodyTooLargeError, problem_of

API = "/api/v1/"
OPEN_PATHS = frozenset({"/api/v1/openapi.json"})  # tell nothing about anybody
SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"  # forms: their token is among the fields
COOKIE = "ensue_session"
ACCESS = "ensue.access"  # where the scope of a request has it
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_GZIP = 16 + zlib.MAX_WBITS
_PIECE = 256 << 10  # bytes that are decompressed at a time
_NOBODY_BYTES = 64 << 10  # that somebody may send who is not known

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self'; manifest-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Stands before the application, and answers in its place what goes no further."""

    def __init__(self, app: ASGIApp, *, accounts: Accounts, limits: Limits) -> None:
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
        answer = _Answer(send)
        try:
            headers = Headers(scope=scope)
            access = scope[ACCESS] = await self._access(scope, headers)
            most = access.limits(self._limits).body_bytes if access else _NOBODY_BYTES
            if _declared(headers) > most:
                raise BodyTooLargeError(most)
            bounded: Receive = _Bounded(receive, most)
            if _is_gzip(headers):
                scope = {**scope, "headers": _without_encoding(scope["headers"])}
                bounded = _Decompressed(bounded, most)
            await self._app(scope, bounded, answer)
        except ClientDisconnect:
            return  # in the middle of its request: nobody is there to be answered
        except Exception as error:
            if answer.started:
                raise
            await problem_of(error).response()(scope, receive, answer)

    async def _access(self, scope: Scope, headers: Headers) -> Access | None:
        """Who asks. Nobody is None where that is no matter."""
        path, unsafe = scope["path"], scope["method"] not in _SAFE
        if unsafe:
            _refuse_other_sites(headers)
        try:
            found = await self._found(scope, headers)
        except UnauthenticatedError as refused:
            self._accounts.refused(str(refused), _address(scope))
            raise
        if found is None and path.startswith(API) and path not in OPEN_PATHS:
            raise UnauthenticatedError(
                "this needs a token\n  hint: send it as 'Authorization: Bearer ens_...'"
            )
        if found is not None and found.csrf is not None and unsafe:
            _refuse_forged(path, headers, found.csrf)
        return found

    async def _found(self, scope: Scope, headers: Headers) -> Access | None:
        given = headers.get("authorization")
        if given is not None:
            kind, _, token = given.partition(" ")
            if kind.lower() != "bearer":
                raise UnauthenticatedError(
                    f"'{kind[:20]}' is no way to sign in here\n"
                    "  hint: send 'Authorization: Bearer ens_...'"
                )
            return self._accounts.authenticate(token.strip())
        if self._accounts.is_open:
            _refuse_elsewhere(scope, headers)
            return await self._accounts.local()
        cookie = cookie_of(headers)
        if cookie is None:
            return None
        try:
            return self._accounts.session(cookie)
        except UnauthenticatedError:
            if scope["path"].startswith(API):
                raise
            return None  # a page sends them to sign in again


class _Answer:
    """Sends on what the application answers, with the headers that every answer has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await self._send(message)


class _Bounded:
    """Receives a body up to a number of bytes, however it is cut."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._left = self._most = most

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise BodyTooLargeError(self._most)
        return message


class _Decompressed:
    """Receives a body in gzip as what it stands for, in pieces, up to a number of bytes."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._left = self._most = most
        self._stream = zlib.decompressobj(_GZIP)
        self._pending = b""  # compressed bytes that have arrived
        self._ended = False  # no more bytes arrive
        self._whole = False  # all of it was handed on

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
        await asyncio.sleep(0)  # a small body may stand for many pieces: others run in between
        return {"type": "http.request", "body": body, "more_body": not self._whole}

    def _next_piece(self) -> bytes:
        if self._pending and self._stream.eof:  # a file in gzip may have several members
            self._stream = zlib.decompressobj(_GZIP)
        try:
            body = self._stream.decompress(self._pending, _PIECE)
        except zlib.error as error:
            raise HTTPException(400, f"the body is not in gzip: {error}") from None
        self._pending = self._stream.unused_data or self._stream.unconsumed_tail
        self._left -= len(body)
        if self._left < 0:
            raise BodyTooLargeError(self._most)
        if self._ended and not self._pending:
            self._whole = self._stream.eof
            if not self._whole and not body:
                raise HTTPException(400, "the body in gzip is cut off")
        return body


# -------------------------------------------------------------------------------- refusals


def _refuse_elsewhere(scope: Scope, headers: Headers) -> None:
    """An open service is for this machine only, and under its own name: pages elsewhere may
    have a name of theirs lead here."""
    client = scope.get("client")
    if client is not None and not is_loopback(client[0]):
        raise NotAllowedError(
            "without tokens this service is for its own machine only\n"
            "  hint: make a token: ensue token FILE --user NAME"
        )
    if not is_loopback(_host_name(headers.get("host", ""))):
        raise NotAllowedError(
            "without tokens this service answers under a name of this machine only\n"
            "  hint: ask for http://127.0.0.1 or http://localhost"
        )


def _refuse_other_sites(headers: Headers) -> None:
    """What changes something is not taken from pages of other sites."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    foreign = site is not None and site not in ("same-origin", "none")
    if origin is not None:
        there = origin.partition("://")[2]  # a proxy may have ended TLS: the scheme is no matter
        foreign = foreign or there.lower() != headers.get("host", "").lower()
    if foreign and "authorization" not in headers:  # a token is nothing that a browser adds
        raise NotAllowedError("this comes from a page of another site, and is not taken")


def _refuse_forged(path: str, headers: Headers, csrf: str) -> None:
    if path in (SIGN_IN, SIGN_OUT):
        return
    if not hmac.compare_digest(headers.get("x-csrf-token", "").encode(), csrf.encode()):
        raise NotAllowedError(
            "the token of the page is missing or wrong\n"
            "  hint: send the header X-CSRF-Token with the session's token; load the page again"
        )


# -------------------------------------------------------------------------------- what was sent


def cookie_of(headers: Headers) -> str | None:
    """The value of the session's cookie."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return found.value if found is not None else None


def is_loopback(name: str) -> bool:
    """Whether a host is this machine and no other.

    >>> [is_loopback(name) for name in ("localhost", "127.0.0.2", "::1", "0.0.0.0", "ensue.io")]
    [True, True, True, False, False]
    """
    if name.lower() == "localhost":
        return True
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _host_name(host: str) -> str:
    """The name in a Host header, without its port.

    >>> _host_name("[::1]:8765"), _host_name("localhost:80"), _host_name("a b")
    ('::1', 'localhost', 'a b')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _address(scope: Scope) -> str:
    client: Iterable[object] | None = scope.get("client")
    return str(next(iter(client))) if client else ""


def _is_gzip(headers: Headers) -> bool:
    """Whether a body is compressed; HTTPException if in a way that is not read here."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("gzip", "x-gzip"):
        return True
    if encoding not in ("identity", ""):
        raise HTTPException(
            415,
            f"a body in the encoding '{encoding[:40]}' cannot be read\n"
            "  hint: Content-Encoding: gzip, or none",
            {"accept-encoding": "gzip, identity"},
        )
    return False


def _without_encoding(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    gone = (b"content-encoding", b"content-length")
    return [(name, value) for name, value in headers if name.lower() not in gone]


def _declared(headers: Headers) -> int:
    length = headers.get("content-length", "0")
    return int(length) if length.isdecimal() else 0
