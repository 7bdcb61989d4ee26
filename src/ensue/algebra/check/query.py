"""Resolves the names and kinds of a query, or says what is wrong and how to mend it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ensue.algebra.answers import check_answer, check_choice, check_lapses
from ensue.algebra.check.applied import check_operators, resolved, result_types
from ensue.algebra.check.arrangement import (
    always_paused,
    check_arrangement,
    check_guards,
    open_ended,
)
from ensue.algebra.check.kinds import comparable, kind_of
from ensue.algebra.check.places import placed, refuse_list
from ensue.algebra.check.stars import fields_by, with_fields, with_variables
from ensue.algebra.check.usage import (
    Roles,
    in_having,
    in_interval,
    in_return,
    in_returns,
    in_where,
    roles_of,
)
from ensue.algebra.check.whole_results import check_labels, checked_whole
from ensue.algebra.check.zones import in_zones
from ensue.algebra.equivalence import (
    equal_through_negation,
    keys_by_equality,
    partitioning,
    with_equivalence,
)
from ensue.algebra.form import is_event, is_lapse, is_result, parts
from ensue.algebra.lapses import interval_ends, lapses, with_interval_ends
from ensue.algebra.lives import derived_window, looks_as_far
from ensue.algebra.pattern import Pattern
from ensue.algebra.policy import Choice, Strategy
from ensue.algebra.predicate import Expr, Field, Literal
from ensue.algebra.query import Equivalence, Query, Returned
from ensue.algebra.walk import atoms, conjuncts, kleenes, pauses, rewrite_expr
from ensue.algebra.window import ByEvents, ByTime, ByUnits, Window
from ensue.errors import QueryError, did_you_mean
from ensue.schema import EventType, Kind, Schema, names_of


def check_structure(query: Query) -> Query:
    """The query in its normal form, as far as that needs no schema.

    Conjuncts are split, aggregates are over ALL of a Kleene variable or the ONLY event of a plain
    one, `a.LEN` is `count(a)`, and constants have their sign.
    """
    try:
        check_arrangement(query.pattern)
        _check_definition(query)
        roles = roles_of(query.pattern, query.text)
        query = replace(query, returns=with_variables(query.returns, [query.pattern]))
        for length in (query.within, *pauses(query.pattern)):
            if length is not None:
                _check_length(length)
        _check_end(query)
        check_operators(query)
        _check_after(query, roles)
        check_columns(query.returns)
        check_labels(query)
        query = checked_whole(query, lambda expr: in_return(expr, roles))
        if query.whole is None or not query.whole.grouped:
            check_answer(query)
        check_choice(query)
        check_lapses(query)
        split = [part for expr in query.where for part in conjuncts(expr)]
        check_guards(query.pattern, split)
        return replace(
            query,
            pattern=with_interval_ends(query.pattern, lambda end: in_interval(end, roles)),
            where=tuple(in_where(expr, roles) for expr in split),
            equivalence=once(query.equivalence),
            returns=in_returns(query.returns, roles),
            having=None if query.having is None else in_having(query.having, roles),
        )
    except QueryError as error:
        raise error.at(None, query.text) from None


def check(query: Query, schema: Schema, *, streaming: bool = False, derived: bool = True) -> Query:
    """The query against the events it is for.

    Every type and field is there and every expression has a kind; `a.start` and `a.end` are the
    time columns and `a.location` the place, unless the event has such a field. A streaming query
    needs a window, or, where one may be `derived`, conditions that bound its events in time.
    """
    query = check_structure(query)
    try:
        types = event_types(query, schema)
        _check_window(query, schema)
        for equivalence in query.equivalence:
            _check_equivalence(equivalence, types)
        types |= result_types(query.pattern, types, schema)
        query = replace(query, pattern=resolved(query.pattern, types, schema))

        schemas = dict.fromkeys(types, schema)

        def bound(expr: Expr) -> Expr:
            found = rewrite_expr(
                expr,
                lambda node: placed(timed(node, types, schema), types, schemas, schema.space),
            )
            return in_zones(found, lambda field: zone_of_field(field, types, schema))

        def kind(field: Field) -> Kind:
            assert field.name is not None
            return types[field.variable].kind_of(field.name, field.span, field.variable)

        query = replace(query, pattern=with_interval_ends(query.pattern, bound))
        for end in interval_ends(query.pattern):
            _check_moment(end, kind, schema, alone=is_lapse(query.pattern))
        where = tuple(bound(expr) for expr in query.where)
        named = with_fields(
            query.returns, fields_by(types, [query.pattern]), kleenes(query.pattern)
        )
        check_columns(named)
        returns = tuple(replace(r, expr=bound(r.expr)) for r in named)
        having = None if query.having is None else bound(query.having)
        for expr in where:
            check_condition(expr, kind, "WHERE")
        for column in returns:
            refuse_list(column.expr)
            kind_of(column.expr, kind)
        if having is not None:
            check_condition(having, kind, "HAVING")
        query = equal_through_negation(replace(query, where=where, returns=returns, having=having))
        keys: tuple[str, ...] = ()
        if query.strategy is Strategy.PARTITION:
            keys = keys_by_equality(query)
        elif query.choose is not None and query.choose.choice is Choice.ONCE:
            keys = partitioning(query)  # what is tied together is used up together
        for field in keys:
            query = with_equivalence(query, field)
        if streaming:
            _check_bounded(query, schema, derived=derived)
        return query
    except QueryError as error:
        raise error.at(None, query.text) from None


# ---------------------------------------------------------------------------------- structure


def _check_definition(query: Query) -> None:
    for atom in atoms(query.pattern):
        if query.name in names_of(atom.type):
            raise QueryError(
                f"the definition of {query.name} is circular: {query.name} -> {query.name}",
                hint="give the new event a different name from the events it is made of",
                span=atom.span,
            )


def _check_length(window: Window) -> None:
    match window:
        case ByTime(nanoseconds=length) | ByUnits(amount=length) | ByEvents(count=length):
            if length <= 0:
                raise QueryError(
                    "the window must be longer than zero",
                    hint="as in WITHIN 5 minutes, or WITHIN 20 EVENTS",
                    span=window.span,
                )


def _check_end(query: Query) -> None:
    """A negation with nothing behind it is decided when the window is over."""
    negation = next(open_ended(query.pattern), None)
    if negation is None:
        return
    if query.within is None:
        raise QueryError(
            "a negation at the end needs a window: until when must the event not occur?",
            hint="add WITHIN, as in WITHIN 5 minutes",
            span=negation.span,
        )


def _check_after(query: Query, roles: Roles) -> None:
    if query.after is None or query.after.variable is None:
        return
    variable = query.after.variable
    present = [name for name in roles.known if name not in roles.absent]
    if variable not in present:
        raise QueryError(
            f"'{variable}' is negated: a match has no such event to skip to"
            if variable in roles.absent
            else f"unknown variable '{variable}'",
            hint=did_you_mean(variable, present),
            span=query.after.span,
        )


def check_columns(returns: tuple[Returned, ...]) -> None:
    """Raises a QueryError where two columns have one name."""
    seen: set[str] = set()
    for column in returns:
        if column.every:
            continue
        if column.name in seen:
            raise QueryError(
                f"two columns are called '{column.name}'",
                hint="name one of them with AS",
                span=column.span,
            )
        seen.add(column.name)


def once(equivalence: tuple[Equivalence, ...]) -> tuple[Equivalence, ...]:
    """Each `[attr]` once."""
    found: dict[str, Equivalence] = {}
    for one in equivalence:
        found.setdefault(one.field_name, one)
    return tuple(found.values())


# ------------------------------------------------------------------------------------- schema


def event_types(query: Query, schema: Schema) -> dict[str, EventType]:
    """The types of a query's events, by variable."""
    found = {a.variable: schema.event_type(a.type, a.span) for a in atoms(query.pattern)}
    names = {name: None for a in atoms(query.pattern) for name in names_of(a.type)}
    if not schema.typed and len(names) > 1:
        other = list(names)[1]
        raise QueryError(
            f"the pattern names several event types ({', '.join(names)}), "
            "but the events have no type",
            hint="say which column holds the type: type='...'",
            span=next(a.span for a in atoms(query.pattern) if other in names_of(a.type)),
        )
    return found


