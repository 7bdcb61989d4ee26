"""Checks pattern queries and resolves their names and kinds."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ensue.analyzer.interval_negation import get_interval_ends, iterate_interval_negations, rewrite_interval_ends
from ensue.analyzer.key_inference import define_partitions
from ensue.analyzer.output_mode import (
    check_all_events,
    check_choose,
    check_interval_negations,
    check_output_mode,
    check_result_modifiers,
)
from ensue.analyzer.pattern_rules import (
    check_guard_conditions,
    check_pattern,
    has_bounded_gaps,
    iterate_trailing_negations,
)
from ensue.analyzer.scopes import (
    VariableRoles,
    collect_roles,
    normalize_clause,
    normalize_return,
    normalize_returns,
    normalize_where,
)
from ensue.analyzer.spatial import reject_location_list, resolve_location
from ensue.analyzer.time_bounds import compute_interval_distance, compute_window_bound
from ensue.analyzer.types import apply_time_zones, are_comparable, infer_kind
from ensue.analyzer.user_operators import check_operators, get_result_types, resolve_operators
from ensue.errors import QueryError, Span, did_you_mean
from ensue.ir import traversal
from ensue.ir.archive_join import ArchiveJoinQuery, get_output_sides
from ensue.ir.expression import MATCHES, EventPosition, Expr, FieldRef, Literal
from ensue.ir.pattern import Pattern
from ensue.ir.query import Equivalence, Query, ReturnItem
from ensue.ir.selection import ByEvents, ByTime, ByUnits, Window
from ensue.ir.traits import get_parts, is_event, is_interval_negation, is_operator_call
from ensue.ir.user_operator import TIME_ATTRIBUTES
from ensue.schema import EventType, Schema, ValueKind, get_type_names

FieldLookup = Callable[[str, FieldRef], Iterable[str]]  # the fields of a variable's events


def expand_star(returns: Iterable[ReturnItem], patterns: Iterable[Pattern]) -> tuple[ReturnItem, ...]:
    """Expands `*` in RETURN to all variables of the patterns."""
    names = [name for pattern in patterns for name in traversal.iterate_bound_variables(pattern)]
    columns: list[ReturnItem] = []
    for column in returns:
        if column.every and column.expr == FieldRef(MATCHES, None):
            columns += [ReturnItem(FieldRef(name, None), name, span=column.span) for name in names]
        else:
            columns.append(column)
    return tuple(columns)


def expand_field_stars(
    returns: Iterable[ReturnItem], fields_of: FieldLookup, lists: Iterable[str]
) -> tuple[ReturnItem, ...]:
    """Expands `a.*` in RETURN to one column per field: `a_price`."""
    columns: list[ReturnItem] = []
    for column in returns:
        if not column.every:
            columns.append(column)
            continue
        event = column.expr
        assert isinstance(event, FieldRef)
        if event.at is EventPosition.ONLY and event.variable in lists:
            event = replace(event, at=EventPosition.ALL)
        for name in fields_of(event.variable, event):
            field = replace(event, name=name)
            columns.append(ReturnItem(field, f"{column.name}_{name}", span=column.span))
    return tuple(columns)


def build_field_lookup(types: Mapping[str, EventType], patterns: Iterable[Pattern]) -> FieldLookup:
    """Builds the lookup of fields by variable; results of operators have their attributes."""
    own = {r.variable: r.operator for pattern in patterns for r in traversal.iterate_operator_calls(pattern)}

    def fields_of(variable: str, event: FieldRef) -> Iterator[str]:
        if variable in own:
            yield from (*TIME_ATTRIBUTES, *(name for name, _ in own[variable].z))
            return
        for name in (*types[variable].fields, *sorted(types[variable].unlike)):
            types[variable].get_kind(name, event.span, variable)  # raises for ambiguous fields
            yield name

    return fields_of


def check_structure(query: Query) -> Query:
    """Checks and normalizes a query without a schema.

    Conjuncts are split, aggregates are over ALL of a Kleene variable or the ONLY event of a plain
    one, `a.LEN` becomes `count(a)`, and signs are folded into constants.
    """
    try:
        check_pattern(query.pattern)
        _check_definition(query)
        roles = collect_roles(query.pattern, query.text)
        query = replace(query, returns=expand_star(query.returns, [query.pattern]))
        for length in (query.within, *traversal.iterate_max_gaps(query.pattern)):
            if length is not None:
                _check_length(length)
        _check_end(query)
        check_operators(query)
        _check_after(query, roles)
        check_columns(query.returns)
        check_all_events(query)
        query = check_result_modifiers(query, lambda expr: normalize_return(expr, roles))
        if query.whole is None or not query.whole.grouped:
            check_output_mode(query)
        check_choose(query)
        check_interval_negations(query)
        split = [part for expr in query.where for part in traversal.get_conjuncts(expr)]
        check_guard_conditions(query.pattern, split)
        return replace(
            query,
            pattern=rewrite_interval_ends(query.pattern, lambda end: normalize_clause(end, roles, "FROM and TO")),
            where=tuple(normalize_where(expr, roles) for expr in split),
            equivalence=drop_duplicate_equivalences(query.equivalence),
            returns=normalize_returns(query.returns, roles),
            having=query.having and normalize_clause(query.having, roles, "HAVING"),
        )
    except QueryError as error:
        raise error.at(None, query.text) from None


def check_query(query: Query, schema: Schema, *, streaming: bool = False, derived: bool = True) -> Query:
    """Checks and resolves a query against a schema.

    `a.start`, `a.end` and `a.location` become columns, unless the event has fields of these names.
    A streaming query needs a window, or, if one may be `derived`, conditions that bound its events
    in time.
    """
    query = check_structure(query)
    try:
        types = resolve_event_types(query, schema)
        for length in (query.within, *traversal.iterate_max_gaps(query.pattern)):
            check_unit(length, schema, "WITHIN", "EVENTS")
        for equivalence in query.equivalence:
            name, span = equivalence.field_name, equivalence.span
            check_equivalence_kinds(equivalence, ((v, t.get_kind(name, span, v)) for v, t in types.items()))
        types |= get_result_types(query.pattern, types, schema)
        query = replace(query, pattern=resolve_operators(query.pattern, types, schema))

        schemas = dict.fromkeys(types, schema)

        def bound(expr: Expr) -> Expr:
            resolved_expr = traversal.rewrite_expr(
                expr,
                lambda node: resolve_location(resolve_time_field(node, types, schema), types, schemas, schema.space),
            )
            return apply_time_zones(resolved_expr, lambda field: get_field_zone(field, types, schema))

        def kind(field: FieldRef) -> ValueKind:
            assert field.name is not None
            return types[field.variable].get_kind(field.name, field.span, field.variable)

        query = replace(query, pattern=rewrite_interval_ends(query.pattern, bound))
        for end in get_interval_ends(query.pattern):
            _check_interval_end(end, kind, schema, alone=is_interval_negation(query.pattern))
        where = tuple(bound(expr) for expr in query.where)
        named = expand_field_stars(
            query.returns, build_field_lookup(types, [query.pattern]), traversal.get_kleene_variables(query.pattern)
        )
        check_columns(named)
        returns = tuple(replace(r, expr=bound(r.expr)) for r in named)
        having = query.having and bound(query.having)
        for expr in where:
            check_condition(expr, kind, "WHERE")
        for column in returns:
            reject_location_list(column.expr)
            infer_kind(column.expr, kind)
        if having is not None:
            check_condition(having, kind, "HAVING")
        query = define_partitions(replace(query, where=where, returns=returns, having=having))
        if streaming:
            _check_bounded(query, schema, derived=derived)
        return query
    except QueryError as error:
        raise error.at(None, query.text) from None


def _check_definition(query: Query) -> None:
    for atom in traversal.iterate_atoms(query.pattern):
        if query.name in get_type_names(atom.type):
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
    """Checks that a negation at the end has a window, which decides it."""
    negation = next(iterate_trailing_negations(query.pattern), None)
    if negation is not None and query.within is None:
        raise QueryError(
            "a negation at the end needs a window: until when must the event not occur?",
            hint="add WITHIN, as in WITHIN 5 minutes",
            span=negation.span,
        )


def _check_after(query: Query, roles: VariableRoles) -> None:
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


def check_columns(returns: tuple[ReturnItem, ...]) -> None:
    """Raises a QueryError if two columns have the same name."""
    seen: set[str] = set()
    for column in returns:
        if column.every:
            continue
        if column.name in seen:
            raise QueryError(
                f"two columns are called '{column.name}'", hint="name one of them with AS", span=column.span
            )
        seen.add(column.name)


def drop_duplicate_equivalences(equivalence: tuple[Equivalence, ...]) -> tuple[Equivalence, ...]:
    """Removes duplicates of `[attr]`."""
    by_name: dict[str, Equivalence] = {}
    for test in equivalence:
        by_name.setdefault(test.field_name, test)
    return tuple(by_name.values())


def resolve_event_types(query: Query, schema: Schema) -> dict[str, EventType]:
    """Returns the event types of a query's variables."""
    types = {a.variable: schema.event_type(a.type, a.span) for a in traversal.iterate_atoms(query.pattern)}
    names = {name: None for a in traversal.iterate_atoms(query.pattern) for name in get_type_names(a.type)}
    if not schema.typed and len(names) > 1:
        other = list(names)[1]
        raise QueryError(
            f"the pattern names several event types ({', '.join(names)}), but the events have no type",
            hint="name the column that holds the type: type='...'",
            span=next(a.span for a in traversal.iterate_atoms(query.pattern) if other in get_type_names(a.type)),
        )
    return types


