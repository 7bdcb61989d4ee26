"""MATCH_RECOGNIZE clauses: row patterns, their expressions, and the clause itself."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from itertools import permutations
from typing import ClassVar, Literal

from ensue.errors import Span
from ensue.ir.expression import Expr, FieldRef
from ensue.ir.traversal import iterate_nodes
from ensue.notebook_repr import TextRepr


@dataclass(frozen=True, slots=True)
class RowVariable:
    """One row, mapped to a variable: `DOWN`."""

    variable: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EmptyRowPattern:
    """The empty pattern: `()`."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PartitionAnchor:
    """`^`, before the first row of a partition, or `$`, after the last."""

    at: Literal["start", "end"]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Concatenation:
    """The parts one after the other: `A B+ C`."""

    parts: tuple["RowTerm", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of the parts, preferably an earlier one: `A | B`."""

    parts: tuple["RowTerm", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Repetition:
    """A part from `least` to `most` times, greedy or reluctant: `A+`, `A+?`."""

    part: "RowTerm"
    least: int
    most: int | None  # None: any number of times
    greedy: bool = True
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Permutation:
    """All parts in any order, preferably that of the text: `PERMUTE(A, B)` is `A B | B A`."""

    parts: tuple["RowTerm", ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def orders(self) -> Iterator[tuple["RowTerm", ...]]:
        """The orders of the parts by preference.

        >>> a, b = RowVariable("A"), RowVariable("B")
        >>> list(Permutation((a, b)).orders) == [(a, b), (b, a)]
        True
        """
        return permutations(self.parts)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rows that are matched but omitted from ALL ROWS PER MATCH: `{- B+ -}`."""

    part: "RowTerm"
    span: Span | None = field(default=None, compare=False, repr=False)


RowTerm = (
    RowVariable | EmptyRowPattern | PartitionAnchor | Concatenation | Alternation | Repetition | Permutation | Exclusion
)


def get_term_parts(term: RowTerm) -> tuple[RowTerm, ...]:
    """Returns the direct parts of a term in the order of the text."""
    match term:
        case RowVariable() | EmptyRowPattern() | PartitionAnchor():
            return ()
        case Concatenation(parts=parts) | Alternation(parts=parts) | Permutation(parts=parts):
            return parts
        case Repetition(part=part) | Exclusion(part=part):
            return (part,)


def iterate_terms(term: RowTerm) -> Iterator[RowTerm]:
    """Yields a term and all terms in it, in the order of the text."""
    yield term
    for part in get_term_parts(term):
        yield from iterate_terms(part)


def collect_variables(term: RowTerm) -> tuple[str, ...]:
    """Returns the variables of a pattern, each once, in the order of the text.

    >>> collect_variables(Concatenation((RowVariable("A"), RowVariable("B"), RowVariable("A"))))
    ('A', 'B')
    """
    return tuple(dict.fromkeys(t.variable for t in iterate_terms(term) if isinstance(t, RowVariable)))


def is_nullable(term: RowTerm) -> bool:
    """Whether a term matches the empty sequence of rows.

    >>> is_nullable(Repetition(RowVariable("A"), 0, 3)), is_nullable(RowVariable("A"))
    (True, False)
    """
    match term:
        case RowVariable():
            return False
        case EmptyRowPattern() | PartitionAnchor():
            return True
        case Concatenation(parts=parts) | Permutation(parts=parts):
            return all(map(is_nullable, parts))
        case Alternation(parts=parts):
            return any(map(is_nullable, parts))
        case Repetition(part=part, least=least):
            return least == 0 or is_nullable(part)
        case Exclusion(part=part):
            return is_nullable(part)


# --- expressions of MEASURES and DEFINE, whose leaves are operands computed from the match

OPERAND = "#"  # the variable of fields that refer to operands, by number
ROW = ""  # the variable of fields that are columns of one row
CLASSIFIER = "\0classifier"  # a column of one row: the variable that the row is mapped to
MATCH_NUMBER = "\0number"  # a column of one row: the number of the match
MATCH_COLUMNS = (CLASSIFIER, MATCH_NUMBER)  # columns of the match, not of the table


@dataclass(frozen=True, slots=True)
class Navigation:
    """The value of an expression at one row: `LAST(A.price, 2)`, `PREV(price)`, `B.price`.

    Among the rows mapped to one of `variables` (empty: all rows of the match) it takes the row
    `offset` rows after the first, or before the last, and then moves `shift` rows in the
    partition (backwards if negative). It sees the rows up to the current one (running), or all
    rows of the match (`final`). Its value is NULL if there is no such row.
    """

    expr: Expr  # over Field(ROW, ...)
    variables: tuple[str, ...] = ()
    first: bool = False
    offset: int = 0
    shift: int = 0
    final: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RowAggregate:
    """An aggregate over the rows of some variables, in their order: `sum(A.price)`, `count(*)`.

    `arguments` are expressions over FieldRef(ROW, ...); without them it counts rows. Rows for
    which `only` is not true are skipped.
    """

    function: str
    arguments: tuple[Expr, ...] = ()
    variables: tuple[str, ...] = ()  # empty: all rows of the match
    final: bool = False
    distinct: bool = False
    only: Expr | None = None  # FILTER (WHERE ...)
    order: tuple["RowSortKey", ...] = ()  # array_agg(x ORDER BY y)
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RowSortKey:
    """One key of ORDER BY: `price DESC NULLS LAST`."""

    expr: Expr  # over Field(ROW, ...)
    descending: bool = False
    nulls_first: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MatchNumber:
    """`MATCH_NUMBER()`: the sequential number of the match in its partition, from 1."""

    span: Span | None = field(default=None, compare=False, repr=False)


RowOperand = Navigation | RowAggregate | MatchNumber


@dataclass(frozen=True, slots=True)
class RowExpression:
    """An expression of MEASURES or DEFINE over its operands."""

    expr: Expr  # over Field(REACHED, ...)
    operands: tuple[RowOperand, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    def reach(self, leaf: FieldRef) -> RowOperand:
        """Returns the operand that a field of the expression refers to."""
        assert leaf.variable == OPERAND
        assert leaf.name is not None
        return self.operands[int(leaf.name)]

    @property
    def only(self) -> RowOperand | None:
        """The operand, if the expression is nothing else; otherwise None."""
        return self.reach(self.expr) if isinstance(self.expr, FieldRef) else None


def iterate_operand_expressions(reach: RowOperand) -> Iterator[Expr]:
    """Yields the expressions over columns of one row that an operand evaluates."""
    match reach:
        case Navigation(expr=expr):
            yield expr
        case RowAggregate(arguments=arguments, only=only, order=order):
            yield from arguments
            if only is not None:
                yield only
            yield from (key.expr for key in order)
        case MatchNumber():
            return


def reads_match_columns(reach: RowOperand) -> bool:
    """Whether an operand reads CLASSIFIER() or MATCH_NUMBER()."""
    return any(
        isinstance(node, FieldRef) and node.name in MATCH_COLUMNS
        for expr in iterate_operand_expressions(reach)
        for node in iterate_nodes(expr)
    )


class RowsPerMatch(Enum):
    """The rows that a match returns."""

    ONE = "ONE ROW PER MATCH"
    ALL = "ALL ROWS PER MATCH SHOW EMPTY MATCHES"
    ALL_BUT_EMPTY = "ALL ROWS PER MATCH OMIT EMPTY MATCHES"
    ALL_AND_UNMATCHED = "ALL ROWS PER MATCH WITH UNMATCHED ROWS"


class RowSkipTarget(Enum):
    """Where the search continues after a match."""

    PAST_LAST = "PAST LAST ROW"
    NEXT = "TO NEXT ROW"
    FIRST = "TO FIRST"
    LAST = "TO LAST"


@dataclass(frozen=True, slots=True)
class RowSkip:
    """`AFTER MATCH SKIP ...`; `variables` are the ones that a SUBSET name expands to."""

    to: RowSkipTarget = RowSkipTarget.PAST_LAST
    name: str | None = None  # as it is written
    variables: tuple[str, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """One key of PARTITION BY, and its column in the result."""

    expr: Expr  # over Field(ROW, ...)
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def column(self) -> str | None:
        """The column, if the key is one; None for a computed key."""
        return self.expr.name if isinstance(self.expr, FieldRef) else None


@dataclass(frozen=True, slots=True)
class Measure:
    """One column of MEASURES."""

    value: RowExpression
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Define:
    """The condition under which a row may be mapped to a variable."""

    variable: str
    value: RowExpression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RowPatternQuery(TextRepr):
    """`MATCH_RECOGNIZE (PARTITION BY ... ORDER BY ... MEASURES ... PATTERN ... DEFINE ...)`.

    As in the standard, variable names are upper case unless quoted. After the analyzer has
    checked a clause against a table, its columns have the names of the table.
    """

    pattern: RowTerm
    partition: tuple[PartitionKey, ...] = ()
    order: tuple[RowSortKey, ...] = ()
    measures: tuple[Measure, ...] = ()
    rows: RowsPerMatch = RowsPerMatch.ONE
    skip: RowSkip = RowSkip()
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    defines: tuple[Define, ...] = ()
    within: timedelta | int | float | None = None  # last row - first row < within
    text: str | None = field(default=None, compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)
    name: ClassVar[None] = None
    whole: ClassVar[None] = None
    queries: ClassVar[tuple[()]] = ()  # it has no pattern queries

    @property
    def variables(self) -> tuple[str, ...]:
        return collect_variables(self.pattern)

    @property
    def conditions(self) -> dict[str, RowExpression]:
        """The conditions by variable; a variable without one accepts every row."""
        return {define.variable: define.value for define in self.defines}

    @property
    def values(self) -> Iterator[RowExpression]:
        """All expressions of MEASURES and DEFINE."""
        yield from (measure.value for measure in self.measures)
        yield from (define.value for define in self.defines)