def _check_bounded(query: Query, schema: Schema, *, derived: bool) -> None:
    """What waits on a stream has an end: by WITHIN, or by what conditions say of times."""
    for negation, interval in lapses(query.pattern):
        if looks_as_far(interval, query, schema) is None:
            raise QueryError(
                "a stream cannot tell how far this interval is from the events of a match",
                hint="use the times of events plus or minus durations, as in FROM a.end TO a.end "
                "+ 5",
                span=negation.span,
            )
    if query.within is not None or is_lapse(query.pattern) or _is_of_one(query.pattern):
        return
    if always_paused(query.pattern):
        return
    if derived and derived_window(query, schema) is not None:
        return
    numbers = schema.time_kind.numeric
    hint = "add WITHIN 20" if numbers else "add WITHIN, as in WITHIN 5 minutes"
    if derived:
        length = "20" if numbers else "5 minutes"
        hint += f", or bound all its events by conditions, as in b.end <= a.start + {length}"
        hint += f", or each of its gaps, as in A a THEN NEXT WITHIN {length} B b"
    raise QueryError(
        "a streaming query without a window would have to remember every event",
        hint=hint,
        span=query.pattern.span,
    )


def _is_of_one(pattern: Pattern) -> bool:
    """Whether a match is one event, perhaps as operators of users see it."""
    if is_result(pattern):
        inner = parts(pattern)
        return len(inner) == 1 and _is_of_one(inner[0])
    return is_event(pattern)


