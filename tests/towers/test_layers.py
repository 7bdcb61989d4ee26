"""Towers at work give exactly the matches that they mean, however they are found and cut."""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from ensue import semantics
from ensue.algebra.layers import layers
from ensue.algebra.tower import Tower
from ensue.compile.live_tower import LiveTower
from ensue.compile.stream import shape_of
from ensue.compile.tower import prepare_tower
from ensue.errors import QueryError
from ensue.languages.towers import parse_text
from ensue.plan.planning import Planning
from ensue.testing.streams import random_events, random_nature, random_slices
from ensue.testing.towers import Habits, given_events, random_tower

UP, DOWN = Planning(off=frozenset({"top_down"})), Planning(off=frozenset({"bottom_up"}))


def by_rows(members: dict) -> tuple:
    """The members of a match as `semantics.nested` writes them."""
    found = []
    for variable, value in members.items():
        several = value if isinstance(value, list) else [value]
        events = tuple(by_rows(e["members"]) if "members" in e else e["row"] for e in several if e)
        if events:
            found.append((variable, events))
    return tuple(sorted(found))


def run(prepared, events: pa.Table, random: Random) -> dict[str, pa.Table]:
    """The levels of a tower whose events come in pieces, with its state saved in between."""
    live = LiveTower(prepared)
    rounds = []
    for piece in random_slices(random, events):
        rounds.append(live.feed(piece))
        if random.random() < 0.3:
            saved = live.save()
            live = LiveTower(prepared)
            live.restore(saved)
        if random.random() < 0.3 and piece.num_rows:
            ends = (
                piece["t"].cast(pa.int64())
                if pa.types.is_timestamp(piece["t"].type)
                else piece["t"]
            )
            rounds.append(live.advance(ends.to_numpy().max()))
    rounds.append(live.finish())
    return {
        name: pa.concat_tables([tables[k] for tables in rounds])
        for k, name in enumerate(prepared.delivered)
    }


def agree(seed: int, habits: Habits, planning: Planning, levels: str | None = None) -> int:
    """Compares a random tower with its meaning; gives the number of matches on top."""
    random = Random(seed)
    nature = random_nature(random)
    text = random_tower(random, nature, habits)
    events = random_events(random, random.randint(6, 14), nature)
    shape = shape_of(events.schema, time=nature.columns, type="type", order=())
    try:
        tower = parse_text(text)
        assert isinstance(tower, Tower)
        meant = layers(tower)
        prepared = prepare_tower(tower, shape, planning, levels=levels, trace=True)
    except QueryError:
        return -1
    wanted = semantics.tower_matches(meant, given_events(events, shape), shape.schema)
    with np.errstate(over="ignore"):
        found = run(prepared, events, random)
    for name, table in found.items():
        mine = Counter(by_rows(m) for m in table["members"].to_pylist())
        theirs = Counter(semantics.nested(binding) for binding in wanted[name])
        assert mine == theirs, f"{seed}: {name} of {text}"
        assert len(set(table["match_id"].to_pylist())) == table.num_rows, f"{seed}: {text}"
    return len(wanted[meant[-1].name])


@pytest.mark.parametrize("part", range(4))
def test_layers_from_the_bottom_up(part):
    counts = [agree(seed, Habits(), UP, "all") for seed in range(part * 60, part * 60 + 60)]
    assert sum(c > 0 for c in counts) > 15


@pytest.mark.parametrize("part", range(4))
def test_boxes_from_the_top_down(part):
    habits = Habits(flat=True)
    counts = [agree(seed, habits, DOWN) for seed in range(part * 60, part * 60 + 60)]
    assert sum(c > 0 for c in counts) > 15
