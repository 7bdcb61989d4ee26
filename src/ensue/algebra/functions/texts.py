"""Functions of strings."""

from ensue.algebra.functions.record import Function, OverTexts, Routine, Takes
from ensue.algebra.values import number
from ensue.schema import Kind

_TEXT = (Takes.TEXT,)
_TWO_TEXTS = (Takes.TEXT, Takes.TEXT)


def _substring(text: object, start: object, length: object = None) -> str:
    """Characters from position `start`, counted from 1; positions before the text are empty."""
    characters, begin = str(text), int(number(start)) - 1
    end = len(characters) if length is None else begin + max(int(number(length)), 0)
    return characters[max(begin, 0) : max(end, 0)]


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
        # Arrow maps characters one to one, Python knows of the others: ß, İ
        vector=OverTexts("pc.ascii_lower(texts)", ascii=True),
    ),
    Function(
        "upper",
        _TEXT,
        Kind.STRING,
        lambda text: str(text).upper(),
        vector=OverTexts("pc.ascii_upper(texts)", ascii=True),
    ),
    Function(
        "length",
        _TEXT,
        Kind.INTEGER,
        lambda text: len(str(text)),
        aliases=("len", "char_length"),
        vector=OverTexts("pc.utf8_length(texts)"),
    ),
    Function(
        "trim",
        _TEXT,
        Kind.STRING,
        lambda text: str(text).strip(" "),
        vector=OverTexts("pc.utf8_trim(texts, characters=' ')"),
    ),
    Function(
        "substring",
        (Takes.TEXT, Takes.WHOLE),
        Kind.STRING,
        _substring,
        optional=(Takes.WHOLE,),
        aliases=("substr",),
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
        vector=OverTexts("pc.starts_with(texts, pattern=y)"),
    ),
    Function(
        "ends_with",
        _TWO_TEXTS,
        Kind.BOOLEAN,
        lambda text, suffix: str(text).endswith(str(suffix)),
        vector=OverTexts("pc.ends_with(texts, pattern=y)"),
    ),
    Function(
        "contains",
        _TWO_TEXTS,
        Kind.BOOLEAN,
        lambda text, inner: str(inner) in str(text),
        vector=OverTexts("pc.match_substring(texts, pattern=y)"),
    ),
)
