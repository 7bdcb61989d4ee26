"""The text that saved states know a query by: it stays as it is while the code around it changes.

Version 1 spells nodes as their `repr` did when states were first saved; hence its looks. It is
written out here, name by name, so that it no longer depends on what classes, fields or constants
are called, in which order they stand, and how they are described. Equal texts mean equal
queries, also where Python calls values equal that are not the same: 1, 1.0, TRUE.

A new node gets a case of its own (the type checker asks for it); a new field is written only where
it is not at its default, so that the texts of queries without it stay.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TypeVar

from ensue.algebra.correlation import Anchor, AnySide, ArchiveJoin, Correlation, JoinKind, Range
from ensue.algebra.operator import Operator
from ensue.algebra.pattern import (
    And,
    Apply,
    Atom,
    Interval,
    Kleene,
    Leave,
    Maybe,
    Not,
    Or,
    Pattern,
    Pause,
    Reading,
    Repeat,
    Seq,
    Then,
)
from ensue.algebra.policy import AfterMatch, Choice, InOrderOf, SkipTo, Strategy
from ensue.algebra.predicate import (
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
from ensue.algebra.query import Equivalence, Limit, Query, Returned
from ensue.algebra.text import show_whole
from ensue.algebra.window import ByEvents, ByTime, ByUnits, Window
from ensue.schema import Kind, OneOf, Types

Item = TypeVar("Item")


def query_text(query: Query) -> str:
    """A whole query.

    >>> query_text(Query(Atom("A", "a"), within=ByUnits(5)))  # doctest: +ELLIPSIS
    "Query(pattern=Atom(type='A', variable='a'), name=None, strategy=<Strategy.ANY: ...>, ..."
    """
    text = node_text(
        "Query",
        pattern=pattern_text(query.pattern),
        name=plain(query.name),
        strategy=_strategy(query.strategy),
        where=tuple_text(expr_text, query.where),
        equivalence=tuple_text(_equivalence, query.equivalence),
        within="None" if query.within is None else window_text(query.within),
        after=optional(_after, query.after),
        returns=tuple_text(_returned, query.returns),
        having="None" if query.having is None else expr_text(query.having),
    )
    if query.exists or query.limit is not None:
        text += f" exists={query.exists} limit={optional(_limit, query.limit)}"
    if query.choose is not None:
        text += f" choose={_choice(query.choose.choice)}"
    if query.unfinished:
        text += " unfinished=True"
    if query.all_events:
        text += " all_events=True"
    if query.whole is not None:
        text += f" whole={tuple(show_whole(query.whole))!r}"
    return text


def _equivalence(equivalence: Equivalence) -> str:
    return node_text("Equivalence", field_name=plain(equivalence.field_name))


def _returned(returned: Returned) -> str:
    text = node_text("Returned", expr=expr_text(returned.expr), name=plain(returned.name))
    if returned.over is not None:
        text += f" over={expr_text(returned.over)}"
    return f"{text}.*" if returned.every else text


def _choice(choice: Choice) -> str:
    match choice:
        case Choice.LATEST:
            return "<Choice.LATEST: 'LATEST'>"
        case Choice.ONCE:
            return "<Choice.ONCE: 'ONCE'>"


def _limit(limit: Limit) -> str:
    return node_text("Limit", count=plain(limit.count))


# ---- a stream and its past


def correlation_text(correlation: Correlation) -> str:
    """A whole correlation.

    >>> correlation_text(Correlation(Query(Atom("A", "a")), ()))  # doctest: +ELLIPSIS
    "Correlation(live=Query(pattern=Atom(type='A', variable='a'), ...), joins=(), returns=(), ..."
    """
    return node_text(
        "Correlation",
        live=_side_text(correlation.live),
        joins=tuple_text(_join, correlation.joins),
        returns=tuple_text(_returned, correlation.returns),
        having="None" if correlation.having is None else expr_text(correlation.having),
        limit=optional(_limit, correlation.limit),
    )


def _side_text(side: AnySide) -> str:
    assert isinstance(side, Query), "clauses of SQL have a text of their own"
    return query_text(side)


def _join(join: ArchiveJoin) -> str:
    return node_text(
        "ArchiveJoin",
        archive=plain(join.archive),
        query=_side_text(join.query),
        range=_range(join.range),
        on=tuple_text(expr_text, join.on),
        equivalence=tuple_text(_equivalence, join.equivalence),
        last=plain(join.last),
        kind=_join_kind(join.kind),
    )


def _range(range_: Range) -> str:
    return node_text(
        "Range",
        far=window_text(range_.far),
        anchor=_anchor(range_.anchor),
        near="None" if range_.near is None else window_text(range_.near),
    )


def _anchor(anchor: Anchor) -> str:
    match anchor:
        case Anchor.START:
            return "<Anchor.START: 'START'>"
        case Anchor.END:
            return "<Anchor.END: 'END'>"


def _join_kind(kind: JoinKind) -> str:
    match kind:
        case JoinKind.INNER:
            return "<JoinKind.INNER: 'JOIN'>"
        case JoinKind.LEFT:
            return "<JoinKind.LEFT: 'LEFT JOIN'>"
        case JoinKind.ANTI:
            return "<JoinKind.ANTI: 'ANTI JOIN'>"


# ---- patterns


def pattern_text(pattern: Pattern) -> str:
    """A pattern, or a part of one."""
    match pattern:
        case Atom(type=type, variable=variable):
            return node_text("Atom", type=_types(type), variable=plain(variable))
        case Kleene(atom=atom, least=least, most=most):
            return node_text(
                "Kleene",
                atom=pattern_text(atom),
                least=plain(least),
                most=plain(most),
                **_leave(pattern.leave),
                **_inner(pattern.inner),
                **_pause(pattern.pause),
                **_until(pattern.until),
            )
        case Repeat(part=part, least=least, most=most):
            return node_text(
                "Repeat",
                part=pattern_text(part),
                least=plain(least),
                most=plain(most),
                **_leave(pattern.leave),
                **_inner(pattern.inner),
                **_pause(pattern.pause),
                **_until(pattern.until),
            )
        case Maybe(part=part):
            return node_text("Maybe", part=pattern_text(part))
        case Seq(parts=parts):
            return node_text("Seq", parts=tuple_text(pattern_text, parts))
        case Then(part=part, how=how):
            return node_text(
                "Then", part=pattern_text(part), how=_strategy(how), **_pause(pattern.pause)
            )
        case And(parts=parts):
            return node_text("And", parts=tuple_text(pattern_text, parts))
        case Or(parts=parts):
            return node_text("Or", parts=tuple_text(pattern_text, parts))
        case Not(part=part, interval=interval):
            ends = {} if interval is None else _ends(interval)
            return node_text("Not", part=pattern_text(part), **ends)
        case Apply():
            return node_text(
                "Apply",
                operator=_operator(pattern.operator),
                inputs=tuple_text(pattern_text, pattern.inputs),
                parameters=tuple_text(expr_text, pattern.parameters),
                variable=plain(pattern.variable),
                reads=tuple_text(lambda side: tuple_text(_reading, side), pattern.reads),
                time=optional(kind_text, pattern.time),
                tick=plain(pattern.tick),
            )


def _types(types: Types) -> str:
    match types:
        case str():
            return plain(types)
        case OneOf(names=names):
            return node_text("OneOf", names=tuple_text(plain, names))


def _leave(leave: Leave) -> dict[str, str]:
    match leave:
        case Leave.FORK:
            return {}
        case Leave.GREEDY:
            return {"leave": "'greedy'"}
        case Leave.RELUCTANT:
            return {"leave": "'reluctant'"}


def _inner(inner: Strategy | None) -> dict[str, str]:
    return {} if inner is None else {"inner": _strategy(inner)}


def _pause(pause: Pause | None) -> dict[str, str]:
    return {} if pause is None else {"pause": window_text(pause)}


def _until(until: Not | None) -> dict[str, str]:
    return {} if until is None else {"until": pattern_text(until)}


def _ends(interval: Interval) -> dict[str, str]:
    return {"after": expr_text(interval.after), "until": expr_text(interval.until)}


def _operator(operator: Operator) -> str:
    """A user's operator is what its functions are: their fingerprint says when they change."""
    return f"Operator({plain(operator.name)}, {plain(operator.fingerprint)})"


