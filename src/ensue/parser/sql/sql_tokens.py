"""Tokenizes SQL of DuckDB or Spark that contains MATCH_RECOGNIZE clauses."""

import re
from dataclasses import dataclass
from enum import Enum

from ensue.errors import QueryError, Span

KEYWORD = "MATCH_RECOGNIZE"
_DEEPEST = 400  # nested parentheses; engines fail at 1,000


class Dialect(Enum):
    """The SQL around the clauses; inside them, standard SQL applies."""

    DUCKDB = "DuckDB"
    SPARK = "Spark SQL"


class TokenKind(Enum):
    """The kind of a token."""

    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class SqlToken:
    """A word, a name, a literal or one character."""

    kind: TokenKind
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
        return self.text.upper() if self.kind in (TokenKind.WORD, TokenKind.MARK) else ""

    @property
    def name(self) -> str | None:
        """The name without quotes; None if the token cannot be a name."""
        if self.kind is TokenKind.QUOTED:
            quote = self.text[0]
            return self.text[1:-1].replace(quote * 2, quote)
        return self.text if self.kind is TokenKind.WORD else None


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
    strings: str, *, double: str = _DOUBLE, letters: str = r"\w", dollar: str = _NEVER, to_end_of_line: str = r"[^\n]*"
) -> re.Pattern[str]:
    pattern = _SHARED.format(
        strings=strings, double=double, letters=letters, dollar=dollar,
        to_end_of_line=to_end_of_line,
    )  # fmt: skip
    return re.compile(pattern, re.VERBOSE | re.DOTALL)


_STANDARD = _pattern(_PLAIN)
_AROUND = {
    Dialect.DUCKDB: _pattern(rf"[eE]'(?:[^'\\]++|\\.|'')*+'|{_PLAIN}", letters=r"\w$", dollar=r"\$(?:[^\W\d]\w*)?\$"),
    Dialect.SPARK: _pattern(
        r"""[rR]'[^']*+'|[rR]"[^"]*+"|'(?:[^'\\]++|\\.)*+'""",
        double=r'"(?:[^"\\]++|\\.|"")*+"',
        to_end_of_line=r"(?:\\\n|[^\n])*",
    ),
}
_SORTS = {
    "string": TokenKind.STRING,
    "quoted": TokenKind.QUOTED,
    "word": TokenKind.WORD,
    "number": TokenKind.NUMBER,
    "mark": TokenKind.MARK,
}
_UNCLOSED = {"'": "this string is never closed", '"': "this quoted name is never closed"}
_UNCLOSED["`"] = _UNCLOSED['"']
_COMMENT = re.compile(r"/\*|\*/")


def tokenize_sql(text: str, dialect: Dialect = Dialect.DUCKDB) -> tuple[list[SqlToken], dict[int, int]]:
    """Returns the tokens, and the matching parenthesis of each parenthesis by number of token.

    >>> tokens, pairs = tokenize_sql("t MATCH_RECOGNIZE (PATTERN (A{- B -} $) /* ) */)")
    >>> " ".join(token.text for token in tokens)
    't MATCH_RECOGNIZE ( PATTERN ( A { - B - } $ ) )'
    >>> pairs[2], pairs[4]
    (13, 12)
    """
    tokens: list[SqlToken] = []
    pairs: dict[int, int] = {}
    opened: list[int] = []
    inside = 0  # depth of the current clause; 0 outside of clauses
    around, at = _AROUND[dialect], 0
    while at < len(text):
        match_ = (_STANDARD if inside else around).match(text, at)
        assert match_ is not None  # a mark is any character
        sort, start, at = str(match_.lastgroup), at, match_.end()
        if sort in ("blank", "remark"):
            continue
        if sort == "comment":
            at = _end_of_comment(text, start)
            continue
        if sort == "dollar":
            close = text.find(match_[0], at)
            if close < 0:
                raise _error(_UNCLOSED["'"], start, at, text)
            sort, at = "string", close + len(match_[0])
        token = SqlToken(_SORTS[sort], text[start:at], start)
        if sort == "mark":
            if token.text in _UNCLOSED:
                raise _error(_UNCLOSED[token.text], start, at, text)
            if token.text == "(":
                opened.append(len(tokens))
                if len(opened) > _DEEPEST:
                    raise _error(f"parentheses are nested more than {_DEEPEST} deep", start, at, text)
                if not inside and tokens and tokens[-1].word == KEYWORD:
                    inside = len(opened)
            elif token.text == ")":
                if not opened:
                    raise _error("this parenthesis has no matching opening one", start, at, text)
                if len(opened) == inside:
                    inside = 0
                first = opened.pop()
                pairs[first], pairs[len(tokens)] = len(tokens), first
        tokens.append(token)
    if opened:
        unclosed = tokens[opened[-1]]
        if inside:
            unclosed = tokens[opened[inside - 1]]
        raise _error("this parenthesis is never closed", unclosed.start, unclosed.end, text)
    return tokens, pairs


def _end_of_comment(text: str, start: int) -> int:
    """Returns the end of a comment, which may be nested."""
    depth, at = 0, start
    while True:
        match_ = _COMMENT.search(text, at)
        if match_ is None:
            raise _error("this comment is never closed", start, start + 2, text)
        depth, at = depth + (1 if match_[0] == "/*" else -1), match_.end()
        if not depth:
            return at


def _error(problem: str, start: int, end: int, text: str) -> QueryError:
    return QueryError(problem, span=Span(start, end), text=text)
