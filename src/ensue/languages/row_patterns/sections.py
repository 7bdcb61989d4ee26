"""The parts of a MATCH_RECOGNIZE clause, by the words that they begin with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from ensue.errors import QueryError
from ensue.languages.row_patterns.tokens import Token, Tokens
from ensue.span import Span

ORDER = (
    "PARTITION BY", "ORDER BY", "MEASURES", "ROWS", "AFTER MATCH", "PATTERN", "WITHIN", "SUBSET",
    "DEFINE",
)  # fmt: skip
_SHOWN = {"ROWS": "ONE ROW PER MATCH or ALL ROWS PER MATCH", "AFTER MATCH": "AFTER MATCH SKIP"}
_IN_ORDER = (
    "PARTITION BY, ORDER BY, MEASURES, ONE ROW or ALL ROWS PER MATCH, AFTER MATCH SKIP, PATTERN, "
    "WITHIN, SUBSET, DEFINE"
)
# Words behind which a value, or a name, is still to come.
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
class Section:
    """A part of the clause: the tokens it begins with, and those inside."""

    name: str
    all: tuple[Token, ...]
    lead: int  # how many tokens it begins with

    @property
    def inside(self) -> tuple[Token, ...]:
        return self.all[self.lead :]

    @property
    def span(self) -> Span:
        return self.all[0].span.to(self.all[-1].span)

    def over(self, text: str) -> str:
        return " ".join(self.span.over(text).split())


def sections_of(tokens: Tokens, span: Span) -> dict[str, Section]:
    """The parts of a clause by their names, in the order of the standard.

    >>> from ensue.languages.row_patterns.tokens import tokens_of
    >>> text = "MEASURES x AS pattern PATTERN (A) DEFINE A AS define > 3"
    >>> list(sections_of(tokens_of(text, 0, 56), Span(0, 56)))
    ['MEASURES', 'PATTERN', 'DEFINE']
    """
    if not tokens.all:
        raise QueryError(
            "MATCH_RECOGNIZE is empty",
            hint="write MATCH_RECOGNIZE (PATTERN (A B+) DEFINE B AS price > PREV(price))",
            span=span,
        )
    found: dict[str, Section] = {}
    begun: tuple[str, int, int] | None = None  # its name, where it begins, how long its lead is
    at = 0
    while at < len(tokens.all):
        fresh = begun is not None and at == begun[1] + begun[2]
        name, lead = _begins(tokens.all, at, fresh)
        if name:
            if begun is not None:
                _add(found, tokens.all[begun[1] : at], begun)
            _refuse_windows(name, tokens.all[at])
            _require_order(name, (*found, *([begun[0]] if begun else ())), tokens.all[at])
            begun = name, at, lead
            at += lead
        elif begun is None:
            raise _unknown(tokens.all[at])
        else:
            at += 1
    if begun is not None:
        _add(found, tokens.all[begun[1] :], begun)
    return found


def _add(found: dict[str, Section], tokens: Sequence[Token], begun: tuple[str, int, int]) -> None:
    name, _, lead = begun
    section = Section(name, tuple(tokens), lead)
    if not section.inside and name != "ROWS":
        raise QueryError(f"{name} says nothing", hint="leave it out", span=section.span)
    found[name] = section


def _begins(tokens: Sequence[Token], at: int, fresh: bool) -> tuple[str, int]:
    """The part that begins here and how many tokens it begins with; "" if none does.

    `fresh`: nothing stands yet in the part before it.
    """
    token = tokens[at]
    if token.depth or not token.word or token.word not in _BEGINNINGS:
        return "", 0
    if at and not _ended(tokens, at, fresh):
        return "", 0
    name, lead, follows = _BEGINNINGS[token.word]
    if not follows(list(tokens[at + 1 : at + 3])):
        return "", 0
    return name, lead


def _ended(tokens: Sequence[Token], at: int, fresh: bool) -> bool:
    """Whether what stands before can be the end of something: a name, a value, a bracket.

    An AS makes a name of the word behind it, whatever the word is.
    """
    before = tokens[at - 1]
    if at > 1 and tokens[at - 2].word == "AS":
        return True
    loose = tokens[at].word in ("MEASURES", "WITHIN")  # a column may be called so
    if fresh:
        return not loose
    if before.kind == "sign":
        return before.text in (")]}" if loose else ")]},")
    return before.word not in _OPEN


def _second(*words: str) -> Callable[[list[Token]], bool]:
    return lambda behind: bool(behind) and behind[0].word in words


def _parenthesis(behind: list[Token]) -> bool:
    return bool(behind) and behind[0].text == "("


def _subset(behind: list[Token]) -> bool:
    return len(behind) > 1 and behind[0].names and behind[1].text == "="


def _definition(behind: list[Token]) -> bool:
    return len(behind) > 1 and behind[0].names and behind[1].word == "AS"


def _value(behind: list[Token]) -> bool:
    grouped = len(behind) > 1 and behind[0].word == "GROUP" and behind[1].text == "("
    return bool(behind) and not grouped and (behind[0].kind != "sign" or behind[0].text == ":")


def _anything(behind: list[Token]) -> bool:
    return bool(behind)


def _keeps_words(behind: list[Token]) -> bool:
    return bool(behind) and behind[0].word == "PATTERN"


_BEGINNINGS: dict[str, tuple[str, int, Callable[[list[Token]], bool]]] = {
    "PARTITION": ("PARTITION BY", 2, _second("BY")),
    "ORDER": ("ORDER BY", 2, _second("BY")),
    "MEASURES": ("MEASURES", 1, _anything),
    "ONE": ("ROWS", 2, _second("ROW")),
    "ALL": ("ROWS", 2, _second("ROWS")),
    "AFTER": ("AFTER MATCH", 2, _second("MATCH")),
    "INITIAL": ("INITIAL", 1, _keeps_words),
    "SEEK": ("SEEK", 1, _keeps_words),
    "PATTERN": ("PATTERN", 1, _parenthesis),
    "WITHIN": ("WITHIN", 1, _value),
    "SUBSET": ("SUBSET", 1, _subset),
    "DEFINE": ("DEFINE", 1, _definition),
}


def _refuse_windows(name: str, token: Token) -> None:
    if name in ("INITIAL", "SEEK"):
        raise QueryError(
            f"{name} belongs to row patterns in windows (OVER), which look for one match",
            hint="leave it out: MATCH_RECOGNIZE in FROM finds all matches",
            span=token.span,
        )


def _require_order(name: str, before: Sequence[str], token: Token) -> None:
    if name in before:
        raise QueryError(
            f"{_SHOWN.get(name, name)} is given twice",
            hint="join the two" if name not in ("ROWS", "PATTERN") else "leave one out",
            span=token.span,
        )
    later = next((other for other in before if ORDER.index(other) > ORDER.index(name)), None)
    if later is not None:
        raise QueryError(
            f"{_SHOWN.get(name, name)} belongs before {_SHOWN.get(later, later)}",
            hint=f"the order is {_IN_ORDER}",
            span=token.span,
        )


def _unknown(token: Token) -> QueryError:
    return QueryError(
        f"'{token.text}' does not start a part of MATCH_RECOGNIZE here",
        hint=misspelt(token) or f"its parts are {_IN_ORDER}",
        span=token.span,
    )


def misspelt(token: Token) -> str | None:
    """What is meant by a word that nearly begins a part of the clause."""
    if token.word in _FORMS:
        return _FORMS[token.word]
    near = get_close_matches(token.word, _BEGINNINGS, n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else None
