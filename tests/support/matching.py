"""Queries made ready, matched in a table that is in the order of the stream."""

import pyarrow as pa

from ensue.workload.prepared import Prepared
from ensue.workload.queries.work import matched
from ensue.workload.timed_out import Bundle
from ensue.workload.work import Progress


def match_in_order(
    queries: Bundle | Prepared, events: pa.Table, progress: Progress | None = None
) -> pa.Table:
    """All matches of a query, or of one with its timed-out partial matches."""
    if isinstance(queries, Prepared):
        return matched((queries,), events, progress).tables[0]
    return queries.merged(matched(queries.queries, events, progress).tables)
