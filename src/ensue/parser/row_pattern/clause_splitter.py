"""Tokenizes a MATCH_RECOGNIZE clause, splits it into its sections, and resolves variables."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from ensue.errors import QueryError, Span, did_you_mean
from ensue.parser.parameters import NO_PARAMETERS, Parameters

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
_LITERALS = {"'": "string", '"': "quoted name", "`": "quoted name", "/*": "comment"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_DEEPEST = 100  # nested brackets, since later passes recurse


class ClauseToken(NamedTuple):
    """A word, a number, a string, a quoted name, or one character."""

    kind: str
    text: str
    start: int
    depth: int  # number of brackets around it

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)

    @property
    def word(self) -> str:
        """The word in upper case; empty for other tokens and quoted names."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def names(self) -> bool:
        return self.kind in ("word", "quoted")

    @property
    def name(self) -> str:
        """The name without its quotes."""
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
class ClauseTokens:
    """The tokens of a piece of text, and the positions of its closing brackets."""

    text: str
    all: tuple[ClauseToken, ...]
    closing: dict[int, int]  # from the opening to the closing bracket
    parameters: Parameters = NO_PARAMETERS


def tokenize_clause(text: str, start: int, stop: int, parameters: Parameters = NO_PARAMETERS) -> ClauseTokens:
    """Tokenizes `text[start:stop]` without blanks and comments.

    >>> [token.text for token in tokenize_clause("x PATTERN (A+ /* up */ B)", 2, 25).all]
    ['PATTERN', '(', 'A', '+', 'B', ')']
    """
    tokens: list[ClauseToken] = []
    opened: list[ClauseToken] = []
    closing: dict[int, int] = {}
    at = start
    while at < stop:
        match_ = _TOKEN.match(text, at, stop)
        assert match_ is not None
        assert match_.lastgroup is not None
        at = match_.end()
        if match_.lastgroup == "blank":
            continue
        token = ClauseToken(match_.lastgroup, match_[0], match_.start(), len(opened))
        if token.kind == "sign" and token.text in _LITERALS:
            literal = _LITERALS[token.text]
            raise QueryError(f"this {literal} has no end", hint="close it", span=token.span)
        if token.text in _CLOSING:
            opened.append(token)
            if len(opened) > _DEEPEST:
                raise QueryError(
                    f"brackets are nested more than {_DEEPEST} deep",
                    hint="leave out unnecessary brackets",
                    span=token.span,
                )
        elif token.text in _CLOSING.values() and token.kind == "sign":
            closing[_close(opened, token)] = token.start
            token = token._replace(depth=len(opened))
        tokens.append(token)
    if opened:
        raise QueryError(
            f"this '{opened[-1].text}' is not closed",
            hint=f"close it with '{_CLOSING[opened[-1].text]}'",
            span=opened[-1].span,
        )
    return ClauseTokens(text, tuple(tokens), closing, parameters)


def _close(opened: list[ClauseToken], token: ClauseToken) -> int:
    """Removes the bracket that is closed here, and returns its position."""
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


def split_at_commas(tokens: Sequence[ClauseToken], depth: int) -> list[list[ClauseToken]]:
    """Splits tokens at the commas of a depth.

    >>> found = tokenize_clause("a, f(b, c)", 0, 10).all
    >>> [[token.text for token in item] for item in split_at_commas(found, 0)]
    [['a'], ['f', '(', 'b', ',', 'c', ')']]
    """
    items: list[list[ClauseToken]] = [[]]
    for token in tokens:
        if token.text == "," and token.kind == "sign" and token.depth == depth:
            items.append([])
        else:
            items[-1].append(token)
    return items


