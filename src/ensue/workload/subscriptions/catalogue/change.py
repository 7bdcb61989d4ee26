"""One change of a set of subscriptions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Kind(Enum):
    """What happens to a subscription. The numbers are those in files."""

    ADD = 0
    CANCEL = 1
    REPLACE = 2  # its state is lost, as if it were cancelled and added


@dataclass(frozen=True, slots=True)
class Change:
    """A subscription that comes, goes, or becomes another one of the same name."""

    kind: Kind
    name: str
    text: str | None = None  # None: it goes
    language: str | None = None
    regions: Mapping[str, str] = field(default_factory=lambda: _NOTHING)  # that its text names
    options: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)  # what JSON can hold

    @classmethod
    def add(cls, name: str, text: str, **rest: Any) -> "Change":
        return cls(Kind.ADD, name, text, **rest)

    @classmethod
    def cancel(cls, name: str) -> "Change":
        return cls(Kind.CANCEL, name)

    @classmethod
    def replace(cls, name: str, text: str, **rest: Any) -> "Change":
        return cls(Kind.REPLACE, name, text, **rest)
