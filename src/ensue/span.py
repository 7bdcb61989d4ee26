"""A position in a query's text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open range of characters `[start, end)` of a text.

    >>> Span(2, 5).over("WHERE")
    'ERE'
    """

    start: int
    end: int

    def over(self, text: str) -> str:
        return text[self.start : self.end]

    def to(self, other: "Span | None") -> "Span":
        """The smallest span that covers both."""
        if other is None:
            return self
        return Span(min(self.start, other.start), max(self.end, other.end))
