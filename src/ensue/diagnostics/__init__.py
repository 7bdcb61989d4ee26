"""*Why not?* reports how far the events of a stream got in a subscription, and what stopped them.

`why_not(subscription, stream)` looks at each alternative of the flattened subscription: at the
tests of its atoms, event by event, then at combinations of the events that passed, part by part.
"""

from ensue.diagnostics.search import MAX_CANDIDATES, MAX_STEPS, why_not
from ensue.diagnostics.why_not_report import MatchCandidate, WhyNot

__all__ = ["MAX_CANDIDATES", "MAX_STEPS", "MatchCandidate", "WhyNot", "why_not"]
