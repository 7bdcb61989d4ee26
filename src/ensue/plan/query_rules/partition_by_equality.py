"""Turns equalities that tie all variables into a partition key."""

from ensue.algebra.equivalence import connected, mandatory, tied_fields, with_equivalence
from ensue.algebra.form import is_sequence
from ensue.algebra.policy import Strategy
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms, positives
from ensue.algebra.window import ByEvents


def partition_by_equality(query: Query) -> Query:
    """`WHERE x.id = y.id AND x.id = z.id` over all of x, y, z is `WHERE [id]`.

    Not where the partition itself has a meaning (events counted or adjacent in it, matches that
    use up its events), nor where a variable may be unbound; under skip-till-next-match only if
    each variable is tied to an earlier one, since an event is judged by what is bound before it.
    """
    if (
        isinstance(query.within, ByEvents)
        or query.strategy is Strategy.PARTITION
        or query.after is not None
        or not mandatory(query.pattern)
    ):
        return query
    for field, pairs in tied_fields(query).items():
        if _tie_all(query, pairs):
            query = with_equivalence(query, field)
    return query


def _tie_all(query: Query, pairs: list[tuple[str, str]]) -> bool:
    order = [a.variable for a in positives(query.pattern)]
    if len(order) < 2:
        return False  # an equality with a negated event alone lets the field be NULL
    if query.strategy is Strategy.NEXT:
        among_earlier = all(
            any({variable, other} == set(pair) for other in order[:k] for pair in pairs)
            for k, variable in enumerate(order)
            if k
        )
        if not among_earlier or not is_sequence(query.pattern):
            return False
    positive = connected(order[0], [p for p in pairs if set(p) <= set(order)])
    return positive >= set(order) and connected(order[0], pairs) >= {
        a.variable for a in atoms(query.pattern)
    }
