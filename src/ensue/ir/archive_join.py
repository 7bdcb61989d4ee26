"""Queries that join the matches of a live pattern with matches in archives."""

from dataclasses import dataclass, field
from enum import Enum

from ensue.errors import Span
from ensue.ir.expression import Expr
from ensue.ir.pattern import Atom
from ensue.ir.query import Equivalence, Limit, Query, ResultModifiers, ReturnItem
from ensue.ir.row_pattern import RowPatternQuery
from ensue.ir.selection import ByTime, ByUnits
from ensue.notebook_repr import TextRepr


class JoinKind(Enum):
    """How a live match is joined with archived matches."""

    INNER = "JOIN"  # a row for each archived match that satisfies the join
    LEFT = "LEFT JOIN"  # as JOIN, and one row with NULLs if there is none
    ANTI = "ANTI JOIN"  # only live matches without an archived match


class RangeAnchor(Enum):
    """The end of the live match from which the range counts back."""

    START = "START"
    END = "END"


@dataclass(frozen=True, slots=True)
class LookbackRange:
    """`RANGE BETWEEN far AND near BEFORE START`: the time range that contains an archived match.

    The match starts no earlier than `far` before the anchor. It ends before the anchor, or no
    later than `near` before it.
    """

    far: ByTime | ByUnits
    anchor: RangeAnchor = RangeAnchor.START
    near: ByTime | ByUnits | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RowPatternSide:
    """A side that is a MATCH_RECOGNIZE clause: each match is one event, named by the alias.

    The event's fields are the output columns of the clause with ONE ROW PER MATCH. It starts with
    the first row of the match and ends with the last, by the first column of ORDER BY.
    """

    row_pattern: RowPatternQuery
    alias: str
    ids: bool = False  # with a field match_id
    table: str = field(default="", compare=False)  # its input, as named in the text

    @property
    def pattern(self) -> Atom:
        """The pattern of the one event that stands for a match."""
        return Atom(self.alias, self.alias)

    @property
    def name(self) -> None:
        return None


JoinSide = Query | RowPatternSide


@dataclass(frozen=True, slots=True)
class ArchiveJoin:
    """`JOIN ARCHIVE name pattern ... RANGE ... LAST n ON ...`."""

    archive: str
    query: JoinSide  # pattern, strategy, WHERE, WITHIN, AFTER MATCH; returns its variables
    range: LookbackRange
    on: tuple[Expr, ...] = ()  # conjuncts over both sides and earlier joins
    equivalence: tuple[Equivalence, ...] = ()  # `[attr]`: equal in all events of both sides
    last: int | None = None  # LAST n: only the latest n archived matches
    kind: JoinKind = JoinKind.INNER
    span: Span | None = field(default=None, compare=False, repr=False)  # of the archive's name


@dataclass(frozen=True, slots=True)
class ArchiveJoinQuery(TextRepr):
    """A live query whose matches are joined with archives.

    >>> import ensue
    >>> joined = ensue.parse("A a JOIN ARCHIVE old B b RANGE 5 minutes BEFORE START ON [k]")
    >>> joined.joins[0].archive
    'old'
    """

    live: JoinSide  # without RETURN, HAVING and LIMIT, which apply to all sides
    joins: tuple[ArchiveJoin, ...]
    returns: tuple[ReturnItem, ...] = ()  # empty: the variables of all sides but ANTI ones
    having: Expr | None = None
    limit: Limit | None = None  # the first n rows of each live match
    # of the result, in order; None: match_id, start and end, then the returned columns
    columns: tuple[str, ...] | None = None
    whole: ResultModifiers | None = None  # GROUP BY, ORDER BY, FETCH FIRST
    text: str | None = field(default=None, compare=False, repr=False)

    @property
    def sides(self) -> tuple[JoinSide, ...]:
        return (self.live, *(join.query for join in self.joins))

    @property
    def queries(self) -> tuple[Query, ...]:
        """The sides that are pattern queries."""
        return tuple(side for side in self.sides if isinstance(side, Query))

    @property
    def has_row_pattern_sides(self) -> bool:
        """Whether a side is a MATCH_RECOGNIZE clause."""
        return any(isinstance(side, RowPatternSide) for side in self.sides)

    @property
    def name(self) -> str | None:
        return self.live.name


def get_output_joins(archive_join: ArchiveJoinQuery) -> tuple[ArchiveJoin, ...]:
    """Returns the joins whose archived matches appear in the output: all but ANTI joins."""
    return tuple(join for join in archive_join.joins if join.kind is not JoinKind.ANTI)


def get_output_sides(archive_join: ArchiveJoinQuery) -> tuple[JoinSide, ...]:
    """Returns the queries whose variables appear in the output, the live one first."""
    return (archive_join.live, *(join.query for join in get_output_joins(archive_join)))
