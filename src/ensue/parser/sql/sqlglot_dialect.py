"""sqlglot's tokenizers and parsers, extended for MATCH_RECOGNIZE, with the position of each part of a statement."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect as SqlglotDialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenizerCore
from sqlglot.tokens import Tokenizer

from ensue.errors import QueryError, Span
from ensue.ir.expression import Constant
from ensue.parser.parameters import Parameters, list_value_error
from ensue.parser.sql.sql_query import INPUT_SCOPE_HINT, KEYWORD, Dialect

# ------------------------------------------------------------------------------ tokens

_UNCLOSED = {'"': "quoted name", "`": "quoted name", "/": "comment"}
_STATE = ("sql", "size", "tokens")
_SETTINGS = tuple(name for name in TokenizerCore.__slots__ if not name.startswith("_") and name not in _STATE)
# Keywords of sqlglot that are names here, as in overlaps(p, q), range < 3.
_NAMES = (
    "ALTER", "ARRAY", "CALL", "CREATE", "DESCRIBE", "DIV", "DROP", "EXECUTE", "EXPLAIN", "GRANT",
    "INSERT", "LIST", "MAP", "NULLABLE", "OBJECT", "OPTIMIZE", "OVERLAPS", "PARTITIONED_BY",
    "PREPARE", "RANGE", "RENAME", "REVOKE", "ROLLBACK", "SHOW", "STRUCT", "UNCACHE", "VACUUM",
    "VALUES",
)  # fmt: skip
BRACKETS = (
    TokenType.L_PAREN, TokenType.R_PAREN, TokenType.L_BRACKET, TokenType.R_BRACKET,
    TokenType.L_BRACE, TokenType.R_BRACE,
)  # fmt: skip
_SIGNS = ("!=", "<>", "<=", ">=", "==", "<=>", "||", "::", "->", "=>")


class _Core(TokenizerCore):
    """Tokenizes a statement; standard SQL applies between the parentheses of MATCH_RECOGNIZE."""

    __slots__ = ("_body_depth",)

    def __init__(self, core: TokenizerCore) -> None:
        self._configure(core)
        self._body_depth = 0  # of parentheses in the body of a clause; 0 outside
        self.reset()

    def tokenize(self, sql: str) -> list[Token]:
        self.reset()
        self.sql, self.size = sql, len(sql)
        try:
            self._scan()
        except (TokenError, IndexError):  # a comment without an end
            raise self._unclosed(self._start) from None
        return self.tokens

    def _configure(self, core: TokenizerCore) -> None:
        for name in _SETTINGS:
            setattr(self, name, getattr(core, name))

    def _add(self, token_type: TokenType, text: str | None = None) -> None:
        super()._add(token_type, text)
        if self._body_depth:
            self._body_depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token_type, 0)
            if not self._body_depth:
                self._end = True  # of the scan of the body
        elif token_type is TokenType.L_PAREN and self.tokens[-2:][0].token_type is TokenType.MATCH_RECOGNIZE:
            self._scan_body()

    def _scan_body(self) -> None:
        around = _Core(self)
        self._configure(_clause_tokenizer_core())
        self._body_depth = 1
        self._scan()
        self._configure(around)
        self._body_depth = 0
        self._end = self._current >= self.size

    def _scan_comment(self, comment_start: str) -> bool:
        is_comment = super()._scan_comment(comment_start)
        if is_comment and comment_start == "/*":
            comment = self.sql[self._start : self._current]
            if len(comment) < 4 or not comment.endswith("*/"):
                raise self._unclosed(self._start)
        while is_comment and "\\" in self.string_escapes and self._char == "\\" and self._peek == "\n":
            self._advance()  # in Spark such a comment goes on in the next line
            while not self._end and self._peek != "\n":
                self._advance()
        return is_comment

    def _unclosed(self, start: int) -> QueryError:
        sign = self.sql[start]
        length = {"/": 2, "$": self.sql.find("$", start + 1) - start + 1}.get(sign, 1)
        kind = _UNCLOSED.get(sign, "string")
        return QueryError(f"this {kind} has no end", hint="close it", span=Span(start, start + max(length, 1)))


class _ClauseTokenizer(Tokenizer):
    """Tokenizes the body of a clause."""

    IDENTIFIERS: ClassVar = ['"', "`"]
    COMMANDS: ClassVar = set()
    KEYWORDS: ClassVar = {
        KEYWORD: TokenType.MATCH_RECOGNIZE,
        "RUNNING": TokenType.FINAL,
        "FINAL": TokenType.FINAL,
        **{
            word: kind
            for word, kind in Tokenizer.KEYWORDS.items()
            if word not in _NAMES and (word[0].isalpha() or word in _SIGNS)
        },
    }

    def _init_core(self) -> TokenizerCore:
        return _Core(super()._init_core())


@cache
def _clause_tokenizer_core() -> TokenizerCore:
    return _ClauseTokenizer(_CLAUSE)._init_core()


def get_span(token: Token) -> Span:
    return Span(token.start, token.end + 1)


def is_name(token: Token) -> bool:
    return token.token_type is TokenType.IDENTIFIER or bool(get_word(token))


def get_word(token: Token) -> str:
    """Returns a keyword or another word in upper case; "" for quoted names and other tokens."""
    text = token.text
    literal = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
    return "" if literal or not (text[:1].isalpha() or text[:1] == "_") else text.upper()


def get_name(token: Token) -> str:
    """Returns a name without its quotes."""
    if not token.text:
        raise QueryError("a name cannot be empty", span=get_span(token))
    return token.text


def fold_name(token: Token) -> str:
    """Returns the name of a variable: in upper case, unless it is quoted."""
    return get_name(token) if token.token_type is TokenType.IDENTIFIER else token.text.upper()


# ------------------------------------------------------------------------------ parsers


class _SyntaxError(ParseError):
    """An error of a parser, with the token at which it has stopped."""

    def __init__(self, token: Token) -> None:
        super().__init__("", [{}])
        self.token = token


def _with_span(read: Callable[[Parser], Any]) -> Callable[[Parser], Any]:
    """Adds the start and the end of the node that a parser of sqlglot returns."""

    def parse(parser: Parser) -> Any:
        start = parser._prev.start
        node = read(parser)
        if isinstance(node, exp.Expr):
            node.meta.update(start=start, end=parser._prev.end)
        return node

    return parse


def _position(parser: Parser) -> Any:
    """Parses `POSITION(x IN y)`; with a comma it is an ordinary function."""
    name = parser._tokens[parser._index - 2].text
    arguments = parser._parse_csv(parser._parse_bitwise)
    if len(arguments) == 1 and parser._match(TokenType.IN):
        return exp.StrPosition(this=parser._parse_bitwise(), substr=arguments[0])
    return exp.Anonymous(this=name, expressions=arguments)


class _PositionedParser(Parser):
    """Keeps the names of functions, and the positions of calls and parameters."""

    FUNCTIONS: ClassVar = {}
    PLACEHOLDER_PARSERS: ClassVar = {
        **Parser.PLACEHOLDER_PARSERS,
        TokenType.COLON: _with_span(Parser.PLACEHOLDER_PARSERS[TokenType.COLON]),
    }
    FUNCTION_PARSERS: ClassVar = {
        "POSITION": _position,
        **{name: Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM")},
    }

    def raise_error(self, message: str, token: Token | None = None) -> None:
        lacks_operand = message.startswith("Required keyword") and self._prev
        raise _SyntaxError(self._prev if lacks_operand else token or self._curr or self._prev)

    def _warn_unsupported(self) -> None:
        """Does not warn: other statements than queries are refused."""

    def _parse_window(self, this: Any, alias: bool = False) -> Any:
        """Notes the end of a call, before what follows it."""
        if isinstance(this, exp.Func):
            this.meta["end"] = self._prev.end
        return super()._parse_window(this, alias)

    def _parse_function_call(self, *args: Any, **options: Any) -> Any:
        start = self._curr.start
        node = super()._parse_function_call(*args, **options)
        call = node
        while isinstance(call, exp.Filter | exp.WithinGroup | exp.Window | exp.IgnoreNulls | exp.RespectNulls):
            call = call.this
        if isinstance(call, exp.Func):
            call.meta["start"] = start
            call.meta.setdefault("end", self._prev.end)
        return node


_AFTER_COLUMNS = (
    "AND", "OR", "IS", "IN", "NOT", "BETWEEN", "LIKE", "ILIKE", "THEN", "WHEN", "ELSE", "END",
    "ASC", "DESC", "NULLS", "ORDER BY", "AS", "FROM", "FOR", "COLLATE", "AT", "ESCAPE",
)  # fmt: skip


class _ClauseParser(_PositionedParser):
    """Parses the expressions of a clause, in which RUNNING or FINAL may stand before a call."""

    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}

    def parse_operand(self, tokens: Sequence[Token]) -> tuple[exp.Expr, Sequence[Token]]:
        """Parses the expression at the start of some tokens, and returns the tokens after it."""
        whole = get_span(tokens[0]).to(get_span(tokens[-1]))
        self.reset()
        self._chunks = [list(tokens)]
        self._advance_chunk()
        tree = run_parser(self._parse_disjunction, whole)
        if tree is None:
            raise build_syntax_error(tokens[0])
        return tree, tokens[self._index :]

    def _parse_function_call(self, *args: Any, **options: Any) -> Any:
        semantics = self._curr
        if semantics.token_type is not TokenType.FINAL or not self._applies_to_next():
            return super()._parse_function_call(*args, **options)
        self._advance()
        node = super()._parse_function_call(*args, **options)
        call = node.find(exp.Func)  # the first one in FILTER or WITHIN GROUP
        call.meta.update(semantics=get_word(semantics), start=semantics.start)
        return node

    def _applies_to_next(self) -> bool:
        """Whether RUNNING or FINAL applies to the function after it; else it is a column."""
        word = get_word(self._next)
        if not is_name(self._next) or self._next.token_type is TokenType.SENTINEL or word in _AFTER_COLUMNS:
            return False
        following = self._tokens[self._index + 2 : self._index + 3]
        if word and following and following[0].token_type is TokenType.L_PAREN:
            return True
        semantics = get_word(self._curr)
        raise QueryError(
            f"{semantics} goes before FIRST, LAST or an aggregate",
            hint=f"write {semantics} LAST(...)",
            span=get_span(self._curr).to(get_span(self._next)),
        )


class _Clause(SqlglotDialect):
    """The dialect of the body of a clause: standard SQL."""

    NULL_ORDERING = "nulls_are_last"
    Tokenizer = _ClauseTokenizer
    Parser = _ClauseParser


_CLAUSE = _Clause()


class _StatementParser(_PositionedParser):
    """Parses a statement in which a MATCH_RECOGNIZE token, without its body, may follow a table.

    The clause becomes a table with the argument `match`, whose node has the table before it.
    """

    _clause: exp.MatchRecognize | None = None  # the last one found

    def _parse_table(self, *args: Any, joins: bool = False, **options: Any) -> Any:
        index, first, earlier = self._index, self._curr, self._clause
        start = first.start
        if earlier is not None and earlier.meta["keyword"] == start:  # the input is a clause itself
            start = earlier.meta["start"]
        table = super()._parse_table(*args, **options)
        if self._curr.token_type is TokenType.MATCH_RECOGNIZE and self._index > index:
            if isinstance(table, exp.Lateral):
                raise QueryError("the input of MATCH_RECOGNIZE is LATERAL", hint=INPUT_SCOPE_HINT, span=get_span(first))
            self._clause = exp.MatchRecognize(this=table)
            self._clause.meta.update(start=start, end=self._prev.end, keyword=self._curr.start)
            return self._parse_table(*args, joins=joins, **options)
        if joins and table is not None:
            for join in self._parse_joins():
                table.append("joins", join)
        return table

    def _parse_table_parts(self, *args: Any, **options: Any) -> Any:
        clause = self._clause
        if clause is None or clause.meta["keyword"] != self._curr.start:
            return super()._parse_table_parts(*args, **options)
        name = exp.Identifier(this=KEYWORD).update_positions(self._curr)
        self._advance()
        return exp.Table(this=name, match=clause)

    def _parse_with(self, *args: Any, **options: Any) -> Any:
        start = self._curr.start
        node = super()._parse_with(*args, **options)
        if node is not None:
            node.meta.update(start=start)
        return node

    def _parse_cte(self) -> Any:
        start = self._curr.start
        node = super()._parse_cte()
        if node is not None:
            node.meta.update(start=start, end=self._prev.end)
        return node


@cache
def _statement_dialect(dialect: Dialect) -> SqlglotDialect:
    """Extends sqlglot's dialect of the engine that runs the SQL around the clauses."""
    base: Any
    keywords = {KEYWORD: TokenType.MATCH_RECOGNIZE}
    if dialect is Dialect.SPARK:
        from sqlglot.dialects.spark import Spark

        base = Spark
    else:
        from sqlglot.dialects.duckdb import DuckDB

        base = DuckDB

    class StatementTokenizer(base.Tokenizer):  # type: ignore[misc]
        KEYWORDS: ClassVar = base.Tokenizer.KEYWORDS | keywords
        HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]

        def _init_core(self) -> TokenizerCore:
            return _Core(super()._init_core())

    class StatementParser(_StatementParser, base.Parser):  # type: ignore[misc]
        PLACEHOLDER_PARSERS: ClassVar = base.Parser.PLACEHOLDER_PARSERS | {
            TokenType.COLON: _PositionedParser.PLACEHOLDER_PARSERS[TokenType.COLON]
        }
        FUNCTION_PARSERS: ClassVar = base.Parser.FUNCTION_PARSERS | _PositionedParser.FUNCTION_PARSERS
        QUERY_MODIFIER_PARSERS: ClassVar = {
            kind: parse
            for kind, parse in base.Parser.QUERY_MODIFIER_PARSERS.items()
            if kind is not TokenType.MATCH_RECOGNIZE
        }

    class Statement(base):  # type: ignore[misc]
        Tokenizer = StatementTokenizer
        Parser = StatementParser

    return Statement()


