"""Idempotency keys: what a request was answered, in case that it comes once more."""

import hashlib
import time
from sqlite3 import Connection

from ensue.service.refusals import ConflictError, OverLimitError

KEPT = 86_400.0  # seconds
LONGEST = 255  # characters of a key


def digest_of(*parts: bytes) -> bytes:
    """What tells one request from another that has the same key.

    >>> digest_of(b"ab", b"c") == digest_of(b"a", b"bc")
    False
    """
    found = hashlib.sha256()
    for part in parts:
        found.update(b"%d:%b" % (len(part), part))
    return found.digest()


def answered(
    db: Connection, user: int, key: str, digest: bytes, *, at: float | None = None
) -> str | None:
    """The answer that the same request got, or None. Another request is refused."""
    if len(key) > LONGEST:
        raise OverLimitError("key", f"an idempotency key has at most {LONGEST} characters")
    now = time.time() if at is None else at
    found = db.execute(
        "SELECT digest, answer FROM keys WHERE user = ? AND key = ? AND at > ?",
        (user, key, now - KEPT),
    ).fetchone()
    if found is None:
        return None
    if found["digest"] != digest:
        raise ConflictError(
            f"the idempotency key '{key}' came with another request already\n"
            "  hint: a key is for one request and its repetitions; make a new one"
        )
    return str(found["answer"])


def remember(
    db: Connection, user: int, key: str, digest: bytes, answer: str, *, at: float | None = None
) -> None:
    """Keeps the answer, in the transaction that does what was asked for."""
    now = time.time() if at is None else at
    db.execute(
        "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?)", (user, key, digest, answer, now)
    )


def forget(db: Connection, *, at: float | None = None) -> int:
    """Removes keys that are too old to be repeated, and says how many."""
    now = time.time() if at is None else at
    return db.execute("DELETE FROM keys WHERE at <= ?", (now - KEPT,)).rowcount
