"""Queries over a stream and archives: their sides, and what is said of several sides at once."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ensue.algebra.answers import is_tally
from ensue.algebra.check.applied import result_types
from ensue.algebra.check.conversions import converted
from ensue.algebra.check.kinds import comparable, kind_of
from ensue.algebra.check.places import placed, refuse_list
from ensue.algebra.check.query import (
    check,
    check_alike,
    check_columns,
    check_condition,
    check_structure,
    event_types,
    once,
    timed,
    zone_of_field,
)
from ensue.algebra.check.row_patterns import checked as checked_clause
from ensue.algebra.check.row_patterns import output_kinds
from ensue.algebra.check.stars import fields_by, with_fields, with_variables
from ensue.algebra.check.usage import Roles, in_having, in_on, in_return, in_returns, roles_of
from ensue.algebra.check.whole_results import checked_whole
from ensue.algebra.check.zones import in_zones
from ensue.algebra.correlation import (
    AnySide,
    ArchiveJoin,
    ClauseSide,
    Correlation,
    JoinKind,
    shown_joins,
    shown_sides,
)
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.query import Equivalence, Query
from ensue.algebra.row_patterns.pattern import nullable
from ensue.algebra.row_patterns.recognition import Rows
from ensue.algebra.walk import (
    atoms,
    conjuncts,
    kleenes,
    nodes,
    positives,
    references,
    results,
    rewrite_expr,
)
from ensue.algebra.window import ByTime, ByUnits
from ensue.errors import QueryError, did_you_mean
from ensue.schema import EventType, Kind, Schema
from ensue.span import Span


def check_correlation_structure(correlation: Correlation) -> Correlation:
    """The correlation in its normal form, as far as that needs no schemas."""
    try:
        _check_variables(correlation)
        _check_answer(correlation)
        live = _side(correlation.live, correlation)
        joins = tuple(
            replace(join, query=_side(join.query, correlation)) for join in correlation.joins
        )
        correlation = replace(correlation, live=live, joins=joins)
        checked = tuple(_joined(number, correlation) for number in range(len(joins)))
        roles = _roles([live, *(join.query for join in shown_joins(correlation))], correlation)
        correlation = replace(
            correlation,
            returns=with_variables(
                correlation.returns, [side.pattern for side in shown_sides(correlation)]
            ),
        )
        for expr in (*(r.expr for r in correlation.returns), *_having(correlation)):
            _check_shown(expr, correlation)
        check_columns(correlation.returns)
        correlation = checked_whole(correlation, lambda expr: in_return(expr, roles))
        having = correlation.having
        return replace(
            correlation,
            joins=checked,
            returns=in_returns(correlation.returns, roles),
            having=None if having is None else in_having(having, roles),
        )
    except QueryError as error:
        raise error.at(None, correlation.text) from None


def check_correlation(
    correlation: Correlation,
    live_schema: Schema,
    archive_schemas: Mapping[str, Schema],
    *,
    streaming: bool = False,
) -> Correlation:
    """The correlation against the events it is for.

    Each side is checked as a query of its own (a streaming one needs a window on the live side
    only: the others are bounded by their RANGE), then what is said of several sides at once.
    """
    correlation = check_correlation_structure(correlation)
    try:
        for join in correlation.joins:
            _check_known(join, archive_schemas)
            _check_range_units(join, live_schema, archive_schemas[join.archive])
        sides = [(correlation.live, live_schema)]
        sides += [(join.query, archive_schemas[join.archive]) for join in correlation.joins]
        live = _against(correlation.live, live_schema, streaming=streaming)
        types = _Types(sides, sql=correlation.of_clauses)
        joins = tuple(
            replace(
                join,
                query=_against(join.query, archive_schemas[join.archive]),
                on=tuple(types.bound(expr) for expr in join.on),
            )
            for join in correlation.joins
        )
        for join in joins:
            for equivalence in join.equivalence:
                _check_equivalence(equivalence, live, join, types)
            for expr in join.on:
                check_condition(expr, types.kind, "ON")
        patterns = [side.pattern for side, _ in sides if isinstance(side, Query)]
        lists = {name for pattern in patterns for name in kleenes(pattern)}
        named = with_fields(correlation.returns, fields_by(types.of, patterns), lists)
        check_columns(named)
        returns = tuple(replace(r, expr=types.bound(r.expr)) for r in named)
        having = None if correlation.having is None else types.bound(correlation.having)
        for column in returns:
            refuse_list(column.expr)
            kind_of(column.expr, types.kind)
        if having is not None:
            check_condition(having, types.kind, "HAVING")
        return replace(correlation, live=live, joins=joins, returns=returns, having=having)
    except QueryError as error:
        raise error.at(None, correlation.text) from None


class _Types:
    """The event types of all sides, by variable: no two sides share one."""

    def __init__(self, sides: Iterable[tuple[AnySide, Schema]], *, sql: bool) -> None:
        self.sql = sql  # as SQL has it, constants become what they are compared with
        self.of: dict[str, EventType] = {}
        self.schemas: dict[str, Schema] = {}
        self.space = "plane"
        for query, schema in sides:
            if isinstance(query, ClauseSide):
                self.of[query.alias] = EventType(query.alias, side_kinds(query, schema))
                continue
            found = event_types(query, schema)
            found |= result_types(query.pattern, found, schema)
            self.of |= found
            self.schemas |= dict.fromkeys(found, schema)
            if schema.location is not None and schema.space == "earth":
                self.space = schema.space

    def kind(self, field: Field) -> Kind:
        assert field.name is not None
        return self.of[field.variable].kind_of(field.name, field.span, field.variable)

    def bound(self, expr: Expr) -> Expr:
        """`a.start`, `a.end` and `a.location` as the columns of the side that `a` is of."""

        def change(node: Expr) -> Expr:
            if isinstance(node, Field) and node.variable in self.schemas:
                node = timed(node, self.of, self.schemas[node.variable])
            return placed(node, self.of, self.schemas, self.space)

        found = rewrite_expr(expr, change)
        return in_zones(converted(found, self.kind) if self.sql else found, self.zone)

    def zone(self, field: Field) -> str | None:
        schema = self.schemas.get(field.variable)
        return None if schema is None else zone_of_field(field, self.of, schema)


# ---------------------------------------------------------------------------------- structure


def _named(query: AnySide) -> list[tuple[str, Span | None]]:
    """All variables of a side, the negated ones too."""
    found = [(atom.variable, atom.span) for atom in atoms(query.pattern)]
    return found + [(applied.variable, applied.span) for applied in results(query.pattern)]


def _check_variables(correlation: Correlation) -> None:
    """No variable is on two sides."""
    owner = dict.fromkeys((name for name, _ in _named(correlation.live)), "the live pattern")
    for join in correlation.joins:
        for name, span in _named(join.query):
            if name in owner:
                raise QueryError(
                    f"'{name}' is a variable of {owner[name]} already",
                    hint=f"give this one another name, as in {name}2",
                    span=span,
                )
        owner |= dict.fromkeys(
            (name for name, _ in _named(join.query)), f"JOIN ARCHIVE {join.archive}"
        )


def _side(query: AnySide, correlation: Correlation) -> AnySide:
    """A side as a query of its own."""
    if isinstance(query, ClauseSide):
        check_clause_side(query)
        return query
    own = {name for name, _ in _named(query)}
    others = {
        name
        for side in (correlation.live, *(join.query for join in correlation.joins))
        for name, _ in _named(side)
    } - own
    for expr in query.where:
        for reference in references(expr):
            if reference.variable in others:
                raise QueryError(
                    f"'{reference.variable}' belongs to the other side of JOIN ARCHIVE",
                    hint="conditions between the sides belong in ON, after RANGE",
                    span=reference.span,
                )
    return check_structure(query)


def check_clause_side(side: ClauseSide) -> None:
    """Raises a QueryError if a match of a clause is not one event with a time."""
    clause = side.recognition
    if clause.rows is not Rows.ONE:
        raise QueryError(
            f"a clause that is joined with an archive gives one row a match, and {side.alias} "
            "gives all of them",
            hint="leave ALL ROWS PER MATCH out, and put what is needed into MEASURES",
            span=clause.span or clause.pattern.span,
            text=clause.text,
        )
    if nullable(clause.pattern):
        raise QueryError(
            f"a match of {side.alias} may have no row at all, and then it has no time",
            hint="require at least one row: A+ instead of A*",
            span=clause.pattern.span,
            text=clause.text,
        )
    first = clause.order[0] if clause.order else None
    if first is None or first.descending or not isinstance(first.expr, Field):
        raise QueryError(
            f"the matches of {side.alias} have no time: ORDER BY does not begin with a column in "
            "ascending order",
            hint="start ORDER BY with the column of event time",
            span=clause.pattern.span if first is None else first.span,
            text=clause.text,
        )
    for key in clause.partition:
        if key.column is None:
            raise QueryError(
                "beside an archive a key of PARTITION BY is a column, and this one is computed",
                hint="compute it before, as a column of both tables",
                span=key.span,
                text=clause.text,
            )


def side_kinds(side: ClauseSide, schema: Schema) -> dict[str, Kind]:
    """The fields of a match of a clause, and their kinds."""
    found = output_kinds(side.recognition, clause_columns(schema))
    return {"match_id": Kind.STRING, **found} if side.ids else found


def clause_columns(schema: Schema) -> Mapping[str, Kind]:
    """The columns of the one table that a clause is over."""
    if schema.common is None:
        raise QueryError(
            "MATCH_RECOGNIZE reads one table, and these are several",
            hint="pass one table, with a column for the type of events",
        )
    return schema.common


def _against(side: AnySide, schema: Schema, *, streaming: bool = False) -> AnySide:
    """A side against the events that it is for."""
    if not isinstance(side, ClauseSide):
        return check(side, schema, streaming=streaming)
    zones = {name: schema.session or zone for name, zone in schema.zones.items()}
    clause = checked_clause(side.recognition, clause_columns(schema), zones)
    first = clause.order[0].expr
    assert isinstance(first, Field)
    if schema.intervals or first.name != schema.end:
        raise QueryError(
            f"ORDER BY begins with '{first.name}', and the time of the events is in "
            f"{' and '.join(dict.fromkeys((schema.start, schema.end)))}",
            hint=f"ORDER BY {schema.end}, or give the archive that column: time={first.name!r}",
            span=clause.order[0].span,
            text=clause.text,
        )
    return replace(side, recognition=clause)


def _check_answer(correlation: Correlation) -> None:
    said = [column.expr for column in correlation.returns] + list(_having(correlation))
    for node in (node for expr in said for node in nodes(expr)):
        if is_tally(node):
            raise no_summary("COUNT(*)", node.span)
    limit = correlation.limit
    if limit is None:
        return
    if limit.count < 1:
        raise QueryError(
            "LIMIT must be at least 1", hint="leave it out to get every row", span=limit.span
        )


def no_summary(what: str, span: Span | None) -> QueryError:
    """What is raised for COUNT(*) and EXISTS."""
    return QueryError(
        f"{what} with JOIN ARCHIVE is not supported yet",
        hint="RETURN the matches and count the rows; "
        "ANTI JOIN ARCHIVE keeps the live matches without a past",
        span=span,
    )


def check_last(count: int, span: Span | None) -> None:
    """Raises a QueryError for `LAST 0`."""
    if count < 1:
        raise QueryError(
            "LAST must be at least 1",
            hint="LAST 1 is the latest; ANTI JOIN ARCHIVE asks that there is none",
            span=span,
        )


def _check_range(join: ArchiveJoin) -> None:
    far, near = join.range.far, join.range.near
    for length in (far, near):
        if length is not None and _amount(length) <= 0:
            raise QueryError(
                "a RANGE reaches back: its lengths must be positive",
                hint="as in RANGE 30 days BEFORE START; "
                "to come up to the live match, leave BETWEEN ... AND out",
                span=length.span or join.range.span,
            )
    if near is None:
        return
    if type(far) is not type(near):
        raise QueryError(
            "one end of the RANGE has a unit of time, and the other has none",
            hint="write both the same way: RANGE BETWEEN 30 days AND 1 day BEFORE START",
            span=join.range.span,
        )
    if _amount(near) >= _amount(far):
        raise QueryError(
            "the RANGE is empty: its near end is not nearer than its far end",
            hint="the far end comes first: RANGE BETWEEN 30 days AND 1 day BEFORE START",
            span=join.range.span,
        )


def _amount(length: ByTime | ByUnits) -> int | float:
    match length:
        case ByTime(nanoseconds=amount) | ByUnits(amount=amount):
            return amount


def _roles(sides: Iterable[AnySide], correlation: Correlation) -> Roles:
    """The roles of the variables of several sides together."""
    known: list[str] = []
    lists: set[str] = set()
    absent: dict[str, int] = {}
    for side in sides:
        roles = roles_of(side.pattern)
        known += roles.known
        lists |= roles.lists
        count = len(absent)
        absent |= {name: count + number for name, number in roles.absent.items()}
    return Roles(tuple(known), frozenset(lists), absent, correlation.text)


def _joined(number: int, correlation: Correlation) -> ArchiveJoin:
    """A join in its normal form; ON may name the live side, its own, and shown joins before it."""
    join = correlation.joins[number]
    check_last(1 if join.last is None else join.last, join.span)
    _check_range(join)
    before = [j for j in correlation.joins[:number] if j.kind is not JoinKind.ANTI]
    roles = _roles([correlation.live, *(j.query for j in (*before, join))], correlation)
    parts = [part for expr in join.on for part in conjuncts(expr)]
    for part in parts:
        for reference in references(part):
            _check_reachable(reference.variable, reference.span, number, correlation)
    return replace(
        join, on=tuple(in_on(part, roles) for part in parts), equivalence=once(join.equivalence)
    )


def _check_reachable(name: str, span: Span | None, number: int, correlation: Correlation) -> None:
    for place, other in enumerate(correlation.joins):
        if place == number or name not in [found for found, _ in _named(other.query)]:
            continue
        if place > number:
            raise QueryError(
                f"'{name}' belongs to a later JOIN ARCHIVE ({other.archive})",
                hint="joins are evaluated one after the other: move the condition to its ON",
                span=span,
            )
        if other.kind is JoinKind.ANTI:
            raise _no_such_event(name, other, span)


def _having(correlation: Correlation) -> tuple[Expr, ...]:
    return () if correlation.having is None else (correlation.having,)


def _check_shown(expr: Expr, correlation: Correlation) -> None:
    for reference in references(expr):
        for join in correlation.joins:
            if join.kind is JoinKind.ANTI and reference.variable in [
                name for name, _ in _named(join.query)
            ]:
                raise _no_such_event(reference.variable, join, reference.span)


def _no_such_event(name: str, join: ArchiveJoin, span: Span | None) -> QueryError:
    return QueryError(
        f"'{name}' belongs to ANTI JOIN ARCHIVE {join.archive}: a row has no such event",
        hint="an ANTI JOIN keeps live matches without a past; "
        "JOIN or LEFT JOIN ARCHIVE give the past",
        span=span,
    )


# ------------------------------------------------------------------------------------- schema


def _check_known(join: ArchiveJoin, schemas: Mapping[str, Schema]) -> None:
    if join.archive not in schemas:
        raise QueryError(
            f"unknown archive '{join.archive}'",
            hint=did_you_mean(join.archive, schemas)
            or f"pass archives={{{join.archive!r}: ensue.archive(...)}}",
            span=join.span,
        )


def _check_range_units(join: ArchiveJoin, live: Schema, archive: Schema) -> None:
    if not comparable(live.time_kind, archive.time_kind):
        raise QueryError(
            f"the events have a time of kind {live.time_kind.value} ({live.end}), "
            f"those of archive '{join.archive}' one of kind {archive.time_kind.value} "
            f"({archive.end})",
            hint="convert the time columns to one type first",
            span=join.span,
        )
    numbers = live.time_kind.numeric
    for length in (join.range.far, join.range.near):
        match length:
            case ByUnits(amount=amount) if not numbers:
                raise QueryError(
                    f"RANGE {amount} of what? The time column {live.end} holds timestamps",
                    hint=f"did you mean RANGE {amount} days, or {amount} seconds?",
                    span=length.span,
                )
            case ByTime() if numbers:
                raise QueryError(
                    f"the time column {live.end} holds numbers, which have no unit",
                    hint="give the range in the same numbers, as in RANGE 300 BEFORE START",
                    span=length.span,
                )


def _check_equivalence(
    equivalence: Equivalence, live: AnySide, join: ArchiveJoin, types: _Types
) -> None:
    """`[attr]` of ON is a field of every event that a row has of both sides."""
    past = f" of archive '{join.archive}'"
    owners = [(atom.variable, "") for atom in positives(live.pattern)]
    owners += [(atom.variable, past) for atom in positives(join.query.pattern)]
    field = equivalence.field_name
    check_alike(
        equivalence,
        (
            (f"{variable}{side}", types.kind(Field(variable, field, span=equivalence.span)))
            for variable, side in owners
        ),
    )
