"""Secrets of webhooks, and the encryption of secrets in the database.

Requests of webhooks are signed by Standard Webhooks. Webhook secrets and passwords of targets are
encrypted by Fernet (AES-128-CBC with an HMAC) under a key that is not in the database.
"""

import base64
import binascii
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from secrets import token_bytes
from sqlite3 import Connection
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from standardwebhooks import Webhook

from ensue.errors import ServiceError, StateError
from ensue.service.store.outbox import Notification

ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"
_PREFIX = "whsec_"
_LEAST, _MOST = 24, 64  # bytes of a secret, by the specification


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """A secret that signs requests, optionally until a time."""

    text: str
    until: float | None = None  # seconds since 1970

    def __post_init__(self) -> None:
        encoded = self.text.removeprefix(_PREFIX)
        try:
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not _LEAST <= len(key) <= _MOST:
            raise ServiceError(f"not a webhook secret\n  hint: '{_PREFIX}' and {_LEAST} to {_MOST} bytes in base64")

    def __repr__(self) -> str:
        return f"SigningSecret(..., until={self.until})"  # keeps the secret out of logs


def new_secret() -> str:
    """Creates a secret in the text form of Standard Webhooks."""
    return _PREFIX + base64.b64encode(token_bytes(32)).decode()


def encode_secrets(secrets: Sequence[SigningSecret]) -> list[dict[str, Any]]:
    return [{"secret": secret.text, "until": secret.until} for secret in secrets]


def decode_secrets(objects: Sequence[Mapping[str, Any]]) -> tuple[SigningSecret, ...]:
    return tuple(SigningSecret(each["secret"], each.get("until")) for each in objects)


def rotate_secrets(secrets: Sequence[SigningSecret], fresh: str, now: float, keep: float) -> tuple[SigningSecret, ...]:
    """Returns the new secret, and the previous one for `keep` more seconds.

    There are never more than two: a second rotation drops the oldest.
    """
    current = select_valid(secrets, now)[:1] if keep > 0 else ()
    kept = [
        SigningSecret(secret.text, min(now + keep, secret.until or float("inf")))
        for secret in current
        if secret.text != fresh
    ]
    return (SigningSecret(fresh), *kept)


def select_valid(secrets: Sequence[SigningSecret], now: float) -> tuple[SigningSecret, ...]:
    return tuple(each for each in secrets if each.until is None or each.until > now)


def sign_request(notification: Notification, now: float, secrets: Sequence[SigningSecret]) -> dict[str, str]:
    """Returns the headers of a request, with a signature for each valid secret."""
    message, timestamp = notification.message_id, int(now)
    signed_at, body = datetime.fromtimestamp(timestamp, UTC), notification.body.decode()
    valid = select_valid(secrets, now)
    signatures = (Webhook(secret.text).sign(message, signed_at, body) for secret in valid)
    return {ID_HEADER: message, TIMESTAMP_HEADER: str(timestamp), SIGNATURE_HEADER: " ".join(signatures)}


SIGNED_KINDS = ("webhook",)  # kinds of targets whose deliveries are signed
KEY_VARIABLE = "ENSUE_SECRET_KEY"  # the environment variable
_CHECK = "sealed"  # the setting that verifies a key
_CONTENT = b"ensue"
_SEALED = (("targets", "config"), ("targets", "secrets"), ("keys", "answer"))
_CACHED = 10_000  # decrypted texts
_LOG = logging.getLogger(__name__)


def create_secrets(kind: str) -> list[dict[str, Any]]:
    """Creates the secrets of a new target; empty for kinds that are not signed."""
    return encode_secrets([SigningSecret(new_secret())]) if kind in SIGNED_KINDS else []


class SecretCipher:
    """Encrypts with the first key, and decrypts with any of the keys."""

    def __init__(self, keys: Sequence[str], path: str) -> None:
        try:
            fernets = [Fernet(key) for key in keys]
        except ValueError:
            raise StateError(
                f"a key for the secrets in {path} is invalid\n"
                "  hint: 32 bytes in URL-safe base64, made by Fernet.generate_key() of "
                "the package cryptography"
            ) from None
        self._path = path
        self._newest = fernets[0]
        self._all = MultiFernet(fernets)
        decrypt = self._all.decrypt
        self.unseal = lru_cache(_CACHED)(lambda sealed: decrypt(sealed.encode()).decode())

    def seal(self, text: str) -> str:
        return self._newest.encrypt(text.encode()).decode()

    def settle(self, db: Connection) -> None:
        """Verifies the keys, and re-encrypts secrets that are not encrypted with the first one."""
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
                    f"the secrets in {self._path} were encrypted with another key\n"
                    f"  hint: add that key to {KEY_VARIABLE} or the key file, after the new one and a comma"
                ) from None
        for table, column in _SEALED:
            db.execute(f"UPDATE {table} SET {column} = seal({opened.format(column)})")
        db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (_CHECK, self.seal(_CONTENT.decode())))
        self.unseal.cache_clear()


def load_cipher(path: str, db: Connection, key_file: str | Path | None = None) -> SecretCipher:
    """Loads the key from the environment or a key file, which is created for a new database."""
    keys = os.environ.get(KEY_VARIABLE)
    if keys:
        return SecretCipher(_keys(keys), path)
    place = Path(key_file) if key_file is not None else Path(f"{path}.key")
    try:
        text = place.read_text(encoding="ascii", errors="replace")
        restrict_permissions(place)
    except FileNotFoundError:
        if db.execute("SELECT 1 FROM settings WHERE name = ?", (_CHECK,)).fetchone():
            raise StateError(
                f"the key for the secrets in {path} is missing: there is no {place}\n"
                f"  hint: put it back, or set {KEY_VARIABLE}"
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
            f"  hint: make it readable for the service, or set {KEY_VARIABLE}"
        ) from None
    return SecretCipher(_keys(text), path)


def _keys(text: str) -> list[str]:
    return [key for key in text.replace(",", " ").split() if key] or [""]


def restrict_permissions(path: Path) -> None:
    """Makes a file accessible to its owner only."""
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        _LOG.warning("%s stays readable for other users: %s", path, error.strerror or error)
