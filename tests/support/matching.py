"""Queries made ready, matched in a table that is in the order of the stream."""

import pyarrow as pa

from ensue.operators.match.match_operator import match_queries
from ensue.runtime.compiled_query import CompiledQuery, TimeoutQueries
from ensue.runtime.stage import Progress


def match_in_order(
    queries: TimeoutQueries | CompiledQuery, events: pa.Table, progress: Progress | None = None
) -> pa.Table:
    """All matches of a query, or of one with its timed-out partial matches."""
    if isinstance(queries, CompiledQuery):
        return match_queries((queries,), events, progress)[0]
    return queries.merge(match_queries(queries.queries, events, progress))
