"""Ensue: complex event processing on tables, Spark DataFrames and streams."""

from typing import TYPE_CHECKING, Any

from ensue.api import (
    ArchiveWarning,
    Correlation,
    Definition,
    EnsueError,
    EventError,
    LimitError,
    LimitWarning,
    Operator,
    OperatorError,
    PatternBuilder,
    Query,
    QueryError,
    RunnerError,
    ServiceError,
    SkipError,
    StateError,
    Statistics,
    Subscription,
    Subscriptions,
    SubscriptionWarning,
    Tower,
    all_of,
    append_archive,
    archive,
    compact_archive,
    create_archive,
    define,
    delta_table,
    explain,
    kafka_topic,
    live,
    match,
    one_of,
    operator,
    parquet_table,
    parse,
    pattern,
    picture,
    plot,
    progress_of,
    remaining,
    show,
    sql,
    start,
    statistics,
    trace,
    wait,
)

if TYPE_CHECKING:
    from ensue.service.service import Service

__version__ = "0.1.0"

__all__ = [
    "ArchiveWarning",
    "Correlation",
    "Definition",
    "EnsueError",
    "EventError",
    "LimitError",
    "LimitWarning",
    "Operator",
    "OperatorError",
    "PatternBuilder",
    "Query",
    "QueryError",
    "RunnerError",
    "Service",
    "ServiceError",
    "SkipError",
    "StateError",
    "Statistics",
    "Subscription",
    "SubscriptionWarning",
    "Subscriptions",
    "Tower",
    "__version__",
    "all_of",
    "append_archive",
    "archive",
    "compact_archive",
    "create_archive",
    "define",
    "delta_table",
    "explain",
    "kafka_topic",
    "live",
    "match",
    "one_of",
    "operator",
    "parquet_table",
    "parse",
    "pattern",
    "picture",
    "plot",
    "progress_of",
    "remaining",
    "show",
    "sql",
    "start",
    "statistics",
    "trace",
    "wait",
]


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext ensue` in a notebook: queries in cells that begin with `%%ensue`."""
    from ensue.notebook import load_ipython_extension

    load_ipython_extension(ipython)


def __getattr__(name: str) -> Any:
    """The service is loaded when it is asked for: it needs packages of its own."""
    if name != "Service":
        raise AttributeError(f"module 'ensue' has no attribute {name!r}")
    from ensue.extras import needed

    with needed("the service", "service"):
        from ensue.service.service import Service
    return Service
