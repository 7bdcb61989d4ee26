"""Uses the greatest span that conditions leave a match as its window, where none is given."""

from dataclasses import replace

from ensue.algebra.form import is_event, is_lapse
from ensue.algebra.lives import derived_window
from ensue.algebra.query import Query
from ensue.schema import Schema


def derive_window(query: Query, schema: Schema) -> Query:
    """`SEQ(A a, B b) WHERE b.ts <= a.ts + 25` needs no more memory than with `WITHIN 25`."""
    if query.within is not None or is_event(query.pattern) or is_lapse(query.pattern):
        return query
    return replace(query, within=derived_window(query, schema))
