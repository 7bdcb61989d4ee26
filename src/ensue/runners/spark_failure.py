"""What went wrong in Spark, in a line or two: Spark says it in pages of Java."""

import re
from typing import Any

from ensue.errors import EnsueError, EventError, LimitError, RunnerError, StateError

_OURS = re.compile(r"ensue\.errors\.(\w+): (.*)")
_OTHERS = ("pyarrow.lib.Arrow", "java.io.", "java.net.", "org.apache.kafka.common.errors.")
_NOTHING_SAID = ("An error occurred while calling", "An exception was raised by the Python Proxy")
_CLASS = re.compile(r"^(: )?((java|py4j|org\.apache)\.[\w.$]*(Exception|Error)?: )*")
_KINDS: dict[str, type[EnsueError]] = {
    "EventError": EventError,
    "StateError": StateError,
    "LimitError": LimitError,
}


def failure(error: Exception) -> EnsueError:
    r"""The error that counts: ours, if one was raised where Spark called us.

    >>> failure(Exception("a\nensue.errors.EventError: no time\n  hint: drop it\n\tat java"))
    EventError('no time\n  hint: drop it')
    """
    if isinstance(error, EnsueError):
        return error
    lines = str(error).strip().splitlines()
    for number, line in enumerate(lines):
        ours = _OURS.match(line.strip())
        if ours:
            kind = _KINDS.get(ours[1], RunnerError)
            return kind("\n".join([ours[2], *_going_on(lines[number + 1 :])]))
    told = [line.strip() for line in lines if line.strip()]
    known = [line for line in told if line.startswith(_OTHERS)]
    said = [line for line in told if not line.startswith(_NOTHING_SAID)]
    return RunnerError(_CLASS.sub("", (known or said or [type(error).__name__])[0]))


def _going_on(lines: list[str]) -> list[str]:
    """The further lines of a message: they are indented, as Java's stack is, but by blanks."""
    found = []
    for line in lines:
        if not line.startswith("  ") or line.lstrip().startswith(("at ", "File ")):
            break
        found.append(line.rstrip())
    return found


def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises; for some errors of Java it has no class of its own."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def failed(query: Any) -> EnsueError | None:
    """Why a stream has stopped by itself; None: it was not a failure."""
    error = query.exception()
    return None if error is None else failure(error)
