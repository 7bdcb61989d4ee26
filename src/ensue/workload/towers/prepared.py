"""A tower made ready: what each of its layers needs, and what the layers give each other."""

from dataclasses import dataclass

import pyarrow as pa

from ensue.algebra.answers import makes_events
from ensue.algebra.timeouts import TIMED_OUT
from ensue.algebra.tower import Tower
from ensue.algebra.towers.layers import MEMBERS, STANDARD, Layer, column_of
from ensue.columns.stream import Shape
from ensue.plan.towers.boxes import BoxChoice
from ensue.workload.prepared import Prepared
from ensue.workload.towers.layer_stream import MEMBER, LayerStream, folded
from ensue.workload.towers.opened_layer import Opened


@dataclass(frozen=True, slots=True)
class PreparedLayer:
    """A layer made ready."""

    layer: Layer
    stream: LayerStream
    prepared: Prepared
    found: pa.Schema  # its complex events, as the layers above get them
    result: pa.Schema  # its matches, as they are delivered
    waits: int | float  # how far its time is behind that of the events that come in
    settles: int | float  # how much later than they end its matches are known
    ranked: bool  # somebody above goes by the order of its events
    crowd: float = 1.0  # events it sees for each that comes in, as far as is known
    opened: Opened | None = None  # where boxes in it are found together with it
    timeouts: tuple[Prepared, ...] | None = None  # for timed-out partial matches; None: unasked

    @property
    def source(self) -> LayerStream:
        """The events it is found in."""
        return self.stream if self.opened is None else self.opened.stream

    def events(self, matches: pa.Table) -> pa.Table:
        """Matches as the layers above get them."""
        return folded(matches).select(self.found.names)

    def delivered(self, events: pa.Table) -> pa.Table:
        """The layer's complex events as its subscribers get them."""
        if not makes_events(self.layer.query):
            return events
        own = self.layer.fields
        columns = []
        for name in self.result.names:
            if name == TIMED_OUT and self.timeouts is not None:
                columns.append(pa.repeat(pa.scalar(False), events.num_rows))
            else:
                columns.append(events.column(column_of(name) if name in own else name))
        return pa.table(columns, schema=self.result)


@dataclass(frozen=True, slots=True)
class PreparedTower:
    """A tower made ready for a stream of a known shape."""

    tower: Tower
    layers: tuple[PreparedLayer, ...]  # lower ones first, without those that are only in boxes
    shape: Shape  # of the events that come in
    boxes: tuple[BoxChoice, ...] = ()  # how the complex events in each layer are found
    trace: bool = False

    @property
    def delivered(self) -> dict[str, pa.Schema]:
        """The results, by layer; queries on top are the last, as `Tower.on_top` calls them."""
        return {p.layer.name: p.result for p in self.layers if p.layer.delivered}


def found_schema(result: pa.Schema, layer: Layer) -> pa.Schema:
    members = [f for f in result if f.name.startswith(MEMBER)]
    if not layer.members or not makes_events(layer.query):
        return result
    inside = pa.struct([pa.field(f.name.removeprefix(MEMBER), f.type) for f in members])
    kept = [f for f in result if not f.name.startswith(MEMBER)]
    return pa.schema([*kept, pa.field(MEMBERS, inside)])


def delivered_schema(found: pa.Schema, layer: Layer) -> pa.Schema:
    """The columns that subscribers get: no others than the query of the level alone would give."""
    if not makes_events(layer.query) or not layer.delivered:
        return found
    own = {name: found.field(column_of(name)).type for name in layer.fields}
    standard = [f for f in found if f.name in STANDARD and f.name not in own]
    fields = [*standard, *(pa.field(name, type_) for name, type_ in own.items())]
    if layer.members and MEMBERS not in own:
        fields.append(found.field(MEMBERS))
    return pa.schema(fields)
