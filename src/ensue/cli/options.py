"""Options of several commands, and their conversion to the arguments of `ensue.match`."""

import re
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import ensue
from ensue.backends.text_columns import TextFileOptions, parse_time_format
from ensue.cli.terminal import UsageError
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


def add_options(parser: Any, text: str, **settings: dict[str, Any]) -> None:
    """Add options to a parser or a group, from a text like that of --help.

    A line `--flag METAVAR  help` begins an option, and indented lines continue its help. An option
    with `METAVAR...` can be repeated; one without METAVAR is a switch. `settings` has further
    arguments of `add_argument`, by option.
    """
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
    number = {"type": int}
    add_options(
        parser.add_argument_group("limits"),
        _LIMIT_OPTIONS,
        max_matches=number,
        max_partial_matches=number,
        evict={"choices": EVICTION_POLICIES},
    )


def add_planning_options(parser: ArgumentParser) -> None:
    title = "planner options, which do not change the matches"
    add_options(parser.add_argument_group(title), _PLANNING_OPTIONS)


def add_archive_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("archives, for queries with JOIN ARCHIVE")
    add_options(group, _ARCHIVE_OPTIONS, access={"choices": ACCESSES})


def add_text_options(parser: ArgumentParser) -> None:
    add_options(parser.add_argument_group("text files: CSV and JSON lines"), _TEXT_OPTIONS)


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
    """Parse the parameter values of the command line."""
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
    """Build the text file options."""
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
