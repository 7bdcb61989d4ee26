"""Which events can matter to queries by their type."""

from collections.abc import Iterable

from ensue.algebra.policy import CONTIGUOUS
from ensue.algebra.walk import atoms
from ensue.algebra.window import ByEvents
from ensue.schema import ANY, names_of
from ensue.workload.prepared import Prepared


def types_that_matter(queries: Iterable[Prepared]) -> frozenset[str] | None:
    """The types that queries name, negated ones too. None: events of every type matter, since
    their places count."""
    names: set[str] = set()
    for prepared in queries:
        query = prepared.plan.query
        contiguous = bool(query.strategies & CONTIGUOUS)
        untyped = prepared.shape.schema.type_column is None
        if untyped or contiguous or isinstance(query.within, ByEvents):
            return None
        for atom in atoms(query.pattern):
            if atom.type == ANY:
                return None
            names |= set(names_of(atom.type))
    return frozenset(names)
