"""Parses SQL expressions with sqlglot, with unchanged function names and positions of nodes."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parser import Parser
from sqlglot.tokens import Tokenizer

from ensue.errors import QueryError, Span
from ensue.ir.expression import Constant
from ensue.parser.parameters import Parameters, list_value_error


def _with_name_span(name: str) -> Callable[[Parser], Any]:
    """Wraps sqlglot's parser of a function to add the position of its name."""
    read = Parser.FUNCTION_PARSERS[name]

    def parse(parser: Parser) -> Any:
        token = parser._tokens[parser._index - 2]  # its name, before the parenthesis
        node = read(parser)
        return node.update_positions(token) if isinstance(node, exp.Expr) else node

    return parse


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
    token = parser._tokens[parser._index - 2]
    arguments = parser._parse_csv(parser._parse_bitwise)
    if len(arguments) == 1 and parser._match(TokenType.IN):
        text = parser._parse_bitwise()
        return exp.StrPosition(this=text, substr=arguments[0]).update_positions(token)
    return exp.Anonymous(this=token.text, expressions=arguments).update_positions(token)


# Keywords of sqlglot that are names here, as in overlaps(p, q), range < 3.
_NAMES = (
    "ALTER", "ARRAY", "CALL", "CREATE", "DESCRIBE", "DIV", "DROP", "EXECUTE", "EXPLAIN", "GRANT",
    "INSERT", "LIST", "MAP", "NULLABLE", "OBJECT", "OPTIMIZE", "OVERLAPS", "PARTITIONED_BY",
    "PREPARE", "RANGE", "RENAME", "REVOKE", "ROLLBACK", "SHOW", "STRUCT", "UNCACHE", "VACUUM",
    "VALUES",
)  # fmt: skip


class _Tokenizer(Tokenizer):
    IDENTIFIERS: ClassVar = ['"', "`"]
    KEYWORDS: ClassVar = {word: kind for word, kind in Tokenizer.KEYWORDS.items() if word not in _NAMES}


class _Parser(Parser):
    FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": _with_span(Parser.NO_PAREN_FUNCTION_PARSERS["CASE"])}
    PLACEHOLDER_PARSERS: ClassVar = {
        **Parser.PLACEHOLDER_PARSERS,
        TokenType.COLON: _with_span(Parser.PLACEHOLDER_PARSERS[TokenType.COLON]),
    }
    FUNCTION_PARSERS: ClassVar = {
        "POSITION": _position,
        **{n: _with_name_span(n) for n in ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM")},
    }


class RowPatternDialect(Dialect):
    """A dialect of SQL that keeps the names of functions."""

    NULL_ORDERING = "nulls_are_last"
    Tokenizer = _Tokenizer
    Parser = _Parser


_DIALECT = RowPatternDialect()


def parse_sql_expression(text: str, start: int) -> exp.Expr:
    """Parses one expression; `start` is its position in the text of errors."""
    try:
        trees = _DIALECT.parse_into(exp.Condition, text)
    except RecursionError:
        raise build_depth_error(Span(start, start + len(text))) from None
    except ParseError as error:
        raise _syntax_error(error, text, start) from None
    except SqlglotError:
        raise QueryError("this expression cannot be read", span=Span(start, start + len(text))) from None
    if len(trees) != 1 or trees[0] is None:
        raise QueryError("an expression is missing here", span=Span(start, start + len(text)))
    return trees[0]


def build_depth_error(span: Span) -> QueryError:
    return QueryError(
        "this is nested too deeply", hint="split the condition at its ANDs, or list values with IN (...)", span=span
    )


def _syntax_error(error: ParseError, text: str, start: int) -> QueryError:
    details = error.errors[0] if error.errors else {}
    lines = text.split("\n")
    line, column = details.get("line") or 1, details.get("col") or 1
    word = str(details.get("highlight") or "")
    # sqlglot reports the column of the last character
    end = start + sum(len(before) + 1 for before in lines[: line - 1]) + column
    span = Span(max(end - max(len(word), 1), start), min(max(end, start + 1), start + len(text)))
    if not word:
        return QueryError("this expression cannot be read", span=span)
    if not word[0].isalnum() or word.upper() in ("AND", "OR", "NOT", "IN", "IS", "LIKE"):
        hint = "something is missing next to it"
    else:
        hint = "a comma, an operator or AS may be missing"
    return QueryError(f"'{word}' does not belong here", hint=hint, span=span)


def bind_parameters(tree: exp.Expr, parameters: Parameters, offset: int) -> exp.Expr:
    """Replaces parameters by constants; a list is allowed after IN.

    `offset` is the position of the tree's text in the text of errors.
    """
    for placeholder in list(tree.find_all(exp.Placeholder)):
        if not isinstance(placeholder.this, str) or "start" not in placeholder.meta:
            continue  # a question mark
        span = Span(placeholder.meta["start"] + offset, placeholder.meta["end"] + 1 + offset)
        constants = parameters.constants(placeholder.name, span)
        values = constants if isinstance(constants, list) else [constants]
        nodes = [_node(value, placeholder) for value in values]
        owner, key = placeholder.parent, placeholder.arg_key
        if isinstance(owner, exp.In) and key == "field":  # x IN :names
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
