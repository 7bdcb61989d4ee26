"""How much work may be done. A step is about the work of one predicate on one event."""

EDGE = 15  # an edge of a region, against a place
PLACES = 15  # the places of events, against each other
CONDITION = 3
TRIED = 5  # an event, for a part
FOUND = 10  # a match


class Cut(Exception):  # noqa: N818  nothing went wrong
    """All steps are taken."""


class Steps:
    """Counts tests of events and of combinations, up to a bound.

    >>> steps = Steps(2)
    >>> steps.take(2)
    >>> steps.take()
    Traceback (most recent call last):
    ensue.semantics.why_not.steps.Cut
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    @property
    def left(self) -> int:
        return self.most - self.taken

    def take(self, count: int = 1) -> None:
        """So many more, or Cut."""
        if self.taken + count > self.most:
            raise Cut
        self.taken += count
