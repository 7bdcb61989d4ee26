"""Parses MATCH_RECOGNIZE clauses: their sections, and the items of each section."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches

from sqlglot import TokenType
from sqlglot.tokenizer_core import Token

from ensue.errors import QueryError, Span
from ensue.ir import row_pattern
from ensue.ir.expression import FieldRef, Literal
from ensue.parser.parameters import NO_PARAMETERS, Parameters
from ensue.parser.sql.navigation import PatternVariables, read_columns, read_constant, read_value
from ensue.parser.sql.row_pattern_parser import parse_row_pattern
from ensue.parser.sql.sql_expressions import SyntaxTree
from ensue.parser.sql.sqlglot_dialect import (
    BRACKETS,
    bind_parameters,
    build_clause_parser,
    build_syntax_error,
    fold_name,
    get_name,
    get_span,
    get_word,
    is_name,
    match_brackets,
    tokenize,
)
from ensue.printing.expression_printer import is_reserved_in_sql

MAX_TEXT_LENGTH = 1_000_000  # characters of a text


@dataclass(frozen=True, slots=True)
class ClauseTokens:
    """The tokens between the parentheses of a clause, and the values of its parameters."""

    text: str  # of the whole statement
    span: Span
    tokens: list[Token]
    parameters: Parameters = NO_PARAMETERS


def parse_clause(text: str, parameters: Parameters = NO_PARAMETERS) -> row_pattern.RowPatternQuery:
    """Parses a text that is only `MATCH_RECOGNIZE ( ... )`, with or without the keyword.

    >>> parse_clause("match_recognize (PATTERN (A) DEFINE A AS TRUE) -- all").variables
    ('A',)
    """
    try:
        if len(text) > MAX_TEXT_LENGTH:
            raise QueryError(f"this text has more than {MAX_TEXT_LENGTH:,} characters")
        tokens = tokenize(text, None)
        pairs = match_brackets(tokens)
        first = 1 if tokens and tokens[0].token_type is TokenType.MATCH_RECOGNIZE else 0
        if len(tokens) <= first or tokens[first].token_type is not TokenType.L_PAREN:
            raise QueryError(
                "expected '(' after MATCH_RECOGNIZE",
                hint="write MATCH_RECOGNIZE (PATTERN (A B+) DEFINE B AS price > PREV(price))",
                span=get_span(tokens[first]) if len(tokens) > first else Span(len(text), len(text)),
            )
        last = pairs[first]
        following = next((t for t in tokens[last + 1 :] if t.token_type is not TokenType.SEMICOLON), None)
        if following is not None:
            raise QueryError(
                f"'{following.text}' follows the clause",
                hint="nothing may follow the parenthesis that closes MATCH_RECOGNIZE",
                span=get_span(following),
            )
        span = Span(tokens[first].end + 1, tokens[last].start)
        return parse_clause_tokens(ClauseTokens(text, span, tokens[first + 1 : last], parameters))
    except QueryError as error:
        raise error.at(None, text) from None


def parse_clause_tokens(body: ClauseTokens, table: str | None = None) -> row_pattern.RowPatternQuery:
    """Parses the body of a clause; `table` is the name of the input table, if it has one.

    Positions in errors and nodes refer to the whole text.
    """
    try:
        return _ClauseReader(body, table).read()
    except QueryError as error:
        raise error.at(None, body.text) from None


# ------------------------------------------------------------------------------ sections

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
    keywords: list[Token]
    inside: list[Token]

    @property
    def span(self) -> Span:
        return _span_tokens([*self.keywords, *self.inside])

    def over(self, text: str) -> str:
        return " ".join(self.span.over(text).split())


def _span_tokens(tokens: Sequence[Token]) -> Span:
    return get_span(tokens[0]).to(get_span(tokens[-1]))


def _iterate_with_depth(tokens: Iterable[Token]) -> Iterator[tuple[Token, int]]:
    """Yields each token with the number of brackets around it."""
    depth = 0
    for token in tokens:
        is_bracket = token.token_type in BRACKETS
        if is_bracket and token.text in ")]}":
            depth -= 1
        yield token, depth
        if is_bracket and token.text in "([{":
            depth += 1


def split_at_commas(tokens: Iterable[Token]) -> list[list[Token]]:
    """Splits tokens at the commas outside of brackets.

    >>> found = split_at_commas(tokenize("a, f(b, c)", None))
    >>> [[token.text for token in item] for item in found]
    [['a'], ['f', '(', 'b', ',', 'c', ')']]
    """
    items: list[list[Token]] = [[]]
    for token, depth in _iterate_with_depth(tokens):
        if token.token_type is TokenType.COMMA and not depth:
            items.append([])
        else:
            items[-1].append(token)
    return items


def split_sections(tokens: Sequence[Token], span: Span) -> dict[str, ClauseSection]:
    """Splits a clause into its sections by name, in the order of the standard.

    >>> text = "MEASURES x AS pattern PATTERN (A) DEFINE A AS define > 3"
    >>> list(split_sections(tokenize(text, None), Span(0, 56)))
    ['MEASURES', 'PATTERN', 'DEFINE']
    """
    if not tokens:
        raise QueryError(
            "MATCH_RECOGNIZE is empty",
            hint="write MATCH_RECOGNIZE (PATTERN (A B+) DEFINE B AS price > PREV(price))",
            span=span,
        )
    sections: dict[str, ClauseSection] = {}
    current: ClauseSection | None = None
    keywords = 0  # that still belong to the current section
    for at, (token, depth) in enumerate(_iterate_with_depth(tokens)):
        if keywords:
            keywords -= 1
            continue
        is_fresh = current is not None and not current.inside
        name, keywords = ("", 0) if depth else _find_section(tokens, at, is_fresh)
        if name:
            if current is not None:
                _require_content(current)
            _refuse_windows(name, token)
            _require_order(name, list(sections), token)
            current = sections[name] = ClauseSection(name, list(tokens[at : at + keywords]), [])
            keywords -= 1
        elif current is None:
            raise QueryError(
                f"'{token.text}' does not start a part of MATCH_RECOGNIZE here",
                hint=suggest_section(token) or f"its parts are {_IN_ORDER}",
                span=get_span(token),
            )
        else:
            current.inside.append(token)
    assert current is not None
    _require_content(current)
    return sections


def _require_content(section: ClauseSection) -> None:
    if not section.inside and section.name != "ROWS":
        raise QueryError(f"{section.name} is empty", hint="leave it out", span=section.span)


def _find_section(tokens: Sequence[Token], at: int, is_fresh: bool) -> tuple[str, int]:
    """Returns the section that begins here and its number of keywords; "" if none does.

    `is_fresh`: the previous section is still empty.
    """
    word = get_word(tokens[at])
    if word not in _BEGINNINGS or (at and not _can_end(tokens, at, is_fresh)):
        return "", 0
    name, lead, follows = _BEGINNINGS[word]
    return (name, lead) if follows(tokens[at + 1 : at + 3]) else ("", 0)


def _can_end(tokens: Sequence[Token], at: int, is_fresh: bool) -> bool:
    """Whether the previous token can end a section: a name, a value, a bracket.

    Any word after AS is a name.
    """
    before = tokens[at - 1]
    if at > 1 and get_word(tokens[at - 2]) == "AS":
        return True
    loose = get_word(tokens[at]) in ("MEASURES", "WITHIN")  # may also be names of columns
    if is_fresh:
        return not loose
    if is_name(before) or before.token_type in (TokenType.STRING, TokenType.NUMBER):
        return get_word(before) not in _OPEN
    return before.text in (")]}" if loose else ")]},")


def _second(*words: str) -> Callable[[Sequence[Token]], bool]:
    return lambda following: bool(following) and get_word(following[0]) in words


def _begins_name(following: Sequence[Token]) -> bool:
    return len(following) > 1 and is_name(following[0])


def _begins_value(following: Sequence[Token]) -> bool:
    if not following or (len(following) > 1 and get_word(following[0]) == "GROUP" and following[1].text == "("):
        return False
    literal = following[0].token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.COLON)
    return is_name(following[0]) or literal


_BEGINNINGS: dict[str, tuple[str, int, Callable[[Sequence[Token]], bool]]] = {
    "PARTITION BY": ("PARTITION BY", 1, lambda _: True),
    "PARTITION": ("PARTITION BY", 2, _second("BY")),  # with a comment between the words
    "ORDER BY": ("ORDER BY", 1, lambda _: True),
    "ORDER": ("ORDER BY", 2, _second("BY")),
    "MEASURES": ("MEASURES", 1, bool),
    "ONE": ("ROWS", 2, _second("ROW")),
    "ALL": ("ROWS", 2, _second("ROWS")),
    "AFTER": ("AFTER MATCH", 2, _second("MATCH")),
    "INITIAL": ("INITIAL", 1, _second("PATTERN")),
    "SEEK": ("SEEK", 1, _second("PATTERN")),
    "PATTERN": ("PATTERN", 1, lambda following: bool(following) and following[0].text == "("),
    "WITHIN": ("WITHIN", 1, _begins_value),
    "SUBSET": ("SUBSET", 1, lambda following: _begins_name(following) and following[1].text == "="),
    "DEFINE": ("DEFINE", 1, lambda following: _begins_name(following) and get_word(following[1]) == "AS"),
}


def _refuse_windows(name: str, token: Token) -> None:
    if name in ("INITIAL", "SEEK"):
        raise QueryError(
            f"{name} belongs to row patterns in windows (OVER), which look for one match",
            hint="leave it out: MATCH_RECOGNIZE in FROM finds all matches",
            span=get_span(token),
        )


def _require_order(name: str, before: Sequence[str], token: Token) -> None:
    if name in before:
        raise QueryError(
            f"{_SHOWN.get(name, name)} is given twice",
            hint="join the two" if name not in ("ROWS", "PATTERN") else "leave one out",
            span=get_span(token),
        )
    later = next((other for other in before if SECTION_ORDER.index(other) > SECTION_ORDER.index(name)), None)
    if later is not None:
        raise QueryError(
            f"{_SHOWN.get(name, name)} belongs before {_SHOWN.get(later, later)}",
            hint=f"the order is {_IN_ORDER}",
            span=get_span(token),
        )


def suggest_section(token: Token) -> str | None:
    """Returns a hint for a word that resembles the keyword of a section."""
    word = get_word(token)
    if word in _FORMS:
        return _FORMS[word]
    near = get_close_matches(word, _BEGINNINGS, n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else None


# ------------------------------------------------------------------------------ the clause


class _ClauseReader:
    """Reads the sections of a clause."""

    def __init__(self, body: ClauseTokens, table: str | None) -> None:
        self.table = table
        self.body = body
        self.sections = split_sections(body.tokens, body.span)
        self.parser = build_clause_parser()

    def read(self) -> row_pattern.RowPatternQuery:
        pattern = self._pattern(self._require_section("PATTERN"))
        variables = row_pattern.collect_variables(pattern)
        subsets = self._subsets(variables)
        names = PatternVariables(variables, dict(subsets))
        rows = self._rows(pattern)
        return row_pattern.RowPatternQuery(
            pattern,
            tuple(map(self._key, self._items("PARTITION BY"))),
            tuple(map(self._parse_sort_key, self._items("ORDER BY"))),
            self._measures(names),
            rows,
            self._skip(names),
            subsets,
            self._defines(names),
            self._within(),
            self.body.text,
            self.body.span,
        )

    def _require_section(self, name: str) -> ClauseSection:
        if name in self.sections:
            return self.sections[name]
        candidates = (
            (token, suggest_section(token))
            for token, depth in _iterate_with_depth(self.body.tokens)
            if not depth and get_close_matches(get_word(token), [name], cutoff=0.75)
        )
        token, hint = next(candidates, (None, "as in PATTERN (A B+) DEFINE B AS price > PREV(price)"))
        end = Span(self.body.span.end, self.body.span.end)
        raise QueryError(f"{name} is missing", hint=hint, span=get_span(token) if token else end)

    def _items(self, name: str) -> Iterator[list[Token]]:
        section = self.sections.get(name)
        if section is None:
            return
        for item in split_at_commas(section.inside):
            if not item:
                raise QueryError(
                    f"something is missing in {name}",
                    hint="separate parts with one comma, without one at the end",
                    span=section.span,
                )
            yield item

    def _parse_operand(self, tokens: Sequence[Token]) -> tuple[SyntaxTree, Sequence[Token]]:
        """Parses the expression at the start of some tokens, and returns the tokens after it."""
        tree, rest = self.parser.parse_operand(tokens)
        span = _span_tokens(tokens[: len(tokens) - len(rest)])
        return SyntaxTree(bind_parameters(tree, self.body.parameters), span), rest

    def _parse_whole(self, tokens: Sequence[Token]) -> SyntaxTree:
        tree, rest = self._parse_operand(tokens)
        if rest:
            raise build_syntax_error(rest[0])
        return tree

    def _parse_named(self, tokens: Sequence[Token]) -> tuple[SyntaxTree, Token | None]:
        """Parses an expression and its name; AS is optional, as in SELECT."""
        tree, rest = self._parse_operand(tokens)
        if not rest:
            return tree, None
        has_as = get_word(rest[0]) == "AS"
        name = rest[-1]
        if len(rest) != 1 + has_as or not is_name(name) or (not has_as and is_reserved_in_sql(get_word(name))):
            raise build_syntax_error(rest[0])
        return tree, name

    def _key(self, item: list[Token]) -> row_pattern.PartitionKey:
        span = _span_tokens(item)
        tree, alias = self._parse_named(item)
        expr = read_columns(tree, "PARTITION BY", self.table)
        if alias is not None:
            return row_pattern.PartitionKey(expr, get_name(alias), span)
        if isinstance(expr, FieldRef) and expr.name is not None:
            return row_pattern.PartitionKey(expr, expr.name, span)
        return row_pattern.PartitionKey(expr, " ".join(span.over(self.body.text).split()), span)

    def _parse_sort_key(self, item: list[Token]) -> row_pattern.RowSortKey:
        tree, rest = self._parse_operand(item)
        words = [get_word(token) for token in rest]
        nulls_first = descending = False
        if words[-2:] in (["NULLS", "FIRST"], ["NULLS", "LAST"]):
            nulls_first = words[-1] == "FIRST"
            del words[-2:]
        if words and words[-1] in ("ASC", "DESC"):
            descending = words.pop() == "DESC"
        if words:
            raise build_syntax_error(rest[0])
        return row_pattern.RowSortKey(
            read_columns(tree, "ORDER BY", self.table), descending, nulls_first, _span_tokens(item)
        )

    def _measures(self, names: PatternVariables) -> tuple[row_pattern.Measure, ...]:
        measures: list[row_pattern.Measure] = []
        taken: set[str] = set()
        for item in self._items("MEASURES"):
            span = _span_tokens(item)
            tree, alias = self._parse_named(item)
            if alias is None:
                raise QueryError("a measure needs a name", hint="give it one: MEASURES A.price AS low", span=span)
            name = get_name(alias)
            if not {name, name.lower()}.isdisjoint(taken):
                raise QueryError(
                    f"there are two measures called '{name}'",
                    hint="give one of them another name",
                    span=get_span(alias),
                )
            taken |= {name} if alias.token_type is TokenType.IDENTIFIER else {name, name.lower()}
            measures.append(row_pattern.Measure(read_value(tree, names, define=False), name, span))
        return tuple(measures)

    def _rows(self, pattern: row_pattern.RowTerm) -> row_pattern.RowsPerMatch:
        section = self.sections.get("ROWS")
        if section is None:
            return row_pattern.RowsPerMatch.ONE
        words = " ".join(token.text.upper() for token in [*section.keywords, *section.inside])
        if words == "ALL ROWS PER MATCH":
            return row_pattern.RowsPerMatch.ALL
        rows = next((rows for rows in row_pattern.RowsPerMatch if rows.value == words), None)
        if rows is None:
            raise QueryError(
                f"'{section.over(self.body.text)}' is not valid here",
                hint="write ONE ROW PER MATCH or ALL ROWS PER MATCH, the latter optionally with "
                "SHOW EMPTY MATCHES, OMIT EMPTY MATCHES or WITH UNMATCHED ROWS",
                span=section.span,
            )
        if rows is row_pattern.RowsPerMatch.ALL_AND_UNMATCHED:
            for term in row_pattern.iterate_terms(pattern):
                if isinstance(term, row_pattern.Exclusion):
                    raise QueryError(
                        "{- -} cannot be combined with WITH UNMATCHED ROWS: excluded rows "
                        "could not be told from rows without a match",
                        hint="leave out WITH UNMATCHED ROWS, or the {- -}",
                        span=term.span,
                    )
        return rows

    def _skip(self, names: PatternVariables) -> row_pattern.RowSkip:
        section = self.sections.get("AFTER MATCH")
        if section is None:
            return row_pattern.RowSkip()
        words = [get_word(token) for token in section.inside]
        match words:
            case ["SKIP", "PAST", "LAST", "ROW"]:
                return row_pattern.RowSkip(span=section.span)
            case ["SKIP", "TO", "NEXT", "ROW"]:
                return row_pattern.RowSkip(row_pattern.RowSkipTarget.NEXT, span=section.span)
            case ["SKIP", "TO", "FIRST", _]:
                return self._skip_to(row_pattern.RowSkipTarget.FIRST, section, names)
            case ["SKIP", "TO", "LAST", _] | ["SKIP", "TO", _]:
                return self._skip_to(row_pattern.RowSkipTarget.LAST, section, names)
            case _:
                raise QueryError(
                    f"'{section.over(self.body.text)}' is not valid here",
                    hint="write AFTER MATCH SKIP PAST LAST ROW, TO NEXT ROW, TO FIRST A, TO LAST A or TO A",
                    span=section.span,
                )

    def _skip_to(
        self, to: row_pattern.RowSkipTarget, section: ClauseSection, names: PatternVariables
    ) -> row_pattern.RowSkip:
        name = section.inside[-1]
        if not is_name(name):
            raise QueryError("expected a variable", hint="as in AFTER MATCH SKIP TO LAST A", span=get_span(name))
        members = names.members(fold_name(name), get_span(name))
        return row_pattern.RowSkip(to, fold_name(name), members, section.span)

    def _pattern(self, section: ClauseSection) -> row_pattern.RowTerm:
        close = match_brackets(section.inside)[0]
        for token in section.inside[close + 1 :]:
            raise QueryError(
                f"'{token.text}' cannot follow the pattern here",
                hint=suggest_section(token) or "WITHIN, SUBSET or DEFINE follow; quantifiers go inside",
                span=get_span(token),
            )
        end = get_span(section.inside[close])
        return parse_row_pattern(section.inside[1:close], end, self.body.text, self.body.parameters)

    def _within(self) -> timedelta | int | float | None:
        section = self.sections.get("WITHIN")
        if section is None:
            return None
        match read_constant(self._parse_whole(section.inside)):
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

    def _subsets(self, variables: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        subsets: dict[str, tuple[str, ...]] = {}
        for item in self._items("SUBSET"):
            name, members = _split_subset(item)
            subset, span = fold_name(name), get_span(name)
            if subset in variables:
                raise QueryError(
                    f"'{subset}' is a variable of the pattern", hint="give the SUBSET another name", span=span
                )
            if subset in subsets:
                raise QueryError(f"there are two SUBSETs '{subset}'", hint="give one of them another name", span=span)
            folded = {fold_name(member): get_span(member) for member in members}
            for member, span in folded.items():
                if member in (*subsets, subset):
                    raise QueryError(f"'{member}' is a SUBSET itself", hint="list the variables in it", span=span)
                PatternVariables(variables, {}).members(member, span)
            subsets[subset] = tuple(v for v in variables if v in folded)
        return tuple(subsets.items())

    def _defines(self, names: PatternVariables) -> tuple[row_pattern.Define, ...]:
        defines: list[row_pattern.Define] = []
        if not names.variables:
            return ()  # an empty pattern has no variables
        self._require_section("DEFINE")
        for item in self._items("DEFINE"):
            if not is_name(item[0]) or len(item) < 3 or get_word(item[1]) != "AS":
                raise QueryError(
                    "a definition is a variable and its condition",
                    hint="as in DEFINE B AS B.price > PREV(B.price)",
                    span=_span_tokens(item),
                )
            name, span = fold_name(item[0]), get_span(item[0])
            if name in names.subsets:
                raise QueryError(
                    f"'{name}' is a SUBSET, and cannot have a condition", hint="define the variables in it", span=span
                )
            names.members(name, span)
            if any(define.variable == name for define in defines):
                raise QueryError(f"'{name}' is defined twice", hint="join the conditions with AND", span=span)
            value = read_value(self._parse_whole(item[2:]), names, define=True)
            defines.append(row_pattern.Define(name, value, _span_tokens(item)))
        return tuple(defines)


def _split_subset(item: list[Token]) -> tuple[Token, list[Token]]:
    """Returns the name of a SUBSET, and its variables."""
    texts = [token.text for token in item]
    if not is_name(item[0]) or texts[1:3] != ["=", "("] or texts[-1] != ")":
        raise QueryError(
            "a SUBSET is a name and its variables", hint="as in SUBSET U = (A, B)", span=_span_tokens(item)
        )
    members = split_at_commas(item[3:-1])
    if any(len(member) != 1 or not is_name(member[0]) for member in members):
        raise QueryError("a SUBSET lists variables", hint="as in SUBSET U = (A, B)", span=_span_tokens(item[2:]))
    return item[0], [member[0] for member in members]
