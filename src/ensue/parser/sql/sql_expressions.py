"""Transforms sqlglot's syntax trees to expressions of the IR."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from sqlglot import exp

from ensue.analyzer.scopes import describe_argument_count
from ensue.errors import QueryError, Span, did_you_mean
from ensue.functions import FUNCTIONS, resolve_function_name
from ensue.functions.aliases import suggest_function
from ensue.ir.expression import Between, Binary, Expr, FunctionCall, In, IsNull, Like, Literal, Unary
from ensue.ir.traversal import build_chain
from ensue.ir.values import convert_to_nanoseconds
from ensue.parser.calls import build_extract, build_ilike, rewrite_call
from ensue.parser.expressions import parse_number, parse_timestamp
from ensue.parser.sql.sqlglot_dialect import build_depth_error

_FORMS = "INTERVAL '5' MINUTE, INTERVAL '5 minutes', INTERVAL '1 02:30' DAY TO MINUTE"
_AMOUNT = r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_ALONE = re.compile(rf"\s*({_AMOUNT})\s*")
_PAIRS = re.compile(rf"\s*(?:{_AMOUNT}\s*[^\W\d]+\s*)+")
_PAIR = re.compile(rf"({_AMOUNT})\s*([^\W\d]+)")
_CLOCK = ("DAY", "HOUR", "MINUTE", "SECOND")
_FIELDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def parse_sql_interval(amount: str, unit: str | None, to: str | None, span: Span) -> timedelta:
    """Parses `INTERVAL 'amount' unit TO to`.

    >>> parse_sql_interval("1:30", "HOUR", "MINUTE", Span(0, 1))
    datetime.timedelta(seconds=5400)
    """
    if unit is not None and to is not None:
        length = _compound_interval(amount, unit.upper(), to.upper(), span)
    elif unit is not None and (alone := _ALONE.fullmatch(amount)):
        length = convert_to_nanoseconds(alone[1], unit, span)
    elif unit is None and _PAIRS.fullmatch(amount):
        length = sum(convert_to_nanoseconds(pair[1], pair[2], span) for pair in _PAIR.finditer(amount))
    else:
        raise QueryError("this interval cannot be read", hint=f"write {_FORMS}", span=span)
    if length % 1000:
        raise QueryError("intervals must be whole microseconds", hint="round it to microseconds", span=span)
    return timedelta(microseconds=length // 1000)


def _compound_interval(text: str, unit: str, to: str, span: Span) -> int:
    """Parses `INTERVAL '1 02:30' DAY TO MINUTE` to nanoseconds."""
    stripped = text.strip()
    sign = -1 if stripped.startswith("-") else 1
    fields = re.split(r"[ :]", stripped.lstrip("+-"))
    if unit in _CLOCK and to in _CLOCK:
        units = _CLOCK[_CLOCK.index(unit) : _CLOCK.index(to) + 1]
        if len(units) == len(fields) > 1 and all(map(_FIELDS.fullmatch, fields)):
            pairs = zip(fields, units, strict=True)
            return sign * sum(convert_to_nanoseconds(str(Decimal(f)), u, span) for f, u in pairs)
    raise QueryError("this interval cannot be read", hint=f"write {_FORMS}", span=span)


_DEEPEST = 200  # levels of an expression, since later passes recurse

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.DPipe: "||", exp.EQ: "=",
    exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
# The functions that cast to SQL types.
_CASTS = {
    "to_integer": ("INT", "BIGINT", "SMALLINT", "TINYINT"),
    "to_float": ("DOUBLE", "FLOAT", "DECIMAL"),
    "to_string": ("TEXT", "VARCHAR", "CHAR", "NVARCHAR", "NCHAR"),
    "to_boolean": ("BOOLEAN",),
    "to_timestamp": ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "TIMESTAMPLTZ", "DATETIME"),
    "to_date": ("DATE",),
}
_INSTANTS = ("to_timestamp", "to_date")
_TRIMS = {"": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_SYNONYMS = {"nvl": "coalesce", "ifnull": "coalesce"}
_NO_SUBQUERY = (
    "a subquery needs the tables of a whole query, and this is a clause alone",
    'SELECT * FROM events MATCH_RECOGNIZE (...) has them: ensue.sql(text, tables={"events": ...})',
)
_UNSUPPORTED: dict[type[exp.Expr], tuple[str, str | None]] = {
    exp.Window: (
        "window functions are not supported in MATCH_RECOGNIZE",
        "aggregate over a variable: sum(A.price); or look at a row: PREV(price)",
    ),
    exp.Subquery: _NO_SUBQUERY,
    exp.Exists: _NO_SUBQUERY,
    exp.Lambda: ("higher-order functions are not supported", None),
    exp.Placeholder: ("parameters need names", "write :low, and give it a value"),
    exp.Parameter: ("parameters are written with a colon", "write :low, and give it a value"),
    exp.Star: ("'*' is only allowed in count(*)", None),
    exp.IgnoreNulls: (
        "IGNORE NULLS is not supported",
        "aggregates ignore NULLs; LAST and FIRST take the row, NULL or not",
    ),
    exp.RespectNulls: ("RESPECT NULLS is not supported", "LAST and FIRST do that anyway"),
    exp.Dot: ("a column is written as variable.column", None),
    exp.Distinct: ("DISTINCT goes inside an aggregate: count(DISTINCT A.name)", None),
    exp.Order: ("ORDER BY goes inside an aggregate: array_agg(A.name ORDER BY A.time)", None),
    exp.Filter: ("FILTER goes after an aggregate: count(*) FILTER (WHERE price > 3)", None),
    exp.WithinGroup: ("WITHIN GROUP goes after an aggregate: listagg(A.name, ', ')", None),
}


class SyntaxTree:
    """A syntax tree, and the positions of its nodes in the whole text.

    sqlglot reports those of names, calls and constants; other nodes span their children.
    """

    def __init__(self, root: exp.Expr, whole: Span) -> None:
        self.root = root
        self.whole = whole  # the parsed text
        self._spans: dict[int, Span] = {}
        for node in reversed(list(root.dfs())):  # children first
            if "start" in node.meta:
                self._spans[id(node)] = Span(node.meta["start"], node.meta["end"] + 1)
            if node.parent is not None and id(node) in self._spans:
                inside = self._spans[id(node)]
                self._spans[id(node.parent)] = inside.to(self._spans.get(id(node.parent)))

    def span(self, node: exp.Expr) -> Span:
        return self._spans.get(id(node), self.whole)


# Builds a column or a function of row patterns; None for other nodes.
ReadLeaf = Callable[[exp.Expr, Span], Expr | None]


def build_sql_expression(node: exp.Expr, place: SyntaxTree, leaves: ReadLeaf, depth: int = 0) -> Expr:
    """Builds the expression of a syntax tree; `leaves` builds columns and row functions."""
    span = place.span(node)
    if depth > _DEEPEST:
        raise build_depth_error(span)
    leaf = leaves(node, span)
    if leaf is not None:
        return leaf

    def inner(child: exp.Expr) -> Expr:
        return build_sql_expression(child, place, leaves, depth + 1)

    match node:
        case exp.Paren():
            return inner(node.this)
        case exp.Literal() | exp.Boolean() | exp.Null() | exp.Interval():
            return _constant(node, span)
        case exp.And() | exp.Or():
            operator, kind = ("and", exp.And) if isinstance(node, exp.And) else ("or", exp.Or)
            return build_chain(operator, [inner(link) for link in _links(node, kind)])
        case exp.Neg():
            return Unary("-", inner(node.this), span)
        case exp.Not():
            return _negate(inner(node.this), span)
        case exp.Is():
            return _truth(node, inner(node.this), span)
        case exp.NullSafeNEQ():
            return _build_call("is_distinct", (inner(node.this), inner(node.expression)), span)
        case exp.NullSafeEQ():
            operands = inner(node.this), inner(node.expression)
            return Unary("not", _build_call("is_distinct", operands, span), span)
        case exp.In() if node.args.get("query") is not None:
            raise _build_unsupported_error(node.args["query"], span)
        case exp.In() if node.args.get("expressions"):
            return In(inner(node.this), tuple(map(inner, node.expressions)), False, span)
        case exp.Between() if not node.args.get("symmetric"):
            parts = (node.this, node.args["low"], node.args["high"])
            operand, low, high = map(inner, parts)
            return Between(operand, low, high, False, span)
        case exp.Like() | exp.ILike() | exp.Escape():
            return _like(node, inner, span)
        case exp.Case():
            return _case(node, inner, span)
        case exp.Cast():
            return _cast(node, inner, span, explicit="start" in node.meta)
        case exp.AtTimeZone():
            return _build_call("at_time_zone", (inner(node.this), inner(node.args["zone"])), span)
        case exp.Binary() if type(node) in _BINARY:
            return Binary(_BINARY[type(node)], inner(node.this), inner(node.expression), span)
        case exp.Exists():
            raise _build_unsupported_error(node, place.whole)
        case exp.Func():
            return _function(node, inner, span)
        case _:
            raise _build_unsupported_error(node, place.whole if isinstance(node, exp.Subquery) else span)


def _build_unsupported_error(node: exp.Expr, span: Span) -> QueryError:
    for kind, (problem, hint) in _UNSUPPORTED.items():
        if isinstance(node, kind):
            return QueryError(problem, hint=hint, span=span)
    return QueryError("this expression is not supported here", span=span)


def _links(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Returns the operands of a chain of ANDs or ORs without parentheses."""
    links: list[exp.Expr] = []
    while type(node) is kind:
        links.append(node.args["expression"])
        node = node.this
    return [node, *reversed(links)]


