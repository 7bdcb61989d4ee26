"""Recognizes names of query files and suggests the file for a misspelled name."""

import re
from difflib import get_close_matches
from pathlib import Path

SUFFIXES = (".ensue", ".txt", ".sql")
_PATH = re.compile(r"(?!.*->)(?=.*[./\\])[\w./\\:~@%-]+")
_LONGEST = 1_024
_SHOWN = 12


def is_file_name(text: str) -> bool:
    """Whether a text is a file name, existing or not, and cannot be a query.

    >>> is_file_name("queries/thefts"), is_file_name("SEQ(A a, B b) WHERE a.x = b.txt")
    (True, False)
    """
    name = text.strip()
    if not name or "\n" in name or len(name) > _LONGEST:
        return False
    if _PATH.fullmatch(name):
        return True
    # a name with blanks counts only in an existing folder
    path = Path(name)
    return path.suffix.lower() in SUFFIXES and path.parent != Path() and path.parent.is_dir()


def is_file(text: str) -> bool:
    """Whether a file of this name exists; a long text is no file name."""
    return "\n" not in text and len(text) <= _LONGEST and Path(text).is_file()


def find_nearest_file(path: Path) -> str | None:
    """Returns the query file in the same folder with the most similar name."""
    names = _list_query_files(path.parent)
    candidates = (path.name, f"{path.stem}{SUFFIXES[0]}")
    near = (name for wanted_name in candidates for name in get_close_matches(wanted_name, names, n=1, cutoff=0.6))
    return next(near, None)


def suggest_file(path: Path) -> str:
    """Returns a hint for a missing file: a similar name, or the files of its folder."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} (the current one is {Path.cwd()})"
    near = find_nearest_file(path)
    if near is not None:
        return f"did you mean '{path.with_name(near)}'?"
    names = _list_query_files(folder)
    if not names:
        return f"there are no query files in {folder.resolve()}"
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"query files in {folder.resolve()}: {shown}"


def _list_query_files(folder: Path) -> list[str]:
    try:
        return sorted(p.name for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
    except OSError:  # without permission
        return []
