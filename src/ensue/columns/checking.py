"""Queries checked against the events they are for, the regions that they write down too."""

from collections.abc import Iterable

from ensue.algebra.check.query import check
from ensue.algebra.functions import CIRCLE, WKT
from ensue.algebra.predicate import Call, Expr, Literal
from ensue.algebra.query import Query
from ensue.algebra.subscription import Region
from ensue.algebra.walk import nodes
from ensue.algebra.wkt import Points, read_wkt
from ensue.columns.place_vectors import circle_text
from ensue.columns.region_shapes import made
from ensue.errors import QueryError
from ensue.schema import Schema


def check_with_regions(
    query: Query, schema: Schema, *, streaming: bool = False, derived: bool = True
) -> Query:
    """The query as `check` gives it; raises a QueryError also for a region that cannot be one."""
    checked = check(query, schema, streaming=streaming, derived=derived)
    exprs = [*checked.where, *(r.expr for r in checked.returns)]
    check_regions([*exprs, checked.having], schema.space, checked.text)
    return checked


def check_regions(exprs: Iterable[Expr | None], space: str, text: str | None) -> None:
    """Raises a QueryError for a region that crosses itself, or is not on the earth."""
    for node in (node for expr in exprs if expr is not None for node in nodes(expr)):
        region = _region(node)
        if region is not None:
            try:
                made(region, space)
            except QueryError as error:
                raise error.at(None, text) from None


def _region(expr: Expr) -> Region | None:
    match expr:
        case Call(function=function, arguments=(Literal(value=str(text)),)) if function == WKT:
            if isinstance(read_wkt(text), Points):
                return None
            return Region(text, span=expr.arguments[0].span or expr.span)
        case Call(function=function, arguments=arguments) if function == CIRCLE:
            numbers = [a.value for a in arguments if isinstance(a, Literal)]
            return Region(circle_text(*map(float, numbers)), span=expr.span)  # type: ignore[arg-type]
        case _:
            return None
