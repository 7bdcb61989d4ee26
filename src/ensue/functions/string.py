"""String functions and regular expressions."""

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from ensue.errors import QueryError
from ensue.functions.record import ArrowStringForm, RoutineForm, ScalarFunction, define
from ensue.ir.values import to_number


def _substring(text: object, start: object, length: object = None) -> str:
    """Returns the characters from position `start`, counted from 1."""
    characters, begin = str(text), int(to_number(start)) - 1
    end = len(characters) if length is None else begin + max(int(to_number(length)), 0)
    return characters[max(begin, 0) : max(end, 0)]


MAX_STRING_LENGTH = 1_000_000  # maximum length of a string that a function builds; NULL beyond


def _define_trim(name: str, strip: Callable[[str, str], str], arrow: str) -> ScalarFunction:
    return define(
        f"{name}(text, text?) -> string",
        lambda text, characters=" ": strip(str(text), str(characters)) if characters else text,
        ArrowStringForm(
            f"{arrow}(texts, characters=y) if y else ({arrow}(texts, characters=' ') if y is None else texts)"
        ),
    )


def _right(text: object, count: object) -> str:
    """Returns the last characters, or for a negative count all but the first ones."""
    characters, last = str(text), int(to_number(count))
    return characters[max(len(characters) - last, 0) :] if last >= 0 else characters[-last:]


