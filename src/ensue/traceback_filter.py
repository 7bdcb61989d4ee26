"""Which frames of a traceback are ours: those of Ensue and of the libraries it works with."""

import linecache
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, TracebackType

_OWN = str(Path(__file__).parent) + "/"
_LIBRARIES = tuple(
    f"{Path(sysconfig.get_paths()[name])}/" for name in ("stdlib", "platstdlib", "purelib")
)
_INSIDE = ("ensue.", "numba.", "functools", "contextlib", "ensue_kernel")
_CELL = ("<ipython-input-", "ipykernel_")  # what IPython calls the file of a cell


def find_stacklevel() -> int:
    """How many calls up there is code that is neither ours nor Numba's: where a warning belongs.

    It is meant as `warnings.warn(..., stacklevel=outside())`.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    return level


def is_library_code(code: CodeType) -> bool:
    """Whether code is of Ensue, of an installed library or of Python itself."""
    name = code.co_filename
    return name.startswith((_OWN, *_LIBRARIES, "<frozen ", "ensue_kernel"))


def strip_library_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The frames of a traceback that are the user's; None where there are none."""
    kept: TracebackType | None = None
    for frame in reversed(list(list_user_frames(traceback))):
        kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def list_user_frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    """The parts of a traceback that are in the user's code, from the outermost on."""
    while traceback is not None:
        if not is_library_code(traceback.tb_frame.f_code):
            yield traceback
        traceback = traceback.tb_next


def format_user_frames(traceback: TracebackType | None) -> list[str]:
    """Where in the user's code something happened, as lines to show: two for each frame."""
    found: list[str] = []
    for frame in list_user_frames(traceback):
        code, line = frame.tb_frame.f_code, frame.tb_lineno
        in_cell = any(mark in code.co_filename for mark in _CELL)
        where = "the cell" if in_cell else Path(code.co_filename).name
        function = "" if code.co_name.startswith("<") else f", in {code.co_name}"
        found.append(f"{where}, line {line}{function}")
        text = linecache.getline(code.co_filename, line).strip()
        found += [f"    {text}"] if text else []
    return found
