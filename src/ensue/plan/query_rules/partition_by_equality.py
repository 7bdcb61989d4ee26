"""Turns equalities that tie all variables into a partition key."""

from ensue.algebra.equivalence import partitioning, with_equivalence
from ensue.algebra.query import Query


def partition_by_equality(query: Query) -> Query:
    """`WHERE x.id = y.id AND x.id = z.id` over all of x, y, z is `WHERE [id]`.

    Not where the partition itself has a meaning (events counted or adjacent in it, matches that
    use up its events), nor where a variable may be unbound; under skip-till-next-match only if
    each variable is tied to an earlier one, since an event is judged by what is bound before it.
    """
    for field in partitioning(query):
        query = with_equivalence(query, field)
    return query
