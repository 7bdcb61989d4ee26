"""Signatures of webhooks by the Standard Webhooks scheme, made and verified."""

import base64
import binascii
import hmac
import secrets as entropy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ensue.errors import ServiceError
from ensue.service.notes import MATCH, Note

PREFIX = "whsec_"
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TOLERANCE = 300.0  # seconds that the clocks of sender and receiver may differ
_BYTES = 32
_LEAST, _MOST = 24, 64  # bytes of a secret, says the scheme


class SignatureError(ServiceError):
    """A request that was not signed by who should have sent it, or that is too old."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret that requests are signed with, for ever or until a moment."""

    text: str
    until: float | None = None  # seconds since 1970

    def __post_init__(self) -> None:
        key_of(self.text)

    def __repr__(self) -> str:
        return f"Secret(..., until={self.until})"  # it must not get into logs


def new_secret() -> str:
    """A secret as a receiver is given it."""
    return PREFIX + base64.b64encode(entropy.token_bytes(_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The bytes of a secret.

    >>> len(key_of(new_secret()))
    32
    """
    text = secret.removeprefix(PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not _LEAST <= len(key) <= _MOST:
        raise ServiceError(
            f"not a webhook secret\n  hint: '{PREFIX}' and {_LEAST} to {_MOST} bytes in base64"
        )
    return key


# ------------------------------------------------------------------------------- as it is stored


def stored(found: Sequence[Secret]) -> list[dict[str, Any]]:
    """Secrets as JSON keeps them."""
    return [{"secret": one.text, "until": one.until} for one in found]


def from_stored(found: Sequence[Mapping[str, Any]]) -> tuple[Secret, ...]:
    """The way back."""
    return tuple(Secret(one["secret"], one.get("until")) for one in found)


def rotated(found: Sequence[Secret], fresh: str, now: float, keep: float) -> tuple[Secret, ...]:
    """The fresh secret, and the one before it for `keep` more seconds.

    There are never more than two: a second rotation ends the secret before the last.

    >>> old, new = new_secret(), new_secret()
    >>> rotated([Secret(old)], new, now=100.0, keep=60.0) == (Secret(new), Secret(old, 160.0))
    True
    """
    current = [one for one in in_force(found, now) if keep > 0]
    kept = [
        Secret(one.text, min(now + keep, one.until or float("inf")))
        for one in current[:1]
        if one.text != fresh
    ]
    return (Secret(fresh), *kept)


def in_force(found: Sequence[Secret], now: float) -> tuple[Secret, ...]:
    """The secrets that requests are signed with now."""
    return tuple(one for one in found if one.until is None or one.until > now)


# ------------------------------------------------------------------------------- making


def message_id(note: Note) -> str:
    """What a receiver knows a note by, however often it comes."""
    if note.kind == MATCH and note.match_id is not None:
        return note.match_id
    return f"sub_{note.subscription}_{note.kind}_{note.number}"


def signature(secret: str, message: str, timestamp: int, body: bytes) -> str:
    """One signature, with its version."""
    signed = f"{message}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key_of(secret), signed, sha256)).decode()


def signed_headers(note: Note, now: float, found: Sequence[Secret]) -> dict[str, str]:
    """The three headers of a request: a signature for each secret in force."""
    message, timestamp = message_id(note), int(now)
    signatures = (
        signature(one.text, message, timestamp, note.body) for one in in_force(found, now)
    )
    return {ID: message, TIMESTAMP: str(timestamp), SIGNATURE: " ".join(signatures)}


# ------------------------------------------------------------------------------- verifying


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Sequence[str],
    tolerance: float = TOLERANCE,
    *,
    now: float | None = None,
) -> str:
    """Checks that a request comes from who knows one of the secrets; gives its `webhook-id`.

    `body` is what came, byte for byte. A receiver that has seen the `webhook-id` before drops
    the request and answers 2xx.
    """
    given = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in (ID, TIMESTAMP, SIGNATURE) if not given.get(name)]
    if missing:
        raise SignatureError(f"the request has no header {' and no '.join(missing)}")
    try:
        timestamp = int(given[TIMESTAMP])
    except ValueError:
        raise SignatureError(f"{TIMESTAMP} is not a number of seconds") from None
    apart = (time.time() if now is None else now) - timestamp
    if abs(apart) > tolerance:
        when = "ago" if apart > 0 else "ahead"
        raise SignatureError(
            f"the request was signed {abs(apart):.0f} seconds {when}, the limit is {tolerance:g}\n"
            "  hint: set the clock of this machine, or drop the request: it may be a copy"
        )
    known = [secrets] if isinstance(secrets, str) else list(secrets)
    expected = [signature(one, given[ID], timestamp, body).encode() for one in known]
    offered = [one.encode() for one in given[SIGNATURE].split(" ")]
    # All are compared, so that the time it takes tells nothing.
    fits = [hmac.compare_digest(one, other) for one in expected for other in offered]
    if not any(fits):
        raise SignatureError(
            "no signature of the request matches\n"
            "  hint: verify the raw bytes of the body, with the secret of this target"
        )
    return given[ID]
