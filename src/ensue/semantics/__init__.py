"""What a query means: slow, short, and the judge of everything else.

`matches(query, events)` lists every match of a checked query in a stream that is already in order,
`summaries(query, events)` what COUNT(*) and EXISTS give in their place, `timeouts(query, events)`
every partial match that ran out of time, `tower_matches(layers, events, schema)` the matches of
every layer of a tower, and `layer_timeouts` its timed-out partial matches;
`correlated(correlation, events, archives)` the rows of a query with JOIN ARCHIVE.
`in_time_order` is the order of their rows, `labelled` the rows of RETURN ALL EVENTS, `whole_rows`
what GROUP BY, ORDER BY and FETCH FIRST make of all matches.
Kernels, plans and runners must give exactly these.
"""

from ensue.semantics.choosing import chosen, is_decided_by_neighbour, known, waits
from ensue.semantics.conditions import holds, value_of
from ensue.semantics.correlation import Correlated, correlated, in_range
from ensue.semantics.events import Binding, Event, before, members
from ensue.semantics.lapses import over_after
from ensue.semantics.matches import matches, next_begin, spoilt
from ensue.semantics.partition import TooManyWays
from ensue.semantics.results import Fired, derived
from ensue.semantics.summaries import Summary, summaries
from ensue.semantics.timeouts import timeouts
from ensue.semantics.towers import (
    complex_events,
    layer_stream,
    layer_timeouts,
    nested,
    tower_matches,
)
from ensue.semantics.whole_results import in_time_order, labelled, whole_rows

__all__ = [
    "Binding",
    "Correlated",
    "Event",
    "Fired",
    "Summary",
    "TooManyWays",
    "before",
    "chosen",
    "complex_events",
    "correlated",
    "derived",
    "holds",
    "in_range",
    "in_time_order",
    "is_decided_by_neighbour",
    "known",
    "labelled",
    "layer_stream",
    "layer_timeouts",
    "matches",
    "members",
    "nested",
    "next_begin",
    "over_after",
    "spoilt",
    "summaries",
    "timeouts",
    "tower_matches",
    "value_of",
    "waits",
    "whole_rows",
]
