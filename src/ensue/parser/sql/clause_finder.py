"""Finds MATCH_RECOGNIZE clauses in a SQL query, and the table that each of them reads."""

import re
from dataclasses import dataclass

from ensue.errors import QueryError, Span
from ensue.parser.parameters import NO_PARAMETERS, Parameters
from ensue.parser.sql.sql_query import MatchClause, NamedQuery, SqlQuery, WithClause, find_parameters
from ensue.parser.sql.sql_tokens import KEYWORD, Dialect, SqlToken, TokenKind, tokenize_sql

_QUERIES = {"SELECT", "WITH", "FROM", "VALUES", "TABLE"}
_WRITES = {"INTO", "OVERWRITE"}
_BEFORE_TABLE = {"FROM", "JOIN"}
_NOT_A_TABLE_LIST = {
    "SELECT", "WHERE", "HAVING", "GROUP", "ORDER", "QUALIFY", "LIMIT", "WINDOW", "WITH",
}  # fmt: skip
# Words that end a table with its alias, so that no clause can follow.
_NO_PART_OF_A_TABLE = _NOT_A_TABLE_LIST | {
    "AND", "ANY", "ASC", "BETWEEN", "CASE", "CROSS", "DESC", "DISTINCT", "ELSE", "END", "EXCEPT",
    "EXISTS", "FULL", "IN", "INNER", "INTERSECT", "IS", "LEFT", "LIKE", "NATURAL", "NOT", "OFFSET",
    "ON", "OR", "RIGHT", "THEN", "UNION", "USING", "WHEN",
}  # fmt: skip
_NO_ALIAS = _NO_PART_OF_A_TABLE | _BEFORE_TABLE | {
    "ANTI", "ASOF", "CLUSTER", "DISTRIBUTE", "FETCH", "FOR", "LATERAL", "MINUS", "PIVOT",
    "POSITIONAL", "SAMPLE", "SEMI", "SORT", "TABLESAMPLE", "UNPIVOT", "SET", KEYWORD,
}  # fmt: skip
_TABLE_MARKS = {".", ":", "%"}
INPUT_SCOPE_HINT = "the input of MATCH_RECOGNIZE runs separately: it cannot refer to tables outside of it"
_CLAUSE_FUNCTIONS = {"MATCH_NUMBER": "", "CLASSIFIER": "", "PREV": "A.x", "NEXT": "A.x"}
_POSITION_HINT = "it follows a table: FROM events MATCH_RECOGNIZE (...)"
_LOOKS_LIKE_ONE = re.compile(rf"(?is)\W*(?:{'|'.join(_QUERIES)})\b.*\b{KEYWORD}\b")


def claims_sql(text: str) -> bool:
    """Whether a text is a SQL query with a MATCH_RECOGNIZE clause inside.

    >>> claims_sql("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS true)")
    True
    >>> claims_sql("SEQ(A a, B b) WHERE a.name = 'MATCH_RECOGNIZE'"), claims_sql("SELECT 1")
    (False, False)
    """
    try:
        tokens, _ = tokenize_sql(text)
    except QueryError:  # invalid, or in Spark's syntax: decide by its words
        return _LOOKS_LIKE_ONE.match(text) is not None
    first = next((token.word for token in tokens if token.word != "("), "")
    return first in _QUERIES and any(token.word == KEYWORD for token in tokens)


def explain_clause_function(name: str) -> tuple[str, str] | None:
    """Explains why a function of clauses fails outside of them, with a hint; None for others.

    >>> print(*explain_clause_function("prev"), sep="; ")
    PREV() only works inside MATCH_RECOGNIZE; make it a measure: MEASURES PREV(A.x) AS n
    """
    name = name.upper()
    if name not in _CLAUSE_FUNCTIONS:
        return None
    return (
        f"{name}() only works inside MATCH_RECOGNIZE",
        f"make it a measure: MEASURES {name}({_CLAUSE_FUNCTIONS[name]}) AS n",
    )


def parse_sql(text: str, dialect: Dialect = Dialect.DUCKDB, parameters: Parameters = NO_PARAMETERS) -> SqlQuery:
    """Parses a query with its clauses, or raises a QueryError for anything but one query.

    >>> query = parse_sql("SELECT * FROM a x, (SELECT 1) MATCH_RECOGNIZE (PATTERN (A)) AS m")
    >>> [clause.input.over(query.text) for clause in query.clauses]
    ['(SELECT 1)']
    >>> query.clauses[0].body.over(query.text), query.clauses[0].alias
    ('PATTERN (A)', 'm')
    """
    try:
        return _Reader(text, *tokenize_sql(text, dialect), parameters).read()
    except QueryError as error:
        raise error.at(None, text) from None


