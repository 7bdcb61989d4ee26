"""Query files by name: whether a text is one, and which one may have been meant."""

import re
from difflib import get_close_matches
from pathlib import Path

SUFFIXES = (".ensue", ".txt", ".sql")
_PATH = re.compile(r"(?!.*->)(?=.*[./\\])[\w./\\:~@%-]+")
_LONGEST = 1_024
_SHOWN = 12


def names_a_file(text: str) -> bool:
    """Whether a text is the name of a file, there or not, and cannot be a query.

    >>> names_a_file("thefts.ensue"), names_a_file("queries/thefts")
    (True, True)
    >>> names_a_file("A->B"), names_a_file("SEQ(A a, B b) WHERE a.x = b.txt")
    (False, False)
    """
    name = text.strip()
    if not name or "\n" in name or len(name) > _LONGEST:
        return False
    if _PATH.fullmatch(name):
        return True
    # a name with blanks: in a folder that is there
    path = Path(name)
    return path.suffix.lower() in SUFFIXES and path.parent != Path() and path.parent.is_dir()


def is_file(text: str) -> bool:
    """Whether there is a file of this name; a long text is none."""
    return "\n" not in text and len(text) <= _LONGEST and Path(text).is_file()


def nearest(path: Path) -> str | None:
    """The query file beside it that has the nearest name."""
    names = _beside(path.parent)
    wanted = (path.name, f"{path.stem}{SUFFIXES[0]}")
    near = (name for w in wanted for name in get_close_matches(w, names, n=1, cutoff=0.6))
    return next(near, None)


def meant(path: Path) -> str:
    """A hint for a file that is not there: what is near, or which files its folder has."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} (the current one is {Path.cwd()})"
    near = nearest(path)
    if near is not None:
        return f"did you mean '{path.with_name(near)}'?"
    names = _beside(folder)
    if not names:
        return f"there are no query files in {folder.resolve()}"
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"query files in {folder.resolve()}: {shown}"


def _beside(folder: Path) -> list[str]:
    try:
        return sorted(p.name for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
    except OSError:  # we may not look inside
        return []
