"""Random clauses over random rows: what is found is what they mean."""

import random

import pytest

from ensue.codegen import kernel_cache as cache
from support.row_patterns import a_clause, found, meant, outcome, some_rows
from support.seeds import of_round


@pytest.fixture
def uncompiled(monkeypatch):
    """Each clause has a kernel of its own: compiling them all would take minutes."""
    monkeypatch.setattr(cache, "interpreted", True)


@pytest.mark.parametrize("how", ["alone", "matched"])
@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("block", range(10))
def test_clauses_find_what_they_mean(how, block, uncompiled):
    for seed in of_round(block, 40):
        rng = random.Random(seed)
        row_pattern, table = a_clause(rng, how), some_rows(rng)
        assert outcome(found, row_pattern, table) == outcome(meant, row_pattern, table), seed
