"""Options of the commands, and their conversion to the arguments of `ensue.match`."""

import re
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import ensue
from ensue.backends.text_columns import TextFileOptions, parse_time_format
from ensue.cli.terminal import ExitCode, UsageError
from ensue.errors import EventError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.values import parse_duration
from ensue.options import ACCESSES, EVICTION_POLICIES, Limits
from ensue.parser.parameters import Parameters

_LIMIT_OPTIONS = """
--memory SIZE  such as "4 GB", "50%%" or unlimited; default: a quarter of the memory
--max-matches N  default: limited by --memory
--max-partial-matches N  partial matches at a time; default: limited by --memory
--evict  for a stream: which keys are spilled to disk first; default: need
--shed LENGTH  for a stream: drop keys when it lags behind the clock by more than this; default: never
"""
_PLANNING_OPTIONS = """
--statistics FILE.json  statistics of the stream, to choose the plan; 'measure' measures them on the
    events
--off RULE...  disable a planner rule; repeat it for several
--structure NAME  stacks, runs, tree, compact or reference
"""
_ARCHIVE_OPTIONS = """
--archive NAME=PLACE...  the archive for JOIN ARCHIVE NAME: a folder of Parquet files or a Delta
    table, with the same column names as the events; repeat it for several
--archive-key COLUMN...  the key of an archived event; archives created by `ensue archive` store it
--access  access path to archives; default: the cheapest one
--latency LENGTH  how long a live match of a stream may wait to share an archive lookup with others
"""
_TEXT_OPTIONS = """
--null WORD...  a word for a missing value, such as NA or -, quoted or not, besides empty cells;
    repeat it for several words
--time-format FORMAT  the strptime format of times, such as '%%d.%%m.%%Y %%H:%%M', in the columns of
    --time, or without --time in all columns that have it; ISO times need none
--delimiter CHARACTER  the delimiter of CSV files, such as ';', '|' or tab; default: a comma, and tab
    in .tsv files
"""


def add_options(parser: Any, text: str, title: str | None = None, **settings: dict[str, Any]) -> None:
    """Add options to a parser, or to its group with a title, from a text like that of --help.

    A line `--flag METAVAR  help` begins an option, and indented lines continue its help. An option
    with `METAVAR...` can be repeated; one without METAVAR is a switch. `settings` has further
    arguments of `add_argument`, by option.
    """
    parser = parser if title is None else parser.add_argument_group(title)
    for option in re.split(r"\n(?=\S)", text.strip()):
        head, _, help_text = option.partition("  ")
        flag, _, metavar = head.partition(" ")
        name = flag.removeprefix("--").replace("-", "_")
        arguments: dict[str, Any] = {"help": " ".join(help_text.split()) or None}
        if metavar.endswith("..."):
            arguments |= {"action": "append", "default": []}
        elif not metavar and name not in settings:
            arguments["action"] = "store_true"
        if metavar:
            arguments["metavar"] = metavar.removesuffix("...")
        parser.add_argument(flag, **arguments | settings.get(name, {}))


def add_limit_options(parser: ArgumentParser) -> None:
    number, policies = {"type": int}, {"choices": EVICTION_POLICIES}
    add_options(parser, _LIMIT_OPTIONS, "limits", max_matches=number, max_partial_matches=number, evict=policies)


def add_planning_options(parser: ArgumentParser) -> None:
    add_options(parser, _PLANNING_OPTIONS, "planner options, which do not change the matches")


def add_archive_options(parser: ArgumentParser) -> None:
    add_options(parser, _ARCHIVE_OPTIONS, "archives, for queries with JOIN ARCHIVE", access={"choices": ACCESSES})


def add_text_options(parser: ArgumentParser) -> None:
    add_options(parser, _TEXT_OPTIONS, "text files: CSV and JSON lines")


