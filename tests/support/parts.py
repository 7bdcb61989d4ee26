"""Tables of a few events that threads match in parts, as they do large ones."""

from typing import Any

import pytest

import ensue
from ensue.operators.match import parallel_match
from ensue.runtime import compiled_query, table_parts


def make_parts_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_query, "MANY_EVENTS", 1)
    for name, size in {"BLOCK": 8, "PART": 4, "LEAST": 2, "SAMPLE": 4}.items():
        monkeypatch.setattr(table_parts, name, size)
    for name, size in {"SAMPLE": 4, "MIN_MATCHES": 1, "MOST_OVERLAP": 9}.items():
        monkeypatch.setattr(parallel_match, name, size)


def match(events: Any, query: Any, threads: int | None, *options: Any, **arguments: Any) -> Any:
    """What `ensue.match` finds with some threads."""
    return ensue.match(events, query, options=[ensue.Limits(threads=threads), *options], **arguments)