SECTION_ORDER = (
    "PARTITION BY", "ORDER BY", "MEASURES", "ROWS", "AFTER MATCH", "PATTERN", "WITHIN", "SUBSET",
    "DEFINE",
)  # fmt: skip
_SHOWN = {"ROWS": "ONE ROW PER MATCH or ALL ROWS PER MATCH", "AFTER MATCH": "AFTER MATCH SKIP"}
_IN_ORDER = ", ".join(_SHOWN.get(name, name) for name in SECTION_ORDER)
# Words that a value or a name must follow.
_OPEN = ("AS", "AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "WHEN", "THEN", "ELSE", "CASE")
_FORMS = {
    "PATTERN": "the pattern follows in parentheses: PATTERN (A B+)",
    "SUBSET": "a name and its variables follow: SUBSET U = (A, B)",
    "DEFINE": "variables and their conditions follow: DEFINE B AS B.price > PREV(B.price)",
    "WITHIN": "a length of time follows: WITHIN INTERVAL '5' MINUTE",
    "PARTITION": "write PARTITION BY and columns",
    "ORDER": "write ORDER BY and columns",
    "ONE": "write ONE ROW PER MATCH",
    "ALL": "write ALL ROWS PER MATCH",
    "AFTER": "write AFTER MATCH SKIP PAST LAST ROW",
}


@dataclass(frozen=True, slots=True)
class ClauseSection:
    """A section of the clause: its leading keywords, and the tokens after them."""

    name: str
    all: tuple[ClauseToken, ...]
    lead: int  # number of leading keywords

    @property
    def inside(self) -> tuple[ClauseToken, ...]:
        return self.all[self.lead :]

    @property
    def span(self) -> Span:
        return self.all[0].span.to(self.all[-1].span)

    def over(self, text: str) -> str:
        return " ".join(self.span.over(text).split())


def split_sections(tokens: ClauseTokens, span: Span) -> dict[str, ClauseSection]:
    """Splits a clause into its sections by name, in the order of the standard.

    >>> text = "MEASURES x AS pattern PATTERN (A) DEFINE A AS define > 3"
    >>> list(split_sections(tokenize_clause(text, 0, 56), Span(0, 56)))
    ['MEASURES', 'PATTERN', 'DEFINE']
    """
    if not tokens.all:
        raise QueryError(
            "MATCH_RECOGNIZE is empty",
            hint="write MATCH_RECOGNIZE (PATTERN (A B+) DEFINE B AS price > PREV(price))",
            span=span,
        )
    sections: dict[str, ClauseSection] = {}
    current: tuple[str, int, int] | None = None  # name, first token, number of keywords
    at = 0
    while at < len(tokens.all):
        fresh = current is not None and at == current[1] + current[2]
        name, lead = _begins(tokens.all, at, fresh)
        if name:
            if current is not None:
                _add(sections, tokens.all[current[1] : at], current)
            _refuse_windows(name, tokens.all[at])
            _require_order(name, (*sections, *([current[0]] if current else ())), tokens.all[at])
            current = name, at, lead
            at += lead
        elif current is None:
            raise _unknown(tokens.all[at])
        else:
            at += 1
    if current is not None:
        _add(sections, tokens.all[current[1] :], current)
    return sections


def _add(sections: dict[str, ClauseSection], tokens: Sequence[ClauseToken], current: tuple[str, int, int]) -> None:
    name, _, lead = current
    section = ClauseSection(name, tuple(tokens), lead)
    if not section.inside and name != "ROWS":
        raise QueryError(f"{name} is empty", hint="leave it out", span=section.span)
    sections[name] = section


def _begins(tokens: Sequence[ClauseToken], at: int, fresh: bool) -> tuple[str, int]:
    """Returns the section that begins here and its number of keywords; "" if none does.

    `fresh`: the previous section is still empty.
    """
    token = tokens[at]
    if token.depth or not token.word or token.word not in _BEGINNINGS:
        return "", 0
    if at and not _can_end(tokens, at, fresh):
        return "", 0
    name, lead, follows = _BEGINNINGS[token.word]
    if not follows(list(tokens[at + 1 : at + 3])):
        return "", 0
    return name, lead


def _can_end(tokens: Sequence[ClauseToken], at: int, fresh: bool) -> bool:
    """Whether the previous token can end a section: a name, a value, a bracket.

    Any word after AS is a name.
    """
    before = tokens[at - 1]
    if at > 1 and tokens[at - 2].word == "AS":
        return True
    loose = tokens[at].word in ("MEASURES", "WITHIN")  # may also be names of columns
    if fresh:
        return not loose
    if before.kind == "sign":
        return before.text in (")]}" if loose else ")]},")
    return before.word not in _OPEN


def _second(*words: str) -> Callable[[list[ClauseToken]], bool]:
    return lambda following: bool(following) and following[0].word in words


def _begins_name(following: list[ClauseToken]) -> bool:
    return len(following) > 1 and following[0].names


def _value(following: list[ClauseToken]) -> bool:
    grouped = len(following) > 1 and following[0].word == "GROUP" and following[1].text == "("
    value = bool(following) and (following[0].kind != "sign" or following[0].text == ":")
    return value and not grouped


_BEGINNINGS: dict[str, tuple[str, int, Callable[[list[ClauseToken]], bool]]] = {
    "PARTITION": ("PARTITION BY", 2, _second("BY")),
    "ORDER": ("ORDER BY", 2, _second("BY")),
    "MEASURES": ("MEASURES", 1, bool),
    "ONE": ("ROWS", 2, _second("ROW")),
    "ALL": ("ROWS", 2, _second("ROWS")),
    "AFTER": ("AFTER MATCH", 2, _second("MATCH")),
    "INITIAL": ("INITIAL", 1, _second("PATTERN")),
    "SEEK": ("SEEK", 1, _second("PATTERN")),
    "PATTERN": ("PATTERN", 1, lambda following: bool(following) and following[0].text == "("),
    "WITHIN": ("WITHIN", 1, _value),
    "SUBSET": ("SUBSET", 1, lambda following: _begins_name(following) and following[1].text == "="),
    "DEFINE": ("DEFINE", 1, lambda following: _begins_name(following) and following[1].word == "AS"),
}


def _refuse_windows(name: str, token: ClauseToken) -> None:
    if name in ("INITIAL", "SEEK"):
        raise QueryError(
            f"{name} belongs to row patterns in windows (OVER), which look for one match",
            hint="leave it out: MATCH_RECOGNIZE in FROM finds all matches",
            span=token.span,
        )


def _require_order(name: str, before: Sequence[str], token: ClauseToken) -> None:
    if name in before:
        raise QueryError(
            f"{_SHOWN.get(name, name)} is given twice",
            hint="join the two" if name not in ("ROWS", "PATTERN") else "leave one out",
            span=token.span,
        )
    later = next((other for other in before if SECTION_ORDER.index(other) > SECTION_ORDER.index(name)), None)
    if later is not None:
        raise QueryError(
            f"{_SHOWN.get(name, name)} belongs before {_SHOWN.get(later, later)}",
            hint=f"the order is {_IN_ORDER}",
            span=token.span,
        )


def _unknown(token: ClauseToken) -> QueryError:
    return QueryError(
        f"'{token.text}' does not start a part of MATCH_RECOGNIZE here",
        hint=suggest_section(token) or f"its parts are {_IN_ORDER}",
        span=token.span,
    )


def suggest_section(token: ClauseToken) -> str | None:
    """Returns a hint for a word that resembles the keyword of a section."""
    if token.word in _FORMS:
        return _FORMS[token.word]
    near = get_close_matches(token.word, _BEGINNINGS, n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else None


@dataclass(frozen=True, slots=True)
class PatternVariables:
    """The variables of a pattern, and its SUBSETs."""

    variables: tuple[str, ...]
    subsets: Mapping[str, tuple[str, ...]]

    def members(self, name: str, span: Span) -> tuple[str, ...]:
        """Returns the variables that a name stands for."""
        if name in self.variables:
            return (name,)
        if name in self.subsets:
            return self.subsets[name]
        raise QueryError(
            f"there is no variable '{name}' in the pattern",
            hint=did_you_mean(name, (*self.variables, *self.subsets)),
            span=span,
        )
