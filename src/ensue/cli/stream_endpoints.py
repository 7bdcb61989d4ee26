"""Parses the source and sink URLs of a stream on the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import ensue
from ensue.backends.event_files import FORMATS, EventFile, list_visible_files
from ensue.backends.spark.stream_folders import escape_path
from ensue.backends.text_columns import DEFAULT_TEXT_OPTIONS, TextFileOptions
from ensue.cli.event_files import resolve_event_files
from ensue.cli.terminal import UsageError
from ensue.errors import EventError


@dataclass(frozen=True, slots=True)
class WatchedFolder:
    """A folder of existing and future files."""

    path: str  # a glob for Spark
    form: str


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A Kafka topic."""

    servers: str
    name: str


@dataclass(frozen=True, slots=True)
class RateSource:
    """A generated test stream."""

    rows: int


Source = WatchedFolder | TopicSource | RateSource


# ---------------------------------------------------------------------------------- sources


def parse_sources(arguments: list[str], *, declared: bool) -> dict[str | None, list[Source]]:
    """Parse the `--stream` options by event type; `declared` means that --schema is given."""
    by_type: dict[str | None, list[Source]] = {}
    for file in resolve_event_files(arguments, option="--stream", patterns=False):
        by_type.setdefault(file.type, []).append(parse_source(file.path, declared=declared))
    return by_type


def parse_source(text: str, *, declared: bool = False) -> Source:
    """Parse a source.

    >>> parse_source("kafka://one:9092,two:9092/trades")
    TopicSource(servers='one:9092,two:9092', name='trades')
    >>> parse_source("rate://1000")
    RateSource(rows=1000)
    """
    scheme, _, rest = text.partition("://")
    match scheme:
        case "kafka":
            return parse_topic(text)
        case "rate":
            rows = rest.replace("_", "").replace(",", "")
            if not rows.isdecimal() or int(rows) < 1:
                raise UsageError(f"{text} has no number of events a second; write it like rate://1000")
            return RateSource(int(rows))
        case _:
            return _folder(text, declared=declared)


def parse_topic(text: str) -> TopicSource:
    """Parse a Kafka topic: `kafka://host:port/topic`."""
    servers, slash, name = text.removeprefix("kafka://").partition("/")
    if not (servers and slash and name) or "/" in name:
        raise UsageError(f"{text} does not name a topic; write it like kafka://host:9092/topic")
    return TopicSource(servers, name)


def _folder(text: str, *, declared: bool) -> WatchedFolder:
    form = FORMATS.get(Path(text).suffix.lower())
    _require_streamed(form, text)
    if "://" in text:  # only Spark can access it
        return WatchedFolder(text, form or "parquet")
    path = Path(text)
    if path.is_file():
        raise UsageError(
            f"{text} is a file, and a stream needs a folder that files are added to\n"
            "  hint: name the folder, or use --events for a file"
        )
    if path.is_dir():
        return _require_folder(text, declared=declared)
    if form is None or "*" not in path.name or not path.parent.is_dir():
        raise EventError(f"there is no folder {text}")
    if not declared and not any(path.parent.glob(path.name)):
        raise EventError(_no_files_message(text, text))
    return WatchedFolder(f"{escape_path(path.parent)}/{path.name}", form)


def _require_folder(text: str, *, declared: bool) -> WatchedFolder:
    if not list_visible_files(Path(text)):
        example = str(Path(text) / "*.parquet")
        if declared:
            raise EventError(
                f"the folder {text} is empty, so the file format is unknown\n"
                f"  hint: give a pattern for their names: --stream '{example}'"
            )
        raise EventError(_no_files_message(text, example))
    form = EventFile(text).form
    _require_streamed(form, text)
    return WatchedFolder(escape_path(text), form)


def _require_streamed(form: str | None, text: str) -> None:
    if form == "arrow":
        raise EventError(
            f"Spark cannot stream Arrow files, as in {text}\n  hint: put Parquet files there, or use --events"
        )


def _no_files_message(folder: str, example: str) -> str:
    return (
        f"there are no files in {folder} yet, so their columns are not known\n"
        f"  hint: put a first file there, or give the columns: --stream '{example}' "
        '--schema "ts timestamp, type string, ..."'
    )


def open_streams(
    session: Any,
    sources_by_type: dict[str | None, list[Source]],
    schema: str | None,
    spelling: TextFileOptions = DEFAULT_TEXT_OPTIONS,
) -> Any:
    """Open the stream as a DataFrame, or as one for each event type."""
    from ensue.backends.spark import event_sources

    columns = None if schema is None else event_sources.parse_columns(schema)

    def open_source(source: Source) -> Any:
        match source:
            case WatchedFolder(path, form):
                return event_sources.read_folder(session, path, form, columns, spelling)
            case TopicSource(servers, name):
                return event_sources.read_kafka(session, servers, name, columns, spelling)
            case RateSource(rows):
                return event_sources.read_rate(session, rows)
            case _:
                assert_never(source)

    frames: dict[str | None, Any] = {}
    for kind, group in sources_by_type.items():
        for frame in map(open_source, group):
            frames[kind] = frames[kind].unionByName(frame) if kind in frames else frame
    return frames.get(None, frames)


# ---------------------------------------------------------------------------------- outputs


def require_stream_output(text: str) -> None:
    """Raise UsageError unless a stream can write to the output; `-` is standard output."""
    if text == "-" or text.startswith("delta:"):
        return
    if text.startswith("kafka://"):
        parse_topic(text)
        return
    form = FORMATS.get(Path(text).suffix.lower(), "parquet")
    if Path(text).is_file() or form != "parquet":
        raise UsageError(
            f"the matches of a stream cannot be written to the file {text}\n"
            "  hint: name a folder (for Parquet files), delta:FOLDER, or kafka://host:9092/topic; "
            "without --output they are printed"
        )


def build_sink(text: str) -> Any:
    """Return the sink for `ensue.start`."""
    if text.startswith("kafka://"):
        target = parse_topic(text)
        return ensue.kafka_topic(target.servers, target.name)
    if text.startswith("delta:"):
        return ensue.delta_table(text.removeprefix("delta:"))
    return ensue.parquet_table(text)
