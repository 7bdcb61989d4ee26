"""A whole MATCH_RECOGNIZE clause."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from ensue.algebra.predicate import Expr, Field
from ensue.algebra.row_patterns.pattern import RowTerm, variables_of
from ensue.algebra.row_patterns.values import OrderedBy, RowValue
from ensue.rendering import ShownAsText
from ensue.span import Span


class Rows(Enum):
    """What a match gives."""

    ONE = "ONE ROW PER MATCH"
    ALL = "ALL ROWS PER MATCH SHOW EMPTY MATCHES"
    ALL_BUT_EMPTY = "ALL ROWS PER MATCH OMIT EMPTY MATCHES"
    ALL_AND_UNMATCHED = "ALL ROWS PER MATCH WITH UNMATCHED ROWS"


class SkipTo(Enum):
    """Where the search goes on behind a match."""

    PAST_LAST = "PAST LAST ROW"
    NEXT = "TO NEXT ROW"
    FIRST = "TO FIRST"
    LAST = "TO LAST"


@dataclass(frozen=True, slots=True)
class Skip:
    """`AFTER MATCH SKIP ...`; the variables of a SUBSET are those it stands for."""

    to: SkipTo = SkipTo.PAST_LAST
    name: str | None = None  # as it is written
    variables: tuple[str, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of PARTITION BY, and the column of the result that holds it."""

    expr: Expr  # over Field(ROW, ...)
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def column(self) -> str | None:
        """The column that it is; None: it is computed."""
        return self.expr.name if isinstance(self.expr, Field) else None


@dataclass(frozen=True, slots=True)
class Measure:
    """One column of MEASURES."""

    value: RowValue
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Define:
    """The condition under which a row may be mapped to a variable."""

    variable: str
    value: RowValue
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Recognition(ShownAsText):
    """`MATCH_RECOGNIZE (PARTITION BY ... ORDER BY ... MEASURES ... PATTERN ... DEFINE ...)`.

    Names of variables are those that the standard gives them: upper case, unless they are quoted.
    In what is checked against a table (`check`), columns are those of the table.
    """

    pattern: RowTerm
    partition: tuple[Key, ...] = ()
    order: tuple[OrderedBy, ...] = ()
    measures: tuple[Measure, ...] = ()
    rows: Rows = Rows.ONE
    skip: Skip = Skip()
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    defines: tuple[Define, ...] = ()
    within: timedelta | int | float | None = None  # from the first row to the last: less than this
    text: str | None = field(default=None, compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def variables(self) -> tuple[str, ...]:
        return variables_of(self.pattern)

    @property
    def conditions(self) -> dict[str, RowValue]:
        """The conditions by variable; one that has none takes every row."""
        return {define.variable: define.value for define in self.defines}

    @property
    def values(self) -> Iterator[RowValue]:
        """All values of MEASURES and DEFINE."""
        yield from (measure.value for measure in self.measures)
        yield from (define.value for define in self.defines)
