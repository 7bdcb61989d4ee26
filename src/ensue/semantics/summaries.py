"""COUNT(*) and EXISTS: one row for each event that completes matches."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ensue.algebra.query import Query
from ensue.semantics.events import Event, members
from ensue.semantics.matches import matches

MOST = 2**63 - 1  # matches are counted up to here


@dataclass(frozen=True, slots=True)
class Summary:
    """What is said of all matches that one event completes, their trigger."""

    trigger: Event
    count: int
    start: int | float


def summaries(query: Query, events: Sequence[Event]) -> list[Summary]:
    """One row a trigger, in the order of the stream.

    `start` is where the first of its matches begins; for EXISTS, where the last one does: the
    shortest proof that there is one.
    """
    found = []
    for _, same in groupby(matches(query, events), key=lambda b: members(b)[-1].position):
        bindings = list(same)
        trigger = members(bindings[0])[-1]
        starts = [min(e.start for e in members(binding)) for binding in bindings]
        start = max(starts) if query.exists else min(starts)
        found.append(Summary(trigger, min(len(bindings), MOST), start))
    return found
