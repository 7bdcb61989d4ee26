"""A query over a stream and over what happened before: a live pattern, joined with archives."""

from dataclasses import dataclass, field
from enum import Enum

from ensue.algebra.pattern import Atom
from ensue.algebra.predicate import Expr
from ensue.algebra.query import Equivalence, Limit, Query, Returned, WholeResult
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.window import ByTime, ByUnits
from ensue.rendering import ShownAsText
from ensue.span import Span


class JoinKind(Enum):
    """What becomes of a live match that has no past, or that has one."""

    INNER = "JOIN"  # a row for each archived match that fits
    LEFT = "LEFT JOIN"  # as JOIN, and one without a past where none fits
    ANTI = "ANTI JOIN"  # only the live matches that none fits


class Anchor(Enum):
    """From where in the live match the range is counted back."""

    START = "START"
    END = "END"


@dataclass(frozen=True, slots=True)
class Range:
    """`RANGE BETWEEN far AND near BEFORE START`: where an archived match lies as a whole.

    It starts no earlier than `far` before the anchor. Without `near` it ends before the anchor,
    else no later than `near` before it.
    """

    far: ByTime | ByUnits
    anchor: Anchor = Anchor.START
    near: ByTime | ByUnits | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ClauseSide:
    """A side that is a clause of SQL: a match is one event, which is called by its alias.

    Its fields are the columns that the clause gives, with ONE ROW PER MATCH. It starts with the
    first row of the match and ends with the last, by the first column of ORDER BY.
    """

    recognition: Recognition
    alias: str
    ids: bool = False  # it has a field match_id, too
    table: str = ""  # as the text calls what it is over

    @property
    def pattern(self) -> Atom:
        """A match as one event."""
        return Atom(self.alias, self.alias)

    @property
    def name(self) -> None:
        return None


AnySide = Query | ClauseSide


@dataclass(frozen=True, slots=True)
class ArchiveJoin:
    """`JOIN ARCHIVE name pattern ... RANGE ... LAST n ON ...`."""

    archive: str
    query: AnySide  # pattern, strategy, WHERE, WITHIN, AFTER MATCH; it returns its variables
    range: Range
    on: tuple[Expr, ...] = ()  # conjuncts over both sides, and joins before this one
    equivalence: tuple[Equivalence, ...] = ()  # `[attr]`: equal in all events of both sides
    last: int | None = None  # LAST n: of those that fit only the latest
    kind: JoinKind = JoinKind.INNER
    # of the archive's name
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Correlation(ShownAsText):
    """A live query, and what its matches are joined with.

    >>> import ensue
    >>> joined = ensue.parse("A a JOIN ARCHIVE old B b RANGE 5 minutes BEFORE START ON [k]")
    >>> joined.joins[0].archive
    'old'
    """

    live: AnySide  # without RETURN, HAVING and LIMIT, which speak of all sides
    joins: tuple[ArchiveJoin, ...]
    returns: tuple[Returned, ...] = ()  # empty: the variables of all sides but ANTI ones
    having: Expr | None = None
    limit: Limit | None = None  # of the rows of each live match the first n
    # of the result, in their order; None: match_id, start and end, then what is returned
    columns: tuple[str, ...] | None = None
    whole: WholeResult | None = None  # what is done with all rows of the result
    text: str | None = field(default=None, compare=False, repr=False)

    @property
    def of_clauses(self) -> bool:
        """Whether a side is a clause of SQL."""
        sides = (self.live, *(join.query for join in self.joins))
        return any(isinstance(side, ClauseSide) for side in sides)

    @property
    def name(self) -> str | None:
        return self.live.name


def shown_joins(correlation: Correlation) -> tuple[ArchiveJoin, ...]:
    """The joins whose archived matches are in the rows: not the ANTI ones."""
    return tuple(join for join in correlation.joins if join.kind is not JoinKind.ANTI)


def shown_sides(correlation: Correlation) -> tuple[AnySide, ...]:
    """The queries whose variables a row has: the live one, then those of the joins."""
    return (correlation.live, *(join.query for join in shown_joins(correlation)))
