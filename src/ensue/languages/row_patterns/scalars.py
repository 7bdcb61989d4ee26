"""Syntax trees of sqlglot to expressions of the algebra: all but what looks at rows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from sqlglot import exp

from ensue.algebra.chains import chain
from ensue.algebra.functions import FUNCTIONS, name_of
from ensue.algebra.functions.foreign import instead_of
from ensue.algebra.predicate import (
    Between,
    Binary,
    Call,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.errors import QueryError, did_you_mean
from ensue.languages.function_calls import form_of, part_of
from ensue.languages.row_patterns.constants import instant, interval, number
from ensue.languages.row_patterns.dialect import too_deep
from ensue.languages.row_patterns.tokens import Tokens
from ensue.span import Span

_DEEPEST = 200  # levels of an expression: what follows walks trees recursively

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.DPipe: "||",
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
# The function that each type of SQL is a cast by.
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
_REFUSED: dict[type[exp.Expr], tuple[str, str | None]] = {
    exp.Window: (
        "window functions are not supported in MATCH_RECOGNIZE",
        "aggregate over a variable: sum(A.price); or look at a row: PREV(price)",
    ),
    exp.Subquery: (
        "subqueries are not supported in MATCH_RECOGNIZE",
        "join what you need first, in the FROM clause",
    ),
    exp.Exists: (
        "subqueries are not supported in MATCH_RECOGNIZE",
        "join what you need first, in the FROM clause",
    ),
    exp.Lambda: ("functions of functions are not supported", None),
    exp.Placeholder: ("parameters have names", "write :low, and give it a value"),
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


class Place:
    """Where the nodes of a syntax tree stand in the whole text.

    sqlglot tells it of names, calls and constants; others stand where what is in them does.
    """

    def __init__(self, tree: exp.Expr, tokens: Tokens, whole: Span) -> None:
        self.whole = whole  # what is read
        self._tokens = tokens
        self._spans: dict[int, Span] = {}
        for node in reversed(list(tree.dfs())):  # those inside come first
            if "start" in node.meta:
                self._spans[id(node)] = self._told(node)
            if node.parent is not None and id(node) in self._spans:
                inside = self._spans[id(node)]
                self._spans[id(node.parent)] = inside.to(self._spans.get(id(node.parent)))

    def span(self, node: exp.Expr) -> Span:
        return self._spans.get(id(node), self.whole)

    def _told(self, node: exp.Expr) -> Span:
        start, end = node.meta["start"], node.meta["end"] + 1
        called = isinstance(node, exp.Func) and not isinstance(node, exp.Case)
        offset = self.whole.start
        return Span(start + offset, self._closed(end + offset) if called else end + offset)

    def _closed(self, end: int) -> int:
        """Where the call ends whose name ends here: blanks may stand before its parenthesis."""
        text, closing = self._tokens.text, self._tokens.closing
        opened = text.find("(", end)
        while opened not in closing:  # it stands in a comment
            opened = text.find("(", opened + 1)
        return closing[opened] + 1


# What looks at rows: a column, a function of row patterns. None: it is neither.
Leaves = Callable[[exp.Expr, Span], Expr | None]


def expression_of(node: exp.Expr, place: Place, leaves: Leaves, depth: int = 0) -> Expr:
    """The expression that a syntax tree stands for."""
    span = place.span(node)
    if depth > _DEEPEST:
        raise too_deep(span)
    found = leaves(node, span)
    if found is not None:
        return found

    def inner(child: exp.Expr) -> Expr:
        return expression_of(child, place, leaves, depth + 1)

    match node:
        case exp.Paren():
            return expression_of(node.this, place, leaves, depth + 1)
        case exp.Literal() | exp.Boolean() | exp.Null() | exp.Interval():
            return _constant(node, span)
        case exp.And() | exp.Or():
            operator, kind = ("and", exp.And) if isinstance(node, exp.And) else ("or", exp.Or)
            return chain(operator, [inner(link) for link in _links(node, kind)])
        case exp.Neg():
            return Unary("-", inner(node.this), span)
        case exp.Not():
            return _inverted(inner(node.this), span)
        case exp.Is():
            return _truth(node, inner(node.this), span)
        case exp.NullSafeNEQ():
            return _distinct(inner(node.this), inner(node.expression), span)
        case exp.NullSafeEQ():
            return Unary("not", _distinct(inner(node.this), inner(node.expression), span), span)
        case exp.In() if node.args.get("query") is not None:
            raise _refused(node.args["query"], span)
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
            return called("at_time_zone", (inner(node.this), inner(node.args["zone"])), span)
        case exp.Binary() if type(node) in _BINARY:
            return Binary(_BINARY[type(node)], inner(node.this), inner(node.expression), span)
        case exp.Exists():
            raise _refused(node, place.whole)
        case exp.Func():
            return _function(node, inner, span)
        case _:
            raise _refused(node, place.whole if isinstance(node, exp.Subquery) else span)


def _refused(node: exp.Expr, span: Span) -> QueryError:
    for kind, (problem, hint) in _REFUSED.items():
        if isinstance(node, kind):
            return QueryError(problem, hint=hint, span=span)
    return QueryError("this expression is not supported here", span=span)


def _links(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The parts of a chain of ANDs or ORs that is written without parentheses."""
    links: list[exp.Expr] = []
    while type(node) is kind:
        links.append(node.args["expression"])
        node = node.this
    return [node, *reversed(links)]


