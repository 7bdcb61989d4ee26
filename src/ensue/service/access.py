"""Authentication and authorization: users with scopes and quotas, and console sessions.

A service without any token is open: every client on this machine is the user "local" with all
scopes. The first token closes it permanently.
"""

import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from sqlite3 import Connection, Row
from typing import Any

from ensue.service.errors import ConflictError, NotAllowedError, UnauthenticatedError
from ensue.service.settings import ServiceLimits
from ensue.service.store import journal, user_store
from ensue.service.store.database import Database
from ensue.service.store.user_store import ADMIN, LOCAL, READ, SCOPES, SUBSCRIBE

_LOG = logging.getLogger(__name__)
_IMPLIED = {SUBSCRIBE: (READ,), ADMIN: SCOPES}  # publishing does not imply reading
_TOKEN = re.compile(r"ens_[A-Za-z0-9_-]{43}")
_USE_NOTED = 60.0  # seconds between two updates of a token's last use
_REFUSALS = 30  # refused sign-ins recorded per minute; more are only counted


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated user with scopes and quotas."""

    user: int
    name: str
    scopes: frozenset[str]  # including the implied ones
    quotas: Mapping[str, Any] = field(default_factory=dict)
    token: int | None = None  # None for an open service
    csrf: str | None = field(default=None, repr=False)  # of a session
    session: bytes | None = field(default=None, repr=False)  # its hash

    @property
    def credential(self) -> int | bytes | None:
        """The session or token that must stay valid, or None for an open service."""
        return self.token if self.session is None else self.session

    def may(self, scope: str) -> bool:
        return scope in self.scopes

    def require(self, scope: str) -> None:
        """Raises NotAllowedError without the scope."""
        if scope not in self.scopes:
            raise NotAllowedError(
                f"this needs the scope '{scope}', but the token has "
                f"{', '.join(sorted(self.scopes)) or 'none'}\n"
                f"  hint: an administrator can create tokens with more scopes"
            )

    def limits(self, limits: ServiceLimits) -> ServiceLimits:
        """Applies the quotas of the user to the limits of the service."""
        return replace(limits, **self.quotas)


def expand_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Adds the implied scopes.

    >>> sorted(expand_scopes(["subscribe"])), len(expand_scopes(["admin"]))
    (['read', 'subscribe'], 4)
    """
    return frozenset(each for scope in scopes for each in (scope, *_IMPLIED.get(scope, ())))


