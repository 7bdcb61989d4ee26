"""Parses the tokens of PATTERN to row terms."""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from sqlglot import TokenType
from sqlglot.tokenizer_core import Token

from ensue.errors import QueryError, Span
from ensue.ir import row_pattern
from ensue.parser.parameters import Parameters, list_value_error
from ensue.parser.sql.sqlglot_dialect import fold_name, get_span, is_name

MAX_PATTERN_DEPTH = 50  # nested parentheses
MAX_EXPANDED_VARIABLES = 20_000  # variables, with quantifiers and PERMUTE expanded
MAX_PERMUTED = 6
_HIGHEST = 1_000_000_000  # of a quantifier
_QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1), "{": None}
_PIECE = re.compile(r"\$|[^\s$]+")


def parse_row_pattern(tokens: Sequence[Token], end: Span, text: str, parameters: Parameters) -> row_pattern.RowTerm:
    """Parses the tokens between the parentheses of PATTERN; `end` is the closing one.

    >>> from ensue.parser.parameters import NO_PARAMETERS
    >>> from ensue.parser.sql.sqlglot_dialect import tokenize
    >>> term = parse_row_pattern(tokenize("A|B", None), Span(3, 4), "A|B", NO_PARAMETERS)
    >>> term == row_pattern.Alternation((row_pattern.RowVariable("A"), row_pattern.RowVariable("B")))
    True
    """
    signs = [*_split_signs(tokens, text), _Sign("", end)]
    term = _PatternParser(signs, parameters).parse()
    _check_size(term)
    return term


class _Sign(NamedTuple):
    """A variable, a number, or a sign of the pattern: `{-` and `-}` are one."""

    text: str
    span: Span
    variable: str | None = None


def _split_signs(tokens: Sequence[Token], text: str) -> Iterator[_Sign]:
    last: Token | None = None  # the first half of {- or -}
    for token, following in zip_longest(tokens, tokens[1:]):
        span = get_span(token)
        if last is not None:
            yield _Sign(last.text + token.text, get_span(last).to(span))
            last = None
        elif following is not None and token.text + following.text in ("{-", "-}") and span.end == following.start:
            last = token
        elif token.token_type is TokenType.IDENTIFIER:
            yield _Sign(span.over(text), span, fold_name(token))
        elif token.token_type is not TokenType.VAR and not is_name(token):
            yield _Sign(span.over(text), span)
        else:  # A$ and ORDER BY are one token of sqlglot
            for piece in _PIECE.finditer(span.over(text)):
                variable = piece[0].upper() if piece[0].isidentifier() else None
                yield _Sign(piece[0], Span(span.start + piece.start(), span.start + piece.end()), variable)


