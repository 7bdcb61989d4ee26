"""Formats of times as `strptime` has them: '%d.%m.%Y %H:%M'.

A text that is of a format is turned into ISO form, by the same steps over columns of Arrow and of
Spark; what is in ISO form is cast as every other text is.
"""

import re
from dataclasses import dataclass

from ensue.errors import EventError, did_you_mean

MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
SHORT_MONTHS = tuple(name[:3] for name in MONTHS)
PIVOT = 69  # of years of two digits, those from here on are of the last century

# What each directive takes; those without a name are read and not kept.
_TAKES = {
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
_SHORT = {"T": "%H:%M:%S", "R": "%H:%M", "F": "%Y-%m-%d", "e": "%d", "h": "%b"}
_UNKEPT = ("a", "A")
_TWICE = (("m", "b", "B"), ("Y", "y"), ("H", "I"), *((one,) for one in "dMSfpz"))
_PIECE = re.compile(r"%(.?)|(\s+)|([^%\s]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """A format, and the parts of a time that it names, in their order.

    >>> read_format("%d.%m.%Y %H:%M").parts
    ('d', 'm', 'Y', 'H', 'M')
    """

    text: str
    parts: tuple[str, ...]
    pieces: tuple[tuple[str | None, str], ...]  # (the part or None, what it looks like)

    @property
    def zoned(self) -> bool:
        """Whether a text of it says its zone."""
        return "z" in self.parts

    def expression(self, *, named: bool = False) -> str:
        """The regular expression of a text, with a group for each part; RE2 and Java agree."""
        written = [
            look if part is None else f"({f'?P<{part}>' if named else ''}{look})"
            for part, look in self.pieces
        ]
        return rf"(?i)\A{''.join(written)}\z"


def read_format(text: str) -> TimeFormat:
    """A format, or an EventError that says what is wrong with it."""
    pieces: list[tuple[str | None, str]] = []
    written = text
    for short, full in _SHORT.items():
        written = re.sub(rf"(?<!%)((?:%%)*)%{short}", rf"\1{full}", written)
    for directive, blanks, words in _PIECE.findall(written):
        if words:
            pieces.append((None, re.escape(words)))
        elif blanks:
            pieces.append((None, r"\s+"))
        elif directive == "%":
            pieces.append((None, "%"))
        elif directive in _TAKES:
            look = _TAKES[directive]
            pieces.append((None, f"(?:{look})") if directive in _UNKEPT else (directive, look))
        else:
            raise EventError(_unknown(text, directive))
    parts = tuple(part for part, _ in pieces if part is not None)
    _require_whole(text, parts)
    return TimeFormat(text, parts, tuple(pieces))


def _unknown(text: str, directive: str) -> str:
    if directive in ("Z", "j", "U", "W", "c", "x", "X", "s"):
        why = {
            "Z": "names of zones are not unique: write offsets, %z",
            "s": "leave out the format: a column of numbers can be the time as it is",
        }.get(directive, "write out the parts: '%Y-%m-%d %H:%M:%S'")
        return f"the time format {text!r} has %{directive}, which cannot be read\n  hint: {why}"
    known = did_you_mean(directive, list(_TAKES)) or ""
    hint = known if known.startswith("did you mean") else f"known are {_known()}"
    return f"the time format {text!r} has %{directive}, which is not known\n  hint: {hint}"


def _known() -> str:
    return ", ".join(f"%{one}" for one in (*_TAKES, *_SHORT, "%"))


def _require_whole(text: str, parts: tuple[str, ...]) -> None:
    for alike in _TWICE:
        if sum(parts.count(one) for one in alike) > 1:
            named = " and ".join(f"%{one}" for one in alike if one in parts)
            raise EventError(f"the time format {text!r} says the same twice: {named}")
    for needed, what in ((("Y", "y"), "the year, %Y"), (("m", "b", "B"), "the month, %m"),
                         (("d",), "the day, %d")):  # fmt: skip
        if not set(needed) & set(parts):
            raise EventError(
                f"the time format {text!r} does not say {what}\n"
                "  hint: write it like '%d.%m.%Y %H:%M'"
            )
    if ("I" in parts) != ("p" in parts):
        raise EventError(
            f"the time format {text!r} has one of %I and %p\n"
            "  hint: hours up to 12 go with AM or PM; hours up to 23 are %H"
        )