# ------------------------------------------------------------------------------ texts


def tokenize(text: str, dialect: Dialect | None) -> list[Token]:
    """Tokenizes a statement, or without a dialect the text of a clause."""
    tokenizer = _CLAUSE if dialect is None else _statement_dialect(dialect)
    return tokenizer.tokenizer().tokenize(text)


def parse_statement(tokens: list[Token], dialect: Dialect, span: Span) -> exp.Expr:
    """Parses the tokens of one statement, without the bodies of its clauses."""
    parser = _statement_dialect(dialect).parser()
    trees: list[exp.Expr | None] = run_parser(lambda: parser.parse(tokens, ""), span)
    if not trees or trees[0] is None:
        raise QueryError("an empty text is not a query", hint="SELECT ... FROM ...")
    return trees[0]


def build_clause_parser() -> _ClauseParser:
    return _ClauseParser(dialect=_CLAUSE)


def run_parser(parse: Callable[[], Any], span: Span) -> Any:
    """Runs a parser of sqlglot over a part of a text, and translates its errors."""
    try:
        return parse()
    except RecursionError:
        raise build_depth_error(span) from None
    except _SyntaxError as error:
        raise build_syntax_error(error.token) from None


def build_depth_error(span: Span) -> QueryError:
    return QueryError(
        "this is nested too deeply", hint="split the condition at its ANDs, or list values with IN (...)", span=span
    )


