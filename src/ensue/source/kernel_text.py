"""A kernel's text put together: the names and functions that it uses, and the functions it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ensue.source.constants import ARRAYS
from ensue.source.kernel_inputs import Frame
from ensue.source.names import words
from ensue.source.prelude import called, imported
from ensue.source.table_columns import Source

# What the parameters of kernels are, for a reader.
PARAMETERS = {
    "wholes": "constants of the query: integers",
    "reals": "and floats",
    "begin": "the first event to look at",
    "stop": "where to stop",
    "base": "the row of event 0 in the stream",
    "mask": "of each event: the roles that it can play",
    "key": "of each event: its partition; below 0: it has none",
    "starts": "of each event: when it starts",
    "ends": "of each event: when it ends",
    "now": "the time that it is",
    "flush": "whether the stream is over",
    "head": "the first run of each list, by partition",
    "live": "how many runs a partition has",
    "nxt": "the run behind each run in its list",
    "I": "runs: integers",
    "F": "and floats",
    "N": "events of Kleene variables, each linked to the one before: integers",
    "NF": "and floats",
    "A": "what is kept for later events: integers",
    "AF": "and floats",
    "tops": "the newest of each list in A, by partition",
    "counts": "how many events a partition had",
    "used": "by partition, the first row that a match may still begin with",
    "K": "what is kept of each partition: integers",
    "KF": "and floats",
    "L": "the last events of repeats, by partition: integers",
    "LF": "and floats",
    "T": "counters",
    "O": "matches",
    "meta": "numbers that stay between calls",
}


def kernel_text(
    frame: Frame,
    title: str,
    functions: Sequence["Function"],
    *,
    own: Mapping[str, str] | None = None,
    given: Sequence[str] = (),
) -> str:
    """The module of a kernel. Of what `own` has only what is called is written, `given` is all."""
    out = frame.source()
    out(f'"""Generated: a compiled matcher. {title}"""', "")
    used = set().union(*(function.used for function in functions))
    texts = list(called(used, own or {}))
    for text in (*texts, *given):
        used |= words(text)
    if "math" in used:
        out("import math", "")
    out("import numpy as np", "from numba import njit", *imported(used), "")
    out(*frame.names.defined(used), "")
    for text in (*texts, *given):
        out("", *text.splitlines(), "")
    for function in functions:
        out("", *function.source.lines, "")
    return out.text()


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a kernel, and the names in it."""

    source: Source
    used: set[str]


def function(frame: Frame, name: str, parameters: Sequence[str], body: Source) -> Function:
    """A function that is given the kernel's constants; `body` is one deep."""
    out, names = frame.source(), (*ARRAYS, *parameters)
    if frame.names.readable:
        _told(out, frame, name, names)
    else:
        out(f"def {name}({', '.join(names)}):")
    used = body.words()
    with out:
        out(*frame.constants.readings(used))
        out.lines += body.lines
    return Function(out, used)


def _told(out: Source, frame: Frame, name: str, parameters: Sequence[str]) -> None:
    """The head of a function with what each parameter is."""
    meanings = dict(PARAMETERS)
    for feature in frame.features.all():
        meanings[frame.array(feature)] = f"of each event: {feature.told}"
    with out.block(f"def {name}("):
        for parameter in parameters:
            meaning = meanings.get(parameter)
            out(f"{parameter}," + (f"  # {meaning}" if meaning else ""))
    out("):")
