"""Values in MEASURES and DEFINE: ordinary expressions over what is reached from a match.

An expression of a clause (`RowValue`) is an `Expr` whose fields are not columns but *reaches*:
`Field(REACHED, "0")` stands for `reaches[0]`. What a reach computes of its rows is an `Expr` over
the columns of one row: `Field(ROW, "price")`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ensue.algebra.predicate import Expr, Field
from ensue.algebra.walk import nodes
from ensue.span import Span

REACHED = "#"  # the variable of fields that are reaches, by number
ROW = ""  # the variable of fields that are columns of one row
CLASSIFIER = "\0classifier"  # a column of one row: the variable that the row is mapped to


@dataclass(frozen=True, slots=True)
class Navigation:
    """The value of an expression at one row: `LAST(A.price, 2)`, `PREV(price)`, `B.price`.

    Of the rows that are mapped to one of `variables` (empty: of all rows of the match) it is the
    one `offset` rows behind the first, or before the last; and from there `shift` rows on in the
    partition (before it, if below 0). Rows are those up to the current one (running), or all of
    the match (`final`). NULL where there is no such row.
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

    `arguments` are expressions over Field(ROW, ...); none: rows are counted. Rows for which
    `only` is not true are passed over.
    """

    function: str
    arguments: tuple[Expr, ...] = ()
    variables: tuple[str, ...] = ()  # empty: all rows of the match
    final: bool = False
    distinct: bool = False
    only: Expr | None = None  # FILTER (WHERE ...)
    order: tuple["OrderedBy", ...] = ()  # array_agg(x ORDER BY y)
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OrderedBy:
    """One key of an order: `price DESC NULLS LAST`."""

    expr: Expr  # over Field(ROW, ...)
    descending: bool = False
    nulls_first: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MatchNumber:
    """`MATCH_NUMBER()`: the number of the match in its partition, from 1."""

    span: Span | None = field(default=None, compare=False, repr=False)


Reach = Navigation | RowAggregate | MatchNumber


@dataclass(frozen=True, slots=True)
class RowValue:
    """An expression over reaches, as it stands in MEASURES or DEFINE."""

    expr: Expr  # over Field(REACHED, ...)
    reaches: tuple[Reach, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    def reach(self, leaf: Field) -> Reach:
        """What a field of the expression stands for."""
        assert leaf.variable == REACHED
        assert leaf.name is not None
        return self.reaches[int(leaf.name)]

    @property
    def only(self) -> Reach | None:
        """The one reach that the value is, as it is; None: something is computed."""
        return self.reach(self.expr) if isinstance(self.expr, Field) else None


def expressions_of(reach: Reach) -> Iterator[Expr]:
    """The expressions over columns of one row that a reach computes."""
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


def columns_of(value: RowValue) -> Iterator[Field]:
    """The columns that a value reads."""
    for reach in value.reaches:
        for expr in expressions_of(reach):
            for node in nodes(expr):
                if isinstance(node, Field) and node.name != CLASSIFIER:
                    yield node


def asks_classifier(reach: Reach) -> bool:
    """Whether a reach looks at the variables that rows are mapped to."""
    return any(
        isinstance(node, Field) and node.name == CLASSIFIER
        for expr in expressions_of(reach)
        for node in nodes(expr)
    )
