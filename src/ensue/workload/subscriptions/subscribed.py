"""A set of subscriptions as it is asked of a stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Entry:
    """One subscription of a set, as it was written."""

    name: str
    text: str
    language: str | None = None  # None: the one that the text looks like
    regions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    since: int = 0  # the version that holds it


@dataclass(frozen=True)
class Subscribed:
    """Subscriptions over one stream; in a folder they may change while it runs."""

    entries: tuple[Entry, ...]
    version: int = 0
    folder: str | None = None  # of its log of changes
