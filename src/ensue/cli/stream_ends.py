"""Both ends of a stream as a command line names them: where events come from, matches go."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import ensue
from ensue.cli.event_files import event_files
from ensue.cli.terminal import UsageError
from ensue.errors import EventError
from ensue.runners.event_files import FORMS, EventFile, shown_files
from ensue.runners.spark.paths import literal
from ensue.runners.text_columns import PLAIN, Spelling


@dataclass(frozen=True, slots=True)
class Folder:
    """Files that are there, and those that will be put there."""

    path: str  # as Spark reads it: a pattern
    form: str


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of Kafka."""

    servers: str
    name: str


@dataclass(frozen=True, slots=True)
class Rate:
    """A generated stream for trials."""

    rows: int


Source = Folder | Topic | Rate


# ---------------------------------------------------------------------------------- sources


def sources(arguments: list[str], *, declared: bool) -> dict[str | None, list[Source]]:
    """What the `--stream` options name, by event type; `declared`: the columns are known."""
    found: dict[str | None, list[Source]] = {}
    for file in event_files(arguments, option="--stream", patterns=False):
        found.setdefault(file.type, []).append(source(file.path, declared=declared))
    return found


def source(text: str, *, declared: bool = False) -> Source:
    """One of them.

    >>> source("kafka://one:9092,two:9092/trades")
    Topic(servers='one:9092,two:9092', name='trades')
    >>> source("rate://1000")
    Rate(rows=1000)
    """
    scheme, _, rest = text.partition("://")
    match scheme:
        case "kafka":
            return topic(text)
        case "rate":
            rows = rest.replace("_", "").replace(",", "")
            if not rows.isdecimal() or int(rows) < 1:
                raise UsageError(f"{text}: how many events a second? Write it like rate://1000")
            return Rate(int(rows))
        case _:
            return _folder(text, declared=declared)


def topic(text: str) -> Topic:
    """A topic of Kafka: `kafka://host:port/topic`."""
    servers, slash, name = text.removeprefix("kafka://").partition("/")
    if not (servers and slash and name) or "/" in name:
        raise UsageError(f"{text} does not name a topic; write it like kafka://host:9092/topic")
    return Topic(servers, name)


def _folder(text: str, *, declared: bool) -> Folder:
    named = FORMS.get(Path(text).suffix.lower())
    _require_streamed(named, text)
    if "://" in text:  # only Spark can look there
        return Folder(text, named or "parquet")
    path = Path(text)
    if path.is_file():
        raise UsageError(
            f"{text} is a file, and a stream needs a folder that files are added to\n"
            "  hint: name the folder, or use --events for a file"
        )
    if path.is_dir():
        return _with_files(text, declared=declared)
    if named is None or "*" not in path.name or not path.parent.is_dir():
        raise EventError(f"there is no folder {text}")
    if not declared and not any(path.parent.glob(path.name)):
        raise EventError(_nothing_yet(text, text))
    return Folder(f"{literal(path.parent)}/{path.name}", named)


def _with_files(text: str, *, declared: bool) -> Folder:
    empty = not shown_files(Path(text))
    if empty:
        example = str(Path(text) / "*.parquet")
        if declared:
            raise EventError(
                f"the folder {text} is empty, so the file format is unknown\n"
                f"  hint: give a pattern for their names: --stream '{example}'"
            )
        raise EventError(_nothing_yet(text, example))
    form = EventFile(text).form
    _require_streamed(form, text)
    return Folder(literal(text), form)


def _require_streamed(form: str | None, text: str) -> None:
    if form == "arrow":
        raise EventError(
            f"Spark cannot stream Arrow files, as in {text}\n"
            "  hint: put Parquet files there, or use --events"
        )


def _nothing_yet(folder: str, example: str) -> str:
    return (
        f"there are no files in {folder} yet, so their columns are not known\n"
        f"  hint: put a first file there, or give the columns: --stream '{example}' "
        '--schema "ts timestamp, type string, ..."'
    )


def opened(
    session: Any,
    found: dict[str | None, list[Source]],
    schema: str | None,
    spelling: Spelling = PLAIN,
) -> Any:
    """The stream as a DataFrame, or as one for each event type."""
    from ensue.runners.spark import sources as spark_sources

    columns = None if schema is None else spark_sources.columns_of(schema)

    def one(source: Source) -> Any:
        match source:
            case Folder(path, form):
                return spark_sources.folder(session, path, form, columns, spelling)
            case Topic(servers, name):
                return spark_sources.kafka(session, servers, name, columns, spelling)
            case Rate(rows):
                return spark_sources.rate(session, rows)
            case _:
                assert_never(source)

    frames: dict[str | None, Any] = {}
    for kind, several in found.items():
        for frame in map(one, several):
            frames[kind] = frames[kind].unionByName(frame) if kind in frames else frame
    return frames.get(None, frames)


# ---------------------------------------------------------------------------------- outputs


def require_output(text: str) -> None:
    """Raises UsageError unless matches of a stream can go there; `-` is standard output."""
    if text == "-" or text.startswith("delta:"):
        return
    if text.startswith("kafka://"):
        topic(text)
        return
    form = FORMS.get(Path(text).suffix.lower(), "parquet")
    if Path(text).is_file() or form != "parquet":
        raise UsageError(
            f"the matches of a stream cannot be written to the file {text}\n"
            "  hint: name a folder (for Parquet files), delta:FOLDER, or kafka://host:9092/topic; "
            "without --output they are printed"
        )


def sink(text: str) -> Any:
    """Where matches go, as `ensue.start` takes it."""
    if text.startswith("kafka://"):
        to = topic(text)
        return ensue.kafka_topic(to.servers, to.name)
    if text.startswith("delta:"):
        return ensue.delta_table(text.removeprefix("delta:"))
    return ensue.parquet_table(text)
