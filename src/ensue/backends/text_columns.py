"""Infers the types of CSV and JSON columns, with the same rules for Arrow and Spark.

Their own inference differs. So both read text, test the cells of a column with the same regular
expressions, and cast it to the same type. An empty cell is NULL, quoted or not, in every column.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ensue.errors import EventError, did_you_mean

MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
SHORT_MONTHS = tuple(name[:3] for name in MONTHS)
CENTURY_PIVOT = 69  # two-digit years from here on belong to the 20th century

# Regular expressions of the directives.
_DIRECTIVES = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": "1[0-2]|0?[1-9]",
    "d": "3[01]|[12][0-9]|0?[1-9]",
    "H": "2[0-3]|[01]?[0-9]",
    "I": "1[0-2]|0?[1-9]",
    "M": "[0-5]?[0-9]",
    "S": "[0-5]?[0-9]",
    "f": "[0-9]{1,6}",
    "p": "AM|PM",
    "b": "|".join(SHORT_MONTHS),
    "B": "|".join(MONTHS),
    "z": "Z|[+-](?:0[0-9]|1[0-4]):?[0-5][0-9]",
    "a": "mon|tue|wed|thu|fri|sat|sun",
    "A": "monday|tuesday|wednesday|thursday|friday|saturday|sunday",
}
_SHORTHANDS = {"T": "%H:%M:%S", "R": "%H:%M", "F": "%Y-%m-%d", "e": "%d", "h": "%b"}
_IGNORED = ("a", "A")
_EXCLUSIVE = (("m", "b", "B"), ("Y", "y"), ("H", "I"), *((letter,) for letter in "dMSfpz"))
_PIECE = re.compile(r"%(.?)|(\s+)|([^%\s]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """A strptime format, and the parts of a time that it names, in order.

    >>> parse_time_format("%d.%m.%Y %H:%M").parts
    ('d', 'm', 'Y', 'H', 'M')
    """

    text: str
    parts: tuple[str, ...]
    pieces: tuple[tuple[str | None, str], ...]  # (part or None, regular expression)

    @property
    def zoned(self) -> bool:
        """Whether the format includes the time zone."""
        return "z" in self.parts

    def expression(self, *, named: bool = False) -> str:
        """Build the regular expression with a group for each part, for both RE2 and Java."""
        groups = [
            regex if part is None else f"({f'?P<{part}>' if named else ''}{regex})" for part, regex in self.pieces
        ]
        return rf"(?i)\A{''.join(groups)}\z"


def parse_time_format(text: str) -> TimeFormat:
    """Parse a format; a mistake raises EventError."""
    pieces: list[tuple[str | None, str]] = []
    expanded = text
    for short, full in _SHORTHANDS.items():
        expanded = re.sub(rf"(?<!%)((?:%%)*)%{short}", rf"\1{full}", expanded)
    for directive, blanks, words in _PIECE.findall(expanded):
        if words:
            pieces.append((None, re.escape(words)))
        elif blanks:
            pieces.append((None, r"\s+"))
        elif directive == "%":
            pieces.append((None, "%"))
        elif directive in _DIRECTIVES:
            regex = _DIRECTIVES[directive]
            pieces.append((None, f"(?:{regex})") if directive in _IGNORED else (directive, regex))
        else:
            raise EventError(_unknown(text, directive))
    parts = tuple(part for part, _ in pieces if part is not None)
    _require_date(text, parts)
    return TimeFormat(text, parts, tuple(pieces))


def _unknown(text: str, directive: str) -> str:
    if directive in ("Z", "j", "U", "W", "c", "x", "X", "s"):
        why = {
            "Z": "zone names are ambiguous: use offsets, %z",
            "s": "omit the format: a numeric column can be the time as it is",
        }.get(directive, "spell out the parts: '%Y-%m-%d %H:%M:%S'")
        return f"the time format {text!r} has %{directive}, which is not supported\n  hint: {why}"
    known = did_you_mean(directive, list(_DIRECTIVES)) or ""
    hint = (
        known
        if known.startswith("did you mean")
        else "use " + ", ".join(f"%{letter}" for letter in (*_DIRECTIVES, *_SHORTHANDS, "%"))
    )
    return f"the time format {text!r} has the unknown directive %{directive}\n  hint: {hint}"


def _require_date(text: str, parts: tuple[str, ...]) -> None:
    for letters in _EXCLUSIVE:
        if sum(parts.count(letter) for letter in letters) > 1:
            named = " and ".join(f"%{letter}" for letter in letters if letter in parts)
            raise EventError(f"the time format {text!r} has the same part twice: {named}")
    for needed, what in ((("Y", "y"), "the year, %Y"), (("m", "b", "B"), "the month, %m"),
                         (("d",), "the day, %d")):  # fmt: skip
        if not set(needed) & set(parts):
            raise EventError(f"the time format {text!r} lacks {what}\n  hint: write it like '%d.%m.%Y %H:%M'")
    if ("I" in parts) != ("p" in parts):
        raise EventError(
            f"the time format {text!r} has only one of %I and %p\n"
            "  hint: 12-hour times need both %I and %p; 24-hour times use %H"
        )


_DATE = r"[12][0-9]{3}(-[0-9]{2}-|/[0-9]{2}/)[0-9]{2}"  # year first: no guessing of day and month
_CLOCK = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{%s})?)?"
_ZONE = r"(Z|[+-](0[0-9]|1[0-4])(:?[0-9]{2})?)"


def _anchor(pattern: str) -> str:
    return rf"\A({pattern})\z"


class CellTest(Enum):
    """A regular expression that all non-NULL cells of a column match, for both RE2 and Java."""

    INTEGER = _anchor("-?[0-9]+")
    NUMBER = _anchor(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity")
    BOOLEAN = _anchor("[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]")
    DATE = _anchor(_DATE)
    TIMESTAMP = _anchor(_DATE + _CLOCK % "1,9" + _ZONE + "?")
    ZONELESS = _anchor(_DATE + _CLOCK % "1,9")
    MICROSECONDS = _anchor(_DATE + _CLOCK.replace("{%s}", "{1,6}0{0,3}") + _ZONE + "?")


class CellKind(Enum):
    """The type that a text column is read as."""

    TEXT = auto()
    INTEGER = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    DATE = auto()
    TIMESTAMP = auto()  # without time zone
    INSTANT = auto()  # in UTC, also cells without a zone


TIME_KINDS = (CellKind.TIMESTAMP, CellKind.INSTANT)
_KINDS_BY_TEST = (
    (CellTest.INTEGER, CellKind.INTEGER),
    (CellTest.NUMBER, CellKind.NUMBER),
    (CellTest.BOOLEAN, CellKind.BOOLEAN),
    (CellTest.DATE, CellKind.DATE),
    (CellTest.ZONELESS, CellKind.TIMESTAMP),
    (CellTest.TIMESTAMP, CellKind.INSTANT),
)


def select_time_kinds(kinds: Mapping[str, CellKind]) -> dict[str, CellKind]:
    """Keep the time columns, with dates as timestamps; JSON converts no other text."""
    days = {name: CellKind.TIMESTAMP for name, kind in kinds.items() if kind is CellKind.DATE}
    return days | {name: kind for name, kind in kinds.items() if kind in TIME_KINDS}


def infer_cell_kind(every: Callable[[CellTest], bool], fits: Callable[[CellKind], bool]) -> CellKind:
    """Infer the type of a column that is not all NULL.

    `every` tells whether all cells match a test, `fits` whether all of them can be cast: there is
    no 30th of February, and an integer of 20 digits stays text.

    >>> seen = find_passed_tests(["1", "2.5", None])
    >>> infer_cell_kind(lambda question: question in seen, lambda kind: True)
    <CellKind.NUMBER: 3>
    """
    kind = next((kind for test, kind in _KINDS_BY_TEST if every(test)), CellKind.TEXT)
    castable = (CellKind.TEXT, CellKind.NUMBER, CellKind.BOOLEAN)
    return kind if kind in castable or fits(kind) else CellKind.TEXT


# Common words for missing values.
MISSING_WORDS = ("NA", "N/A", "n/a", "null", "NULL", "None", "nan", "NAN", "-", "?", "\\N", "#N/A")


def format_missing_note(words: Mapping[str, Sequence[str]]) -> str:
    """Format the note on columns that are text only because of these words.

    >>> print(format_missing_note({"delay": ["NA"], "late": ["NA", "-"]}))
    note: delay and late are text only because of cells with 'NA' or '-'
      hint: --null NA --null - reads such cells as NULL
    """
    *most, last = words
    columns = f"{', '.join(most)} and {last}" if most else last
    unique_words = list(dict.fromkeys(word for column_words in words.values() for word in column_words))
    options = " ".join(f"--null {shlex.quote(word)}" for word in unique_words)
    return (
        f"note: {columns} {'are' if most else 'is'} text only because of cells with "
        f"{' or '.join(map(repr, unique_words))}\n  hint: {options} reads such cells as NULL"
    )


def find_passed_tests(cells: Iterable[str | None]) -> list[CellTest]:
    values = [cell for cell in cells if cell is not None]
    return [
        question
        for question in CellTest
        if all(re.search(question.value.replace(r"\z", r"\Z"), cell) for cell in values)
    ]


@dataclass(frozen=True, slots=True)
class TextFileOptions:
    """Options for reading text files."""

    delimiter: str | None = None  # None: by the file extension
    nulls: tuple[str, ...] = ()  # cells read as NULL, besides empty ones
    time_format: TimeFormat | None = None
    times: tuple[str, ...] = ()  # columns that must have the format; empty: all that do
    drop: bool = False  # read an invalid time as NULL instead of raising

    def requires_format(self, column: str) -> bool:
        return self.time_format is not None and column in self.times

    def between(self, form: str) -> str:
        """The delimiter of a csv or tsv file."""
        return self.delimiter or ("," if form == "csv" else "\t")

    def build_time_error(self, column: str, text: str, where: str) -> EventError:
        assert self.time_format is not None
        return EventError(
            f"{text!r} in column '{column}' does not have the time format "
            f"'{self.time_format.text}' ({where})\n"
            "  hint: --null WORD reads a word as a missing value, "
            "--bad-events drop skips events without a time"
        )


DEFAULT_TEXT_OPTIONS = TextFileOptions()
_OTHER_DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'"}


def check_header(names: Sequence[str | None], path: str, spelling: TextFileOptions = DEFAULT_TEXT_OPTIONS) -> None:
    """Reject headers that Arrow and Spark would repair differently, and wrong delimiters."""
    for other, written in _OTHER_DELIMITERS.items():
        if len(names) == 1 and spelling.delimiter is None and other in str(names[0]):
            raise EventError(
                f"{path} has one column, named {str(names[0])!r}\n"
                f"  hint: --delimiter {written} sets the column delimiter"
            )
    for number, name in enumerate(names, 1):
        if not name:
            raise EventError(
                f"column {number} of {path} has no name\n  hint: check for an extra delimiter at the end of the header"
            )
    duplicates = sorted({str(name) for name in names if names.count(name) > 1})
    if duplicates:
        raise EventError(f"{path} has several columns named '{duplicates[0]}'")
