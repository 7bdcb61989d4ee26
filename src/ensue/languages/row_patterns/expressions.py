"""Expressions of a clause: SQL to what is reached from a match, and computed from it."""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from ensue.algebra.predicate import Expr, Field
from ensue.algebra.row_patterns.aggregates import row_aggregate
from ensue.algebra.row_patterns.values import ROW, RowValue
from ensue.errors import QueryError
from ensue.languages.row_patterns.dialect import syntax_of
from ensue.languages.row_patterns.names import Names
from ensue.languages.row_patterns.parameters import filled
from ensue.languages.row_patterns.reaches import OF_MATCHES, Reading
from ensue.languages.row_patterns.scalars import Place, expression_of
from ensue.languages.row_patterns.tokens import Token, Tokens
from ensue.span import Span

_SEMANTICS = ("RUNNING", "FINAL")
_BEHIND_COLUMNS = (
    "AND", "OR", "IS", "IN", "NOT", "BETWEEN", "LIKE", "ILIKE", "THEN", "WHEN", "ELSE", "END",
    "ASC", "DESC", "NULLS", "ORDER", "AS", "FROM", "FOR", "COLLATE", "AT", "ESCAPE",
)  # fmt: skip
_PREFIX = "_"  # joins RUNNING or FINAL with the function behind it


def read_value(tokens: Tokens, items: Sequence[Token], names: Names, define: bool) -> RowValue:
    """An expression of MEASURES, or of DEFINE."""
    tree, place, spoken = _syntax(tokens, items)
    reading = Reading(place, names, define, spoken)
    expr = expression_of(tree, place, reading.leaf)
    return RowValue(expr, tuple(reading.reaches), place.whole)


def read_columns(tokens: Tokens, items: Sequence[Token], clause: str, table: str | None) -> Expr:
    """An expression over the columns of one row, of PARTITION BY or ORDER BY.

    A column may be written with the name of its table, where that has one.
    """
    tree, place, _ = _syntax(tokens, items)

    def leaf(node: exp.Expr, span: Span) -> Expr | None:
        if isinstance(node, exp.Column):
            owner = node.args.get("table")
            if owner is not None and table is not None and owner.name.lower() == table.lower():
                return Field(ROW, node.name, span=place.span(node.this))
            if owner is not None or isinstance(node.this, exp.Star):
                raise QueryError(
                    f"{clause} uses columns of the table, without a variable",
                    hint=f"write {node.name}" if node.name != "*" else None,
                    span=span,
                )
            return Field(ROW, node.name, span=span)
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if row_aggregate(name) or name in OF_MATCHES:
            raise QueryError(
                f"{clause} works on single rows, and {name.upper()} on a match",
                hint="use columns of the table",
                span=span,
            )
        return None

    return expression_of(tree, place, leaf)


def read_constant(tokens: Tokens, items: Sequence[Token]) -> Expr:
    """An expression without columns, of WITHIN."""
    tree, place, _ = _syntax(tokens, items)
    return expression_of(tree, place, lambda _node, _span: None)


def _syntax(tokens: Tokens, items: Sequence[Token]) -> tuple[exp.Expr, Place, Mapping[int, str]]:
    """The syntax tree of some tokens, where they stand, and where RUNNING and FINAL do.

    sqlglot is given the text without comments; where `FINAL LAST(x)` stood it reads one name.
    """
    whole = Span(items[0].start, items[-1].end)
    text = [" "] * (whole.end - whole.start)
    spoken: dict[int, str] = {}
    for index, token in enumerate(items):
        start = token.start - whole.start
        text[start : start + len(token.text)] = token.text
        if token.word in _SEMANTICS and _is_said_of(items[index + 1 : index + 3], token):
            end = items[index + 1].start - whole.start
            text[start + len(token.text) : end] = _PREFIX * (end - start - len(token.text))
            spoken[token.start] = token.word
    tree = filled(syntax_of("".join(text), whole.start), tokens.parameters, whole.start)
    return tree, Place(tree, tokens, whole), spoken


def _is_said_of(behind: Sequence[Token], token: Token) -> bool:
    """Whether RUNNING or FINAL is said of the function behind it; else it is a column."""
    if not behind or not behind[0].names or behind[0].word in _BEHIND_COLUMNS:
        return False
    if len(behind) > 1 and behind[0].kind == "word" and behind[1].text == "(":
        return True
    raise QueryError(
        f"{token.word} goes before FIRST, LAST or an aggregate",
        hint=f"write {token.word} LAST(...)",
        span=token.span.to(behind[0].span),
    )
