"""Lengths of time as OPSL writes them."""

from dataclasses import dataclass

from ensue.algebra.durations import show_duration
from ensue.service.templates.numbers import number_text

NANOSECONDS = 1_000_000_000  # of a second


@dataclass(frozen=True, slots=True)
class Length:
    """Nanoseconds, or a number in the units of the time column.

    >>> str(Length(90 * NANOSECONDS, True)), str(Length(2.5, False))
    ('90 seconds', '2.5')
    """

    amount: int | float
    calendar: bool

    def __bool__(self) -> bool:
        return self.amount > 0

    def __add__(self, other: "Length") -> "Length":
        return Length(self.amount + other.amount, self.calendar)

    def __str__(self) -> str:
        return show_duration(int(self.amount)) if self.calendar else number_text(self.amount)

    @property
    def seconds(self) -> float:
        """Seconds, or units of the time column."""
        return self.amount / NANOSECONDS if self.calendar else self.amount
