"""The executable specification of queries: slow, short, and the reference for all engines.

`find_matches` lists every match of a checked query in a sorted stream, `summarize_matches` the
rows of COUNT(*) and EXISTS, `find_timeouts` the timed-out partial matches, `match_hierarchy` the
matches of every layer of a hierarchy, `find_layer_timeouts` its timed-out partial matches, and
`join_matches` the rows of an archive join. `sort_matches` sorts their rows, `build_event_rows`
builds the rows of RETURN ALL EVENTS, and `build_result_rows` those of GROUP BY, ORDER BY and FETCH
FIRST. Kernels, plans and backends must return exactly these results.
"""

from ensue.reference.aggregation import build_event_rows, build_result_rows, sort_matches
from ensue.reference.conditions import Binding, Event, compute_certain_time, compute_value, members
from ensue.reference.hierarchy_matches import (
    build_complex_events,
    build_layer_stream,
    find_layer_timeouts,
    match_hierarchy,
    nest_positions,
)
from ensue.reference.join import JoinedMatch, join_matches
from ensue.reference.match_search import (
    choose_matches,
    compute_certainty,
    compute_next_start,
    find_matches,
    find_timeouts,
    is_absence_violated,
    is_decided_by_neighbour,
    must_wait,
    summarize_matches,
)
from ensue.reference.partition import TooManyBindings
from ensue.reference.user_operators import RepeatResults, add_operator_results

__all__ = [
    "Binding", "Event", "JoinedMatch", "RepeatResults", "TooManyBindings", "add_operator_results",
    "build_complex_events", "build_event_rows", "build_layer_stream", "build_result_rows", "choose_matches",
    "compute_certain_time", "compute_certainty", "compute_next_start", "compute_value", "find_layer_timeouts",
    "find_matches", "find_timeouts", "is_absence_violated", "is_decided_by_neighbour", "join_matches",
    "match_hierarchy", "members", "must_wait", "nest_positions", "sort_matches", "summarize_matches",
]  # fmt: skip