def build_syntax_error(token: Token) -> QueryError:
    if token.token_type is TokenType.MATCH_RECOGNIZE:
        return QueryError(
            "no table before MATCH_RECOGNIZE",
            hint="it follows a table: FROM events MATCH_RECOGNIZE (...); "
            "over a join, FROM (SELECT ... FROM a JOIN b ...) MATCH_RECOGNIZE (...)",
            span=get_span(token),
        )
    word = get_word(token)
    if not word or word in ("AND", "OR", "NOT", "IN", "IS", "LIKE"):
        hint = "something is missing next to it"
    else:
        hint = "a comma, an operator or AS may be missing"
    return QueryError(f"'{token.text}' does not belong here", hint=hint, span=get_span(token))


_CLOSING = {"(": ")", "[": "]", "{": "}"}
_DEEPEST = 100  # nested brackets, since later passes recurse


def match_brackets(tokens: Iterable[Token]) -> dict[int, int]:
    """Maps the numbers of the tokens that open a bracket to those that close it."""
    opened: list[tuple[int, Token]] = []
    pairs: dict[int, int] = {}
    for number, token in enumerate(tokens):
        if token.token_type in BRACKETS:
            if token.text in _CLOSING:
                opened.append((number, token))
                if len(opened) > _DEEPEST:
                    raise QueryError(
                        f"brackets are nested more than {_DEEPEST} deep",
                        hint="leave out unnecessary brackets",
                        span=get_span(token),
                    )
                continue
            if not opened:
                raise QueryError(f"this '{token.text}' has no matching opening bracket", span=get_span(token))
            first, opening = opened.pop()
            if _CLOSING[opening.text] != token.text:
                raise QueryError(
                    f"this '{token.text}' does not close the '{opening.text}' before it",
                    hint=f"close that with '{_CLOSING[opening.text]}' first",
                    span=get_span(token),
                )
            pairs[first] = number
    if opened:
        _, opening = opened[-1]
        raise QueryError(
            f"this '{opening.text}' is not closed",
            hint=f"close it with '{_CLOSING[opening.text]}'",
            span=get_span(opening),
        )
    return pairs