# ---------------------------------------------------------------------------------- constants


def _constant(node: exp.Expr, span: Span) -> Literal:
    match node:
        case exp.Boolean():
            return Literal(bool(node.this), span)
        case exp.Null():
            return Literal(None, span)
        case exp.Interval():
            return Literal(_interval(node, span), span)
        case _:
            return Literal(node.name if node.is_string else number(node.name, span), span)


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
    return interval(amount.name, unit.name if unit is not None else None, to, span)


# --------------------------------------------------------------------------------- conditions


def _inverted(operand: Expr, span: Span) -> Expr:
    match operand:
        case In(negated=False) | Between(negated=False) | Like(negated=False):
            return replace(operand, negated=True, span=span)
        case IsNull(negated=False):
            return replace(operand, negated=True, span=span)
        case _:
            return Unary("not", operand, span)


def _truth(node: exp.Is, operand: Expr, span: Span) -> Expr:
    """`x IS NULL`, `x IS TRUE`: a NULL is neither true nor false."""
    match node.expression:
        case exp.Null():
            return IsNull(operand, False, span)
        case exp.Boolean(this=True):
            return Call("coalesce", (operand, Literal(False, span)), span)
        case exp.Boolean():
            turned = Unary("not", operand, span)
            return Call("coalesce", (turned, Literal(False, span)), span)
        case _:
            raise QueryError(
                "IS takes NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM",
                hint="compare by =",
                span=span,
            )


def _distinct(left: Expr, right: Expr, span: Span) -> Expr:
    """`x IS DISTINCT FROM y`: two NULLs are not, a NULL and a value are."""
    if "is_distinct" in FUNCTIONS:
        return called("is_distinct", (left, right), span)
    one_null = Binary("!=", IsNull(left, False, span), IsNull(right, False, span), span)
    other = Call("coalesce", (Binary("!=", left, right, span), Literal(False, span)), span)
    return Binary("or", one_null, other, span)


