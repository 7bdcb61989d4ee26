"""Functions with regular expressions, none of which can run away (`algebra/regular.py`).

What is no regular expression, or a text that takes too many steps, gives NULL.
"""

import re
from collections.abc import Callable

from ensue.algebra.functions.record import Function, OverTexts, Takes
from ensue.algebra.functions.texts import LONGEST
from ensue.algebra.regular import Expression, Spans, TooLongError, expression_of, matches
from ensue.algebra.values import number
from ensue.schema import Kind

_REFERENCE = re.compile(r"\\([0-9\\])")


def _regular(of: Callable[..., object]) -> Callable[..., object]:
    def found(text: object, written: object, *others: object) -> object:
        expression = expression_of(written)
        try:
            return None if expression is None else of(str(text), expression, *others)
        except TooLongError:
            return None

    return found


def _extract(text: str, expression: Expression, group: object = 0) -> str | None:
    """The first match, or a group of it; empty where there is none."""
    place = int(number(group))
    if not 0 <= place <= expression.groups:
        return None
    found = expression.search(text)
    return "" if found is None else _part(text, found, place)


def _replace(text: str, expression: Expression, replacement: object) -> str | None:
    """With every match replaced; `\\1` in the replacement is a group, `\\0` the match."""
    made, length, at = [], 0, 0
    for spans in matches(expression, text):

        def referred(reference: re.Match[str], spans: Spans = spans) -> str:
            return "\\" if reference[1] == "\\" else _part(text, spans, int(reference[1]))

        new = _REFERENCE.sub(referred, str(replacement))
        made += [text[at : spans[0]], new]
        length += len(new)
        at = spans[1]
        if length > LONGEST:
            return None
    return "".join(made) + text[at:]


def _part(text: str, spans: Spans, group: int) -> str:
    begin, end = spans[2 * group : 2 * group + 2] or (-1, -1)
    return text[begin:end] if begin >= 0 else ""


REGEXPS = (
    Function(
        "regexp_matches",
        (Takes.TEXT, Takes.REGEXP),
        Kind.BOOLEAN,
        _regular(lambda text, expression: expression.search(text) is not None),
        aliases=("regexp_like", "regexp", "rlike"),
        vector=OverTexts("pc.match_substring_regex(texts, pattern=portable(y))"),
    ),
    Function(
        "regexp_count",
        (Takes.TEXT, Takes.REGEXP),
        Kind.INTEGER,
        _regular(lambda text, expression: sum(1 for _ in matches(expression, text))),
    ),
    Function(
        "regexp_extract",
        (Takes.TEXT, Takes.REGEXP),
        Kind.STRING,
        _regular(_extract),
        optional=(Takes.WHOLE,),
        aliases=("regexp_substr",),
    ),
    Function(
        "regexp_replace",
        (Takes.TEXT, Takes.REGEXP, Takes.TEXT),
        Kind.STRING,
        _regular(_replace),
    ),
)
