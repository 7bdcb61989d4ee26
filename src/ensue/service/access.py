"""Who may do what: users, their tokens and scopes, quotas, and sessions of the console.

Of tokens and cookies only hashes are kept. A service without any token is open: whoever reaches
it on this machine is the user "local" with all scopes. The first token closes it for good.
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
from ensue.service.database import Database
from ensue.service.refusals import (
    ConflictError,
    NotAllowedError,
    NotFoundError,
    UnauthenticatedError,
)
from ensue.service.settings import Limits
from ensue.service.store import audit, users

_LOG = logging.getLogger(__name__)

READ, SUBSCRIBE, PUBLISH, ADMIN = SCOPES = ("read", "subscribe", "publish", "admin")
_IMPLIED = {SUBSCRIBE: (READ,), ADMIN: SCOPES}  # who publishes need not see anything

# The limits that may be different for one user.
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
_USE_NOTED = 60.0  # seconds between two notes of a token's last use
_REFUSALS = 30  # refused sign-ins written down in a minute; more are counted


@dataclass(frozen=True, slots=True)
class Access:
    """Who asks, and how far that reaches."""

    user: int
    name: str
    scopes: frozenset[str]  # with those that they imply
    quotas: Mapping[str, Any] = field(default_factory=dict)
    token: int | None = None  # none: an open service
    csrf: str | None = field(default=None, repr=False)  # of a session
    session: bytes | None = field(default=None, repr=False)  # its hash

    @property
    def credential(self) -> int | bytes | None:
        """What has to hold as long as this does: a session, a token, or nothing."""
        return self.token if self.session is None else self.session

    def may(self, scope: str) -> bool:
        """Whether the scope is among those of the token."""
        return scope in self.scopes

    def require(self, scope: str) -> None:
        """Refuses what the scope is needed for, if it is not there."""
        if scope not in self.scopes:
            raise NotAllowedError(
                f"this needs the scope '{scope}', but the token has "
                f"{', '.join(sorted(self.scopes)) or 'none'}\n"
                f"  hint: an administrator can create tokens with more scopes"
            )

    def limits(self, limits: Limits) -> Limits:
        """The limits of the service, with the user's own instead where there are some."""
        return replace(limits, **self.quotas) if self.quotas else limits


