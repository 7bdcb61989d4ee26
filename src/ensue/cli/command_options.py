"""Options of the commands; the code that runs a command is loaded when it is called."""

from argparse import ArgumentParser, Namespace
from functools import partial

from ensue.cli.options import FilesAction, add_text_options
from ensue.cli.terminal import ExitCode


def add_table_option(parser: ArgumentParser) -> None:
    """Add --table."""
    group = parser.add_argument_group("SQL with MATCH_RECOGNIZE, or a single clause")
    group.add_argument(
        "--table",
        metavar="[NAME=]PATH",
        action=FilesAction,
        default=[],
        help="a table that the query names, from the same kinds of files as --events; without "
        "NAME it has the name of its file; repeat it for several tables",
    )


def add_archive_actions(parser: ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, summary: str) -> ArgumentParser:
        description = f"{summary[0].upper()}{summary[1:]}."
        added = actions.add_parser(name, help=summary, description=description)
        added.add_argument("place", metavar="PLACE", help="the folder of the table")
        added.set_defaults(command=partial(_run_archive, name))
        return added

    creating = action("create", "create an archive from event files, clustered by key")
    _add_event_files(creating)
    _add_archive_columns(creating)
    creating.add_argument(
        "--buckets", metavar="N", type=int, default=16,
        help="number of hash buckets for keys, a power of two and a multiple of the key_groups= of a "
        "stream; default: 16",
    )  # fmt: skip
    creating.add_argument(
        "--day", metavar="LENGTH", type=float,
        help="length of a part of the archive, if times are numbers",
    )  # fmt: skip
    creating.add_argument(
        "--empty", action="store_true", help="use only the columns of --events, not the events"
    )
    _add_event_files(action("append", "append the events of files to an archive"))
    compacting = action("compact", "merge small files of an archive, even while streams run")
    compacting.add_argument(
        "--fewest", metavar="N", type=int, default=4,
        help="skip days and buckets with fewer files; default: 4",
    )  # fmt: skip
    compacting.add_argument(
        "--vacuum", metavar="HOURS", type=int,
        help="also delete files that no version of the last HOURS needs; readers of older "
        "versions get an error",
    )  # fmt: skip
    _add_archive_columns(action("show", "show the content and layout of an archive"))
    action("release", "let another stream write an archive whose stream has ended")


def _add_event_files(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--events", metavar="PATH", action=FilesAction, required=True,
        help="CSV, JSON lines, Parquet or Arrow, also compressed as .gz, .bz2 or .zst: a file, a "
        "folder or a pattern such as 'data/2026-*.csv'; repeat it for several files",
    )  # fmt: skip
    add_text_options(parser)


def _add_archive_columns(parser: ArgumentParser) -> None:
    parser.add_argument("--time", metavar="COLUMN", help="the time of an event, or START,END")
    parser.add_argument("--type", metavar="COLUMN", help="the event type")
    for name, meaning in (
        ("key", "the key of an event"),
        ("order", "the order of events with the same time"),
    ):
        parser.add_argument(
            f"--{name}", metavar="COLUMN", action="append", default=[],
            help=f"{meaning}; repeat it for several columns",
        )  # fmt: skip


def add_serve_options(parser: ArgumentParser) -> None:
    """Add the options of `ensue serve`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the file of the service, created on first use; it stores the description of its "
        "events",
    )
    add_server_options(parser)
    _add_stream_events(parser)
    add_service_options(parser)


def add_server_options(parser: ArgumentParser) -> None:
    """Add the options of the HTTP server and console."""
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    parser.add_argument("--port", type=int, default=8765, help="default: 8765; 0 uses a free one")
    parser.add_argument("--no-console", action="store_true", help="serve only the HTTP API")
    parser.add_argument(
        "--background",
        metavar="FILE,WEST,SOUTH,EAST,NORTH",
        help="a background image for a plane, and the area it covers: plan.png,0,0,120,80",
    )


def _add_stream_events(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("events, for a new FILE")
    group.add_argument(
        "--schema",
        metavar="COLUMNS",
        help='"ts timestamp, id long, type string, lon double, lat double"',
    )
    group.add_argument(
        "--like", metavar="PATH", help="use the columns of an event file: Parquet, CSV or JSON"
    )
    group.add_argument(
        "--time",
        metavar="COLUMN",
        help="the time of an event, or START,END for events with a duration",
    )
    group.add_argument("--type", metavar="COLUMN", help="the event type")
    group.add_argument("--order", metavar="COLUMN", action="append", default=[])
    group.add_argument("--location", metavar="X,Y", help="two columns, or one with WKT or WKB")
    group.add_argument("--space", choices=("plane", "earth"), help="default: plane")
    group.add_argument(
        "--key", metavar="COLUMN", help="the key of an event, which identifies its object"
    )
    group.add_argument(
        "--watermark", metavar="LENGTH", help='how far events may be out of order: "10 seconds"'
    )
    group.add_argument(
        "--idle",
        metavar="SECONDS",
        type=float,
        help="after this time without events, event time follows the clock",
    )


def add_service_options(parser: ArgumentParser) -> None:
    """Add the options for sources, limits, files and certificates."""
    group = parser.add_argument_group("service")
    group.add_argument(
        "--source",
        metavar="URL",
        action="append",
        default=[],
        help="read events from kafka://host:9092/topic, mqtt://host:1883/topic, "
        "nats://host:4222/subject?stream=NAME or folder:/path; repeat it for several",
    )
    group.add_argument(
        "--region",
        metavar="NAME=WKT",
        action="append",
        default=[],
        help="a region for all users",
    )
    group.add_argument(
        "--limit",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a limit such as retention=86400; docs/service.md lists them",
    )
    group.add_argument(
        "--synchronous",
        choices=("FULL", "NORMAL"),
        default="FULL",
        help="FULL survives a power cut, NORMAL a crash of the process; default: FULL",
    )
    group.add_argument(
        "--reset-watermark",
        action="store_true",
        help="drop events far ahead of the clock, and all partial matches",
    )
    group.add_argument(
        "--spark",
        nargs="?",
        const="local[2]",
        metavar="MASTER",
        help="match on Spark instead of in this process; default master: local[2]",
    )
    group.add_argument(
        "--secret-key-file",
        metavar="PATH",
        help="the key for the secrets in FILE, created on first use; default: FILE.key, or the "
        "environment variable ENSUE_SECRET_KEY",
    )
    group.add_argument("--certificate", metavar="FILE", help="for https, with --certificate-key")
    group.add_argument("--certificate-key", metavar="FILE")
    group.add_argument(
        "--proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="a proxy whose client addresses are trusted",
    )


def add_token_options(parser: ArgumentParser) -> None:
    """Add the options of `ensue token`."""
    parser.add_argument("file", metavar="FILE", help="the file of the service")
    parser.add_argument("--user", metavar="NAME", required=True, help="the user, created if new")
    parser.add_argument(
        "--scopes",
        default="read,subscribe,publish,admin",
        help="some of read, subscribe, publish, admin; default: all",
    )
    parser.add_argument(
        "--days", type=float, help="lifetime of the token in days; default: a year"
    )
    parser.add_argument("--label", default="", help="a note on its purpose")


def _run_archive(action: str, options: Namespace) -> ExitCode:
    from ensue.cli import archive

    exit_code: ExitCode = getattr(archive, f"run_{action}")(options)
    return exit_code
