"""What went wrong in Spark, in a line or two: Spark says it in pages of Java."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ensue.errors import (
    EnsueError,
    EventError,
    LimitError,
    OperatorError,
    QueryError,
    RunnerError,
    StateError,
)
from ensue.runners.spark.sayings import meant

_OURS = re.compile(r"ensue\.errors\.(\w+): (.*)")
_OTHERS = ("pyarrow.lib.Arrow", "java.io.", "java.net.", "org.apache.kafka.common.errors.")
_NOTHING_SAID = ("An error occurred while calling", "An exception was raised by the Python Proxy")
_CLASS = re.compile(r"^(: )?((java|py4j|org\.apache)\.[\w.$]*(Exception|Error)?: )*")
_STREAM = re.compile(r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_CONDITION = re.compile(r"^\[([A-Z0-9_.]+)\] ")
_STATE = re.compile(r"(\s*SQLSTATE: \w+;?)+\s*$")
_PLAN = "\n=== Streaming Query ==="
_CAUSE = "Caused by: "
_TRACEBACK = "Traceback (most recent call last):"
# what a Python traceback ends with, unless Spark itself has raised it
_PYTHON = re.compile(r"^(?!pyspark\.|py4j\.)(?:[\w.]+\.)?([A-Za-z_]\w*)(?:: (.*))?$")
_PYSPARK = re.compile(r"^\s*pyspark\.errors\.[\w.]+: (.*)")
_PLACE = re.compile(r'^\s*File "(.+)", line (\d+)')
_SILENT = (
    "Spark failed without giving a reason\n"
    "  hint: its log has more; a file of the checkpoint may be damaged"
)
_KINDS: dict[str, type[EnsueError]] = {
    "EventError": EventError,
    "LimitError": LimitError,
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
    text = str(error).partition(_PLAN)[0].strip()  # a plan holds any text of the query
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
    inside = [found[1] for found in map(_PYSPARK.match, told) if found]
    outside = [line for line in told if line.startswith(_OTHERS)]
    outside = outside or _in_java(told)
    said = [line for line in told if not line.startswith(_NOTHING_SAID)]
    return RunnerError(_bare((inside or outside or said or [""])[0]) or _SILENT)


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
    found: EnsueError | None = None
    for number, line in enumerate(lines):
        if not line.endswith(_TRACEBACK):
            continue
        end = next((n for n in range(number + 1, len(lines)) if lines[n][:1] != " "), len(lines))
        raised = _PYTHON.match(lines[end].strip()) if end < len(lines) else None
        if raised:
            places = [m for m in map(_PLACE.match, lines[number:end]) if m]
            own = [m for m in places if "/pyspark/" not in m[1] and "/py4j/" not in m[1]]
            where = f"\n  in {own[-1][1]}, line {own[-1][2]}" if own else ""
            said = f": {_bare(raised[2])}" if raised[2] else ""
            found = RunnerError(f"{raised[1]}{said}{where}")  # the last one is the innermost
    return found


def _in_java(lines: list[str]) -> list[str]:
    """What Java says where Python called it, and the innermost cause of it.

    >>> _in_java([": java.lang.X: [WRITE_FAILED] Not written.", "Caused by: java.lang.Y: locked"])
    ['Not written: locked']
    """
    said = [_bare(line).rstrip(".") for line in lines if line.startswith((": java.", ": org."))]
    causes = [_bare(line.removeprefix(_CAUSE)) for line in lines if line.startswith(_CAUSE)]
    return [": ".join(dict.fromkeys([said[-1], *causes[-1:]]))] if said else []


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
