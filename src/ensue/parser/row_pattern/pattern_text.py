"""Parses the text of PATTERN to row terms."""

import math
import re
from dataclasses import dataclass
from functools import cache

from lark import Lark, Token, UnexpectedInput

from ensue.errors import QueryError, Span
from ensue.ir.row_pattern import (
    Alternation,
    Concatenation,
    EmptyRowPattern,
    Exclusion,
    PartitionAnchor,
    Permutation,
    Repetition,
    RowTerm,
    RowVariable,
    iterate_terms,
)
from ensue.parser.expressions import Node, get_children, get_span, unquote_name
from ensue.parser.grammar import ParameterPostLex, load_grammar, parse_tree
from ensue.parser.parameters import NO_PARAMETERS, Parameters
from ensue.parser.syntax_errors import find_error_start, get_tail

MAX_PATTERN_DEPTH = 50  # nested parentheses
MAX_EXPANDED_VARIABLES = 20_000  # variables, with quantifiers and PERMUTE expanded
MAX_PERMUTED = 6
_HIGHEST = 1_000_000_000  # of a quantifier
_QUANTIFIERS = ("*", "+", "?", "{")
_PIECE = re.compile(r":?[^\W\d]\w*|[0-9]+|\|\||[\s\S]")


def read_pattern(text: str, start: int, stop: int, parameters: Parameters = NO_PARAMETERS) -> RowTerm:
    """Parses `text[start:stop]`, the text between the parentheses of PATTERN.

    >>> read_pattern("A|B", 0, 3) == Alternation((RowVariable("A"), RowVariable("B")))
    True
    """
    try:
        tree = parse_tree(_grammar(), text[start:stop], "start", parameters)
    except UnexpectedInput as error:
        raise _syntax_error(error, text, start, stop) from None
    except QueryError as error:  # of a parameter
        if error.span is not None:
            error.span = Span(error.span.start + start, error.span.end + start)
        raise
    term = _TermBuilder(start).term(get_children(tree)[0], 0)
    _check_size(term)
    return term


@cache
def _grammar() -> Lark:
    return load_grammar("ensue.parser.row_pattern", "pattern.lark", postlex=ParameterPostLex())


@dataclass(frozen=True, slots=True)
class _TermBuilder:
    """Transforms the syntax tree of a text that begins at `offset` of a longer one."""

    offset: int

    def span(self, node: Node | Token) -> Span:
        span = get_span(node)
        return Span(span.start + self.offset, span.end + self.offset)

    def term(self, node: Node, depth: int) -> RowTerm:
        span = self.span(node)
        if depth > MAX_PATTERN_DEPTH:
            raise QueryError(
                f"parentheses are nested more than {MAX_PATTERN_DEPTH} deep",
                hint="leave out unnecessary ones",
                span=span,
            )
        match node.data, get_children(node):
            case "row", [name]:
                return RowVariable(self._variable(name), span)
            case "nothing", _:
                return EmptyRowPattern(span)
            case "start_anchor", _:
                return PartitionAnchor("start", span)
            case "end_anchor", _:
                return PartitionAnchor("end", span)
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
            return unquote_name(name) if name.type == "QUOTED" else name.upper()
        except QueryError as error:
            error.span = self.span(name)
            raise

    def _permutation(self, parts: list[Node], depth: int, span: Span) -> RowTerm:
        if len(parts) > MAX_PERMUTED:
            raise QueryError(
                f"PERMUTE takes at most {MAX_PERMUTED} parts: {len(parts)} of them have "
                f"{math.factorial(len(parts)):,} orders",
                hint="write out the orders that matter, joined with |",
                span=span,
            )
        return Permutation(self._terms(parts, depth), span)

    def _bounds(self, quantifier: Node) -> tuple[int, int | None]:
        (bounds,) = get_children(quantifier)
        if isinstance(bounds, Token):
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[str(bounds)]
        span = self.span(quantifier)
        low, comma, high = get_children(bounds)
        if low is None and comma is None:
            raise QueryError("this quantifier has no number", hint="write {2}, {2,}, {,3} or {2,3}", span=span)
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
            raise QueryError("a quantifier takes whole numbers", hint="as in {2,3}", span=self.span(digits))
        if len(digits) > 10 or int(digits) > _HIGHEST:
            raise QueryError(
                f"quantifiers go up to {_HIGHEST:,}",
                hint="leave out the upper bound, as in {2,}",
                span=self.span(digits),
            )
        return int(digits)


def _check_size(term: RowTerm) -> None:
    size = _count_expanded(term)
    if size <= MAX_EXPANDED_VARIABLES:
        return
    culprit = next(
        (
            part
            for part in reversed(list(iterate_terms(term)))
            if isinstance(part, Repetition | Permutation) and _count_expanded(part) > MAX_EXPANDED_VARIABLES
        ),
        term,
    )
    raise QueryError(
        f"this pattern expands to {size:,} variables; the limit is {MAX_EXPANDED_VARIABLES:,}",
        hint="use smaller bounds, or none: A{2,} means two or more",
        span=culprit.span,
    )


def _count_expanded(term: RowTerm) -> int:
    """Counts the variables of a term with quantifiers and PERMUTE expanded."""
    match term:
        case RowVariable() | EmptyRowPattern() | PartitionAnchor():
            return 1
        case Concatenation(parts=parts) | Alternation(parts=parts):
            return sum(map(_count_expanded, parts))
        case Permutation(parts=parts):
            return math.factorial(len(parts)) * sum(map(_count_expanded, parts))
        case Repetition(part=part, least=least, most=most):
            return _count_expanded(part) * max(least + 1 if most is None else most, 1)
        case Exclusion(part=part):
            return _count_expanded(part)


def _syntax_error(error: UnexpectedInput, text: str, start: int, stop: int) -> QueryError:
    """Converts an error of the parser to one that names the problem and a fix."""
    pattern = text[start:stop].rstrip()
    at = find_error_start(error, pattern)
    piece = _PIECE.match(pattern, at)
    found = piece[0] if piece else ""
    before = re.sub(r"--[^\n]*|/\*[\s\S]*?\*/", " ", pattern[:at]).rstrip()
    at += start
    problem, hint = _describe_error(before, found)
    return QueryError(problem, hint=hint, span=Span(at, at + max(len(found), 1)))


def _describe_error(before: str, found: str) -> tuple[str, str | None]:
    shown = f"'{found}'" if found else "the end"
    if found.startswith(":"):
        return (f"the value of {found} is not a whole number", "a quantifier takes whole numbers: A{:least,}")
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
    if re.search(r"\{\s*(?:[0-9][^}]*|,[^}]*|)$", get_tail(before)):
        return "this is not a quantifier", "quantifiers are * + ? {2} {2,} {,3} and {2,3}"
    if found == ",":
        return "variables are not separated by ','", "write A B for one after the other"
    if found in ("-", "}") and "{-" in before:
        return "an exclusion needs a pattern inside", "write it as {- A+ -}"
    if found == "." or (found and before.endswith(".")):
        return "a pattern names variables, not columns", "DEFINE sets which rows they match"
    if found in ("&", "!", "~"):
        return f"{shown} is not allowed in a pattern", "put conditions in DEFINE"
    return (
        f"expected a variable, '(', '^', '$', '{{-' or PERMUTE, found {shown}"
        if not found or not before or before[-1] in "(|,"
        else f"{shown} does not belong here",
        "a pattern is made of variables, |, (), ^, $, {- -}, PERMUTE and * + ? {2,3}",
    )
