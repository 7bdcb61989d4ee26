"""The layers of a stage at work in a lane: events of the stream and of earlier stages go in."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.towers.behind import AT, FROM
from ensue.columns.rows import no_rows
from ensue.columns.stream import ends
from ensue.engine.state import packed, unpacked
from ensue.errors import StateError
from ensue.workload.stage import Fed, ends_of
from ensue.workload.towers.live_tower import LiveLayer, LiveLayers, Step
from ensue.workload.towers.stages import FIRST, LAST, PreparedStage
from ensue.workload.towers.stream_places import (
    Keys,
    Places,
    first_keys,
    in_arrow,
    key_before,
    keys_in,
    keys_of,
)

Ints = npt.NDArray[np.int64]
NOTHING = np.zeros(0, np.int64)


class LiveStage(LiveLayers):
    """Gives a table for each output of a stage: `PreparedStage.outputs`.

    `arrival` are the columns that tell events of the same time and order columns apart. They and
    the order of the stream make an event's key; keys order what comes together from many lanes.
    """

    def __init__(self, prepared: PreparedStage, arrival: Sequence[str]) -> None:
        self.prepared = prepared
        self.arrival = list(arrival)
        self.layers = [LiveLayer(layer) for layer in prepared.layers]
        self.places = Places()
        self._found = {p.layer.name: p.found for p in prepared.tower.layers}

    def feed(self, given: Fed) -> list[pa.Table]:
        """What the next events complete: those of the stream, in its order, and complex ones.

        All that end before the next ones do are among them.
        """
        raw, made, shape = given.events, given.made, self.prepared.shape
        keys = keys_of(raw, shape, self.arrival)
        lasts = {name: keys_in(table, LAST) for name, table in made.items()}
        every = np.concatenate([keys, *lasts.values()])
        if not len(every):
            return self._empty()
        self.places.of(np.sort(every))
        at = self.places.of(keys)
        begun = self.places.of(first_keys(raw, keys, shape)) if shape.schema.intervals else at
        placed = {
            name: self._placed(name, made[name], lasts[name]) if name in made else nothing
            for name, nothing in self._none().items()
        }
        now = self._newest(raw, made)
        bare = raw.drop_columns(self.arrival)

        def step(layer: LiveLayer, found: Mapping[str, pa.Table]) -> pa.Table:
            layer.take(bare if bare.num_rows else None, found, at, begun)
            return layer.pass_time(now)

        result = self._up(placed, step)
        if self.prepared.reach is not None:
            before = now - self.prepared.reach
            self.places.forget(key_before(math.floor(before) if isinstance(now, int) else before))
        return result

    def advance(self, now: float) -> list[pa.Table]:
        """What only waited for time to pass, once it is `now`."""

        def step(layer: LiveLayer, found: Mapping[str, pa.Table]) -> pa.Table:
            layer.take(None, found, NOTHING, NOTHING)
            return layer.pass_time(now, alone=True)

        return self._up(self._none(), step)

    def finish(self) -> list[pa.Table]:
        """What only waited for the stream to end."""

        def step(layer: LiveLayer, found: Mapping[str, pa.Table]) -> pa.Table:
            layer.take(None, found, NOTHING, NOTHING)
            return layer.finish()

        return self._up(self._none(), step)

    def _up(self, given: Mapping[str, pa.Table], step: Step) -> list[pa.Table]:
        """Does something with each layer, the lower ones first."""
        found = dict(given)
        for layer in self.layers:
            found[layer.layer.layer.name] = step(layer, found)
        sent = [self._sent(found[name]) for name in self.prepared.stage.gives]
        return self._delivered(found) + sent

    # ---------------------------------------------------------------------------- complex events

    def _none(self) -> dict[str, pa.Table]:
        return {name: no_rows(self._found[name]) for name in self.prepared.takes}

    def _empty(self) -> list[pa.Table]:
        return [no_rows(schema) for schema in self.prepared.outputs.values()]

    def _placed(self, name: str, table: pa.Table, lasts: Keys) -> pa.Table:
        """Events of an earlier stage in their order, with the places of their members here."""
        places = {AT: self.places.of(lasts), FROM: self.places.of(keys_in(table, FIRST))}
        schema = self._found[name]
        columns = [
            pa.array(places[f.name]) if f.name in places else table.column(f.name) for f in schema
        ]
        placed = pa.table(columns, schema=schema)
        return placed.take(pa.array(np.argsort(places[AT], kind="stable")))

    def _sent(self, found: pa.Table) -> pa.Table:
        """Events for later stages, with the keys of their members."""
        at, begun = (found.column(name).to_numpy() for name in (AT, FROM))
        bare = found.drop_columns([AT, FROM])
        last = bare.append_column(LAST, in_arrow(self.places.keys(at)))
        return last.append_column(FIRST, in_arrow(self.places.keys(begun)))

    def _newest(self, raw: pa.Table, made: Mapping[str, pa.Table]) -> float:
        shape = self.prepared.shape
        times = [ends(raw, shape)] if raw.num_rows else []
        times += [ends_of(table, shape) for table in made.values() if table.num_rows]
        newest: float = max(t.max().item() for t in times)
        return newest

    # ---------------------------------------------------------------------------- state

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        own = self.places.known.nbytes + self.places.numbers.nbytes
        return own + sum(layer.state_bytes for layer in self.layers)

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        header = {"layers": [p.layer.name for p in self.prepared.layers]}
        arrays = {"known": self.places.known, "numbers": self.places.numbers}
        saved = {"stage": packed(header, arrays, {})}
        saved |= {f"layer {k}": layer.save() for k, layer in enumerate(self.layers)}
        return packed({}, {}, saved)

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        _, _, saved = unpacked(data)
        if set(saved) != {"stage", *(f"layer {k}" for k in range(len(self.layers)))}:
            raise StateError("the state of a stream was saved for another set of layers")
        header, arrays, _ = unpacked(saved["stage"])
        if header["layers"] != [p.layer.name for p in self.prepared.layers]:
            raise StateError("the state of a stream was saved for other layers")
        self.places = Places(arrays["known"], arrays["numbers"])
        for k, layer in enumerate(self.layers):
            layer.restore(saved[f"layer {k}"])
