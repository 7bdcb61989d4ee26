"""What Spark says of a stream that cannot go on, and what it means to who has started it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from re import Match

from ensue.errors import EnsueError, EventError, RunnerError, StateError

_NEW_CHECKPOINT = "use the checkpoint this stream began with, or name a new folder"
_GO_ON = "then start the stream again: it continues from its checkpoint and loses nothing"
_RESTORE = "restore the checkpoint from a copy, or name a new folder; a table gets no match twice"


@dataclass(frozen=True, slots=True)
class Saying:
    """A pattern in Spark's text, and what to say instead."""

    pattern: re.Pattern[str]
    meaning: Callable[[Match[str]], EnsueError]


def meant(text: str) -> EnsueError | None:
    """What a text of Spark's means, if it is one of those that users meet.

    >>> print(meant("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. ..."))
    another stream is using this checkpoint
      hint: stop it first; each stream needs its own checkpoint
    """
    for saying in _SAYINGS:
        found = saying.pattern.search(text)
        if found:
            return saying.meaning(found)
    return None


def _saying(pattern: str, meaning: Callable[[Match[str]], EnsueError]) -> Saying:
    return Saying(re.compile(pattern, re.DOTALL), meaning)


# --------------------------------------------------------------------------- the checkpoint


def _other_operators(found: Match[str]) -> EnsueError:
    written, now = (found[1].split("OperatorId:")[1:], found[2].split("OperatorId:")[1:])
    if not all("transformWithStateInPySpark" in one for one in written):
        return StateError(
            "the checkpoint belongs to a stream that is not Ensue's\n"
            "  hint: every stream needs its own checkpoint; name a new folder"
        )
    return StateError(
        "the checkpoint belongs to another query: its state is in "
        f"{_parts(len(written))}, and that of this query in {_parts(len(now))} (a query with "
        "definitions has one for each change of key, several queries one for each key)\n"
        f"  hint: {_NEW_CHECKPOINT}"
    )


def _parts(count: int) -> str:
    return f"{count} part" if count == 1 else f"{count} parts"


def _other_sources(found: Match[str]) -> EnsueError:
    return StateError(
        f"the checkpoint belongs to another stream: it reads {_sources(found[1])}, and this one "
        f"{_sources(found[2])}\n"
        f"  hint: {_NEW_CHECKPOINT}"
    )


def _sources(count: str) -> str:
    return "1 source" if count == "1" else f"{count} sources"


def _no_state(_: Match[str]) -> EnsueError:
    return StateError(
        "the checkpoint has no state: it belongs to a stream that is not Ensue's, or its state "
        f"folder is missing\n  hint: {_NEW_CHECKPOINT}"
    )


def _not_begun(_: Match[str]) -> EnsueError:
    return StateError(
        "the checkpoint has no state yet: no micro-batch has finished\n"
        "  hint: wait for the first one"
    )


def _in_use(_: Match[str]) -> EnsueError:
    return RunnerError(
        "another stream is using this checkpoint\n"
        "  hint: stop it first; each stream needs its own checkpoint"
    )


def _broken_file(found: Match[str]) -> EnsueError:
    name = _plain(found[1])
    return StateError(
        f"the checkpoint is damaged: {name} is missing, empty, truncated or overwritten\n"
        f"  hint: {_RESTORE}"
    )


def _moved(found: Match[str]) -> EnsueError:
    return StateError(
        f"the checkpoint was begun as {_plain(found[1])}, and Spark looks for a part of it there\n"
        "  hint: a checkpoint cannot be moved; move it back, or name a new one"
    )


def _broken_state(_: Match[str]) -> EnsueError:
    return StateError(
        "the checkpoint is damaged: a file of its state is missing, empty, truncated or "
        "overwritten\n"
        f"  hint: {_RESTORE}"
    )


def _broken_json(_: Match[str]) -> EnsueError:
    return StateError(
        "the checkpoint is damaged: a file of its logs (metadata, offsets, commits, sources) is "
        f"empty, cut short or overwritten\n  hint: {_RESTORE}"
    )


# ------------------------------------------------------------------------- files of events


def _unreadable(found: Match[str]) -> EnsueError:
    return EventError(
        f"cannot read the file {_plain(found[1])}: it is broken, missing, or in another format "
        "than "
        "the others\n  hint: repair or remove it, then start again"
    )


def _other_type(found: Match[str]) -> EnsueError:
    return EventError(
        f"the column {found[2]} of the file {_plain(found[1])} has another type: "
        f"here {found[3]}, there {found[4]}\n"
        "  hint: all files in a folder must have the same columns; put other files into "
        "another folder"
    )