def _check_window(query: Query, schema: Schema) -> None:
    for window in (query.within, *pauses(query.pattern)):
        _check_unit(window, schema)


def _check_unit(window: Window | None, schema: Schema) -> None:
    numbers = schema.time_kind.numeric
    match window:
        case ByUnits(amount=amount) if not numbers:
            raise QueryError(
                f"WITHIN {amount} of what? The time column {schema.end} holds timestamps",
                hint=f"did you mean WITHIN {amount} seconds, or WITHIN {amount} EVENTS?",
                span=window.span,
            )
        case ByTime() if numbers:
            raise QueryError(
                f"the time column {schema.end} holds numbers, which have no unit",
                hint="give the window in the same numbers, as in WITHIN 300",
                span=window.span,
            )


def _check_moment(
    end: Expr, kind_of_field: Callable[[Field], Kind], schema: Schema, *, alone: bool
) -> None:
    """Raises a QueryError unless an end of an interval is a point in the stream's time."""
    kind = kind_of(end, kind_of_field)
    if comparable(kind, schema.time_kind) and kind is not Kind.NULL:
        whole = schema.time_kind is not Kind.INTEGER or kind is Kind.INTEGER
        if alone and not (isinstance(end, Literal) and whole):
            raise QueryError(
                "a pattern that is only an absence needs fixed times as its ends, as the time "
                "column "
                "has them",
                hint="as in FROM 10 TO 15, or FROM TIMESTAMP '...' TO TIMESTAMP '...'",
                span=end.span,
            )
        return
    numbers = schema.time_kind.numeric
    example = "a.end + 5" if numbers else "a.end + 5 minutes"
    raise QueryError(
        f"this is {kind.value}, and the ends of an interval must be points in time",
        hint=f"as in FROM a.end TO {example}",
        span=end.span,
    )


def _check_equivalence(equivalence: Equivalence, types: dict[str, EventType]) -> None:
    name = equivalence.field_name
    kinds = ((v, t.kind_of(name, equivalence.span, v)) for v, t in types.items())
    check_alike(equivalence, kinds)


def check_alike(equivalence: Equivalence, kinds: Iterable[tuple[str, Kind]]) -> None:
    """Raises a QueryError unless a field, of these kinds by whose it is, can be compared."""
    name = equivalence.field_name
    first: tuple[str, Kind] | None = None
    for owner, kind in kinds:
        if kind is Kind.OTHER:
            raise QueryError(
                f"{owner.split()[0]}.{name} is a nested or binary value and cannot be compared",
                hint="take a field that holds a plain value",
                span=equivalence.span,
            )
        if first is not None and not comparable(first[1], kind):
            raise QueryError(
                f"[{name}] is {first[1].value} in {first[0]} but {kind.value} in {owner}",
                hint="convert the columns to one type first",
                span=equivalence.span,
            )
        first = first or (owner, kind)


def timed(expr: Expr, types: Mapping[str, EventType], schema: Schema) -> Expr:
    """`a.start` and `a.end` as the time columns, unless the event has such a field."""
    if not isinstance(expr, Field) or expr.name not in ("start", "end"):
        return expr
    if expr.name in types[expr.variable].fields:
        return expr
    return replace(expr, name=schema.start if expr.name == "start" else schema.end)


def zone_of_field(field: Field, types: Mapping[str, EventType], schema: Schema) -> str | None:
    """The zone of a field that holds times; results of operators have times of the stream."""
    name = field.name or ""
    if types[field.variable].fields.get(name) is not Kind.TIMESTAMP:
        return None
    stream = {"start": schema.start, "end": schema.end}
    zone = schema.zones.get(name) or schema.zones.get(stream.get(name, ""))
    return zone if zone is None else schema.session or zone


def check_condition(expr: Expr, kind_of_field: Callable[[Field], Kind], clause: str) -> None:
    """Raises a QueryError for a value where a condition should stand."""
    kind = kind_of(expr, kind_of_field)
    if kind not in (Kind.BOOLEAN, Kind.NULL):
        raise QueryError(
            f"{clause} needs a condition, and this is a value ({kind.value})",
            hint="compare it with something, as in a.price > 3",
            span=expr.span,
        )
