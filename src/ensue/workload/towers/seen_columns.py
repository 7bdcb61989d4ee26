"""What the layers of joined towers see of each other: no more than each would on its own.

The columns of a layer's stream have types that fit all its events, and the ids of matches go by
them. So a layer sees of the layers below what its own towers ask of them, and nothing else.
"""

from collections.abc import Mapping

import pyarrow as pa

from ensue.algebra.tower import Tower
from ensue.algebra.towers.behind import AT, FROM
from ensue.algebra.towers.layers import MEMBERS, STANDARD, layers
from ensue.results.triggers import RANK

Seen = Mapping[str, frozenset[str]]  # the columns of each layer below
_ALWAYS = frozenset({*STANDARD, MEMBERS, AT, FROM, RANK})


def columns_seen(tower: Tower, *, trace: bool) -> dict[str, Seen]:
    """The columns that each layer of a tower with several queries on top sees."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for one in seen_alone(tower, trace=trace):
        for layer, seen in one.items():
            known = found.setdefault(layer, {})
            for name, columns in seen.items():
                known[name] = known.get(name, frozenset()) | columns
    return dict(found)


def only_seen(below: Mapping[str, pa.Schema], seen: Seen) -> dict[str, pa.Schema]:
    """The results of layers below without the columns that others ask for."""
    return {
        name: pa.schema([f for f in schema if f.name in _ALWAYS or f.name in seen[name]])
        for name, schema in below.items()
    }


def seen_alone(tower: Tower, *, trace: bool) -> list[dict[str, Seen]]:
    """For each query on top the layers it needs, with the columns they see on their own."""
    found: list[dict[str, Seen]] = []
    for top in tower.tops:
        own = layers(tower.alone(top.label), trace=trace)
        given = {layer.name: frozenset(r.name for r in layer.query.returns) for layer in own}
        found.append(
            {
                top.layer if layer.on_top else layer.name: {n: given[n] for n in layer.uses}
                for layer in own
            }
        )
    return found
