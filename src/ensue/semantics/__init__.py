"""What a query means: slow, short, and the judge of everything else.

`matches(query, events)` lists every match of a checked query in a stream that is already in order,
`timeouts(query, events)` every partial match that ran out of time. Kernels, plans and runners must
give exactly these.
"""

from ensue.semantics.conditions import holds, value_of
from ensue.semantics.events import Binding, Event, before, members
from ensue.semantics.matches import matches
from ensue.semantics.results import derived
from ensue.semantics.timeouts import timeouts

__all__ = [
    "Binding",
    "Event",
    "before",
    "derived",
    "holds",
    "matches",
    "members",
    "timeouts",
    "value_of",
]
