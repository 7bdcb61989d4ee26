"""*Why not?* How far the events of a stream got in a subscription, and what stopped them.

`why_not(subscription, stream)` looks at each alternative of the flattened subscription: at the
tests of its atoms, event by event, then at combinations of the events that passed, part by part.
"""

from ensue.semantics.why_not.answer import (
    Atom,
    Candidate,
    Candidates,
    Check,
    Demand,
    NearMiss,
    Seen,
    Way,
    WhyNot,
)
from ensue.semantics.why_not.asking import MOST_CANDIDATES, MOST_STEPS, why_not

__all__ = [
    "MOST_CANDIDATES",
    "MOST_STEPS",
    "Atom",
    "Candidate",
    "Candidates",
    "Check",
    "Demand",
    "NearMiss",
    "Seen",
    "Way",
    "WhyNot",
    "why_not",
]
