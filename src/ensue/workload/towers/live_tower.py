"""A tower at work: events go in below, and each layer's matches are events of the layers above."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import length_of
from ensue.columns.matches import Matches
from ensue.columns.rows import no_rows
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.errors import StateError
from ensue.plan.physical import Reference
from ensue.results.triggers import RANK, by_members, last_rows
from ensue.workload.held_events import Held
from ensue.workload.live_matcher import LiveMatcher
from ensue.workload.stage import Fed
from ensue.workload.towers.layer_timeouts import delivered_timeouts
from ensue.workload.towers.opened_layer import put_together
from ensue.workload.towers.prepared import PreparedLayer, PreparedTower

Ints = npt.NDArray[np.int64]


Step = Callable[["LiveLayer", Mapping[str, pa.Table]], pa.Table]


class LayerMatcher(LiveMatcher):
    """The matcher of a layer; where layers above go by it, its matches come in their order."""

    def __init__(self, layer: PreparedLayer) -> None:
        super().__init__(layer.prepared)
        self.ranked = layer.ranked
        self.late = RANK in layer.found.names  # known in another order

    def _built(self, matches: Matches, known: Held) -> pa.Table:
        if self.ranked and matches.count > 1:
            order = by_members(matches, self.prepared.query, last_rows(matches))
            matches = matches.pick(order)
        return (self.ranked_result if self.late else super()._built)(matches, known)


class OpenedMatcher(LiveMatcher):
    """The matcher of a layer together with what is in its boxes."""

    def __init__(self, layer: PreparedLayer) -> None:
        assert layer.opened is not None
        super().__init__(layer.opened.flat)
        self.opened = layer.opened
        self.own = (layer.prepared, layer.stream)

    def _built(self, matches: Matches, known: Held) -> pa.Table:
        return put_together(self.opened, self.own, known.placed(matches), known.events)


class LiveLayer:
    """A layer that is given the events below it, and lets them wait until none can come before."""

    def __init__(self, layer: PreparedLayer) -> None:
        self.layer = layer
        self.matcher = OpenedMatcher(layer) if layer.opened else LayerMatcher(layer)
        self.timeouts = [LiveMatcher(query) for query in layer.timeouts or ()]
        self.waiting: list[pa.Table] = []
        self._timed_out: list[pa.Table] = []  # since something was delivered
        self._nothing = no_rows(layer.found)
        self._none = layer.delivered(self._nothing) if layer.layer.delivered else self._nothing

    def take(
        self, raw: pa.Table | None, found: Mapping[str, pa.Table], at: Ints, begun: Ints
    ) -> None:
        """The events that came in and the complex events that layers below found."""
        stream = self.layer.source
        if raw is not None and stream.reads_raw:
            events = stream.of_raw(raw, at, begun)
            if events is not None:
                self.waiting.append(events)
        for name in stream.complex_:
            if found[name].num_rows:
                self.waiting.append(stream.of_complex(name, found[name]))

    def pass_time(self, now: float, *, alone: bool = False) -> pa.Table:
        """The complex events that are certain `now`; `alone`: no event came with it."""
        pieces = self._fed(now)
        for matcher in self.timeouts:
            if math.isfinite(self.layer.waits):
                self._timed_out.append(matcher.advance(now - self.layer.waits))
        waits, settles = self.layer.waits, self.layer.settles
        late = settles > waits or isinstance(self.matcher.prepared.plan.structure, Reference)
        if (alone or late) and math.isfinite(waits):
            # kernels look at what waits for time only where events come, the reference not at all
            pieces.append(self.matcher.advance(now - waits))
        return self._joined(pieces)

    def finish(self) -> pa.Table:
        """The complex events that only waited for the stream to end."""
        fed = self._fed(math.inf)
        self._timed_out += [matcher.finish() for matcher in self.timeouts]
        return self._joined([*fed, self.matcher.finish()])

    def delivered(self, found: pa.Table) -> pa.Table:
        """The complex events as subscribers get them, with what has timed out since the last."""
        events = self.layer.delivered(found) if found.num_rows else self._none
        given, self._timed_out = self._timed_out, []
        pieces = [
            delivered_timeouts(t, self.layer.layer, self.layer.result) for t in given if t.num_rows
        ]
        return pa.concat_tables([events, *pieces]) if pieces else events

    def _fed(self, now: float) -> list[pa.Table]:
        table = self._ready(now)
        if table is None:
            return []
        self._timed_out += [matcher.feed(table) for matcher in self.timeouts]
        return [self.matcher.feed(table)]

    def _joined(self, pieces: Sequence[pa.Table]) -> pa.Table:
        found = [self.layer.events(piece) for piece in pieces if piece.num_rows]
        if not found:
            return self._nothing
        return found[0] if len(found) == 1 else concatenated(self.layer.found, found)

    def _ready(self, now: float) -> pa.Table | None:
        """What waits no longer, in order."""
        stream, waits = self.layer.source, self.layer.waits
        pieces, self.waiting = self.waiting, []
        if waits and now < math.inf:
            done = [stream.ends(piece) < now - waits for piece in pieces]
            left = [p.filter(pa.array(~d)) for p, d in zip(pieces, done, strict=True)]
            self.waiting = [piece.combine_chunks() for piece in left if piece.num_rows]
            pieces = [p.filter(pa.array(d)) for p, d in zip(pieces, done, strict=True)]
        pieces = [piece for piece in pieces if piece.num_rows]
        return stream.merged(pieces) if pieces else None

    def deadline(self) -> float | None:
        """When something that waits for time to pass is certain, in the time of the stream."""
        times = [due for m in self.matchers if (due := m.engine.deadline()) is not None]
        times += [self.layer.source.ends(p).min().item() for p in self.waiting]
        return None if not times else min(times) + self.layer.waits

    @property
    def matchers(self) -> tuple[LiveMatcher, ...]:
        return (self.matcher, *self.timeouts)

    @property
    def state_bytes(self) -> int:
        held = sum(matcher.state_bytes for matcher in self.matchers)
        return held + sum(int(p.nbytes) for p in self.waiting)

    def save(self) -> bytes:
        blobs = {"matcher": self.matcher.save()}
        blobs |= {f"timeouts {k}": matcher.save() for k, matcher in enumerate(self.timeouts)}
        if self.waiting:
            blobs["waiting"] = to_bytes(pa.concat_tables(self.waiting).unify_dictionaries())
        return packed({}, {}, blobs)

    def restore(self, data: bytes) -> None:
        _, _, blobs = unpacked(data)
        if {n for n in blobs if n.startswith("timeouts")} != {
            f"timeouts {k}" for k in range(len(self.timeouts))
        }:
            raise StateError("the state of a stream was saved with, or without, emit_timeouts")
        self.matcher.restore(blobs["matcher"])
        for k, matcher in enumerate(self.timeouts):
            matcher.restore(blobs[f"timeouts {k}"])
        self.waiting = [from_bytes(blobs["waiting"])] if "waiting" in blobs else []


class LiveLayers:
    """Layers at work together."""

    layers: list[LiveLayer]

    def _delivered(self, found: Mapping[str, pa.Table]) -> list[pa.Table]:
        """What each level gives of what was found."""
        own = (layer for layer in self.layers if layer.layer.layer.delivered)
        return [layer.delivered(found[layer.layer.layer.name]) for layer in own]

    def deadline(self) -> float | None:
        """When something that waits for time to pass is certain, in the time of the stream."""
        times = [t for layer in self.layers if (t := layer.deadline()) is not None]
        return min(times, default=None)

    def others_hold(self, size: float) -> None:
        """What was delivered so far takes so many bytes, and is still there."""
        for matcher in (m for layer in self.layers for m in layer.matchers):
            matcher.engine.others_hold(size)

    @property
    def partial_matches(self) -> int:
        return sum(m.engine.partial_matches for layer in self.layers for m in layer.matchers)


class LiveTower(LiveLayers):
    """Feeds slices of an ordered stream to the layers of a tower.

    It gives a table for each level that is delivered.
    """

    def __init__(self, prepared: PreparedTower) -> None:
        self.prepared = prepared
        self.layers = [LiveLayer(layer) for layer in prepared.layers]
        self.rows = 0  # events that came in so far
        self._begun = _Begun(prepared)

    def feed(self, given: Fed) -> list[pa.Table]:
        """The complex events that the next events complete, by level."""
        events = given.bare
        if not events.num_rows:
            return self._empty()
        at = np.arange(self.rows, self.rows + events.num_rows)
        self.rows += events.num_rows
        begun, now = self._begun(events, at)
        return self._up(lambda layer, found: self._feed(layer, found, events, at, begun, now))

    def _feed(
        self,
        layer: LiveLayer,
        found: Mapping[str, pa.Table],
        events: pa.Table,
        at: Ints,
        begun: Ints,
        now: float,
    ) -> pa.Table:
        layer.take(events, found, at, begun)
        return layer.pass_time(now)

    def advance(self, now: float) -> list[pa.Table]:
        """Those that only waited for time to pass, once it is `now`."""
        return self._up(lambda layer, found: self._let_pass(layer, found, now))

    def _let_pass(self, layer: LiveLayer, found: Mapping[str, pa.Table], now: float) -> pa.Table:
        nothing = np.zeros(0, np.int64)
        layer.take(None, found, nothing, nothing)
        return layer.pass_time(now, alone=True)

    def finish(self) -> list[pa.Table]:
        """Those that only waited for the stream to end."""

        def end(layer: LiveLayer, found: Mapping[str, pa.Table]) -> pa.Table:
            nothing = np.zeros(0, np.int64)
            layer.take(None, found, nothing, nothing)
            return layer.finish()

        return self._up(end)

    def _up(self, step: Step) -> list[pa.Table]:
        """Does something with each layer, the lower ones first."""
        found: dict[str, pa.Table] = {}
        for layer in self.layers:
            found[layer.layer.layer.name] = step(layer, found)
        return self._delivered(found)

    def _empty(self) -> list[pa.Table]:
        return [no_rows(schema) for schema in self.prepared.delivered.values()]

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        return sum(layer.state_bytes for layer in self.layers) + self._begun.ends.nbytes

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        header = {"rows": self.rows, "layers": [p.layer.name for p in self.prepared.layers]}
        saved = {"tower": packed(header, {"ends": self._begun.ends}, {})}
        saved |= {f"layer {k}": layer.save() for k, layer in enumerate(self.layers)}
        return packed({}, {}, saved)

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        _, _, saved = unpacked(data)
        names = {"tower", *(f"layer {k}" for k in range(len(self.layers)))}
        if set(saved) != names:
            raise StateError("the state of a stream was saved for another set of layers")
        header, arrays, _ = unpacked(saved["tower"])
        if header["layers"] != [p.layer.name for p in self.prepared.layers]:
            raise StateError("the state of a stream was saved for other layers")
        self.rows = int(header["rows"])
        self._begun.ends = arrays["ends"]
        for k, layer in enumerate(self.layers):
            layer.restore(saved[f"layer {k}"])


class _Begun:
    """Where events begin among the others: at their own place, unless they last."""

    def __init__(self, prepared: PreparedTower) -> None:
        self.shape = prepared.shape
        self.span = _reach(prepared)
        self.ends: npt.NDArray[np.generic] = np.zeros(0, np.int64)  # of the latest events

    def __call__(self, events: pa.Table, at: Ints) -> tuple[Ints, float]:
        schema, unit = self.shape.schema, self.shape.unit
        ends = np.asarray(vectors.from_arrow(events.column(schema.end), unit).values)
        now = ends[-1].item()
        if not schema.intervals:
            return at, now
        starts = np.asarray(vectors.from_arrow(events.column(schema.start), unit).values)
        known = np.concatenate([self.ends.astype(ends.dtype), ends])
        first = int(at[-1]) + 1 - len(known)
        begun = np.minimum(at, first + np.searchsorted(known, starts, side="right"))
        self.ends = known if self.span is None else known[known >= now - self.span]
        return begun, now


def _reach(prepared: PreparedTower) -> float | None:
    """How far back in time a match on top may reach; None: any time."""
    lengths = [length_of(p.layer.query.within, p.stream.shape.unit) for p in prepared.layers]
    return None if None in lengths else sum(length for length in lengths if length is not None)


def concatenated(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of one schema as one; there may be none."""
    return pa.concat_tables([no_rows(schema), *tables])
