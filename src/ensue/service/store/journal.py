"""Audit log, bad events, counters, regions, producer positions and idempotency keys."""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from sqlite3 import Connection, Row
from typing import Any

from ensue.service.errors import ConflictError, OverLimitError

ANONYMOUS = 0  # user id of somebody who could not sign in


def record_action(
    db: Connection, user: int, action: str, subject: object = "", detail: str = "", *, at: float | None = None
) -> None:
    """Records an action of a user, in the transaction that performs it."""
    db.execute(
        "INSERT INTO audit (at, user, action, subject, detail) VALUES (?, ?, ?, ?, ?)",
        (time.time() if at is None else at, user, action, str(subject), detail),
    )


def read_audit_log(db: Connection, user: int | None, before: int | None, limit: int) -> list[dict[str, Any]]:
    """Reads entries of one user or of all, newest first; `before` continues after an entry."""
    of_user = "" if user is None else "AND audit.user = ?2"  # by its index
    rows = db.execute(
        "SELECT audit.*, (SELECT name FROM users WHERE users.id = audit.user) AS name FROM audit "
        f"WHERE id < ?1 {of_user} ORDER BY id DESC LIMIT ?3",
        (1 << 62 if before is None else before, user, limit),
    )
    return list(map(dict, rows))


# -------------------------------------------------------------------------------- bad events


def add_bad_events(db: Connection, at: float, user: int, producer: str | None, bad: Iterable[tuple[str, str]]) -> None:
    """Stores rejected events of a producer, given as (reason, event)."""
    db.executemany(
        "INSERT INTO bad_events (at, user, producer, reason, event) VALUES (?, ?, ?, ?, ?)",
        ((at, user, producer, reason, event) for reason, event in bad),
    )


def list_bad_events(db: Connection, user: int | None, before: int, most: int) -> list[dict[str, Any]]:
    """Reads the newest bad events of a user, or of all users."""
    rows = db.execute(
        "SELECT b.id, b.at, u.name AS user, b.producer, b.reason, b.event FROM bad_events b "
        "LEFT JOIN users u ON u.id = b.user "
        "WHERE (?1 IS NULL OR b.user = ?1) AND b.id < ?2 ORDER BY b.id DESC LIMIT ?3",
        (user, before, most),
    )
    return list(map(dict, rows))


def count_bad_events(db: Connection, *, user: int | None = None, since: float = 0.0) -> int:
    row = db.execute("SELECT count(*) FROM bad_events WHERE at >= ?1 AND (?2 IS NULL OR user = ?2)", (since, user))
    return int(row.fetchone()[0])


def prune(db: Connection, now: float, *, audit_age: float, bad_events: int) -> None:
    """Deletes old idempotency keys and audit entries, and all but the newest bad events."""
    db.execute("DELETE FROM keys WHERE at <= ?", (now - KEY_TTL,))
    db.execute("DELETE FROM audit WHERE at < ?", (now - audit_age,))
    db.execute("DELETE FROM bad_events WHERE id <= (SELECT max(id) FROM bad_events) - ?", (bad_events,))


# -------------------------------------------------------------------------------- counters

SERVICE_COUNTERS = 0  # in place of a subscription: the counters of the service


def increment(db: Connection, subscription: int, name: str, by: int = 1) -> None:
    increment_all(db, [(subscription, name, by)])


def increment_all(db: Connection, counted: Iterable[tuple[int, str, int]]) -> None:
    """Adds to counters, given as (subscription, name, increment)."""
    db.executemany(
        "INSERT INTO counters VALUES (?, ?, ?) "
        "ON CONFLICT (subscription, name) DO UPDATE SET value = value + excluded.value",
        counted,
    )


def read_counters(db: Connection, subscription: int) -> dict[str, int]:
    rows = db.execute("SELECT name, value FROM counters WHERE subscription = ?", (subscription,))
    return dict(map(tuple, rows))


def sum_counters(db: Connection) -> dict[str, int]:
    return dict(map(tuple, db.execute("SELECT name, sum(value) FROM counters GROUP BY name")))


def read_counters_by_subscription(
    db: Connection, user: int | None, most: int
) -> tuple[list[tuple[str, int, int, int]], int]:
    """Reads (name, subscription, user, value) of the subscriptions with the highest values, of a user
    or of all, and how many subscriptions have counters."""
    of_user = """
        FROM counters c JOIN subscriptions s ON s.id = c.subscription
        WHERE c.subscription <> 0 AND (?1 IS NULL OR s.user = ?1)"""
    rows = db.execute(
        f"""WITH own AS (SELECT c.name, c.subscription, s.user, c.value {of_user}),
        most AS (
            SELECT subscription FROM own GROUP BY subscription
            ORDER BY sum(value) DESC, subscription LIMIT ?2)
        SELECT * FROM own WHERE subscription IN (SELECT subscription FROM most)
        ORDER BY name, subscription""",
        (user, most),
    )
    known = db.execute(f"SELECT count(DISTINCT c.subscription) {of_user}", (user,)).fetchone()[0]
    return [tuple(row) for row in rows], known