def _like(node: exp.Expr, inner: Callable[[exp.Expr], Expr], span: Span) -> Expr:
    escape = None
    if isinstance(node, exp.Escape):
        escape, node = node.expression, node.this
    if not isinstance(node, exp.Like | exp.ILike):
        raise _refused(node, span)
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        raise QueryError(
            "the pattern of LIKE must be a string",
            hint="starts_with, ends_with and contains accept columns",
            span=span,
        )
    text = pattern.name
    if escape is not None:
        if not (isinstance(escape, exp.Literal) and escape.is_string and len(escape.name) == 1):
            raise QueryError("ESCAPE takes one character", hint="as in ESCAPE '!'", span=span)
        text = _escaped(text, escape.name, span)
    negated = bool(node.args.get("negate"))
    if isinstance(node, exp.ILike):
        return Like(Call("lower", (inner(node.this),), span), text.lower(), negated, span)
    return Like(inner(node.this), text, negated, span)


def _escaped(text: str, escape: str, span: Span) -> str:
    """A pattern whose escape is another, with the one that is always understood: a backslash."""
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


# ---------------------------------------------------------------------------------- functions


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
    return called("case", arguments, span)


def _cast(node: exp.Cast, inner: Callable[[exp.Expr], Expr], span: Span, explicit: bool) -> Expr:
    wanted = node.args["to"]
    written = wanted.this.name if isinstance(wanted, exp.DataType) else str(wanted)
    function = next((name for name, types in _CASTS.items() if written in types), None)
    if function is None:
        raise QueryError(
            f"casts to {written} are not supported",
            hint="you can cast to INTEGER, DOUBLE, VARCHAR, BOOLEAN, TIMESTAMP and DATE",
            span=span,
        )
    operand = node.this
    if function in _INSTANTS and not explicit and operand.is_string:  # DATE '2026-01-31'
        moment = Literal(instant(function == "to_date", operand.name, span), span)
        return called("to_date", (moment,), span) if function == "to_date" else moment
    found = called(function, (inner(operand),), span)
    if written != "DECIMAL" or not wanted.expressions:
        return found
    scale = wanted.expressions[1].name if len(wanted.expressions) > 1 else "0"
    return called("round", (found, Literal(int(scale), span)), span)


def _function(node: exp.Expr, inner: Callable[[exp.Expr], Expr], span: Span) -> Expr:
    match node:
        case exp.Anonymous():
            name, arguments = node.name.lower(), tuple(map(inner, node.expressions))
            if name in ("if", "iff") and len(arguments) in (2, 3):
                return called("case", (*arguments, Literal(None, span))[:3], span)
            if name == "mod" and len(arguments) == 2:
                return Binary("%", arguments[0], arguments[1], span)
            return form_of(name, arguments, span) or called(name, arguments, span)
        case exp.Extract():
            part = Literal(node.name, span)
            return part_of(part, inner(node.expression), span)
        case exp.Substring():
            given = (node.this, node.args.get("start"), node.args.get("length"))
            return called("substring", [inner(part) for part in given if part is not None], span)
        case exp.Trim():
            given = (node.this, node.args.get("expression"), None)
            name = _TRIMS[str(node.args.get("position") or "").upper()]
            return called(name, [inner(part) for part in given if part is not None], span)
        case exp.StrPosition():
            return called("position", (inner(node.this), inner(node.args["substr"])), span)
        case _:
            raise _refused(node, span)


def called(written: str, arguments: Sequence[Expr], span: Span) -> Call:
    """A call of a function that there is, with as many arguments as it takes."""
    function = name_of(_SYNONYMS.get(written, written))
    record = FUNCTIONS.get(function)
    if record is None:
        known = [name for f in FUNCTIONS.values() for name in (f.name, *f.aliases)]
        names = [name for name in known if name.isidentifier()]
        raise QueryError(
            f"there is no function '{written}'",
            hint=instead_of(written, names) or did_you_mean(written, names),
            span=span,
        )
    if len(arguments) < record.least or (record.most is not None and len(arguments) > record.most):
        raise QueryError(
            f"{written} takes {counted(record.least, record.most)}, not {len(arguments)}",
            span=span,
        )
    return Call(function, tuple(arguments), span)


def counted(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more arguments"
    if least == most:
        return f"{least} argument" if least == 1 else f"{least} arguments"
    return f"{least} to {most} arguments"
