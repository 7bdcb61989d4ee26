"""Prints names, constants and expressions in the pattern language and in SQL."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ensue.functions.record import AT_TIME_ZONE, CASE, EARTH_LOCATION, LOCATION, WKT
from ensue.ir.expression import (
    COMPARISONS,
    MATCHES,
    Aggregate,
    Between,
    Binary,
    Constant,
    EventPosition,
    Expr,
    FieldRef,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.ir.pattern import GROUPS
from ensue.ir.traversal import build_chain, flatten_chain, rewrite_expr
from ensue.ir.values import format_duration

_NAME = re.compile(r"[^\W\d]\w*")
_RESERVED = re.compile(
    rf"{'|'.join(GROUPS)}|pattern|event|as|and|or|not|where|within\d*|after|return|having|is|in"
    r"|between|like|ilike|true|false|null|exists|case|cast|try_cast",
    re.IGNORECASE,
)
_SQL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words that the parser does not accept as names of columns or variables.
_RESERVED_IN_SQL = re.compile(
    r"after|all|alter|and|as|asc|between|by|call|case|classifier|create|cross|current|define"
    r"|desc|distinct|drop|else|end|escape|except|exclude|execute|explain|false|fetch|filter"
    r"|final|for|from|glob|grant|group|having|ilike|in|inner|insert|intersect|interval|into|is"
    r"|join|lateral|like|limit|match|match_number|match_recognize|measures|not|notnull|null"
    r"|nulls|offset|on|one|optimize|or|order|outer|over|partition|partitioned_by|pattern"
    r"|permute|prepare|qualify|regexp|rename|returning|revoke|rlike|rollback|row|rows|running"
    r"|select|show|skip|subset|tablesample|then|true|uncache|union|unknown|using|vacuum|values"
    r"|when|where|with|within|xor",
    re.IGNORECASE,
)
_LONG_PLACE = re.compile(r"WKT '([^']{32})[^']{9,}'")
LOCATIONS = (LOCATION, EARTH_LOCATION)

# Operator precedences; an operand with a lower one is put into parentheses.
OR, AND, NOT, COMPARISON, OPERAND, SUM, PRODUCT, SIGNED, VALUE = range(9)

Shown = tuple[str, int]  # a text and its precedence


def format_name(name: str) -> str:
    """Prints a name of the pattern language, quoted if necessary.

    >>> print(format_name("price"), format_name("unit price"), format_name("and"))
    price "unit price" "and"
    """
    return name if _NAME.fullmatch(name) and not _RESERVED.fullmatch(name) else quote_name(name)


def quote_name(name: str) -> str:
    """Quotes a name."""
    return '"' + name.replace('"', '""') + '"'


def is_reserved_in_sql(word: str) -> bool:
    """Whether a word needs quotes to be a name in SQL."""
    return _RESERVED_IN_SQL.fullmatch(word) is not None


def format_sql_name(name: str) -> str:
    """Prints the name of a column in SQL, quoted if necessary.

    >>> print(format_sql_name("price"), format_sql_name("unit price"), format_sql_name("Select"))
    price "unit price" "Select"
    """
    is_plain = _SQL_NAME.fullmatch(name) and not is_reserved_in_sql(name)
    return name if is_plain else quote_name(name)


def format_text(text: str) -> str:
    """Prints a string constant.

    >>> print(format_text("it's"))
    'it''s'
    """
    return "'" + text.replace("'", "''") + "'"


def format_quantifier(least: int, most: int | None) -> str:
    """Prints a quantifier.

    >>> [format_quantifier(*bounds) for bounds in ((0, None), (2, 2), (2, None), (0, 1))]
    ['*', '{2}', '{2,}', '{0,1}']
    """
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case least, None:
            return f"{{{least},}}"
        case least, most if least == most:
            return f"{{{least}}}"
        case least, most:
            return f"{{{least},{most}}}"


def format_order(key: str, descending: bool, nulls_first: bool) -> str:
    """Prints a key of ORDER BY with its direction."""
    return f"{key}{' DESC' if descending else ''}{' NULLS FIRST' if nulls_first else ''}"


class _PatternDialect:
    """Prints expressions in the pattern language; other dialects differ in words, fields and calls."""

    unequal = "!="
    concatenation = SUM  # the precedence of ||

    def word(self, word: str) -> str:
        """Returns a keyword in the case of the language."""
        return word

    def show(self, expr: Expr, inside: int = OR) -> str:
        text, tightness = self.print_expression(expr)
        return f"({text})" if tightness < inside else text

    def print_expression(self, expr: Expr) -> Shown:
        """Prints an expression without parentheses, and returns its precedence."""
        show, word = self.show, self.word
        match expr:
            case Literal(value=value):
                return self.constant(value)
            case FieldRef():
                return self.field(expr), VALUE
            case Aggregate():
                return self.aggregate(expr), VALUE
            case Unary(operator="not", operand=operand):
                return f"{word('not')} {show(operand, NOT)}", NOT
            case Unary(operator=operator, operand=operand):
                text = show(operand, SIGNED)
                # Two signs without a space would start a comment.
                return f"{operator}{' ' if text.startswith('-') else ''}{text}", SIGNED
            case Binary(operator="and" | "or" as operator):
                return self.print_chain(operator, expr)
            case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
                sign = self.unequal if operator == "!=" else operator
                return f"{show(left, OPERAND)} {sign} {show(right, OPERAND)}", COMPARISON
            case Binary(operator=operator, left=left, right=right):
                by_sign = {"||": self.concatenation, "+": SUM, "-": SUM}
                tightness = by_sign.get(operator, PRODUCT)
                text = f"{show(left, tightness)} {operator} {show(right, tightness + 1)}"
                return text, tightness
            case IsNull(operand=operand, negated=negated):
                test = f"{word('is')} {self.negation(negated)}{word('null')}"
                return f"{show(operand, OPERAND)} {test}", COMPARISON
            case In(operand=operand, options=options, negated=negated):
                test = f"{self.negation(negated)}{word('in')} ({', '.join(map(show, options))})"
                return f"{show(operand, OPERAND)} {test}", COMPARISON
            case Between(operand=operand, low=low, high=high, negated=negated):
                bounds = f"{show(low, OPERAND)} {word('and')} {show(high, OPERAND)}"
                test = f"{self.negation(negated)}{word('between')} {bounds}"
                return f"{show(operand, OPERAND)} {test}", COMPARISON
            case Like(operand=operand, pattern=pattern, negated=negated):
                test = f"{self.negation(negated)}{word('like')} {format_text(pattern)}"
                return f"{show(operand, OPERAND)} {test}", COMPARISON
            case FunctionCall():
                return self.call(expr), VALUE

    def negation(self, negated: bool) -> str:
        return f"{self.word('not')} " if negated else ""

    def print_chain(self, operator: str, expr: Binary) -> Shown:
        """Prints a chain without parentheses if it parses back to the same tree."""
        tightness = OR if operator == "or" else AND
        operands = flatten_chain(operator, expr)
        if build_chain(operator, operands) != expr:
            operands = [expr.left, expr.right]
        shown = [self.show(operand, tightness + 1) for operand in operands]
        return f" {self.word(operator)} ".join(shown), tightness

    def constant(self, value: Constant) -> Shown:
        match value:
            case None:
                return self.word("null"), VALUE
            case bool():
                return self.word("true" if value else "false"), VALUE
            case str():
                return format_text(value), VALUE
            case datetime():
                return f"TIMESTAMP '{value.isoformat(sep=' ')}'", VALUE
            case timedelta():
                return self.length(format_duration(value // timedelta(microseconds=1) * 1000))
            case int() | float():
                return _print_signed(repr(value))

    def length(self, duration: str) -> Shown:
        return _print_signed(duration)

    def field(self, field: FieldRef) -> str:
        name = "" if field.name is None else f".{format_name(field.name)}"
        return f"{format_name(field.variable)}{_index(field)}{name}"

    def aggregate(self, aggregate: Aggregate) -> str:
        if aggregate.variable == MATCHES:
            return "count(*)"
        argument = aggregate.argument or FieldRef(aggregate.variable, None, aggregate.at)
        text = self.show(rewrite_expr(argument, _strip_mark))
        if aggregate.function == "count_distinct":
            return f"count(DISTINCT {text})"
        match aggregate.parameter:
            case str() as separator:
                text += f", {format_text(separator)}"
            case float() as percent:
                text += f", {int(percent) if percent.is_integer() else repr(percent)}"
            case _:
                pass
        return f"{aggregate.function}({text})"

    def call(self, call: FunctionCall) -> str:
        match call.arguments:
            case (Literal(value=str(text)),) if call.function == WKT:
                return f"WKT {format_text(text)}"
            case (FieldRef() as field, *_) if call.function in LOCATIONS:
                return self.field(replace(field, name="location"))
            case (time, Literal(value=str(zone))) if call.function == AT_TIME_ZONE:
                return f"{self.show(time, VALUE)} AT TIME ZONE {format_text(zone)}"
            case (_, _, *_) if call.function == CASE:
                return self.cases(call)
            case arguments:
                return f"{call.function}({', '.join(map(self.show, arguments))})"

    def cases(self, call: FunctionCall) -> str:
        """Prints a CASE from conditions and values in turn, and an optional default."""
        shown = [self.show(argument) for argument in call.arguments]
        pairs = zip(shown[::2], shown[1::2], strict=False)
        text = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
        return f"CASE {text} {f'ELSE {shown[-1]} ' if len(shown) % 2 else ''}END"


@dataclass(frozen=True, slots=True)
class _SqlDialect(_PatternDialect):
    """Prints expressions in SQL; `leaf` prints their fields."""

    leaf: Callable[[FieldRef], str]

    unequal = "<>"
    concatenation = OPERAND

    def word(self, word: str) -> str:
        return word.upper()

    def length(self, duration: str) -> Shown:
        # Parentheses are needed in sums: the parser would read a number after it as its unit.
        return f"INTERVAL '{duration}'", OPERAND

    def field(self, field: FieldRef) -> str:
        return self.leaf(field)

    def aggregate(self, aggregate: Aggregate) -> str:
        raise AssertionError(aggregate)  # aggregates of a row pattern are operands

    def call(self, call: FunctionCall) -> str:
        match call:
            case FunctionCall(function="case", arguments=arguments) if len(arguments) % 2:
                return self.cases(call)
            case FunctionCall(function="position", arguments=(text, part)):
                return f"POSITION({self.show(part, OPERAND)} IN {self.show(text, OPERAND)})"
            case FunctionCall(function="substring" | "trim" as function, arguments=arguments):
                # FROM and FOR may separate the arguments: conditions need parentheses
                return f"{function}({', '.join(self.show(a, OPERAND) for a in arguments)})"
            case FunctionCall(function=function, arguments=arguments):
                return f"{function}({', '.join(map(self.show, arguments))})"


_PATTERNS = _PatternDialect()


def format_expr(expr: Expr, inside: int = OR) -> str:
    """Prints an expression in the pattern language; `inside` is the surrounding precedence.

    >>> format_expr(Binary("*", Binary("+", FieldRef("a", "x"), Literal(1)), Literal(0.5)))
    '(a.x + 1) * 0.5'
    """
    return _PATTERNS.show(expr, inside)


def format_condition(condition: Expr) -> str:
    """Prints a condition as an operand of `and`.

    >>> format_condition(Binary("or", FieldRef("a", "x"), FieldRef("a", "y")))
    '(a.x or a.y)'
    """
    return _PATTERNS.show(condition, NOT)


def format_scalar(expr: Expr, leaf: Callable[[FieldRef], str]) -> str:
    """Prints an expression in SQL; `leaf` prints its fields.

    >>> format_scalar(Binary("||", FieldRef("", "x"), Literal("it's")), lambda _: "x")
    "x || 'it''s'"
    """
    return _SqlDialect(leaf).show(expr)


def truncate_wkt(text: str) -> str:
    """Truncates long WKT constants in a text.

    >>> truncate_wkt("inside(a.location, WKT 'POLYGON ((0 0, 10 0, 10 10, 5 15, 0 10, 0 0))')")
    "inside(a.location, WKT 'POLYGON ((0 0, 10 0, 10 10, 5 15...')"
    """
    return _LONG_PLACE.sub(r"WKT '\1...'", text)


def _print_signed(text: str) -> Shown:
    return text, SIGNED if text.startswith("-") else VALUE


_INDEXES = {
    EventPosition.ONLY: "", EventPosition.CURRENT: "[i]", EventPosition.PREVIOUS: "[i-1]",
    EventPosition.BEFORE: "[..i-1]", EventPosition.THROUGH: "[..i]", EventPosition.ALL: "[]",
}  # fmt: skip


def _index(field: FieldRef) -> str:
    if field.at is EventPosition.NTH:
        return f"[{field.nth}]"
    if field.at is EventPosition.LAST:
        return f"[{format_name(field.variable)}.LEN]"
    return _INDEXES[field.at]


def _strip_mark(expr: Expr) -> Expr:
    """Prints `a[].price` as `a.price`, which is equivalent inside an aggregate."""
    if isinstance(expr, FieldRef) and expr.at is EventPosition.ALL:
        return replace(expr, at=EventPosition.ONLY)
    return expr
