"""Translates Spark's errors into errors of Ensue with short messages."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from re import Match
from typing import Any, NamedTuple

from ensue.errors import EnsueError, EventError, LimitError, OperatorError, QueryError, RunnerError, StateError

_NEW_CHECKPOINT = "use the checkpoint this stream began with, or name a new folder"
_RESTART = "then start the stream again: it continues from its checkpoint and loses nothing"
_RESTORE = "restore the checkpoint from a copy, or name a new folder; a table gets no match twice"


class Translation(NamedTuple):
    """A pattern in Spark's message, and the error to raise instead."""

    pattern: str
    error: type[EnsueError]
    message: str | Callable[[Match[str]], str]  # a template of the pattern's groups, or a function


def translate_message(text: str) -> EnsueError | None:
    for pattern, error, message in _TRANSLATIONS:
        if found := re.search(pattern, text, re.DOTALL):
            if callable(message):
                return error(message(found))
            return error(message.format(*map(_plain, found.groups())))
    return None


def _plain(place: str) -> str:
    return re.sub(r"^file:/+", "/", place.rstrip(".,"))


def _other_operators(found: Match[str]) -> str:
    written, now = (found[1].split("OperatorId:")[1:], found[2].split("OperatorId:")[1:])
    if not all("transformWithStateInPySpark" in name for name in written):
        return (
            "the checkpoint belongs to a stream that is not Ensue's\n"
            "  hint: every stream needs its own checkpoint; name a new folder"
        )
    return (
        "the checkpoint belongs to another query: its state has "
        f"{_count(len(written), 'part')}, and that of this query {_count(len(now), 'part')} "
        "(a query with definitions has one for each change of key, several queries one for each "
        f"key)\n  hint: {_NEW_CHECKPOINT}"
    )


def _count(number: int | str, noun: str) -> str:
    return f"{number} {noun}{'' if str(number) == '1' else 's'}"


def _disk_full(found: Match[str]) -> str:
    places = (
        (r"Task failed while writing rows to " + _FILE + r"\s", "the output "),
        (r"No space left on device: '([^']+)'", ""),
    )
    named = ((role, re.search(pattern, found.string)) for pattern, role in places)
    where = next((f"{role}{_plain(place[1])}" for role, place in named if place), None)
    if where is None:
        state = re.search(r"STATE_STORE|/state/|rocksdb", found.string, re.IGNORECASE)
        where = "the state of the checkpoint" if state else "the checkpoint or the output"
    return (
        f"the disk is full: Spark cannot write {where}\n"
        f"  hint: free space on the disks of checkpoint, output and spark.local.dir; {_RESTART}"
    )