# -------------------------------------------------------------------------------- regions


def put_region(db: Connection, user: int, name: str, text: str) -> None:
    db.execute(
        "INSERT INTO regions (user, name, text, created) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (user, name) DO UPDATE SET text = excluded.text",
        (user, name, text, time.time()),
    )


def list_regions(db: Connection, user: int) -> dict[str, str]:
    rows = db.execute("SELECT name, text FROM regions WHERE user = ? ORDER BY name", (user,))
    return dict(map(tuple, rows))


def get_region(db: Connection, user: int, name: str) -> Row | None:
    row: Row | None = db.execute("SELECT * FROM regions WHERE user = ? AND name = ?", (user, name)).fetchone()
    return row


def count_region_corners(db: Connection, user: int) -> int:
    """About the number of corners in the regions of a user, without parsing them: one comma per
    corner, and one more between rings."""
    row = db.execute(
        "SELECT coalesce(sum(length(text) - length(replace(text, ',', ''))), 0) FROM regions WHERE user = ?", (user,)
    ).fetchone()
    return int(row[0])


def remove_region(db: Connection, user: int, name: str) -> bool:
    """Deletes a region; returns whether it existed."""
    cursor = db.execute("DELETE FROM regions WHERE user = ? AND name = ?", (user, name))
    return cursor.rowcount > 0


# -------------------------------------------------------------------------------- producers


def get_next_sequence(db: Connection, producer: str, user: int) -> int | None:
    """The next expected sequence number, or None for a new producer."""
    row = db.execute("SELECT next FROM positions WHERE producer = ?", (_qualify(producer, user),)).fetchone()
    return None if row is None else int(row[0])


def set_next_sequence(db: Connection, producer: str, user: int, next: int, at: float) -> None:
    """Records that events before `next` were accepted."""
    db.execute(
        "INSERT INTO positions VALUES (?, ?, ?, ?) ON CONFLICT (producer) "
        "DO UPDATE SET next = max(next, excluded.next), at = excluded.at",
        (_qualify(producer, user), user, next, at),
    )


def select_new_events(sequences: Sequence[int], expected: int | None) -> list[int]:
    """Returns the indexes of events that were not accepted before; gaps are allowed.

    Events of one message share its number and arrive together.

    >>> select_new_events([3, 4, 4, 7], 4)
    [1, 2, 3]
    """
    new: list[int] = []
    last = None if expected is None else expected - 1
    for place, number in enumerate(sequences):
        if last is None or number > last or (new and number == last):
            new.append(place)
            last = number
    return new


def list_producers(db: Connection, user: int | None) -> list[dict[str, Any]]:
    rows = db.execute(
        "SELECT producer, user, next, at FROM positions WHERE ?1 IS NULL OR user = ?1 ORDER BY producer", (user,)
    )
    return [{**dict(row), "producer": row["producer"].partition("/")[2]} for row in rows]


def _qualify(producer: str, user: int) -> str:
    """Makes the name of a producer unique among users."""
    return f"{user}/{producer}"


# -------------------------------------------------------------------------------- idempotency keys

KEY_TTL = 86_400.0  # seconds
MAX_KEY_LENGTH = 255  # characters of a key


def compute_digest(*parts: bytes) -> bytes:
    """Computes the digest that distinguishes requests with the same key.

    >>> compute_digest(b"ab", b"c") == compute_digest(b"a", b"bc")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:%b" % (len(part), part))
    return digest.digest()


def answer_once(db: Connection, user: int, key: str | None, digest: bytes, create: Callable[[], str]) -> str:
    """Returns the answer of `create`, or the stored one if the same request with this key had an answer.

    It is stored in the transaction that creates the objects; a different request is rejected.
    """
    if key is None:
        return create()
    if len(key) > MAX_KEY_LENGTH:
        raise OverLimitError("key", f"an idempotency key has at most {MAX_KEY_LENGTH} characters")
    now = time.time()
    row = db.execute(
        "SELECT digest, unseal(answer) AS answer FROM keys WHERE user = ? AND key = ? AND at > ?",
        (user, key, now - KEY_TTL),
    ).fetchone()
    if row is None:
        answer = create()
        db.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?, seal(?), ?)", (user, key, digest, answer, now))
        return answer
    if row["digest"] != digest:
        raise ConflictError(
            f"the idempotency key '{key}' was already used for another request\n"
            "  hint: a key is for one request and its repetitions; use a new one"
        )
    return str(row["answer"])
