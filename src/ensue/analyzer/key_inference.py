"""Inference of keys from equalities: of patterns, subscriptions and archive joins."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ensue.analyzer.normal_form import FieldComparison, SubscriptionAlternative
from ensue.analyzer.row_pattern_checks import get_key_columns, is_single_row
from ensue.ir.archive_join import ArchiveJoin, JoinSide, RowPatternSide
from ensue.ir.expression import Binary, EventPosition, Expr, FieldRef, FunctionCall
from ensue.ir.pattern import Pattern
from ensue.ir.query import Equivalence, Query
from ensue.ir.selection import ByEvents, Strategy
from ensue.ir.subscription import EventTest
from ensue.ir.traits import NodeForm, cache_fact, get_form, get_parts, is_event, is_operator_call, is_plain, is_sequence
from ensue.ir.traversal import (
    get_first_field,
    iterate_atoms,
    iterate_certain_variables,
    iterate_negations,
    iterate_operator_calls,
    iterate_positive_atoms,
)
from ensue.ir.user_operator import OperatorInputs


def get_equality(condition: Expr) -> tuple[str, str, str] | None:
    """Returns (field, variable, variable) of an equality `x.f = y.f`."""
    match condition:
        case Binary(
            operator="=",
            left=FieldRef(variable=x, name=str(f), at=EventPosition.ONLY),
            right=FieldRef(variable=y, name=g, at=EventPosition.ONLY),
        ) if f == g and x != y:
            return (f, x, y)
        case _:
            return None


def get_equal_fields(query: Query) -> dict[str, list[tuple[str, str]]]:
    """Returns, by field, the pairs of variables that must be equal in it."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    events = {a.variable for a in iterate_atoms(query.pattern)}  # results have no columns
    for condition in query.where:
        match get_equality(condition):
            case (field, x, y) if {x, y} <= events:
                pairs.setdefault(field, []).append((x, y))
            case _:
                pass
    return pairs


def find_connected(start: str, pairs: Iterable[tuple[str, str]]) -> set[str]:
    """Returns the variables that are connected with `start`.

    >>> sorted(find_connected("x", [("x", "y"), ("z", "y"), ("u", "v")]))
    ['x', 'y', 'z']
    """
    reached, pairs = {start}, list(pairs)
    while more := {v for pair in pairs if reached & set(pair) for v in pair} - reached:
        reached |= more
    return reached


def add_equivalence(query: Query, field: str) -> Query:
    """Replaces the equalities on a field by `[field]`."""
    redundant = [(field, x, y) for x, y in get_equal_fields(query).get(field, [])]
    where = tuple(c for c in query.where if get_equality(c) not in redundant)
    if any(e.field_name == field for e in query.equivalence):
        return replace(query, where=where)
    return replace(query, where=where, equivalence=(*query.equivalence, Equivalence(field)))


@cache_fact
def binds_each_once(pattern: Pattern) -> bool:
    """Whether every match, and every match of a negation, binds every variable to one event."""
    if is_operator_call(pattern):
        # the result of a repeat depends on the partition, which must not change
        single = pattern.operator.over is not OperatorInputs.REPEAT
    else:
        several = (NodeForm.LIST, NodeForm.LOOP, NodeForm.OPTION, NodeForm.CHOICE)
        single = is_plain(pattern) and get_form(pattern) not in several
    return single and all(map(binds_each_once, get_parts(pattern)))


def infer_partition_keys(query: Query) -> tuple[str, ...]:
    """Returns the fields whose equalities in WHERE are equivalent to `[field]`.

    They are not if events of a partition are counted, contiguous or consumed: only `[field]`
    defines partitions.
    """
    if isinstance(query.within, ByEvents) or Strategy.PARTITION in query.strategies or query.after is not None:
        return ()
    return find_equality_keys(query)


def find_equality_keys(query: Query) -> tuple[str, ...]:
    """Returns the fields that are equal in all events of a match by a chain of equalities."""
    if not binds_each_once(query.pattern):
        return ()
    return tuple(field for field, pairs in get_equal_fields(query).items() if _connects_all(query, pairs))


def _connects_all(query: Query, pairs: list[tuple[str, str]]) -> bool:
    order = [a.variable for a in iterate_positive_atoms(query.pattern)]
    if len(order) < 2:
        return False  # an equality with a negated event does not exclude NULL
    if Strategy.NEXT in query.strategies:
        among_earlier = all(
            any({variable, other} == set(pair) for other in order[:k] for pair in pairs)
            for k, variable in enumerate(order)
            if k
        )
        if not among_earlier or not is_sequence(query.pattern):
            return False
    positive = find_connected(order[0], [p for p in pairs if set(p) <= set(order)])
    return positive >= set(order) and find_connected(order[0], pairs) >= {
        a.variable for a in iterate_atoms(query.pattern)
    }


def add_inferred_equivalence(query: Query) -> Query:
    """Replaces a chain of equalities over a negated variable by `[field]`.

    In `x.id = y.id AND y.id = z.id` with `y` negated, both conditions alone would only restrict
    `y` and not relate `x` to `z`; a chain over all variables means the equivalence test.
    """
    if not binds_each_once(query.pattern):
        return query
    bound = {a.variable for a in iterate_positive_atoms(query.pattern)}
    everyone = {a.variable for a in iterate_atoms(query.pattern)}
    for field, pairs in get_equal_fields(query).items():
        start = pairs[0][0]
        positive = find_connected(min(bound), [p for p in pairs if set(p) <= bound])
        if find_connected(start, pairs) == everyone and not positive >= bound:
            query = add_equivalence(query, field)
    return query


PartField = tuple[int, str]  # a part, and its field that has the key's value


def find_common_key(way: SubscriptionAlternative) -> PartField | None:
    """Returns a part and its field that is equal to a field of every other part, or None."""
    events = {n for n, part in enumerate(way.parts) if isinstance(part, EventTest)}
    if len(events) < 2:
        return None
    classes: dict[PartField, set[PartField]] = {}
    for condition in way.conditions:
        if isinstance(condition, FieldComparison) and condition.operator == "=":
            left = condition.part, condition.name
            right = condition.other, condition.other_name
            merged = classes.get(left, {left}) | classes.get(right, {right})
            classes |= dict.fromkeys(merged, merged)
    keys = [fields for fields in classes.values() if {part for part, _ in fields} == events]
    return min(map(min, keys), default=None)


# --- keys of archive joins, by which parts of an archive are read

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
    archived_variables = {atom.variable for atom in iterate_positive_atoms(join.query.pattern)}
    live_variables = {atom.variable for atom in iterate_positive_atoms(live.pattern)}
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
        and not any(iterate_negations(query.pattern))
        and not any(iterate_operator_calls(query.pattern))
    )


def build_key_value(pattern: Pattern, field: str) -> Expr:
    """Builds the value that all events of a match have in a field."""
    certain = next(iterate_certain_variables(pattern), None)
    names = [certain] if certain else [a.variable for a in iterate_positive_atoms(pattern)]
    values = tuple(get_first_field(pattern, name, field) for name in names)
    return values[0] if len(values) == 1 else FunctionCall("coalesce", values)
