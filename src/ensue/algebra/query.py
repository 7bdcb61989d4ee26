"""A whole query."""

from dataclasses import dataclass, field

from ensue.algebra.pattern import Pattern
from ensue.algebra.policy import AfterMatch, Choose, Strategy
from ensue.algebra.predicate import Aggregate, Expr
from ensue.algebra.walk import entries
from ensue.algebra.window import Window
from ensue.rendering import ShownAsText
from ensue.span import Span


@dataclass(frozen=True, slots=True)
class Equivalence:
    """`[attr]`: every event of a match, the negated ones too, has the same value in this field."""

    field_name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Returned:
    """One column of the result, `x.tag AS tag`; or a column for each field of an event, `x.*`."""

    expr: Expr
    name: str  # of `x.*` what the names begin with
    every: bool = False  # `x.*`; of a variable `*`, all variables
    over: Aggregate | None = None  # the matches of a group are taken together by this
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Limit:
    """`LIMIT n`: of the matches with one last event only the first n, by their members."""

    count: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SortKey:
    """`gain DESC`: what rows of a result are ordered by."""

    expr: Expr  # a bare name, if it is that of a column
    descending: bool = False
    nulls_first: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WholeResult:
    """What is done with all rows of a result: GROUP BY, ORDER BY, and the first n of them."""

    keys: tuple[Expr, ...] | None = None  # of GROUP BY; none of them: all matches are one group
    order: tuple[SortKey, ...] = ()
    first: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def grouped(self) -> bool:
        """Whether a row stands for several matches."""
        return self.keys is not None


@dataclass(frozen=True, slots=True)
class Query(ShownAsText):
    """A query as `parse` reads it.

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
    returns: tuple[Returned, ...] = ()  # empty: the variables themselves
    having: Expr | None = None
    exists: bool = False  # RETURN EXISTS: one row a trigger
    limit: Limit | None = None
    choose: Choose | None = None  # None: all
    all_events: bool = False  # RETURN ALL EVENTS: one row for each event of a match
    whole: WholeResult | None = None  # what is done with all rows of the result
    unfinished: bool = False  # it asks for timed-out partial matches, in place of matches
    text: str | None = field(default=None, compare=False, repr=False)

    @property
    def strategies(self) -> frozenset[Strategy]:
        """Its strategy, and those that parts of its pattern name for themselves."""
        return frozenset((self.strategy, *entries(self.pattern)))

    @property
    def weighs_matches(self) -> bool:
        """Whether a match may give way to others, so that each is judged when it is found."""
        return self.after is not None or self.choose is not None