class _PatternParser:
    """Parses a pattern by recursive descent."""

    def __init__(self, signs: Sequence[_Sign], parameters: Parameters) -> None:
        self.signs = signs
        self.parameters = parameters
        self.at = 0
        self.depth = 0  # of parentheses

    @property
    def text(self) -> str:
        return self.signs[self.at].text

    def parse(self) -> row_pattern.RowTerm:
        if not self.text:
            raise self._error("the pattern is empty", "write () for a pattern without rows")
        term = self._alternation()
        if self.text:
            raise self._unexpected()
        return term

    def _advance(self) -> Span:
        self.at += 1
        return self.signs[self.at - 1].span

    def _take(self, text: str) -> bool:
        if self.text == text:
            self.at += 1
            return True
        return False

    def _span(self, first: int) -> Span:
        return self.signs[first].span.to(self.signs[self.at - 1].span)

    def _alternation(self) -> row_pattern.RowTerm:
        first = self.at
        parts = [self._concatenation()]
        while self._take("|"):
            parts.append(self._concatenation())
        return parts[0] if len(parts) == 1 else row_pattern.Alternation(tuple(parts), self._span(first))

    def _concatenation(self) -> row_pattern.RowTerm:
        first = self.at
        parts = [self._factor()]
        while self.text in ("(", "^", "$", "{-") or self.signs[self.at].variable is not None:
            parts.append(self._factor())
        return parts[0] if len(parts) == 1 else row_pattern.Concatenation(tuple(parts), self._span(first))

    def _factor(self) -> row_pattern.RowTerm:
        first = self.at
        part = self._primary()
        if self.text not in _QUANTIFIERS:
            return part
        least, most = self._quantifier()
        is_greedy = not self._take("?")
        if self.text in _QUANTIFIERS:
            raise self._error(
                "a quantifier after a quantifier",
                "put the inner one into parentheses: (A*)+; a '?' after a quantifier is reluctant",
            )
        return row_pattern.Repetition(part, least, most, is_greedy, self._span(first))

    def _primary(self) -> row_pattern.RowTerm:
        first = self.at
        text, span, variable = self.signs[first]
        if variable is not None:
            self._advance()
            if text.upper() == "PERMUTE" and self.text == "(":
                return self._permutation(first)
            return row_pattern.RowVariable(variable, span)
        match text:
            case "^" | "$":
                self._advance()
                return row_pattern.PartitionAnchor("start" if text == "^" else "end", span)
            case "(":
                self._open()
                if self._take(")"):
                    self.depth -= 1
                    return row_pattern.EmptyRowPattern(self._span(first))
                term = self._alternation()
                self._close(")")
                return term
            case "{-":
                self._open()
                term = self._alternation()
                self._close("-}")
                return row_pattern.Exclusion(term, self._span(first))
            case _:
                raise self._unexpected()

    def _open(self) -> None:
        self.depth += 1
        if self.depth > MAX_PATTERN_DEPTH:
            raise self._error(
                f"parentheses are nested more than {MAX_PATTERN_DEPTH} deep", "leave out unnecessary ones"
            )
        self._advance()

    def _close(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected()
        self.depth -= 1

    def _permutation(self, first: int) -> row_pattern.RowTerm:
        self._open()
        parts = [self._alternation()]
        while self._take(","):
            parts.append(self._alternation())
        self._close(")")
        if len(parts) > MAX_PERMUTED:
            raise QueryError(
                f"PERMUTE takes at most {MAX_PERMUTED} parts: {len(parts)} of them have "
                f"{math.factorial(len(parts)):,} orders",
                hint="write out the orders that matter, joined with |",
                span=self._span(first),
            )
        return row_pattern.Permutation(tuple(parts), self._span(first))

    def _quantifier(self) -> tuple[int, int | None]:
        first = self.at
        bounds = _QUANTIFIERS[self.text]
        self._advance()
        if bounds is not None:
            return bounds
        low = self._count()
        has_comma = self._take(",")
        high = self._count() if has_comma else low
        if not self._take("}"):
            raise self._error("this is not a quantifier", "quantifiers are * + ? {2} {2,} {,3} and {2,3}")
        span = self._span(first)
        if low is None and not has_comma:
            raise QueryError("this quantifier has no number", hint="write {2}, {2,}, {,3} or {2,3}", span=span)
        least = low or 0
        if high is not None and high < least:
            raise QueryError(
                f"this quantifier asks for at least {least} and at most {high}",
                hint=f"the lower bound comes first: {{{high},{least}}}",
                span=span,
            )
        return least, high

    def _count(self) -> int | None:
        """Parses a bound of a quantifier, if there is one here."""
        digits, span, _ = self.signs[self.at]
        if digits == ":":
            return self._parameter()
        if not (digits.isascii() and digits.isdigit()):
            return None
        self._advance()
        return _require_count(digits, span)

    def _parameter(self) -> int:
        start = self._advance()
        name, span, variable = self.signs[self.at]
        if variable is None or span.start != start.end:
            raise self._unexpected()
        self._advance()
        value = self.parameters.constants(name, start.to(span))
        if isinstance(value, list):
            raise list_value_error(name, start.to(span))
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise QueryError(
                f"the value of :{name} is not a whole number",
                hint="a quantifier takes whole numbers: A{:least,}",
                span=start.to(span),
            )
        return _require_count(str(value), start.to(span))

    def _error(self, problem: str, hint: str) -> QueryError:
        return QueryError(problem, hint=hint, span=self.signs[self.at].span)

    def _unexpected(self) -> QueryError:
        """Builds the error for the current sign, which names the problem and a fix."""
        text = self.text
        before = self.signs[self.at - 1].text if self.at else ""
        shown = f"'{text}'" if text else "the end"
        if text == "||" or (text in ("|", ")", "", ",") and before == "|"):
            return self._error("a branch of this alternation is empty", "write () for no row at all: (A | ())")
        if text == "|" and before in ("", "(", ","):
            return self._error("a branch of this alternation is empty", "write () for no row at all: (() | A)")
        if text in _QUANTIFIERS:
            return self._error(f"{shown} has nothing before it to repeat", "write it after a variable: A+")
        if text == ",":
            return self._error("variables are not separated by ','", "write A B for one after the other")
        if text == "-}" or before == "{-":
            return self._error("an exclusion needs a pattern inside", "write it as {- A+ -}")
        if text.startswith(".") or before == ".":
            return self._error("a pattern names variables, not columns", "DEFINE sets which rows they match")
        if text in ("&", "!", "~"):
            return self._error(f"{shown} is not allowed in a pattern", "put conditions in DEFINE")
        return self._error(
            f"expected a variable, '(', '^', '$', '{{-' or PERMUTE, found {shown}"
            if not text or before in ("", "(", "|", ",")
            else f"{shown} does not belong here",
            "a pattern is made of variables, |, (), ^, $, {- -}, PERMUTE and * + ? {2,3}",
        )


def _require_count(digits: str, span: Span) -> int:
    if len(digits) > 10 or int(digits) > _HIGHEST:
        raise QueryError(f"quantifiers go up to {_HIGHEST:,}", hint="leave out the upper bound, as in {2,}", span=span)
    return int(digits)


def _check_size(term: row_pattern.RowTerm) -> None:
    size = _count_expanded(term)
    if size <= MAX_EXPANDED_VARIABLES:
        return
    culprit = next(
        (
            part
            for part in reversed(list(row_pattern.iterate_terms(term)))
            if isinstance(part, row_pattern.Repetition | row_pattern.Permutation)
            and _count_expanded(part) > MAX_EXPANDED_VARIABLES
        ),
        term,
    )
    raise QueryError(
        f"this pattern expands to {size:,} variables; the limit is {MAX_EXPANDED_VARIABLES:,}",
        hint="use smaller bounds, or none: A{2,} means two or more",
        span=culprit.span,
    )


def _count_expanded(term: row_pattern.RowTerm) -> int:
    """Counts the variables of a term with quantifiers and PERMUTE expanded."""
    match term:
        case row_pattern.RowVariable() | row_pattern.EmptyRowPattern() | row_pattern.PartitionAnchor():
            return 1
        case row_pattern.Concatenation(parts=parts) | row_pattern.Alternation(parts=parts):
            return sum(map(_count_expanded, parts))
        case row_pattern.Permutation(parts=parts):
            return math.factorial(len(parts)) * sum(map(_count_expanded, parts))
        case row_pattern.Repetition(part=part, least=least, most=most):
            return _count_expanded(part) * max(least + 1 if most is None else most, 1)
        case row_pattern.Exclusion(part=part):
            return _count_expanded(part)