def parse_length(text: str | None) -> str | float | None:
    """Parse a length of time: a number if the time column holds numbers, else a text."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def get_limits(options: Namespace) -> Limits:
    names = ("memory", "max_matches", "max_partial_matches", "evict", "shed")
    return Limits(**{name: getattr(options, name) for name in names})


# ---------------------------------------------------------------------- planning

MEASURE = "measure"


def get_planner_options(
    options: Namespace, query: Query | Hierarchy | ArchiveJoinQuery, events: Any, columns: dict[str, Any]
) -> ensue.PlannerOptions:
    statistics = _statistics(options.statistics, query, events, columns)
    return ensue.PlannerOptions(statistics=statistics, off=options.off, structure=options.structure)


def _statistics(
    source: str | None, query: Query | Hierarchy | ArchiveJoinQuery, events: Any, columns: dict[str, Any]
) -> ensue.Statistics:
    if source is None:
        return ensue.Statistics()
    if source == MEASURE:
        if events is None:
            raise UsageError("--statistics measure needs events: name some with --events")
        if isinstance(query, Hierarchy):
            raise UsageError("--statistics measure needs a single query without definitions")
        if isinstance(query, ArchiveJoinQuery):
            assert isinstance(query.live, Query)
            query = query.live  # archives have their own statistics
        return ensue.statistics(events, query, **columns)
    try:
        return ensue.Statistics.read(Path(source).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read statistics from {source}: {error}") from None


# ---------------------------------------------------------------------- archives


def get_archives(options: Namespace, columns: dict[str, Any]) -> ensue.Archives | None:
    if not options.archive:
        for name in ("archive_key", "access", "latency"):
            if getattr(options, name):
                option = name.replace("_", "-")
                raise UsageError(f"--{option} is for archives: name one with --archive")
        return None
    archives = dict(_archive(text, options, columns) for text in options.archive)
    return ensue.Archives(archives, access=options.access, latency=parse_length(options.latency))


def _archive(text: str, options: Namespace, columns: dict[str, Any]) -> tuple[str, Any]:
    name, sign, place = text.partition("=")
    if not (sign and name.strip() and place.strip()):
        raise UsageError(f"--archive {text}: give it the name from the query, as in --archive trades=/data/trades")
    key = tuple(name.strip() for names in options.archive_key for name in names.split(","))
    try:
        archive = ensue.archive(place.strip())  # an archive of Ensue stores its columns
    except ensue.EventError:
        archive = ensue.archive(place.strip(), **columns, key=key)
    return name.strip(), archive


# ---------------------------------------------------------------------- parameters

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_WORDS = {"true": True, "false": False, "null": None}
_QUOTED = re.compile(r"'(?:[^']|'')*'")


def parse_parameters(options: Namespace) -> Parameters:
    values: dict[str, list[Any]] = {}
    for argument in options.param:
        name, equals, text = argument.partition("=")
        name = name.removeprefix(":")
        if not equals or not name.isidentifier():
            raise UsageError(f"--param {argument}\n  hint: --param NAME=VALUE, as in --param gap=5")
        values.setdefault(name, []).append(parse_value(text))
    several = {name: v if len(v) > 1 else v[0] for name, v in values.items()}
    return Parameters(several, lambda name: f"give it one: --param {name}=...")


def parse_value(text: str) -> bool | int | float | str | date | datetime | timedelta | None:
    """Convert a text to the type that it is written as.

    >>> parse_value("5"), parse_value("5 minutes"), parse_value("2026-01-31"), parse_value("IBM")
    (5, datetime.timedelta(seconds=300), datetime.date(2026, 1, 31), 'IBM')
    >>> parse_value("'5'"), parse_value("true")
    ('5', True)
    """
    stripped = text.strip()
    if _QUOTED.fullmatch(stripped):
        return stripped[1:-1].replace("''", "'")
    if stripped.lower() in _WORDS:
        return _WORDS[stripped.lower()]
    if _INTEGER.fullmatch(stripped):
        return int(stripped)
    if _NUMBER.fullmatch(stripped):
        return float(stripped)
    parsers: tuple[Callable[[str], Any], ...] = (date.fromisoformat, datetime.fromisoformat, _length)
    for parse in parsers:
        try:
            return parse(stripped)  # type: ignore[no-any-return]
        except (ValueError, EventError):
            continue
    return text


def _length(text: str) -> timedelta:
    length = parse_duration(text.removeprefix("-"))
    if length % 1_000:
        raise ValueError(text)
    return timedelta(microseconds=(-length if text.startswith("-") else length) // 1_000)


# ---------------------------------------------------------------------- text files

_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}


def get_text_options(options: Namespace) -> TextFileOptions:
    delimiter = options.delimiter
    if delimiter is not None:
        delimiter = _DELIMITERS.get(delimiter.lower(), delimiter)
        if len(delimiter) != 1 or delimiter in '"\n\r' or ord(delimiter) > 127:
            raise UsageError(
                f"--delimiter {options.delimiter!r} is not a single ASCII character\n"
                "  hint: --delimiter ';' or --delimiter tab"
            )
    if options.time_format is None:
        return TextFileOptions(delimiter, tuple(options.null))
    try:
        format = parse_time_format(options.time_format)
    except EventError as error:
        raise UsageError(str(error)) from None
    named = getattr(options, "time", None) or ""
    columns = tuple(name.strip() for name in named.split(",") if name.strip())
    drop = getattr(options, "bad_events", "raise") == "drop"
    return TextFileOptions(delimiter, tuple(options.null), format, columns, drop)


class FilesAction(Action):
    """An option with one or more files, since the shell expands unquoted patterns."""

    def __init__(self, option_strings: Sequence[str], dest: str, **others: Any) -> None:
        super().__init__(option_strings, dest, nargs="+", **others)

    def __call__(
        self,
        parser: ArgumentParser,  # noqa: ARG002
        namespace: Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), *values])
        if len(values) > 1:
            namespace.last_of_several = self.dest


def take_query(options: Namespace) -> None:
    """Take the query from the end of a file list, where argparse has put it."""
    if options.query:
        return
    several = getattr(options, "last_of_several", None)
    if several is None:
        raise UsageError(
            "the query is missing\n  hint: name its file, or write it in quotes: "
            "ensue run 'SEQ(A a, B b)' --events events.csv"
        )
    last = getattr(options, several).pop()
    options.query = [last] if isinstance(options.query, list) else last


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
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the file of the service, created on first use; it stores the description of its events",
    )
    add_server_options(parser)
    space = {"choices": ("plane", "earth")}
    add_options(parser, _STREAM_OPTIONS, "events, for a new FILE", space=space, idle={"type": float})
    add_service_options(parser)


def add_server_options(parser: ArgumentParser) -> None:
    port = {"type": int, "default": 8765}
    add_options(parser, _SERVER_OPTIONS, host={"default": "127.0.0.1"}, port=port)


def add_service_options(parser: ArgumentParser) -> None:
    add_options(
        parser,
        _SERVICE_OPTIONS,
        "service",
        synchronous={"choices": ("FULL", "NORMAL"), "default": "FULL"},
        spark={"nargs": "?", "const": "local[2]"},
    )


def add_token_options(parser: ArgumentParser) -> None:
    add_options(
        parser,
        _TOKEN_OPTIONS,
        file={},
        user={"required": True},
        scopes={"default": "read,subscribe,publish,admin"},
        days={"type": float},
        label={"default": ""},
    )
