"""The plan of a tower in words, for events that are known or only assumed."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pyarrow as pa

from ensue.algebra.tower import Tower
from ensue.algebra.towers.layers import layers
from ensue.columns.evaluate import arrow_type
from ensue.columns.stream import Shape, shape_of_union
from ensue.plan.assume import assumed_schema
from ensue.plan.show.explain_tower import Matcher, called, explain_tower
from ensue.plan.show.picture_tower import tower_picture
from ensue.schema import Kind
from ensue.workload.towers.prepared import PreparedTower
from ensue.workload.towers.stages import prepare_stages


def explained(prepared: PreparedTower, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """How a prepared tower is run; `more` is told of layers, by their names."""
    matchers = matchers_of(prepared)
    keys = list(_stages(prepared))
    return explain_tower(prepared.tower, prepared.boxes, matchers, keys, more)


def pictured(prepared: PreparedTower) -> str:
    """The same as a picture."""
    return tower_picture(prepared.tower, prepared.boxes, matchers_of(prepared))


def matchers_of(prepared: PreparedTower) -> list[Matcher]:
    """The layers that have a matcher of their own."""
    return [
        Matcher(
            p.layer.name,
            p.prepared.plan if p.opened is None else p.opened.flat.plan,
            p.layer.delivered,
            p.waits > 0,
        )
        for p in prepared.layers
    ]


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
