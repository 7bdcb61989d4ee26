"""Pattern queries."""

from dataclasses import dataclass, field

from ensue.errors import Span
from ensue.ir.expression import Aggregate, Expr
from ensue.ir.pattern import Pattern
from ensue.ir.selection import AfterMatch, Choose, Strategy, Window
from ensue.ir.traversal import iterate_strategies
from ensue.notebook_repr import TextRepr

TIMED_OUT = "timed_out"  # the column that tells timed-out partial matches from matches


@dataclass(frozen=True, slots=True)
class Equivalence:
    """`[attr]`: every event of a match, the negated ones too, has the same value in this field."""

    field_name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ReturnItem:
    """One column of the result, `x.tag AS tag`; or a column for each field of an event, `x.*`."""

    expr: Expr
    name: str  # for `x.*` the prefix of the names
    every: bool = False  # `x.*`; for the variable `*` all variables
    over: Aggregate | None = None  # the aggregate over the matches of a group
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Limit:
    """`LIMIT n`: the first n of the matches that share a last event, by their members."""

    count: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SortKey:
    """`gain DESC`: one key of ORDER BY."""

    expr: Expr  # a bare name, if it names a column
    descending: bool = False
    nulls_first: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ResultModifiers:
    """GROUP BY, ORDER BY and FETCH FIRST, which apply to all rows of a result."""

    keys: tuple[Expr, ...] | None = None  # of GROUP BY; empty: all matches are one group
    order: tuple[SortKey, ...] = ()
    first: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def grouped(self) -> bool:
        """Whether a row summarizes several matches."""
        return self.keys is not None


@dataclass(frozen=True, slots=True)
class Query(TextRepr):
    """A pattern query, as returned by `parse`.

    `EVENT name AS pattern WHERE ... WITHIN ... AFTER MATCH ... RETURN ... HAVING ... GROUP BY ...
    ORDER BY ... LIMIT`; `CHOOSE` comes last.

    >>> import ensue
    >>> ensue.parse("SEQ(A a, B b) USING next WITHIN 5").strategy.value
    'skip_till_next_match'
    """

    pattern: Pattern
    name: str | None = None
    strategy: Strategy = Strategy.ANY
    where: tuple[Expr, ...] = ()  # conjuncts
    equivalence: tuple[Equivalence, ...] = ()
    within: Window | None = None
    after: AfterMatch | None = None
    returns: tuple[ReturnItem, ...] = ()  # empty: the variables themselves
    having: Expr | None = None
    exists: bool = False  # RETURN EXISTS: one row per trigger
    limit: Limit | None = None
    choose: Choose | None = None  # None: all
    all_events: bool = False  # RETURN ALL EVENTS: one row for each event of a match
    whole: ResultModifiers | None = None  # GROUP BY, ORDER BY, FETCH FIRST
    unfinished: bool = False  # returns timed-out partial matches instead of matches
    text: str | None = field(default=None, compare=False, repr=False)

    @property
    def queries(self) -> "tuple[Query, ...]":
        """The pattern queries that it is made of: itself."""
        return (self,)

    @property
    def strategies(self) -> frozenset[Strategy]:
        """Its strategy, and those of parts of its pattern."""
        return frozenset((self.strategy, *iterate_strategies(self.pattern)))

    @property
    def selects_matches(self) -> bool:
        """Whether a match may be dropped because of another one (AFTER MATCH, CHOOSE)."""
        return self.after is not None or self.choose is not None
