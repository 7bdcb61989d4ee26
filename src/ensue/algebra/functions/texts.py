"""Functions of strings."""

import hashlib
import re
from collections.abc import Callable

from ensue.algebra.functions.record import Function, OverTexts, Routine, Takes
from ensue.algebra.values import number
from ensue.schema import Kind

_TEXT = (Takes.TEXT,)
_TWO_TEXTS = (Takes.TEXT, Takes.TEXT)
_COUNTED = (Takes.TEXT, Takes.WHOLE)


def _substring(text: object, start: object, length: object = None) -> str:
    """Characters from position `start`, counted from 1; positions before the text are empty."""
    characters, begin = str(text), int(number(start)) - 1
    end = len(characters) if length is None else begin + max(int(number(length)), 0)
    return characters[max(begin, 0) : max(end, 0)]


LONGEST = 1_000_000  # characters of a text that a function makes longer; beyond, NULL


def _trimming(name: str, strip: Callable[[str, str], str], arrow: str, *aliases: str) -> Function:
    return Function(
        name,
        _TEXT,
        Kind.STRING,
        lambda text, characters=" ": strip(str(text), str(characters)) if characters else text,
        optional=_TEXT,
        aliases=aliases,
        vector=OverTexts(
            f"{arrow}(texts, characters=y) if y else "
            f"({arrow}(texts, characters=' ') if y is None else texts)"
        ),
    )


def _left(text: object, count: object) -> str:
    """The first characters; of a negative number, all but the last ones."""
    return str(text)[: int(number(count))]


def _right(text: object, count: object) -> str:
    """The last characters; of a negative number, all but the first ones."""
    characters, last = str(text), int(number(count))
    return characters[max(len(characters) - last, 0) :] if last >= 0 else characters[-last:]


