"""Parses MATCH_RECOGNIZE clauses."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from difflib import get_close_matches
from types import ModuleType

from ensue.errors import QueryError, Span
from ensue.ir.expression import FieldRef, Literal
from ensue.ir.row_pattern import (
    Define,
    Exclusion,
    Measure,
    PartitionKey,
    RowPatternQuery,
    RowSkip,
    RowSkipTarget,
    RowSortKey,
    RowsPerMatch,
    RowTerm,
    collect_variables,
    iterate_terms,
)
from ensue.optional_deps import require_extra
from ensue.parser.parameters import NO_PARAMETERS, Parameters
from ensue.parser.row_pattern.clause_splitter import (
    ClauseSection,
    ClauseToken,
    ClauseTokens,
    PatternVariables,
    split_at_commas,
    split_sections,
    suggest_section,
    tokenize_clause,
)
from ensue.parser.row_pattern.pattern_text import read_pattern
from ensue.printing.expression_printer import is_reserved_in_sql

MAX_TEXT_LENGTH = 1_000_000  # characters of a text
_VALUES = ("END", "FALSE", "NULL", "TRUE", "UNKNOWN")  # reserved words that end a value
_OPERATORS = ("COLLATE", "TO", "ZONE")  # unreserved words that a value follows


def read_clause(
    text: str, start: int, stop: int, table: str | None = None, parameters: Parameters = NO_PARAMETERS
) -> RowPatternQuery:
    """Parses the text between the parentheses of MATCH_RECOGNIZE ( ... ): `text[start:stop]`.

    Positions in errors and nodes refer to the whole text. `table` is the name of the input table,
    if it has one.

    >>> found = read_clause("PATTERN (A B+) DEFINE B AS price > PREV(price)", 0, 46)
    >>> found.variables, [define.variable for define in found.defines]
    (('A', 'B'), ['B'])
    """
    try:
        tokens = tokenize_clause(text, start, stop, parameters)
        return _ClauseParser(tokens, Span(start, stop), table).parse()
    except QueryError as error:
        raise error.at(None, text) from None


def read_clause_text(text: str, parameters: Parameters = NO_PARAMETERS) -> RowPatternQuery:
    """Parses a text that is only `MATCH_RECOGNIZE ( ... )`, with or without the keyword.

    >>> read_clause_text("match_recognize (PATTERN (A) DEFINE A AS TRUE) -- all").variables
    ('A',)
    """
    try:
        if len(text) > MAX_TEXT_LENGTH:
            raise QueryError(f"this text has more than {MAX_TEXT_LENGTH:,} characters")
        tokens = tokenize_clause(text, 0, len(text), parameters)
        items = list(tokens.all)
        if items and items[0].word == "MATCH_RECOGNIZE":
            del items[0]
        if not items or items[0].text != "(":
            raise QueryError(
                "expected '(' after MATCH_RECOGNIZE",
                hint="write MATCH_RECOGNIZE (PATTERN (A B+) DEFINE B AS price > PREV(price))",
                span=items[0].span if items else Span(len(text), len(text)),
            )
        closed = tokens.closing[items[0].start]
        following = next((token for token in items if token.start > closed and token.text != ";"), None)
        if following is not None:
            raise QueryError(
                f"'{following.text}' follows the clause",
                hint="nothing may follow the parenthesis that closes MATCH_RECOGNIZE",
                span=following.span,
            )
        inner_items = [token for token in items if items[0].start < token.start < closed]
        shifted = tuple(t._replace(depth=t.depth - 1) for t in inner_items)
        inner = ClauseTokens(text, shifted, tokens.closing, parameters)
        return _ClauseParser(inner, Span(items[0].end, closed), None).parse()
    except QueryError as error:
        raise error.at(None, text) from None


def _expressions() -> ModuleType:
    """Imports the parser of expressions, which needs sqlglot."""
    with require_extra("MATCH_RECOGNIZE", "sql"):
        from ensue.parser.row_pattern import navigation
    return navigation


class _ClauseParser:
    """Parses the sections of a clause."""

    def __init__(self, tokens: ClauseTokens, span: Span, table: str | None) -> None:
        self.table = table
        self.tokens = tokens
        self.span = span
        self.sections = split_sections(tokens, span)
        self.expressions = _expressions()

    def parse(self) -> RowPatternQuery:
        pattern = self._pattern(self._require_section("PATTERN"))
        variables = collect_variables(pattern)
        subsets = self._subsets(variables)
        names = PatternVariables(variables, dict(subsets))
        rows = self._rows(pattern)
        return RowPatternQuery(
            pattern,
            tuple(map(self._key, self._items("PARTITION BY"))),
            tuple(map(self._parse_sort_key, self._items("ORDER BY"))),
            self._measures(names),
            rows,
            self._skip(names),
            subsets,
            self._defines(names),
            self._within(),
            self.tokens.text,
            self.span,
        )

    def _require_section(self, name: str) -> ClauseSection:
        if name in self.sections:
            return self.sections[name]
        candidates = (
            (token, suggest_section(token))
            for token in self.tokens.all
            if not token.depth and get_close_matches(token.word, [name], cutoff=0.75)
        )
        token, hint = next(candidates, (None, "as in PATTERN (A B+) DEFINE B AS price > PREV(price)"))
        end = Span(self.span.end, self.span.end)
        raise QueryError(f"{name} is missing", hint=hint, span=token.span if token else end)

    def _items(self, name: str) -> Iterable[list[ClauseToken]]:
        section = self.sections.get(name)
        if section is None:
            return
        for item in split_at_commas(section.inside, 0):
            if not item:
                raise QueryError(
                    f"something is missing in {name}",
                    hint="separate parts with one comma, without one at the end",
                    span=section.span,
                )
            yield item

    def _key(self, item: list[ClauseToken]) -> PartitionKey:
        span = item[0].span.to(item[-1].span)
        item, alias = _split_alias(item)
        expr = self.expressions.read_columns(self.tokens, item, "PARTITION BY", self.table)
        if alias is not None:
            return PartitionKey(expr, alias.name, span)
        if isinstance(expr, FieldRef) and expr.name is not None:
            return PartitionKey(expr, expr.name, span)
        return PartitionKey(expr, " ".join(span.over(self.tokens.text).split()), span)

    def _parse_sort_key(self, item: list[ClauseToken]) -> RowSortKey:
        span = item[0].span.to(item[-1].span)
        words = [token.word for token in item]
        nulls_first = descending = False
        if words[-2:] in (["NULLS", "FIRST"], ["NULLS", "LAST"]) and len(words) > 2:
            nulls_first = words[-1] == "FIRST"
            del words[-2:]
        if words[-1] in ("ASC", "DESC") and len(words) > 1:
            descending = words.pop() == "DESC"
        expr = self.expressions.read_columns(self.tokens, item[: len(words)], "ORDER BY", self.table)
        return RowSortKey(expr, descending, nulls_first, span)

    def _measures(self, names: PatternVariables) -> tuple[Measure, ...]:
        measures: list[Measure] = []
        taken: set[str] = set()
        for item in self._items("MEASURES"):
            span = item[0].span.to(item[-1].span)
            item, alias = _split_alias(item)
            if alias is None:
                raise QueryError("a measure needs a name", hint="give it one: MEASURES A.price AS low", span=span)
            if not {alias.name, alias.name.lower()}.isdisjoint(taken):
                raise QueryError(
                    f"there are two measures called '{alias.name}'",
                    hint="give one of them another name",
                    span=alias.span,
                )
            taken |= {alias.name} if alias.kind == "quoted" else {alias.name, alias.name.lower()}
            value = self.expressions.read_value(self.tokens, item, names, define=False)
            measures.append(Measure(value, alias.name, span))
        return tuple(measures)

    def _rows(self, pattern: RowTerm) -> RowsPerMatch:
        section = self.sections.get("ROWS")
        if section is None:
            return RowsPerMatch.ONE
        words = " ".join(token.text.upper() for token in section.all)
        if words == "ALL ROWS PER MATCH":
            return RowsPerMatch.ALL
        rows = next((rows for rows in RowsPerMatch if rows.value == words), None)
        if rows is None:
            raise QueryError(
                f"'{section.over(self.tokens.text)}' is not valid here",
                hint="write ONE ROW PER MATCH or ALL ROWS PER MATCH, the latter optionally with "
                "SHOW EMPTY MATCHES, OMIT EMPTY MATCHES or WITH UNMATCHED ROWS",
                span=section.span,
            )
        if rows is RowsPerMatch.ALL_AND_UNMATCHED:
            for term in iterate_terms(pattern):
                if isinstance(term, Exclusion):
                    raise QueryError(
                        "{- -} cannot be combined with WITH UNMATCHED ROWS: excluded rows "
                        "could not be told from rows without a match",
                        hint="leave out WITH UNMATCHED ROWS, or the {- -}",
                        span=term.span,
                    )
        return rows

    def _skip(self, names: PatternVariables) -> RowSkip:
        section = self.sections.get("AFTER MATCH")
        if section is None:
            return RowSkip()
        words = [token.word for token in section.inside]
        match words:
            case ["SKIP", "PAST", "LAST", "ROW"]:
                return RowSkip(span=section.span)
            case ["SKIP", "TO", "NEXT", "ROW"]:
                return RowSkip(RowSkipTarget.NEXT, span=section.span)
            case ["SKIP", "TO", "FIRST", _]:
                return self._skip_to(RowSkipTarget.FIRST, section, names)
            case ["SKIP", "TO", "LAST", _] | ["SKIP", "TO", _]:
                return self._skip_to(RowSkipTarget.LAST, section, names)
            case _:
                raise QueryError(
                    f"'{section.over(self.tokens.text)}' is not valid here",
                    hint="write AFTER MATCH SKIP PAST LAST ROW, TO NEXT ROW, TO FIRST A, TO LAST A or TO A",
                    span=section.span,
                )

    def _skip_to(self, to: RowSkipTarget, section: ClauseSection, names: PatternVariables) -> RowSkip:
        name = section.inside[-1]
        if not name.names:
            raise QueryError("expected a variable", hint="as in AFTER MATCH SKIP TO LAST A", span=name.span)
        members = names.members(name.folded, name.span)
        return RowSkip(to, name.folded, members, section.span)

    def _pattern(self, section: ClauseSection) -> RowTerm:
        opened = section.inside[0]
        closed = self.tokens.closing[opened.start]
        for token in section.inside:
            if token.start > closed:
                raise QueryError(
                    f"'{token.text}' cannot follow the pattern here",
                    hint=suggest_section(token) or "WITHIN, SUBSET or DEFINE follow; quantifiers go inside",
                    span=token.span,
                )
        return read_pattern(self.tokens.text, opened.end, closed, self.tokens.parameters)

    def _within(self) -> timedelta | int | float | None:
        section = self.sections.get("WITHIN")
        if section is None:
            return None
        length_ = self.expressions.read_constant(self.tokens, section.inside) if section.inside else None
        match length_:
            case Literal(value=timedelta() as length) if length > timedelta(0):
                return length
            case Literal(value=int() | float() as amount) if amount is not True and amount > 0:
                return amount
            case _:
                raise QueryError(
                    "WITHIN needs a positive length of time",
                    hint="as in WITHIN INTERVAL '5' MINUTE; or a number, if rows are ordered by numbers",
                    span=section.span,
                )

    def _subsets(self, variables: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        subsets: dict[str, tuple[str, ...]] = {}
        for item in self._subset_items():
            name, members = item[0], _subset_members(item)
            if name.folded in variables:
                raise QueryError(
                    f"'{name.folded}' is a variable of the pattern", hint="give the SUBSET another name", span=name.span
                )
            if name.folded in subsets:
                raise QueryError(
                    f"there are two SUBSETs '{name.folded}'", hint="give one of them another name", span=name.span
                )
            for member in members:
                if member.folded in (*subsets, name.folded):
                    raise QueryError(
                        f"'{member.folded}' is a SUBSET itself", hint="list the variables in it", span=member.span
                    )
                PatternVariables(tuple(variables), {}).members(member.folded, member.span)
            folded = {member.folded for member in members}
            subsets[name.folded] = tuple(v for v in variables if v in folded)
        return tuple(subsets.items())

    def _subset_items(self) -> Iterable[list[ClauseToken]]:
        for item in self._items("SUBSET"):
            texts = [token.text for token in item]
            if not item[0].names or texts[1:3] != ["=", "("] or texts[-1] != ")":
                raise QueryError(
                    "a SUBSET is a name and its variables",
                    hint="as in SUBSET U = (A, B)",
                    span=item[0].span.to(item[-1].span),
                )
            yield item

    def _defines(self, names: PatternVariables) -> tuple[Define, ...]:
        defines: list[Define] = []
        if not names.variables:
            return ()  # an empty pattern has no variables
        self._require_section("DEFINE")
        for item in self._items("DEFINE"):
            span = item[0].span.to(item[-1].span)
            name = item[0]
            if not name.names or len(item) < 3 or item[1].word != "AS":
                raise QueryError(
                    "a definition is a variable and its condition",
                    hint="as in DEFINE B AS B.price > PREV(B.price)",
                    span=span,
                )
            if name.folded in names.subsets:
                raise QueryError(
                    f"'{name.folded}' is a SUBSET, and cannot have a condition",
                    hint="define the variables in it",
                    span=name.span,
                )
            names.members(name.folded, name.span)
            if any(define.variable == name.folded for define in defines):
                raise QueryError(
                    f"'{name.folded}' is defined twice", hint="join the conditions with AND", span=name.span
                )
            value = self.expressions.read_value(self.tokens, item[2:], names, define=True)
            defines.append(Define(name.folded, value, span))
        return tuple(defines)


def _split_alias(item: list[ClauseToken]) -> tuple[list[ClauseToken], ClauseToken | None]:
    """Splits an expression and its name; AS is optional, as in SELECT."""
    if len(item) > 2 and item[-2].word == "AS" and item[-1].names and item[-2].depth == 0:
        return item[:-2], item[-1]
    if len(item) > 1 and item[-1].names and not is_reserved_in_sql(item[-1].word):
        before = item[-2]
        operand = before.word and is_reserved_in_sql(before.word) and before.word not in _VALUES
        unit = any(token.word == "INTERVAL" for token in item if token.depth == item[-1].depth)
        ended = before.kind != "sign" or before.text in ")]"
        if ended and not operand and before.word not in _OPERATORS and not unit:
            return item[:-1], item[-1]
    return item, None


def _subset_members(item: list[ClauseToken]) -> list[ClauseToken]:
    members = split_at_commas(item[3:-1], item[2].depth + 1)
    if any(len(member) != 1 or not member[0].names for member in members):
        raise QueryError(
            "a SUBSET lists variables", hint="as in SUBSET U = (A, B)", span=item[2].span.to(item[-1].span)
        )
    return [member[0] for member in members]
