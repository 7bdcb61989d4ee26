"""The command line: commands, options and exit codes."""

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

from ensue.cli.command_options import (
    add_archive_actions,
    add_serve_options,
    add_table_option,
    add_token_options,
)
from ensue.cli.options import (
    FilesAction,
    add_archive_options,
    add_limit_options,
    add_parameter_option,
    add_planning_options,
    add_text_options,
    take_query,
)
from ensue.cli.terminal import ExitCode, UsageError, plain_warnings, print_error
from ensue.errors import EnsueError, EventError, RunnerError

_ENGINES = ("local", "spark")
_FORMATS = ("table", "json", "csv", "parquet")
_ENDING = """\
exit codes:
  0    success, with or without matches
  2    wrong usage, or an invalid query
  3    unreadable events
  4    the engine is not available (no Spark, no Java) or failed
  130  interrupted by Ctrl-C, the usual way to stop a stream
"""
_FIRST = """\
Finds patterns of events in files and streams: complex event processing.

  ensue run theft.ensue --events readings.parquet --time ts --type reader
        prints the matches of a query, given as a file or as quoted text
  ensue explain theft.ensue
        shows the execution plan of a query

`ensue COMMAND --help` lists the options of a command.
"""
_EXAMPLES = """\
more examples:
  ensue run "SEQ(A a, B b) WHERE [id] WITHIN 5 minutes" --events A=a.csv --events B=b.csv
  ensue run theft.ensue --events readings.parquet --type reader --trace 1
  ensue run theft.ensue return.ensue --events readings.parquet --type reader --output found/
  cat query.ensue | ensue run - --events trades.csv --output found.jsonl
  ensue run v_shapes.sql --table prices=prices.csv --output found.parquet
  ensue run theft.ensue --stream readings/ --time ts --type reader \\
      --watermark "1 minute" --checkpoint state/ --output thefts/
  ensue run "SEQ(A a, !B b, C c) WHERE [key] WITHIN 1 s" --stream rate://1000 --watermark "1 s"
  ensue archive create past/ --events trades.parquet --time ts --key symbol
"""
_RUN = """\
Finds the matches of a query in event files or in a stream, or the rows of SQL.

  ensue run theft.ensue --events readings.parquet --time ts --type reader
  ensue run "SEQ(A a, B b) WITHIN 5 minutes" --events trades.csv --type kind --output found.csv
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    return run_parsed(_parser(), arguments)


def run_parsed(parser: ArgumentParser, arguments: Sequence[str] | None) -> int:
    """Parse the arguments and run their `command`; errors become messages and exit codes."""
    try:
        options = parser.parse_args(arguments)
        command: Callable[[Namespace], int] = options.command
        with plain_warnings():
            return int(command(options))
    except KeyboardInterrupt:
        print_error("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`ensue run ... | head`); Python would report it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FINE
    except (EnsueError, UsageError) as error:
        print_error(str(error))
        return _exit(error)


def _exit(error: Exception) -> ExitCode:
    match error:
        case EventError():
            return ExitCode.EVENTS
        case RunnerError():
            return ExitCode.ENGINE
        case _:
            return ExitCode.WRONG


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="ensue",
        usage="ensue COMMAND ...",
        description=_FIRST,
        epilog=_EXAMPLES + "\n" + _ENDING,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ensue {_version()}")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, prog="ensue"
    )

    def command(
        name: str,
        summary: str,
        function: Callable[[Namespace], ExitCode] | None = None,
        *,
        grouped: bool = False,
    ) -> ArgumentParser:
        added = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=_ENDING,
            formatter_class=RawDescriptionHelpFormatter,
            add_help=not grouped,
        )
        added.set_defaults(command=function)
        return added

    run = command("run", "find the matches of a query in files or in a stream", _run, grouped=True)
    run.usage, run.description = "ensue run QUERY --events FILE [options]", _RUN
    _run_options(run)
    explain = command("explain", "show the execution plan of a query", _explain, grouped=True)
    _query_and_events(explain, needed=False)
    shown = explain.add_argument_group("output")
    shown.add_argument("--picture", metavar="FILE.svg", help="also draw the plan as SVG")
    shown.add_argument(
        "--analyze",
        action="store_true",
        help="run the query on all --events, and show estimates and actual numbers",
    )
    shown.add_argument(
        "--kernel", action="store_true", help="also print the source of the compiled kernel"
    )
    add_planning_options(explain)
    add_archive_options(explain)
    check = command("check", "check whether a query can run", _check, grouped=True)
    _query_and_events(check, needed=False)
    add_archive_options(check)
    add_serve_options(
        command("serve", "run the subscription service, with an HTTP API and a console", _serve)
    )
    add_token_options(command("token", "create a token for a user of a service", _token))
    add_archive_actions(
        command("archive", "create, append to, compact and show archives of past events")
    )
    for grouped in (run, explain, check):
        _help_option(grouped)
    for name, added in (("explain", explain), ("check", check)):
        added.usage = f"ensue {name} QUERY [--events FILE] [options]"
    return parser


def _help_option(parser: ArgumentParser) -> None:
    """Add --help as the last option instead of the first."""
    group = parser.add_argument_group("help")
    group.add_argument("-h", "--help", action="help", help="show this help and exit")


def _query_and_events(parser: ArgumentParser, *, needed: bool) -> None:
    forms = "a file, the query text, or - for stdin"
    group = parser.add_argument_group("query and events")
    if needed:
        group.add_argument(
            "query", metavar="QUERY", nargs="*", help=f"{forms}; several queries share a scan"
        )
    else:
        group.add_argument("query", metavar="QUERY", nargs="?", help=forms)
    events = group.add_mutually_exclusive_group() if needed else group
    events.add_argument(
        "--events",
        metavar="[TYPE=]PATH",
        action=FilesAction,
        default=None if needed else [],
        help="CSV, JSON lines, Parquet or Arrow, also compressed as .gz, .bz2 or .zst: a file, a "
        "folder or a pattern such as 'data/2026-*.csv'; repeat it for several files; "
        "TYPE=PATH if each event type has its own file; for SQL, each file is a table with the "
        "name of the file",
    )
    if needed:
        events.add_argument(
            "--stream",
            metavar="[TYPE=]SOURCE",
            action="append",
            help="a stream of events: a folder that files are added to, "
            "kafka://host:port/topic with JSON values, or rate://EVENTS_A_SECOND for testing "
            "(columns ts, type: A, B or C, key, value)",
        )
    group.add_argument(
        "--time",
        metavar="COLUMN",
        help="the time of an event, or START,END for events with a duration; "
        "default: the only timestamp or date column",
    )
    group.add_argument(
        "--type",
        metavar="COLUMN",
        help="the event type; by default all events have the same type",
    )
    group.add_argument(
        "--order",
        metavar="COLUMN",
        action="append",
        default=[],
        help="the order of events with the same time; repeat it for several columns",
    )
    add_parameter_option(parser)
    add_table_option(parser)
    add_text_options(parser)


def _run_options(parser: ArgumentParser) -> None:
    _query_and_events(parser, needed=True)
    result = parser.add_argument_group("output")
    result.add_argument(
        "--output",
        metavar="PATH",
        default="-",
        help="default: - (stdout); for a stream: a folder for Parquet files, delta:FOLDER or "
        "kafka://host:port/topic",
    )
    result.add_argument(
        "--format", choices=_FORMATS, help="default: by the extension of --output, otherwise table"
    )
    result.add_argument(
        "--limit",
        metavar="N",
        type=count,
        default=20,
        help="rows to print as a table; default: 20",
    )
    result.add_argument(
        "--flat",
        action="store_true",
        help="scalar columns instead of nested events: a.price, a.volume, ...",
    )
    result.add_argument(
        "--full-ids",
        action="store_true",
        help="show full match ids, which a terminal abbreviates",
    )
    result.add_argument(
        "--trace",
        metavar="N",
        type=count,
        help="expand the first N matches down to their events",
    )
    result.add_argument(
        "--picture", metavar="FILE.svg", help="draw the first match and its events"
    )
    result.add_argument(
        "--timeouts",
        action="store_true",
        help="also return partial matches that timed out",
    )
    rare = parser.add_argument_group("more options")
    rare.add_argument("--engine", choices=_ENGINES, help="default: local")
    rare.add_argument(
        "--bad-events",
        choices=("raise", "drop"),
        default="raise",
        help="what to do with events without a usable time; default: raise",
    )
    _hierarchy_options(parser)
    add_planning_options(parser)
    add_limit_options(parser)
    add_archive_options(parser)
    _stream_options(parser)


def _hierarchy_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("queries with definitions (EVENT Name AS ...; ...)")
    group.add_argument(
        "--levels",
        metavar="all|NAME,NAME",
        help="also return the events of these definitions, each as a separate table",
    )


def _stream_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("streams (--stream), which run on Spark until Ctrl-C")
    group.add_argument(
        "--watermark",
        metavar="LENGTH",
        help='how late an event may be, compared to the newest one: "10 seconds", or a number '
        "if the time column holds numbers; every stream needs one",
    )
    group.add_argument(
        "--max-ahead",
        metavar="LENGTH",
        help='how far ahead of the clock an event may be, "1 hour" or none: others are dropped '
        "and counted; default: a day, if the time column holds timestamps",
    )
    group.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="folder for the state of the stream, to continue after a stop; "
        "by default a temporary folder",
    )
    group.add_argument(
        "--schema",
        metavar="COLUMNS",
        help='"ts timestamp, type string, ..." if the columns cannot be read from existing data',
    )
    group.add_argument(
        "--history",
        metavar="PLACE",
        help="past events to start with: a folder of Parquet files or a Delta table; "
        "the stream continues where it ends",
    )
    group.add_argument(
        "--since", metavar="TIME", help="with --history: skip events before this time"
    )
    group.add_argument(
        "--allow-gap",
        action="store_true",
        help="with --history: the stream may begin later than the history ends",
    )
    group.add_argument("--late", metavar="FOLDER", help="write late events here, as Parquet")
    group.add_argument(
        "--once", action="store_true", help="process the available events, then stop"
    )
    group.add_argument(
        "--flush",
        action="store_true",
        help="with --once: end the stream, and deliver matches that wait for its end",
    )
    group.add_argument(
        "--every", metavar="LENGTH", help="trigger interval of micro-batches; default: none"
    )
    group.add_argument(
        "--packages", metavar="MAVEN", help="Maven packages for Spark, such as the Kafka connector"
    )
    group.add_argument("--jars", metavar="FILES", help="jar files for Spark, separated by commas")


def count(text: str) -> int:
    """Parse a positive number; argparse shows the name of this function in errors."""
    number = int(text.replace("_", "").replace(",", ""))
    if number < 1:
        raise ValueError
    return number


def _version() -> str:
    try:
        return version("ensue")
    except PackageNotFoundError:
        return "(not installed)"


# Commands import Arrow and more, so each one is imported only when it runs.


def _run(options: Namespace) -> ExitCode:
    take_query(options)
    if len(options.query) > 1:
        if options.stream is not None:
            raise UsageError(
                "a --stream on the command line takes one query\n"
                "  hint: ensue.match(stream, [query, ...]) and ensue.start run several as one"
            )
        from ensue.cli.run import run_several

        return run_several(options)
    options.query = options.query[0]
    if options.stream is not None:
        from ensue.cli.stream import run_stream

        return run_stream(options)
    from ensue.cli.run import run

    return run(options)


def _explain(options: Namespace) -> ExitCode:
    take_query(options)
    from ensue.cli.run import explain

    return explain(options)


def _check(options: Namespace) -> ExitCode:
    take_query(options)
    from ensue.cli.run import check

    return check(options)


def _serve(options: Namespace) -> ExitCode:
    from ensue.cli.serve import serve

    return serve(options)


def _token(options: Namespace) -> ExitCode:
    from ensue.cli.serve import create_token

    return create_token(options)
