"""The kinds of what is reached from a match."""

from collections.abc import Mapping

from ensue.algebra.check.kinds import kind_of
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.row_patterns.aggregates import row_aggregate
from ensue.algebra.row_patterns.values import (
    CLASSIFIER,
    NUMBER,
    MatchNumber,
    Navigation,
    Reach,
    RowAggregate,
    RowValue,
)
from ensue.schema import Kind

OF_MATCH = {CLASSIFIER: Kind.STRING, NUMBER: Kind.INTEGER}


def row_kind(expr: Expr, columns: Mapping[str, Kind]) -> Kind:
    """The kind of an expression over the columns of one row."""

    def column(field: Field) -> Kind:
        assert field.name is not None
        return OF_MATCH.get(field.name) or columns[field.name]

    return kind_of(expr, column)


def reach_kind(reach: Reach, columns: Mapping[str, Kind]) -> Kind:
    """The kind of a reach; the list of an aggregate is OTHER."""
    match reach:
        case Navigation(expr=expr):
            return row_kind(expr, columns)
        case MatchNumber():
            return Kind.INTEGER
        case RowAggregate(function=function, arguments=arguments):
            record = row_aggregate(function)
            assert record is not None
            found = record.kind([row_kind(argument, columns) for argument in arguments])
            assert found is not None, f"{function} was checked"
            return found


def value_kind(value: RowValue, columns: Mapping[str, Kind]) -> Kind:
    """The kind of a value of MEASURES or DEFINE."""
    return kind_of(value.expr, lambda leaf: reach_kind(value.reach(leaf), columns))
