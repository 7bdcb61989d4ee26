"""The folders of an output that has one for each query or level, by their names."""

import unicodedata
from collections.abc import Iterable

from ensue.errors import EventError
from ensue.workload.query_names import Name

MOST_BYTES = 200  # of a name: file systems take 255, and endings are added to it


def folders(names: Iterable[Name], top: str) -> dict[Name, str]:
    """The name of the folder of each query or level; `top` is that of one without a name.

    All of them are in the same folder, and no two are the same, also where a file system does not
    tell capitals from small letters.

    >>> folders(["theft", 3, ""], top="matches")
    {'theft': 'theft', 3: '3', '': 'matches'}
    >>> folders([".."], top="matches")
    Traceback (most recent call last):
    ensue.errors.EventError: query '..': its name cannot be used for a folder: it is not inside
    ...
    """
    found: dict[Name, str] = {}
    taken: dict[str, Name] = {}
    for name in names:
        folder = str(name) or top
        if reason := _unfit(folder):
            raise EventError(
                f"{_shown(name)}: its name cannot be used for a folder: {reason}{_HINT}"
            )
        alike = unicodedata.normalize("NFC", folder).casefold()
        if alike in taken:
            other = taken[alike]
            raise EventError(
                f"{_shown(other)} and {_shown(name)} would share the folder '{folder}'{_HINT}"
            )
        taken[alike] = name
        found[name] = folder
    return found


_HINT = "\n  hint: give it another name, or use a separate output for each"


def _shown(name: Name) -> str:
    if name == "":
        return "the query without a name"
    shown = repr(name) if isinstance(name, str) else str(name)
    return f"query {shown if len(shown) < 80 else shown[:76] + '...' + shown[-1]}"


def _unfit(name: str) -> str:
    """Why a text is no name of a folder in the output's; empty if it is one."""
    if name in (".", ".."):
        return "it is not inside the output's"
    if name != name.strip():
        return "it begins or ends with a blank"
    for character in name:
        if character in "/\\":
            return f"it has a {character}"
        if not character.isprintable():
            return f"it has the character {character!r}"
    if len(name.encode()) > MOST_BYTES:
        return f"it has more than {MOST_BYTES} bytes"
    return ""
