"""What a target signs with."""

from typing import Any

from ensue.service.delivery.signing import Secret, new_secret, stored

SIGNED = ("webhook",)  # kinds of targets whose notes are signed


def new_secrets(kind: str) -> list[dict[str, Any]]:
    """The secrets of a new target; none where it does not sign anything."""
    return stored([Secret(new_secret())]) if kind in SIGNED else []
