"""What the cells of a CSV or JSON file are: one rule for Arrow and for Spark.

Each of them would guess on its own, and not the same. So both read text, ask the same questions of
a column, and cast it to the same kind. An empty cell is NULL, quoted or not, in every column.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ensue.errors import EventError
from ensue.runners.time_formats import TimeFormat

_DATE = r"[12][0-9]{3}(-[0-9]{2}-|/[0-9]{2}/)[0-9]{2}"  # a year first, so nothing is guessed
_CLOCK = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{%s})?)?"
_ZONE = r"(Z|[+-](0[0-9]|1[0-4])(:?[0-9]{2})?)"


def _whole(pattern: str) -> str:
    return rf"\A({pattern})\z"


class Question(Enum):
    """Asked of every cell of a column that is not NULL: does it look so? RE2 and Java agree."""

    INTEGER = _whole("-?[0-9]+")
    NUMBER = _whole(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity")
    BOOLEAN = _whole("[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]")
    DATE = _whole(_DATE)
    TIMESTAMP = _whole(_DATE + _CLOCK % "1,9" + _ZONE + "?")
    ZONELESS = _whole(_DATE + _CLOCK % "1,9")
    MICROSECONDS = _whole(_DATE + _CLOCK.replace("{%s}", "{1,6}0{0,3}") + _ZONE + "?")


class CellKind(Enum):
    """What a column of text is read as."""

    TEXT = auto()
    INTEGER = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    DATE = auto()
    TIMESTAMP = auto()  # of no zone
    INSTANT = auto()  # in UTC; a cell without a zone is taken for UTC


TIMES = (CellKind.TIMESTAMP, CellKind.INSTANT)


def times(kinds: Mapping[str, CellKind]) -> dict[str, CellKind]:
    """Only the columns of times, days as the times at which they begin: so is text in JSON."""
    days = {name: CellKind.TIMESTAMP for name, kind in kinds.items() if kind is CellKind.DATE}
    return days | {name: kind for name, kind in kinds.items() if kind in TIMES}


def kind_of(every: Callable[[Question], bool], fits: Callable[[CellKind], bool]) -> CellKind:
    """The kind of a column that is not all NULL.

    `every` says whether all cells look so, `fits` whether all of them can be cast: there is no
    30th of February, and an integer of 20 digits stays text rather than lose some of them.

    >>> seen = possible(["1", "2.5", None])
    >>> kind_of(lambda question: question in seen, lambda kind: True)
    <CellKind.NUMBER: 3>
    """
    found = CellKind.TEXT
    if every(Question.INTEGER):
        found = CellKind.INTEGER
    elif every(Question.NUMBER):
        return CellKind.NUMBER
    elif every(Question.BOOLEAN):
        return CellKind.BOOLEAN
    elif every(Question.DATE):
        found = CellKind.DATE
    elif every(Question.ZONELESS):
        found = CellKind.TIMESTAMP
    elif every(Question.TIMESTAMP):
        found = CellKind.INSTANT
    return found if found is CellKind.TEXT or fits(found) else CellKind.TEXT


# Words that people and programs write where nothing is known.
MISSING = ("NA", "N/A", "n/a", "null", "NULL", "None", "nan", "NAN", "-", "?", "\\N", "#N/A")


def say_missing(words: Mapping[str, Sequence[str]]) -> str:
    """The note on columns that are text for no other reason than these words.

    >>> print(say_missing({"delay": ["NA"], "late": ["NA", "-"]}))
    note: delay and late are text only because of cells with 'NA' or '-'
      hint: --null NA --null - reads such cells as NULL
    """
    *most, last = words
    columns = f"{', '.join(most)} and {last}" if most else last
    each = list(dict.fromkeys(word for several in words.values() for word in several))
    options = " ".join(f"--null {shlex.quote(word)}" for word in each)
    return (
        f"note: {columns} {'are' if most else 'is'} text only because of cells with "
        f"{' or '.join(map(repr, each))}\n  hint: {options} reads such cells as NULL"
    )


def possible(cells: Iterable[str | None]) -> list[Question]:
    """The questions that these cells answer with yes."""
    known = [cell for cell in cells if cell is not None]
    return [
        question
        for question in Question
        if all(re.search(question.value.replace(r"\z", r"\Z"), cell) for cell in known)
    ]


@dataclass(frozen=True, slots=True)
class Spelling:
    """How text files are written, as far as somebody says so."""

    delimiter: str | None = None  # what is between cells, where the name of a file does not tell
    nulls: tuple[str, ...] = ()  # cells that are NULL, beside empty ones
    time_format: TimeFormat | None = None
    times: tuple[str, ...] = ()  # columns that have to be of the format; without: those that are
    drop: bool = False  # a text in them that is no time is NULL, and no error

    def asks(self, column: str) -> bool:
        """Whether a column has to be of the format."""
        return self.time_format is not None and column in self.times

    def between(self, form: str) -> str:
        """What is between the cells of a file; `form` is csv or tsv."""
        return self.delimiter or ("," if form == "csv" else "\t")

    def no_time(self, column: str, text: str, where: str) -> EventError:
        """The error for a text that is not of the format."""
        assert self.time_format is not None
        return EventError(
            f"{text!r} in column '{column}' is no time of the form "
            f"'{self.time_format.text}' ({where})\n"
            "  hint: --null WORD names a word that stands for a missing value, "
            "--bad-events drop leaves events without a time out"
        )


PLAIN = Spelling()
_OTHER_DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'"}


def require_names(names: Sequence[str | None], path: str, spelling: Spelling = PLAIN) -> None:
    """Refuses a header that Arrow and Spark would each mend in its own way, and one that is cut
    at the wrong letters."""
    for other, written in _OTHER_DELIMITERS.items():
        if len(names) == 1 and spelling.delimiter is None and other in str(names[0]):
            raise EventError(
                f"{path} has one column, named {str(names[0])!r}\n"
                f"  hint: --delimiter {written} says what is between its columns"
            )
    for number, name in enumerate(names, 1):
        if not name:
            raise EventError(
                f"column {number} of {path} has no name\n"
                "  hint: check for an extra delimiter at the end of the header"
            )
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise EventError(f"{path} has several columns named '{twice[0]}'")
