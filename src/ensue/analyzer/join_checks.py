"""Checks of archive joins: sides, conditions and columns over several sides; the keys by which archives are read."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ensue.analyzer.key_inference import build_key_value, infer_partition_keys
from ensue.analyzer.output_mode import check_result_modifiers, is_count_all
from ensue.analyzer.query import (
    build_field_lookup,
    check_columns,
    check_condition,
    check_equivalence_kinds,
    check_query,
    check_structure,
    check_unit,
    drop_duplicate_equivalences,
    expand_field_stars,
    expand_star,
    get_field_zone,
    resolve_event_types,
    resolve_time_field,
)
from ensue.analyzer.row_pattern_checks import check_row_pattern, get_key_columns, get_output_kinds, is_single_row
from ensue.analyzer.scopes import VariableRoles, collect_roles, normalize_clause, normalize_return, normalize_returns
from ensue.analyzer.spatial import reject_location_list, resolve_location
from ensue.analyzer.types import add_implicit_casts, apply_time_zones, are_comparable, infer_kind
from ensue.analyzer.user_operators import get_result_types
from ensue.errors import QueryError, Span, did_you_mean
from ensue.ir import traversal
from ensue.ir.archive_join import (
    ArchiveJoin,
    ArchiveJoinQuery,
    JoinKind,
    JoinSide,
    RowPatternSide,
    get_output_joins,
    get_output_sides,
)
from ensue.ir.expression import Binary, EventPosition, Expr, FieldRef
from ensue.ir.query import Equivalence, Query
from ensue.ir.row_pattern import RowsPerMatch, is_nullable
from ensue.ir.selection import ByEvents, Strategy, get_amount
from ensue.ir.traits import is_event
from ensue.schema import EventType, Schema, ValueKind


def check_archive_join_structure(query: ArchiveJoinQuery) -> ArchiveJoinQuery:
    """Checks and normalizes an archive join without schemas."""
    try:
        _check_variables(query)
        _check_output(query)
        live = _check_side(query.live, query)
        joins = tuple(replace(join, query=_check_side(join.query, query)) for join in query.joins)
        query = replace(query, live=live, joins=joins)
        checked = tuple(_check_join(number, query) for number in range(len(joins)))
        roles = _collect_roles([live, *(join.query for join in get_output_joins(query))], query)
        query = replace(query, returns=expand_star(query.returns, [side.pattern for side in get_output_sides(query)]))
        for expr in (*(r.expr for r in query.returns), *_get_having(query)):
            _check_returned(expr, query)
        check_columns(query.returns)
        query = check_result_modifiers(query, lambda expr: normalize_return(expr, roles))
        having = query.having
        return replace(
            query,
            joins=checked,
            returns=normalize_returns(query.returns, roles),
            having=None if having is None else normalize_clause(having, roles, "HAVING"),
        )
    except QueryError as error:
        raise error.at(None, query.text) from None


def check_archive_join(
    query: ArchiveJoinQuery, live_schema: Schema, archive_schemas: Mapping[str, Schema], *, streaming: bool = False
) -> ArchiveJoinQuery:
    """Checks and resolves an archive join against the schemas of its sides.

    Each side is checked as a query, then the conditions and columns over several sides. On a
    stream only the live side needs a window: the others are bounded by their RANGE.
    """
    query = check_archive_join_structure(query)
    try:
        for join in query.joins:
            _check_known(join, archive_schemas)
            _check_range_units(join, live_schema, archive_schemas[join.archive])
        sides = [(query.live, live_schema)]
        sides += [(join.query, archive_schemas[join.archive]) for join in query.joins]
        live = _resolve_side(query.live, live_schema, streaming=streaming)
        types = _Types(sides, sql=query.has_row_pattern_sides)
        joins = tuple(
            replace(
                join,
                query=_resolve_side(join.query, archive_schemas[join.archive]),
                on=tuple(types.resolve(expr) for expr in join.on),
            )
            for join in query.joins
        )
        for join in joins:
            for equivalence in join.equivalence:
                _check_equivalence(equivalence, live, join, types)
            for expr in join.on:
                check_condition(expr, types.kind, "ON")
        patterns = [side.pattern for side, _ in sides if isinstance(side, Query)]
        lists = {name for pattern in patterns for name in traversal.get_kleene_variables(pattern)}
        named = expand_field_stars(query.returns, build_field_lookup(types.by_variable, patterns), lists)
        check_columns(named)
        returns = tuple(replace(r, expr=types.resolve(r.expr)) for r in named)
        having = None if query.having is None else types.resolve(query.having)
        for column in returns:
            reject_location_list(column.expr)
            infer_kind(column.expr, types.kind)
        if having is not None:
            check_condition(having, types.kind, "HAVING")
        return replace(query, live=live, joins=joins, returns=returns, having=having)
    except QueryError as error:
        raise error.at(None, query.text) from None


class _Types:
    """The event types of all sides by variable; sides share no variables."""

    def __init__(self, sides: Iterable[tuple[JoinSide, Schema]], *, sql: bool) -> None:
        self.sql = sql  # whether SQL's implicit casts apply
        self.by_variable: dict[str, EventType] = {}
        self.schemas: dict[str, Schema] = {}
        self.space = "plane"
        for query, schema in sides:
            if isinstance(query, RowPatternSide):
                self.by_variable[query.alias] = EventType(query.alias, get_side_kinds(query, schema))
                continue
            types = resolve_event_types(query, schema)
            types |= get_result_types(query.pattern, types, schema)
            self.by_variable |= types
            self.schemas |= dict.fromkeys(types, schema)
            if schema.location is not None and schema.space == "earth":
                self.space = schema.space

    def kind(self, field: FieldRef) -> ValueKind:
        assert field.name is not None
        return self.by_variable[field.variable].get_kind(field.name, field.span, field.variable)

    def resolve(self, expr: Expr) -> Expr:
        """Resolves `a.start`, `a.end` and `a.location` to the columns of the side of `a`."""

        def change(node: Expr) -> Expr:
            if isinstance(node, FieldRef) and node.variable in self.schemas:
                node = resolve_time_field(node, self.by_variable, self.schemas[node.variable])
            return resolve_location(node, self.by_variable, self.schemas, self.space)

        resolved = traversal.rewrite_expr(expr, change)
        return apply_time_zones(add_implicit_casts(resolved, self.kind) if self.sql else resolved, self.zone)

    def zone(self, field: FieldRef) -> str | None:
        schema = self.schemas.get(field.variable)
        return None if schema is None else get_field_zone(field, self.by_variable, schema)


def _list_variables(query: JoinSide) -> list[tuple[str, Span | None]]:
    """Returns all variables of a side, including negated ones."""
    calls = traversal.iterate_operator_calls(query.pattern)
    named = [(atom.variable, atom.span) for atom in traversal.iterate_atoms(query.pattern)]
    return named + [(call.variable, call.span) for call in calls]


def _check_variables(query: ArchiveJoinQuery) -> None:
    """Checks that sides share no variables."""
    owner = dict.fromkeys((name for name, _ in _list_variables(query.live)), "the live pattern")
    for join in query.joins:
        for name, span in _list_variables(join.query):
            if name in owner:
                raise QueryError(
                    f"'{name}' is a variable of {owner[name]} already",
                    hint=f"give this one another name, as in {name}2",
                    span=span,
                )
        owner |= dict.fromkeys((name for name, _ in _list_variables(join.query)), f"JOIN ARCHIVE {join.archive}")


def _check_side(query: JoinSide, archive_join: ArchiveJoinQuery) -> JoinSide:
    """Checks and normalizes a side without its schema."""
    if isinstance(query, RowPatternSide):
        check_row_pattern_side(query)
        return query
    own = {name for name, _ in _list_variables(query)}
    others = {name for side in archive_join.sides for name, _ in _list_variables(side)} - own
    for expr in query.where:
        for reference in traversal.iterate_references(expr):
            if reference.variable in others:
                raise QueryError(
                    f"'{reference.variable}' belongs to the other side of JOIN ARCHIVE",
                    hint="conditions between the sides belong in ON, after RANGE",
                    span=reference.span,
                )
    return check_structure(query)


def check_row_pattern_side(side: RowPatternSide) -> None:
    """Raises a QueryError if a match of a clause is not one event with a time."""
    clause = side.row_pattern
    if clause.rows is not RowsPerMatch.ONE:
        raise QueryError(
            f"a clause that is joined with an archive needs ONE ROW PER MATCH, and {side.alias} has ALL ROWS PER MATCH",
            hint="leave ALL ROWS PER MATCH out, and add the columns you need to MEASURES",
            span=clause.span or clause.pattern.span,
            text=clause.text,
        )
    if is_nullable(clause.pattern):
        raise QueryError(
            f"a match of {side.alias} may be empty, and then it has no time",
            hint="require at least one row: A+ instead of A*",
            span=clause.pattern.span,
            text=clause.text,
        )
    first = clause.order[0] if clause.order else None
    if first is None or first.descending or not isinstance(first.expr, FieldRef):
        raise QueryError(
            f"the matches of {side.alias} have no time: ORDER BY does not start with a column in ascending order",
            hint="start ORDER BY with the column of event time",
            span=clause.pattern.span if first is None else first.span,
            text=clause.text,
        )
    for key in clause.partition:
        if key.column is None:
            raise QueryError(
                "in an archive join a key of PARTITION BY is a column, and this one is computed",
                hint="compute it before, as a column of both tables",
                span=key.span,
                text=clause.text,
            )


def get_side_kinds(side: RowPatternSide, schema: Schema) -> dict[str, ValueKind]:
    """Returns the fields of a match of a clause and their kinds."""
    kinds = get_output_kinds(side.row_pattern, get_clause_columns(schema))
    return {"match_id": ValueKind.STRING, **kinds} if side.ids else kinds


def get_clause_columns(schema: Schema) -> Mapping[str, ValueKind]:
    """Returns the columns of the table that a clause reads."""
    if schema.common is None:
        raise QueryError(
            "MATCH_RECOGNIZE reads one table, and these are several",
            hint="pass one table, with a column for the type of events",
        )
    return schema.common


def _resolve_side(side: JoinSide, schema: Schema, *, streaming: bool = False) -> JoinSide:
    """Checks and resolves a side against its schema."""
    if not isinstance(side, RowPatternSide):
        return check_query(side, schema, streaming=streaming)
    zones = {name: schema.session or zone for name, zone in schema.zones.items()}
    clause = check_row_pattern(side.row_pattern, get_clause_columns(schema), zones)
    first = clause.order[0].expr
    assert isinstance(first, FieldRef)
    if schema.intervals or first.name != schema.end:
        raise QueryError(
            f"ORDER BY starts with '{first.name}', and the time of the events is in "
            f"{' and '.join(dict.fromkeys((schema.start, schema.end)))}",
            hint=f"ORDER BY {schema.end}, or give the archive that column: time={first.name!r}",
            span=clause.order[0].span,
            text=clause.text,
        )
    return replace(side, row_pattern=clause)


def _check_output(query: ArchiveJoinQuery) -> None:
    exprs = [column.expr for column in query.returns] + list(_get_having(query))
    for node in (node for expr in exprs for node in traversal.iterate_nodes(expr)):
        if is_count_all(node):
            raise build_no_summary_error("COUNT(*)", node.span)
    limit = query.limit
    if limit is not None and limit.count < 1:
        raise QueryError("LIMIT must be at least 1", hint="leave it out to get every row", span=limit.span)


def build_no_summary_error(what: str, span: Span | None) -> QueryError:
    """Builds the error for COUNT(*) and EXISTS."""
    return QueryError(
        f"{what} with JOIN ARCHIVE is not supported yet",
        hint="RETURN the matches and count the rows; "
        "ANTI JOIN ARCHIVE returns the live matches without an archived one",
        span=span,
    )


def _check_range(join: ArchiveJoin) -> None:
    far, near = join.range.far, join.range.near
    for length in (far, near):
        if length is not None and get_amount(length) <= 0:
            raise QueryError(
                "a RANGE reaches back: its lengths must be positive",
                hint="as in RANGE 30 days BEFORE START; to reach up to the live match, leave BETWEEN ... AND out",
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
    if get_amount(near) >= get_amount(far):
        raise QueryError(
            "the RANGE is empty: its near end is not nearer than its far end",
            hint="the far end comes first: RANGE BETWEEN 30 days AND 1 day BEFORE START",
            span=join.range.span,
        )


def _collect_roles(sides: Iterable[JoinSide], query: ArchiveJoinQuery) -> VariableRoles:
    """Combines the roles of the variables of several sides."""
    known: list[str] = []
    lists: set[str] = set()
    absent: dict[str, int] = {}
    for side in sides:
        roles = collect_roles(side.pattern)
        known += roles.known
        lists |= roles.lists
        count = len(absent)
        absent |= {name: count + number for name, number in roles.absent.items()}
    return VariableRoles(tuple(known), frozenset(lists), absent, query.text)


def _check_join(number: int, query: ArchiveJoinQuery) -> ArchiveJoin:
    """Checks and normalizes a join; ON may read the live side, its own, and earlier joins."""
    join = query.joins[number]
    _check_range(join)
    before = [j for j in query.joins[:number] if j.kind is not JoinKind.ANTI]
    roles = _collect_roles([query.live, *(j.query for j in (*before, join))], query)
    parts = [part for expr in join.on for part in traversal.get_conjuncts(expr)]
    for part in parts:
        for reference in traversal.iterate_references(part):
            _check_reachable(reference.variable, reference.span, number, query)
    on = tuple(normalize_clause(part, roles, "ON") for part in parts)
    return replace(join, on=on, equivalence=drop_duplicate_equivalences(join.equivalence))


def _check_reachable(name: str, span: Span | None, number: int, query: ArchiveJoinQuery) -> None:
    for position, other in enumerate(query.joins):
        if position == number or name not in dict(_list_variables(other.query)):
            continue
        if position > number:
            raise QueryError(
                f"'{name}' belongs to a later JOIN ARCHIVE ({other.archive})",
                hint="joins are evaluated one after the other: move the condition to its ON",
                span=span,
            )
        if other.kind is JoinKind.ANTI:
            raise _build_anti_error(name, other, span)


def _get_having(query: ArchiveJoinQuery) -> tuple[Expr, ...]:
    return () if query.having is None else (query.having,)


def _check_returned(expr: Expr, query: ArchiveJoinQuery) -> None:
    for reference in traversal.iterate_references(expr):
        for join in query.joins:
            if join.kind is JoinKind.ANTI and reference.variable in dict(_list_variables(join.query)):
                raise _build_anti_error(reference.variable, join, reference.span)


def _build_anti_error(name: str, join: ArchiveJoin, span: Span | None) -> QueryError:
    return QueryError(
        f"'{name}' belongs to ANTI JOIN ARCHIVE {join.archive}: a row has no such event",
        hint="an ANTI JOIN returns live matches without an archived one; "
        "JOIN or LEFT JOIN ARCHIVE return archived matches",
        span=span,
    )


def _check_known(join: ArchiveJoin, schemas: Mapping[str, Schema]) -> None:
    if join.archive not in schemas:
        raise QueryError(
            f"unknown archive '{join.archive}'",
            hint=did_you_mean(join.archive, schemas) or f"pass archives={{{join.archive!r}: ensue.archive(...)}}",
            span=join.span,
        )


def _check_range_units(join: ArchiveJoin, live: Schema, archive: Schema) -> None:
    if not are_comparable(live.time_kind, archive.time_kind):
        raise QueryError(
            f"the events have a time of kind {live.time_kind.value} ({live.end}), "
            f"those of archive '{join.archive}' one of kind {archive.time_kind.value} "
            f"({archive.end})",
            hint="convert the time columns to one type first",
            span=join.span,
        )
    for length in (join.range.far, join.range.near):
        check_unit(length, live, "RANGE", "days")


def _check_equivalence(equivalence: Equivalence, live: JoinSide, join: ArchiveJoin, types: _Types) -> None:
    """Checks that `[attr]` of ON is a comparable field of all events of both sides."""
    archive = f" of archive '{join.archive}'"
    kinds = []
    for side, pattern in (("", live.pattern), (archive, join.query.pattern)):
        for atom in traversal.iterate_positive_atoms(pattern):
            field = FieldRef(atom.variable, equivalence.field_name, span=equivalence.span)
            kinds.append((f"{atom.variable}{side}", types.kind(field)))
    check_equivalence_kinds(equivalence, kinds)


_ONE_EVENT = (EventPosition.ONLY, EventPosition.NTH, EventPosition.LAST)


@dataclass(frozen=True, slots=True)
class JoinKey:
    """An equi-join key: all archived events that can match have this value in a field."""

    field: str  # of the archive's events
    live: Expr  # its value in the live match; NULL: nothing matches
    added: bool = False  # `[field]` has to be added to the archived query: see `add_join_keys`
    shown: str = ""  # its name in an archived match; empty: as in the events
    column: str | None = None  # the field of all events of the live match with this value

    @property
    def same_field(self) -> bool:
        """Whether live and archived events have it in fields of the same name."""
        return self.column == self.field


def find_join_keys(join: ArchiveJoin, live: JoinSide) -> tuple[JoinKey, ...]:
    """Returns the keys by which an archive can be read for a join, each field once.

    >>> from ensue.ir.archive_join import LookbackRange
    >>> from ensue.ir.pattern import Atom
    >>> from ensue.ir.selection import ByUnits
    >>> live, old = (Query(Atom("Pass", name)) for name in "pq")
    >>> join = ArchiveJoin("old", old, LookbackRange(ByUnits(6)), (), (Equivalence("tag"),))
    >>> [(key.field, key.live.variable) for key in find_join_keys(join, live)]
    [('tag', 'p')]
    """
    keys: dict[str, JoinKey] = {}
    for key in _iterate_keys(join, live):
        name = key.live.name if isinstance(key.live, FieldRef) else None
        if isinstance(live, RowPatternSide):
            column = get_key_columns(live.row_pattern).get(name or "")
        else:
            column = name
        keys.setdefault(key.field, replace(key, shown=key.shown or key.field, column=column))
    return tuple(keys.values())


def add_join_keys(join: ArchiveJoin, keys: tuple[JoinKey, ...]) -> ArchiveJoin:
    """Adds the `[field]`s of the keys to the archived query."""
    added = tuple(Equivalence(key.field) for key in keys if key.added)
    if not added or isinstance(join.query, RowPatternSide):
        return join
    query = replace(join.query, equivalence=(*join.query.equivalence, *added))
    return replace(join, query=query)


def _iterate_keys(join: ArchiveJoin, live: JoinSide) -> Iterator[JoinKey]:
    for equivalence in join.equivalence:
        field = equivalence.field_name
        if isinstance(join.query, RowPatternSide):
            continue  # SQL has no [attr]
        if is_separable(join.query, field):
            yield JoinKey(field, build_key_value(live.pattern, field))
        elif _can_add_key(join.query):
            yield JoinKey(field, build_key_value(live.pattern, field), added=True)
    archived_variables = {atom.variable for atom in traversal.iterate_positive_atoms(join.query.pattern)}
    live_variables = {atom.variable for atom in traversal.iterate_positive_atoms(live.pattern)}
    for left, right in filter(None, map(_match_equality, join.on)):
        for archived, value in ((left, right), (right, left)):
            if (
                archived.variable in archived_variables
                and value.variable in live_variables
                and archived.name is not None
                and archived.at in _ONE_EVENT
                and (column := _find_key_column(join.query, archived.name)) is not None
            ):
                yield JoinKey(column, value, shown=archived.name)


def _find_key_column(side: JoinSide, name: str) -> str | None:
    """Returns the field of events whose values separate matches by a field of theirs."""
    if isinstance(side, RowPatternSide):
        return get_key_columns(side.row_pattern).get(name)
    return name if is_separable(side, name) else None


def _match_equality(condition: Expr) -> tuple[FieldRef, FieldRef] | None:
    match condition:
        case Binary(operator="=", left=FieldRef() as left, right=FieldRef() as right):
            return left, right
        case _:
            return None


def is_single_event(side: JoinSide) -> bool:
    """Whether a match is one event and independent of all others."""
    if isinstance(side, RowPatternSide):
        return is_single_row(side.row_pattern)
    return is_event(side.pattern)


def is_separable(query: Query, field: str) -> bool:
    """Whether matches can be computed separately for the events of each value of a field.

    >>> from ensue.ir.pattern import Atom, Seq
    >>> pair = Query(Seq((Atom("A", "a"), Atom("B", "b"))))
    >>> is_separable(pair, "k"), is_separable(replace(pair, equivalence=(Equivalence("k"),)), "k")
    (False, True)
    """
    if is_event(query.pattern):
        return True
    if query.strategy is Strategy.STRICT:
        return False  # events of other keys may lie between
    tested = {equivalence.field_name for equivalence in query.equivalence}
    return field in tested or field in infer_partition_keys(query)


def _can_add_key(query: Query) -> bool:
    """Whether adding `[field]` only drops matches with different values of the field."""
    return (
        query.strategy is Strategy.ANY
        and query.after is None
        and not isinstance(query.within, ByEvents)
        and not any(traversal.iterate_negations(query.pattern))
        and not any(traversal.iterate_operator_calls(query.pattern))
    )
