"""What a target signs with, and how secrets are sealed in the file of a service.

Secrets of webhooks, and passwords in the configurations of targets, are encrypted by Fernet
(AES-128-CBC with an HMAC) under a key that is not in the file.
"""

import logging
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from ensue.errors import StateError
from ensue.service.delivery.signing import Secret, new_secret, stored

SIGNED = ("webhook",)  # kinds of targets whose notes are signed
KEY = "ENSUE_SECRET_KEY"  # the environment variable
_CHECK = "sealed"  # the setting that shows whether a key is the right one
_CONTENT = b"ensue"
_SEALED = (("targets", "config"), ("targets", "secrets"), ("keys", "answer"))
_CACHED = 10_000  # texts that are kept open
_LOG = logging.getLogger(__name__)


def new_secrets(kind: str) -> list[dict[str, Any]]:
    """The secrets of a new target; none where it does not sign anything."""
    return stored([Secret(new_secret())]) if kind in SIGNED else []


class Seal:
    """Encrypts with the first of some keys, and decrypts what any of them has encrypted."""

    def __init__(self, keys: Sequence[str], path: str) -> None:
        try:
            fernets = [Fernet(key) for key in keys]
        except ValueError:
            raise StateError(
                f"a key for the secrets in {path} is not one\n"
                "  hint: 32 bytes in URL-safe base64, as Fernet.generate_key() of the package "
                "cryptography makes them"
            ) from None
        self._path = path
        self._newest = fernets[0]
        self._all = MultiFernet(fernets)
        self.unseal = lru_cache(_CACHED)(self._unseal)

    def seal(self, text: str) -> str:
        """A text that only the key opens."""
        return self._newest.encrypt(text.encode()).decode()

    def _unseal(self, sealed: str) -> str:
        return self._all.decrypt(sealed.encode()).decode()

    def settle(self, db: Connection) -> None:
        """Checks the keys; what is not sealed with the first one is sealed anew."""
        row = db.execute("SELECT value FROM settings WHERE name = ?", (_CHECK,)).fetchone()
        opened = "{}"
        if row is not None:
            try:
                self._newest.decrypt(row[0].encode())
                return
            except InvalidToken:
                opened = "unseal({})"
            try:
                self._all.decrypt(row[0].encode())
            except InvalidToken:
                raise StateError(
                    f"the secrets in {self._path} were sealed with another key\n"
                    f"  hint: {KEY} or the key file must have that key, too; after a new one and "
                    "a comma"
                ) from None
        for table, column in _SEALED:
            db.execute(f"UPDATE {table} SET {column} = seal({opened.format(column)})")
        db.execute(
            "INSERT OR REPLACE INTO settings VALUES (?, ?)", (_CHECK, self.seal(_CONTENT.decode()))
        )
        self.unseal.cache_clear()


def seal_of(path: str, db: Connection, key_file: str | Path | None = None) -> Seal:
    """The seal of a service's file: by the environment, or by a key file, made for a new file."""
    given = os.environ.get(KEY)
    if given:
        return Seal(_keys(given), path)
    place = Path(key_file) if key_file is not None else Path(f"{path}.key")
    try:
        text = place.read_text(encoding="ascii", errors="replace")
        narrow(place)
    except FileNotFoundError:
        if db.execute("SELECT 1 FROM settings WHERE name = ?", (_CHECK,)).fetchone():
            raise StateError(
                f"the key for the secrets in {path} is missing: there is no {place}\n"
                f"  hint: put it back, or set {KEY}"
            ) from None
        text = Fernet.generate_key().decode()
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StateError(
            f"the key file {place} cannot be read: {error.strerror or error}\n"
            f"  hint: make it readable for the service, or set {KEY}"
        ) from None
    return Seal(_keys(text), path)


def _keys(text: str) -> list[str]:
    return [key for key in text.replace(",", " ").split() if key] or [""]


def narrow(path: Path) -> None:
    """Closes a file to all but its owner."""
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        _LOG.warning("%s stays readable for others: %s", path, error.strerror or error)