def _constant(node: exp.Expr, span: Span) -> Literal:
    match node:
        case exp.Boolean():
            return Literal(bool(node.this), span)
        case exp.Null():
            return Literal(None, span)
        case exp.Interval():
            return Literal(_interval(node, span), span)
        case _:
            return Literal(node.name if node.is_string else parse_number(node.name, span), span)


def _interval(node: exp.Interval, span: Span) -> timedelta:
    amount, unit, to = node.this, node.args.get("unit"), None
    if isinstance(unit, exp.IntervalSpan):
        unit, to = unit.this, unit.expression.name
    if not isinstance(amount, exp.Literal):
        raise QueryError(
            "the length of an interval must be a constant",
            hint="multiply one: quantity * INTERVAL '1' MINUTE",
            span=span,
        )
    return parse_sql_interval(amount.name, unit.name if unit is not None else None, to, span)


def _negate(operand: Expr, span: Span) -> Expr:
    match operand:
        case In() | Between() | Like() | IsNull() if not operand.negated:
            return replace(operand, negated=True, span=span)
        case _:
            return Unary("not", operand, span)


def _truth(node: exp.Is, operand: Expr, span: Span) -> Expr:
    """Builds `x IS NULL` or `x IS TRUE`; NULL is neither true nor false."""
    match node.expression:
        case exp.Null():
            return IsNull(operand, False, span)
        case exp.Boolean(this=true):
            condition = operand if true else Unary("not", operand, span)
            return FunctionCall("coalesce", (condition, Literal(False, span)), span)
        case _:
            problem = "IS takes NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM"
            raise QueryError(problem, hint="compare by =", span=span)


