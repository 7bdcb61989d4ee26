"""Stages of a tower made ready: what runs in the lanes of one key, and what goes from one to the
next."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from ensue.algebra.towers.behind import AT, FROM
from ensue.algebra.towers.layers import Layer
from ensue.columns.arrow_kinds import length_of
from ensue.columns.stream import Shape
from ensue.plan.towers.stages import Stage, stages_of
from ensue.workload.towers.prepared import PreparedLayer, PreparedTower

LAST, FIRST = "__last", "__first"  # the keys of an event's last and first member, on the way


@dataclass(frozen=True, slots=True)
class PreparedStage:
    """The layers of a stage. Their time is that of the stage, which is behind the stream's."""

    stage: Stage
    tower: PreparedTower
    layers: tuple[PreparedLayer, ...]  # lower ones first; they wait for each other only
    takes: Mapping[str, pa.Schema]  # the events of earlier stages, as they come
    hold: int | float  # how far its time is behind that of the stream
    reach: int | float | None  # how far back events may begin; None: any time

    @property
    def shape(self) -> Shape:
        """Of the events that come in."""
        return self.tower.shape

    @property
    def cut(self) -> bool:
        """Whether events go from stage to stage here."""
        return bool(self.stage.takes or self.stage.gives)

    @property
    def delivered(self) -> tuple[str, ...]:
        """The levels that it delivers."""
        return tuple(p.layer.name for p in self.layers if p.layer.delivered)

    @property
    def outputs(self) -> dict[str, pa.Schema]:
        """What comes out: the levels it delivers, then the events that later stages take.

        These go by their names with an arrow in front: a level may be both.
        """
        own = {p.layer.name: p for p in self.layers}
        delivered = {name: own[name].result for name in self.delivered}
        return delivered | {f"->{name}": sent(own[name].found) for name in self.stage.gives}


def prepare_stages(tower: PreparedTower) -> tuple[PreparedStage, ...]:
    """The stages of a tower, in an order in which each needs earlier ones only."""
    by_name = {p.layer.name: p for p in tower.layers}
    lengths = [length_of(p.layer.query.within, p.stream.shape.unit) for p in tower.layers]
    known = [length for length in lengths if length is not None]
    later = sum(p.settles - p.waits for p in tower.layers if p.settles != p.waits)
    bounded = len(known) == len(lengths) and math.isfinite(later)
    reach = 2 * sum(known) + later if bounded else None
    found: list[PreparedStage] = []
    settles: dict[str, int | float] = {}  # when a layer's events are known, behind the stream
    for stage in stages_of([_as_found(p) for p in tower.layers]):
        hold = max((settles[name] for name in stage.takes), default=0)
        own: dict[str, PreparedLayer] = {}
        for layer in stage.layers:
            prepared = by_name[layer.name]
            waits = max((own[n].settles for n in layer.uses if n in own), default=0)
            later = prepared.settles - prepared.waits if prepared.settles != prepared.waits else 0
            own[layer.name] = replace(prepared, waits=waits, settles=waits + later)
            settles[layer.name] = hold + own[layer.name].settles
        takes = {name: sent(by_name[name].found) for name in stage.takes}
        found.append(PreparedStage(stage, tower, tuple(own.values()), takes, hold, reach))
    return tuple(found)


def types_that_matter(stages: Iterable[PreparedStage]) -> frozenset[str] | None:
    """The types of events that come in to stages. None: all of them."""
    found: set[str] = set()
    for stage in stages:
        untyped = stage.shape.schema.type_column is None
        if stage.stage.raw is None or (untyped and stage.stage.reads_raw):
            return None
        found |= stage.stage.raw
    return frozenset(found)


def _as_found(prepared: PreparedLayer) -> Layer:
    """A layer in terms of the events it is found in: those of open boxes stand for themselves."""
    layer = prepared.layer
    if prepared.opened is None:
        return layer
    flat = replace(layer.query, pattern=prepared.opened.flat.query.pattern)
    return replace(layer, query=flat, uses=tuple(prepared.source.complex_))


def sent(found: pa.Schema) -> pa.Schema:
    """Complex events on their way to another stage: they know the keys of their members."""
    kept = [field for field in found if field.name not in (AT, FROM)]
    return pa.schema([*kept, pa.field(LAST, pa.binary()), pa.field(FIRST, pa.binary())])
