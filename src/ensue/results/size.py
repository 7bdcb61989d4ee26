"""How large the table of matches will be, before it is made."""

from typing import TypeGuard

import pyarrow as pa

from ensue.algebra.answers import summarised
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.query import Query
from ensue.algebra.walk import bound_variables
from ensue.columns.matches import Matches
from ensue.results.gather import ColumnsOf

OF_A_MATCH = 128  # bytes: its id, its times, and what it takes to compute them
OF_A_VALUE = 16


def result_bytes(matches: Matches, events: pa.Table, query: Query, whole_of: ColumnsOf) -> float:
    """About how many bytes the result takes; events are copied into every match they are in."""
    if summarised(query) or not events.num_rows:
        return 0.0
    whole = [e.variable for r in query.returns if _is_event(e := r.expr)]
    values = len(query.returns) - len(whole)
    if query.all_events or not query.returns:
        whole = list(bound_variables(query.pattern))
    size = matches.count * float(OF_A_MATCH + values * OF_A_VALUE)
    wide = {name: events.column(name).nbytes / events.num_rows for name in events.column_names}
    for variable in whole:
        if variable in matches.variables:
            members = matches.segments(variable)[0][-1]
            size += float(members) * sum(wide[column] for _, column in whole_of.get(variable, ()))
    return size


def _is_event(expr: Expr) -> TypeGuard[Field]:
    return isinstance(expr, Field) and expr.name is None
