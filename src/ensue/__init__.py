"""Ensue: complex event processing on tables, Spark DataFrames and streams."""

from ensue.api import (
    EnsueError,
    EventError,
    Query,
    QueryError,
    RunnerError,
    StateError,
    explain,
    match,
    parse,
    picture,
    show,
)

__version__ = "0.1.0"

__all__ = [
    "EnsueError",
    "EventError",
    "Query",
    "QueryError",
    "RunnerError",
    "StateError",
    "__version__",
    "explain",
    "match",
    "parse",
    "picture",
    "show",
]
