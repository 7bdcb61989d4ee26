"""A kernel's text put together: the names and functions that it uses, and the functions it is."""

from collections.abc import Mapping, Sequence

from ensue.source.constants import ARRAYS
from ensue.source.kernel_inputs import Frame
from ensue.source.names import words
from ensue.source.prelude import called
from ensue.source.table_columns import Source


def kernel_text(
    frame: Frame,
    title: str,
    functions: Sequence[Source],
    *,
    own: Mapping[str, str] | None = None,
    given: Sequence[str] = (),
) -> str:
    """The module of a kernel. Of what `own` has only what is called is written, `given` is all."""
    out = frame.source()
    out(f'"""Generated: a compiled matcher. {title}"""', "")
    used = set().union(*(function.words() for function in functions))
    texts = list(called(used, own or {}))
    for text in (*texts, *given):
        used |= words(text)
    out("import math", "") if "math" in used else None
    out("import numpy as np", "from numba import njit", "")
    names = list(frame.names.defined(used))
    out(*names, *([""] if names else []))
    for text in (*texts, *given):
        out("", *text.splitlines(), "")
    for function in functions:
        out("", *function.lines, "")
    return out.text()


def function(frame: Frame, name: str, parameters: Sequence[str], body: Source) -> Source:
    """A function that is given the kernel's constants; `body` is one deep."""
    out = frame.source()
    out(f"def {name}({', '.join((*ARRAYS, *parameters))}):")
    with out:
        out(*frame.constants.readings(body.words()))
        out.lines += body.lines
    return out