def _reading(reading: Reading) -> str:
    return node_text(
        "Reading",
        field=plain(reading.field),
        column=plain(reading.column),
        kind=kind_text(reading.kind),
    )


def window_text(window: Window) -> str:
    """The window of a query."""
    match window:
        case ByTime(nanoseconds=nanoseconds):
            return node_text("ByTime", nanoseconds=plain(nanoseconds))
        case ByUnits(amount=amount):
            return node_text("ByUnits", amount=plain(amount))
        case ByEvents(count=count):
            return node_text("ByEvents", count=plain(count))


def _strategy(strategy: Strategy) -> str:
    match strategy:
        case Strategy.ANY:
            return "<Strategy.ANY: 'skip_till_any_match'>"
        case Strategy.NEXT:
            return "<Strategy.NEXT: 'skip_till_next_match'>"
        case Strategy.PARTITION:
            return "<Strategy.PARTITION: 'partition_contiguity'>"
        case Strategy.STRICT:
            return "<Strategy.STRICT: 'strict_contiguity'>"


def _after(after: AfterMatch) -> str:
    order = {} if after.order is InOrderOf.END else {"order": "'start'"}
    return node_text("AfterMatch", to=_skip_to(after.to), variable=plain(after.variable), **order)


def _skip_to(to: SkipTo) -> str:
    match to:
        case SkipTo.NEXT_EVENT:
            return "<SkipTo.NEXT_EVENT: 'TO NEXT EVENT'>"
        case SkipTo.PAST_LAST:
            return "<SkipTo.PAST_LAST: 'PAST LAST EVENT'>"
        case SkipTo.FIRST:
            return "<SkipTo.FIRST: 'TO FIRST'>"
        case SkipTo.LAST:
            return "<SkipTo.LAST: 'TO LAST'>"


