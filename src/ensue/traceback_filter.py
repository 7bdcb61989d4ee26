"""Separates the user's frames of a traceback from those of Ensue and of libraries."""

import linecache
import sys
import sysconfig
from pathlib import Path
from types import TracebackType

_OWN = str(Path(__file__).parent) + "/"
_LIBRARIES = tuple(f"{Path(sysconfig.get_paths()[name])}/" for name in ("stdlib", "platstdlib", "purelib"))
_INSIDE = ("ensue.", "numba.", "functools", "contextlib", "ensue_kernel")
_CELL = ("<ipython-input-", "ipykernel_")  # parts of the file names of cells


def find_stacklevel() -> int:
    """The `stacklevel` of a warning that points at the user's code."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    return level


def strip_library_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The user's frames of a traceback, or None."""
    stripped: TracebackType | None = None
    for frame in reversed(list_user_frames(traceback)):
        stripped = TracebackType(stripped, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return stripped


def list_user_frames(traceback: TracebackType | None) -> list[TracebackType]:
    """The parts of a traceback in the user's code, the outermost first."""
    frames = []
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        if not name.startswith((_OWN, *_LIBRARIES, "<frozen ", "ensue_kernel")):
            frames.append(traceback)
        traceback = traceback.tb_next
    return frames


def format_user_frames(traceback: TracebackType | None) -> list[str]:
    """Formats the user's frames of a traceback: two lines for each."""
    lines: list[str] = []
    for frame in list_user_frames(traceback):
        code, line = frame.tb_frame.f_code, frame.tb_lineno
        in_cell = any(mark in code.co_filename for mark in _CELL)
        where = "the cell" if in_cell else Path(code.co_filename).name
        function = "" if code.co_name.startswith("<") else f", in {code.co_name}"
        lines.append(f"{where}, line {line}{function}")
        text = linecache.getline(code.co_filename, line).strip()
        lines += [f"    {text}"] if text else []
    return lines
