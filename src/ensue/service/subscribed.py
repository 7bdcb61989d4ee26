"""A subscription as its user sees it, and what a publish came to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from sqlite3 import Row
from typing import Any

from ensue.service.columns import iso


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription of a service."""

    id: int
    user: int
    name: str
    text: str
    state: str  # active, paused, ended
    language: str | None = None
    regions: Mapping[str, str] = field(default_factory=dict)
    template: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    quiet: float | None = None  # seconds of the stream's time
    reason: str | None = None
    created: float = 0.0
    changed: float = 0.0
    started: Mapping[str, Any] | None = None  # moment, at
    expires: float | None = None
    warnings: tuple[str, ...] = ()
    repeated: bool = False  # it was there already, by its idempotency key

    @classmethod
    def of(cls, row: Row, **more: Any) -> "Subscribed":
        """A row of the table."""
        template = json.loads(row["template"]) if row["template"] else {}
        return cls(
            row["id"], row["user"], row["name"], row["text"], row["state"], row["language"],
            json.loads(row["regions"]), template.get("name"), template.get("values", {}),
            row["quiet"], row["reason"], row["created"], row["changed"],
            json.loads(row["started"]) if row["started"] else None, row["expires"], **more,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """What JSON shows of it."""
        return {
            "id": self.id,
            "name": self.name,
            "user": self.user,
            "text": self.text,
            "language": self.language,
            "template": self.template,
            "values": dict(self.values),
            "regions": dict(self.regions),
            "state": self.state,
            "reason": self.reason,
            "created": iso(self.created),
            "changed": iso(self.changed),
            "started": None if self.started is None else dict(self.started),
            "expires": None if self.expires is None else iso(self.expires),
            "quiet": self.quiet,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class Published:
    """What became of events that were published. They are on disk."""

    accepted: int
    repeated: int  # that had come before, by producer and sequence
    bad: int  # put aside
    late: int  # behind the watermark: counted, not matched
    position: int  # of the batch that has them; 0: none was new
    notes: int = 0  # that went out with the batch, from all events in it

    def as_dict(self) -> dict[str, int]:
        """What JSON shows of it."""
        return {
            "accepted": self.accepted,
            "repeated": self.repeated,
            "bad": self.bad,
            "late": self.late,
            "position": self.position,
        }
