"""Idempotency keys: what a request was answered, in case that it comes once more.

An answer is the id of what was made, and below it the body that the client got, once it is known.
It is sealed, because the answer to a new webhook has its secret.
"""

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
    """The id of what the same request made, or None. Another request is refused."""
    if len(key) > LONGEST:
        raise OverLimitError("key", f"an idempotency key has at most {LONGEST} characters")
    now = time.time() if at is None else at
    found = db.execute(
        "SELECT digest, unseal(answer) AS answer FROM keys WHERE user = ? AND key = ? AND at > ?",
        (user, key, now - KEPT),
    ).fetchone()
    if found is None:
        return None
    if found["digest"] != digest:
        raise ConflictError(
            f"the idempotency key '{key}' was already used for another request\n"
            "  hint: a key is for one request and its repetitions; use a new one"
        )
    return str(found["answer"]).partition("\n")[0]


def remember(
    db: Connection, user: int, key: str, digest: bytes, made: str, *, at: float | None = None
) -> None:
    """Keeps the id of what was made, in the transaction that makes it."""
    now = time.time() if at is None else at
    db.execute(
        "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, seal(?), ?)", (user, key, digest, made, now)
    )


def complete(db: Connection, user: int, key: str, body: str) -> str:
    """Keeps the body that the client gets, unless there is one; gives the one that is kept."""
    row = db.execute(
        "SELECT unseal(answer) AS answer FROM keys WHERE user = ? AND key = ?", (user, key)
    ).fetchone()
    made, _, known = row["answer"].partition("\n") if row is not None else ("", "", body)
    if not known:
        db.execute(
            "UPDATE keys SET answer = seal(?) WHERE user = ? AND key = ?",
            (f"{made}\n{body}", user, key),
        )
    return known or body


def forget(db: Connection, *, at: float | None = None) -> int:
    """Removes keys that are too old to be repeated, and says how many."""
    now = time.time() if at is None else at
    return db.execute("DELETE FROM keys WHERE at <= ?", (now - KEPT,)).rowcount
