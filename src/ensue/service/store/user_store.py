"""Users, their tokens with scopes and quotas, and console sessions.

Only hashes of tokens and cookies are stored. Changes are recorded in the audit log, in the same
transaction.
"""

import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from sqlite3 import Connection, IntegrityError, Row
from typing import Annotated, Any

from pydantic import Field

from ensue.errors import ServiceError, did_you_mean
from ensue.service.errors import ConflictError, NotFoundError
from ensue.service.event_columns import EpochTime
from ensue.service.settings import ServiceLimits
from ensue.service.store import journal

READ, SUBSCRIBE, PUBLISH, ADMIN = SCOPES = ("read", "subscribe", "publish", "admin")

# The limits that can be overridden per user.
QUOTAS = (
    "body_bytes", "events_per_request", "connections_per_user", "subscriptions_per_user",
    "corners_per_user", "notes_per_minute", "targets_per_subscription", "token_age", "buffer",
    "trial_events", "trial_seconds", "trial_matches", "why_not_events", "matches_per_publish",
    "memory_per_user", "seconds_per_minute",
)  # fmt: skip

LOCAL = "local"  # the user of an open service
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_TOKEN = """
    SELECT tokens.id AS token, tokens.hash, tokens.scopes, tokens.expires, tokens.revoked,
        users.id AS user, users.name, users.quotas, users.off
    FROM tokens JOIN users ON users.id = tokens.user"""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A newly issued token; its text cannot be read again later."""

    id: int
    token: Annotated[str, Field(description="shown only once")] = field(repr=False)
    scopes: tuple[str, ...]
    expires: EpochTime | None


# -------------------------------------------------------------------------------- users


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
    row = (name, now, json.dumps(validate_quotas(quotas)))
    try:
        id = int(db.execute("INSERT INTO users (name, created, quotas) VALUES (?, ?, ?)", row).lastrowid or 0)
    except IntegrityError:
        raise ConflictError(f"there is already a user '{name}'\n  hint: choose another name") from None
    journal.record_action(db, by, "add user", f"user {id}", name, at=now)
    return id


def get_local_user(db: Connection) -> int:
    """Returns the user of an open or embedded service, created at first use."""
    row = find_user(db, LOCAL)
    if row is None:
        added = db.execute("INSERT INTO users (name, created) VALUES (?, ?)", (LOCAL, time.time()))
        return int(added.lastrowid or 0)
    return int(row["id"])


def find_user(db: Connection, name: str) -> Row | None:
    return _read_row(db, "SELECT * FROM users WHERE name = ?", name)


def get_user(db: Connection, id: int) -> Row:
    row = _read_row(db, "SELECT * FROM users WHERE id = ?", id)
    if row is None:
        raise NotFoundError(f"there is no user {id}")
    return row


def list_users(db: Connection) -> list[Row]:
    return db.execute("SELECT * FROM users ORDER BY id").fetchall()


def get_user_limits(db: Connection, user: int, limits: ServiceLimits) -> ServiceLimits:
    """Returns the limits of a service with the quotas of one user applied."""
    row = _read_row(db, "SELECT quotas FROM users WHERE id = ?", user)
    return limits if row is None else replace(limits, **json.loads(row["quotas"]))


def list_quotas(db: Connection, limit: str) -> list[float]:
    rows = db.execute("SELECT quotas FROM users WHERE quotas <> '{}'")
    quotas = (json.loads(row[0]) for row in rows)
    return [float(own[limit]) for own in quotas if limit in own]


def change_user(
    db: Connection, id: int, quotas: Mapping[str, Any] | None, off: bool | None, *, by: int, at: float
) -> Row:
    """Changes quotas, or disables or enables a user; one who is off cannot use any token."""
    row = get_user(db, id)
    wanted = row["quotas"] if quotas is None else json.dumps(validate_quotas(quotas))
    is_off = bool(row["off"]) if off is None else off
    db.execute("UPDATE users SET quotas = ?, off = ? WHERE id = ?", (wanted, is_off, id))
    detail = f"quotas {wanted}, {'off' if is_off else 'on'}"
    journal.record_action(db, by, "change user", f"user {id}", detail, at=at)
    return get_user(db, id)


def validate_quotas(quotas: Mapping[str, Any] | None) -> dict[str, Any]:
    for name in quotas or {}:
        if name not in QUOTAS:
            raise ServiceError(f"there is no quota '{name}'\n  hint: {did_you_mean(name, QUOTAS)}")
    limits = ServiceLimits.parse(quotas)
    return {name: getattr(limits, name) for name in quotas or {}}


# -------------------------------------------------------------------------------- tokens


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
    row = _read_row(db, f"SELECT * FROM users WHERE {'name' if isinstance(user, str) else 'id'} = ?", user)
    if row is None:
        raise NotFoundError(f"there is no user {user!r}\n  hint: add the user first")
    wanted = validate_scopes(scopes)
    most = get_user_limits(db, row["id"], limits or ServiceLimits()).token_age
    if age is not None and not 0 < age <= most:
        raise ServiceError(
            f"a token is valid for at most {most / 86_400:g} days, not for {age:g} seconds\n"
            "  hint: choose a shorter time, or raise the limit token_age"
        )
    text = "ens_" + secrets.token_urlsafe(32)
    expires = now + (most if age is None else age)
    added = db.execute(
        "INSERT INTO tokens (user, label, hash, scopes, created, expires) VALUES (?, ?, ?, ?, ?, ?)",
        (row["id"], label, hash_secret(text), " ".join(wanted), now, expires),
    )
    id = int(added.lastrowid or 0)
    journal.record_action(db, by, "add token", f"token {id}", f"{row['name']}: {', '.join(wanted)}", at=now)
    return IssuedToken(id, text, wanted, expires)


def validate_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Returns the scopes in canonical order, without duplicates."""
    wanted = [scopes] if isinstance(scopes, str) else list(scopes)
    for scope in wanted:
        if scope not in SCOPES:
            raise ServiceError(f"there is no scope '{scope}'\n  hint: {did_you_mean(scope, SCOPES)}")
    if not wanted:
        raise ServiceError(f"a token without a scope is useless\n  hint: {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in wanted)


def hash_secret(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def has_tokens(db: Connection) -> bool:
    """Whether any token was ever issued: expired ones count."""
    return _read_row(db, "SELECT 1 FROM tokens LIMIT 1") is not None


def find_token_by_hash(db: Connection, hash: bytes) -> Row | None:
    return _read_row(db, f"{_TOKEN} WHERE tokens.hash = ?", hash)


def list_tokens(db: Connection, user: int) -> list[Row]:
    """The tokens of a user, the newest first."""
    get_user(db, user)
    return db.execute("SELECT * FROM tokens WHERE user = ? ORDER BY id DESC", (user,)).fetchall()


def list_valid_credentials(db: Connection, at: float) -> frozenset[int | bytes]:
    """The ids of all valid tokens, and the hashes of their unexpired sessions."""
    rows = db.execute(
        "WITH valid AS (SELECT tokens.id FROM tokens JOIN users ON users.id = tokens.user WHERE NOT users.off "
        "AND tokens.revoked IS NULL AND (tokens.expires IS NULL OR tokens.expires > ?1)) SELECT id FROM valid "
        "UNION ALL SELECT hash FROM sessions JOIN valid ON token = valid.id WHERE expires > ?1",
        (at,),
    )
    return frozenset(row[0] for row in rows)


def record_use(db: Connection, token: int, at: float) -> None:
    db.execute("UPDATE tokens SET used = ? WHERE id = ?", (at, token))


def revoke_token(db: Connection, id: int, at: float, *, by: int = journal.ANONYMOUS) -> None:
    """Revokes a token and ends its sessions."""
    row = _read_row(db, "SELECT label FROM tokens WHERE id = ?", id)
    if row is None:
        raise NotFoundError(f"there is no token {id}")
    db.execute("UPDATE tokens SET revoked = ? WHERE id = ? AND revoked IS NULL", (at, id))
    db.execute("DELETE FROM sessions WHERE token = ?", (id,))
    journal.record_action(db, by, "revoke token", f"token {id}", row["label"], at=at)


# -------------------------------------------------------------------------------- sessions


def add_session(db: Connection, cookie: str, token: int, user: int, csrf: str, at: float, expires: float) -> None:
    """Adds a session, and deletes expired ones."""
    prune_sessions(db, at)
    db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", (hash_secret(cookie), token, csrf, at, expires))
    journal.record_action(db, user, "sign in", f"token {token}", at=at)


def find_session_by_hash(db: Connection, hash: bytes) -> Row | None:
    """A session with its token and user, by the hash of its cookie."""
    return _read_row(
        db,
        "SELECT found.*, sessions.csrf, sessions.expires AS session_expires, "
        "sessions.hash AS session_hash "
        f"FROM sessions JOIN ({_TOKEN}) AS found USING (token) WHERE sessions.hash = ?",
        hash,
    )


def prune_sessions(db: Connection, at: float) -> None:
    db.execute("DELETE FROM sessions WHERE expires <= ?", (at,))


def remove_session(db: Connection, hash: bytes, at: float) -> None:
    """Ends a session; an ended session is not an error."""
    row = find_session_by_hash(db, hash)
    if row is not None:
        db.execute("DELETE FROM sessions WHERE hash = ?", (hash,))
        journal.record_action(db, row["user"], "sign out", f"token {row['token']}", at=at)


def _read_row(db: Connection, text: str, *values: object) -> Row | None:
    row: Row | None = db.execute(text, values).fetchone()
    return row
