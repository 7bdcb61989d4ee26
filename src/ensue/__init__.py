"""Ensue: complex event processing on tables, Spark DataFrames and streams."""

from typing import TYPE_CHECKING, Any

from ensue.api import (
    ArchiveJoinQuery,
    ArchiveWarning,
    Definition,
    EnsueError,
    EventError,
    Hierarchy,
    LimitError,
    LimitWarning,
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
    UserOperator,
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
    "ArchiveJoinQuery",
    "ArchiveWarning",
    "Definition",
    "EnsueError",
    "EventError",
    "Hierarchy",
    "LimitError",
    "LimitWarning",
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
    "UserOperator",
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
    """Registers the cell magic `%%ensue` for `%load_ext ensue` in a notebook."""
    from ensue.notebook import load_ipython_extension

    load_ipython_extension(ipython)


def __getattr__(name: str) -> Any:
    """Loads the service on first use, since it needs optional packages."""
    if name != "Service":
        raise AttributeError(f"module 'ensue' has no attribute {name!r}")
    from ensue.optional_deps import require_extra

    with require_extra("the service", "service"):
        from ensue.service.service import Service
    return Service