def _padding(text: object, length: object, filling: object) -> tuple[str, str] | None:
    """The text, cut to a length, and what it lacks."""
    characters, wanted, fill = str(text), int(number(length)), str(filling)
    if wanted > LONGEST:
        return None
    cut = characters[: max(wanted, 0)]
    missing = wanted - len(cut)
    if missing <= 0 or not fill:
        return cut, ""
    return cut, (fill * (missing // len(fill) + 1))[:missing]


def _lpad(text: object, length: object, filling: object = " ") -> str | None:
    padded = _padding(text, length, filling)
    return None if padded is None else padded[1] + padded[0]


def _rpad(text: object, length: object, filling: object = " ") -> str | None:
    padded = _padding(text, length, filling)
    return None if padded is None else padded[0] + padded[1]


def _repeat(text: object, count: object) -> str | None:
    times = max(int(number(count)), 0)
    return str(text) * times if len(str(text)) * times <= LONGEST else None


def _replace(text: object, old: object, new: object) -> str | None:
    characters, before, after = str(text), str(old), str(new)
    if not before:
        return characters
    grown = characters.count(before) * max(len(after) - len(before), 0)
    return characters.replace(before, after) if grown <= LONGEST else None


def _split_part(text: object, separator: object, number_: object) -> str:
    """A part, counted from 1, or from the end by negative numbers; empty where there is none."""
    mark, place = str(separator), int(number(number_))
    parts = str(text).split(mark) if mark else [str(text)]
    if not 1 <= abs(place) <= len(parts):
        return ""
    return parts[place - 1 if place > 0 else place]


def _translate(text: object, old: object, new: object) -> str:
    """Each character of `old` becomes the one at its place in `new`, or nothing."""
    after = str(new)
    places: dict[int, str | None] = {}
    for place, character in enumerate(str(old)):
        places.setdefault(ord(character), after[place] if place < len(after) else None)
    return str(text).translate(places)


def _levenshtein(text: object, other: object) -> int | None:
    """How many characters to insert, drop or change make one text the other."""
    left, right = str(text), str(other)
    if len(left) * len(right) > LONGEST:
        return None
    row = list(range(len(right) + 1))
    for down, character in enumerate(left, 1):
        before, row[0] = row[0], down
        for across, wanted in enumerate(right, 1):
            best = min(row[across] + 1, row[across - 1] + 1, before + (character != wanted))
            before, row[across] = row[across], best
    return row[-1]


def _digest(name: str) -> Function:
    """A digest of the text in UTF-8, in hexadecimal digits."""
    of = getattr(hashlib, name)
    return Function(
        name,
        _TEXT,
        Kind.STRING,
        lambda text: of(str(text).encode(), usedforsecurity=False).hexdigest(),
    )


def _substring_index(text: object, separator: object, count: object) -> str:
    """What is before the n-th separator; of a negative number, behind it from the end."""
    mark, times = str(separator), int(number(count))
    parts = str(text).split(mark) if mark else [""]
    return mark.join(parts[:times] if times >= 0 else parts[times:])


def _concat_ws(separator: object, *texts: object) -> str | None:
    """Joins what is there."""
    if separator is None:
        return None
    return str(separator).join(str(text) for text in texts if text is not None)


def _initcap(text: object) -> str:
    """The first letter of each word large, the others small."""
    return re.sub(r"[^\W_]+", lambda word: word[0][:1].upper() + word[0][1:].lower(), str(text))


def _chr(code: object) -> str | None:
    point = int(number(code))
    return chr(point) if 0 < point < 0xD800 or 0xE000 <= point <= 0x10FFFF else None


_SLICE = (
    "pc.utf8_slice_codeunits(texts, start=max(y - 1, 0),"
    " stop=None if z is None else max(y - 1 + max(z, 0), 0))"
)

TEXTS = (
    Function(
        "lower",
        _TEXT,
        Kind.STRING,
        lambda text: str(text).lower(),
        aliases=("lcase",),
        # Arrow maps characters one to one, Python knows of the others: ß, İ
        vector=OverTexts("pc.ascii_lower(texts)", ascii=True),
    ),
    Function(
        "upper",
        _TEXT,
        Kind.STRING,
        lambda text: str(text).upper(),
        aliases=("ucase",),
        vector=OverTexts("pc.ascii_upper(texts)", ascii=True),
    ),
    Function(
        "length",
        _TEXT,
        Kind.INTEGER,
        lambda text: len(str(text)),
        aliases=("len", "char_length", "character_length"),
        vector=OverTexts("pc.utf8_length(texts)"),
    ),
    _trimming("trim", str.strip, "pc.utf8_trim", "btrim"),
    _trimming("ltrim", str.lstrip, "pc.utf8_ltrim"),
    _trimming("rtrim", str.rstrip, "pc.utf8_rtrim"),
    Function(
        "substring",
        (Takes.TEXT, Takes.WHOLE),
        Kind.STRING,
        _substring,
        optional=(Takes.WHOLE,),
        aliases=("substr", "mid"),
        vector=OverTexts(_SLICE),
    ),
    Function(
        "concat",
        _TEXT,
        Kind.STRING,
        lambda *texts: "".join(str(text) for text in texts),
        repeats=True,
        vector=Routine("concat"),
    ),
    Function(
        "starts_with",
        _TWO_TEXTS,
        Kind.BOOLEAN,
        lambda text, prefix: str(text).startswith(str(prefix)),
        aliases=("startswith",),
        vector=OverTexts("pc.starts_with(texts, pattern=y)"),
    ),
    Function(
        "ends_with",
        _TWO_TEXTS,
        Kind.BOOLEAN,
        lambda text, suffix: str(text).endswith(str(suffix)),
        aliases=("endswith",),
        vector=OverTexts("pc.ends_with(texts, pattern=y)"),
    ),
    Function(
        "contains",
        _TWO_TEXTS,
        Kind.BOOLEAN,
        lambda text, inner: str(inner) in str(text),
        vector=OverTexts("pc.match_substring(texts, pattern=y)"),
    ),
    Function(
        "position",
        _TWO_TEXTS,
        Kind.INTEGER,
        lambda text, inner: str(text).find(str(inner)) + 1,
        aliases=("strpos", "instr"),
    ),
    Function(
        "replace",
        (Takes.TEXT,) * 3,
        Kind.STRING,
        _replace,
    ),
    Function("reverse", _TEXT, Kind.STRING, lambda text: str(text)[::-1]),
    Function("left", _COUNTED, Kind.STRING, _left),
    Function("right", _COUNTED, Kind.STRING, _right),
    Function("lpad", _COUNTED, Kind.STRING, _lpad, optional=_TEXT),
    Function("rpad", _COUNTED, Kind.STRING, _rpad, optional=_TEXT),
    Function("repeat", _COUNTED, Kind.STRING, _repeat),
    Function("split_part", (*_TWO_TEXTS, Takes.WHOLE), Kind.STRING, _split_part),
    Function("concat_ws", _TWO_TEXTS, Kind.STRING, _concat_ws, repeats=True, sees_null=True),
    Function("translate", (Takes.TEXT,) * 3, Kind.STRING, _translate),
    Function("substring_index", (*_TWO_TEXTS, Takes.WHOLE), Kind.STRING, _substring_index),
    Function("levenshtein", _TWO_TEXTS, Kind.INTEGER, _levenshtein, aliases=("editdist3",)),
    _digest("md5"),
    _digest("sha1"),
    _digest("sha256"),
    Function("initcap", _TEXT, Kind.STRING, _initcap),
    Function(
        "ascii",
        _TEXT,
        Kind.INTEGER,
        lambda text: ord(str(text)[0]) if text else 0,
        aliases=("ord", "unicode"),
    ),
    Function("chr", (Takes.WHOLE,), Kind.STRING, _chr, aliases=("char",)),
)