# ---- expressions


def expr_text(expr: Expr) -> str:
    """An expression.

    >>> expr_text(Unary("-", Literal(1)))
    "Unary(operator='-', operand=Literal(value=1))"
    """
    match expr:
        case Literal(value=value):
            return node_text("Literal", value=_constant(value))
        case Field(variable=variable, name=name, at=at, nth=nth):
            return node_text(
                "Field", variable=plain(variable), name=plain(name), at=_at(at), nth=plain(nth)
            )
        case Aggregate():
            return node_text(
                "Aggregate",
                function=plain(expr.function),
                variable=plain(expr.variable),
                argument="None" if expr.argument is None else expr_text(expr.argument),
                at=_at(expr.at),
                parameter=plain(expr.parameter),
            )
        case Unary(operator=operator, operand=operand):
            return node_text("Unary", operator=plain(operator), operand=expr_text(operand))
        case Binary(operator=operator, left=left, right=right):
            return node_text(
                "Binary", operator=plain(operator), left=expr_text(left), right=expr_text(right)
            )
        case IsNull(operand=operand, negated=negated):
            return node_text("IsNull", operand=expr_text(operand), negated=plain(negated))
        case In(operand=operand, options=options, negated=negated):
            return node_text(
                "In",
                operand=expr_text(operand),
                options=tuple_text(expr_text, options),
                negated=plain(negated),
            )
        case Between(operand=operand, low=low, high=high, negated=negated):
            return node_text(
                "Between",
                operand=expr_text(operand),
                low=expr_text(low),
                high=expr_text(high),
                negated=plain(negated),
            )
        case Like(operand=operand, pattern=pattern, negated=negated):
            return node_text(
                "Like", operand=expr_text(operand), pattern=plain(pattern), negated=plain(negated)
            )
        case Call(function=function, arguments=arguments):
            return node_text(
                "Call", function=plain(function), arguments=tuple_text(expr_text, arguments)
            )


def _at(at: At) -> str:
    match at:
        case At.ONLY:
            return "<At.ONLY: 'the event of a plain variable: a.price'>"
        case At.NTH:
            return "<At.NTH: 'the n-th event of a Kleene variable: a[1].price'>"
        case At.LAST:
            return "<At.LAST: 'its last event: a[a.LEN].price'>"
        case At.CURRENT:
            return "<At.CURRENT: 'each event in turn: a[i].price'>"
        case At.PREVIOUS:
            return "<At.PREVIOUS: 'the one before the current: a[i-1].price'>"
        case At.BEFORE:
            return "<At.BEFORE: 'all before the current, in an aggregate: avg(a[..i-1].price)'>"
        case At.THROUGH:
            return "<At.THROUGH: 'all up to the current, in an aggregate: avg(a[..i].price)'>"
        case At.ALL:
            return "<At.ALL: 'all of them: avg(a.price), avg(a[].price)'>"


def _constant(value: Constant) -> str:
    match value:
        case datetime() | timedelta():
            return repr(value)
        case _:
            return plain(value)


# ---- what all of them are made of


def kind_text(kind: Kind) -> str:
    match kind:
        case Kind.INTEGER:
            return "<Kind.INTEGER: 'integer'>"
        case Kind.FLOAT:
            return "<Kind.FLOAT: 'float'>"
        case Kind.DECIMAL:
            return "<Kind.DECIMAL: 'decimal'>"
        case Kind.BOOLEAN:
            return "<Kind.BOOLEAN: 'boolean'>"
        case Kind.STRING:
            return "<Kind.STRING: 'string'>"
        case Kind.TIMESTAMP:
            return "<Kind.TIMESTAMP: 'timestamp'>"
        case Kind.DATE:
            return "<Kind.DATE: 'date'>"
        case Kind.DURATION:
            return "<Kind.DURATION: 'duration'>"
        case Kind.PLACE:
            return "<Kind.PLACE: 'place'>"
        case Kind.OTHER:
            return "<Kind.OTHER: 'other'>"
        case Kind.NULL:
            return "<Kind.NULL: 'null'>"


def plain(value: bool | int | float | str | None) -> str:
    """A value of Python's own, whose spelling is Python's."""
    return repr(value)


def node_text(name: str, /, **fields: str) -> str:
    """A node by its name in the text, and its fields, which are texts already.

    >>> node_text("Limit", count="3")
    'Limit(count=3)'
    """
    return f"{name}({', '.join(f'{field}={text}' for field, text in fields.items())})"


def optional(text: Callable[[Item], str], value: Item | None) -> str:
    """The text of something that may be missing."""
    return "None" if value is None else text(value)


def tuple_text(text: Callable[[Item], str], items: Iterable[Item]) -> str:
    """Several things in their order.

    >>> tuple_text(str, [1]), tuple_text(str, [1, 2])
    ('(1,)', '(1, 2)')
    """
    found = [text(item) for item in items]
    return f"({found[0]},)" if len(found) == 1 else f"({', '.join(found)})"
