"""Subscriptions in the pattern language in key groups, while the set changes: as those in OPSL."""

import numpy as np
import pyarrow as pa
import pytest

from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.runtime.source_schema import SourceSchema
from subscriptions import test_changes_in_key_groups as others

FORMS = (
    "SEQ(E a, E+ b[]) WHERE [id] and a.v > {} and b[i].v > {} WITHIN 5",
    "SEQ(E a, E b, E c) WHERE skip_till_next_match(a, b, c) {{ a.v > {} and b.v < {} }} WITHIN 6",
    "SEQ(E a, E b) WHERE strict_contiguity(a, b) {{ a.v > {} and b.v > {} }} WITHIN 6",
    "SEQ(E a, !E b, E c) WHERE [id] and a.v > {} and b.v > {} WITHIN 6",
)


def bounded(random, bounds):
    """A text that a stream takes."""
    form = random.choice(FORMS)
    return form.format(random.randint(0, 7), random.randint(2, 8))


@pytest.mark.parametrize("disorder", [pytest.param(0, marks=pytest.mark.slow), 4])
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(4))
def test_each_finds_what_it_finds_alone(tmp_path, seed, disorder, monkeypatch):
    monkeypatch.setattr(others, "bounded", bounded)
    if disorder:  # which events are adjacent depends on where a set's events began to be in order
        monkeypatch.setattr(f"{__name__}.FORMS", (FORMS[0], FORMS[1], FORMS[3]))
    others.test_each_finds_what_it_finds_alone(tmp_path, seed, disorder, monkeypatch)


def test_a_set_is_opened_as_it_was_saved(tmp_path):
    shape = SourceSchema(others.EVENTS, "t").shape
    fleet = SubscriptionSet(shape, key_groups=3)
    for number in range(6):
        text = FORMS[number % 3].format(number, 2)
        fleet.take(SubscriptionChange.add(f"s{number}", text), number + 1)
    fleet.take(SubscriptionChange.cancel("s1"), 7)
    fleet.save(tmp_path)
    again = SubscriptionSet.open(tmp_path, shape, key_groups=3)
    events = pa.Table.from_pylist([{"t": t, "id": 1, "kind": "a", "v": t % 9} for t in range(20)], schema=others.EVENTS)
    one, other = (set(_routed(f, events)) for f in (fleet, again))
    assert one == other
    assert len(one) > 20
    assert again.patterns.shapes.keys() == fleet.patterns.shapes.keys()


def _routed(fleet, events):
    """Which events are sent to whom."""
    rows, slots = fleet.index.route(events, None)
    numbers = -2 - fleet.nodes.leaf_of["node"][slots].astype(np.int64)
    members = [fleet.patterns.by_key[key] for key in fleet.patterns.rows["key"][numbers].tolist()]
    return [(row, m.name, m.key) for row, m in zip(rows.tolist(), members, strict=True)]
