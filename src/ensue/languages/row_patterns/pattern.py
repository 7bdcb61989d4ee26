"""The text of a PATTERN to its algebra, or a QueryError that points into the text."""

import math
import re
from functools import cache
from typing import cast

from lark import Lark, Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ensue.algebra.row_patterns.pattern import (
    Alternation,
    Anchor,
    Concatenation,
    Exclusion,
    Nothing,
    Permutation,
    Repetition,
    Row,
    RowTerm,
    terms,
)
from ensue.errors import QueryError
from ensue.languages.expressions import Node, name_of, pieces, span_of
from ensue.languages.kept_grammars import grammar
from ensue.languages.parameter_tokens import AnywhereInText, read
from ensue.languages.parameters import NO_PARAMETERS, Parameters
from ensue.languages.slips import tail_of
from ensue.span import Span

DEEPEST = 50  # parentheses in parentheses
MOST_PLACES = 20_000  # of variables, when quantifiers and PERMUTE are written out
MOST_PERMUTED = 6
_HIGHEST = 1_000_000_000  # of a quantifier
_QUANTIFIERS = ("*", "+", "?", "{")
_PIECE = re.compile(r":?[^\W\d]\w*|[0-9]+|\|\||[\s\S]")


def read_pattern(
    text: str, start: int, stop: int, parameters: Parameters = NO_PARAMETERS
) -> RowTerm:
    """The pattern `text[start:stop]`, which stands between the parentheses of PATTERN.

    >>> read_pattern("A B+", 0, 4) == Concatenation((Row("A"), Repetition(Row("B"), 1, None)))
    True
    """
    try:
        tree = read(_grammar(), text[start:stop], "start", parameters)
    except UnexpectedInput as error:
        raise _explained(error, text, start, stop) from None
    except QueryError as error:  # of a parameter
        if error.span is not None:
            error.span = Span(error.span.start + start, error.span.end + start)
        raise
    term = _Reader(start).term(pieces(tree)[0], 0)
    _limit(term)
    return term


@cache
def _grammar() -> Lark:
    return grammar("ensue.languages.row_patterns", "pattern.lark", postlex=AnywhereInText())