_FILE = r"((?:[a-z0-9]+:)?/[^\s,]+?)\.?"
_DAMAGED_FILE = f"the checkpoint is damaged: {{0}} is missing, empty, truncated or overwritten\n  hint: {_RESTORE}"
_UNREADABLE = (
    "cannot read the file {0}: it is damaged, missing, or in another format than the others\n"
    "  hint: repair or remove it, then start again"
)
_TRANSLATIONS = (
    Translation(r"No space left on device|Disk quota exceeded|enough space on the disk", RunnerError, _disk_full),
    Translation(
        r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA.*?"
        r"in the metadata: \[(.*?)\]; Stateful operators in current batch: \[(.*?)\]\.",
        StateError,
        _other_operators,
    ),
    Translation(
        r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\]",
        StateError,
        lambda found: (
            "the checkpoint belongs to another stream: it reads "
            f"{_count(found[1], 'source')}, and this one {_count(found[2], 'source')}\n"
            f"  hint: {_NEW_CHECKPOINT}"
        ),
    ),
    Translation(
        r"STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
        StateError,
        "the checkpoint has no state: it belongs to a stream that is not Ensue's, or its state "
        f"folder is missing\n  hint: {_NEW_CHECKPOINT}",
    ),
    Translation(
        r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|another query with same id is already "
        r"active|Multiple streaming queries are concurrently using",
        RunnerError,
        "another stream is using this checkpoint\n  hint: stop it first; each stream needs its own checkpoint",
    ),
    Translation(
        r"File " + _FILE + r"/state/\d+/_stateSchema/\S+ does not exist",
        StateError,
        "the checkpoint was begun as {0}, and Spark looks for a part of it there\n"
        "  hint: a checkpoint cannot be moved; move it back, or name a new one",
    ),
    Translation(r"Failed to read log file " + _FILE + r"(?:\s|$)", StateError, _DAMAGED_FILE),
    Translation(r"streaming state file of " + _FILE + r"\s", StateError, _DAMAGED_FILE),
    Translation(
        r"STDS_COMMITTED_BATCH_UNAVAILABLE",
        StateError,
        "the checkpoint has no state yet: no micro-batch has finished\n  hint: wait for the first one",
    ),
    Translation(
        r"CANNOT_LOAD_STATE_STORE|STDS_FAILED_TO_READ_",
        StateError,
        "the checkpoint is damaged: a file of its state is missing, empty, truncated or "
        f"overwritten\n  hint: {_RESTORE}",
    ),
    Translation(
        r"MALFORMED_LOG_FILE|STREAMING_CHECKPOINT_MISSING_METADATA_FILE|com\.fasterxml\.jackson"
        r"|Unexpected end-of-input|Unexpected character \('|Input length = 1 SQLSTATE"
        r"|assertion failed SQLSTATE",
        StateError,
        "the checkpoint is damaged: a file of its logs (metadata, offsets, commits, sources) is "
        f"empty, truncated or overwritten\n  hint: {_RESTORE}",
    ),
    Translation(
        r"PARQUET_COLUMN_DATA_TYPE_MISMATCH\].*? " + _FILE + r"\s.*?column \[(.*?)\]\. "
        r"Expected Spark type (.*?), actual Parquet type (\w+)",
        EventError,
        "the column {1} of the file {0} has another type: here {2}, there {3}\n"
        "  hint: all files in a folder must have the same columns; put other files into another "
        "folder",
    ),
    Translation(r"FAILED_READ_FILE\.\w+\].*? " + _FILE + r"\s", EventError, _UNREADABLE),
    Translation(r"CANNOT_READ_FILE_FOOTER\].*? " + _FILE + r"\s", EventError, _UNREADABLE),
    Translation(
        r"PATH_NOT_FOUND\] Path does not exist: " + _FILE + r"\s",
        EventError,
        "there is no {0}\n  hint: check the name, and whether the folder still exists",
    ),
    Translation(
        r"org\.apache\.kafka\.common\.errors\.TimeoutException",
        EventError,
        "Kafka does not respond\n  hint: check that the broker is running and reachable from here",
    ),
    Translation(
        r"Python worker exited unexpectedly",
        RunnerError,
        "a Python worker of Spark was killed, or crashed\n"
        "  hint: the machine may have run out of memory: run fewer tasks at a time, or set "
        f"ensue.Limits(memory=...); {_RESTART}",
    ),
    Translation(
        r"Python worker failed to connect back",
        RunnerError,
        "a Python worker of Spark did not start in time, or could not start at all\n"
        "  hint: if the machine is busy, run fewer streams or tasks at a time; otherwise check "
        f"that PYSPARK_PYTHON names a Python that works; {_RESTART}",
    ),
    Translation(
        r"stateful_processor_api_client\.py\".*?\n\s*EOFError\b",
        RunnerError,
        "Spark stopped answering a Python worker that was reading or writing its state: the state "
        "store has failed\n"
        "  hint: check whether the disk of the checkpoint or of spark.local.dir is full; Spark's "
        f"log has more; {_RESTART}",
    ),
)


# ------------------------------------------------------------------------- Java and Python stacks

