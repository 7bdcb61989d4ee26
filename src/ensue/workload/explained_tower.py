"""The plan of a tower in words, for events that are known or only assumed."""

from collections.abc import Iterator

import pyarrow as pa

from ensue.algebra.tower import Tower
from ensue.algebra.towers.layers import layers
from ensue.columns.evaluate import arrow_type
from ensue.columns.stream import Shape, shape_of_union
from ensue.plan.assume import assumed_schema
from ensue.plan.show.explain_tower import Matcher, called, explain_tower
from ensue.schema import Kind
from ensue.workload.prepared_tower import PreparedTower
from ensue.workload.stages import prepare_stages


def explained(prepared: PreparedTower) -> str:
    """How a prepared tower is run."""
    matchers = [
        Matcher(
            p.layer.name,
            p.prepared.plan if p.opened is None else p.opened.flat.plan,
            p.layer.delivered,
            p.waits > 0,
        )
        for p in prepared.layers
    ]
    return explain_tower(prepared.tower, prepared.boxes, matchers, list(_stages(prepared)))


def _stages(prepared: PreparedTower) -> Iterator[str]:
    """Where the key changes: on Spark, events are shuffled there."""
    stages = prepare_stages(prepared)
    if len(stages) == 1:
        return
    yield f"{len(stages)} stages on Spark, a shuffle between them:"
    for stage in stages:
        key = ", ".join(f"[{name}]" for name in stage.stage.key) or "one lane, no key"
        names = ", ".join(_named(p.layer.name, prepared.tower) for p in stage.layers)
        takes = f", takes {', '.join(stage.takes)}" if stage.takes else ""
        yield f"  {stage.stage.number + 1}. {key}: {names}{takes}"


def _named(name: str, tower: Tower) -> str:
    return name if name and not tower.tops else called(name, tower)


def assumed_shape(tower: Tower) -> Shape:
    """Events that fit a tower: the fields that its layers name, of kinds that fit their use."""
    types: dict[str, dict[str, Kind]] = {}
    time, kind = "time", Kind.INTEGER
    for layer in layers(tower):
        schema = assumed_schema(layer.query)
        if layer.query.within is not None:
            kind = schema.time_kind
        for name, event_type in schema.types.items():
            if name not in layer.uses:
                known = types.setdefault(name, {})
                for field, found in event_type.fields.items():
                    if field not in (schema.end, schema.type_column):
                        known.setdefault(field, found)
    fields: dict[str, pa.DataType] = {}
    by_type = {}
    for name, known in types.items():
        columns = [(time, time)]
        for field, found in known.items():
            column = field if field not in fields else f"{field}@{name}"
            if fields.get(field, arrow_type(found, "us", None)) == arrow_type(found, "us", None):
                column = field
            fields[column] = arrow_type(found, "us", None)
            columns.append((field, column))
        by_type[name] = columns
    fields[time] = arrow_type(kind, "us", None)
    arrow = pa.schema([*fields.items(), ("__type", pa.string())])
    return shape_of_union(arrow, by_type, time=time, order=())
