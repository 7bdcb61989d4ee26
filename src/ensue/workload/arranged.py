"""Events that their queries want ordered and split in ways of their own, as they are read."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ensue.algebra.predicate import Aggregate, Expr, Field
from ensue.columns.arrow_kinds import time_unit
from ensue.columns.evaluate import Vector, evaluate, from_arrow, to_arrow
from ensue.columns.rows import no_rows
from ensue.columns.stream import COMPUTED, PLACE


@dataclass(frozen=True, slots=True)
class Computed:
    """A column that events get when they are read."""

    name: str
    expr: Expr  # over the columns of one event


@dataclass(frozen=True, slots=True)
class Arranged:
    """How events are to be read: by which columns they are ordered, and what they get before."""

    time: str | tuple[str, str]  # PLACE: in the order in which they come
    order: tuple[str, ...] = ()
    computed: tuple[Computed, ...] = ()

    @property
    def numbered(self) -> bool:
        """Whether they get a column that says in which order they come."""
        return self.time == PLACE

    def with_computed(self, events: pa.Table) -> pa.Table:
        """Events with the columns that are computed."""
        unit = time_unit(events.schema)

        def lookup(field: Field | Aggregate) -> Vector:
            assert isinstance(field, Field)
            assert field.name is not None
            return from_arrow(events.column(field.name), unit, field.name)

        whole = events
        for column in self.computed:
            vector = evaluate(column.expr, lookup, events.num_rows, unit)
            whole = whole.append_column(column.name, to_arrow(vector, unit))
        return whole

    def schema(self, arrow: pa.Schema) -> pa.Schema:
        """The columns of events behind that."""
        return self.with_computed(no_rows(arrow)).schema

    def in_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same for what a task of Spark reads."""
        for batch in batches:
            yield from self.with_computed(pa.Table.from_batches([batch])).to_batches()


Arranging = Callable[..., Arranged]  # by the columns that events have, and a session's zone


def is_own(name: str) -> bool:
    """Whether a column is one that events got when they were read.

    >>> is_own("__key_3f"), is_own("name")
    (True, False)
    """
    return name == PLACE or name.startswith(COMPUTED)