def _check_bounded(query: Query, schema: Schema, *, derived: bool) -> None:
    """Checks that state on a stream is bounded, by WITHIN or by conditions on times."""
    for negation, interval in iterate_interval_negations(query.pattern):
        if compute_interval_distance(interval, query, schema) is None:
            raise QueryError(
                "the distance of this interval from the events of a match is not bounded",
                hint="use the times of events plus or minus durations, as in FROM a.end TO a.end + 5",
                span=negation.span,
            )
    if (
        query.within is not None
        or is_interval_negation(query.pattern)
        or _is_single_event(query.pattern)
        or has_bounded_gaps(query.pattern)
        or (derived and compute_window_bound(query, schema) is not None)
    ):
        return
    numbers = schema.time_kind.numeric
    hint = "add WITHIN 20" if numbers else "add WITHIN, as in WITHIN 5 minutes"
    if derived:
        length = "20" if numbers else "5 minutes"
        hint += f", or bound all its events by conditions, as in b.end <= a.start + {length}"
        hint += f", or each of its gaps, as in A a THEN NEXT WITHIN {length} B b"
    raise QueryError(
        "a streaming query without a window would have to store every event", hint=hint, span=query.pattern.span
    )


def _is_single_event(pattern: Pattern) -> bool:
    """Whether a match is one event, or the result of operators over one."""
    if is_operator_call(pattern):
        inner = get_parts(pattern)
        return len(inner) == 1 and _is_single_event(inner[0])
    return is_event(pattern)


