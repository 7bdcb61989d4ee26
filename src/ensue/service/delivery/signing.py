"""Webhook secrets and their rotation; requests are signed by Standard Webhooks."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import token_bytes
from typing import Any

from standardwebhooks import Webhook

from ensue.errors import ServiceError
from ensue.service.delivery.sink import get_message_id
from ensue.service.notification import Notification

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
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
    """Converts secrets to JSON objects."""
    return [{"secret": secret.text, "until": secret.until} for secret in secrets]


def decode_secrets(objects: Sequence[Mapping[str, Any]]) -> tuple[SigningSecret, ...]:
    """Reads secrets from JSON objects."""
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
    """The secrets that are valid now."""
    return tuple(each for each in secrets if each.until is None or each.until > now)


def sign_request(notification: Notification, now: float, secrets: Sequence[SigningSecret]) -> dict[str, str]:
    """Returns the headers of a request, with a signature for each valid secret."""
    message, timestamp = get_message_id(notification), int(now)
    signed_at, body = datetime.fromtimestamp(timestamp, UTC), notification.body.decode()
    valid = select_valid(secrets, now)
    signatures = (Webhook(secret.text).sign(message, signed_at, body) for secret in valid)
    return {ID: message, TIMESTAMP: str(timestamp), SIGNATURE: " ".join(signatures)}