def _like(node: exp.Expr, inner: Callable[[exp.Expr], Expr], span: Span) -> Expr:
    escape = None
    if isinstance(node, exp.Escape):
        escape, node = node.expression, node.this
    if not isinstance(node, exp.Like | exp.ILike):
        raise _build_unsupported_error(node, span)
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        raise QueryError(
            "the pattern of LIKE must be a string", hint="starts_with, ends_with and contains accept columns", span=span
        )
    text = pattern.name
    if escape is not None:
        if not (isinstance(escape, exp.Literal) and escape.is_string and len(escape.name) == 1):
            raise QueryError("ESCAPE takes one character", hint="as in ESCAPE '!'", span=span)
        text = _convert_escape(text, escape.name, span)
    negated = bool(node.args.get("negate"))
    if isinstance(node, exp.ILike):
        return build_ilike(inner(node.this), negated, text, span)
    return Like(inner(node.this), text, negated, span)


def _convert_escape(text: str, escape: str, span: Span) -> str:
    """Rewrites a LIKE pattern with its ESCAPE character to one with backslashes."""
    if escape == "\\":
        return text
    out, at = [], 0
    while at < len(text):
        if text[at] == escape:
            if text[at + 1 : at + 2] not in (escape, "%", "_"):
                raise QueryError(
                    f"'{escape}' must be followed by '%', '_' or '{escape}'",
                    hint=f"write {escape}{escape} for the character itself",
                    span=span,
                )
            at += 1
            out.append(text[at] if text[at] == escape != "\\" else f"\\{text[at]}")
        else:
            out.append("\\\\" if text[at] == "\\" else text[at])
        at += 1
    return "".join(out)


