"""Constants of a kernel as arguments: queries that differ in them alone share one compiled text.

The writers mark a constant where they write it. Before the text is compiled, the marks in
`step`, `sweep` and `settle_all` become names, whose values the functions are given in two arrays.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

FUNCTIONS = ("step", "sweep", "settle_all")  # the others have their constants in the text
_MARK = re.compile(r"\b(whole|real)_constant\(([^()]*)\)")
_FUNCTION = re.compile(r"^def (\w+)\((.*)\):$")


def marked(value: float) -> str:
    """A number in a kernel's source, which `lifted` finds again.

    >>> marked(5), marked(-1.5)
    ('whole_constant(5)', 'real_constant(-1.5)')
    """
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return f"whole_constant({value})"
    return f"real_constant({float(value)!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Lifted:
    """A kernel's text without its constants, and the constants."""

    text: str
    wholes: npt.NDArray[np.int64]
    reals: npt.NDArray[np.float64]


@lru_cache(maxsize=4_096)
def lifted(text: str) -> Lifted:
    """Takes the marked constants out of a kernel's text.

    >>> found = lifted("def step(i, n):\\n    return i > whole_constant(7)\\n")
    >>> print(found.text)
    def step(W, R, i, n):
        w0 = W[0]
        return i > w0
    <BLANKLINE>
    >>> found.wholes
    array([7])
    """
    wholes: list[int] = []
    reals: list[float] = []
    lines: list[str] = []
    begin = 0  # where the names of the function at hand are read from the arrays
    names: tuple[list[str], list[str]] = ([], [])
    inside = False

    def named(mark: re.Match[str]) -> str:
        kind, value = mark.groups()
        if not inside:
            return _inline(value)
        if kind == "whole":
            wholes.append(int(value))
            names[0].append(f"    w{len(wholes) - 1} = W[{len(wholes) - 1}]")
            return f"w{len(wholes) - 1}"
        reals.append(float(value))
        names[1].append(f"    r{len(reals) - 1} = R[{len(reals) - 1}]")
        return f"r{len(reals) - 1}"

    def close() -> None:
        lines[begin:begin] = [*names[0], *names[1]]
        names[0].clear()
        names[1].clear()

    for line in text.split("\n"):
        head = _FUNCTION.match(line)
        if head is None:
            lines.append(_MARK.sub(named, line))
            continue
        close()
        name, parameters = head.groups()
        inside = name in FUNCTIONS
        lines.append(f"def {name}(W, R, {parameters}):" if inside else line)
        begin = len(lines)
    close()
    return Lifted("\n".join(lines), np.array(wholes, np.int64), np.array(reals, np.float64))


def _inline(value: str) -> str:
    number = float(value)
    if number != number:
        return "np.nan"
    if number in (float("inf"), float("-inf")):
        return "np.inf" if number > 0 else "(-np.inf)"
    return f"({value})"
