"""The words and signs of a MATCH_RECOGNIZE clause, as far as it takes to find its parts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ensue.errors import QueryError
from ensue.languages.parameters import NO_PARAMETERS, Parameters
from ensue.span import Span

_TOKEN = re.compile(
    r"""
      (?P<blank>\s+|--[^\n]*|/\*[\s\S]*?\*/)
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
    | (?P<word>[^\W\d]\w*)
    | (?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<sign>/\*|[\s\S])
    """,
    re.VERBOSE,
)
_ENDLESS = {"'": "string", '"': "quoted name", "`": "quoted name", "/*": "comment"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_DEEPEST = 100  # brackets in brackets: what follows reads them recursively


class Token(NamedTuple):
    """A word, a number, a string, a quoted name, or one sign."""

    kind: str
    text: str
    start: int
    depth: int  # of the brackets around it; a bracket has that of what is around it

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)

    @property
    def word(self) -> str:
        """The word in upper case; empty for what is no word, or a quoted one."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def names(self) -> bool:
        return self.kind in ("word", "quoted")

    @property
    def name(self) -> str:
        """A name as it is written, without its quotes."""
        if self.kind != "quoted":
            return self.text
        quote = self.text[0]
        name = self.text[1:-1].replace(quote * 2, quote)
        if not name:
            raise QueryError("a name cannot be empty", span=self.span)
        return name

    @property
    def folded(self) -> str:
        """A variable's name: in upper case, unless it is quoted."""
        return self.name if self.kind == "quoted" else self.name.upper()


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a piece of text, and where its brackets close."""

    text: str
    all: tuple[Token, ...]
    closing: dict[int, int]  # where a bracket opens: where it closes
    parameters: Parameters = NO_PARAMETERS


def tokens_of(text: str, start: int, stop: int, parameters: Parameters = NO_PARAMETERS) -> Tokens:
    """The tokens of `text[start:stop]`, blanks and comments left out.

    >>> [token.text for token in tokens_of("x PATTERN (A+ /* up */ B)", 2, 25).all]
    ['PATTERN', '(', 'A', '+', 'B', ')']
    """
    found: list[Token] = []
    opened: list[Token] = []
    closing: dict[int, int] = {}
    at = start
    while at < stop:
        piece = _TOKEN.match(text, at, stop)
        assert piece is not None
        assert piece.lastgroup is not None
        at = piece.end()
        if piece.lastgroup == "blank":
            continue
        token = Token(piece.lastgroup, piece[0], piece.start(), len(opened))
        if token.kind == "sign" and token.text in _ENDLESS:
            what = _ENDLESS[token.text]
            raise QueryError(f"this {what} has no end", hint="close it", span=token.span)
        if token.text in _CLOSING:
            opened.append(token)
            if len(opened) > _DEEPEST:
                raise QueryError(
                    f"brackets are nested more than {_DEEPEST} deep",
                    hint="leave out unnecessary brackets",
                    span=token.span,
                )
        elif token.text in _CLOSING.values() and token.kind == "sign":
            closing[_closed(opened, token)] = token.start
            token = token._replace(depth=len(opened))
        found.append(token)
    if opened:
        raise QueryError(
            f"this '{opened[-1].text}' is not closed",
            hint=f"close it with '{_CLOSING[opened[-1].text]}'",
            span=opened[-1].span,
        )
    return Tokens(text, tuple(found), closing, parameters)


def _closed(opened: list[Token], token: Token) -> int:
    """Takes away the bracket that is closed here."""
    if not opened:
        raise QueryError(f"this '{token.text}' has no matching opening bracket", span=token.span)
    last = opened.pop()
    if _CLOSING[last.text] != token.text:
        raise QueryError(
            f"this '{token.text}' does not close the '{last.text}' before it",
            hint=f"close that with '{_CLOSING[last.text]}' first",
            span=token.span,
        )
    return last.start


def commas(tokens: Sequence[Token], depth: int) -> list[list[Token]]:
    """The tokens between the commas that stand at a depth.

    >>> found = tokens_of("a, f(b, c)", 0, 10).all
    >>> [[token.text for token in item] for item in commas(found, 0)]
    [['a'], ['f', '(', 'b', ',', 'c', ')']]
    """
    items: list[list[Token]] = [[]]
    for token in tokens:
        if token.text == "," and token.kind == "sign" and token.depth == depth:
            items.append([])
        else:
            items[-1].append(token)
    return items
