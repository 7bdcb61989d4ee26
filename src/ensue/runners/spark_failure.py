"""What went wrong in Spark, in a line or two: Spark says it in pages of Java."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ensue.errors import (
    EnsueError,
    EventError,
    OperatorError,
    QueryError,
    RunnerError,
    StateError,
)
from ensue.runners.spark_sayings import meant

_OURS = re.compile(r"ensue\.errors\.(\w+): (.*)")
_OTHERS = ("pyarrow.lib.Arrow", "java.io.", "java.net.", "org.apache.kafka.common.errors.")
_NOTHING_SAID = ("An error occurred while calling", "An exception was raised by the Python Proxy")
_CLASS = re.compile(r"^(: )?((java|py4j|org\.apache)\.[\w.$]*(Exception|Error)?: )*")
_STREAM = re.compile(r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_CONDITION = re.compile(r"^\[([A-Z0-9_.]+)\] ")
_STATE = re.compile(r"(\s*SQLSTATE: \w+)+\s*$")
# the last line of a Python traceback, and the place above it
_PYTHON = re.compile(r"^\s*(?!java|org\.|py4j|pyspark)(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.*)")
_PLACE = re.compile(r'^\s*File "(.+)", line (\d+)')
_KINDS: dict[str, type[EnsueError]] = {
    "EventError": EventError,
    "OperatorError": OperatorError,
    "QueryError": QueryError,
    "StateError": StateError,
}


def failure(error: BaseException) -> EnsueError:
    r"""The error that counts: ours, if one was raised where Spark called us.

    >>> failure(Exception("a\nensue.errors.EventError: no time\n  hint: drop it\n\tat java"))
    EventError('no time\n  hint: drop it')
    """
    if isinstance(error, EnsueError):
        return error
    text = str(error).strip()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        ours = _OURS.match(line.strip())
        if ours:
            kind = _KINDS.get(ours[1], RunnerError)
            return kind("\n".join([ours[2], *_going_on(lines[number + 1 :])]))
    known = meant(text) or _in_python(lines)
    if known is not None:
        return known
    told = [line.strip() for line in lines if line.strip()]
    outside = [line for line in told if line.startswith(_OTHERS)]
    said = [line for line in told if not line.startswith(_NOTHING_SAID)]
    return RunnerError(_bare((outside or said or [type(error).__name__])[0]))


def _going_on(lines: list[str]) -> list[str]:
    """The further lines of a message: they are indented, as Java's stack is, but by blanks."""
    found = []
    for line in lines:
        if not line.startswith("  ") or line.lstrip().startswith(("at ", "File ")):
            break
        found.append(line.rstrip())
    return found


def _in_python(lines: list[str]) -> EnsueError | None:
    """An error of Python's that is not ours: of a user's function, or in a worker."""
    ends = [n for n, line in enumerate(lines) if _PYTHON.match(line)]
    if not ends:
        return None
    last = ends[-1]  # the innermost one
    found = _PYTHON.match(lines[last])
    assert found is not None
    places = [m for m in map(_PLACE.match, lines[:last]) if m]
    own = [m for m in places if "/pyspark/" not in m[1] and "/py4j/" not in m[1]]
    where = f"\n  in {own[-1][1]}, line {own[-1][2]}" if own else ""
    return RunnerError(f"{found[1]}: {_bare(found[2])}{where}")


def _bare(line: str) -> str:
    """A line without the names that Spark and Java give their errors.

    >>> _bare("[STREAM_FAILED] Query [id = 1] terminated with exception: [X] No. SQLSTATE: 42K03")
    'No.'
    """
    line = _CLASS.sub("", _STREAM.sub("", line))
    return _STATE.sub("", _CONDITION.sub("", line))


def condition_of(error: BaseException) -> str | None:
    """The name that Spark has for an error, such as PATH_NOT_FOUND."""
    named = getattr(error, "getCondition", None)
    condition = None if named is None else named()
    return None if condition is None else str(condition)


def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises; for some errors of Java it has no class of its own."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


@contextmanager
def own_errors(beginning: str = "") -> Iterator[None]:
    """What Spark raises inside comes out as an error of ours; `beginning` is for those that
    only repeat what Spark says."""
    try:
        yield
    except spark_errors() as error:
        why = failure(error)
        raise (RunnerError(f"{beginning}{why}") if type(why) is RunnerError else why) from None


def failed(query: Any) -> EnsueError | None:
    """Why a stream has stopped by itself; None: it was not a failure."""
    error = query.exception()
    return None if error is None else failure(error)
