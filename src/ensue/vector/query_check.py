"""Checks a query together with the regions that it writes down."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ensue.analyzer.query import check_query
from ensue.errors import QueryError
from ensue.functions import CIRCLE, WKT
from ensue.geo.wkt import Points, read_wkt
from ensue.ir.expression import Expr, FunctionCall, Literal
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_nodes
from ensue.schema import Schema

if TYPE_CHECKING:
    from ensue.ir.subscription import Region


def check_with_regions(query: Query, schema: Schema, *, streaming: bool = False, derived: bool = True) -> Query:
    """Check a query like `check`; raise QueryError also for an invalid region."""
    checked = check_query(query, schema, streaming=streaming, derived=derived)
    exprs = [*checked.where, *(r.expr for r in checked.returns)]
    check_regions([*exprs, checked.having], schema.space, checked.text)
    return checked


def check_regions(exprs: Iterable[Expr | None], space: str, text: str | None) -> None:
    """Raise QueryError for a region that crosses itself, or is not on the earth."""
    for node in (node for expr in exprs if expr is not None for node in iterate_nodes(expr)):
        region = _region(node)
        if region is not None:
            from ensue.vector.geo_regions import build_region

            try:
                build_region(region, space)
            except QueryError as error:
                raise error.at(None, text) from None


def _region(expr: Expr) -> "Region | None":
    if not isinstance(expr, FunctionCall) or expr.function not in (WKT, CIRCLE):
        return None
    from ensue.ir.subscription import Region

    match expr:
        case FunctionCall(function=function, arguments=(Literal(value=str(text)),)) if function == WKT:
            if isinstance(read_wkt(text), Points):
                return None
            return Region(text, span=expr.arguments[0].span or expr.span)
        case FunctionCall(function=function, arguments=arguments) if function == CIRCLE:
            numbers = [a.value for a in arguments if isinstance(a, Literal)]
            from ensue.vector.geo_columns import format_circle

            return Region(format_circle(*map(float, numbers)), span=expr.span)  # type: ignore[arg-type]
        case _:
            return None
