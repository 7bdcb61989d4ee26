"""adaptive=True in hierarchies: whatever the plans of layers do, the matches are those they mean."""

from random import Random

import pytest

from ensue.codegen import kernel_cache as cache
from hierarchy import test_layers, test_timeouts
from support.hierarchies import Habits
from support.restless import Restless, restless
from support.seeds import of_round

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, scalars warn


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(8))
def test_layers_that_change_their_plans(round, monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)
    planning = restless(monkeypatch, Random(round).choice((1, 2, 5)))
    counts = [test_layers.agree(seed, Habits(), planning, "all") for seed in of_round(round, 10)]
    assert max(counts) >= 0
    assert Restless.changes > 3


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(8))
def test_what_times_out_in_layers_that_change_their_plans(round, monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)
    planning = restless(monkeypatch, Random(round).choice((1, 2, 5)))
    counts = [test_timeouts.agree(seed, planning) for seed in of_round(round, 15)]
    assert max(counts) >= 0
    assert Restless.changes > 3
