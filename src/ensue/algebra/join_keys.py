"""Which equalities of ON say of which object the past is: by these an archive is read in pieces.

A field is such a key if reading only the events with one value of it gives the matches that all
events would, as far as they fit the live match.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ensue.algebra.correlation import ArchiveJoin
from ensue.algebra.equivalence import partitioning
from ensue.algebra.form import Form, form, is_event, optional, parts
from ensue.algebra.pattern import Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import At, Binary, Call, Expr, Field
from ensue.algebra.query import Equivalence, Query
from ensue.algebra.walk import kleenes, negations, positives, results
from ensue.algebra.window import ByEvents

_ONE_EVENT = (At.ONLY, At.NTH, At.LAST)


@dataclass(frozen=True, slots=True)
class JoinKey:
    """All archived events that matter to a live match have this value in a field."""

    field: str  # of the archive's events
    live: Expr  # its value in the live match; NULL: no past fits
    added: bool = False  # the archived query has to get `[field]`: see `keyed`


def join_keys(join: ArchiveJoin, live: Query) -> tuple[JoinKey, ...]:
    """The keys that an archive can be read by for a join, each field once, as ON has them.

    >>> from ensue.algebra.correlation import Range
    >>> from ensue.algebra.pattern import Atom
    >>> from ensue.algebra.window import ByUnits
    >>> same = (Equivalence("tag"),)
    >>> join = ArchiveJoin("passes", Query(Atom("Pass", "q")), Range(ByUnits(6)), equivalence=same)
    >>> join_keys(join, Query(Atom("Pass", "p")))
    (JoinKey(field='tag', live=Field(variable='p', name='tag', ..., nth=1), added=False),)
    """
    found: dict[str, JoinKey] = {}
    for key in _candidates(join, live):
        found.setdefault(key.field, key)
    return tuple(found.values())


def keyed(join: ArchiveJoin, keys: tuple[JoinKey, ...]) -> ArchiveJoin:
    """The join whose archived query has the `[field]`s that its keys ask for."""
    added = tuple(Equivalence(key.field) for key in keys if key.added)
    query = replace(join.query, equivalence=(*join.query.equivalence, *added))
    return replace(join, query=query) if added else join


def _candidates(join: ArchiveJoin, live: Query) -> Iterator[JoinKey]:
    for equivalence in join.equivalence:
        field = equivalence.field_name
        if separate(join.query, field):
            yield JoinKey(field, _value(live.pattern, field))
        elif _may_be_added(join.query):
            yield JoinKey(field, _value(live.pattern, field), added=True)
    ours = {atom.variable for atom in positives(join.query.pattern)}
    theirs = {atom.variable for atom in positives(live.pattern)}
    for left, right in filter(None, map(_equal, join.on)):
        for past, value in ((left, right), (right, left)):
            if (
                past.variable in ours
                and value.variable in theirs
                and past.name is not None
                and past.at in _ONE_EVENT
                and separate(join.query, past.name)
            ):
                yield JoinKey(past.name, value)


def _equal(condition: Expr) -> tuple[Field, Field] | None:
    match condition:
        case Binary(operator="=", left=Field() as left, right=Field() as right):
            return left, right
        case _:
            return None


def separate(query: Query, field: str) -> bool:
    """Whether the matches of a query with one value of a field are those among its events.

    >>> from ensue.algebra.pattern import Atom, Seq
    >>> pair = Query(Seq((Atom("A", "a"), Atom("B", "b"))))
    >>> separate(pair, "k"), separate(replace(pair, equivalence=(Equivalence("k"),)), "k")
    (False, True)
    """
    if is_event(query.pattern):
        return True
    if query.strategy is Strategy.STRICT:
        return False  # events of other objects may stand between
    tested = {equivalence.field_name for equivalence in query.equivalence}
    return field in tested or field in partitioning(query)


def _may_be_added(query: Query) -> bool:
    """Whether its matches with one value of a field are those of the query with `[field]`."""
    return (
        query.strategy is Strategy.ANY
        and query.after is None
        and not isinstance(query.within, ByEvents)
        and not any(negations(query.pattern))
        and not any(results(query.pattern))
    )


def _value(pattern: Pattern, field: str) -> Expr:
    """The value that all events of a live match have in a field, taken from one of them."""
    sure = next(_surely_bound(pattern), None)
    if sure is not None:
        return _of(pattern, sure, field)
    either = tuple(_of(pattern, atom.variable, field) for atom in positives(pattern))
    return either[0] if len(either) == 1 else Call("coalesce", either)


def _of(pattern: Pattern, variable: str, field: str) -> Field:
    return Field(variable, field, At.NTH if variable in kleenes(pattern) else At.ONLY)


def _surely_bound(pattern: Pattern) -> Iterator[str]:
    """Variables that every match has an event of."""
    if optional(pattern):
        return
    match form(pattern):
        case Form.EVENT | Form.LIST:
            yield from (atom.variable for atom in positives(pattern))
        case Form.SEQUENCE | Form.TOGETHER | Form.RESULT | Form.LOOP:
            for part in parts(pattern):
                yield from _surely_bound(part)
        case Form.CHOICE | Form.OPTION | Form.ABSENCE:
            return
