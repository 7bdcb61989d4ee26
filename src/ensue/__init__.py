"""Ensue: complex event processing on tables, Spark DataFrames and streams."""

from ensue.api import (
    EnsueError,
    EventError,
    Query,
    QueryError,
    RunnerError,
    StateError,
    Statistics,
    delta_table,
    explain,
    kafka_topic,
    match,
    parquet_table,
    parse,
    picture,
    progress_of,
    remaining,
    show,
    start,
)

__version__ = "0.1.0"

__all__ = [
    "EnsueError",
    "EventError",
    "Query",
    "QueryError",
    "RunnerError",
    "StateError",
    "Statistics",
    "__version__",
    "delta_table",
    "explain",
    "kafka_topic",
    "match",
    "parquet_table",
    "parse",
    "picture",
    "progress_of",
    "remaining",
    "show",
    "start",
]
