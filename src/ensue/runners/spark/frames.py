"""DataFrames of events: many as one, and which of their rows matter to a query."""

import math
import warnings
from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ensue.columns.arrow_kinds import fields_of
from ensue.columns.stream import (
    TYPE,
    Columns,
    Shape,
    refuse_own_names,
    shape_of,
    shape_of_union,
    type_clashes,
)
from ensue.errors import EventError
from ensue.runners.spark.types import arrow_schema
from ensue.schema import Kind
from ensue.workload.prepared import Prepared
from ensue.workload.relevance import types_that_matter


class WholeStreamWarning(UserWarning):
    """A query that has to see all events in one place."""


def is_streaming(events: "DataFrame | Mapping[str, DataFrame]") -> bool:
    """Whether events keep coming. Frames that go together are alike in that."""
    if not isinstance(events, Mapping):
        return events.isStreaming
    streaming = {str(name) for name, frame in events.items() if frame.isStreaming}
    if streaming and len(streaming) < len(events):
        raise EventError(
            f"streaming and batch DataFrames do not go together: {', '.join(sorted(streaming))} "
            "of these is a stream\n  hint: read all of them with spark.readStream"
        )
    return bool(streaming)


def frame_of(
    events: "DataFrame | Mapping[str, DataFrame]",
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
) -> tuple[DataFrame, Shape]:
    """The events as one DataFrame, and what is known of them without computing it."""
    for frame in events.values() if isinstance(events, Mapping) else (events,):
        refuse_own_names(frame.columns)
    if not isinstance(events, Mapping):
        shape = shape_of(arrow_schema(events.schema), time=time, type=type, order=order)
        return events, shape
    if type is not None:
        raise EventError("type= goes with one DataFrame; a dict of them is typed by its keys")
    schemas = {str(name): arrow_schema(frame.schema) for name, frame in events.items()}
    for schema in schemas.values():
        shape_of(schema, time=time, type=None, order=order)
    clash = type_clashes(list(schemas.values()))
    by_type: dict[str, Columns] = {}
    whole: DataFrame | None = None
    for name, frame in events.items():
        columns = [(f, f"{f}@{name}" if f in clash else f) for f in frame.columns]
        by_type[str(name)] = columns
        marked = frame.toDF(*[c for _, c in columns]).withColumn(TYPE, sql.lit(str(name)))
        whole = marked if whole is None else whole.unionByName(marked, allowMissingColumns=True)
    assert whole is not None
    return whole, shape_of_union(arrow_schema(whole.schema), by_type, time=time, order=order)


def unusable(prepared: Prepared) -> Column:
    """When an event has no time, or one that no order knows."""
    return without_time(prepared.shape)


def without_time(shape: Shape, types: Collection[str] | None = None) -> Column:
    """The same for events of a shape; with `types` for those of these types, or of none."""
    found = _without_time(shape)
    column = shape.schema.type_column
    if types is None or column is None:
        return found
    type = sql.col(quoted(column))
    return found & (type.isin(sorted(types)) | type.isNull())


def _without_time(shape: Shape) -> Column:
    schema = shape.schema
    start, end = (sql.col(quoted(name)) for name in (schema.start, schema.end))
    bad = start.isNull() | end.isNull()
    if schema.time_kind is Kind.FLOAT:
        for time in (start, end):  # also where only a stream cannot use it
            bad = bad | sql.isnan(time) | (sql.abs(time) == sql.lit(math.inf))
    return bad | (end < start) if schema.intervals else bad


def relevant(prepared: Prepared) -> Column | None:
    """When an event can matter to a query; None: always."""
    keys = [] if prepared.plan.whole_stream else prepared.plan.query.equivalence
    return relevant_to((prepared,), [key.field_name for key in keys])


def relevant_to(queries: Sequence[Prepared], keys: Sequence[str]) -> Column | None:
    """When an event can matter to one of some queries that are split by the same keys: it is of
    one of their types, where others do not count, and belongs to a partition. None: always."""
    found = _of_their_types(queries)
    for key in keys:
        known = sql.col(quoted(key)).isNotNull()  # NULL equals nothing
        found = known if found is None else found & known
    return found


def _of_their_types(queries: Sequence[Prepared]) -> Column | None:
    column, names = queries[0].shape.schema.type_column, types_that_matter(queries)
    if column is None or names is None:
        return None
    return sql.col(quoted(column)).isin(sorted(names))


def partition_columns(prepared: Prepared) -> list[Column]:
    """What splits the stream into parts that know nothing of each other; nothing may do so."""
    keys = [e.field_name for e in prepared.plan.query.equivalence]
    if keys and not prepared.plan.whole_stream:
        kinds = fields_of(prepared.shape.arrow)
        return [hashed(key, kinds[key]) for key in keys]
    why = (
        "strict contiguity looks at the events of every partition"
        if prepared.plan.whole_stream
        else "the query has no [attr] that would split the stream"
    )
    warnings.warn(
        f"{why}: one task, on one core, will match all events",
        WholeStreamWarning,
        stacklevel=4,
    )
    return []


def hashed(name: str, kind: Kind) -> Column:
    """A key column as one to hash: what is equal has one hash."""
    column = sql.col(quoted(name))
    return column + sql.lit(0.0) if kind is Kind.FLOAT else column  # -0.0 equals 0.0


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
