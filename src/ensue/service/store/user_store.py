"""Users, their tokens, and console sessions."""

from collections.abc import Iterable
from sqlite3 import Connection, IntegrityError, Row

from ensue.service.errors import ConflictError

_TOKEN = """
    SELECT tokens.id AS token, tokens.hash, tokens.scopes, tokens.expires, tokens.revoked,
        users.id AS user, users.name, users.quotas, users.off
    FROM tokens JOIN users ON users.id = tokens.user"""


# -------------------------------------------------------------------------------- users


def add_user(db: Connection, name: str, quotas: str, at: float) -> int:
    try:
        added = db.execute("INSERT INTO users (name, created, quotas) VALUES (?, ?, ?)", (name, at, quotas))
    except IntegrityError:
        raise ConflictError(f"there is already a user '{name}'\n  hint: choose another name") from None
    return int(added.lastrowid or 0)


def get_user(db: Connection, id: int) -> Row | None:
    return _read_row(db, "SELECT * FROM users WHERE id = ?", id)


def find_user(db: Connection, name: str) -> Row | None:
    return _read_row(db, "SELECT * FROM users WHERE name = ?", name)


def change_user(db: Connection, id: int, quotas: str, off: bool) -> None:
    """Sets quotas; a user who is off cannot use any token."""
    db.execute("UPDATE users SET quotas = ?, off = ? WHERE id = ?", (quotas, off, id))


# -------------------------------------------------------------------------------- tokens


def add_token(
    db: Connection, user: int, *, label: str, hash: bytes, scopes: Iterable[str], at: float, expires: float | None
) -> int:
    added = db.execute(
        "INSERT INTO tokens (user, label, hash, scopes, created, expires) VALUES (?, ?, ?, ?, ?, ?)",
        (user, label, hash, " ".join(scopes), at, expires),
    )
    return int(added.lastrowid or 0)


def find_token_by_hash(db: Connection, hash: bytes) -> Row | None:
    return _read_row(db, f"{_TOKEN} WHERE tokens.hash = ?", hash)


def get_token(db: Connection, id: int) -> Row | None:
    return _read_row(db, "SELECT * FROM tokens WHERE id = ?", id)


def list_tokens(db: Connection, user: int) -> list[Row]:
    """The tokens of a user, the newest first."""
    rows = db.execute("SELECT * FROM tokens WHERE user = ? ORDER BY id DESC", (user,))
    return rows.fetchall()


def list_valid_credentials(db: Connection, at: float) -> frozenset[int | bytes]:
    """The ids of all valid tokens, and the hashes of their unexpired sessions."""
    rows = db.execute(
        "SELECT tokens.id FROM tokens JOIN users ON users.id = tokens.user WHERE NOT users.off "
        "AND tokens.revoked IS NULL AND (tokens.expires IS NULL OR tokens.expires > ?)",
        (at,),
    )
    tokens = {row[0] for row in rows}
    sessions = db.execute("SELECT hash, token FROM sessions WHERE expires > ?", (at,))
    return frozenset(tokens | {hash for hash, token in sessions if token in tokens})


def revoke_token(db: Connection, id: int, at: float) -> None:
    """Revokes a token and ends its sessions."""
    db.execute("UPDATE tokens SET revoked = ? WHERE id = ? AND revoked IS NULL", (at, id))
    db.execute("DELETE FROM sessions WHERE token = ?", (id,))


# -------------------------------------------------------------------------------- sessions


def add_session(db: Connection, hash: bytes, token: int, csrf: str, at: float, expires: float) -> None:
    """Adds a session by the hash of its cookie, and deletes expired ones."""
    db.execute("DELETE FROM sessions WHERE expires <= ?", (at,))
    db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", (hash, token, csrf, at, expires))


def find_session_by_hash(db: Connection, hash: bytes) -> Row | None:
    """A session with its token and user, by the hash of its cookie."""
    return _read_row(
        db,
        "SELECT found.*, sessions.csrf, sessions.expires AS session_expires, "
        "sessions.hash AS session_hash "
        f"FROM sessions JOIN ({_TOKEN}) AS found USING (token) WHERE sessions.hash = ?",
        hash,
    )


def _read_row(db: Connection, text: str, *values: object) -> Row | None:
    row: Row | None = db.execute(text, values).fetchone()
    return row
