"""SQL expressions by sqlglot: functions stay as they are written, and nodes know their place."""

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parser import Parser
from sqlglot.tokens import Tokenizer

from ensue.errors import QueryError
from ensue.span import Span


def _placed(name: str) -> Callable[[Parser], Any]:
    """How sqlglot reads a function of its own syntax, with the place of the function's name."""
    read = Parser.FUNCTION_PARSERS[name]

    def placed(parser: Parser) -> Any:
        token = parser._tokens[parser._index - 2]  # its name, before the parenthesis
        found = read(parser)
        return found.update_positions(token) if isinstance(found, exp.Expr) else found

    return placed


def _case(parser: Parser) -> Any:
    start = parser._prev.start
    found = Parser.NO_PAREN_FUNCTION_PARSERS["CASE"](parser)
    if isinstance(found, exp.Expr):
        found.meta.update(start=start, end=parser._prev.end)
    return found


def _parameter(parser: Parser) -> Any:
    read: Callable[[Parser], Any] = Parser.PLACEHOLDER_PARSERS[TokenType.COLON]
    start = parser._prev.start
    found = read(parser)
    if isinstance(found, exp.Expr):
        found.meta.update(start=start, end=parser._prev.end)
    return found


def _position(parser: Parser) -> Any:
    """`POSITION(x IN y)`; with a comma it is a function like any other."""
    token = parser._tokens[parser._index - 2]
    given = parser._parse_csv(parser._parse_bitwise)
    if len(given) == 1 and parser._match(TokenType.IN):
        text = parser._parse_bitwise()
        return exp.StrPosition(this=text, substr=given[0]).update_positions(token)
    return exp.Anonymous(this=token.text, expressions=given).update_positions(token)


# Words of statements and nested types, and functions that sqlglot takes for operators: here they
# are names, as in overlaps(p, q), range < 3.
_NAMES = (
    "ALTER", "ARRAY", "CALL", "CREATE", "DESCRIBE", "DIV", "DROP", "EXECUTE", "EXPLAIN", "GRANT",
    "INSERT", "LIST", "MAP", "NULLABLE", "OBJECT", "OPTIMIZE", "OVERLAPS", "PARTITIONED_BY",
    "PREPARE", "RANGE", "RENAME", "REVOKE", "ROLLBACK", "SHOW", "STRUCT", "UNCACHE", "VACUUM",
    "VALUES",
)  # fmt: skip


class _Tokenizer(Tokenizer):
    IDENTIFIERS: ClassVar = ['"', "`"]
    KEYWORDS: ClassVar = {
        word: kind for word, kind in Tokenizer.KEYWORDS.items() if word not in _NAMES
    }


class _Parser(Parser):
    FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": _case}
    PLACEHOLDER_PARSERS: ClassVar = {
        **Parser.PLACEHOLDER_PARSERS,
        TokenType.COLON: _parameter,
    }
    FUNCTION_PARSERS: ClassVar = {
        "POSITION": _position,
        **{n: _placed(n) for n in ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM")},
    }


class RowSql(Dialect):
    """SQL in which functions are called by the names that are written."""

    NULL_ORDERING = "nulls_are_last"
    Tokenizer = _Tokenizer
    Parser = _Parser


_DIALECT = RowSql()


def syntax_of(text: str, start: int) -> exp.Expr:
    """The syntax tree of one expression; `start` is where it stands in the text of errors."""
    try:
        trees = _DIALECT.parse_into(exp.Condition, text)
    except RecursionError:
        raise too_deep(Span(start, start + len(text))) from None
    except ParseError as error:
        raise _explained(error, text, start) from None
    except SqlglotError:
        raise QueryError(
            "this expression cannot be read", span=Span(start, start + len(text))
        ) from None
    if len(trees) != 1 or trees[0] is None:
        raise QueryError("an expression is missing here", span=Span(start, start + len(text)))
    return trees[0]


def too_deep(span: Span) -> QueryError:
    return QueryError(
        "this is nested too deeply",
        hint="split the condition at its ANDs, or list values with IN (...)",
        span=span,
    )


def _explained(error: ParseError, text: str, start: int) -> QueryError:
    found = error.errors[0] if error.errors else {}
    lines = text.split("\n")
    line, column = found.get("line") or 1, found.get("col") or 1
    word = str(found.get("highlight") or "")
    # sqlglot tells the column of the last character
    end = start + sum(len(before) + 1 for before in lines[: line - 1]) + column
    span = Span(max(end - max(len(word), 1), start), min(max(end, start + 1), start + len(text)))
    if not word:
        return QueryError("this expression cannot be read", span=span)
    if not word[0].isalnum() or word.upper() in ("AND", "OR", "NOT", "IN", "IS", "LIKE"):
        hint = "something is missing next to it"
    else:
        hint = "a comma, an operator or AS may be missing"
    return QueryError(f"'{word}' does not belong here", hint=hint, span=span)
