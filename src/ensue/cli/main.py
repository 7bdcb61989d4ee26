"""The command line: its options, its commands, and how it ends."""

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

from ensue.cli.archive_options import archive_options
from ensue.cli.limits import limits_options
from ensue.cli.parameters import parameter_option
from ensue.cli.past_options import past_options
from ensue.cli.planning import planning_options
from ensue.cli.serve_options import serve_options, token_options
from ensue.cli.sql_options import table_option
from ensue.cli.terminal import Exit, UsageError, complain, plain_warnings
from ensue.cli.text_options import Files, take_query, text_options
from ensue.errors import EnsueError, EventError, RunnerError

_ENGINES = ("local", "spark")
_FORMATS = ("table", "json", "csv", "parquet")
_ENDING = """\
exit codes:
  0    fine, whether there were matches or not
  1    demos only: the result is not what was planted
  2    wrong usage, or a query that cannot be run
  3    events that cannot be read
  4    the engine is not available (no Spark, no Java) or failed
  130  interrupted by Ctrl-C, which is how a stream is stopped
"""
_FIRST = """\
Finds patterns of events in files and streams: complex event processing.

  ensue run theft.ensue --events readings.parquet --time ts --type reader
        prints the matches of a query: a file, or its text in quotes
  ensue explain theft.ensue
        shows how a query will be run

`ensue COMMAND --help` tells the options of a command, `ensue demo` shows what it can do.
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
    """Runs a command; returns its exit code."""
    try:
        options = _parser().parse_args(arguments)
        command: Callable[[Namespace], Exit] = options.command
        with plain_warnings():
            return int(command(options))
    except KeyboardInterrupt:
        complain("interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough (`ensue run ... | head`); Python would complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FINE
    except (EnsueError, UsageError) as error:
        complain(str(error))
        return _exit(error)


def _exit(error: Exception) -> Exit:
    match error:
        case EventError():
            return Exit.EVENTS
        case RunnerError():
            return Exit.ENGINE
        case _:
            return Exit.WRONG


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
        does: str,
        runs: Callable[[Namespace], Exit] | None = None,
        *,
        grouped: bool = False,
    ) -> ArgumentParser:
        added = commands.add_parser(
            name,
            help=does,
            description=f"{does[0].upper()}{does[1:]}.",
            epilog=_ENDING,
            formatter_class=RawDescriptionHelpFormatter,
            add_help=not grouped,
        )
        added.set_defaults(command=runs)
        return added

    run = command("run", "find the matches of a query in files or in a stream", _run, grouped=True)
    run.usage, run.description = "ensue run QUERY --events FILE [options]", _RUN
    _run_options(run)
    explain = command("explain", "show how a query runs", _explain, grouped=True)
    _query_and_events(explain, needed=False)
    shown = explain.add_argument_group("what is shown")
    shown.add_argument("--picture", metavar="FILE.svg", help="also draw the plan")
    shown.add_argument(
        "--analyze",
        action="store_true",
        help="run the query on all --events, and show estimates next to actual figures",
    )
    shown.add_argument(
        "--kernel", action="store_true", help="also print the source of the compiled kernel"
    )
    planning_options(explain)
    past_options(explain)
    check = command("check", "check whether a query can run", _check, grouped=True)
    _query_and_events(check, needed=False)
    past_options(check)
    _demo_options(
        command("demo", "find the thefts in a shop's day, and the alarms in a market's", _demo)
    )
    _demo_archive_options(
        command(
            "demo-archive",
            "find speeders in a Kafka stream that uses its own archive",
            _demo_archive,
        )
    )
    _bench_options(command("bench", "measure a few queries on this machine", _bench))
    serve_options(
        command("serve", "take events and subscriptions over HTTP, and notify subscribers", _serve)
    )
    token_options(command("token", "create a token for a user of a service", _token))
    archive_options(command("archive", "create, fill, compact and show tables of past events"))
    for grouped in (run, explain, check):
        _help_option(grouped)
    for name, added in (("explain", explain), ("check", check)):
        added.usage = f"ensue {name} QUERY [--events FILE] [options]"
    return parser


def _help_option(parser: ArgumentParser) -> None:
    """Last of all, not first: whoever reads it knows the option."""
    group = parser.add_argument_group("help")
    group.add_argument("-h", "--help", action="help", help="show this and exit")


def _query_and_events(parser: ArgumentParser, *, needed: bool) -> None:
    said = "a file, the text itself, or - for stdin"
    group = parser.add_argument_group("the query and its events")
    if needed:
        group.add_argument(
            "query", metavar="QUERY", nargs="*", help=f"{said}; several share a scan"
        )
    else:
        group.add_argument("query", metavar="QUERY", nargs="?", help=said)
    events = group.add_mutually_exclusive_group() if needed else group
    events.add_argument(
        "--events",
        metavar="[TYPE=]PATH",
        action=Files,
        default=None if needed else [],
        help="CSV, JSON lines, Parquet or Arrow, also packed as .gz, .bz2 or .zst: a file, a "
        "folder or a pattern such as 'data/2026-*.csv'; several times for several files; "
        "TYPE=PATH where each event type has a file of its own; for SQL a table each, called like "
        "its file",
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
        help="the time of an event, or START,END for events that last; "
        "by default the only timestamp column, or of dates",
    )
    group.add_argument(
        "--type",
        metavar="COLUMN",
        help="the column with the type of an event; by default all events have one type",
    )
    group.add_argument(
        "--order",
        metavar="COLUMN",
        action="append",
        default=[],
        help="orders events with the same time; repeat it for several columns",
    )
    parameter_option(parser)
    table_option(parser)
    text_options(parser)


def _run_options(parser: ArgumentParser) -> None:
    _query_and_events(parser, needed=True)
    result = parser.add_argument_group("what comes out")
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
        "--limit", metavar="N", type=_count, default=20, help="rows of a table, default: 20"
    )
    result.add_argument(
        "--flat",
        action="store_true",
        help="plain columns in the place of whole events: a.price, a.volume, ...",
    )
    result.add_argument(
        "--full-ids",
        action="store_true",
        help="show match ids in full; on a terminal they are short, elsewhere always full",
    )
    result.add_argument(
        "--trace",
        metavar="N",
        type=_count,
        help="expand the first N matches down to their events",
    )
    result.add_argument(
        "--picture", metavar="FILE.svg", help="draw the first match and its events"
    )
    result.add_argument(
        "--timeouts",
        action="store_true",
        help="also return partial matches whose window ended before they were complete",
    )
    rare = parser.add_argument_group("more")
    rare.add_argument("--engine", choices=_ENGINES, help="default: local")
    rare.add_argument(
        "--bad-events",
        choices=("raise", "drop"),
        default="raise",
        help="what to do with events without a usable time; default: raise",
    )
    _tower_options(parser)
    planning_options(parser)
    limits_options(parser)
    past_options(parser)
    _stream_options(parser)


def _tower_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("queries that define events (EVENT Name AS ...; ...)")
    group.add_argument(
        "--levels",
        metavar="all|NAME,NAME",
        help="also return the events of these definitions, each as a separate table",
    )


def _stream_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("streams (--stream), on Spark, until Ctrl-C")
    group.add_argument(
        "--watermark",
        metavar="LENGTH",
        help='how far an event may be behind the newest one: "10 seconds", or a number '
        "if the time column holds numbers; every stream needs one",
    )
    group.add_argument(
        "--max-ahead",
        metavar="LENGTH",
        help='how far ahead of the clock an event may be, "1 hour" or none: others are left out '
        "and counted; default: a day, if the time column holds timestamps",
    )
    group.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="where the stream's state is kept, to continue after a stop; "
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
        help="a table of past events to begin with: a folder of Parquet files, a Delta table; "
        "the stream continues where it ends",
    )
    group.add_argument(
        "--since", metavar="TIME", help="with --history: leave out events before this time"
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
        help="with --once: treat the stream as ended, and deliver what is still waiting",
    )
    group.add_argument(
        "--every", metavar="LENGTH", help="time between micro-batches; default: none"
    )
    group.add_argument("--packages", metavar="MAVEN", help="for Spark, such as Kafka's connector")
    group.add_argument("--jars", metavar="FILES", help="for Spark, separated by commas")


def _demo_options(parser: ArgumentParser) -> None:
    parser.add_argument("--folder", metavar="DIR", help="where to write; default: a temporary one")
    parser.add_argument(
        "--events", metavar="N", type=_count, default=1_000_000, help="default: 1000000"
    )
    parser.add_argument(
        "--engine", choices=_ENGINES, help="default: spark, and local where Spark does not start"
    )


def _demo_archive_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--folder",
        metavar="DIR",
        help="a new folder to write to; default: a temporary one, which is removed",
    )
    parser.add_argument(
        "--passes", metavar="N", type=_count, default=50_000, help="default: 50000"
    )


def _bench_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--events", metavar="N", type=_count, default=1_000_000, help="default: 1000000"
    )
    parser.add_argument("--symbols", metavar="N", type=_count, default=1_000, help="default: 1000")
    parser.add_argument("--output", metavar="FILE.json", help="also write the figures as JSON")


def _count(text: str) -> int:
    number = int(text.replace("_", "").replace(",", ""))
    if number < 1:
        raise ValueError
    return number


_count.__name__ = "count"  # argparse puts it into its message: invalid count value


def _version() -> str:
    try:
        return version("ensue")
    except PackageNotFoundError:
        return "(not installed)"


# The commands load Arrow and more, so each is imported when it is the one to run.


def _run(options: Namespace) -> Exit:
    take_query(options)
    if len(options.query) > 1:
        if options.stream is not None:
            raise UsageError(
                "a --stream on the command line takes one query\n"
                "  hint: ensue.match(stream, [query, ...]) and ensue.start run several as one"
            )
        from ensue.cli.several import run_several

        return run_several(options)
    options.query = options.query[0]
    if options.stream is not None:
        from ensue.cli.stream import run_stream

        return run_stream(options)
    from ensue.cli.run import run

    return run(options)


def _explain(options: Namespace) -> Exit:
    take_query(options)
    from ensue.cli.run import explain

    return explain(options)


def _check(options: Namespace) -> Exit:
    take_query(options)
    from ensue.cli.run import check

    return check(options)


def _demo(options: Namespace) -> Exit:
    from ensue.cli.demo import demo

    return demo(options)


def _demo_archive(options: Namespace) -> Exit:
    from ensue.cli.demo_archive import demo_archive

    return demo_archive(options)


def _serve(options: Namespace) -> Exit:
    from ensue.cli.serve import serve

    return serve(options)


def _token(options: Namespace) -> Exit:
    from ensue.cli.serve import token

    return token(options)


def _bench(options: Namespace) -> Exit:
    from ensue.cli.bench import bench

    return bench(options)
