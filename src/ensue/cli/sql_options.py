"""Options of SQL: the files that are its tables, and what is only for patterns."""

from argparse import ArgumentParser, Namespace

from ensue.cli.terminal import UsageError
from ensue.cli.text_options import Files

_SAYS_ITSELF = "the query says it in ORDER BY and PARTITION BY"
_NOT_NEEDED = {"time": _SAYS_ITSELF, "type": _SAYS_ITSELF, "order": _SAYS_ITSELF}
_OF_PATTERNS = (
    "timeouts", "flat", "levels", "trace", "picture", "statistics", "off", "structure", "archive",
    "archive_key", "access", "latency", "max_partial_matches",
)  # fmt: skip
_OF_STREAMS = (
    "watermark", "max_ahead", "checkpoint", "schema", "late", "once", "flush", "every", "evict",
    "shed", "packages", "jars", "history", "since", "allow_gap",
)  # fmt: skip


def table_option(parser: ArgumentParser) -> None:
    """Adds the option."""
    group = parser.add_argument_group("SQL with MATCH_RECOGNIZE, or a single clause")
    group.add_argument(
        "--table",
        metavar="[NAME=]PATH",
        action=Files,
        default=[],
        help="a table that the query names, from the same kinds of files as --events; without "
        "NAME it has the name of its file; repeat it for several tables",
    )


def require_pattern_options(options: Namespace) -> None:
    """Refuses what says something of SQL, where the query is a pattern."""
    if options.table:
        raise UsageError(
            "--table is for SQL, and this query is a pattern\n"
            "  hint: pass its events with --events"
        )


def require_no_stream(options: Namespace) -> None:
    """Refuses what says something of streams only."""
    given = _given(options, _OF_STREAMS)
    if given is not None:
        raise UsageError(f"--{given} is only for --stream, not for --events")


def require_sql_options(options: Namespace) -> None:
    """Refuses what says something of patterns or streams, where the query is SQL."""
    for name, why in _NOT_NEEDED.items():
        if getattr(options, name):
            raise UsageError(f"--{name} is not needed for SQL: {why}\n  hint: leave it out")
    given = _given(options, _OF_PATTERNS)
    if given is None and getattr(options, "bad_events", "raise") != "raise":
        given = "bad-events"
    if given is not None:
        raise UsageError(f"--{given} is for patterns, and this query is SQL")
    given = _given(options, _OF_STREAMS)
    if given is not None:
        raise UsageError(f"--{given} is for streams, and SQL runs on files here")


def _given(options: Namespace, names: tuple[str, ...]) -> str | None:
    """The first of these options that is on the command line, as it is written there."""
    given = (name.replace("_", "-") for name in names if getattr(options, name, None))
    return next(given, None)