@dataclass(slots=True)
class _Reader:
    """Parses a text by its tokens; positions are numbers of tokens."""

    text: str
    tokens: list[SqlToken]
    pairs: dict[int, int]
    parameters: Parameters

    def read(self) -> SqlQuery:
        self._require_one_statement()
        bodies = self._bodies()
        self._refuse_windows()
        withs = tuple(self._withs(bodies))
        self._require_query(withs)
        clauses: list[MatchClause] = []
        for at, close in bodies.items():
            clauses.append(self._clause(at, close, len(clauses) + 1))
            self._refuse_recursion(clauses[-1], withs)
        spellings = {token.name for token in self.tokens if token.name is not None}
        names = frozenset(name.lower() for name in spellings)
        span = Span(0, self.tokens[-1].end)
        only = self._get_only(clauses)
        clause_spans = [Span(self.tokens[k].start, self.tokens[c].end) for k, c in bodies.items()]
        places = tuple(
            place
            for place in find_parameters(self.tokens, self.pairs, self.text)
            if not any(span_.start <= place.span.start < span_.end for span_ in clause_spans)
        )
        for place in places:  # a missing value is reported before anything runs
            self.parameters.constants(place.name, place.span)
        mixed = len(names) < len(spellings)
        return SqlQuery(self.text, span, tuple(clauses), withs, names, mixed, only, places, self.parameters)

    def _require_one_statement(self) -> None:
        while self.tokens and self.tokens[-1].word == ";":
            self.tokens.pop()
        if not self.tokens:
            raise QueryError("an empty text is not a query", hint="SELECT ... FROM ...")
        for number, token in enumerate(self.tokens):
            if token.word == ";":
                raise self._error("this is more than one statement", self.tokens[number + 1])

    def _require_query(self, withs: tuple[WithClause, ...]) -> None:
        """Refuses statements other than queries before anything runs."""
        hint = "a query starts with SELECT, WITH, FROM, VALUES or a parenthesis"
        first = next((token for token in self.tokens if token.word != "("), self.tokens[-1])
        if first.word not in _QUERIES:
            raise self._error(f"{first.text} does not begin a query", first, hint)
        if first.word == "WITH":
            with_ = next((w for w in withs if w.scope.start == first.start), None)
            if with_ is None or not with_.queries:
                raise self._error("WITH names no query", first, "WITH name AS (SELECT ...)")
            end = with_.queries[-1].span.end
            main = next((t for t in self.tokens if t.start >= end and t.word != "("), None)
            if main is None or main.word not in _QUERIES:
                raise self._error("no query follows WITH", main or self.tokens[-1], hint)
        for number, token in enumerate(self.tokens):
            if token.word == "INSERT" and self._word(number + 1) in _WRITES:
                raise self._error("a query cannot write", token, hint)

    def _withs(self, bodies: dict[int, int]) -> list[WithClause]:
        withs, skip = [], -1
        for number, token in enumerate(self.tokens):
            if number in bodies:
                skip = bodies[number]
            begins = number == 0 or self._word(number - 1) == "("
            if number <= skip or token.word != "WITH" or not begins:
                continue
            end = self.tokens[self.pairs[number - 1]].start if number else len(self.text)
            recursive = self._word(number + 1) == "RECURSIVE"
            queries = self._named_queries(number + 1 + recursive)
            withs.append(WithClause(Span(token.start, end), tuple(queries), recursive))
        return withs

    def _named_queries(self, at: int) -> list[NamedQuery]:
        """Parses `name [(column, ...)] [AS] [[NOT] MATERIALIZED] (...), ...` and other words of
        engines before the AS."""
        queries: list[NamedQuery] = []
        while at < len(self.tokens) and (name := self.tokens[at].name) is not None:
            start, close = self.tokens[at].start, -1
            at += 1
            while at < len(self.tokens) and self._word(at) not in ("AS", ",", ")", *_QUERIES):
                close = self.pairs[at] if self._word(at) == "(" else -1
                at = self._next(at)
            if self._word(at) == "AS":
                at += 1
                while self._word(at) in ("NOT", "MATERIALIZED"):
                    at += 1
                close, at = self.pairs[at] if self._word(at) == "(" else -1, self._next(at)
            if close < 0:
                break
            queries.append(NamedQuery(name, Span(start, self.tokens[close].end)))
            if self._word(at) != ",":
                break
            at += 1
        return queries

    def _refuse_recursion(self, clause: MatchClause, withs: tuple[WithClause, ...]) -> None:
        position = clause.keyword.start
        for with_ in withs:
            for query in with_.queries if with_.recursive else ():
                if query.span.start <= position < query.span.end and self._uses_itself(query):
                    raise QueryError(
                        f"MATCH_RECOGNIZE is inside {query.name}, which refers to itself",
                        hint="put it after WITH RECURSIVE, over its result",
                        span=clause.keyword,
                        text=self.text,
                    )

    def _uses_itself(self, query: NamedQuery) -> bool:
        return any(
            token.name is not None
            and token.name.lower() == query.name.lower()
            and query.span.start < token.start < query.span.end
            and self._word(number - 1) not in (".", "AS")
            for number, token in enumerate(self.tokens)
        )

    def _get_only(self, clauses: list[MatchClause]) -> MatchClause | None:
        if not clauses:
            return None
        last = clauses[-1]
        before = [t.word for t in self.tokens if t.start < last.whole.start]
        following = [t for t in self.tokens if t.start >= last.whole.end]
        if following and following[0].word == "AS":
            following = following[1:]
        named = not following or (len(following) == 1 and following[0].name == last.alias)
        return last if named and before in (["SELECT", "*", "FROM"], ["FROM"]) else None

    def _bodies(self) -> dict[int, int]:
        """Maps each keyword to the parenthesis that closes its clause."""
        bodies: dict[int, int] = {}
        close = -1
        for number, token in enumerate(self.tokens):
            if token.word != KEYWORD:
                continue
            if number < close:
                raise self._error(
                    "MATCH_RECOGNIZE cannot be inside the parentheses of another", token,
                    "use the result of one as the input of another: FROM (SELECT * FROM t "
                    "MATCH_RECOGNIZE (...)) MATCH_RECOGNIZE (...)",
                )  # fmt: skip
            if self._word(number + 1) != "(":
                raise self._error(
                    "a parenthesis is missing after MATCH_RECOGNIZE", token,
                    'MATCH_RECOGNIZE (...); a column of this name is written "MATCH_RECOGNIZE"',
                )  # fmt: skip
            bodies[number] = close = self.pairs[number + 1]
        return bodies

    def _refuse_windows(self) -> None:
        """Refuses `OVER (... PATTERN (...) DEFINE ...)` and `WINDOW w AS (...)`."""
        for number, token in enumerate(self.tokens):
            if token.word != "(" or self._word(number - 1) not in ("OVER", "AS"):
                continue
            at, words = number + 1, dict[str, int]()
            while at < self.pairs[number]:
                words[self._word(at)] = at
                at = self._next(at)
            if {"PATTERN", "DEFINE"} <= words.keys():
                raise self._error(
                    "row patterns in windows are not supported", self.tokens[words["PATTERN"]],
                    "write FROM t MATCH_RECOGNIZE (PARTITION BY ... ORDER BY ... MEASURES ... "
                    "PATTERN (...) DEFINE ...)",
                )  # fmt: skip

    def _clause(self, at: int, close: int, number: int) -> MatchClause:
        first = self._first_of_table(at)
        table, input_alias = self._table(first, at)
        tokens = self.tokens
        return MatchClause(
            number,
            input=Span(tokens[first].start, tokens[at - 1].end),
            keyword=tokens[at].span,
            body=Span(tokens[at + 1].end, tokens[close].start),
            whole=Span(tokens[first].start, tokens[close].end),
            table=table,
            input_alias=input_alias,
            alias=self._alias(close + 1),
        )

    def _first_of_table(self, keyword: int) -> int:
        """Returns the first token of the table before a keyword."""
        before = self._find_previous(keyword - 1, {*_BEFORE_TABLE, ",", "("})
        mark = self._word(before)
        match mark:
            case "FROM" | "JOIN":
                fits = True
            case ",":
                rows = self._rows_before(before)
                if rows is not None:
                    return rows
                owner = self._find_previous(before - 1, {*_BEFORE_TABLE, *_NOT_A_TABLE_LIST, "("})
                fits = self._word(owner) in _BEFORE_TABLE
            case "(":
                fits = self._word(before - 1) in {*_BEFORE_TABLE, ",", "("}
            case _:
                fits = False
        if not fits or before + 1 == keyword:
            raise self._error("no table before MATCH_RECOGNIZE", self.tokens[keyword], _POSITION_HINT)
        return before + 1

    def _rows_before(self, comma: int) -> int | None:
        """Returns the start of `VALUES (1, 2), (3, 4) t`, whose commas do not separate tables."""
        at = comma
        while self._word(at) == "," and self._word(at - 1) == ")":
            at = self.pairs[at - 1] - 1
        if self._word(at) == "VALUES" and self._word(at - 1) in {*_BEFORE_TABLE, ","}:
            return at
        return None

    def _table(self, first: int, keyword: int) -> tuple[str | None, str | None]:
        """Returns the name of a table that is only a name, and its alias."""
        plain: str | None = None
        end = self._end_of_earlier_clause(first, keyword)
        if end is None:
            end = self._end_of_primary(first, keyword)
            plain = self.tokens[first].name if end == first + 1 else None
        self._require_table(end, keyword)
        rest = self.tokens[end:keyword]
        if rest and rest[0].word == "AS":
            rest = rest[1:]
        alias = rest[0].name if rest and (len(rest) == 1 or rest[1].word == "(") else None
        nothing_else = not rest or (len(rest) == 1 and alias is not None)
        return (plain if nothing_else else None), alias

    def _end_of_earlier_clause(self, first: int, keyword: int) -> int | None:
        """Returns the end of a clause that is the input of the next one, or None."""
        end, at = None, first
        while at < keyword:
            if self._word(at) == KEYWORD:
                end = at = self._next(at + 1)
            else:
                at = self._next(at)
        return end

    def _end_of_primary(self, first: int, keyword: int) -> int:
        """Returns the end of `a.b`, `name(...)`, `(...)`, `VALUES (...), ...` or `'file'`."""
        token = self.tokens[first]
        if token.word == "(":
            return self.pairs[first] + 1
        if token.word == "LATERAL":
            raise self._error("the input of MATCH_RECOGNIZE is LATERAL", token, INPUT_SCOPE_HINT)
        if token.word == "VALUES":
            at = first + 1
            while self._word(at) == "(" and at < keyword:
                at = self.pairs[at] + 1
                at += self._word(at) == ","
            return at
        if token.kind is TokenKind.STRING:
            return first + 1
        if token.name is None or token.word in _NO_PART_OF_A_TABLE:
            raise self._error("no table before MATCH_RECOGNIZE", token, _POSITION_HINT)
        at = first + 1
        while self._word(at) == "." and at + 1 < keyword:
            at += 2
        return self.pairs[at] + 1 if self._word(at) == "(" else at

    def _require_table(self, at: int, keyword: int) -> None:
        while at < keyword:
            token = self.tokens[at]
            if token.word == "LATERAL":
                raise self._error("the input of MATCH_RECOGNIZE is LATERAL", token, INPUT_SCOPE_HINT)
            strange = token.kind is TokenKind.MARK and token.text not in {*_TABLE_MARKS, "("}
            if strange or token.word in _NO_PART_OF_A_TABLE:
                raise self._error(
                    "MATCH_RECOGNIZE does not follow a table", token,
                    "over a join, write FROM (SELECT ... FROM a JOIN b ...) "
                    "MATCH_RECOGNIZE (...)",
                )  # fmt: skip
            at = self._next(at)

    def _alias(self, at: int) -> str | None:
        if self._word(at) == "AS":
            at += 1
        elif self._word(at) in _NO_ALIAS:
            return None
        return self.tokens[at].name if at < len(self.tokens) else None

    def _word(self, at: int) -> str:
        return self.tokens[at].word if 0 <= at < len(self.tokens) else ""

    def _next(self, at: int) -> int:
        """Returns the next token, after the closing one of a parenthesis."""
        return self.pairs[at] + 1 if self._word(at) == "(" else at + 1

    def _find_previous(self, at: int, words: set[str]) -> int:
        """Returns the nearest of these words before a position, outside of parentheses, or -1."""
        while at >= 0:
            word = self._word(at)
            if word == ")":
                at = self.pairs[at] - 1
                continue
            if word in words and self._word(at - 1) != ".":
                return at
            if word == "(":
                return -1
            at -= 1
        return -1

    def _error(self, problem: str, token: SqlToken, hint: str | None = None) -> QueryError:
        return QueryError(problem, hint=hint, span=token.span, text=self.text)
