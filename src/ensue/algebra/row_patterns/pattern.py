"""The PATTERN of a MATCH_RECOGNIZE clause: a regular expression over the variables of rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import Literal

from ensue.span import Span


@dataclass(frozen=True, slots=True)
class Row:
    """One row that is mapped to a variable: `DOWN`."""

    variable: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Nothing:
    """The empty pattern: `()`."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Anchor:
    """`^`, before the first row of a partition, or `$`, behind its last one."""

    at: Literal["start", "end"]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Concatenation:
    """The parts one after the other: `A B+ C`."""

    parts: tuple["RowTerm", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of the parts, the first that fits: `A | B`."""

    parts: tuple["RowTerm", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Repetition:
    """A part from `least` to `most` times: as often as possible, or as rarely: `A+`, `A+?`."""

    part: "RowTerm"
    least: int
    most: int | None  # None: any number of times
    greedy: bool = True
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Permutation:
    """All parts in any order, those of the text first: `PERMUTE(A, B)` is `A B | B A`."""

    parts: tuple["RowTerm", ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def orders(self) -> Iterator[tuple["RowTerm", ...]]:
        """The orders of the parts, in the order of preference.

        >>> a, b = Row("A"), Row("B")
        >>> list(Permutation((a, b)).orders) == [(a, b), (b, a)]
        True
        """
        return permutations(self.parts)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rows that are matched, and left out of ALL ROWS PER MATCH: `{- B+ -}`."""

    part: "RowTerm"
    span: Span | None = field(default=None, compare=False, repr=False)


RowTerm = (
    Row | Nothing | Anchor | Concatenation | Alternation | Repetition | Permutation | Exclusion
)


def parts_of(term: RowTerm) -> tuple[RowTerm, ...]:
    """The parts that a term is made of, in the order of the text."""
    match term:
        case Row() | Nothing() | Anchor():
            return ()
        case Concatenation(parts=parts) | Alternation(parts=parts) | Permutation(parts=parts):
            return parts
        case Repetition(part=part) | Exclusion(part=part):
            return (part,)


def terms(term: RowTerm) -> Iterator[RowTerm]:
    """A term and all in it, in the order of the text."""
    yield term
    for part in parts_of(term):
        yield from terms(part)


def variables_of(term: RowTerm) -> tuple[str, ...]:
    """The variables of a pattern, each once, in the order of the text.

    >>> variables_of(Concatenation((Row("A"), Repetition(Row("B"), 1, None), Row("A"))))
    ('A', 'B')
    """
    return tuple(dict.fromkeys(t.variable for t in terms(term) if isinstance(t, Row)))


def nullable(term: RowTerm) -> bool:
    """Whether a term can be matched by no row at all.

    >>> nullable(Repetition(Row("A"), 0, 3)), nullable(Row("A"))
    (True, False)
    """
    match term:
        case Row():
            return False
        case Nothing() | Anchor():
            return True
        case Concatenation(parts=parts) | Permutation(parts=parts):
            return all(map(nullable, parts))
        case Alternation(parts=parts):
            return any(map(nullable, parts))
        case Repetition(part=part, least=least):
            return least == 0 or nullable(part)
        case Exclusion(part=part):
            return nullable(part)
