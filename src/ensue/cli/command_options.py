"""Options of the commands other than run; the code of a command is loaded when it is called."""

from argparse import ArgumentParser, Namespace
from functools import partial
from importlib import import_module

from ensue.cli.options import FilesAction, add_options, add_text_options
from ensue.cli.terminal import ExitCode

EVENTS_HELP = (
    "CSV, JSON lines, Parquet or Arrow, also compressed as .gz, .bz2 or .zst: a file, a folder or a "
    "pattern such as 'data/2026-*.csv'; repeat it for several files"
)
_CREATE_OPTIONS = """
--buckets N  number of hash buckets for keys, a power of two and a multiple of the key_groups= of a
    stream; default: 16
--day LENGTH  length of a part of the archive, if times are numbers
--empty  use only the columns of --events, not the events
"""
_COMPACT_OPTIONS = """
--fewest N  skip days and buckets with fewer files; default: 4
--vacuum HOURS  also delete files that no version of the last HOURS needs; readers of older versions
    get an error
"""
_COLUMN_OPTIONS = """
--time COLUMN  the time of an event, or START,END
--type COLUMN  the event type
--key COLUMN...  the key of an event; repeat it for several columns
--order COLUMN...  the order of events with the same time; repeat it for several columns
"""
_SERVER_OPTIONS = """
--host HOST  default: 127.0.0.1
--port PORT  default: 8765; 0 uses a free one
--no-console  serve only the HTTP API
--background FILE,WEST,SOUTH,EAST,NORTH  a background image for a plane, and the area it covers:
    plan.png,0,0,120,80
"""
_STREAM_OPTIONS = """
--schema COLUMNS  "ts timestamp, id long, type string, lon double, lat double"
--like PATH  use the columns of an event file: Parquet, CSV or JSON
--time COLUMN  the time of an event, or START,END for events with a duration
--type COLUMN  the event type
--order COLUMN...
--location X,Y  two columns, or one with WKT or WKB
--space  default: plane
--key COLUMN  the key of an event, which identifies its object
--watermark LENGTH  how far events may be out of order: "10 seconds"
--idle SECONDS  after this time without events, event time follows the clock
"""
_SERVICE_OPTIONS = """
--source URL...  read events from kafka://host:9092/topic, mqtt://host:1883/topic,
    nats://host:4222/subject?stream=NAME or folder:/path; repeat it for several
--region NAME=WKT...  a region for all users
--limit NAME=VALUE...  a limit such as retention=86400; docs/service.md lists them
--synchronous  FULL survives a power cut, NORMAL a crash of the process; default: FULL
--reset-watermark  drop events far ahead of the clock, and all partial matches
--spark MASTER  match on Spark instead of in this process; default master: local[2]
--secret-key-file PATH  the key for the secrets in FILE, created on first use; default: FILE.key, or
    the environment variable ENSUE_SECRET_KEY
--certificate FILE  for https, with --certificate-key
--certificate-key FILE
--proxy ADDRESS...  a proxy whose client addresses are trusted
"""
_TOKEN_OPTIONS = """
file FILE  the file of the service
--user NAME  the user, created if new
--scopes SCOPES  some of read, subscribe, publish, admin; default: all
--days DAYS  lifetime of the token in days; default: a year
--label LABEL  a note on its purpose
"""


def run_command(module: str, function: str, options: Namespace) -> ExitCode:
    """Import and run a command: commands load Arrow and more."""
    exit_code: ExitCode = getattr(import_module(f"ensue.cli.{module}"), function)(options)
    return exit_code


def add_archive_actions(parser: ArgumentParser) -> None:
    """Add the actions of `ensue archive` and their options."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, summary: str) -> ArgumentParser:
        description = f"{summary[0].upper()}{summary[1:]}."
        added = actions.add_parser(name, help=summary, description=description)
        added.add_argument("place", metavar="PLACE", help="the folder of the table")
        added.set_defaults(command=partial(run_command, "archive", f"run_{name}"))
        return added

    creating = action("create", "create an archive from event files, clustered by key")
    _add_event_files(creating)
    add_options(creating, _COLUMN_OPTIONS)
    add_options(creating, _CREATE_OPTIONS, buckets={"type": int, "default": 16}, day={"type": float})
    _add_event_files(action("append", "append the events of files to an archive"))
    compacting = action("compact", "merge small files of an archive, even while streams run")
    add_options(compacting, _COMPACT_OPTIONS, fewest={"type": int, "default": 4}, vacuum={"type": int})
    add_options(action("show", "show the content and layout of an archive"), _COLUMN_OPTIONS)
    action("release", "let another stream write an archive whose stream has ended")


def _add_event_files(parser: ArgumentParser) -> None:
    parser.add_argument("--events", metavar="PATH", action=FilesAction, required=True, help=EVENTS_HELP)
    add_text_options(parser)


def add_serve_options(parser: ArgumentParser) -> None:
    """Add the options of `ensue serve`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the file of the service, created on first use; it stores the description of its events",
    )
    add_server_options(parser)
    events = parser.add_argument_group("events, for a new FILE")
    space = {"choices": ("plane", "earth")}
    add_options(events, _STREAM_OPTIONS, space=space, idle={"type": float})
    add_service_options(parser)


def add_server_options(parser: ArgumentParser) -> None:
    """Add the options of the HTTP server and console."""
    port = {"type": int, "default": 8765}
    add_options(parser, _SERVER_OPTIONS, host={"default": "127.0.0.1"}, port=port)


def add_service_options(parser: ArgumentParser) -> None:
    """Add the options for sources, limits, files and certificates."""
    add_options(
        parser.add_argument_group("service"),
        _SERVICE_OPTIONS,
        synchronous={"choices": ("FULL", "NORMAL"), "default": "FULL"},
        spark={"nargs": "?", "const": "local[2]"},
    )


def add_token_options(parser: ArgumentParser) -> None:
    """Add the options of `ensue token`."""
    add_options(
        parser,
        _TOKEN_OPTIONS,
        file={},
        user={"required": True},
        scopes={"default": "read,subscribe,publish,admin"},
        days={"type": float},
        label={"default": ""},
    )