# ------------------------------------------------------------------------------ parameters


def bind_parameters(
    tree: exp.Expr, parameters: Parameters, results: Mapping[str, Sequence[Constant]] | None = None
) -> exp.Expr:
    """Replaces parameters by constants, and the names of subqueries after IN by their `results`.

    A list is allowed after IN; only a subquery's may be empty.
    """
    known = results or {}
    for placeholder in list(tree.find_all(exp.Placeholder)):
        if not isinstance(placeholder.this, str) or "start" not in placeholder.meta:
            continue  # a question mark
        span = Span(placeholder.meta["start"], placeholder.meta["end"] + 1)
        if (result := known.get(placeholder.name)) is None:
            constants = parameters.constants(placeholder.name, span)
        else:
            constants = list(result) if placeholder.arg_key == "field" else result[0]
        values = constants if isinstance(constants, list) else [constants]
        nodes = [_node(value, placeholder) for value in values]
        owner, key = placeholder.parent, placeholder.arg_key
        if isinstance(owner, exp.In) and not values:
            if owner is tree:
                return exp.false()
            owner.replace(exp.false())
        elif isinstance(owner, exp.In) and key == "field":  # x IN :names
            owner.set("field", None)
            owner.set("expressions", nodes)
        elif isinstance(owner, exp.In) and key == "expressions":  # x IN (:names)
            options = [node for option in owner.expressions for node in (nodes if option is placeholder else [option])]
            owner.set("expressions", options)
        elif isinstance(constants, list):
            raise list_value_error(placeholder.name, span)
        elif owner is None:
            return nodes[0]
        else:
            placeholder.replace(nodes[0])
    return tree


def _node(value: Constant, placeholder: exp.Expr) -> exp.Expr:
    node = _constant(value)
    # a cast with a position is an explicit CAST
    target = node.this if isinstance(node, exp.Cast) else node
    target.meta.update(start=placeholder.meta["start"], end=placeholder.meta["end"])
    return node


def _constant(value: Constant) -> exp.Expr:
    match value:
        case None:
            return exp.Null()
        case bool():
            return exp.Boolean(this=value)
        case str():
            return exp.Literal.string(value)
        case int() | float():
            digits = exp.Literal.number(repr(abs(value)))
            return exp.Neg(this=digits) if repr(value).startswith("-") else digits
        case datetime():
            moment = exp.Literal.string(value.isoformat(sep=" "))
            return exp.Cast(this=moment, to=exp.DataType.build("TIMESTAMP"))
        case timedelta():
            length = value // timedelta(microseconds=1)
            return exp.Interval(this=exp.Literal.string(str(length)), unit=exp.var("MICROSECOND"))