class _Reader:
    """Syntax trees of a text that begins at `offset` of a longer one."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def span(self, node: Node | Token) -> Span:
        found = span_of(node)
        return Span(found.start + self.offset, found.end + self.offset)

    def term(self, node: Node, depth: int) -> RowTerm:
        span = self.span(node)
        if depth > DEEPEST:
            raise QueryError(
                f"parentheses are nested more than {DEEPEST} deep",
                hint="leave out unnecessary ones",
                span=span,
            )
        match node.data, pieces(node):
            case "row", [name]:
                return Row(self._variable(name), span)
            case "nothing", _:
                return Nothing(span)
            case "start_anchor", _:
                return Anchor("start", span)
            case "end_anchor", _:
                return Anchor("end", span)
            case "group", [inside]:
                return self.term(inside, depth + 1)
            case "concatenation", parts:
                return Concatenation(self._terms(parts, depth), span)
            case "alternation", parts:
                return Alternation(self._terms(parts, depth), span)
            case "permutation", parts:
                return self._permutation(parts, depth + 1, span)
            case "exclusion", [inside]:
                return Exclusion(self.term(inside, depth + 1), span)
            case "repetition", [inside, quantifier, *reluctant]:
                least, most = self._bounds(quantifier)
                greedy = not any(reluctant)
                return Repetition(self.term(inside, depth), least, most, greedy, span)
            case data, _:
                raise AssertionError(data)

    def _terms(self, parts: list[Node], depth: int) -> tuple[RowTerm, ...]:
        return tuple(self.term(part, depth) for part in parts)

    def _variable(self, name: Token) -> str:
        try:
            return name_of(name) if name.type == "QUOTED" else name.upper()
        except QueryError as error:
            error.span = self.span(name)
            raise

    def _permutation(self, parts: list[Node], depth: int, span: Span) -> RowTerm:
        if len(parts) > MOST_PERMUTED:
            raise QueryError(
                f"PERMUTE takes at most {MOST_PERMUTED} parts: {len(parts)} of them have "
                f"{math.factorial(len(parts)):,} orders",
                hint="write out the orders that matter, joined with |",
                span=span,
            )
        return Permutation(self._terms(parts, depth), span)

    def _bounds(self, quantifier: Node) -> tuple[int, int | None]:
        (found,) = pieces(quantifier)
        if isinstance(found, Token):
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[str(found)]
        span = self.span(quantifier)
        low, comma, high = pieces(found)
        if low is None and comma is None:
            raise QueryError(
                "this quantifier has no number",
                hint="write {2}, {2,}, {,3} or {2,3}",
                span=span,
            )
        least = self._count(low) if low is not None else 0
        most = self._count(high) if high is not None else (None if comma is not None else least)
        if most == 0:
            raise QueryError(
                "a quantifier must allow at least one repetition",
                hint="leave out the part, or write () for the empty pattern",
                span=span,
            )
        if most is not None and most < least:
            raise QueryError(
                f"this quantifier asks for at least {least} and at most {most}",
                hint=f"the lower bound comes first: {{{most},{least}}}",
                span=span,
            )
        return least, most

    def _count(self, digits: Token) -> int:
        if not digits.isdigit():
            raise QueryError(
                "a quantifier takes whole numbers", hint="as in {2,3}", span=self.span(digits)
            )
        if len(digits) > 10 or int(digits) > _HIGHEST:
            raise QueryError(
                f"quantifiers go up to {_HIGHEST:,}",
                hint="leave out the upper bound, as in {2,}",
                span=self.span(digits),
            )
        return int(digits)


# ------------------------------------------------------------------------------------- limits


def _limit(term: RowTerm) -> None:
    places = _places(term)
    if places <= MOST_PLACES:
        return
    culprit = next(
        (
            part
            for part in reversed(list(terms(term)))
            if isinstance(part, Repetition | Permutation) and _places(part) > MOST_PLACES
        ),
        term,
    )
    raise QueryError(
        f"written out, this has {places:,} places for rows; the limit is {MOST_PLACES:,}",
        hint="use smaller bounds, or none: A{2,} means two or more",
        span=culprit.span,
    )


def _places(term: RowTerm) -> int:
    """How many variables stand in a term when quantifiers and PERMUTE are written out."""
    match term:
        case Row():
            return 1
        case Nothing() | Anchor():
            return 1
        case Concatenation(parts=parts) | Alternation(parts=parts):
            return sum(map(_places, parts))
        case Permutation(parts=parts):
            return math.factorial(len(parts)) * sum(map(_places, parts))
        case Repetition(part=part, least=least, most=most):
            return _places(part) * max(least + 1 if most is None else most, 1)
        case Exclusion(part=part):
            return _places(part)


# ------------------------------------------------------------------------------------- errors


def _explained(error: UnexpectedInput, text: str, start: int, stop: int) -> QueryError:
    """What the parser met, in plain words."""
    assert isinstance(error, UnexpectedToken | UnexpectedCharacters)
    if isinstance(error, UnexpectedCharacters):
        at = start + cast(int, error.pos_in_stream)
    elif error.token.type == "$END" or error.token.start_pos is None:
        at = stop
    else:
        at = start + error.token.start_pos
    if at >= stop:
        at, found = start + len(text[start:stop].rstrip()), ""
    else:
        piece = _PIECE.match(text, at, stop)
        assert piece is not None
        found = piece[0]
    before = _without_comments(text[start:at]).rstrip()
    problem, hint = _slip(before, found)
    return QueryError(problem, hint=hint, span=Span(at, at + max(len(found), 1)))


def _without_comments(text: str) -> str:
    return re.sub(r"--[^\n]*|/\*[\s\S]*?\*/", " ", text)


def _slip(before: str, found: str) -> tuple[str, str | None]:
    shown = f"'{found}'" if found else "the end"
    if found.startswith(":"):
        return f"the value of {found} is not a whole number", "a quantifier takes such: A{:least,}"
    if not before and not found:
        return "the pattern is empty", "write () for a pattern without rows"
    if found in _QUANTIFIERS and re.search(r"[*+?}]$", before) and not before.endswith("-}"):
        return (
            "a quantifier after a quantifier",
            "put the inner one into parentheses: (A*)+; a '?' after a quantifier is reluctant",
        )
    if found == "||" or (found in ("|", ")", "", ",") and before.endswith("|")):
        return "a branch of this alternation is empty", "write () for no row at all: (A | ())"
    if found == "|" and (not before or before[-1] in "(|,"):
        return "a branch of this alternation is empty", "write () for no row at all: (() | A)"
    if found in _QUANTIFIERS and (not before or before[-1] in "(|,-"):
        return f"{shown} has nothing before it to repeat", "write it after a variable: A+"
    if re.search(r"\{\s*(?:[0-9][^}]*|,[^}]*|)$", tail_of(before)):
        return "this is not a quantifier", "quantifiers are * + ? {2} {2,} {,3} and {2,3}"
    if found == ",":
        return "variables are not separated by ','", "write A B for one after the other"
    if found in ("-", "}") and "{-" in before:
        return "an exclusion needs a pattern inside", "write it as {- A+ -}"
    if found == "." or (found and before.endswith(".")):
        return "a pattern names variables, not columns", "say in DEFINE which rows they match"
    if found in ("&", "!", "~"):
        return f"{shown} means nothing in a pattern", "put conditions in DEFINE"
    return (
        f"expected a variable, '(', '^', '$', '{{-' or PERMUTE, found {shown}"
        if not found or not before or before[-1] in "(|,"
        else f"{shown} does not belong here",
        "a pattern is made of variables, |, (), ^, $, {- -}, PERMUTE and * + ? {2,3}",
    )