class Accounts:
    """The users of a running service; tokens are looked up each time, so revoking is immediate."""

    def __init__(self, database: Database, limits: ServiceLimits, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self.limits = limits
        self._clock = clock
        self._closed = False  # permanently True once a token exists
        self._local: Principal | None = None
        self._used: dict[int, float] = {}  # token: last recorded use
        self._refused = (0.0, 0)  # start of the minute, refusals since
        self._unlisted = 0
        # Called with a revoked token, or the hash of an ended session.
        self.revoked: list[Callable[[int | bytes], None]] = []

    @property
    def is_open(self) -> bool:
        """Whether no token was ever issued."""
        self._closed = self._closed or self._database.look(user_store.has_tokens)
        return not self._closed

    async def local(self) -> Principal:
        """The access of every client to an open service."""
        if self._local is None:
            user = await self._database.write(user_store.get_local_user)
            self._local = Principal(user, LOCAL, frozenset(SCOPES))
        return self._local

    # -------------------------------------------------------------------------- credentials

    def authenticate(self, token: str) -> Principal:
        """Checks a token; raises UnauthenticatedError if it is unknown, expired or revoked."""
        row = None
        if _TOKEN.fullmatch(token):
            hash = user_store.hash_secret(token)
            row = self._database.look(lambda db: user_store.find_token_by_hash(db, hash))
        if row is None or not hmac.compare_digest(row["hash"], hash):
            raise UnauthenticatedError(
                "this token is unknown\n  hint: tokens begin with ens_ and are shown once, when created"
            )
        return self._check_valid(row)

    def session(self, cookie: str) -> Principal:
        hash = user_store.hash_secret(cookie)
        row = self._database.look(lambda db: user_store.find_session_by_hash(db, hash))
        if row is None or not hmac.compare_digest(row["session_hash"], hash) or row["session_expires"] <= self._clock():
            raise UnauthenticatedError("this session has ended\n  hint: sign in again")
        return replace(self._check_valid(row), csrf=row["csrf"], session=hash)

    async def list_valid(self) -> frozenset[int | bytes]:
        now = self._clock()
        return await self._database.read(lambda db: user_store.list_valid_credentials(db, now))

    def _check_valid(self, row: Row) -> Principal:
        now = self._clock()
        if row["off"]:
            raise UnauthenticatedError(f"the user '{row['name']}' is disabled")
        if row["revoked"] is not None:
            raise UnauthenticatedError("this token was revoked\n  hint: ask for a new one")
        if row["expires"] is not None and row["expires"] <= now:
            raise UnauthenticatedError("this token has expired\n  hint: ask for a new one")
        token = int(row["token"])
        if now - self._used.get(token, 0.0) >= _USE_NOTED:
            self._used[token] = now
            self._write_later(lambda db: user_store.record_use(db, token, now))
        scopes = expand_scopes(row["scopes"].split())
        return Principal(row["user"], row["name"], scopes, json.loads(row["quotas"]), token)

    async def sign_in(self, token: str) -> str:
        """Starts a session with a token; returns its cookie."""
        access = self.authenticate(token)
        now, token_id = self._clock(), access.token or 0
        cookie, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        expires = now + self.limits.session_age
        await self._database.write(
            lambda db: user_store.add_session(db, cookie, token_id, access.user, csrf, now, expires)
        )
        return cookie

    async def sign_out(self, cookie: str) -> None:
        """Ends a session; an ended session is not an error."""
        hash, now = user_store.hash_secret(cookie), self._clock()
        await self._database.write(lambda db: user_store.remove_session(db, hash, now))
        self._disconnect(hash)

    def record_refusal(self, why: str, address: str) -> None:
        """Records a refused sign-in; above a rate, only the number of refusals is recorded."""
        now = self._clock()
        minute, count = self._refused
        if now - minute >= 60.0:
            minute, count = now, 0
        self._refused = (minute, count + 1)
        if count >= _REFUSALS:
            self._unlisted += 1
            return
        more = f", and {self._unlisted:,} more before it" if self._unlisted else ""
        self._unlisted = 0
        detail = why.partition("\n")[0] + more
        self._write_later(
            lambda db: journal.record_action(db, journal.ANONYMOUS, "sign-in refused", address, detail, at=now)
        )

    # -------------------------------------------------------------------------- administration

    async def change_user(self, by: Principal, id: int, *, quotas: Mapping[str, Any] | None, off: bool | None) -> Row:
        if off and id == by.user:
            raise ConflictError("you cannot disable yourself\n  hint: ask another admin")
        changed = await self._database.write(
            lambda db: user_store.change_user(db, id, quotas, off, by=by.user, at=self._clock())
        )
        if changed["off"]:
            for token in await self._database.read(lambda db: user_store.list_tokens(db, id)):
                self._disconnect(token["id"])
        return changed

    async def revoke(self, by: Principal, id: int) -> None:
        """Revokes a token and disconnects its listeners."""
        await self._database.write(lambda db: user_store.revoke_token(db, id, self._clock(), by=by.user))
        self._disconnect(id)

    def _write_later(self, work: Callable[[Connection], Any]) -> None:
        """Writes without waiting; failures are logged."""
        self._database.submit(work).add_done_callback(_log_failure)

    def _disconnect(self, credential: int | bytes) -> None:
        for callback in self.revoked:
            callback(credential)


def _log_failure(done: Future[Any]) -> None:
    if not done.cancelled() and done.exception() is not None:
        _LOG.warning("an audit entry could not be written: %s", done.exception())
