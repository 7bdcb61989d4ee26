"""The command line: commands, options and exit codes."""

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from ensue.cli.options import (
    EVENTS_HELP,
    FilesAction,
    add_archive_actions,
    add_archive_options,
    add_limit_options,
    add_options,
    add_planning_options,
    add_serve_options,
    add_text_options,
    add_token_options,
    run_command,
)
from ensue.cli.terminal import ExitCode, UsageError, plain_warnings, print_error
from ensue.errors import EnsueError, EventError, RunnerError

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
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, prog="ensue")

    def command(
        name: str, summary: str, module: str = "", function: str = "", *, grouped: bool = False
    ) -> ArgumentParser:
        added = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=_ENDING,
            formatter_class=RawDescriptionHelpFormatter,
            add_help=not grouped,
        )
        added.set_defaults(command=partial(run_command, module, function))
        return added

    run = command("run", "find the matches of a query in files or in a stream", "run", "run", grouped=True)
    run.usage, run.description = "ensue run QUERY --events FILE [options]", _RUN
    _run_options(run)
    explain = command("explain", "show the execution plan of a query", "run", "explain", grouped=True)
    _query_and_events(explain, runs=False)
    add_options(explain, _EXPLAIN_OPTIONS, "output")
    add_planning_options(explain)
    add_archive_options(explain)
    check = command("check", "check whether a query can run", "run", "check", grouped=True)
    _query_and_events(check, runs=False)
    add_archive_options(check)
    serving = "run the subscription service, with an HTTP API and a console"
    add_serve_options(command("serve", serving, "serve", "serve"))
    token = command("token", "create a token for a user of a service", "serve", "create_token")
    add_token_options(token)
    add_archive_actions(command("archive", "create, append to, compact and show archives of past events"))
    for grouped in (run, explain, check):  # --help is the last option instead of the first
        group = grouped.add_argument_group("help")
        group.add_argument("-h", "--help", action="help", help="show this help and exit")
    for name, added in (("explain", explain), ("check", check)):
        added.usage = f"ensue {name} QUERY [--events FILE] [options]"
    return parser


_EXPLAIN_OPTIONS = """
--picture FILE.svg  also draw the plan as SVG
--analyze  run the query on all --events, and show estimates and actual numbers
--kernel  also print the source of the compiled kernel
"""
_COLUMN_OPTIONS = """
--time COLUMN  the time of an event, or START,END for events with a duration; default: the only
    timestamp or date column
--type COLUMN  the event type; by default all events have the same type
--order COLUMN...  the order of events with the same time; repeat it for several columns
"""
_PARAMETER_OPTION = """
--param NAME=VALUE...  the value of :NAME in the query: 5, 0.5, "5 minutes", 2026-01-31, true, null,
    else a text (also '...'); repeat it for a list
"""
_TABLE_OPTION = """
--table [NAME=]PATH  a table that the query names, from the same kinds of files as --events; without
    NAME it has the name of its file; repeat it for several tables
"""
_OUTPUT_OPTIONS = """
--output PATH  default: - (stdout); for a stream: a folder for Parquet files, delta:FOLDER or
    kafka://host:port/topic
--format  default: by the extension of --output, otherwise table
--limit N  rows to print as a table; default: 20
--flat  scalar columns instead of nested events: a.price, a.volume, ...
--full-ids  show full match ids, which a terminal abbreviates
--trace N  expand the first N matches down to their events
--picture FILE.svg  draw the first match and its events
--timeouts  also return partial matches that timed out
"""
_STREAM_OPTIONS = """
--watermark LENGTH  how late an event may be, compared to the newest one: "10 seconds", or a number
    if the time column holds numbers; every stream needs one
--max-ahead LENGTH  how far ahead of the clock an event may be, "1 hour" or none: others are dropped
    and counted; default: a day, if the time column holds timestamps
--checkpoint FOLDER  folder for the state of the stream, to continue after a stop; by default a
    temporary folder
--schema COLUMNS  "ts timestamp, type string, ..." if the columns cannot be read from existing data
--history PLACE  past events to start with: a folder of Parquet files or a Delta table; the stream
    continues where it ends
--since TIME  with --history: skip events before this time
--allow-gap  with --history: the stream may begin later than the history ends
--late FOLDER  write late events here, as Parquet
--once  process the available events, then stop
--flush  with --once: end the stream, and deliver matches that wait for its end
--every LENGTH  trigger interval of micro-batches; default: none
--packages MAVEN  Maven packages for Spark, such as the Kafka connector
--jars FILES  jar files for Spark, separated by commas
"""


def _query_and_events(parser: ArgumentParser, *, runs: bool) -> None:
    """Add the query, its events and its tables; `ensue run` takes several queries and streams."""
    forms = "a file, the query text, or - for stdin"
    group = parser.add_argument_group("query and events")
    several = f"{forms}; several queries share a scan" if runs else forms
    group.add_argument("query", metavar="QUERY", nargs="*" if runs else "?", help=several)
    events = group.add_mutually_exclusive_group() if runs else group
    events.add_argument(
        "--events",
        metavar="[TYPE=]PATH",
        action=FilesAction,
        default=None if runs else [],
        help=f"{EVENTS_HELP}; TYPE=PATH if each event type has its own file; for SQL, each file "
        "is a table with the name of the file",
    )
    if runs:
        events.add_argument(
            "--stream",
            metavar="[TYPE=]SOURCE",
            action="append",
            help="a stream of events: a folder that files are added to, "
            "kafka://host:port/topic with JSON values, or rate://EVENTS_A_SECOND for testing "
            "(columns ts, type: A, B or C, key, value)",
        )
    add_options(group, _COLUMN_OPTIONS)
    add_options(parser, _PARAMETER_OPTION)
    files = {"action": FilesAction, "default": []}
    add_options(parser, _TABLE_OPTION, "SQL with MATCH_RECOGNIZE, or a single clause", table=files)
    add_text_options(parser)


def _run_options(parser: ArgumentParser) -> None:
    _query_and_events(parser, runs=True)
    add_options(
        parser,
        _OUTPUT_OPTIONS,
        "output",
        output={"default": "-"},
        format={"choices": ("table", "json", "csv", "parquet")},
        limit={"type": count, "default": 20},
        trace={"type": count},
    )
    rare = parser.add_argument_group("more options")
    rare.add_argument("--engine", choices=("local", "spark"), help="default: local")
    rare.add_argument(
        "--bad-events",
        choices=("raise", "drop"),
        default="raise",
        help="what to do with events without a usable time; default: raise",
    )
    levels = parser.add_argument_group("queries with definitions (EVENT Name AS ...; ...)")
    levels.add_argument(
        "--levels",
        metavar="all|NAME,NAME",
        help="also return the events of these definitions, each as a separate table",
    )
    add_planning_options(parser)
    add_limit_options(parser)
    add_archive_options(parser)
    add_options(parser, _STREAM_OPTIONS, "streams (--stream), which run on Spark until Ctrl-C")


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