def _case(node: exp.Case, inner: Callable[[exp.Expr], Expr], span: Span) -> Expr:
    arguments: list[Expr] = []
    for branch in node.args["ifs"]:
        test = inner(branch.this)
        if node.this is not None:
            subject = inner(node.this)
            test = Binary("=", subject, test, subject.span)
        arguments += [test, inner(branch.args["true"])]
    default = node.args.get("default")
    arguments.append(inner(default) if default is not None else Literal(None, span))
    return _build_call("case", arguments, span)


def _cast(node: exp.Cast, inner: Callable[[exp.Expr], Expr], span: Span, explicit: bool) -> Expr:
    target = node.args["to"]
    type_name = target.this.name if isinstance(target, exp.DataType) else str(target)
    function = next((name for name, types in _CASTS.items() if type_name in types), None)
    if function is None:
        raise QueryError(
            f"casts to {type_name} are not supported",
            hint="you can cast to INTEGER, DOUBLE, VARCHAR, BOOLEAN, TIMESTAMP and DATE",
            span=span,
        )
    operand = node.this
    if function in _INSTANTS and not explicit and operand.is_string:  # DATE '2026-01-31'
        moment = Literal(parse_timestamp(function == "to_date", operand.name, span), span)
        return _build_call("to_date", (moment,), span) if function == "to_date" else moment
    converted = _build_call(function, (inner(operand),), span)
    if type_name != "DECIMAL" or not target.expressions:
        return converted
    scale = target.expressions[1].name if len(target.expressions) > 1 else "0"
    return _build_call("round", (converted, Literal(int(scale), span)), span)


def _function(node: exp.Expr, inner: Callable[[exp.Expr], Expr], span: Span) -> Expr:
    match node:
        case exp.Anonymous():
            name, arguments = node.name.lower(), tuple(map(inner, node.expressions))
            if name in ("if", "iff") and len(arguments) in (2, 3):
                return _build_call("case", (*arguments, Literal(None, span))[:3], span)
            if name == "mod" and len(arguments) == 2:
                return Binary("%", arguments[0], arguments[1], span)
            return rewrite_call(name, arguments, span) or _build_call(name, arguments, span)
        case exp.Extract():
            return build_extract(Literal(node.name, span), inner(node.expression), span)
        case exp.Substring():
            name = "substring"
            operands = [node.this, node.args.get("start"), node.args.get("length")]
        case exp.Trim():
            name = _TRIMS[str(node.args.get("position") or "").upper()]
            operands = [node.this, node.args.get("expression")]
        case exp.StrPosition():
            name, operands = "position", [node.this, node.args["substr"]]
        case _:
            raise _build_unsupported_error(node, span)
    return _build_call(name, [inner(operand) for operand in operands if operand is not None], span)


def _build_call(name: str, arguments: Sequence[Expr], span: Span) -> FunctionCall:
    """Builds a call, and checks the function's name and its number of arguments."""
    function = resolve_function_name(_SYNONYMS.get(name, name))
    record = FUNCTIONS.get(function)
    if record is None:
        known = [known_name for f in FUNCTIONS.values() for known_name in (f.name, *f.aliases)]
        names = [known_name for known_name in known if known_name.isidentifier()]
        raise QueryError(
            f"there is no function '{name}'", hint=suggest_function(name, names) or did_you_mean(name, names), span=span
        )
    if len(arguments) < record.least or (record.most is not None and len(arguments) > record.most):
        expected = describe_argument_count(record.least, record.most)
        raise QueryError(f"{name} takes {expected}, not {len(arguments)}", span=span)
    return FunctionCall(function, tuple(arguments), span)