def check_unit(length: Window | None, schema: Schema, clause: str, other: str) -> None:
    """Raises a QueryError if a length has no unit on timestamps, or one on numbers."""
    numbers = schema.time_kind.numeric
    match length:
        case ByUnits(amount=amount) if not numbers:
            raise QueryError(
                f"{clause} {amount} of what? The time column {schema.end} holds timestamps",
                hint=f"did you mean {clause} {amount} seconds, or {clause} {amount} {other}?",
                span=length.span,
            )
        case ByTime() if numbers:
            raise QueryError(
                f"the time column {schema.end} holds numbers, which have no unit",
                hint=f"give the length in the same numbers, as in {clause} 300",
                span=length.span,
            )


def _check_interval_end(
    end: Expr, kind_of_field: Callable[[FieldRef], ValueKind], schema: Schema, *, alone: bool
) -> None:
    """Raises a QueryError if an end of an interval is not a point in time."""
    kind = infer_kind(end, kind_of_field)
    if are_comparable(kind, schema.time_kind) and kind is not ValueKind.NULL:
        whole = schema.time_kind is not ValueKind.INTEGER or kind is ValueKind.INTEGER
        if alone and not (isinstance(end, Literal) and whole):
            raise QueryError(
                "a pattern that is only an absence needs fixed times as its ends, of the kind of the time column",
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


def check_equivalence_kinds(equivalence: Equivalence, kinds: Iterable[tuple[str, ValueKind]]) -> None:
    """Raises a QueryError if the kinds of a field in several events are not comparable."""
    name = equivalence.field_name
    first: tuple[str, ValueKind] | None = None
    for owner, kind in kinds:
        if kind is ValueKind.OTHER:
            raise QueryError(
                f"{owner.split()[0]}.{name} is a nested or binary value and cannot be compared",
                hint="use a field that holds a plain value",
                span=equivalence.span,
            )
        if first is not None and not are_comparable(first[1], kind):
            raise QueryError(
                f"[{name}] is {first[1].value} in {first[0]} but {kind.value} in {owner}",
                hint="convert the columns to one type first",
                span=equivalence.span,
            )
        first = first or (owner, kind)


def resolve_time_field(expr: Expr, types: Mapping[str, EventType], schema: Schema) -> Expr:
    """Resolves `a.start` and `a.end` to the time columns, unless the event has such a field."""
    if not isinstance(expr, FieldRef) or expr.name not in ("start", "end") or expr.name in types[expr.variable].fields:
        return expr
    return replace(expr, name=schema.start if expr.name == "start" else schema.end)


def get_field_zone(field: FieldRef, types: Mapping[str, EventType], schema: Schema) -> str | None:
    """Returns the time zone of a field; results of operators have that of the time columns."""
    name = field.name or ""
    if types[field.variable].fields.get(name) is not ValueKind.TIMESTAMP:
        return None
    stream = {"start": schema.start, "end": schema.end}
    zone = schema.zones.get(name) or schema.zones.get(stream.get(name, ""))
    return zone if zone is None else schema.session or zone


def check_condition(expr: Expr, kind_of_field: Callable[[FieldRef], ValueKind], clause: str) -> None:
    """Raises a QueryError if an expression is not a condition."""
    kind = infer_kind(expr, kind_of_field)
    if kind not in (ValueKind.BOOLEAN, ValueKind.NULL):
        raise QueryError(
            f"{clause} needs a condition, and this is a value ({kind.value})",
            hint="compare it with something, as in a.price > 3",
            span=expr.span,
        )


_HINT = "give the column another name with AS, or rename its variable"


def iterate_result_columns(query: Query | ArchiveJoinQuery) -> Iterator[tuple[str, Span | None]]:
    """Yields the names and positions of the columns of RETURN, by default of the variables."""
    if query.returns:
        yield from ((r.name, r.span) for r in query.returns)
        return
    for side in get_output_sides(query) if isinstance(query, ArchiveJoinQuery) else (query,):
        yield from ((a.variable, a.span) for a in traversal.iterate_positive_atoms(side.pattern))
        yield from ((r.variable, r.span) for r in traversal.iterate_operator_calls(side.pattern))


def reject_column(query: Query | ArchiveJoinQuery, name: str, why: str) -> None:
    """Raises a QueryError if the query has a column of this name."""
    for column, span in iterate_result_columns(query):
        if column == name:
            raise QueryError(f"a column cannot be called '{name}' here: {why}", hint=_HINT, span=span, text=query.text)


def reject_case_conflicts(query: Query | ArchiveJoinQuery, standard: tuple[str, ...]) -> None:
    """Raises a QueryError if two columns, including `standard` ones, differ only in case."""
    seen = {name.lower(): name for name in standard}
    for column, span in iterate_result_columns(query):
        other = seen.setdefault(column.lower(), column)
        if other != column:
            raise QueryError(
                f"the columns '{other}' and '{column}' differ only in case, and Spark treats them as one",
                hint=_HINT + "; or set spark.sql.caseSensitive to true",
                span=span,
                text=query.text,
            )
