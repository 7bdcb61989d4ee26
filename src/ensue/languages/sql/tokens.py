"""The tokens of a SQL text, of DuckDB or Spark, with patterns of rows inside."""

import re
from dataclasses import dataclass
from enum import Enum

from ensue.errors import QueryError
from ensue.span import Span

KEYWORD = "MATCH_RECOGNIZE"
_DEEPEST = 400  # parentheses inside of each other; engines give up, or fall over, at 1,000


class Dialect(Enum):
    """Whose SQL stands around the clauses. Inside of them it is that of the standard."""

    DUCKDB = "DuckDB"
    SPARK = "Spark SQL"


class Sort(Enum):
    """What a token is."""

    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a name, a literal or one character."""

    sort: Sort
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)

    @property
    def word(self) -> str:
        """A keyword in upper case, a mark as it is; empty for everything else."""
        return self.text.upper() if self.sort in (Sort.WORD, Sort.MARK) else ""

    @property
    def name(self) -> str | None:
        """The name that it is, without quotes; None: it cannot be one."""
        if self.sort is Sort.QUOTED:
            quote = self.text[0]
            return self.text[1:-1].replace(quote * 2, quote)
        return self.text if self.sort is Sort.WORD else None


_SHARED = r"""
    (?P<blank>\s+)
  | (?P<remark>--{to_end_of_line})
  | (?P<comment>/\*)
  | (?P<string>{strings})
  | (?P<quoted>`(?:[^`]++|``)*+`|{double})
  | (?P<word>[^\W\d][{letters}]*)
  | (?P<number>\d[\w.]*)
  | (?P<dollar>{dollar})
  | (?P<mark>.)
"""
_PLAIN = r"'(?:[^']++|'')*+'"
_DOUBLE = r'"(?:[^"]++|"")*+"'
_NEVER = r"(?!)"


def _pattern(
    strings: str,
    *,
    double: str = _DOUBLE,
    letters: str = r"\w",
    dollar: str = _NEVER,
    to_end_of_line: str = r"[^\n]*",
) -> re.Pattern[str]:
    whole = _SHARED.format(
        strings=strings, double=double, letters=letters, dollar=dollar,
        to_end_of_line=to_end_of_line,
    )  # fmt: skip
    return re.compile(whole, re.VERBOSE | re.DOTALL)


_STANDARD = _pattern(_PLAIN)
_AROUND = {
    Dialect.DUCKDB: _pattern(
        rf"[eE]'(?:[^'\\]++|\\.|'')*+'|{_PLAIN}",
        letters=r"\w$",
        dollar=r"\$(?:[^\W\d]\w*)?\$",
    ),
    Dialect.SPARK: _pattern(
        r"""[rR]'[^']*+'|[rR]"[^"]*+"|'(?:[^'\\]++|\\.)*+'""",
        double=r'"(?:[^"\\]++|\\.|"")*+"',
        to_end_of_line=r"(?:\\\n|[^\n])*",
    ),
}
_SORTS = {
    "string": Sort.STRING,
    "quoted": Sort.QUOTED,
    "word": Sort.WORD,
    "number": Sort.NUMBER,
    "mark": Sort.MARK,
}
_UNCLOSED = {"'": "this string is never closed", '"': "this quoted name is never closed"}
_UNCLOSED["`"] = _UNCLOSED['"']
_COMMENT = re.compile(r"/\*|\*/")


def tokens_of(text: str, dialect: Dialect = Dialect.DUCKDB) -> tuple[list[Token], dict[int, int]]:
    """The tokens, and for each parenthesis, by number of token, the one that belongs to it.

    >>> tokens, pairs = tokens_of("t MATCH_RECOGNIZE (PATTERN (A{- B -} $) /* ) */)")
    >>> " ".join(token.text for token in tokens)
    't MATCH_RECOGNIZE ( PATTERN ( A { - B - } $ ) )'
    >>> pairs[2], pairs[4]
    (13, 12)
    """
    found: list[Token] = []
    pairs: dict[int, int] = {}
    opened: list[int] = []
    inside = 0  # how deep the clause is that we are in; 0: in none
    around, at = _AROUND[dialect], 0
    while at < len(text):
        read = (_STANDARD if inside else around).match(text, at)
        assert read is not None  # a mark is anything
        sort, start, at = str(read.lastgroup), at, read.end()
        if sort in ("blank", "remark"):
            continue
        if sort == "comment":
            at = _behind_comment(text, start)
            continue
        if sort == "dollar":
            close = text.find(read[0], at)
            if close < 0:
                raise _wrong(_UNCLOSED["'"], start, at, text)
            sort, at = "string", close + len(read[0])
        token = Token(_SORTS[sort], text[start:at], start)
        if sort == "mark":
            if token.text in _UNCLOSED:
                raise _wrong(_UNCLOSED[token.text], start, at, text)
            if token.text == "(":
                opened.append(len(found))
                if len(opened) > _DEEPEST:
                    raise _wrong(
                        f"parentheses are nested more than {_DEEPEST} deep", start, at, text
                    )
                if not inside and found and found[-1].word == KEYWORD:
                    inside = len(opened)
            elif token.text == ")":
                if not opened:
                    raise _wrong("this parenthesis has no matching opening one", start, at, text)
                if len(opened) == inside:
                    inside = 0
                first = opened.pop()
                pairs[first], pairs[len(found)] = len(found), first
        found.append(token)
    if opened:
        unclosed = found[opened[-1]]
        if inside:
            unclosed = found[opened[inside - 1]]
        raise _wrong("this parenthesis is never closed", unclosed.start, unclosed.end, text)
    return found, pairs


def _behind_comment(text: str, start: int) -> int:
    """Comments may stand in each other."""
    depth, at = 0, start
    while True:
        read = _COMMENT.search(text, at)
        if read is None:
            raise _wrong("this comment is never closed", start, start + 2, text)
        depth, at = depth + (1 if read[0] == "/*" else -1), read.end()
        if not depth:
            return at


def _wrong(problem: str, start: int, end: int, text: str) -> QueryError:
    return QueryError(problem, span=Span(start, end), text=text)
