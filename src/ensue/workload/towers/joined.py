"""Several towers over one stream, found together where no match of theirs changes by it."""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from ensue.algebra.tower import Tower
from ensue.algebra.towers.joined import joined
from ensue.columns.stream import Shape
from ensue.plan.planning import DEFAULT, Planning
from ensue.workload.towers.layer_stream import layer_stream
from ensue.workload.towers.prepare import prepare_layers
from ensue.workload.towers.seen_columns import only_seen, seen_alone


def joined_towers(
    towers: Mapping[str, Tower], shape: Shape, planning: Planning = DEFAULT, *, trace: bool = False
) -> list[tuple[Tower, tuple[str, ...]]]:
    """Towers that may be found together, as `joined` puts them, and their labels.

    A layer whose stream would look different in two of them keeps them apart.
    """

    def agree(labels: Iterable[str]) -> bool:
        together = joined({label: towers[label] for label in labels})
        return len(together) == 1 and _looks_the_same(together[0][0], shape, planning, trace=trace)

    found: list[tuple[str, ...]] = []
    for _, labels in joined(towers):
        if len(labels) == 1 or agree(labels):
            found.append(labels)
            continue
        groups: list[tuple[str, ...]] = []
        for label in labels:
            at = next((k for k, g in enumerate(groups) if agree((*g, label))), None)
            if at is None:
                groups.append((label,))
            else:
                groups[at] = (*groups[at], label)
        found += groups
    return [joined({label: towers[label] for label in labels})[0] for labels in found]


def _looks_the_same(tower: Tower, shape: Shape, planning: Planning, *, trace: bool) -> bool:
    """Whether the fields of events have the types that they have in each tower on its own."""
    prepared = prepare_layers(tower, shape, planning, trace=trace)
    for one in seen_alone(tower, trace=trace):
        for name, seen in one.items():
            layer = prepared[name].layer
            below = {n: p.found for n, p in prepared.items() if n in layer.uses}
            shown = {n: prepared[n].layer.shown for n in layer.uses}
            alone = layer_stream(layer, shape, only_seen(below, seen), shown).shape
            together = _types(prepared[name].stream.shape)
            if any(together[field] != found for field, found in _types(alone).items()):
                return False
    return True


def _types(shape: Shape) -> dict[tuple[str, str], pa.DataType]:
    """The types of fields, by event type and field."""
    return {
        (name, field): shape.arrow.field(column).type
        for name, columns in (shape.by_type or {}).items()
        for field, column in columns
    }
