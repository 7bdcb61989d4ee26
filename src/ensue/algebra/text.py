"""Patterns, expressions, names and windows as people write them."""

import re
from dataclasses import replace
from datetime import datetime, timedelta

from ensue.algebra.chains import chain, links
from ensue.algebra.correlation import Range
from ensue.algebra.durations import is_unit, show_duration
from ensue.algebra.form import is_entry
from ensue.algebra.functions.choices import CASE
from ensue.algebra.functions.places import EARTH_LOCATION, LOCATION, WKT
from ensue.algebra.functions.zones import AT_TIME_ZONE
from ensue.algebra.pattern import (
    GROUPS,
    And,
    Apply,
    Atom,
    Interval,
    Kleene,
    Maybe,
    Not,
    Or,
    Pattern,
    Pause,
    Repeat,
    Seq,
    Then,
)
from ensue.algebra.policy import AfterMatch, InOrderOf, Strategy
from ensue.algebra.predicate import (
    COMPARISONS,
    MATCHES,
    Aggregate,
    At,
    Between,
    Binary,
    Call,
    Constant,
    Expr,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.algebra.query import Query, Returned, SortKey, WholeResult
from ensue.algebra.walk import rewrite_expr
from ensue.algebra.window import ByEvents, ByTime, ByUnits, Window
from ensue.schema import OneOf, Types

_NAME = re.compile(r"[^\W\d]\w*")
LOCATIONS = (LOCATION, EARTH_LOCATION)
_LONG_PLACE = re.compile(r"WKT '([^']{32})[^']{9,}'")
_RESERVED = re.compile(
    rf"{'|'.join(GROUPS)}|pattern|event|as|and|or|not|where|within\d*|after|return|having|is|in"
    r"|between|like|ilike|true|false|null|exists|case|cast|try_cast",
    re.IGNORECASE,
)

# Types that are called so would not be read as such behind THEN.
_READ_WITH_THEN = re.compile(
    r"(strict|partition|next|any|then|using|limit|choose|left|anti|join|from|range)\b",
    re.IGNORECASE,
)

# How tightly an expression holds together; an operand that is looser goes into brackets.
_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGNED, _VALUE = range(8)


def show_name(name: str) -> str:
    """A name, quoted if it would not be read as one.

    >>> print(show_name("price"), show_name("unit price"), show_name("and"))
    price "unit price" "and"
    """
    if _NAME.fullmatch(name) and not _RESERVED.fullmatch(name):
        return name
    return '"' + name.replace('"', '""') + '"'


def show_types(types: Types) -> str:
    """The types of events that a variable takes.

    >>> show_types("A"), show_types("any"), show_types(OneOf(("A", "B"))), show_types(OneOf())
    ('A', '"any"', '(A|B)', 'ANY')
    """
    match types:
        case str():
            return f'"{types}"' if types.upper() == "ANY" else show_name(types)
        case OneOf(names=()):
            return "ANY"
        case OneOf(names=names):
            return f"({'|'.join(map(show_types, names))})"


# ----------------------------------------------------------------------------------- patterns


def show_pattern(pattern: Pattern) -> str:
    """A pattern in functional form.

    >>> show_pattern(Seq((Kleene(Atom("Stock", "a"), 1, None), Not(Atom("Halt", "h")))))
    'SEQ(Stock+ a[], !Halt h)'
    """
    match pattern:
        case Atom(type=type_, variable=variable):
            return f"{show_types(type_)} {show_name(variable)}"
        case Kleene(atom=atom, inner=Strategy() as inner):
            again = show_word(inner, pattern.pause)
            return f"({show_pattern(atom)} {again}){_quantifier(pattern)}{_until(pattern)}"
        case Kleene(atom=atom):
            variable = show_name(atom.variable)
            return f"{show_types(atom.type)}{_quantifier(pattern)} {variable}[]{_until(pattern)}"
        case Repeat(part=part):
            shown = show_pattern(part)
            if pattern.inner is not None:
                again = show_word(pattern.inner, pattern.pause)
                return f"({shown} {again}){_quantifier(pattern)}{_until(pattern)}"
            grouped = shown if show_head(part) in GROUPS else f"({shown})"
            return f"{grouped}{_quantifier(pattern)}{_until(pattern)}"
        case Maybe(part=Atom(type=type_, variable=variable)):
            return f"{show_types(type_)}? {show_name(variable)}"
        case Maybe(part=part):
            return f"({show_pattern(part)})?"
        case Not(part=part, interval=interval):
            shown = f"!{show_pattern(part)}"
            return shown if interval is None else f"{shown} {show_interval(interval)}"
        case Seq(parts=parts):
            first, *others = map(_in_sequence, parts)
            return f"SEQ({first.removeprefix(', ')}{''.join(others)})" if parts else "SEQ()"
        case Then(part=part):
            shown = show_pattern(part)
            unit = isinstance(pattern.pause, ByUnits) and is_unit(shown.partition(" ")[0])
            apart = f"({shown})" if unit or _READ_WITH_THEN.match(shown) else shown
            return f"{show_head(pattern)} {apart}"
        case And(parts=parts):
            return f"AND({', '.join(map(show_pattern, parts))})"
        case Or(parts=parts):
            return f"OR({', '.join(map(show_pattern, parts))})"
        case Apply(operator=operator, inputs=inputs, parameters=parameters, variable=variable):
            inside = [*map(show_pattern, inputs), *(show_expr(p) for p in parameters)]
            return f"{show_name(operator.name)}({', '.join(inside)}) {show_name(variable)}"


def _in_sequence(part: Pattern) -> str:
    """A part behind others, with what stands between them."""
    return f" {show_pattern(part)}" if is_entry(part) else f", {show_pattern(part)}"


def show_interval(interval: Interval) -> str:
    """When an absence is: `FROM a.end TO a.end + 5`."""
    return f"FROM {show_expr(interval.after, _SUM)} TO {show_expr(interval.until, _SUM)}"


def show_head(pattern: Pattern) -> str:
    """A node without its parts, as drawings and messages call it; what stands alone, as it is."""
    match pattern:
        case Seq():
            return "SEQ"
        case And():
            return "AND"
        case Or():
            return "OR"
        case Not():
            return "NOT"
        case Maybe():
            return "?"
        case Repeat():
            return _quantifier(pattern)
        case Then(part=Not()):
            return "THEN"
        case Then(how=how, pause=pause):
            return show_word(how, pause)
        case Atom() | Kleene() | Apply():
            return show_pattern(pattern)


def show_word(how: Strategy, pause: Pause | None = None) -> str:
    """What stands between two parts.

    >>> show_word(Strategy.PARTITION), show_word(Strategy.ANY, ByUnits(5))
    ('THEN', 'THEN ANY WITHIN 5')
    """
    word = "THEN" if how is Strategy.PARTITION else f"THEN {how.name}"
    return word if pause is None else f"{word} WITHIN {show_window(pause)}"


def _until(loop: Kleene | Repeat) -> str:
    if loop.until is None:
        return ""
    shown = show_pattern(loop.until.part)
    word = _READ_WITH_THEN.match(shown)  # it would be read as what comes behind the loop
    return (
        f" UNTIL {shown}"
        if word is None or word[0] == "ANY"
        else f' UNTIL "{word[0]}"{shown[word.end() :]}'
    )


def _quantifier(loop: Kleene | Repeat) -> str:
    return _times(loop.least, loop.most) + loop.leave.value


def _times(least: int, most: int | None) -> str:
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


# ------------------------------------------------------------------------------------ clauses


def show_window(window: Window) -> str:
    """The length of a window.

    >>> show_window(ByTime(300_000_000_000)), show_window(ByEvents(20))
    ('5 minutes', '20 EVENTS')
    """
    match window:
        case ByTime(nanoseconds=length):
            return show_duration(length)
        case ByUnits(amount=amount):
            return repr(amount)
        case ByEvents(count=count):
            return f"{count} EVENTS"


def show_range(range_: Range) -> str:
    """Where in the past an archived match lies.

    >>> show_range(Range(ByUnits(30))), show_range(Range(ByUnits(30), near=ByUnits(1)))
    ('RANGE 30 BEFORE START', 'RANGE BETWEEN 30 AND 1 BEFORE START')
    """
    far, anchor = show_window(range_.far), range_.anchor.value
    if range_.near is None:
        return f"RANGE {far} BEFORE {anchor}"
    return f"RANGE BETWEEN {far} AND {show_window(range_.near)} BEFORE {anchor}"


def show_after(after: AfterMatch) -> str:
    """Where the next match begins, as it stands behind AFTER MATCH SKIP."""
    shown = after.to.value
    if after.variable is not None:
        shown += f" {show_name(after.variable)}"
    return shown if after.order is InOrderOf.END else f"{shown} IN ORDER OF {after.order.value}"


def show_columns(query: Query) -> list[str]:
    """What stands behind RETURN."""
    shown = [*(("EXISTS",) if query.exists else ()), *map(show_returned, query.returns)]
    if query.all_events:
        shown = [*shown[:-1], f"{shown[-1]} ALL EVENTS"] if shown else ["ALL EVENTS"]
    return shown


def show_returned(returned: Returned) -> str:
    """A column of RETURN, with AS where its name would be another."""
    if returned.every and returned.name == MATCHES:
        return "*"
    text = asked_text(returned)
    if returned.every:
        assert isinstance(returned.expr, Field)
        prefixed = returned.name != returned.expr.variable
        return f"{text}.*" + (f" AS {show_name(returned.name)}" if prefixed else "")
    name = text if returned.over is not None else default_name(returned.expr)
    if returned.name in (name, ""):
        return text
    return f"{text} AS {show_name(returned.name)}"


def asked_text(returned: Returned) -> str:
    """A column of RETURN without its name."""
    if returned.over is None:
        return show_expr(returned.expr)
    if returned.expr == Literal(True):
        return "COUNT(*)"
    return show_expr(replace(returned.over, argument=returned.expr))


def show_whole(whole: WholeResult) -> list[str]:
    """GROUP BY, ORDER BY and the first rows, a clause a line; TOTAL stands behind RETURN."""
    lines = []
    if whole.keys:
        lines.append(f"GROUP BY {', '.join(map(show_expr, whole.keys))}")
    if whole.order:
        lines.append(f"ORDER BY {', '.join(map(show_sort_key, whole.order))}")
    if whole.first is not None:
        lines.append(f"FETCH FIRST {whole.first} ROWS ONLY")
    return lines


def show_sort_key(key: SortKey) -> str:
    """What rows are ordered by, and how."""
    text = show_expr(key.expr) + (" DESC" if key.descending else "")
    return f"{text} NULLS FIRST" if key.nulls_first else text


def default_name(expr: Expr) -> str:
    """The column that `RETURN expr` gives without AS.

    >>> default_name(Field("a", "price")), default_name(Aggregate("count", "a", None))
    ('price', 'count(a)')
    """
    if isinstance(expr, Field):
        return expr.name if expr.name is not None else expr.variable
    return show_expr(expr)


# -------------------------------------------------------------------------------- expressions


def show_expr(expr: Expr, inside: int = _OR) -> str:
    """An expression; `inside` is how tightly what is around it holds.

    >>> show_expr(Binary("*", Binary("+", Field("a", "x"), Literal(1)), Literal(0.5)))
    '(a.x + 1) * 0.5'
    """
    text, tightness = _shown(expr)
    return f"({text})" if tightness < inside else text


def show_condition(condition: Expr) -> str:
    """A condition as it stands among others that are joined by `and`.

    >>> show_condition(Binary("or", Field("a", "x"), Field("a", "y")))
    '(a.x or a.y)'
    """
    return show_expr(condition, _NOT)


def shortened(text: str) -> str:
    """A text for people to read: of a long WKT no more than its beginning.

    >>> shortened("inside(a.location, WKT 'POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))')")
    "inside(a.location, WKT 'POLYGON ((0 0, 10 0, 10 10, 0 10...')"
    """
    return _LONG_PLACE.sub(r"WKT '\1...'", text)


def _shown(expr: Expr) -> tuple[str, int]:
    match expr:
        case Literal(value=value):
            return _constant(value)
        case Field(variable=variable, name=name):
            field = "" if name is None else f".{show_name(name)}"
            return f"{show_name(variable)}{_index(expr)}{field}", _VALUE
        case Aggregate():
            return _aggregate(expr), _VALUE
        case Unary(operator="not", operand=operand):
            return f"not {show_expr(operand, _NOT)}", _NOT
        case Unary(operator=operator, operand=operand):
            text = show_expr(operand, _SIGNED)
            # Two signs without a blank would begin a comment.
            return f"{operator}{' ' if text.startswith('-') else ''}{text}", _SIGNED
        case Binary(operator="and" | "or" as operator):
            return _chained(operator, expr), _OR if operator == "or" else _AND
        case Binary(operator=operator, left=left, right=right):
            return _infix(operator, left, right)
        case IsNull(operand=operand, negated=negated):
            return f"{show_expr(operand, _SUM)} is {_not(negated)}null", _COMPARISON
        case In(operand=operand, options=options, negated=negated):
            inside = ", ".join(show_expr(option) for option in options)
            return f"{show_expr(operand, _SUM)} {_not(negated)}in ({inside})", _COMPARISON
        case Between(operand=operand, low=low, high=high, negated=negated):
            bounds = f"{show_expr(low, _SUM)} and {show_expr(high, _SUM)}"
            return f"{show_expr(operand, _SUM)} {_not(negated)}between {bounds}", _COMPARISON
        case Like(operand=operand, pattern=pattern, negated=negated):
            text = f"{_not(negated)}like {_quoted(pattern)}"
            return f"{show_expr(operand, _SUM)} {text}", _COMPARISON
        case Call(function=function, arguments=(Literal(value=str(text)),)) if function == WKT:
            return f"WKT {_quoted(text)}", _VALUE
        case Call(function=function, arguments=(Field() as field, *_)) if function in LOCATIONS:
            return show_expr(replace(field, name="location")), _VALUE
        case Call(function=function, arguments=(_, _, *_) as arguments) if function == CASE:
            return _cases(arguments), _VALUE
        case Call(function=function, arguments=(time, Literal(value=str(zone)))) if (
            function == AT_TIME_ZONE
        ):
            return f"{show_expr(time, _VALUE)} AT TIME ZONE {_quoted(zone)}", _VALUE
        case Call(function=function, arguments=arguments):
            return f"{function}({', '.join(map(show_expr, arguments))})", _VALUE


def _not(negated: bool) -> str:
    return "not " if negated else ""


def _cases(arguments: tuple[Expr, ...]) -> str:
    """Conditions and values in turn, and at the end what else there is."""
    shown = [show_expr(argument) for argument in arguments]
    pairs = zip(shown[::2], shown[1::2], strict=False)
    text = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
    return f"CASE {text} {f'ELSE {shown[-1]} ' if len(shown) % 2 else ''}END"


def _chained(operator: str, expr: Binary) -> str:
    """A chain without brackets if it reads back as the same tree, else with them."""
    tightness = _OR if operator == "or" else _AND
    operands = links(operator, expr)
    if chain(operator, operands) != expr:
        operands = [expr.left, expr.right]
    return f" {operator} ".join(show_expr(operand, tightness + 1) for operand in operands)


def _infix(operator: str, left: Expr, right: Expr) -> tuple[str, int]:
    if operator in COMPARISONS:
        return f"{show_expr(left, _SUM)} {operator} {show_expr(right, _SUM)}", _COMPARISON
    tightness = _SUM if operator in ("+", "-", "||") else _PRODUCT
    return f"{show_expr(left, tightness)} {operator} {show_expr(right, tightness + 1)}", tightness


def _index(field: Field) -> str:
    match field.at:
        case At.ONLY:
            return ""
        case At.NTH:
            return f"[{field.nth}]"
        case At.LAST:
            return f"[{show_name(field.variable)}.LEN]"
        case At.CURRENT:
            return "[i]"
        case At.PREVIOUS:
            return "[i-1]"
        case At.BEFORE:
            return "[..i-1]"
        case At.THROUGH:
            return "[..i]"
        case At.ALL:
            return "[]"


def _aggregate(aggregate: Aggregate) -> str:
    if aggregate.variable == MATCHES:
        return "count(*)"
    argument = aggregate.argument or Field(aggregate.variable, None, aggregate.at)
    text = show_expr(rewrite_expr(argument, _unmarked))
    if aggregate.function == "count_distinct":
        return f"count(DISTINCT {text})"
    match aggregate.parameter:
        case str() as separator:
            text += f", {show_expr(Literal(separator))}"
        case float() as percent:
            text += f", {int(percent) if percent.is_integer() else repr(percent)}"
        case _:
            pass
    return f"{aggregate.function}({text})"


def _unmarked(expr: Expr) -> Expr:
    """`a.price` for `a[].price`: inside an aggregate it means all events anyway."""
    if isinstance(expr, Field) and expr.at is At.ALL:
        return replace(expr, at=At.ONLY)
    return expr


def _constant(value: Constant) -> tuple[str, int]:
    match value:
        case None:
            return "null", _VALUE
        case bool():
            return str(value).lower(), _VALUE
        case int() | float():
            text = repr(value)
        case str():
            return _quoted(value), _VALUE
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'", _VALUE
        case timedelta():
            text = show_duration(value // timedelta(microseconds=1) * 1000)
    return text, _SIGNED if text.startswith("-") else _VALUE


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
