"""Queries on top of definitions: layers of events, and the stages that their keys make."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ensue.algebra.walk import positives
from ensue.columns.stream import Shape, ends
from ensue.computed import cached_property
from ensue.plan.limits import Limits
from ensue.plan.towers.stages import Stage as DividedStage
from ensue.results.time_order import rows_in_time_order
from ensue.schema import names_of
from ensue.workload.prepared import Prepared
from ensue.workload.stage import BATCH, ROW, Fed, Output, Reads, StageMatcher, types_of
from ensue.workload.towers.live_stage import LiveStage
from ensue.workload.towers.live_tower import LiveTower, concatenated
from ensue.workload.towers.prepared import PreparedTower
from ensue.workload.towers.stages import PreparedStage, prepare_stages
from ensue.workload.work import SLICE, Progress, Unseen, Whole


@dataclass(frozen=True, slots=True)
class Level:
    """A table of a tower that goes to an output; one may go to several."""

    name: str  # of the layer, as the tower knows it
    output: Output


@dataclass(frozen=True)
class TowerWork:
    """A tower, and the outputs that its levels go to."""

    tower: PreparedTower
    levels: tuple[Level, ...]
    of_events: bool = False  # its layers have streams of their own
    rows: None = None  # all events are needed

    @property
    def outputs(self) -> tuple[Output, ...]:
        return tuple(level.output for level in self.levels)

    @property
    def expected(self) -> tuple[Prepared, ...]:
        """What may be foreseen of it: each layer."""
        return tuple(layer.prepared for layer in self.tower.layers)

    @cached_property
    def stages(self) -> tuple[PreparedStage, ...]:
        return prepare_stages(self.tower)

    @cached_property
    def reads(self) -> Reads:
        return Reads(types_of(map(_reads, self.stages)))

    def matched(self, events: pa.Table, progress: Progress | None = None) -> Whole:
        """The matches in events that are in the order of the stream."""
        live = LiveTower(self.tower)
        rounds = []
        held = 0
        for piece in _pieces(events, self.tower.shape):
            rounds.append(live.feed(Fed.of(piece)))
            held += sum(table.nbytes for table in rounds[-1])
            live.others_hold(held)
            if progress is not None:
                progress(live.rows, events.num_rows)
        rounds.append(live.finish())
        found = {
            name: concatenated(schema, [tables[k] for tables in rounds])
            for k, (name, schema) in enumerate(self.tower.delivered.items())
        }
        tables = [rows_in_time_order(found[o.name], o.output.meaning) for o in self.levels]
        return Whole(tables, self._unseen(found))

    def _unseen(self, found: Mapping[str, pa.Table]) -> Unseen:
        """All types, if a query on top has no match: maybe one of them is misspelt."""
        tower = self.tower.tower
        if all(found[name].num_rows for name in tower.on_top):
            return Unseen()
        atoms = [atom for query in tower.queries for atom in positives(query.pattern)]
        named = {name for atom in atoms for name in names_of(atom.type)}
        return Unseen(frozenset(named - set(tower.names)), tower.names)

    def chains(self) -> "tuple[tuple[LayerStage, ...], ...]":
        """The stages, one behind the other."""
        return (tuple(LayerStage(stage, self.levels) for stage in self.stages),)

    def whole(self) -> "LayerStage":
        """All layers as one stage that no key splits."""
        layers = self.tower.layers
        every = DividedStage(0, (), tuple(p.layer for p in layers), (), (), self.reads.types)
        return LayerStage(PreparedStage(every, self.tower, layers, {}, 0, None), self.levels)


def _pieces(events: pa.Table, shape: Shape) -> list[pa.Table]:
    """Pieces of bounded size; events of the same time stay together."""
    if events.num_rows <= SLICE:
        return [events] if events.num_rows else []
    times = ends(events, shape)
    cuts = [0]
    while cuts[-1] < events.num_rows:
        wanted = min(cuts[-1] + SLICE, events.num_rows)
        cuts.append(int(np.searchsorted(times, times[wanted - 1], side="right")))
    return [events.slice(a, b - a) for a, b in pairwise(cuts)]


def _reads(stage: PreparedStage) -> Reads:
    types = stage.stage.raw
    if types and stage.shape.schema.type_column is None:
        types = None
    return Reads(types, stage.stage.key)


@dataclass(frozen=True)
class LayerStage:
    """Layers of a tower that run in the lanes of one key."""

    prepared: PreparedStage
    levels: tuple[Level, ...]
    arrival: tuple[str, ...] = (BATCH, ROW)

    @cached_property
    def reads(self) -> Reads:
        return _reads(self.prepared)

    @property
    def outputs(self) -> tuple[Output, ...]:
        own = self.prepared.delivered
        return tuple(level.output for level in self.levels if level.name in own)

    @property
    def takes(self) -> Mapping[str, pa.Schema]:
        return self.prepared.takes

    @property
    def hold(self) -> int | float:
        return self.prepared.hold

    @property
    def limits(self) -> Limits:
        return self.prepared.layers[0].prepared.planning.limits

    @property
    def whole_stream(self) -> str | None:
        """Why one lane has to see all events, if it has to."""
        stage = self.prepared.stage
        if stage.key:
            return None
        names = ", ".join(layer.name or "the query on top" for layer in stage.layers)
        return (
            f"nothing splits the stream of {names}: one task, on one core, will match its events"
        )

    def matcher(self) -> StageMatcher:
        """A matcher for a lane, with no events yet."""
        return self._matcher(self.arrival)

    def _matcher(self, arrival: tuple[str, ...]) -> LiveStage | LiveTower:
        """Where no event comes from or goes to another stage, layers number their events."""
        stage = self.prepared
        if stage.cut:
            return LiveStage(stage, arrival)
        return LiveTower(replace(stage.tower, layers=stage.layers))

    def matched(self, given: Fed) -> list[pa.Table]:
        """What a lane finds where all events are there."""
        matcher = self._matcher(given.arrival)
        found, left = matcher.feed(given), matcher.finish()
        return [pa.concat_tables(pair) for pair in zip(found, left, strict=True)]

    def matches(self, found: Sequence[pa.Table]) -> int:
        """How many of what was found are delivered."""
        return sum(table.num_rows for table in found[: len(self.prepared.delivered)])

    def delivered(self, found: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The levels that are delivered, with the numbers of their outputs."""
        for name, table in zip(self.prepared.delivered, found, strict=False):
            if table.num_rows:
                for level in self.levels:
                    if level.name == name:
                        yield level.output.number, table

    def sent(self, found: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
        """The complex events that later stages take."""
        behind = found[len(self.prepared.delivered) :]
        return zip(self.prepared.stage.gives, behind, strict=True)