def _pad(text: object, length: object, filling: object = " ", *, left: bool) -> str | None:
    """Cuts or fills a text to a length."""
    characters, size, fill = str(text), int(to_number(length)), str(filling)
    if size > MAX_STRING_LENGTH:
        return None
    cut = characters[: max(size, 0)]
    missing = size - len(cut)
    padding = "" if missing <= 0 or not fill else (fill * (missing // len(fill) + 1))[:missing]
    return padding + cut if left else cut + padding


def _repeat(text: object, count: object) -> str | None:
    times = max(int(to_number(count)), 0)
    return str(text) * times if len(str(text)) * times <= MAX_STRING_LENGTH else None


def _replace(text: object, old: object, new: object) -> str | None:
    characters, before, after = str(text), str(old), str(new)
    if not before:
        return characters
    grown = characters.count(before) * max(len(after) - len(before), 0)
    return characters.replace(before, after) if grown <= MAX_STRING_LENGTH else None


def _split_part(text: object, separator: object, number_: object) -> str:
    """Returns the n-th part, from the end for a negative n; empty if there is none."""
    mark, index = str(separator), int(to_number(number_))
    parts = str(text).split(mark) if mark else [str(text)]
    if not 1 <= abs(index) <= len(parts):
        return ""
    return parts[index - 1 if index > 0 else index]


def _translate(text: object, old: object, new: object) -> str:
    """Replaces each character of `old` by the one at the same position in `new`, if any."""
    after = str(new)
    mapping: dict[int, str | None] = {}
    for position, character in enumerate(str(old)):
        mapping.setdefault(ord(character), after[position] if position < len(after) else None)
    return str(text).translate(mapping)


def _levenshtein(text: object, other: object) -> int | None:
    """Computes the edit distance."""
    left, right = str(text), str(other)
    if len(left) * len(right) > MAX_STRING_LENGTH:
        return None
    row = list(range(len(right) + 1))
    for down, character in enumerate(left, 1):
        before, row[0] = row[0], down
        for across, other_character in enumerate(right, 1):
            changed = before + (character != other_character)
            best = min(row[across] + 1, row[across - 1] + 1, changed)
            before, row[across] = row[across], best
    return row[-1]


def _digest(name: str) -> ScalarFunction:
    """Defines a hash function of the UTF-8 bytes, in hexadecimal."""
    hash_function = getattr(hashlib, name)
    return define(
        f"{name}(text) -> string", lambda text: hash_function(str(text).encode(), usedforsecurity=False).hexdigest()
    )


def _substring_index(text: object, separator: object, count: object) -> str:
    """Returns the text before the n-th separator, or after the n-th from the end if negative."""
    mark, times = str(separator), int(to_number(count))
    parts = str(text).split(mark) if mark else [""]
    return mark.join(parts[:times] if times >= 0 else parts[times:])


def _concat_ws(separator: object, *texts: object) -> str | None:
    """Joins the texts that are not NULL."""
    if separator is None:
        return None
    return str(separator).join(str(text) for text in texts if text is not None)


def _initcap(text: object) -> str:
    """Capitalizes each word."""
    return re.sub(r"[^\W_]+", lambda word: word[0][:1].upper() + word[0][1:].lower(), str(text))


_SLICE = "pc.utf8_slice_codeunits(texts, start=max(y - 1, 0), stop=None if z is None else max(y - 1 + max(z, 0), 0))"

TEXTS = (
    define(
        "lower|lcase(text) -> string",
        lambda text: str(text).lower(),
        # Arrow maps characters one to one, unlike Python: ß, İ
        ArrowStringForm("pc.ascii_lower(texts)", ascii=True),
    ),
    define(
        "upper|ucase(text) -> string",
        lambda text: str(text).upper(),
        ArrowStringForm("pc.ascii_upper(texts)", ascii=True),
    ),
    define(
        "length|len|char_length|character_length(text) -> integer",
        lambda text: len(str(text)),
        ArrowStringForm("pc.utf8_length(texts)"),
    ),
    _define_trim("trim|btrim", str.strip, "pc.utf8_trim"),
    _define_trim("ltrim", str.lstrip, "pc.utf8_ltrim"),
    _define_trim("rtrim", str.rstrip, "pc.utf8_rtrim"),
    define("substring|substr|mid(text, whole, whole?) -> string", _substring, ArrowStringForm(_SLICE)),
    define("concat(text...) -> string", lambda *texts: "".join(map(str, texts)), RoutineForm("concat")),
    define(
        "starts_with|startswith(text, text) -> boolean",
        lambda text, prefix: str(text).startswith(str(prefix)),
        ArrowStringForm("pc.starts_with(texts, pattern=y)"),
    ),
    define(
        "ends_with|endswith(text, text) -> boolean",
        lambda text, suffix: str(text).endswith(str(suffix)),
        ArrowStringForm("pc.ends_with(texts, pattern=y)"),
    ),
    define(
        "contains(text, text) -> boolean",
        lambda text, inner: str(inner) in str(text),
        ArrowStringForm("pc.match_substring(texts, pattern=y)"),
    ),
    define("position|strpos|instr(text, text) -> integer", lambda text, inner: str(text).find(str(inner)) + 1),
    define("replace(text, text, text) -> string", _replace),
    define("reverse(text) -> string", lambda text: str(text)[::-1]),
    define("left(text, whole) -> string", lambda text, count: str(text)[: int(to_number(count))]),
    define("right(text, whole) -> string", _right),
    define("lpad(text, whole, text?) -> string", partial(_pad, left=True)),
    define("rpad(text, whole, text?) -> string", partial(_pad, left=False)),
    define("repeat(text, whole) -> string", _repeat),
    define("split_part(text, text, whole) -> string", _split_part),
    define("concat_ws(text, text...) -> string", _concat_ws, sees_null=True),
    define("translate(text, text, text) -> string", _translate),
    define("substring_index(text, text, whole) -> string", _substring_index),
    define("levenshtein|editdist3(text, text) -> integer", _levenshtein),
    *map(_digest, ("md5", "sha1", "sha256")),
    define("initcap(text) -> string", _initcap),
    define("ascii|ord|unicode(text) -> integer", lambda text: ord(str(text)[0]) if text else 0),
    define(
        "chr|char(whole) -> string", lambda code: chr(code) if 0 < code < 0xD800 or 0xE000 <= code <= 0x10FFFF else None
    ),
)

# --- regular expressions, which RE2 runs in linear time

Expression = Any  # an re2 pattern, which has no public type
Match = Any

MAX_REGEXP_STEPS = 1_000_000_000  # characters that a search for all matches in one text may read

_REFERENCE = re.compile(r"\\([0-9\\])")


class _TooLongError(Exception):
    """The matches in a text take too many steps to find."""


@lru_cache(maxsize=64)  # each may take up to 8 MiB
def compile_regexp(text: str) -> Expression:
    """Compiles a regular expression, or raises a QueryError.

    >>> compile_regexp("(a|ab)(c|bcd)").search("xabcd").span()
    (1, 5)
    >>> compile_regexp("(a")
    Traceback (most recent call last):
    ensue.errors.QueryError: '(a' is not a valid regular expression: missing ): (a
      hint: ...
    """
    import re2  # where it is used: loading it takes a while

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        problem = error.args[0].decode(errors="replace")
    except UnicodeEncodeError:
        problem = "it contains half a character"
    raise QueryError(
        f"'{text}' is not a valid regular expression: {problem}",
        hint="the syntax is RE2's: references (\\1) and lookaround ((?=x)) are not supported",
    )


def try_compile_regexp(text: object) -> Expression | None:
    """Compiles a regular expression; None if it is invalid."""
    try:
        return compile_regexp(str(text))
    except QueryError:
        return None


def _over_expression(function: Callable[..., object]) -> Callable[..., object]:
    def apply(text: object, regexp: object, *others: object) -> object:
        expression = try_compile_regexp(regexp)
        try:
            return None if expression is None else function(str(text), expression, *others)
        except _TooLongError:
            return None

    return apply


def _matches(expression: Expression, text: str) -> Iterator[Match]:
    """Yields all matches from left to right. The search for one may read up to the text's end."""
    read = 0
    for match in expression.finditer(text):
        read += len(text) - match.start()
        if read > MAX_REGEXP_STEPS:
            raise _TooLongError
        yield match


def _extract(text: str, expression: Expression, group: object = 0) -> str | None:
    """Returns the first match, or a group of it; '' if there is none."""
    group_number = int(to_number(group))
    if not 0 <= group_number <= expression.groups:
        return None
    match = expression.search(text)
    return "" if match is None else match[group_number] or ""


def _replace_regexps(text: str, expression: Expression, replacement: object) -> str | None:
    """Replaces every match; `\\1` in the replacement is a group, `\\0` the match."""
    pieces, length, position = [], 0, 0
    for match in _matches(expression, text):

        def referred(reference: re.Match[str], match: Match = match) -> str:
            if reference[1] == "\\":
                return "\\"
            group = int(reference[1])
            return match[group] or "" if group <= expression.groups else ""

        new = _REFERENCE.sub(referred, str(replacement))
        pieces += [text[position : match.start()], new]
        length += len(new)
        position = match.end()
        if length > MAX_STRING_LENGTH:
            return None
    return "".join(pieces) + text[position:]


REGEXPS = (
    define(
        "regexp_matches|regexp_like|regexp|rlike(text, regexp) -> boolean",
        _over_expression(lambda text, expression: expression.search(text) is not None),
        ArrowStringForm("pc.match_substring_regex(texts, pattern=y)"),
    ),
    define(
        "regexp_count(text, regexp) -> integer",
        _over_expression(lambda text, expression: sum(1 for _ in _matches(expression, text))),
    ),
    define("regexp_extract|regexp_substr(text, regexp, whole?) -> string", _over_expression(_extract)),
    define("regexp_replace(text, regexp, text) -> string", _over_expression(_replace_regexps)),
)
