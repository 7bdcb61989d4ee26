"""Authentication and authorization: users, tokens with scopes, quotas, console sessions.

Only hashes of tokens and cookies are stored. A service without any token is open: every client
on this machine is the user "local" with all scopes. The first token closes it permanently.
"""

import hashlib
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

from ensue.errors import ServiceError, did_you_mean
from ensue.service.errors import ConflictError, NotAllowedError, NotFoundError, UnauthenticatedError
from ensue.service.settings import ServiceLimits
from ensue.service.store import journal, user_store
from ensue.service.store.database import Database

_LOG = logging.getLogger(__name__)

READ, SUBSCRIBE, PUBLISH, ADMIN = SCOPES = ("read", "subscribe", "publish", "admin")
_IMPLIED = {SUBSCRIBE: (READ,), ADMIN: SCOPES}  # publishing does not imply reading

# The limits that can be overridden per user.
QUOTAS = (
    "body_bytes", "events_per_request", "connections_per_user", "subscriptions_per_user",
    "corners_per_user", "notes_per_minute", "targets_per_subscription", "token_age", "buffer",
    "trial_events", "trial_seconds", "trial_matches", "why_not_events", "matches_per_publish",
    "memory_per_user", "seconds_per_minute",
)  # fmt: skip

LOCAL = "local"  # the user of an open service
PREFIX = "ens_"
_TOKEN = re.compile(r"ens_[A-Za-z0-9_-]{43}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
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


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A newly issued token; its text cannot be read again later."""

    id: int
    token: str = field(repr=False)
    scopes: tuple[str, ...]
    expires: float | None


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """A new console session."""

    cookie: str = field(repr=False)
    csrf: str = field(repr=False)
    expires: float


# -------------------------------------------------------------------------------- transactions


def add_user(
    db: Connection,
    name: str,
    *,
    quotas: Mapping[str, Any] | None = None,
    by: int = journal.ANONYMOUS,
    at: float | None = None,
) -> int:
    if not _NAME.fullmatch(name):
        raise ServiceError(
            f"'{name}' is not a valid user name\n  hint: letters, digits and . _ @ - are allowed, at most 64"
        )
    now = time.time() if at is None else at
    id = user_store.add_user(db, name, json.dumps(validate_quotas(quotas)), now)
    journal.record_action(db, by, "add user", f"user {id}", name, at=now)
    return id


def add_token(
    db: Connection,
    user: int | str,
    *,
    scopes: Iterable[str] = SCOPES,
    label: str = "",
    age: float | None = None,
    limits: ServiceLimits | None = None,
    by: int = journal.ANONYMOUS,
    at: float | None = None,
) -> IssuedToken:
    """Issues a token for a user, given by id or name, that is valid for `age` seconds."""
    now = time.time() if at is None else at
    row = user_store.find_user(db, user) if isinstance(user, str) else user_store.get_user(db, user)
    if row is None:
        raise NotFoundError(f"there is no user {user!r}\n  hint: add the user first")
    wanted = validate_scopes(scopes)
    most = get_user_limits(db, row["id"], limits or ServiceLimits()).token_age
    if age is not None and not 0 < age <= most:
        raise ServiceError(
            f"a token is valid for at most {most / 86_400:g} days, not for {age:g} seconds\n"
            "  hint: choose a shorter time, or raise the limit token_age"
        )
    text = PREFIX + secrets.token_urlsafe(32)
    expires = now + (most if age is None else age)
    id = user_store.add_token(db, row["id"], label=label, hash=_hash(text), scopes=wanted, at=now, expires=expires)
    journal.record_action(db, by, "add token", f"token {id}", f"{row['name']}: {', '.join(wanted)}", at=now)
    return IssuedToken(id, text, wanted, expires)


def get_local_user(db: Connection, *, at: float | None = None) -> int:
    """Returns the user of an open or embedded service, created at first use."""
    row = user_store.find_user(db, LOCAL)
    if row is not None:
        return int(row["id"])
    return user_store.add_user(db, LOCAL, "{}", time.time() if at is None else at)


def get_user_limits(db: Connection, user: int, limits: ServiceLimits) -> ServiceLimits:
    """Returns the limits of a service with the quotas of one user applied."""
    row = user_store.get_user(db, user)
    return limits if row is None else replace(limits, **json.loads(row["quotas"]))


def validate_quotas(quotas: Mapping[str, Any] | None) -> dict[str, Any]:
    """Validates names and values of quotas."""
    for name in quotas or {}:
        if name not in QUOTAS:
            raise ServiceError(f"there is no quota '{name}'\n  hint: {did_you_mean(name, QUOTAS)}")
    limits = ServiceLimits.parse(quotas)
    return {name: getattr(limits, name) for name in quotas or {}}


def validate_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Returns the scopes in canonical order, without duplicates."""
    wanted = [scopes] if isinstance(scopes, str) else list(scopes)
    for scope in wanted:
        if scope not in SCOPES:
            raise ServiceError(f"there is no scope '{scope}'\n  hint: {did_you_mean(scope, SCOPES)}")
    if not wanted:
        raise ServiceError(f"a token without a scope is useless\n  hint: {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in wanted)


def expand_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Adds the implied scopes.

    >>> sorted(expand_scopes(["subscribe"])), len(expand_scopes(["admin"]))
    (['read', 'subscribe'], 4)
    """
    return frozenset(each for scope in scopes for each in (scope, *_IMPLIED.get(scope, ())))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


# -------------------------------------------------------------------------------- runtime


class Accounts:
    """The users of a running service; tokens are looked up each time, so revoking is immediate."""

    def __init__(self, database: Database, limits: ServiceLimits, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._limits = limits
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
        if not self._closed:
            any_token = "SELECT 1 FROM tokens LIMIT 1"  # expired ones count
            self._closed = self._database.look(lambda db: db.execute(any_token).fetchone()) is not None
        return not self._closed

    async def local(self) -> Principal:
        """The access of every client to an open service."""
        if self._local is None:
            self._local = Principal(await self._database.write(get_local_user), LOCAL, frozenset(SCOPES))
        return self._local

    def authenticate(self, token: str) -> Principal:
        """Checks a token; raises UnauthenticatedError if it is unknown, expired or revoked."""
        if not _TOKEN.fullmatch(token):
            raise _unknown()
        hash = _hash(token)
        row = self._database.look(lambda db: user_store.find_token_by_hash(db, hash))
        if row is None or not hmac.compare_digest(row["hash"], hash):
            raise _unknown()
        return self._check_valid(row)

    def session(self, cookie: str) -> Principal:
        """Checks the cookie of a session."""
        hash = _hash(cookie)
        row = self._database.look(lambda db: user_store.find_session_by_hash(db, hash))
        if row is None or not hmac.compare_digest(row["session_hash"], hash) or row["session_expires"] <= self._clock():
            raise UnauthenticatedError("this session has ended\n  hint: sign in again")
        return replace(self._check_valid(row), csrf=row["csrf"], session=hash)

    async def list_valid(self) -> frozenset[int | bytes]:
        """Returns all valid tokens and sessions."""
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
            record = "UPDATE tokens SET used = ? WHERE id = ?"
            self._write_later(lambda db: db.execute(record, (now, token)))
        scopes = expand_scopes(row["scopes"].split())
        return Principal(row["user"], row["name"], scopes, json.loads(row["quotas"]), token)

    @property
    def session_seconds(self) -> int:
        return int(self._limits.session_age)

    async def sign_in(self, token: str) -> ConsoleSession:
        """Starts a session with a token."""
        access = self.authenticate(token)
        now = self._clock()
        cookie, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        expires = now + self._limits.session_age

        def begin(db: Connection) -> None:
            user_store.add_session(db, _hash(cookie), access.token or 0, csrf, now, expires)
            journal.record_action(db, access.user, "sign in", f"token {access.token}", at=now)

        await self._database.write(begin)
        return ConsoleSession(cookie, csrf, expires)

    async def sign_out(self, cookie: str) -> None:
        """Ends a session; an ended session is not an error."""
        hash, now = _hash(cookie), self._clock()

        def end(db: Connection) -> None:
            row = user_store.find_session_by_hash(db, hash)
            if row is not None:
                db.execute("DELETE FROM sessions WHERE hash = ?", (hash,))
                journal.record_action(db, row["user"], "sign out", f"token {row['token']}", at=now)

        await self._database.write(end)
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

    async def users(self) -> list[Row]:
        return await self._database.read(lambda db: db.execute("SELECT * FROM users ORDER BY id").fetchall())

    async def add_user(self, by: Principal, name: str, quotas: Mapping[str, Any] | None = None) -> Row:
        now = self._clock()
        return await self._database.write(lambda db: _user(db, add_user(db, name, quotas=quotas, by=by.user, at=now)))

    async def change_user(self, by: Principal, id: int, *, quotas: Mapping[str, Any] | None, off: bool | None) -> Row:
        """Changes quotas, or disables or enables a user."""
        now = self._clock()
        if off and id == by.user:
            raise ConflictError("you cannot disable yourself\n  hint: ask another admin")

        def change(db: Connection) -> Row:
            row = _user(db, id)
            wanted = row["quotas"] if quotas is None else json.dumps(validate_quotas(quotas))
            is_off = bool(row["off"]) if off is None else off
            user_store.change_user(db, id, wanted, is_off)
            detail = f"quotas {wanted}, {'off' if is_off else 'on'}"
            journal.record_action(db, by.user, "change user", f"user {id}", detail, at=now)
            return _user(db, id)

        changed = await self._database.write(change)
        if changed["off"]:
            for token in await self.tokens(id):
                self._disconnect(token["id"])
        return changed

    async def tokens(self, user: int) -> list[Row]:
        def find(db: Connection) -> list[Row]:
            _user(db, user)
            return user_store.list_tokens(db, user)

        return await self._database.read(find)

    async def add_token(
        self, by: Principal, user: int, *, scopes: Iterable[str], label: str, age: float | None
    ) -> IssuedToken:
        now, limits = self._clock(), self._limits
        return await self._database.write(
            lambda db: add_token(db, user, scopes=scopes, label=label, age=age, limits=limits, by=by.user, at=now)
        )

    async def revoke(self, by: Principal, id: int) -> None:
        """Revokes a token and disconnects its listeners."""
        now = self._clock()

        def end(db: Connection) -> None:
            row = user_store.get_token(db, id)
            if row is None:
                raise NotFoundError(f"there is no token {id}")
            user_store.revoke_token(db, id, now)
            journal.record_action(db, by.user, "revoke token", f"token {id}", row["label"], at=now)

        await self._database.write(end)
        self._disconnect(id)

    async def audit(self, by: Principal, *, before: int | None = None, limit: int = 100) -> list[Row]:
        """Reads the audit log: all entries for an administrator, otherwise those of the user."""
        user = None if by.may(ADMIN) else by.user
        return await self._database.read(lambda db: journal.read_audit_log(db, user=user, before=before, limit=limit))

    def _write_later(self, work: Callable[[Connection], Any]) -> None:
        """Writes without waiting; failures are logged."""
        self._database.submit(work).add_done_callback(_log_failure)

    def _disconnect(self, credential: int | bytes) -> None:
        for callback in self.revoked:
            callback(credential)


def _log_failure(done: Future[Any]) -> None:
    if not done.cancelled() and done.exception() is not None:
        _LOG.warning("an audit entry could not be written: %s", done.exception())


def _user(db: Connection, id: int) -> Row:
    row = user_store.get_user(db, id)
    if row is None:
        raise NotFoundError(f"there is no user {id}")
    return row


def _unknown() -> UnauthenticatedError:
    return UnauthenticatedError(
        "this token is unknown\n  hint: tokens begin with ens_ and are shown once, when created"
    )