_ENSUE_ERROR = re.compile(r"ensue\.errors\.(\w+): (.*)")
_LIBRARIES = ("pyarrow.lib.Arrow", "java.io.", "java.net.", "org.apache.kafka.common.errors.")
_BOILERPLATE = ("An error occurred while calling", "An exception was raised by the Python Proxy")
_CLASS = re.compile(r"^(: )?((java|py4j|org\.apache)\.[\w.$]*(Exception|Error)?: )*")
_STREAM = re.compile(r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_CONDITION = re.compile(r"^\[([A-Z0-9_.]+)\] ")
_STATE = re.compile(r"(\s*SQLSTATE: \w+;?)+\s*$")
_PLAN = "\n=== Streaming Query ==="
_CAUSE = "Caused by: "
_TRACEBACK = "Traceback (most recent call last):"
# the last line of a Python traceback that Spark itself has not raised
_PYTHON = re.compile(r"^(?!pyspark\.|py4j\.)(?:[\w.]+\.)?([A-Za-z_]\w*)(?:: (.*))?$")
_PYSPARK = re.compile(r"^\s*pyspark\.errors\.[\w.]+: (.*)")
_PLACE = re.compile(r'^\s*File "(.+)", line (\d+)')
_NO_REASON = "Spark failed without giving a reason\n  hint: its log has more; a file of the checkpoint may be damaged"
_KINDS: dict[str, type[EnsueError]] = {
    kind.__name__: kind for kind in (EventError, LimitError, OperatorError, QueryError, StateError)
}


def translate_error(error: BaseException) -> EnsueError:
    r"""Translate an exception of Spark; an Ensue error that a task raised comes first.

    >>> translate_error(Exception("a\nensue.errors.EventError: no time\n  hint: drop it\n\tat java"))
    EventError('no time\n  hint: drop it')
    """
    if isinstance(error, EnsueError):
        return error
    text = str(error).partition(_PLAN)[0].strip()  # a plan contains any text of the query
    lines = text.splitlines()
    for number, line in enumerate(lines):
        ours = _ENSUE_ERROR.match(line.strip())
        if ours:
            kind = _KINDS.get(ours[1], RunnerError)
            return kind("\n".join([ours[2], *_continuation(lines[number + 1 :])]))
    known = translate_message(text) or _in_python(lines)
    if known is not None:
        return known
    texts = [line.strip() for line in lines if line.strip()]
    inside = [found[1] for found in map(_PYSPARK.match, texts) if found]
    outside = [line for line in texts if line.startswith(_LIBRARIES)]
    outside = outside or _in_java(texts)
    messages = [line for line in texts if not line.startswith(_BOILERPLATE)]
    return RunnerError(_bare((inside or outside or messages or [""])[0]) or _NO_REASON)


def _continuation(lines: list[str]) -> list[str]:
    """Return the further lines of a message, which are indented by blanks and not by tabs."""
    message = []
    for line in lines:
        if not line.startswith("  ") or line.lstrip().startswith(("at ", "File ")):
            break
        message.append(line.rstrip())
    return message


def _in_python(lines: list[str]) -> EnsueError | None:
    """Return a Python error of a user's function or of a worker."""
    error: EnsueError | None = None
    for number, line in enumerate(lines):
        if not line.endswith(_TRACEBACK):
            continue
        end = next((n for n in range(number + 1, len(lines)) if lines[n][:1] != " "), len(lines))
        raised = _PYTHON.match(lines[end].strip()) if end < len(lines) else None
        if raised:
            places = [m for m in map(_PLACE.match, lines[number:end]) if m]
            own = [m for m in places if "/pyspark/" not in m[1] and "/py4j/" not in m[1]]
            where = f"\n  in {own[-1][1]}, line {own[-1][2]}" if own else ""
            message = f": {_bare(raised[2])}" if raised[2] else ""
            error = RunnerError(f"{raised[1]}{message}{where}")  # the last one is the innermost
    return error


def _in_java(lines: list[str]) -> list[str]:
    """Return the message of the Java error and of its innermost cause.

    >>> _in_java([": java.lang.X: [WRITE_FAILED] Not written.", "Caused by: java.lang.Y: locked"])
    ['Not written: locked']
    """
    messages = [_bare(line).rstrip(".") for line in lines if line.startswith((": java.", ": org."))]
    causes = [_bare(line.removeprefix(_CAUSE)) for line in lines if line.startswith(_CAUSE)]
    return [": ".join(dict.fromkeys([messages[-1], *causes[-1:]]))] if messages else []


def _bare(line: str) -> str:
    """Remove the error classes and codes of Spark and Java from a line.

    >>> _bare("[STREAM_FAILED] Query [id = 1] terminated with exception: [X] No. SQLSTATE: 42K03")
    'No.'
    """
    line = _CLASS.sub("", _STREAM.sub("", line))
    return _STATE.sub("", _CONDITION.sub("", line))


def get_condition(error: BaseException) -> str | None:
    """Return Spark's name of an error, such as PATH_NOT_FOUND."""
    named = getattr(error, "getCondition", None)
    condition = None if named is None else named()
    return None if condition is None else str(condition)


def get_error_types() -> tuple[type[Exception], ...]:
    """Return the exception classes of Spark; some Java errors only have that of Py4J."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


@contextmanager
def translate_errors(beginning: str = "", kind: type[EnsueError] | None = None) -> Iterator[None]:
    """Translate errors that Spark raises inside.

    `beginning` is put before the message of an error without a better translation, or, as an
    error of this `kind`, before any message.
    """
    try:
        yield
    except get_error_types() as error:
        why = translate_error(error)
        if kind is None and type(why) is not RunnerError:
            raise why from None
        raise (kind or RunnerError)(f"{beginning}{why}") from None


def get_stream_failure(query: Any) -> EnsueError | None:
    error = query.exception()
    return None if error is None else translate_error(error)