@dataclass(frozen=True, slots=True)
class Made:
    """A token as it was made: the only time that its text is seen."""

    id: int
    token: str = field(repr=False)
    scopes: tuple[str, ...]
    expires: float | None


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it began."""

    cookie: str = field(repr=False)
    csrf: str = field(repr=False)
    expires: float


# -------------------------------------------------------------------------------- in a transaction


def add_user(
    db: Connection,
    name: str,
    *,
    quotas: Mapping[str, Any] | None = None,
    by: int = audit.NOBODY,
    at: float | None = None,
) -> int:
    """Adds a user, and gives the id."""
    if not _NAME.fullmatch(name):
        raise ServiceError(
            f"'{name}' is not a valid user name\n"
            "  hint: letters, digits and . _ @ - are allowed, at most 64"
        )
    now = time.time() if at is None else at
    id = users.add_user(db, name, json.dumps(checked_quotas(quotas)), now)
    audit.record(db, by, "add user", f"user {id}", name, at=now)
    return id


def add_token(
    db: Connection,
    user: int | str,
    *,
    scopes: Iterable[str] = SCOPES,
    label: str = "",
    age: float | None = None,
    limits: Limits | None = None,
    by: int = audit.NOBODY,
    at: float | None = None,
) -> Made:
    """Makes a token for a user, by id or name, that is good for `age` seconds."""
    now = time.time() if at is None else at
    found = users.user_named(db, user) if isinstance(user, str) else users.user_of(db, user)
    if found is None:
        raise NotFoundError(f"there is no user {user!r}\n  hint: add the user first")
    wanted = checked_scopes(scopes)
    most = limits_of(db, found["id"], limits or Limits()).token_age
    if age is not None and not 0 < age <= most:
        raise ServiceError(
            f"a token is valid for at most {most / 86_400:g} days, not for {age:g} seconds\n"
            "  hint: ask for less, or raise the limit token_age"
        )
    text = PREFIX + secrets.token_urlsafe(32)
    expires = now + (most if age is None else age)
    id = users.add_token(
        db, found["id"], label=label, hash=_hash(text), scopes=wanted, at=now, expires=expires
    )
    audit.record(
        db, by, "add token", f"token {id}", f"{found['name']}: {', '.join(wanted)}", at=now
    )
    return Made(id, text, wanted, expires)


def first_steps(database: Database, name: str, *, limits: Limits | None = None) -> Made:
    """Makes a user, unless there is one of that name, and a token with all scopes.

    For the command line: whoever may write to the file may do this.
    """

    def make(db: Connection) -> Made:
        if users.user_named(db, name) is None:
            add_user(db, name)
        return add_token(db, name, label="first", limits=limits)

    return database.submit(make).result()


def local_user(db: Connection, *, at: float | None = None) -> int:
    """The user of an open or embedded service, who is made at first use."""
    found = users.user_named(db, LOCAL)
    if found is not None:
        return int(found["id"])
    return users.add_user(db, LOCAL, "{}", time.time() if at is None else at)


def limits_of(db: Connection, user: int, limits: Limits) -> Limits:
    """The limits of a service as they are for one user."""
    found = users.user_of(db, user)
    quotas = json.loads(found["quotas"]) if found is not None else {}
    return replace(limits, **quotas) if quotas else limits


def checked_quotas(quotas: Mapping[str, Any] | None) -> dict[str, Any]:
    """Quotas that there are, with values that they may have."""
    for name in quotas or {}:
        if name not in QUOTAS:
            raise ServiceError(f"there is no quota '{name}'\n  hint: {did_you_mean(name, QUOTAS)}")
    given = Limits.given(quotas)
    return {name: getattr(given, name) for name in quotas or {}}


def checked_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Scopes in their own order, each once."""
    wanted = [scopes] if isinstance(scopes, str) else list(scopes)
    for scope in wanted:
        if scope not in SCOPES:
            raise ServiceError(
                f"there is no scope '{scope}'\n  hint: {did_you_mean(scope, SCOPES)}"
            )
    if not wanted:
        raise ServiceError(f"a token without a scope is useless\n  hint: {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in wanted)


def implied(scopes: Iterable[str]) -> frozenset[str]:
    """Scopes with those that they imply.

    >>> sorted(implied(["subscribe"])), len(implied(["admin"]))
    (['read', 'subscribe'], 4)
    """
    return frozenset(each for scope in scopes for each in (scope, *_IMPLIED.get(scope, ())))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


# -------------------------------------------------------------------------------- while it runs


class Accounts:
    """The users of a running service. Tokens are looked up each time: revoked ones end at once."""

    def __init__(
        self, database: Database, limits: Limits, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._limits = limits
        self._clock = clock
        self._closed = False  # once there is a token it stays so
        self._local: Access | None = None
        self._noted: dict[int, float] = {}
        self._refused = (0.0, 0)  # the minute, and how many of it
        self._unlisted = 0
        # Called with a token that was taken back, or the hash of a session that has ended.
        self.revoked: list[Callable[[int | bytes], None]] = []

    # ---------------------------------------------------------------------------- asking

    @property
    def is_open(self) -> bool:
        """Whether no token was ever made."""
        if not self._closed:
            self._closed = self._database.look(users.any_token)
        return not self._closed

    async def local(self) -> Access:
        """The access of everybody, to an open service."""
        if self._local is None:
            found = await self._database.write(local_user)
            self._local = Access(found, LOCAL, frozenset(SCOPES))
        return self._local

    def authenticate(self, token: str) -> Access:
        """What a token gives access to; one that is unknown, over or revoked is refused."""
        if not _TOKEN.fullmatch(token):
            raise _unknown()
        hash = _hash(token)
        found = self._database.look(lambda db: users.token_hashed(db, hash))
        if found is None or not hmac.compare_digest(found["hash"], hash):
            raise _unknown()
        return self._standing(found)

    def session(self, cookie: str) -> Access:
        """What a session gives access to."""
        hash = _hash(cookie)
        found = self._database.look(lambda db: users.session_hashed(db, hash))
        if found is None or not hmac.compare_digest(found["session_hash"], hash):
            raise UnauthenticatedError("this session has ended\n  hint: sign in again")
        if found["session_expires"] <= self._clock():
            raise UnauthenticatedError("this session has ended\n  hint: sign in again")
        return replace(self._standing(found), csrf=found["csrf"], session=hash)

    async def standing(self) -> frozenset[int | bytes]:
        """The tokens that can be used now, and the sessions."""
        now = self._clock()

        def find(db: Connection) -> frozenset[int | bytes]:
            tokens = users.standing_tokens(db, now)
            return tokens | users.standing_sessions(db, tokens, now)

        return await self._database.read(find)

    def _standing(self, found: Row) -> Access:
        now = self._clock()
        if found["off"]:
            raise UnauthenticatedError(f"the user '{found['name']}' is disabled")
        if found["revoked"] is not None:
            raise UnauthenticatedError("this token was revoked\n  hint: ask for a new one")
        if found["expires"] is not None and found["expires"] <= now:
            raise UnauthenticatedError("this token has expired\n  hint: ask for a new one")
        token = int(found["token"])
        if now - self._noted.get(token, 0.0) >= _USE_NOTED:
            self._noted[token] = now
            self._write_later(lambda db: users.note_use(db, token, now))
        scopes = implied(found["scopes"].split())
        return Access(found["user"], found["name"], scopes, json.loads(found["quotas"]), token)

    # ---------------------------------------------------------------------------- sessions

    @property
    def session_seconds(self) -> int:
        """How long a session lasts."""
        return int(self._limits.session_age)

    async def sign_in(self, token: str) -> Session:
        """Begins a session with a token."""
        access = self.authenticate(token)
        now = self._clock()
        cookie, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        expires = now + self._limits.session_age

        def begin(db: Connection) -> None:
            users.add_session(db, _hash(cookie), access.token or 0, csrf, now, expires)
            audit.record(db, access.user, "sign in", f"token {access.token}", at=now)

        await self._database.write(begin)
        return Session(cookie, csrf, expires)

    async def sign_out(self, cookie: str) -> None:
        """Ends a session; one that is over already is no error."""
        hash, now = _hash(cookie), self._clock()

        def end(db: Connection) -> None:
            found = users.session_hashed(db, hash)
            if found is not None:
                users.end_session(db, hash)
                audit.record(db, found["user"], "sign out", f"token {found['token']}", at=now)

        await self._database.write(end)
        self._tell(hash)

    def refused(self, why: str, address: str) -> None:
        """Writes down that somebody could not sign in: some a minute, and how many more."""
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
        said = why.partition("\n")[0] + more
        self._write_later(
            lambda db: audit.record(db, audit.NOBODY, "sign-in refused", address, said, at=now)
        )

    # ---------------------------------------------------------------------------- administration

    async def users(self) -> list[Row]:
        """All users."""
        return await self._database.read(users.users_of)

    async def add_user(
        self, by: Access, name: str, quotas: Mapping[str, Any] | None = None
    ) -> Row:
        """Adds a user."""
        now = self._clock()

        def add(db: Connection) -> Row:
            return _user(db, add_user(db, name, quotas=quotas, by=by.user, at=now))

        return await self._database.write(add)

    async def change_user(
        self, by: Access, id: int, *, quotas: Mapping[str, Any] | None, off: bool | None
    ) -> Row:
        """Changes quotas, or switches a user off and on."""
        now = self._clock()
        if off and id == by.user:
            raise ConflictError("you cannot disable yourself\n  hint: ask another admin")

        def change(db: Connection) -> Row:
            found = _user(db, id)
            wanted = found["quotas"] if quotas is None else json.dumps(checked_quotas(quotas))
            is_off = bool(found["off"]) if off is None else off
            users.change_user(db, id, wanted, is_off)
            said = f"quotas {wanted}, {'off' if is_off else 'on'}"
            audit.record(db, by.user, "change user", f"user {id}", said, at=now)
            return _user(db, id)

        changed = await self._database.write(change)
        if changed["off"]:
            for token in await self.tokens(id):
                self._tell(token["id"])
        return changed

    async def tokens(self, user: int) -> list[Row]:
        """The tokens of a user."""

        def find(db: Connection) -> list[Row]:
            _user(db, user)
            return users.tokens_of(db, user)

        return await self._database.read(find)

    async def add_token(
        self, by: Access, user: int, *, scopes: Iterable[str], label: str, age: float | None
    ) -> Made:
        """Makes a token."""
        now = self._clock()

        def add(db: Connection) -> Made:
            return add_token(
                db, user, scopes=scopes, label=label, age=age, limits=self._limits,
                by=by.user, at=now,
            )  # fmt: skip

        return await self._database.write(add)

    async def revoke(self, by: Access, id: int) -> None:
        """Takes a token back. What is connected with it is cut."""
        now = self._clock()

        def end(db: Connection) -> None:
            found = users.token_of(db, id)
            if found is None:
                raise NotFoundError(f"there is no token {id}")
            users.revoke_token(db, id, now)
            audit.record(db, by.user, "revoke token", f"token {id}", found["label"], at=now)

        await self._database.write(end)
        self._tell(id)

    async def audit(self, by: Access, *, before: int | None = None, limit: int = 100) -> list[Row]:
        """What was done: by everybody for an administrator, else by whoever asks."""
        user = None if by.may(ADMIN) else by.user
        return await self._database.read(
            lambda db: audit.recorded(db, user=user, before=before, limit=limit)
        )

    def _write_later(self, work: Callable[[Connection], None]) -> None:
        """Writes what nobody waits for; if that fails, the log says so."""
        self._database.submit(work).add_done_callback(_log_failure)

    def _tell(self, credential: int | bytes) -> None:
        for told in self.revoked:
            told(credential)


def _log_failure(done: Future[None]) -> None:
    if not done.cancelled() and done.exception() is not None:
        _LOG.warning("could not be written down: %s", done.exception())


def _user(db: Connection, id: int) -> Row:
    found = users.user_of(db, id)
    if found is None:
        raise NotFoundError(f"there is no user {id}")
    return found


def _unknown() -> UnauthenticatedError:
    return UnauthenticatedError(
        "this token is unknown\n  hint: tokens begin with ens_ and are shown once, when created"
    )
