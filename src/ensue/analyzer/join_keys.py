"""Equi-join keys of archive joins, by which parts of an archive are read."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ensue.analyzer.key_inference import build_key_value, infer_partition_keys
from ensue.analyzer.row_pattern_checks import get_key_columns, is_single_row
from ensue.ir.archive_join import ArchiveJoin, JoinSide, RowPatternSide
from ensue.ir.expression import Binary, EventPosition, Expr, FieldRef
from ensue.ir.query import Equivalence, Query
from ensue.ir.selection import ByEvents, Strategy
from ensue.ir.traits import is_event
from ensue.ir.traversal import iterate_negations, iterate_operator_calls, iterate_positive_atoms

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