def _nowhere(found: Match[str]) -> EnsueError:
    return EventError(
        f"there is no {_plain(found[1])}\n  hint: check the name, and whether the folder still "
        "exists"
    )


def _no_broker(_: Match[str]) -> EnsueError:
    return EventError(
        "Kafka does not respond\n  hint: check that the broker is running and reachable from here"
    )


def _plain(place: str) -> str:
    return re.sub(r"^file:/+", "/", place.rstrip(".,"))


def _worker_gone(_: Match[str]) -> EnsueError:
    return RunnerError(
        "a Python worker of Spark was killed, or crashed\n"
        "  hint: the machine may have run out of memory: fewer lanes at a time, or memory= for "
        f"each; {_GO_ON}"
    )


def _worker_not_started(_: Match[str]) -> EnsueError:
    return RunnerError(
        "a Python worker of Spark did not start in time, or could not start at all\n"
        "  hint: if the machine is busy, run fewer streams or tasks at a time; otherwise check "
        f"that PYSPARK_PYTHON names a Python that works; {_GO_ON}"
    )


def _connection_lost(_: Match[str]) -> EnsueError:
    return RunnerError(
        "Spark stopped answering a Python worker that was reading or writing its state: the state "
        "store has failed\n"
        "  hint: look whether the disk of the checkpoint or of spark.local.dir is full; Spark's "
        f"log has more; {_GO_ON}"
    )


def _disk_full(found: Match[str]) -> EnsueError:
    places = (
        (r"Task failed while writing rows to " + _FILE + r"\s", "the output "),
        (r"No space left on device: '([^']+)'", ""),
    )
    named = ((role, re.search(pattern, found.string)) for pattern, role in places)
    where = next((f"{role}{_plain(place[1])}" for role, place in named if place), None)
    if where is None:
        state = re.search(r"STATE_STORE|/state/|rocksdb", found.string, re.IGNORECASE)
        where = "the state of the checkpoint" if state else "the checkpoint or the output"
    return RunnerError(
        f"the disk is full: Spark cannot write {where}\n"
        f"  hint: make room on the disks of checkpoint, output and spark.local.dir; {_GO_ON}"
    )


_FILE = r"((?:[a-z0-9]+:)?/[^\s,]+?)\.?"
_SAYINGS = (
    _saying(r"No space left on device|Disk quota exceeded|enough space on the disk", _disk_full),
    _saying(
        r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA.*?"
        r"in the metadata: \[(.*?)\]; Stateful operators in current batch: \[(.*?)\]\.",
        _other_operators,
    ),
    _saying(
        r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\]",
        _other_sources,
    ),
    _saying(r"STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY", _no_state),
    _saying(
        r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|another query with same id is already "
        r"active|Multiple streaming queries are concurrently using",
        _in_use,
    ),
    _saying(r"File " + _FILE + r"/state/\d+/_stateSchema/\S+ does not exist", _moved),
    _saying(r"Failed to read log file " + _FILE + r"(?:\s|$)", _broken_file),
    _saying(r"streaming state file of " + _FILE + r"\s", _broken_file),
    _saying(r"STDS_COMMITTED_BATCH_UNAVAILABLE", _not_begun),
    _saying(r"CANNOT_LOAD_STATE_STORE|STDS_FAILED_TO_READ_", _broken_state),
    _saying(
        r"MALFORMED_LOG_FILE|STREAMING_CHECKPOINT_MISSING_METADATA_FILE|com\.fasterxml\.jackson"
        r"|Unexpected end-of-input|Unexpected character \('|Input length = 1 SQLSTATE"
        r"|assertion failed SQLSTATE",
        _broken_json,
    ),
    _saying(
        r"PARQUET_COLUMN_DATA_TYPE_MISMATCH\].*? " + _FILE + r"\s.*?column \[(.*?)\]\. "
        r"Expected Spark type (.*?), actual Parquet type (\w+)",
        _other_type,
    ),
    _saying(r"FAILED_READ_FILE\.\w+\].*? " + _FILE + r"\s", _unreadable),
    _saying(r"CANNOT_READ_FILE_FOOTER\].*? " + _FILE + r"\s", _unreadable),
    _saying(r"PATH_NOT_FOUND\] Path does not exist: " + _FILE + r"\s", _nowhere),
    _saying(r"org\.apache\.kafka\.common\.errors\.TimeoutException", _no_broker),
    _saying(r"Python worker exited unexpectedly", _worker_gone),
    _saying(r"Python worker failed to connect back", _worker_not_started),
    _saying(r"stateful_processor_api_client\.py\".*?\n\s*EOFError\b", _connection_lost),
)
